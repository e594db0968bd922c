; A loop with a decision: its most frequent iteration has a separate instruction.
; settings:
; settings: dominant-iteration=shared
; settings: chords=off
; settings: observe=stream
target triple = "x86_64-pc-linux-gnu"

define i32 @collatz(i32 %x) {
entry:
  br label %loop
loop:
  %v = phi i32 [ %x, %entry ], [ %w, %latch ]
  %steps = phi i32 [ 0, %entry ], [ %more, %latch ]
  %done = icmp ule i32 %v, 1
  br i1 %done, label %end, label %go
go:
  %odd = trunc i32 %v to i1
  br i1 %odd, label %up, label %down
up:
  %m = mul i32 %v, 3
  %u = add i32 %m, 1
  br label %latch
down:
  %d = lshr i32 %v, 1
  br label %latch
latch:
  %w = phi i32 [ %u, %up ], [ %d, %down ]
  %more = add i32 %steps, 1
  br label %loop
end:
  ret i32 %steps
}
; ----
; settings: 
define i32 @collatz(i32 %x) {
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
  br label %loop

loop:                                             ; preds = %15, %entry
  %8 = phi i64 [ 0, %15 ], [ -3, %entry ]
  %9 = phi i32 [ %x, %entry ], [ %w, %15 ]
  %10 = phi i32 [ 0, %entry ], [ %more, %15 ]
  %done = icmp ule i32 %9, 1
  br i1 %done, label %end, label %go

go:                                               ; preds = %loop
  %odd = trunc i32 %9 to i1
  br i1 %odd, label %up, label %down

up:                                               ; preds = %go
  %m = mul i32 %9, 3
  %u = add i32 %m, 1
  br label %latch

down:                                             ; preds = %go
  %d = lshr i32 %9, 1
  %11 = add i64 %8, 1
  br label %latch

latch:                                            ; preds = %down, %up
  %12 = phi i64 [ %11, %down ], [ %8, %up ]
  %w = phi i32 [ %u, %up ], [ %d, %down ]
  %more = add i32 %10, 1
  %13 = add i64 %12, 4
  %14 = icmp eq i64 %12, 1
  br i1 %14, label %21, label %16, !prof !1

15:                                               ; preds = %16, %21
  br label %loop

16:                                               ; preds = %latch
  %17 = getelementptr i64, ptr %7, i64 0
  %18 = getelementptr i64, ptr %17, i64 %13
  %19 = load i64, ptr %18, align 8
  %20 = add i64 %19, 1
  store i64 %20, ptr %18, align 8
  br label %15

21:                                               ; preds = %latch
  %22 = getelementptr i64, ptr %7, i64 0
  %23 = getelementptr i64, ptr %22, i64 5
  %24 = load i64, ptr %23, align 8
  %25 = add i64 %24, 1
  store i64 %25, ptr %23, align 8
  br label %15

end:                                              ; preds = %loop
  %26 = getelementptr i64, ptr %7, i64 3
  %27 = getelementptr i64, ptr %26, i64 %8
  %28 = load i64, ptr %27, align 8
  %29 = add i64 %28, 1
  store i64 %29, ptr %27, align 8
  ret i32 %10
}

; settings: dominant-iteration=shared
define i32 @collatz(i32 %x) {
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
  br label %loop

loop:                                             ; preds = %latch, %entry
  %8 = phi i64 [ 0, %latch ], [ -3, %entry ]
  %v = phi i32 [ %x, %entry ], [ %w, %latch ]
  %steps = phi i32 [ 0, %entry ], [ %more, %latch ]
  %done = icmp ule i32 %v, 1
  br i1 %done, label %end, label %go

go:                                               ; preds = %loop
  %odd = trunc i32 %v to i1
  br i1 %odd, label %up, label %down

up:                                               ; preds = %go
  %m = mul i32 %v, 3
  %u = add i32 %m, 1
  br label %latch

down:                                             ; preds = %go
  %d = lshr i32 %v, 1
  %9 = add i64 %8, 1
  br label %latch

latch:                                            ; preds = %down, %up
  %10 = phi i64 [ %9, %down ], [ %8, %up ]
  %w = phi i32 [ %u, %up ], [ %d, %down ]
  %more = add i32 %steps, 1
  %11 = getelementptr i64, ptr %7, i64 4
  %12 = getelementptr i64, ptr %11, i64 %10
  %13 = load i64, ptr %12, align 8
  %14 = add i64 %13, 1
  store i64 %14, ptr %12, align 8
  br label %loop

end:                                              ; preds = %loop
  %15 = getelementptr i64, ptr %7, i64 3
  %16 = getelementptr i64, ptr %15, i64 %8
  %17 = load i64, ptr %16, align 8
  %18 = add i64 %17, 1
  store i64 %18, ptr %16, align 8
  ret i32 %steps
}

; settings: chords=off
define i32 @collatz(i32 %x) {
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
  br label %loop

loop:                                             ; preds = %16, %entry
  %8 = phi i64 [ 3, %16 ], [ 0, %entry ]
  %9 = phi i32 [ %x, %entry ], [ %w, %16 ]
  %10 = phi i32 [ 0, %entry ], [ %more, %16 ]
  %done = icmp ule i32 %9, 1
  br i1 %done, label %end, label %go

go:                                               ; preds = %loop
  %11 = add i64 %8, 1
  %odd = trunc i32 %9 to i1
  br i1 %odd, label %up, label %down

up:                                               ; preds = %go
  %m = mul i32 %9, 3
  %u = add i32 %m, 1
  br label %latch

down:                                             ; preds = %go
  %12 = add i64 %11, 1
  %d = lshr i32 %9, 1
  br label %latch

latch:                                            ; preds = %down, %up
  %13 = phi i64 [ %12, %down ], [ %11, %up ]
  %w = phi i32 [ %u, %up ], [ %d, %down ]
  %more = add i32 %10, 1
  %14 = add i64 %13, 0
  %15 = icmp eq i64 %13, 5
  br i1 %15, label %22, label %17, !prof !1

16:                                               ; preds = %17, %22
  br label %loop

17:                                               ; preds = %latch
  %18 = getelementptr i64, ptr %7, i64 0
  %19 = getelementptr i64, ptr %18, i64 %14
  %20 = load i64, ptr %19, align 8
  %21 = add i64 %20, 1
  store i64 %21, ptr %19, align 8
  br label %16

22:                                               ; preds = %latch
  %23 = getelementptr i64, ptr %7, i64 0
  %24 = getelementptr i64, ptr %23, i64 5
  %25 = load i64, ptr %24, align 8
  %26 = add i64 %25, 1
  store i64 %26, ptr %24, align 8
  br label %16

end:                                              ; preds = %loop
  %27 = getelementptr i64, ptr %7, i64 0
  %28 = getelementptr i64, ptr %27, i64 %8
  %29 = load i64, ptr %28, align 8
  %30 = add i64 %29, 1
  store i64 %30, ptr %28, align 8
  ret i32 %10
}

; settings: observe=stream
define i32 @collatz(i32 %x) {
entry:
  %0 = call i64 asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r10\0A\09movq %fs:8(%r10), %rax\0A\09leaq 2f(%rip), %r11\0A\09testl $$0x3ffff, %eax\0A\09jz ${2:P}\0A\09leaq 4(%rax), %r11\0A\09movq %r11, %fs:8(%r10)\0A2:\0A\09movl ${1:k}, %r11d\0A\09movq %r11, (%rax)", "=&{rax},r,i,~{r10},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr @__trodden_counters, i64 2), ptr @__trodden_stream_enter)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr @__trodden_counters, i64 2), ptr @__trodden_stream_next)
  br label %loop

loop:                                             ; preds = %latch, %entry
  %1 = phi i64 [ 0, %latch ], [ -3, %entry ]
  %v = phi i32 [ %x, %entry ], [ %w, %latch ]
  %steps = phi i32 [ 0, %entry ], [ %more, %latch ]
  %done = icmp ule i32 %v, 1
  br i1 %done, label %end, label %go

go:                                               ; preds = %loop
  %odd = trunc i32 %v to i1
  br i1 %odd, label %up, label %down

up:                                               ; preds = %go
  %m = mul i32 %v, 3
  %u = add i32 %m, 1
  br label %latch

down:                                             ; preds = %go
  %d = lshr i32 %v, 1
  %2 = add i64 %1, 1
  br label %latch

latch:                                            ; preds = %down, %up
  %3 = phi i64 [ %2, %down ], [ %1, %up ]
  %w = phi i32 [ %u, %up ], [ %d, %down ]
  %more = add i32 %steps, 1
  %4 = getelementptr i64, ptr getelementptr (i64, ptr @__trodden_counters, i64 4), i64 %3
  %5 = getelementptr i8, ptr %4, i64 1
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr %5, ptr @__trodden_stream_next)
  br label %loop

end:                                              ; preds = %loop
  %6 = getelementptr i64, ptr getelementptr (i64, ptr @__trodden_counters, i64 3), i64 %1
  %7 = getelementptr i8, ptr %6, i64 5
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr %7, ptr @__trodden_stream_next)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movq $0, %fs:8(%r11)\0A\09movl $$0, ($0)", "r,~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(i64 %0)
  ret i32 %steps
}
