; Two of four paths are interesting, with each numbering.
; path: diamonds 0 1000
; path: diamonds 3 10
; settings: interesting=file
; settings: interesting=file scheme=pspp
; settings: interesting=file scheme=ppp
; settings: interesting=file scheme=spp
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
; settings: interesting=file
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
  %12 = add i64 %11, 0
  %13 = getelementptr i64, ptr %7, i64 0
  %14 = mul i64 %12, 3719879372545934727
  %15 = lshr i64 %14, 63
  %16 = getelementptr i8, ptr @diamonds.paths, i64 %15
  %17 = load i8, ptr %16, align 1
  %18 = zext i8 %17 to i64
  %19 = icmp eq i64 %18, %12
  %20 = select i1 %19, i64 %15, i64 2
  %21 = getelementptr i64, ptr %13, i64 %20
  %22 = load i64, ptr %21, align 8
  %23 = add i64 %22, 1
  store i64 %23, ptr %21, align 8
  ret i32 %r
}

; settings: interesting=file scheme=pspp
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
  %12 = add i64 %11, 0
  %13 = getelementptr i64, ptr %7, i64 0
  %14 = getelementptr i64, ptr %13, i64 %12
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %14, align 8
  ret i32 %r
}

; settings: interesting=file scheme=ppp
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
  %8 = phi i64 [ 6, %other ], [ 0, %one ]
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
  %12 = add i64 %11, 0
  %13 = getelementptr i64, ptr %7, i64 0
  %14 = lshr i64 %12, 2
  %15 = icmp ult i64 %14, 2
  %16 = select i1 %15, i64 %14, i64 2
  %17 = getelementptr i8, ptr @diamonds.paths, i64 %16
  %18 = load i8, ptr %17, align 1
  %19 = zext i8 %18 to i64
  %20 = icmp eq i64 %19, %12
  %21 = select i1 %20, i64 %16, i64 2
  %22 = getelementptr i64, ptr %13, i64 %21
  %23 = load i64, ptr %22, align 8
  %24 = add i64 %23, 1
  store i64 %24, ptr %22, align 8
  ret i32 %r
}

; settings: interesting=file scheme=spp
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
  %12 = add i64 %11, 0
  %13 = getelementptr i64, ptr %7, i64 0
  %14 = getelementptr i64, ptr %13, i64 %12
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %14, align 8
  ret i32 %r
}
