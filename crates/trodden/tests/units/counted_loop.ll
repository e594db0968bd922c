; A tight loop whose trip count the program itself computes.
; settings:
; settings: trip-counts=off
; settings: trip-counts=on
; settings: dominant-iteration=shared
; settings: when=bursts
target triple = "x86_64-pc-linux-gnu"

define i32 @sum(ptr %p, i32 %n) {
entry:
  %none = icmp sle i32 %n, 0
  br i1 %none, label %end, label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = phi i32 [ 0, %entry ], [ %t, %loop ]
  %at = getelementptr i32, ptr %p, i32 %i
  %v = load i32, ptr %at
  %t = add i32 %s, %v
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %end
end:
  %r = phi i32 [ 0, %entry ], [ %t, %loop ]
  ret i32 %r
}
; ----
; settings: 
define i32 @sum(ptr %p, i32 %n) {
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
  %none = icmp sle i32 %n, 0
  br i1 %none, label %9, label %8

8:                                                ; preds = %entry
  br label %loop

9:                                                ; preds = %entry
  %10 = getelementptr i64, ptr %7, i64 0
  %11 = load i64, ptr %10, align 8
  %12 = add i64 %11, 1
  store i64 %12, ptr %10, align 8
  br label %end

loop:                                             ; preds = %8, %loop
  %13 = phi i64 [ 0, %8 ], [ %16, %loop ]
  %14 = phi i32 [ 0, %8 ], [ %next, %loop ]
  %15 = phi i32 [ 0, %8 ], [ %t, %loop ]
  %at = getelementptr i32, ptr %p, i32 %14
  %v = load i32, ptr %at, align 4
  %t = add i32 %15, %v
  %next = add i32 %14, 1
  %more = icmp slt i32 %next, %n
  %16 = add i64 %13, 1
  br i1 %more, label %loop, label %17

17:                                               ; preds = %loop
  %18 = icmp eq i64 %13, 0
  %19 = xor i1 %18, true
  br i1 %18, label %29, label %20

20:                                               ; preds = %17
  %21 = getelementptr i64, ptr %7, i64 4
  %22 = getelementptr i64, ptr %21, i64 -2
  %23 = load i64, ptr %22, align 8
  %24 = add i64 %23, 1
  store i64 %24, ptr %22, align 8
  %25 = add i64 %13, -1
  %26 = getelementptr i64, ptr %7, i64 4
  %27 = load i64, ptr %26, align 8
  %28 = add i64 %27, %25
  store i64 %28, ptr %26, align 8
  br label %29

29:                                               ; preds = %20, %17
  %30 = phi i64 [ -2, %17 ], [ 0, %20 ]
  %31 = getelementptr i64, ptr %7, i64 3
  %32 = getelementptr i64, ptr %31, i64 %30
  %33 = load i64, ptr %32, align 8
  %34 = add i64 %33, 1
  store i64 %34, ptr %32, align 8
  br label %end

end:                                              ; preds = %29, %9
  %35 = phi i32 [ 0, %9 ], [ %t, %29 ]
  ret i32 %35
}

; settings: trip-counts=off
define i32 @sum(ptr %p, i32 %n) {
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
  %none = icmp sle i32 %n, 0
  br i1 %none, label %9, label %8

8:                                                ; preds = %entry
  br label %loop

9:                                                ; preds = %entry
  br label %end

loop:                                             ; preds = %16, %8
  %10 = phi i64 [ 0, %16 ], [ -2, %8 ]
  %11 = phi i32 [ 0, %8 ], [ %next, %16 ]
  %12 = phi i32 [ 0, %8 ], [ %t, %16 ]
  %at = getelementptr i32, ptr %p, i32 %11
  %v = load i32, ptr %at, align 4
  %t = add i32 %12, %v
  %next = add i32 %11, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %13, label %end

13:                                               ; preds = %loop
  %14 = add i64 %10, 4
  %15 = icmp eq i64 %10, 0
  br i1 %15, label %22, label %17, !prof !1

16:                                               ; preds = %17, %22
  br label %loop

17:                                               ; preds = %13
  %18 = getelementptr i64, ptr %7, i64 0
  %19 = getelementptr i64, ptr %18, i64 %14
  %20 = load i64, ptr %19, align 8
  %21 = add i64 %20, 1
  store i64 %21, ptr %19, align 8
  br label %16

22:                                               ; preds = %13
  %23 = getelementptr i64, ptr %7, i64 0
  %24 = getelementptr i64, ptr %23, i64 4
  %25 = load i64, ptr %24, align 8
  %26 = add i64 %25, 1
  store i64 %26, ptr %24, align 8
  br label %16

end:                                              ; preds = %9, %loop
  %27 = phi i64 [ -3, %9 ], [ %10, %loop ]
  %28 = phi i32 [ 0, %9 ], [ %t, %loop ]
  %29 = getelementptr i64, ptr %7, i64 3
  %30 = getelementptr i64, ptr %29, i64 %27
  %31 = load i64, ptr %30, align 8
  %32 = add i64 %31, 1
  store i64 %32, ptr %30, align 8
  ret i32 %28
}

; settings: trip-counts=on
define i32 @sum(ptr %p, i32 %n) {
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
  %none = icmp sle i32 %n, 0
  br i1 %none, label %9, label %8

8:                                                ; preds = %entry
  br label %loop

9:                                                ; preds = %entry
  %10 = getelementptr i64, ptr %7, i64 0
  %11 = load i64, ptr %10, align 8
  %12 = add i64 %11, 1
  store i64 %12, ptr %10, align 8
  br label %end

loop:                                             ; preds = %8, %loop
  %13 = phi i64 [ 0, %8 ], [ %16, %loop ]
  %14 = phi i32 [ 0, %8 ], [ %next, %loop ]
  %15 = phi i32 [ 0, %8 ], [ %t, %loop ]
  %at = getelementptr i32, ptr %p, i32 %14
  %v = load i32, ptr %at, align 4
  %t = add i32 %15, %v
  %next = add i32 %14, 1
  %more = icmp slt i32 %next, %n
  %16 = add i64 %13, 1
  br i1 %more, label %loop, label %17

17:                                               ; preds = %loop
  %18 = icmp eq i64 %13, 0
  %19 = xor i1 %18, true
  br i1 %18, label %29, label %20

20:                                               ; preds = %17
  %21 = getelementptr i64, ptr %7, i64 4
  %22 = getelementptr i64, ptr %21, i64 -2
  %23 = load i64, ptr %22, align 8
  %24 = add i64 %23, 1
  store i64 %24, ptr %22, align 8
  %25 = add i64 %13, -1
  %26 = getelementptr i64, ptr %7, i64 4
  %27 = load i64, ptr %26, align 8
  %28 = add i64 %27, %25
  store i64 %28, ptr %26, align 8
  br label %29

29:                                               ; preds = %20, %17
  %30 = phi i64 [ -2, %17 ], [ 0, %20 ]
  %31 = getelementptr i64, ptr %7, i64 3
  %32 = getelementptr i64, ptr %31, i64 %30
  %33 = load i64, ptr %32, align 8
  %34 = add i64 %33, 1
  store i64 %34, ptr %32, align 8
  br label %end

end:                                              ; preds = %29, %9
  %35 = phi i32 [ 0, %9 ], [ %t, %29 ]
  ret i32 %35
}

; settings: dominant-iteration=shared
define i32 @sum(ptr %p, i32 %n) {
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
  %none = icmp sle i32 %n, 0
  br i1 %none, label %9, label %8

8:                                                ; preds = %entry
  br label %loop

9:                                                ; preds = %entry
  %10 = getelementptr i64, ptr %7, i64 0
  %11 = load i64, ptr %10, align 8
  %12 = add i64 %11, 1
  store i64 %12, ptr %10, align 8
  br label %end

loop:                                             ; preds = %8, %loop
  %13 = phi i64 [ 0, %8 ], [ %16, %loop ]
  %14 = phi i32 [ 0, %8 ], [ %next, %loop ]
  %15 = phi i32 [ 0, %8 ], [ %t, %loop ]
  %at = getelementptr i32, ptr %p, i32 %14
  %v = load i32, ptr %at, align 4
  %t = add i32 %15, %v
  %next = add i32 %14, 1
  %more = icmp slt i32 %next, %n
  %16 = add i64 %13, 1
  br i1 %more, label %loop, label %17

17:                                               ; preds = %loop
  %18 = icmp eq i64 %13, 0
  %19 = xor i1 %18, true
  br i1 %18, label %29, label %20

20:                                               ; preds = %17
  %21 = getelementptr i64, ptr %7, i64 4
  %22 = getelementptr i64, ptr %21, i64 -2
  %23 = load i64, ptr %22, align 8
  %24 = add i64 %23, 1
  store i64 %24, ptr %22, align 8
  %25 = add i64 %13, -1
  %26 = getelementptr i64, ptr %7, i64 4
  %27 = load i64, ptr %26, align 8
  %28 = add i64 %27, %25
  store i64 %28, ptr %26, align 8
  br label %29

29:                                               ; preds = %20, %17
  %30 = phi i64 [ -2, %17 ], [ 0, %20 ]
  %31 = getelementptr i64, ptr %7, i64 3
  %32 = getelementptr i64, ptr %31, i64 %30
  %33 = load i64, ptr %32, align 8
  %34 = add i64 %33, 1
  store i64 %34, ptr %32, align 8
  br label %end

end:                                              ; preds = %29, %9
  %35 = phi i32 [ 0, %9 ], [ %t, %29 ]
  ret i32 %35
}

; settings: when=bursts
define i32 @sum(ptr %p, i32 %n) {
  %1 = load volatile i8, ptr @__trodden_switch, align 1
  %2 = icmp ne i8 %1, 0
  br i1 %2, label %3, label %entry, !prof !0

entry:                                            ; preds = %0
  %none = icmp sle i32 %n, 0
  br i1 %none, label %end, label %loop

loop:                                             ; preds = %loop, %entry
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = phi i32 [ 0, %entry ], [ %t, %loop ]
  %at = getelementptr i32, ptr %p, i32 %i
  %v = load i32, ptr %at, align 4
  %t = add i32 %s, %v
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %end

end:                                              ; preds = %loop, %entry
  %r = phi i32 [ 0, %entry ], [ %t, %loop ]
  ret i32 %r

3:                                                ; preds = %0
  %4 = musttail call i32 @sum.counted(ptr %p, i32 %n)
  ret i32 %4
}

define internal i32 @sum.counted(ptr %0, i32 %1) #1 {
  %3 = load i64, ptr @__trodden_bias, align 8
  %4 = icmp eq i64 %3, 0
  br i1 %4, label %5, label %7, !prof !0

5:                                                ; preds = %2
  %6 = call preserve_allcc i64 @__trodden_enter()
  br label %7

7:                                                ; preds = %5, %2
  %8 = phi i64 [ %3, %2 ], [ %6, %5 ]
  %9 = getelementptr i8, ptr @__trodden_counters, i64 %8
  br label %10

10:                                               ; preds = %7
  %11 = icmp sle i32 %1, 0
  br i1 %11, label %13, label %12

12:                                               ; preds = %10
  br label %14

13:                                               ; preds = %10
  br label %36

14:                                               ; preds = %12, %14
  %15 = phi i64 [ 0, %12 ], [ %23, %14 ]
  %16 = phi i32 [ 0, %12 ], [ %21, %14 ]
  %17 = phi i32 [ 0, %12 ], [ %20, %14 ]
  %18 = getelementptr i32, ptr %0, i32 %16
  %19 = load i32, ptr %18, align 4
  %20 = add i32 %17, %19
  %21 = add i32 %16, 1
  %22 = icmp slt i32 %21, %1
  %23 = add i64 %15, 1
  br i1 %22, label %14, label %24

24:                                               ; preds = %14
  %25 = icmp eq i64 %15, 0
  %26 = xor i1 %25, true
  %27 = zext i1 %26 to i64
  %28 = getelementptr i64, ptr %9, i64 2
  %29 = load i64, ptr %28, align 8
  %30 = add i64 %29, %27
  store i64 %30, ptr %28, align 8
  %31 = sub i64 %15, %27
  %32 = getelementptr i64, ptr %9, i64 4
  %33 = load i64, ptr %32, align 8
  %34 = add i64 %33, %31
  store i64 %34, ptr %32, align 8
  %35 = select i1 %26, i64 0, i64 -2
  br label %36

36:                                               ; preds = %24, %13
  %37 = phi i64 [ %35, %24 ], [ -3, %13 ]
  %38 = phi i32 [ 0, %13 ], [ %20, %24 ]
  %39 = getelementptr i64, ptr %9, i64 3
  %40 = getelementptr i64, ptr %39, i64 %37
  %41 = load i64, ptr %40, align 8
  %42 = add i64 %41, 1
  store i64 %42, ptr %40, align 8
  ret i32 %38
}
