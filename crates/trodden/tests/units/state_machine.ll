; A switch in a loop: each state has a counter, and the path begins again at the loop head.
; settings:
; settings: dominant-iteration=shared
target triple = "x86_64-pc-linux-gnu"

define i32 @machine(ptr %p) {
entry:
  br label %head
head:
  %state = load volatile i32, ptr %p
  switch i32 %state, label %end [ i32 0, label %zero
                                  i32 1, label %one ]
zero:
  store volatile i32 1, ptr %p
  br label %head
one:
  store volatile i32 0, ptr %p
  br label %head
end:
  ret i32 %state
}
; ----
; settings: 
define i32 @machine(ptr %p) {
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
  br label %head

head:                                             ; preds = %24, %11, %entry
  %8 = phi i64 [ 0, %24 ], [ 0, %11 ], [ -3, %entry ]
  %state = load volatile i32, ptr %p, align 4
  switch i32 %state, label %end [
    i32 0, label %zero
    i32 1, label %one
  ]

zero:                                             ; preds = %head
  store volatile i32 1, ptr %p, align 4
  %9 = add i64 %8, 4
  %10 = icmp eq i64 %8, 0
  br i1 %10, label %17, label %12, !prof !1

11:                                               ; preds = %12, %17
  br label %head

12:                                               ; preds = %zero
  %13 = getelementptr i64, ptr %7, i64 0
  %14 = getelementptr i64, ptr %13, i64 %9
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %14, align 8
  br label %11

17:                                               ; preds = %zero
  %18 = getelementptr i64, ptr %7, i64 0
  %19 = getelementptr i64, ptr %18, i64 4
  %20 = load i64, ptr %19, align 8
  %21 = add i64 %20, 1
  store i64 %21, ptr %19, align 8
  br label %11

one:                                              ; preds = %head
  store volatile i32 0, ptr %p, align 4
  %22 = add i64 %8, 5
  %23 = icmp eq i64 %8, 0
  br i1 %23, label %30, label %25, !prof !1

24:                                               ; preds = %25, %30
  br label %head

25:                                               ; preds = %one
  %26 = getelementptr i64, ptr %7, i64 0
  %27 = getelementptr i64, ptr %26, i64 %22
  %28 = load i64, ptr %27, align 8
  %29 = add i64 %28, 1
  store i64 %29, ptr %27, align 8
  br label %24

30:                                               ; preds = %one
  %31 = getelementptr i64, ptr %7, i64 0
  %32 = getelementptr i64, ptr %31, i64 5
  %33 = load i64, ptr %32, align 8
  %34 = add i64 %33, 1
  store i64 %34, ptr %32, align 8
  br label %24

end:                                              ; preds = %head
  %35 = getelementptr i64, ptr %7, i64 3
  %36 = getelementptr i64, ptr %35, i64 %8
  %37 = load i64, ptr %36, align 8
  %38 = add i64 %37, 1
  store i64 %38, ptr %36, align 8
  ret i32 %state
}

; settings: dominant-iteration=shared
define i32 @machine(ptr %p) {
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
  br label %head

head:                                             ; preds = %one, %zero, %entry
  %8 = phi i64 [ 0, %one ], [ 0, %zero ], [ -3, %entry ]
  %state = load volatile i32, ptr %p, align 4
  switch i32 %state, label %end [
    i32 0, label %zero
    i32 1, label %one
  ]

zero:                                             ; preds = %head
  store volatile i32 1, ptr %p, align 4
  %9 = getelementptr i64, ptr %7, i64 4
  %10 = getelementptr i64, ptr %9, i64 %8
  %11 = load i64, ptr %10, align 8
  %12 = add i64 %11, 1
  store i64 %12, ptr %10, align 8
  br label %head

one:                                              ; preds = %head
  store volatile i32 0, ptr %p, align 4
  %13 = getelementptr i64, ptr %7, i64 5
  %14 = getelementptr i64, ptr %13, i64 %8
  %15 = load i64, ptr %14, align 8
  %16 = add i64 %15, 1
  store i64 %16, ptr %14, align 8
  br label %head

end:                                              ; preds = %head
  %17 = getelementptr i64, ptr %7, i64 3
  %18 = getelementptr i64, ptr %17, i64 %8
  %19 = load i64, ptr %18, align 8
  %20 = add i64 %19, 1
  store i64 %20, ptr %18, align 8
  ret i32 %state
}
