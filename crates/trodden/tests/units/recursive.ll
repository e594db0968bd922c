; A function that calls itself: each call has a separate path register, and a local callee gets the region from its caller.
; settings:
target triple = "x86_64-pc-linux-gnu"

define internal i32 @down(i32 %n) nounwind willreturn {
entry:
  %last = icmp eq i32 %n, 0
  br i1 %last, label %end, label %more
more:
  %less = sub i32 %n, 1
  %r = call i32 @down(i32 %less) nounwind willreturn
  br label %end
end:
  %v = phi i32 [ 0, %entry ], [ %r, %more ]
  ret i32 %v
}
define i32 @start(i32 %n) nounwind willreturn {
  %r = call i32 @down(i32 %n) nounwind willreturn
  ret i32 %r
}
; ----
; settings: 
define internal i32 @down(i32 %n) #0 {
entry:
  %0 = load i64, ptr @__trodden_bias, align 8
  %1 = getelementptr i8, ptr @__trodden_counters, i64 %0
  %last = icmp eq i32 %n, 0
  br i1 %last, label %2, label %more

2:                                                ; preds = %entry
  %3 = getelementptr i64, ptr %1, i64 0
  %4 = load i64, ptr %3, align 8
  %5 = add i64 %4, 1
  store i64 %5, ptr %3, align 8
  br label %end

more:                                             ; preds = %entry
  %less = sub i32 %n, 1
  %r = call i32 @down(i32 %less) #0
  %6 = getelementptr i64, ptr %1, i64 1
  %7 = load i64, ptr %6, align 8
  %8 = add i64 %7, 1
  store i64 %8, ptr %6, align 8
  br label %end

end:                                              ; preds = %2, %more
  %9 = phi i32 [ 0, %2 ], [ %r, %more ]
  ret i32 %9
}

define i32 @start(i32 %n) #0 {
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
  %r = call i32 @down(i32 %n) #0
  %9 = getelementptr i64, ptr %7, i64 2
  %10 = load i64, ptr %9, align 8
  %11 = add i64 %10, 1
  store i64 %11, ptr %9, align 8
  ret i32 %r
}
