; A call that may throw.
; settings:
target triple = "x86_64-pc-linux-gnu"

define i32 @try(i32 %x) personality ptr @__gxx_personality_v0 {
entry:
  %r = invoke i32 @throws(i32 %x) to label %fine unwind label %caught
fine:
  ret i32 %r
caught:
  %pad = landingpad { ptr, i32 } cleanup
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %told, label %on
told:
  call void @note() nounwind
  br label %on
on:
  resume { ptr, i32 } %pad
}

declare i32 @throws(i32)
declare void @note() nounwind willreturn
declare i32 @__gxx_personality_v0(...)
; ----
