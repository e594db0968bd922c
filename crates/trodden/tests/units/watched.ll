; All paths but one are given as known: the program watches for that one.
; path: diamonds 0 1000
; path: diamonds 1 1000
; path: diamonds 3 10
; settings: watched=file
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
; settings: watched=file
define i32 @diamonds(i32 %x) !prof !0 {
entry:
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %1, !prof !1

one:                                              ; preds = %entry
  %a = mul i32 %x, 3
  br label %join

other:                                            ; No predecessors!
  %b = add i32 %x, 7
  unreachable

join:                                             ; preds = %one
  %0 = phi i32 [ %a, %one ]
  %big = icmp ugt i32 %0, 100
  br i1 %big, label %large, label %end, !prof !2

large:                                            ; preds = %join
  call void @note(i32 %0)
  br label %end

end:                                              ; preds = %large, %join
  ret i32 %0

1:                                                ; preds = %entry
  %2 = add i32 %x, 7
  br label %3

3:                                                ; preds = %1
  %4 = phi i32 [ %2, %1 ]
  %5 = icmp ugt i32 %4, 100
  br i1 %5, label %6, label %7, !prof !3

6:                                                ; preds = %3
  call void @note(i32 %4)
  br label %7

7:                                                ; preds = %6, %3
  %8 = phi i64 [ 2, %6 ], [ 3, %3 ]
  %9 = add i64 %8, 0
  %10 = getelementptr i8, ptr @diamonds.known, i64 %9
  %11 = load i8, ptr %10, align 1
  %12 = icmp eq i8 %11, 0
  br i1 %12, label %22, label %13, !prof !4

13:                                               ; preds = %14, %17, %7
  ret i32 %4

14:                                               ; preds = %19
  %15 = load i64, ptr %27, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %27, align 8
  br label %13

17:                                               ; preds = %19
  %18 = getelementptr i64, ptr @__trodden_counters, i64 %9
  call void asm sideeffect "leaq 1f(%rip), %r11\0A\09jmp ${1:P}\0A1:", "{rdi},i,~{r10},~{r11},~{flags},~{fpsr},~{dirflag}"(ptr %18, ptr @__trodden_count)
  br label %13

19:                                               ; preds = %22
  %20 = load i64, ptr %27, align 8
  %21 = icmp eq i64 %20, 0
  br i1 %21, label %17, label %14, !prof !4

22:                                               ; preds = %7
  %23 = load i64, ptr @__trodden_direct_bias, align 8
  %24 = getelementptr i8, ptr @__trodden_counters, i64 %23
  %25 = freeze ptr %24
  %26 = getelementptr i64, ptr %25, i64 0
  %27 = getelementptr i64, ptr %26, i64 %9
  br label %19
}
