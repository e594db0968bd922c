; A cycle with two entries: paths are cut at one of its edges.
; settings:
target triple = "x86_64-pc-linux-gnu"

define i32 @irreducible(i32 %x, ptr %p) {
entry:
  %odd = trunc i32 %x to i1
  br i1 %odd, label %left, label %right
left:
  %a = load volatile i32, ptr %p
  %stop = icmp eq i32 %a, 0
  br i1 %stop, label %end, label %right
right:
  %b = load volatile i32, ptr %p
  br label %left
end:
  ret i32 %x
}
; ----
; settings: 
define i32 @irreducible(i32 %x, ptr %p) {
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
  br i1 %odd, label %9, label %8

8:                                                ; preds = %entry
  br label %right

9:                                                ; preds = %entry
  br label %left

left:                                             ; preds = %9, %14
  %10 = phi i64 [ -3, %9 ], [ 0, %14 ]
  %a = load volatile i32, ptr %p, align 4
  %stop = icmp eq i32 %a, 0
  br i1 %stop, label %end, label %right

right:                                            ; preds = %8, %left
  %11 = phi i64 [ -2, %8 ], [ %10, %left ]
  %b = load volatile i32, ptr %p, align 4
  %12 = add i64 %11, 4
  %13 = icmp eq i64 %11, 0
  br i1 %13, label %20, label %15, !prof !1

14:                                               ; preds = %15, %20
  br label %left

15:                                               ; preds = %right
  %16 = getelementptr i64, ptr %7, i64 0
  %17 = getelementptr i64, ptr %16, i64 %12
  %18 = load i64, ptr %17, align 8
  %19 = add i64 %18, 1
  store i64 %19, ptr %17, align 8
  br label %14

20:                                               ; preds = %right
  %21 = getelementptr i64, ptr %7, i64 0
  %22 = getelementptr i64, ptr %21, i64 4
  %23 = load i64, ptr %22, align 8
  %24 = add i64 %23, 1
  store i64 %24, ptr %22, align 8
  br label %14

end:                                              ; preds = %left
  %25 = getelementptr i64, ptr %7, i64 3
  %26 = getelementptr i64, ptr %25, i64 %10
  %27 = load i64, ptr %26, align 8
  %28 = add i64 %27, 1
  store i64 %28, ptr %26, align 8
  ret i32 %x
}
