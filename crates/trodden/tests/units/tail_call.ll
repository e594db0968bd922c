; A call that must be a tail call: paths are counted before it.
; settings:
; settings: reach=all
target triple = "x86_64-pc-linux-gnu"

define i32 @even(i32 %n) {
entry:
  %zero = icmp eq i32 %n, 0
  br i1 %zero, label %yes, label %on
yes:
  ret i32 1
on:
  %less = sub i32 %n, 1
  %r = musttail call i32 @odd(i32 %less)
  ret i32 %r
}

declare i32 @odd(i32)
; ----
; settings: 
define i32 @even(i32 %n) {
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
  %zero = icmp eq i32 %n, 0
  br i1 %zero, label %yes, label %on

yes:                                              ; preds = %entry
  %8 = getelementptr i64, ptr %7, i64 0
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  ret i32 1

on:                                               ; preds = %entry
  %less = sub i32 %n, 1
  %11 = getelementptr i64, ptr %7, i64 1
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  %r = musttail call i32 @odd(i32 %less)
  ret i32 %r
}

; settings: reach=all
define i32 @even(i32 %n) {
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
  %zero = icmp eq i32 %n, 0
  br i1 %zero, label %yes, label %on

yes:                                              ; preds = %entry
  %8 = getelementptr i64, ptr %7, i64 0
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  ret i32 1

on:                                               ; preds = %entry
  %less = sub i32 %n, 1
  %11 = getelementptr i64, ptr %7, i64 1
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  %r = musttail call i32 @odd(i32 %less)
  ret i32 %r
}
