; Two of four paths are known, one of them is frequent: the other paths are counted.
; path: diamonds 0 1000000
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
define i32 @diamonds(i32 %x) !prof !0 {
entry:
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %2, !prof !1

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; No predecessors!
  %b = add i32 %x, 7
  unreachable

join:                                             ; preds = %one
  %0 = phi i32 [ %a, %one ]
  %big = icmp ugt i32 %0, 100
  br i1 %big, label %large, label %1, !prof !2

1:                                                ; preds = %join
  br label %8

large:                                            ; preds = %join
  call void @note(i32 %0)
  br label %end

end:                                              ; preds = %large
  ret i32 %0

2:                                                ; preds = %entry
  %3 = add i32 %x, 7
  br label %4

4:                                                ; preds = %2
  %5 = phi i32 [ %3, %2 ]
  %6 = icmp ugt i32 %5, 100
  br i1 %6, label %30, label %7, !prof !3

7:                                                ; preds = %4
  br label %8

8:                                                ; preds = %7, %1, %30
  %9 = phi i64 [ 3, %7 ], [ 1, %1 ], [ 2, %30 ]
  %10 = phi i32 [ %5, %30 ], [ %5, %7 ], [ %0, %1 ]
  %11 = add i64 %9, 0
  %12 = getelementptr i8, ptr @diamonds.known, i64 %11
  %13 = load i8, ptr %12, align 1
  %14 = icmp eq i8 %13, 0
  br i1 %14, label %24, label %15, !prof !4

15:                                               ; preds = %16, %19, %8
  ret i32 %10

16:                                               ; preds = %21
  %17 = load i64, ptr %29, align 8
  %18 = add i64 %17, 1
  store i64 %18, ptr %29, align 8
  br label %15

19:                                               ; preds = %21
  %20 = getelementptr i64, ptr @__trodden_counters, i64 %11
  call void asm sideeffect "leaq 1f(%rip), %r11\0A\09jmp ${1:P}\0A1:", "{rdi},i,~{r10},~{r11},~{flags},~{fpsr},~{dirflag}"(ptr %20, ptr @__trodden_count)
  br label %15

21:                                               ; preds = %24
  %22 = load i64, ptr %29, align 8
  %23 = icmp eq i64 %22, 0
  br i1 %23, label %19, label %16, !prof !4

24:                                               ; preds = %8
  %25 = load i64, ptr @__trodden_direct_bias, align 8
  %26 = getelementptr i8, ptr @__trodden_counters, i64 %25
  %27 = freeze ptr %26
  %28 = getelementptr i64, ptr %27, i64 0
  %29 = getelementptr i64, ptr %28, i64 %11
  br label %21

30:                                               ; preds = %4
  call void @note(i32 %5)
  br label %8
}
