; Before a call, the caller stores the context number of its path, with which the callee's path register begins.
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
  %8 = call ptr @llvm.addressofreturnaddress.p0()
  %9 = ptrtoint ptr %8 to i64
  %10 = add i64 %9, 8
  %11 = shl i64 %10, 17
  %12 = xor i64 %11, 2466898051552265138
  %13 = load volatile i64, ptr @__trodden_context, align 8
  %14 = load volatile i64, ptr getelementptr (i64, ptr @__trodden_context, i64 1), align 8
  %15 = load volatile i64, ptr getelementptr (i64, ptr @__trodden_context, i64 2), align 8
  %16 = xor i64 %13, %12
  %17 = xor i64 %14, %12
  %18 = icmp ule i64 %16, 2
  %19 = icmp ule i64 %17, 2
  %20 = or i1 %18, %19
  %21 = icmp eq i64 %15, %13
  %22 = select i1 %21, i64 0, i64 %15
  %23 = select i1 %20, i64 %22, i64 %13
  store volatile i64 %23, ptr @__trodden_context, align 8
  %24 = select i1 %20, i64 0, i64 %14
  store volatile i64 %24, ptr getelementptr (i64, ptr @__trodden_context, i64 1), align 8
  %25 = select i1 %19, i64 %17, i64 0
  %26 = select i1 %18, i64 %16, i64 %25
  %27 = shl i64 %26, 1
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %then, label %28

28:                                               ; preds = %entry
  %29 = add i64 %27, 1
  br label %end

then:                                             ; preds = %entry
  call void @note() #0
  br label %end

end:                                              ; preds = %28, %then
  %30 = phi i64 [ %29, %28 ], [ %27, %then ]
  %31 = add i64 %30, 0
  %32 = getelementptr i64, ptr %7, i64 0
  %33 = icmp eq i64 %31, 2
  %34 = select i1 %33, i64 0, i64 2
  %35 = icmp eq i64 %31, 5
  %36 = select i1 %35, i64 1, i64 %34
  %37 = getelementptr i64, ptr %32, i64 %36
  %38 = load i64, ptr %37, align 8
  %39 = add i64 %38, 1
  store i64 %39, ptr %37, align 8
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
  %6 = xor i64 %5, 2466898051552265138
  %7 = call i64 @llvm.read_volatile_register.i64(metadata !1)
  %8 = shl i64 %7, 17
  %9 = load volatile i64, ptr @__trodden_context, align 8
  store volatile i64 %9, ptr getelementptr (i64, ptr @__trodden_context, i64 2), align 8
  %10 = xor i64 %8, %6
  store volatile i64 %10, ptr @__trodden_context, align 8
  %r = call i32 @callee(i32 %x)
  ret i32 %r
}
