; All paths are known: nothing is counted.
; path: diamonds 0 1000
; path: diamonds 1 1000
; path: diamonds 2 10
; path: diamonds 3 10
; settings: known=file
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
  call void @note(i32 %r)
  br label %end
end:
  ret i32 %r
}

declare void @note(i32) nounwind willreturn
; ----
; settings: known=file
define i32 @diamonds(i32 %x) {
entry:
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  call void @note(i32 %r)
  br label %end

end:                                              ; preds = %large, %join
  ret i32 %r
}
