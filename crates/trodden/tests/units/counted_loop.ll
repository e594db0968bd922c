; A tight loop whose trip count the program keeps.
; settings:
; settings: trip-counts=off
; settings: trip-counts=on
; settings: dominant-iteration=shared
; settings: when=bursts
target triple = "x86_64-pc-linux-gnu"

define i32 @sum(ptr %p, i32 %n) {
entry:
  %none = icmp sle i32 %n, 0
  br i1 %none, label %end, label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = phi i32 [ 0, %entry ], [ %t, %loop ]
  %at = getelementptr i32, ptr %p, i32 %i
  %v = load i32, ptr %at
  %t = add i32 %s, %v
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %end
end:
  %r = phi i32 [ 0, %entry ], [ %t, %loop ]
  ret i32 %r
}
; ----
