; Sums of an event in a loop: its counter is read where a path begins and where it ends.
; settings: events=tsc
; settings: events=instructions
target triple = "x86_64-pc-linux-gnu"

define void @loop(ptr %p, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  store volatile i32 %i, ptr %p
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
; ----
; settings: events=tsc
define void @loop(ptr %p, i32 %n) {
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
  %8 = call i64 @llvm.readcyclecounter()
  %9 = load i64, ptr @__trodden_event_own, align 8
  %10 = sub i64 %8, %9
  %11 = load i64, ptr @__trodden_event_cost, align 8
  %12 = load i64, ptr @__trodden_event_own, align 8
  %13 = add i64 %12, %11
  store i64 %13, ptr @__trodden_event_own, align 8
  br label %loop

loop:                                             ; preds = %16, %entry
  %14 = phi i64 [ 0, %16 ], [ -2, %entry ]
  %15 = phi i32 [ 0, %entry ], [ %next, %16 ]
  store volatile i32 %15, ptr %p, align 4
  %next = add i32 %15, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %16, label %end

16:                                               ; preds = %loop
  %17 = getelementptr [4 x i64], ptr %7, i64 3
  %18 = getelementptr [4 x i64], ptr %17, i64 %14
  %19 = call i64 @llvm.readcyclecounter()
  %20 = sub i64 %19, %10
  %21 = load i64, ptr @__trodden_event_own, align 8
  %22 = sub i64 %20, %21
  %23 = getelementptr i64, ptr %18, i64 1
  %24 = load i64, ptr %23, align 8
  %25 = add i64 %24, %22
  store i64 %25, ptr %23, align 8
  %26 = sext i64 %22 to i128
  %27 = mul i128 %26, %26
  %28 = lshr i128 %27, 64
  %29 = trunc i128 %28 to i64
  %30 = getelementptr i64, ptr %18, i64 2
  %31 = trunc i128 %27 to i64
  %32 = getelementptr i64, ptr %30, i64 1
  call void asm sideeffect "addq $2, $0\0A\09adcq $3, $1", "*m,*m,re,re,~{memory},~{flags}"(ptr elementtype(i64) %30, ptr elementtype(i64) %32, i64 %31, i64 %29)
  %33 = load i64, ptr getelementptr (i8, ptr @__trodden_event_cost, i64 8), align 8
  %34 = add i64 %22, %33
  %35 = load i64, ptr @__trodden_event_own, align 8
  %36 = add i64 %35, %34
  store i64 %36, ptr @__trodden_event_own, align 8
  %37 = load i64, ptr %18, align 8
  %38 = add i64 %37, 1
  store i64 %38, ptr %18, align 8
  br label %loop

end:                                              ; preds = %loop
  %39 = getelementptr [4 x i64], ptr %7, i64 2
  %40 = getelementptr [4 x i64], ptr %39, i64 %14
  %41 = call i64 @llvm.readcyclecounter()
  %42 = sub i64 %41, %10
  %43 = load i64, ptr @__trodden_event_own, align 8
  %44 = sub i64 %42, %43
  %45 = getelementptr i64, ptr %40, i64 1
  %46 = load i64, ptr %45, align 8
  %47 = add i64 %46, %44
  store i64 %47, ptr %45, align 8
  %48 = sext i64 %44 to i128
  %49 = mul i128 %48, %48
  %50 = lshr i128 %49, 64
  %51 = trunc i128 %50 to i64
  %52 = getelementptr i64, ptr %40, i64 2
  %53 = trunc i128 %49 to i64
  %54 = getelementptr i64, ptr %52, i64 1
  call void asm sideeffect "addq $2, $0\0A\09adcq $3, $1", "*m,*m,re,re,~{memory},~{flags}"(ptr elementtype(i64) %52, ptr elementtype(i64) %54, i64 %53, i64 %51)
  %55 = load i64, ptr getelementptr (i8, ptr @__trodden_event_cost, i64 8), align 8
  %56 = add i64 %44, %55
  %57 = load i64, ptr @__trodden_event_own, align 8
  %58 = add i64 %57, %56
  store i64 %58, ptr @__trodden_event_own, align 8
  %59 = load i64, ptr %40, align 8
  %60 = add i64 %59, 1
  store i64 %60, ptr %40, align 8
  ret void
}

; settings: events=instructions
define void @loop(ptr %p, i32 %n) {
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
  %8 = call preserve_allcc i64 @__trodden_event_now()
  %9 = load i64, ptr @__trodden_event_own, align 8
  %10 = sub i64 %8, %9
  %11 = load i64, ptr @__trodden_event_cost, align 8
  %12 = load i64, ptr @__trodden_event_own, align 8
  %13 = add i64 %12, %11
  store i64 %13, ptr @__trodden_event_own, align 8
  br label %loop

loop:                                             ; preds = %16, %entry
  %14 = phi i64 [ 0, %16 ], [ -2, %entry ]
  %15 = phi i32 [ 0, %entry ], [ %next, %16 ]
  store volatile i32 %15, ptr %p, align 4
  %next = add i32 %15, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %16, label %end

16:                                               ; preds = %loop
  %17 = getelementptr [4 x i64], ptr %7, i64 3
  %18 = getelementptr [4 x i64], ptr %17, i64 %14
  %19 = call preserve_allcc i64 @__trodden_event_now()
  %20 = sub i64 %19, %10
  %21 = load i64, ptr @__trodden_event_own, align 8
  %22 = sub i64 %20, %21
  %23 = getelementptr i64, ptr %18, i64 1
  %24 = load i64, ptr %23, align 8
  %25 = add i64 %24, %22
  store i64 %25, ptr %23, align 8
  %26 = sext i64 %22 to i128
  %27 = mul i128 %26, %26
  %28 = lshr i128 %27, 64
  %29 = trunc i128 %28 to i64
  %30 = getelementptr i64, ptr %18, i64 2
  %31 = trunc i128 %27 to i64
  %32 = getelementptr i64, ptr %30, i64 1
  call void asm sideeffect "addq $2, $0\0A\09adcq $3, $1", "*m,*m,re,re,~{memory},~{flags}"(ptr elementtype(i64) %30, ptr elementtype(i64) %32, i64 %31, i64 %29)
  %33 = load i64, ptr getelementptr (i8, ptr @__trodden_event_cost, i64 8), align 8
  %34 = add i64 %22, %33
  %35 = load i64, ptr @__trodden_event_own, align 8
  %36 = add i64 %35, %34
  store i64 %36, ptr @__trodden_event_own, align 8
  %37 = load i64, ptr %18, align 8
  %38 = add i64 %37, 1
  store i64 %38, ptr %18, align 8
  br label %loop

end:                                              ; preds = %loop
  %39 = getelementptr [4 x i64], ptr %7, i64 2
  %40 = getelementptr [4 x i64], ptr %39, i64 %14
  %41 = call preserve_allcc i64 @__trodden_event_now()
  %42 = sub i64 %41, %10
  %43 = load i64, ptr @__trodden_event_own, align 8
  %44 = sub i64 %42, %43
  %45 = getelementptr i64, ptr %40, i64 1
  %46 = load i64, ptr %45, align 8
  %47 = add i64 %46, %44
  store i64 %47, ptr %45, align 8
  %48 = sext i64 %44 to i128
  %49 = mul i128 %48, %48
  %50 = lshr i128 %49, 64
  %51 = trunc i128 %50 to i64
  %52 = getelementptr i64, ptr %40, i64 2
  %53 = trunc i128 %49 to i64
  %54 = getelementptr i64, ptr %52, i64 1
  call void asm sideeffect "addq $2, $0\0A\09adcq $3, $1", "*m,*m,re,re,~{memory},~{flags}"(ptr elementtype(i64) %52, ptr elementtype(i64) %54, i64 %53, i64 %51)
  %55 = load i64, ptr getelementptr (i8, ptr @__trodden_event_cost, i64 8), align 8
  %56 = add i64 %44, %55
  %57 = load i64, ptr @__trodden_event_own, align 8
  %58 = add i64 %57, %56
  store i64 %58, ptr @__trodden_event_own, align 8
  %59 = load i64, ptr %40, align 8
  %60 = add i64 %59, 1
  store i64 %60, ptr %40, align 8
  ret void
}
