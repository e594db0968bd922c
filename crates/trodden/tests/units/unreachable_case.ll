; A switch with an unreachable default: its path has a number, whose count stays 0.
; settings:
target triple = "x86_64-pc-linux-gnu"

define i32 @unreachable_case(i32 %x) {
entry:
  switch i32 %x, label %never [ i32 0, label %zero
                                i32 1, label %one ]
never:
  unreachable
zero:
  ret i32 5
one:
  ret i32 6
}
; ----
; settings: 
define i32 @unreachable_case(i32 %x) {
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
  switch i32 %x, label %never [
    i32 0, label %zero
    i32 1, label %one
  ]

never:                                            ; preds = %entry
  %8 = getelementptr i64, ptr %7, i64 0
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  unreachable

zero:                                             ; preds = %entry
  %11 = getelementptr i64, ptr %7, i64 1
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  ret i32 5

one:                                              ; preds = %entry
  %14 = getelementptr i64, ptr %7, i64 2
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %14, align 8
  ret i32 6
}
