; A branch to a call that does not return: its path is counted before the call.
; settings:
; settings: observe=stream
target triple = "x86_64-pc-linux-gnu"

define i32 @checked(i32 %x) {
entry:
  %bad = icmp slt i32 %x, 0
  br i1 %bad, label %fail, label %fine
fail:
  call void @abort() noreturn nounwind
  unreachable
fine:
  ret i32 %x
}

declare void @abort() noreturn nounwind
; ----
; settings: 
define i32 @checked(i32 %x) {
  %1 = load i64, ptr @__trodden_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !0

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %entry

entry:                                            ; preds = %5
  %bad = icmp slt i32 %x, 0
  br i1 %bad, label %fail, label %fine

fail:                                             ; preds = %entry
  %8 = getelementptr i64, ptr %7, i64 0
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  call void @abort() #0
  unreachable

fine:                                             ; preds = %entry
  %11 = getelementptr i64, ptr %7, i64 1
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  ret i32 %x
}

; settings: observe=stream
define i32 @checked(i32 %x) {
entry:
  %0 = call i64 asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r10\0A\09movq %fs:8(%r10), %rax\0A\09leaq 2f(%rip), %r11\0A\09testl $$0x3ffff, %eax\0A\09jz ${2:P}\0A\09leaq 4(%rax), %r11\0A\09movq %r11, %fs:8(%r10)\0A2:\0A\09movl ${1:k}, %r11d\0A\09movq %r11, (%rax)", "=&{rax},r,i,~{r10},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr @__trodden_counters, i64 2), ptr @__trodden_stream_enter)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr @__trodden_counters, i64 2), ptr @__trodden_stream_next)
  %bad = icmp slt i32 %x, 0
  br i1 %bad, label %fail, label %fine

fail:                                             ; preds = %entry
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr @__trodden_counters, i64 1), ptr @__trodden_stream_next)
  call void asm sideeffect "movl ${1:k}, ($0)", "r,r,~{memory},~{fpsr},~{dirflag}"(i64 %0, ptr getelementptr (i8, ptr @__trodden_counters, i64 1))
  call void @abort() #0
  unreachable

fine:                                             ; preds = %entry
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr getelementptr (i64, ptr @__trodden_counters, i64 1), i64 5), ptr @__trodden_stream_next)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movq $0, %fs:8(%r11)\0A\09movl $$0, ($0)", "r,~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(i64 %0)
  ret i32 %x
}
