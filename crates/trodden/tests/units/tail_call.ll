; A call that has to be a tail call: what is counted is counted before it.
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
