; A local function whose callers acquire the counters for it, and one whose address is taken.
; settings:
; settings: when=bursts
target triple = "x86_64-pc-linux-gnu"

@table = global ptr @by_address

define internal i32 @called(i32 %x) {
  %big = icmp ugt i32 %x, 3
  br i1 %big, label %a, label %b
a:
  ret i32 1
b:
  ret i32 2
}

define internal i32 @by_address(i32 %x) {
  %r = call i32 @called(i32 %x)
  ret i32 %r
}

define i32 @main(i32 %n) {
  %r = call i32 @called(i32 %n)
  ret i32 %r
}
; ----
; settings: 
define internal i32 @called(i32 %x) {
  %1 = load i64, ptr @__trodden_bias, align 8
  %2 = getelementptr i8, ptr @__trodden_counters, i64 %1
  %big = icmp ugt i32 %x, 3
  br i1 %big, label %a, label %b

a:                                                ; preds = %0
  %3 = getelementptr i64, ptr %2, i64 0
  %4 = load i64, ptr %3, align 8
  %5 = add i64 %4, 1
  store i64 %5, ptr %3, align 8
  ret i32 1

b:                                                ; preds = %0
  %6 = getelementptr i64, ptr %2, i64 1
  %7 = load i64, ptr %6, align 8
  %8 = add i64 %7, 1
  store i64 %8, ptr %6, align 8
  ret i32 2
}

define internal i32 @by_address(i32 %x) {
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
  %r = call i32 @called(i32 %x)
  %9 = getelementptr i64, ptr %7, i64 2
  %10 = load i64, ptr %9, align 8
  %11 = add i64 %10, 1
  store i64 %11, ptr %9, align 8
  ret i32 %r
}

define i32 @main(i32 %n) {
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
  %r = call i32 @called(i32 %n)
  %9 = getelementptr i64, ptr %7, i64 3
  %10 = load i64, ptr %9, align 8
  %11 = add i64 %10, 1
  store i64 %11, ptr %9, align 8
  ret i32 %r
}

; settings: when=bursts
define internal i32 @called(i32 %x) {
  %big = icmp ugt i32 %x, 3
  br i1 %big, label %a, label %b

a:                                                ; preds = %0
  ret i32 1

b:                                                ; preds = %0
  ret i32 2
}

define internal i32 @by_address(i32 %x) {
  %1 = load volatile i8, ptr @__trodden_switch, align 1
  %2 = icmp ne i8 %1, 0
  br i1 %2, label %4, label %3, !prof !0

3:                                                ; preds = %0
  %r = call i32 @called(i32 %x)
  ret i32 %r

4:                                                ; preds = %0
  %5 = musttail call i32 @by_address.counted(i32 %x)
  ret i32 %5
}

define i32 @main(i32 %n) {
  %1 = load volatile i8, ptr @__trodden_switch, align 1
  %2 = icmp ne i8 %1, 0
  br i1 %2, label %4, label %3, !prof !0

3:                                                ; preds = %0
  %r = call i32 @called(i32 %n)
  ret i32 %r

4:                                                ; preds = %0
  %5 = musttail call i32 @main.counted(i32 %n)
  ret i32 %5
}

define internal i32 @called.counted(i32 %0) #1 {
  %2 = load i64, ptr @__trodden_bias, align 8
  %3 = getelementptr i8, ptr @__trodden_counters, i64 %2
  %4 = icmp ugt i32 %0, 3
  br i1 %4, label %5, label %9

5:                                                ; preds = %1
  %6 = getelementptr i64, ptr %3, i64 0
  %7 = load i64, ptr %6, align 8
  %8 = add i64 %7, 1
  store i64 %8, ptr %6, align 8
  ret i32 1

9:                                                ; preds = %1
  %10 = getelementptr i64, ptr %3, i64 1
  %11 = load i64, ptr %10, align 8
  %12 = add i64 %11, 1
  store i64 %12, ptr %10, align 8
  ret i32 2
}

define internal i32 @by_address.counted(i32 %0) #1 {
  %2 = load i64, ptr @__trodden_bias, align 8
  %3 = icmp eq i64 %2, 0
  br i1 %3, label %4, label %6, !prof !0

4:                                                ; preds = %1
  %5 = call preserve_allcc i64 @__trodden_enter()
  br label %6

6:                                                ; preds = %4, %1
  %7 = phi i64 [ %2, %1 ], [ %5, %4 ]
  %8 = getelementptr i8, ptr @__trodden_counters, i64 %7
  br label %9

9:                                                ; preds = %6
  %10 = call i32 @called.counted(i32 %0)
  %11 = getelementptr i64, ptr %8, i64 2
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  ret i32 %10
}

define internal i32 @main.counted(i32 %0) #1 {
  %2 = load i64, ptr @__trodden_bias, align 8
  %3 = icmp eq i64 %2, 0
  br i1 %3, label %4, label %6, !prof !0

4:                                                ; preds = %1
  %5 = call preserve_allcc i64 @__trodden_enter()
  br label %6

6:                                                ; preds = %4, %1
  %7 = phi i64 [ %2, %1 ], [ %5, %4 ]
  %8 = getelementptr i8, ptr @__trodden_counters, i64 %7
  br label %9

9:                                                ; preds = %6
  %10 = call i32 @called.counted(i32 %0)
  %11 = getelementptr i64, ptr %8, i64 3
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  ret i32 %10
}
