; Paths show which calls were reached: by default neither of these, with reach=calls that of the callee in this unit, with reach=all both.
; settings:
; settings: reach=calls
; settings: reach=all
target triple = "x86_64-pc-linux-gnu"

define i32 @leaf(i32 %x) nounwind willreturn {
  ret i32 %x
}
define void @caller(i32 %n) {
entry:
  %big = icmp ugt i32 %n, 9
  br i1 %big, label %own, label %other
own:
  %r = call i32 @leaf(i32 %n) nounwind willreturn
  br label %end
other:
  call void @safe(i32 %n) nounwind willreturn
  br label %end
end:
  ret void
}

declare void @safe(i32) nounwind willreturn
; ----
; settings: 
define i32 @leaf(i32 %x) #0 {
  %1 = load i64, ptr @__trodden_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !0

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %8

8:                                                ; preds = %5
  %9 = getelementptr i64, ptr %7, i64 0
  %10 = load i64, ptr %9, align 8
  %11 = add i64 %10, 1
  store i64 %11, ptr %9, align 8
  ret i32 %x
}

define void @caller(i32 %n) {
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
  %big = icmp ugt i32 %n, 9
  br i1 %big, label %own, label %other

own:                                              ; preds = %entry
  %r = call i32 @leaf(i32 %n) #0
  %8 = getelementptr i64, ptr %7, i64 1
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  br label %end

other:                                            ; preds = %entry
  call void @safe(i32 %n) #0
  %11 = getelementptr i64, ptr %7, i64 2
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  br label %end

end:                                              ; preds = %other, %own
  ret void
}

; settings: reach=calls
define i32 @leaf(i32 %x) #0 {
  %1 = load i64, ptr @__trodden_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !0

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %8

8:                                                ; preds = %5
  %9 = getelementptr i64, ptr %7, i64 0
  %10 = load i64, ptr %9, align 8
  %11 = add i64 %10, 1
  store i64 %11, ptr %9, align 8
  ret i32 %x
}

define void @caller(i32 %n) {
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
  %big = icmp ugt i32 %n, 9
  br i1 %big, label %own, label %other

own:                                              ; preds = %entry
  %8 = getelementptr i64, ptr %7, i64 2
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  %r = call i32 @leaf(i32 %n) #0
  %11 = getelementptr i64, ptr %7, i64 1
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  br label %end

other:                                            ; preds = %entry
  call void @safe(i32 %n) #0
  %14 = getelementptr i64, ptr %7, i64 3
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %14, align 8
  br label %end

end:                                              ; preds = %other, %own
  ret void
}

; settings: reach=all
define i32 @leaf(i32 %x) #0 {
  %1 = load i64, ptr @__trodden_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !0

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %8

8:                                                ; preds = %5
  %9 = getelementptr i64, ptr %7, i64 0
  %10 = load i64, ptr %9, align 8
  %11 = add i64 %10, 1
  store i64 %11, ptr %9, align 8
  ret i32 %x
}

define void @caller(i32 %n) {
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
  %big = icmp ugt i32 %n, 9
  br i1 %big, label %own, label %other

own:                                              ; preds = %entry
  %8 = getelementptr i64, ptr %7, i64 2
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  %r = call i32 @leaf(i32 %n) #0
  %11 = getelementptr i64, ptr %7, i64 1
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  br label %end

other:                                            ; preds = %entry
  %14 = getelementptr i64, ptr %7, i64 4
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %14, align 8
  call void @safe(i32 %n) #0
  %17 = getelementptr i64, ptr %7, i64 3
  %18 = load i64, ptr %17, align 8
  %19 = add i64 %18, 1
  store i64 %19, ptr %17, align 8
  br label %end

end:                                              ; preds = %other, %own
  ret void
}
