; A loop with a decision: its dominant iteration has an instruction of its own.
; settings:
; settings: dominant-iteration=shared
; settings: chords=off
; settings: observe=stream
target triple = "x86_64-pc-linux-gnu"

define i32 @collatz(i32 %x) {
entry:
  br label %loop
loop:
  %v = phi i32 [ %x, %entry ], [ %w, %latch ]
  %steps = phi i32 [ 0, %entry ], [ %more, %latch ]
  %done = icmp ule i32 %v, 1
  br i1 %done, label %end, label %go
go:
  %odd = trunc i32 %v to i1
  br i1 %odd, label %up, label %down
up:
  %m = mul i32 %v, 3
  %u = add i32 %m, 1
  br label %latch
down:
  %d = lshr i32 %v, 1
  br label %latch
latch:
  %w = phi i32 [ %u, %up ], [ %d, %down ]
  %more = add i32 %steps, 1
  br label %loop
end:
  ret i32 %steps
}
; ----
