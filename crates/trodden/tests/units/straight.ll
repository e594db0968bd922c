; One path.
; settings:
; settings: reach=all
target triple = "x86_64-pc-linux-gnu"

define i32 @straight(i32 %x) {
  call void @maybe(i32 %x)
  %r = call i32 @certainly(i32 %x)
  ret i32 %r
}

declare void @maybe(i32)
declare i32 @certainly(i32) nounwind willreturn
; ----
