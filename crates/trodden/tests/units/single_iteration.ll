; A loop of one iteration, as vectorisation leaves it: its back edge is never taken.
; settings:
; settings: trip-counts=off
target triple = "x86_64-pc-linux-gnu"

define i32 @once(ptr %p) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = phi i32 [ 0, %entry ], [ %t, %loop ]
  %at = getelementptr i32, ptr %p, i32 %i
  %v = load i32, ptr %at
  %t = add i32 %s, %v
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, 1
  br i1 %more, label %loop, label %end
end:
  ret i32 %t
}
; ----
; settings: 
define i32 @once(ptr %p) {
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
  br label %loop

loop:                                             ; preds = %14, %entry
  %8 = phi i64 [ 2, %14 ], [ 0, %entry ]
  %9 = phi i32 [ 0, %entry ], [ %next, %14 ]
  %10 = phi i32 [ 0, %entry ], [ %t, %14 ]
  %at = getelementptr i32, ptr %p, i32 %9
  %v = load i32, ptr %at, align 4
  %t = add i32 %10, %v
  %next = add i32 %9, 1
  %more = icmp ult i32 %next, 1
  br i1 %more, label %11, label %end

11:                                               ; preds = %loop
  %12 = add i64 %8, 1
  %13 = icmp eq i64 %8, 2
  br i1 %13, label %20, label %15, !prof !1

14:                                               ; preds = %15, %20
  br label %loop

15:                                               ; preds = %11
  %16 = getelementptr i64, ptr %7, i64 0
  %17 = getelementptr i64, ptr %16, i64 %12
  %18 = load i64, ptr %17, align 8
  %19 = add i64 %18, 1
  store i64 %19, ptr %17, align 8
  br label %14

20:                                               ; preds = %11
  %21 = getelementptr i64, ptr %7, i64 0
  %22 = getelementptr i64, ptr %21, i64 3
  %23 = load i64, ptr %22, align 8
  %24 = add i64 %23, 1
  store i64 %24, ptr %22, align 8
  br label %14

end:                                              ; preds = %loop
  %25 = getelementptr i64, ptr %7, i64 0
  %26 = getelementptr i64, ptr %25, i64 %8
  %27 = load i64, ptr %26, align 8
  %28 = add i64 %27, 1
  store i64 %28, ptr %26, align 8
  ret i32 %t
}

; settings: trip-counts=off
define i32 @once(ptr %p) {
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
  br label %loop

loop:                                             ; preds = %14, %entry
  %8 = phi i64 [ 2, %14 ], [ 0, %entry ]
  %9 = phi i32 [ 0, %entry ], [ %next, %14 ]
  %10 = phi i32 [ 0, %entry ], [ %t, %14 ]
  %at = getelementptr i32, ptr %p, i32 %9
  %v = load i32, ptr %at, align 4
  %t = add i32 %10, %v
  %next = add i32 %9, 1
  %more = icmp ult i32 %next, 1
  br i1 %more, label %11, label %end

11:                                               ; preds = %loop
  %12 = add i64 %8, 1
  %13 = icmp eq i64 %8, 2
  br i1 %13, label %20, label %15, !prof !1

14:                                               ; preds = %15, %20
  br label %loop

15:                                               ; preds = %11
  %16 = getelementptr i64, ptr %7, i64 0
  %17 = getelementptr i64, ptr %16, i64 %12
  %18 = load i64, ptr %17, align 8
  %19 = add i64 %18, 1
  store i64 %19, ptr %17, align 8
  br label %14

20:                                               ; preds = %11
  %21 = getelementptr i64, ptr %7, i64 0
  %22 = getelementptr i64, ptr %21, i64 3
  %23 = load i64, ptr %22, align 8
  %24 = add i64 %23, 1
  store i64 %24, ptr %22, align 8
  br label %14

end:                                              ; preds = %loop
  %25 = getelementptr i64, ptr %7, i64 0
  %26 = getelementptr i64, ptr %25, i64 %8
  %27 = load i64, ptr %26, align 8
  %28 = add i64 %27, 1
  store i64 %28, ptr %26, align 8
  ret i32 %t
}
