; A local function whose callers have claimed their counters, and one whose address is taken.
; settings:
; settings: when=bursts
target triple = "x86_64-pc-linux-gnu"

@table = global ptr @by_address

define internal i32 @called(i32 %x) {
  %big = icmp ugt i32 %x, 3
  br i1 %big, label %a, label %b
a:
  ret i32 1
b:
  ret i32 2
}

define internal i32 @by_address(i32 %x) {
  %r = call i32 @called(i32 %x)
  ret i32 %r
}

define i32 @main(i32 %n) {
  %r = call i32 @called(i32 %n)
  ret i32 %r
}
; ----
