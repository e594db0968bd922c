; A call that returns twice: paths end at the call, and others begin after it.
; settings:
; settings: when=bursts
target triple = "x86_64-pc-linux-gnu"

define i32 @tries(ptr %buffer) {
entry:
  %r = call i32 @_setjmp(ptr %buffer) returns_twice
  %first = icmp eq i32 %r, 0
  br i1 %first, label %work, label %back
work:
  call void @may_jump(ptr %buffer)
  br label %back
back:
  ret i32 %r
}

declare i32 @_setjmp(ptr) returns_twice
declare void @may_jump(ptr)
; ----
; settings: 
define i32 @tries(ptr %buffer) {
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
  %8 = getelementptr i64, ptr %7, i64 3
  %9 = load i64, ptr %8, align 8
  %10 = add i64 %9, 1
  store i64 %10, ptr %8, align 8
  %r = call i32 @_setjmp(ptr %buffer) #0
  br label %11

11:                                               ; preds = %entry
  %12 = icmp eq i32 %r, 0
  br i1 %12, label %work, label %13

13:                                               ; preds = %11
  %14 = getelementptr i64, ptr %7, i64 2
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %14, align 8
  br label %back

work:                                             ; preds = %11
  %17 = getelementptr i64, ptr %7, i64 1
  %18 = load i64, ptr %17, align 8
  %19 = add i64 %18, 1
  store i64 %19, ptr %17, align 8
  call void @may_jump(ptr %buffer)
  %20 = getelementptr i64, ptr %7, i64 0
  %21 = load i64, ptr %20, align 8
  %22 = add i64 %21, 1
  store i64 %22, ptr %20, align 8
  br label %back

back:                                             ; preds = %13, %work
  ret i32 %r
}

; settings: when=bursts
define i32 @tries(ptr %buffer) {
entry:
  %r = call i32 @_setjmp(ptr %buffer) #0
  %first = icmp eq i32 %r, 0
  br i1 %first, label %work, label %back

work:                                             ; preds = %entry
  call void @may_jump(ptr %buffer)
  br label %back

back:                                             ; preds = %work, %entry
  ret i32 %r
}
