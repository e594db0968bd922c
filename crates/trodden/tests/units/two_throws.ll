; Two calls in a loop with the same landing pad, which catches and continues.
; settings:
target triple = "x86_64-pc-linux-gnu"

define void @serve(i32 %n) personality ptr @__gxx_personality_v0 {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %on ]
  invoke void @first(i32 %i) to label %second unwind label %caught
second:
  invoke void @last(i32 %i) to label %on unwind label %caught
caught:
  %pad = landingpad { ptr, i32 } catch ptr null
  br label %on
on:
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}

declare void @first(i32)
declare void @last(i32)
declare i32 @__gxx_personality_v0(...)
; ----
; settings: 
define void @serve(i32 %n) personality ptr @__gxx_personality_v0 {
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
  br label %loop

loop:                                             ; preds = %27, %entry
  %8 = phi i64 [ 0, %27 ], [ -8, %entry ]
  %9 = phi i32 [ 0, %entry ], [ %next, %27 ]
  %10 = getelementptr i64, ptr %7, i64 15
  %11 = getelementptr i64, ptr %10, i64 %8
  %12 = load i64, ptr %11, align 8
  %13 = add i64 %12, 1
  store i64 %13, ptr %11, align 8
  invoke void @first(i32 %9)
          to label %second unwind label %23

second:                                           ; preds = %loop
  %14 = getelementptr i64, ptr %7, i64 12
  %15 = getelementptr i64, ptr %14, i64 %8
  %16 = load i64, ptr %15, align 8
  %17 = add i64 %16, 1
  store i64 %17, ptr %15, align 8
  invoke void @last(i32 %9)
          to label %on unwind label %20

caught:                                           ; preds = %20, %23
  %18 = phi i64 [ %22, %20 ], [ %25, %23 ]
  %19 = phi { ptr, i32 } [ %24, %23 ], [ %21, %20 ]
  br label %on

20:                                               ; preds = %second
  %21 = landingpad { ptr, i32 }
          catch ptr null
  %22 = add i64 %8, 2
  br label %caught

23:                                               ; preds = %loop
  %24 = landingpad { ptr, i32 }
          catch ptr null
  %25 = add i64 %8, 5
  br label %caught

on:                                               ; preds = %caught, %second
  %26 = phi i64 [ %18, %caught ], [ %8, %second ]
  %next = add i32 %9, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %27, label %end

27:                                               ; preds = %on
  %28 = getelementptr i64, ptr %7, i64 9
  %29 = getelementptr i64, ptr %28, i64 %26
  %30 = load i64, ptr %29, align 8
  %31 = add i64 %30, 1
  store i64 %31, ptr %29, align 8
  br label %loop

end:                                              ; preds = %on
  %32 = getelementptr i64, ptr %7, i64 8
  %33 = getelementptr i64, ptr %32, i64 %26
  %34 = load i64, ptr %33, align 8
  %35 = add i64 %34, 1
  store i64 %35, ptr %33, align 8
  ret void
}
