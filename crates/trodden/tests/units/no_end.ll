; An endless loop, and a call that does not return.
; settings:
target triple = "x86_64-pc-linux-gnu"

define void @serve(ptr %p) {
entry:
  br label %loop
loop:
  %v = load volatile i32, ptr %p
  %stop = icmp eq i32 %v, 7
  br i1 %stop, label %out, label %loop
out:
  call void @die() noreturn
  unreachable
}

declare void @die() noreturn
; ----
; settings: 
define void @serve(ptr %p) {
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

loop:                                             ; preds = %loop, %entry
  %8 = phi i64 [ %9, %loop ], [ 0, %entry ]
  %v = load volatile i32, ptr %p, align 4
  %stop = icmp eq i32 %v, 7
  %9 = add i64 %8, 1
  br i1 %stop, label %out, label %loop

out:                                              ; preds = %loop
  %10 = icmp eq i64 %8, 0
  %11 = xor i1 %10, true
  br i1 %10, label %21, label %12

12:                                               ; preds = %out
  %13 = getelementptr i64, ptr %7, i64 3
  %14 = getelementptr i64, ptr %13, i64 -2
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %14, align 8
  %17 = add i64 %8, -1
  %18 = getelementptr i64, ptr %7, i64 3
  %19 = load i64, ptr %18, align 8
  %20 = add i64 %19, %17
  store i64 %20, ptr %18, align 8
  br label %21

21:                                               ; preds = %12, %out
  %22 = phi i64 [ -2, %out ], [ 0, %12 ]
  %23 = getelementptr i64, ptr %7, i64 2
  %24 = getelementptr i64, ptr %23, i64 %22
  %25 = load i64, ptr %24, align 8
  %26 = add i64 %25, 1
  store i64 %26, ptr %24, align 8
  call void @die() #0
  unreachable
}
