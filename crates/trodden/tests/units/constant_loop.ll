; A loop of sixteen iterations.
; settings:
; settings: trip-counts=off
target triple = "x86_64-pc-linux-gnu"

define i32 @sixteen(ptr %p) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = phi i32 [ 0, %entry ], [ %t, %loop ]
  %at = getelementptr i32, ptr %p, i32 %i
  %v = load i32, ptr %at
  %t = add i32 %s, %v
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, 16
  br i1 %more, label %loop, label %end
end:
  ret i32 %t
}
; ----
