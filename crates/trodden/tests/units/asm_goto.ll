; Assembly that may jump: its outgoing edges cannot be split, so their targets are.
; settings:
target triple = "x86_64-pc-linux-gnu"

define i32 @asm_goto(i32 %x) {
entry:
  callbr void asm sideeffect "", "r,!i"(i32 %x) to label %falls [label %jumps]
falls:
  br label %end
jumps:
  br label %end
end:
  %r = phi i32 [ 0, %falls ], [ 1, %jumps ]
  ret i32 %r
}
; ----
; settings: 
define i32 @asm_goto(i32 %x) {
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
  callbr void asm sideeffect "", "r,!i"(i32 %x)
          to label %falls [label %jumps]

falls:                                            ; preds = %entry
  %8 = getelementptr i64, ptr %7, i64 0
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  br label %end

jumps:                                            ; preds = %entry
  %11 = getelementptr i64, ptr %7, i64 1
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  br label %end

end:                                              ; preds = %jumps, %falls
  %r = phi i32 [ 0, %falls ], [ 1, %jumps ]
  ret i32 %r
}
