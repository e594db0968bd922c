; The first of two copies counts the paths that end with one edge of the second decision.
; settings: part=1
; settings: part=1 count-hits=on
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
; settings: part=1
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
  %8 = phi i64 [ 1, %other ], [ 0, %one ]
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  %9 = getelementptr i64, ptr %7, i64 0
  %10 = getelementptr i64, ptr %9, i64 %8
  %11 = load i64, ptr %10, align 8
  %12 = add i64 %11, 1
  store i64 %12, ptr %10, align 8
  call void @note(i32 %r)
  br label %end

end:                                              ; preds = %large, %join
  ret i32 %r
}

; settings: part=1 count-hits=on
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
  %8 = getelementptr i64, ptr %7, i64 2
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  %11 = getelementptr i64, ptr %7, i64 3
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  %b = add i32 %x, 7
  br label %join

join:                                             ; preds = %other, %one
  %14 = phi i64 [ 1, %other ], [ 0, %one ]
  %r = phi i32 [ %a, %one ], [ %b, %other ]
  %big = icmp ugt i32 %r, 100
  br i1 %big, label %large, label %end

large:                                            ; preds = %join
  %15 = getelementptr i64, ptr %7, i64 0
  %16 = getelementptr i64, ptr %15, i64 %14
  %17 = load i64, ptr %16, align 8
  %18 = add i64 %17, 1
  store i64 %18, ptr %16, align 8
  %19 = getelementptr i64, ptr %7, i64 3
  %20 = load i64, ptr %19, align 8
  %21 = add i64 %20, 1
  store i64 %21, ptr %19, align 8
  call void @note(i32 %r)
  br label %end

end:                                              ; preds = %large, %join
  ret i32 %r
}
