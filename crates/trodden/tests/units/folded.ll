; The linker keeps one copy of this function, which counts with the counters of the unit that it comes from.
; settings:
target triple = "x86_64-pc-linux-gnu"

$folded = comdat any

define linkonce_odr i32 @folded(i32 %x) comdat {
  ret i32 %x
}
define i32 @uses(i32 %x) {
  %r = call i32 @folded(i32 %x)
  ret i32 %r
}
; ----
; settings: 
define linkonce_odr i32 @folded(i32 %x) comdat {
  %1 = load i64, ptr @__trodden_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !0

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %8

8:                                                ; preds = %5
  %9 = getelementptr i64, ptr %7, i64 0
  %10 = load i64, ptr %9, align 8
  %11 = add i64 %10, 1
  store i64 %11, ptr %9, align 8
  ret i32 %x
}

define i32 @uses(i32 %x) {
  %1 = load i64, ptr @__trodden_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !0

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %8

8:                                                ; preds = %5
  %r = call i32 @folded(i32 %x)
  %9 = getelementptr i64, ptr %7, i64 1
  %10 = load i64, ptr %9, align 8
  %11 = add i64 %10, 1
  store i64 %11, ptr %9, align 8
  ret i32 %r
}
