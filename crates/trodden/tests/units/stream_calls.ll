; A stream of two functions: besides paths, calls and their ends are written; a path continues after a call.
; settings: observe=stream
target triple = "x86_64-pc-linux-gnu"

define internal i32 @leaf(i32 %x) nounwind willreturn noinline {
  ret i32 %x
}
define i32 @caller(i32 %x) nounwind willreturn {
entry:
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %then, label %end
then:
  %r = call i32 @leaf(i32 %x) nounwind willreturn
  br label %end
end:
  ret i32 %x
}
; ----
; settings: observe=stream
define internal i32 @leaf(i32 %x) #0 {
  %1 = call i64 asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r10\0A\09movq %fs:8(%r10), %rax\0A\09leaq 2f(%rip), %r11\0A\09testl $$0x3ffff, %eax\0A\09jz ${2:P}\0A\09leaq 4(%rax), %r11\0A\09movq %r11, %fs:8(%r10)\0A2:\0A\09movl ${1:k}, %r11d\0A\09movq %r11, (%rax)", "=&{rax},r,i,~{r10},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr @__trodden_counters, i64 2), ptr @__trodden_stream_enter)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr @__trodden_counters, i64 2), ptr @__trodden_stream_next)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr @__trodden_counters, i64 5), ptr @__trodden_stream_next)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movq $0, %fs:8(%r11)\0A\09movl $$0, ($0)", "r,~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(i64 %1)
  ret i32 %x
}

define i32 @caller(i32 %x) #1 {
entry:
  %0 = call i64 asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r10\0A\09movq %fs:8(%r10), %rax\0A\09leaq 2f(%rip), %r11\0A\09testl $$0x3ffff, %eax\0A\09jz ${2:P}\0A\09leaq 4(%rax), %r11\0A\09movq %r11, %fs:8(%r10)\0A2:\0A\09movl ${1:k}, %r11d\0A\09movq %r11, (%rax)", "=&{rax},r,i,~{r10},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr getelementptr (i64, ptr @__trodden_counters, i64 1), i64 2), ptr @__trodden_stream_enter)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr getelementptr (i64, ptr @__trodden_counters, i64 1), i64 2), ptr @__trodden_stream_next)
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %then, label %1

1:                                                ; preds = %entry
  br label %end

then:                                             ; preds = %entry
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr getelementptr (i64, ptr @__trodden_counters, i64 2), i64 1), ptr @__trodden_stream_next)
  call void asm sideeffect "movl ${1:k}, ($0)", "r,r,~{memory},~{fpsr},~{dirflag}"(i64 %0, ptr getelementptr (i8, ptr getelementptr (i64, ptr @__trodden_counters, i64 2), i64 1))
  %r = call i32 @leaf(i32 %x) #1
  br label %end

end:                                              ; preds = %1, %then
  %2 = phi i64 [ 2, %1 ], [ 0, %then ]
  %3 = getelementptr i64, ptr getelementptr (i64, ptr @__trodden_counters, i64 1), i64 %2
  %4 = getelementptr i8, ptr %3, i64 5
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr %4, ptr @__trodden_stream_next)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movq $0, %fs:8(%r11)\0A\09movl $$0, ($0)", "r,~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(i64 %0)
  ret i32 %x
}
