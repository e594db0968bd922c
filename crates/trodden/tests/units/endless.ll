; A loop without an exit: each iteration is counted when it ends.
; settings:
target triple = "x86_64-pc-linux-gnu"

define void @endless(ptr %p) noreturn {
entry:
  br label %loop
loop:
  %v = load volatile i32, ptr %p
  %odd = trunc i32 %v to i1
  br i1 %odd, label %note, label %loop
note:
  store volatile i32 0, ptr %p
  br label %loop
}
; ----
; settings: 
define void @endless(ptr %p) #0 {
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

loop:                                             ; preds = %12, %25, %entry
  %8 = phi i64 [ 0, %12 ], [ 0, %25 ], [ -2, %entry ]
  %v = load volatile i32, ptr %p, align 4
  %odd = trunc i32 %v to i1
  br i1 %odd, label %note, label %9

9:                                                ; preds = %loop
  %10 = add i64 %8, 3
  %11 = icmp eq i64 %8, 0
  br i1 %11, label %18, label %13, !prof !1

12:                                               ; preds = %13, %18
  br label %loop

13:                                               ; preds = %9
  %14 = getelementptr i64, ptr %7, i64 0
  %15 = getelementptr i64, ptr %14, i64 %10
  %16 = load i64, ptr %15, align 8
  %17 = add i64 %16, 1
  store i64 %17, ptr %15, align 8
  br label %12

18:                                               ; preds = %9
  %19 = getelementptr i64, ptr %7, i64 0
  %20 = getelementptr i64, ptr %19, i64 3
  %21 = load i64, ptr %20, align 8
  %22 = add i64 %21, 1
  store i64 %22, ptr %20, align 8
  br label %12

note:                                             ; preds = %loop
  store volatile i32 0, ptr %p, align 4
  %23 = add i64 %8, 2
  %24 = icmp eq i64 %8, 0
  br i1 %24, label %31, label %26, !prof !1

25:                                               ; preds = %26, %31
  br label %loop

26:                                               ; preds = %note
  %27 = getelementptr i64, ptr %7, i64 0
  %28 = getelementptr i64, ptr %27, i64 %23
  %29 = load i64, ptr %28, align 8
  %30 = add i64 %29, 1
  store i64 %30, ptr %28, align 8
  br label %25

31:                                               ; preds = %note
  %32 = getelementptr i64, ptr %7, i64 0
  %33 = getelementptr i64, ptr %32, i64 2
  %34 = load i64, ptr %33, align 8
  %35 = add i64 %34, 1
  store i64 %35, ptr %33, align 8
  br label %25
}
