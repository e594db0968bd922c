; Threads share one counter, and the loop is counted by its trip count: the sum is added atomically.
; settings: threads=atomic
; settings: threads=atomic trip-counts=off
target triple = "x86_64-pc-linux-gnu"

define i32 @sum(ptr %p, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = phi i32 [ 0, %entry ], [ %t, %loop ]
  %v = load volatile i32, ptr %p
  %t = add i32 %s, %v
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret i32 %t
}
; ----
; settings: threads=atomic
define i32 @sum(ptr %p, i32 %n) {
  %1 = load i64, ptr @__trodden_shared_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !0

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter_shared()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %entry

entry:                                            ; preds = %5
  br label %loop

loop:                                             ; preds = %loop, %entry
  %8 = phi i64 [ %9, %loop ], [ 0, %entry ]
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = phi i32 [ 0, %entry ], [ %t, %loop ]
  %v = load volatile i32, ptr %p, align 4
  %t = add i32 %s, %v
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  %9 = add i64 %8, 1
  br i1 %more, label %loop, label %end

end:                                              ; preds = %loop
  %10 = icmp eq i64 %8, 0
  %11 = xor i1 %10, true
  br i1 %10, label %19, label %12

12:                                               ; preds = %end
  %13 = getelementptr i64, ptr %7, i64 3
  %14 = getelementptr i64, ptr %13, i64 -2
  %15 = atomicrmw add ptr %14, i64 1 monotonic, align 8
  %16 = add i64 %8, -1
  %17 = getelementptr i64, ptr %7, i64 3
  %18 = atomicrmw add ptr %17, i64 %16 monotonic, align 8
  br label %19

19:                                               ; preds = %12, %end
  %20 = phi i64 [ -2, %end ], [ 0, %12 ]
  %21 = getelementptr i64, ptr %7, i64 2
  %22 = getelementptr i64, ptr %21, i64 %20
  %23 = atomicrmw add ptr %22, i64 1 monotonic, align 8
  ret i32 %t
}

; settings: threads=atomic trip-counts=off
define i32 @sum(ptr %p, i32 %n) {
  %1 = load i64, ptr @__trodden_shared_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !0

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter_shared()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %entry

entry:                                            ; preds = %5
  br label %loop

loop:                                             ; preds = %11, %entry
  %8 = phi i64 [ 0, %11 ], [ -2, %entry ]
  %9 = phi i32 [ 0, %entry ], [ %next, %11 ]
  %10 = phi i32 [ 0, %entry ], [ %t, %11 ]
  %v = load volatile i32, ptr %p, align 4
  %t = add i32 %10, %v
  %next = add i32 %9, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %11, label %end

11:                                               ; preds = %loop
  %12 = getelementptr i64, ptr %7, i64 3
  %13 = getelementptr i64, ptr %12, i64 %8
  %14 = atomicrmw add ptr %13, i64 1 monotonic, align 8
  br label %loop

end:                                              ; preds = %loop
  %15 = getelementptr i64, ptr %7, i64 2
  %16 = getelementptr i64, ptr %15, i64 %8
  %17 = atomicrmw add ptr %16, i64 1 monotonic, align 8
  ret i32 %t
}
