; A call that may throw.
; settings:
target triple = "x86_64-pc-linux-gnu"

define i32 @try(i32 %x) personality ptr @__gxx_personality_v0 {
entry:
  %r = invoke i32 @throws(i32 %x) to label %fine unwind label %caught
fine:
  ret i32 %r
caught:
  %pad = landingpad { ptr, i32 } cleanup
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %note, label %on
note:
  call void @note() nounwind
  br label %on
on:
  resume { ptr, i32 } %pad
}

declare i32 @throws(i32)
declare void @note() nounwind willreturn
declare i32 @__gxx_personality_v0(...)
; ----
; settings: 
define i32 @try(i32 %x) personality ptr @__gxx_personality_v0 {
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
  %r = invoke i32 @throws(i32 %x)
          to label %fine unwind label %caught

fine:                                             ; preds = %entry
  %11 = getelementptr i64, ptr %7, i64 0
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  ret i32 %r

caught:                                           ; preds = %entry
  %pad = landingpad { ptr, i32 }
          cleanup
  %big = icmp ugt i32 %x, 9
  br i1 %big, label %note, label %14

14:                                               ; preds = %caught
  br label %on

note:                                             ; preds = %caught
  call void @note() #2
  br label %on

on:                                               ; preds = %14, %note
  %15 = phi i64 [ 1, %14 ], [ 0, %note ]
  %16 = getelementptr i64, ptr %7, i64 1
  %17 = getelementptr i64, ptr %16, i64 %15
  %18 = load i64, ptr %17, align 8
  %19 = add i64 %18, 1
  store i64 %19, ptr %17, align 8
  resume { ptr, i32 } %pad
}
