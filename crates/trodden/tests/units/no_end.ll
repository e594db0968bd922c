; A loop without an end, and a call that does not return.
; settings:
target triple = "x86_64-pc-linux-gnu"

define void @serve(ptr %p) {
entry:
  br label %loop
loop:
  %v = load volatile i32, ptr %p
  %stop = icmp eq i32 %v, 7
  br i1 %stop, label %out, label %loop
out:
  call void @die() noreturn
  unreachable
}

declare void @die() noreturn
; ----
