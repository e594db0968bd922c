; Four decisions, sixteen paths: they are cut in the middle if at most eight are allowed.
; settings: max-paths=8
target triple = "x86_64-pc-linux-gnu"

define void @cut(i32 %x) {
entry:
  %a = icmp eq i32 %x, 0
  br i1 %a, label %one, label %first
one:
  call void @note() nounwind willreturn
  br label %first
first:
  %b = icmp eq i32 %x, 1
  br i1 %b, label %two, label %second
two:
  call void @note() nounwind willreturn
  br label %second
second:
  %c = icmp eq i32 %x, 2
  br i1 %c, label %three, label %third
three:
  call void @note() nounwind willreturn
  br label %third
third:
  %d = icmp eq i32 %x, 3
  br i1 %d, label %four, label %end
four:
  call void @note() nounwind willreturn
  br label %end
end:
  ret void
}

declare void @note() nounwind willreturn
; ----
; settings: max-paths=8
define void @cut(i32 %x) {
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
  %a = icmp eq i32 %x, 0
  br i1 %a, label %one, label %8

8:                                                ; preds = %entry
  br label %first

one:                                              ; preds = %entry
  call void @note() #0
  br label %first

first:                                            ; preds = %8, %one
  %9 = phi i64 [ 2, %8 ], [ 0, %one ]
  %b = icmp eq i32 %x, 1
  br i1 %b, label %two, label %10

10:                                               ; preds = %first
  %11 = getelementptr i64, ptr %7, i64 1
  %12 = getelementptr i64, ptr %11, i64 %9
  %13 = load i64, ptr %12, align 8
  %14 = add i64 %13, 1
  store i64 %14, ptr %12, align 8
  br label %second

two:                                              ; preds = %first
  call void @note() #0
  %15 = getelementptr i64, ptr %7, i64 0
  %16 = getelementptr i64, ptr %15, i64 %9
  %17 = load i64, ptr %16, align 8
  %18 = add i64 %17, 1
  store i64 %18, ptr %16, align 8
  br label %second

second:                                           ; preds = %10, %two
  %c = icmp eq i32 %x, 2
  br i1 %c, label %three, label %third

three:                                            ; preds = %second
  call void @note() #0
  br label %third

third:                                            ; preds = %three, %second
  %19 = phi i64 [ 5, %three ], [ 7, %second ]
  %d = icmp eq i32 %x, 3
  br i1 %d, label %four, label %end

four:                                             ; preds = %third
  call void @note() #0
  %20 = add i64 %19, -1
  br label %end

end:                                              ; preds = %four, %third
  %21 = phi i64 [ %20, %four ], [ %19, %third ]
  %22 = getelementptr i64, ptr %7, i64 0
  %23 = getelementptr i64, ptr %22, i64 %21
  %24 = load i64, ptr %23, align 8
  %25 = add i64 %24, 1
  store i64 %25, ptr %23, align 8
  ret void
}
