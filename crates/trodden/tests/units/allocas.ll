; Stack variables stay in the first block, even where code is duplicated.
; settings:
; settings: when=bursts
target triple = "x86_64-pc-linux-gnu"

define i32 @local(i32 %x) {
entry:
  %v = alloca i32
  store i32 %x, ptr %v
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %then, label %end
then:
  call void @change(ptr %v) nounwind willreturn
  br label %end
end:
  %r = load i32, ptr %v
  ret i32 %r
}

declare void @change(ptr) nounwind willreturn
; ----
; settings: 
define i32 @local(i32 %x) {
  %1 = alloca i32, align 4
  %2 = load i64, ptr @__trodden_bias, align 8
  %3 = icmp eq i64 %2, 0
  br i1 %3, label %4, label %6, !prof !0

4:                                                ; preds = %0
  %5 = call preserve_allcc i64 @__trodden_enter()
  br label %6

6:                                                ; preds = %4, %0
  %7 = phi i64 [ %2, %0 ], [ %5, %4 ]
  %8 = getelementptr i8, ptr @__trodden_counters, i64 %7
  br label %entry

entry:                                            ; preds = %6
  store i32 %x, ptr %1, align 4
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %then, label %9

9:                                                ; preds = %entry
  %10 = getelementptr i64, ptr %8, i64 1
  %11 = load i64, ptr %10, align 8
  %12 = add i64 %11, 1
  store i64 %12, ptr %10, align 8
  br label %end

then:                                             ; preds = %entry
  call void @change(ptr %1) #0
  %13 = getelementptr i64, ptr %8, i64 0
  %14 = load i64, ptr %13, align 8
  %15 = add i64 %14, 1
  store i64 %15, ptr %13, align 8
  br label %end

end:                                              ; preds = %9, %then
  %r = load i32, ptr %1, align 4
  ret i32 %r
}

; settings: when=bursts
define i32 @local(i32 %x) {
  %1 = alloca i32, align 4
  %2 = load volatile i8, ptr @__trodden_switch, align 1
  %3 = icmp ne i8 %2, 0
  br i1 %3, label %4, label %entry, !prof !0

entry:                                            ; preds = %0
  store i32 %x, ptr %1, align 4
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %then, label %end

then:                                             ; preds = %entry
  call void @change(ptr %1) #0
  br label %end

end:                                              ; preds = %then, %entry
  %r = load i32, ptr %1, align 4
  ret i32 %r

4:                                                ; preds = %0
  %5 = musttail call i32 @local.counted(i32 %x)
  ret i32 %5
}

define internal i32 @local.counted(i32 %0) #2 {
  %2 = alloca i32, align 4
  %3 = load i64, ptr @__trodden_bias, align 8
  %4 = icmp eq i64 %3, 0
  br i1 %4, label %5, label %7, !prof !0

5:                                                ; preds = %1
  %6 = call preserve_allcc i64 @__trodden_enter()
  br label %7

7:                                                ; preds = %5, %1
  %8 = phi i64 [ %3, %1 ], [ %6, %5 ]
  %9 = getelementptr i8, ptr @__trodden_counters, i64 %8
  br label %10

10:                                               ; preds = %7
  store i32 %0, ptr %2, align 4
  %11 = icmp ugt i32 %0, 9
  br i1 %11, label %13, label %12

12:                                               ; preds = %10
  br label %14

13:                                               ; preds = %10
  call void @change(ptr %2) #0
  br label %14

14:                                               ; preds = %12, %13
  %15 = phi i64 [ 1, %12 ], [ 0, %13 ]
  %16 = load i32, ptr %2, align 4
  %17 = getelementptr i64, ptr %9, i64 0
  %18 = getelementptr i64, ptr %17, i64 %15
  %19 = load i64, ptr %18, align 8
  %20 = add i64 %19, 1
  store i64 %20, ptr %18, align 8
  ret i32 %16
}
