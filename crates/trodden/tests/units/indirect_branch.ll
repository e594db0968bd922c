; The edges of an indirect branch cannot be split, so paths end at the branch.
; settings:
target triple = "x86_64-pc-linux-gnu"

define i32 @jump(ptr %target) {
entry:
  indirectbr ptr %target, [label %a, label %b]
a:
  br label %end
b:
  br label %end
end:
  %r = phi i32 [ 1, %a ], [ 2, %b ]
  ret i32 %r
}
; ----
; settings: 
define i32 @jump(ptr %target) {
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
  %8 = getelementptr i64, ptr %7, i64 2
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  indirectbr ptr %target, [label %a, label %b]

a:                                                ; preds = %entry
  %11 = getelementptr i64, ptr %7, i64 0
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  br label %end

b:                                                ; preds = %entry
  %14 = getelementptr i64, ptr %7, i64 1
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %14, align 8
  br label %end

end:                                              ; preds = %b, %a
  %r = phi i32 [ 1, %a ], [ 2, %b ]
  ret i32 %r
}
