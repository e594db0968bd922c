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
  call void @note(i32 %r)
  br label %end
end:
  ret i32 %r
}

declare void @note(i32) nounwind willreturn
; ----
; settings: 
define i32 @diamonds(i32 %x) {
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
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %8 = phi i64 [ 3, %other ], [ 1, %one ]
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  call void @note(i32 %r)
  %9 = add i64 %8, -1
  br label %end

end:                                              ; preds = %large, %join
  %10 = phi i64 [ %9, %large ], [ %8, %join ]
  %11 = getelementptr i64, ptr %7, i64 0
  %12 = getelementptr i64, ptr %11, i64 %10
  %13 = load i64, ptr %12, align 8
  %14 = add i64 %13, 1
  store i64 %14, ptr %12, align 8
  ret i32 %r
}

; settings: chords=off
define i32 @diamonds(i32 %x) {
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
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %8 = phi i64 [ 2, %other ], [ 0, %one ]
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %9

9:                                                ; preds = %join
  %10 = add i64 %8, 1
  br label %end

large:                                            ; preds = %join
  call void @note(i32 %r)
  br label %end

end:                                              ; preds = %9, %large
  %11 = phi i64 [ %10, %9 ], [ %8, %large ]
  %12 = getelementptr i64, ptr %7, i64 0
  %13 = getelementptr i64, ptr %12, i64 %11
  %14 = load i64, ptr %13, align 8
  %15 = add i64 %14, 1
  store i64 %15, ptr %13, align 8
  ret i32 %r
}

; settings: early=off
define i32 @diamonds(i32 %x) {
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
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %8 = phi i64 [ 3, %other ], [ 1, %one ]
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  call void @note(i32 %r)
  %9 = add i64 %8, -1
  br label %end

end:                                              ; preds = %large, %join
  %10 = phi i64 [ %9, %large ], [ %8, %join ]
  %11 = getelementptr i64, ptr %7, i64 0
  %12 = getelementptr i64, ptr %11, i64 %10
  %13 = load i64, ptr %12, align 8
  %14 = add i64 %13, 1
  store i64 %14, ptr %12, align 8
  ret i32 %r
}

; settings: threads=atomic
define i32 @diamonds(i32 %x) {
  %1 = load i64, ptr @__trodden_shared_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !0

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter_shared()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %entry

entry:                                            ; preds = %5
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %8 = phi i64 [ 3, %other ], [ 1, %one ]
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  call void @note(i32 %r)
  %9 = add i64 %8, -1
  br label %end

end:                                              ; preds = %large, %join
  %10 = phi i64 [ %9, %large ], [ %8, %join ]
  %11 = getelementptr i64, ptr %7, i64 0
  %12 = getelementptr i64, ptr %11, i64 %10
  %13 = atomicrmw add ptr %12, i64 1 monotonic, align 8
  ret i32 %r
}

; settings: events=tsc
define i32 @diamonds(i32 %x) {
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
  %8 = call i64 @llvm.readcyclecounter()
  %9 = load i64, ptr @__trodden_event_own, align 8
  %10 = sub i64 %8, %9
  %11 = load i64, ptr @__trodden_event_cost, align 8
  %12 = load i64, ptr @__trodden_event_own, align 8
  %13 = add i64 %12, %11
  store i64 %13, ptr @__trodden_event_own, align 8
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %14 = phi i64 [ 3, %other ], [ 1, %one ]
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  call void @note(i32 %r)
  %15 = add i64 %14, -1
  br label %end

end:                                              ; preds = %large, %join
  %16 = phi i64 [ %15, %large ], [ %14, %join ]
  %17 = getelementptr [4 x i64], ptr %7, i64 0
  %18 = getelementptr [4 x i64], ptr %17, i64 %16
  %19 = call i64 @llvm.readcyclecounter()
  %20 = sub i64 %19, %10
  %21 = load i64, ptr @__trodden_event_own, align 8
  %22 = sub i64 %20, %21
  %23 = getelementptr i64, ptr %18, i64 1
  %24 = load i64, ptr %23, align 8
  %25 = add i64 %24, %22
  store i64 %25, ptr %23, align 8
  %26 = sext i64 %22 to i128
  %27 = mul i128 %26, %26
  %28 = lshr i128 %27, 64
  %29 = trunc i128 %28 to i64
  %30 = getelementptr i64, ptr %18, i64 2
  %31 = trunc i128 %27 to i64
  %32 = getelementptr i64, ptr %30, i64 1
  call void asm sideeffect "addq $2, $0\0A\09adcq $3, $1", "*m,*m,re,re,~{memory},~{flags}"(ptr elementtype(i64) %30, ptr elementtype(i64) %32, i64 %31, i64 %29)
  %33 = load i64, ptr getelementptr (i8, ptr @__trodden_event_cost, i64 8), align 8
  %34 = add i64 %22, %33
  %35 = load i64, ptr @__trodden_event_own, align 8
  %36 = add i64 %35, %34
  store i64 %36, ptr @__trodden_event_own, align 8
  %37 = load i64, ptr %18, align 8
  %38 = add i64 %37, 1
  store i64 %38, ptr %18, align 8
  ret i32 %r
}

; settings: observe=stream
define i32 @diamonds(i32 %x) {
entry:
  %0 = call i64 asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r10\0A\09movq %fs:8(%r10), %rax\0A\09leaq 2f(%rip), %r11\0A\09testl $$0x3ffff, %eax\0A\09jz ${2:P}\0A\09leaq 4(%rax), %r11\0A\09movq %r11, %fs:8(%r10)\0A2:\0A\09movl ${1:k}, %r11d\0A\09movq %r11, (%rax)", "=&{rax},r,i,~{r10},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr @__trodden_counters, i64 2), ptr @__trodden_stream_enter)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr getelementptr (i8, ptr @__trodden_counters, i64 2), ptr @__trodden_stream_next)
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %1 = phi i64 [ 3, %other ], [ 1, %one ]
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  call void @note(i32 %r)
  %2 = add i64 %1, -1
  br label %end

end:                                              ; preds = %large, %join
  %3 = phi i64 [ %2, %large ], [ %1, %join ]
  %4 = getelementptr i64, ptr @__trodden_counters, i64 %3
  %5 = getelementptr i8, ptr %4, i64 5
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movl $$4, %eax\0A\09xaddq %rax, %fs:(%r11)\0A\09leaq 1f(%rip), %r11\0A\09testl $$0x3fff, %eax\0A\09jz ${1:P}\0A1:\0A\09movl ${0:k}, (%rax)", "r,i,~{rax},~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(ptr %5, ptr @__trodden_stream_next)
  call void asm sideeffect "movq __trodden_stream@GOTTPOFF(%rip), %r11\0A\09movq $0, %fs:8(%r11)\0A\09movl $$0, ($0)", "r,~{r11},~{memory},~{flags},~{fpsr},~{dirflag}"(i64 %0)
  ret i32 %r
}

; settings: when=bursts
define i32 @diamonds(i32 %x) {
  %1 = load volatile i8, ptr @__trodden_switch, align 1
  %2 = icmp ne i8 %1, 0
  br i1 %2, label %3, label %entry, !prof !0

entry:                                            ; preds = %0
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

3:                                                ; preds = %0
  %4 = musttail call i32 @diamonds.counted(i32 %x)
  ret i32 %4
}

define internal i32 @diamonds.counted(i32 %0) #2 {
  %2 = load i64, ptr @__trodden_bias, align 8
  %3 = icmp eq i64 %2, 0
  br i1 %3, label %4, label %6, !prof !0

4:                                                ; preds = %1
  %5 = call preserve_allcc i64 @__trodden_enter()
  br label %6

6:                                                ; preds = %4, %1
  %7 = phi i64 [ %2, %1 ], [ %5, %4 ]
  %8 = getelementptr i8, ptr @__trodden_counters, i64 %7
  br label %9

9:                                                ; preds = %6
  %10 = trunc i32 %0 to i1
  br i1 %10, label %11, label %13

11:                                               ; preds = %9
  %12 = mul i32 %0, 3
  br label %15

13:                                               ; preds = %9
  %14 = add i32 %0, 7
  br label %15

15:                                               ; preds = %13, %11
  %16 = phi i64 [ 3, %13 ], [ 1, %11 ]
  %17 = phi i32 [ %12, %11 ], [ %14, %13 ]
  %18 = icmp ugt i32 %17, 100
  br i1 %18, label %19, label %21

19:                                               ; preds = %15
  call void @note(i32 %17)
  %20 = add i64 %16, -1
  br label %21

21:                                               ; preds = %19, %15
  %22 = phi i64 [ %20, %19 ], [ %16, %15 ]
  %23 = getelementptr i64, ptr %8, i64 0
  %24 = getelementptr i64, ptr %23, i64 %22
  %25 = load i64, ptr %24, align 8
  %26 = add i64 %25, 1
  store i64 %26, ptr %24, align 8
  ret i32 %17
}

; settings: table-slots=8 array-paths=1
define i32 @diamonds(i32 %x) {
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
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %8 = phi i64 [ 3, %other ], [ 1, %one ]
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  call void @note(i32 %r)
  %9 = add i64 %8, -1
  br label %end

end:                                              ; preds = %large, %join
  %10 = phi i64 [ %9, %large ], [ %8, %join ]
  %11 = add i64 %10, 0
  %12 = add i64 %11, 1
  %13 = mul i64 %11, -7046029254386353131
  %14 = lshr i64 %13, 61
  %15 = getelementptr i64, ptr %7, i64 1
  br label %16

16:                                               ; preds = %28, %end
  %17 = phi i64 [ %14, %end ], [ %31, %28 ]
  %18 = phi i64 [ 8, %end ], [ %32, %28 ]
  %19 = shl i64 %17, 1
  %20 = getelementptr i64, ptr %15, i64 %19
  %21 = load i64, ptr %20, align 8
  %22 = icmp ne i64 %21, %12
  br i1 %22, label %40, label %42, !prof !0

23:                                               ; preds = %24, %42
  ret i32 %r

24:                                               ; preds = %28
  %25 = getelementptr i64, ptr %7, i64 0
  %26 = load i64, ptr %25, align 8
  %27 = add i64 %26, 1
  store i64 %27, ptr %25, align 8
  br label %23

28:                                               ; preds = %34, %40
  %29 = add i64 %17, 1
  %30 = icmp eq i64 %29, 8
  %31 = select i1 %30, i64 0, i64 %29
  %32 = add i64 %18, -1
  %33 = icmp eq i64 %32, 0
  br i1 %33, label %24, label %16, !prof !0

34:                                               ; preds = %40
  %35 = cmpxchg ptr %20, i64 0, i64 %12 monotonic monotonic, align 8
  %36 = extractvalue { i64, i1 } %35, 0
  %37 = extractvalue { i64, i1 } %35, 1
  %38 = icmp eq i64 %36, %12
  %39 = or i1 %37, %38
  br i1 %39, label %42, label %28

40:                                               ; preds = %16
  %41 = icmp eq i64 %21, 0
  br i1 %41, label %34, label %28, !prof !0

42:                                               ; preds = %34, %16
  %43 = getelementptr i64, ptr %20, i64 1
  %44 = load i64, ptr %43, align 8
  %45 = add i64 %44, 1
  store i64 %45, ptr %43, align 8
  br label %23
}

; settings: max-paths=2
define i32 @diamonds(i32 %x) {
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
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %other

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; preds = %entry
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %8 = phi i64 [ 3, %other ], [ 1, %one ]
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  call void @note(i32 %r)
  %9 = add i64 %8, -1
  br label %end

end:                                              ; preds = %large, %join
  %10 = phi i64 [ %9, %large ], [ %8, %join ]
  %11 = getelementptr i64, ptr %7, i64 0
  %12 = getelementptr i64, ptr %11, i64 %10
  %13 = load i64, ptr %12, align 8
  %14 = add i64 %13, 1
  store i64 %14, ptr %12, align 8
  ret i32 %r
}
