; Computed jumps: paths end at them.
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
