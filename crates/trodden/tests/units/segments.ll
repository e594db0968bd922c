; A caller stores the number of its path's context before the call, and the callee's path register begins with it.
; segment: caller:0 callee:0
; segment: caller:2 callee:1
; settings: segments=file
target triple = "x86_64-pc-linux-gnu"

define i32 @callee(i32 %x) {
entry:
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %then, label %end
then:
  call void @note() nounwind willreturn
  br label %end
end:
  ret i32 %x
}
define i32 @caller(i32 %x) {
entry:
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %join
one:
  call void @note() nounwind willreturn
  br label %join
join:
  %r = call i32 @callee(i32 %x)
  ret i32 %r
}

declare void @note() nounwind willreturn
; ----
; settings: segments=file
define i32 @callee(i32 %x) {
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
  %8 = load i64, ptr @__trodden_context, align 8
  store i64 0, ptr @__trodden_context, align 8
  %9 = icmp ule i64 %8, 2
  %10 = select i1 %9, i64 %8, i64 0
  %11 = shl i64 %10, 1
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %then, label %12

12:                                               ; preds = %entry
  %13 = add i64 %11, 1
  br label %end

then:                                             ; preds = %entry
  call void @note() #0
  br label %end

end:                                              ; preds = %12, %then
  %14 = phi i64 [ %13, %12 ], [ %11, %then ]
  %15 = add i64 %14, 0
  %16 = getelementptr i64, ptr %7, i64 0
  %17 = getelementptr i64, ptr %16, i64 %15
  %18 = load i64, ptr %17, align 8
  %19 = add i64 %18, 1
  store i64 %19, ptr %17, align 8
  ret i32 %x
}

define i32 @caller(i32 %x) {
entry:
  %odd = trunc i32 %x to i1
  br i1 %odd, label %one, label %0

0:                                                ; preds = %entry
  br label %join

one:                                              ; preds = %entry
  call void @note() #0
  br label %join

join:                                             ; preds = %0, %one
  %1 = phi i64 [ 3, %0 ], [ 1, %one ]
  %2 = add i64 %1, -1
  %3 = getelementptr i8, ptr @caller.contexts.paths, i64 %2
  %4 = load i8, ptr %3, align 1
  %5 = zext i8 %4 to i64
  store i64 %5, ptr @__trodden_context, align 8
  %r = call i32 @callee(i32 %x)
  ret i32 %r
}
