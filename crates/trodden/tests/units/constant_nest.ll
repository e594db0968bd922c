; A loop of four iterations inside another loop: the inner trip count is a constant.
; settings:
; settings: trip-counts=off
target triple = "x86_64-pc-linux-gnu"

define void @nest(ptr %p, i32 %n) {
entry:
  br label %outer
outer:
  %i = phi i32 [ 0, %entry ], [ %ni, %after ]
  br label %inner
inner:
  %j = phi i32 [ 0, %outer ], [ %nj, %inner ]
  store volatile i32 %j, ptr %p
  %nj = add i32 %j, 1
  %again = icmp ult i32 %nj, 4
  br i1 %again, label %inner, label %after
after:
  %ni = add i32 %i, 1
  %more = icmp ult i32 %ni, %n
  br i1 %more, label %outer, label %end
end:
  ret void
}
; ----
; settings: 
define void @nest(ptr %p, i32 %n) {
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

outer:                                            ; preds = %17, %entry
  %8 = phi i64 [ 3, %17 ], [ -3, %entry ]
  %9 = phi i32 [ 0, %entry ], [ %ni, %17 ]
  br label %inner

inner:                                            ; preds = %inner, %outer
  %j = phi i32 [ 0, %outer ], [ %nj, %inner ]
  store volatile i32 %j, ptr %p, align 4
  %nj = add i32 %j, 1
  %again = icmp ult i32 %nj, 4
  br i1 %again, label %inner, label %after

after:                                            ; preds = %inner
  %10 = getelementptr i64, ptr %7, i64 5
  %11 = getelementptr i64, ptr %10, i64 %8
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  %14 = getelementptr i64, ptr %7, i64 5
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 2
  store i64 %16, ptr %14, align 8
  %ni = add i32 %9, 1
  %more = icmp ult i32 %ni, %n
  br i1 %more, label %17, label %end

17:                                               ; preds = %after
  %18 = getelementptr i64, ptr %7, i64 4
  %19 = load i64, ptr %18, align 8
  %20 = add i64 %19, 1
  store i64 %20, ptr %18, align 8
  br label %outer

end:                                              ; preds = %after
  %21 = getelementptr i64, ptr %7, i64 3
  %22 = load i64, ptr %21, align 8
  %23 = add i64 %22, 1
  store i64 %23, ptr %21, align 8
  ret void
}

; settings: trip-counts=off
define void @nest(ptr %p, i32 %n) {
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

outer:                                            ; preds = %26, %entry
  %8 = phi i64 [ 3, %26 ], [ -3, %entry ]
  %9 = phi i32 [ 0, %entry ], [ %ni, %26 ]
  br label %inner

inner:                                            ; preds = %15, %outer
  %10 = phi i64 [ 0, %15 ], [ %8, %outer ]
  %11 = phi i32 [ 0, %outer ], [ %nj, %15 ]
  store volatile i32 %11, ptr %p, align 4
  %nj = add i32 %11, 1
  %again = icmp ult i32 %nj, 4
  br i1 %again, label %12, label %after

12:                                               ; preds = %inner
  %13 = add i64 %10, 5
  %14 = icmp eq i64 %10, 0
  br i1 %14, label %21, label %16, !prof !1

15:                                               ; preds = %16, %21
  br label %inner

16:                                               ; preds = %12
  %17 = getelementptr i64, ptr %7, i64 0
  %18 = getelementptr i64, ptr %17, i64 %13
  %19 = load i64, ptr %18, align 8
  %20 = add i64 %19, 1
  store i64 %20, ptr %18, align 8
  br label %15

21:                                               ; preds = %12
  %22 = getelementptr i64, ptr %7, i64 0
  %23 = getelementptr i64, ptr %22, i64 5
  %24 = load i64, ptr %23, align 8
  %25 = add i64 %24, 1
  store i64 %25, ptr %23, align 8
  br label %15

after:                                            ; preds = %inner
  %ni = add i32 %9, 1
  %more = icmp ult i32 %ni, %n
  br i1 %more, label %26, label %end

26:                                               ; preds = %after
  %27 = getelementptr i64, ptr %7, i64 4
  %28 = getelementptr i64, ptr %27, i64 %10
  %29 = load i64, ptr %28, align 8
  %30 = add i64 %29, 1
  store i64 %30, ptr %28, align 8
  br label %outer

end:                                              ; preds = %after
  %31 = getelementptr i64, ptr %7, i64 3
  %32 = getelementptr i64, ptr %31, i64 %10
  %33 = load i64, ptr %32, align 8
  %34 = add i64 %33, 1
  store i64 %34, ptr %32, align 8
  ret void
}
