; Two decisions in a row: four paths, one counter each.
; settings:
; settings: chords=off
; settings: early=off
; settings: threads=atomic
; settings: events=tsc
; settings: observe=stream
; settings: when=bursts
; settings: table-slots=8 array-paths=1
; settings: max-paths=2
target triple = "x86_64-pc-linux-gnu"

define i32 @diamonds(i32 %x) {
entry:
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other
one:
  %a = mul i32 %x, 3
  br label %join
other:
  %b = add i32 %x, 7
  br label %join
join:
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end
large:
  call void @told(i32 %r)
  br label %end
end:
  ret i32 %r
}

declare void @told(i32) nounwind willreturn
; ----
