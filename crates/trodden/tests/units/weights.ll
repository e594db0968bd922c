; With measured frequencies, the increment of the second decision is on the edge that was seldom taken.
; path: diamonds 0 1
; path: diamonds 1 1
; path: diamonds 2 1000
; path: diamonds 3 1
; settings:
; settings: weights=file
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

; settings: weights=file
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
