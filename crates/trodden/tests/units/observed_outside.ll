; Nothing is counted: the blocks have pseudo-probes, or sleds for witnesses.
; settings: observe=addresses
; settings: observe=trace
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
; settings: observe=addresses
define i32 @diamonds(i32 %x) {
entry:
  call void @llvm.pseudoprobe(i64 FUNCTION, i64 1, i32 0, i64 -1)
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  call void @llvm.pseudoprobe(i64 FUNCTION, i64 4, i32 0, i64 -1)
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  call void @llvm.pseudoprobe(i64 FUNCTION, i64 7, i32 0, i64 -1)
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  call void @llvm.pseudoprobe(i64 FUNCTION, i64 10, i32 0, i64 -1)
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  call void @llvm.pseudoprobe(i64 FUNCTION, i64 13, i32 0, i64 -1)
  call void @note(i32 %r)
  br label %end

end:                                              ; preds = %large, %join
  call void @llvm.pseudoprobe(i64 FUNCTION, i64 16, i32 0, i64 -1)
  ret i32 %r
}

; settings: observe=trace
define i32 @diamonds(i32 %x) {
entry:
  call void asm sideeffect ".byte 0x0f,0x1f,0x84,0x00,0x74,0x72,0x6f,0x64", "~{memory}"()
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  call void asm sideeffect ".byte 0x0f,0x1f,0x84,0x00,0x74,0x72,0x6f,0x64", "~{memory}"()
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  call void asm sideeffect ".byte 0x0f,0x1f,0x84,0x00,0x74,0x72,0x6f,0x64", "~{memory}"()
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  call void asm sideeffect ".byte 0x0f,0x1f,0x84,0x00,0x74,0x72,0x6f,0x64", "~{memory}"()
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  call void asm sideeffect ".byte 0x0f,0x1f,0x84,0x00,0x74,0x72,0x6f,0x64", "~{memory}"()
  call void @note(i32 %r)
  br label %end

end:                                              ; preds = %large, %join
  call void asm sideeffect ".byte 0x0f,0x1f,0x84,0x00,0x74,0x72,0x6f,0x64", "~{memory}"()
  ret i32 %r
}
