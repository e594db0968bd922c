; A loop inside a loop.
; settings:
; settings: when=bursts
target triple = "x86_64-pc-linux-gnu"

define i32 @nest(i32 %n) {
entry:
  br label %outer
outer:
  %i = phi i32 [ 0, %entry ], [ %ni, %after ]
  %s = phi i32 [ 0, %entry ], [ %t, %after ]
  br label %inner
inner:
  %j = phi i32 [ 0, %outer ], [ %nj, %inner ]
  %t = phi i32 [ %s, %outer ], [ %u, %inner ]
  %u = add i32 %t, %j
  %nj = add i32 %j, 1
  %again = icmp ult i32 %nj, %i
  br i1 %again, label %inner, label %after
after:
  %ni = add i32 %i, 1
  %more = icmp ult i32 %ni, %n
  br i1 %more, label %outer, label %end
end:
  ret i32 %u
}
; ----
; settings: 
define i32 @nest(i32 %n) {
  %1 = load i64, ptr @__trodden_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !0

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %entry

entry:                                            ; preds = %5
  br label %outer

outer:                                            ; preds = %30, %entry
  %8 = phi i64 [ 3, %30 ], [ -3, %entry ]
  %9 = phi i32 [ 0, %entry ], [ %28, %30 ]
  %10 = phi i32 [ 0, %entry ], [ %t, %30 ]
  br label %inner

inner:                                            ; preds = %inner, %outer
  %11 = phi i64 [ %12, %inner ], [ 0, %outer ]
  %j = phi i32 [ 0, %outer ], [ %nj, %inner ]
  %t = phi i32 [ %10, %outer ], [ %u, %inner ]
  %u = add i32 %t, %j
  %nj = add i32 %j, 1
  %again = icmp ult i32 %nj, %9
  %12 = add i64 %11, 1
  br i1 %again, label %inner, label %after

after:                                            ; preds = %inner
  %13 = icmp eq i64 %11, 0
  %14 = xor i1 %13, true
  %15 = add i64 %8, 0
  br i1 %13, label %26, label %16

16:                                               ; preds = %after
  %17 = add i64 %8, 0
  %18 = getelementptr i64, ptr %7, i64 5
  %19 = getelementptr i64, ptr %18, i64 %17
  %20 = load i64, ptr %19, align 8
  %21 = add i64 %20, 1
  store i64 %21, ptr %19, align 8
  %22 = add i64 %11, -1
  %23 = getelementptr i64, ptr %7, i64 5
  %24 = load i64, ptr %23, align 8
  %25 = add i64 %24, %22
  store i64 %25, ptr %23, align 8
  br label %26

26:                                               ; preds = %16, %after
  %27 = phi i64 [ %15, %after ], [ 0, %16 ]
  %28 = add i32 %9, 1
  %29 = icmp ult i32 %28, %n
  br i1 %29, label %30, label %end

30:                                               ; preds = %26
  %31 = getelementptr i64, ptr %7, i64 4
  %32 = getelementptr i64, ptr %31, i64 %27
  %33 = load i64, ptr %32, align 8
  %34 = add i64 %33, 1
  store i64 %34, ptr %32, align 8
  br label %outer

end:                                              ; preds = %26
  %35 = getelementptr i64, ptr %7, i64 3
  %36 = getelementptr i64, ptr %35, i64 %27
  %37 = load i64, ptr %36, align 8
  %38 = add i64 %37, 1
  store i64 %38, ptr %36, align 8
  ret i32 %u
}

; settings: when=bursts
define i32 @nest(i32 %n) {
  %1 = load volatile i8, ptr @__trodden_switch, align 1
  %2 = icmp ne i8 %1, 0
  br i1 %2, label %3, label %entry, !prof !0

entry:                                            ; preds = %0
  br label %outer

outer:                                            ; preds = %after, %entry
  %i = phi i32 [ 0, %entry ], [ %ni, %after ]
  %s = phi i32 [ 0, %entry ], [ %t, %after ]
  br label %inner

inner:                                            ; preds = %inner, %outer
  %j = phi i32 [ 0, %outer ], [ %nj, %inner ]
  %t = phi i32 [ %s, %outer ], [ %u, %inner ]
  %u = add i32 %t, %j
  %nj = add i32 %j, 1
  %again = icmp ult i32 %nj, %i
  br i1 %again, label %inner, label %after

after:                                            ; preds = %inner
  %ni = add i32 %i, 1
  %more = icmp ult i32 %ni, %n
  br i1 %more, label %outer, label %end

end:                                              ; preds = %after
  ret i32 %u

3:                                                ; preds = %0
  %4 = musttail call i32 @nest.counted(i32 %n)
  ret i32 %4
}

define internal i32 @nest.counted(i32 %0) #1 {
  %2 = load i64, ptr @__trodden_bias, align 8
  %3 = icmp eq i64 %2, 0
  br i1 %3, label %4, label %6, !prof !0

4:                                                ; preds = %1
  %5 = call preserve_allcc i64 @__trodden_enter()
  br label %6

6:                                                ; preds = %4, %1
  %7 = phi i64 [ %2, %1 ], [ %5, %4 ]
  %8 = getelementptr i8, ptr @__trodden_counters, i64 %7
  br label %9

9:                                                ; preds = %6
  br label %10

10:                                               ; preds = %38, %9
  %11 = phi i64 [ 3, %38 ], [ -3, %9 ]
  %12 = phi i32 [ 0, %9 ], [ %36, %38 ]
  %13 = phi i32 [ 0, %9 ], [ %17, %38 ]
  br label %14

14:                                               ; preds = %14, %10
  %15 = phi i64 [ %21, %14 ], [ 0, %10 ]
  %16 = phi i32 [ 0, %10 ], [ %19, %14 ]
  %17 = phi i32 [ %13, %10 ], [ %18, %14 ]
  %18 = add i32 %17, %16
  %19 = add i32 %16, 1
  %20 = icmp ult i32 %19, %12
  %21 = add i64 %15, 1
  br i1 %20, label %14, label %22

22:                                               ; preds = %14
  %23 = icmp eq i64 %15, 0
  %24 = xor i1 %23, true
  %25 = zext i1 %24 to i64
  %26 = getelementptr i64, ptr %8, i64 5
  %27 = getelementptr i64, ptr %26, i64 %11
  %28 = load i64, ptr %27, align 8
  %29 = add i64 %28, %25
  store i64 %29, ptr %27, align 8
  %30 = sub i64 %15, %25
  %31 = getelementptr i64, ptr %8, i64 5
  %32 = load i64, ptr %31, align 8
  %33 = add i64 %32, %30
  store i64 %33, ptr %31, align 8
  %34 = add i64 %11, 0
  %35 = select i1 %24, i64 0, i64 %34
  %36 = add i32 %12, 1
  %37 = icmp ult i32 %36, %0
  br i1 %37, label %38, label %43

38:                                               ; preds = %22
  %39 = getelementptr i64, ptr %8, i64 4
  %40 = getelementptr i64, ptr %39, i64 %35
  %41 = load i64, ptr %40, align 8
  %42 = add i64 %41, 1
  store i64 %42, ptr %40, align 8
  br label %10

43:                                               ; preds = %22
  %44 = getelementptr i64, ptr %8, i64 3
  %45 = getelementptr i64, ptr %44, i64 %35
  %46 = load i64, ptr %45, align 8
  %47 = add i64 %46, 1
  store i64 %47, ptr %45, align 8
  ret i32 %18
}
