; Labels whose address is taken, in a loop with an indirect branch.
; settings:
; settings: when=bursts
target triple = "x86_64-pc-linux-gnu"

@table = internal constant [2 x ptr] [ptr blockaddress(@interpret, %add), ptr blockaddress(@interpret, %stop)]

define i32 @interpret(ptr %code) {
entry:
  br label %next
next:
  %at = phi ptr [ %code, %entry ], [ %more, %add ]
  %sum = phi i32 [ 0, %entry ], [ %added, %add ]
  %operation = load i32, ptr %at
  %slot = getelementptr ptr, ptr @table, i32 %operation
  %target = load ptr, ptr %slot
  indirectbr ptr %target, [label %add, label %stop]
add:
  %added = add i32 %sum, 7
  %more = getelementptr i32, ptr %at, i32 1
  br label %next
stop:
  ret i32 %sum
}
; ----
; settings: 
define i32 @interpret(ptr %code) {
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
  br label %next

next:                                             ; preds = %add, %entry
  %8 = phi i64 [ 0, %add ], [ -1, %entry ]
  %at = phi ptr [ %code, %entry ], [ %more, %add ]
  %sum = phi i32 [ 0, %entry ], [ %added, %add ]
  %operation = load i32, ptr %at, align 4
  %slot = getelementptr ptr, ptr @table, i32 %operation
  %target = load ptr, ptr %slot, align 8
  %9 = getelementptr i64, ptr %7, i64 1
  %10 = getelementptr i64, ptr %9, i64 %8
  %11 = load i64, ptr %10, align 8
  %12 = add i64 %11, 1
  store i64 %12, ptr %10, align 8
  indirectbr ptr %target, [label %add, label %stop]

add:                                              ; preds = %next
  %added = add i32 %sum, 7
  %more = getelementptr i32, ptr %at, i32 1
  br label %next

stop:                                             ; preds = %next
  %13 = getelementptr i64, ptr %7, i64 2
  %14 = load i64, ptr %13, align 8
  %15 = add i64 %14, 1
  store i64 %15, ptr %13, align 8
  ret i32 %sum
}

; settings: when=bursts
define i32 @interpret(ptr %code) !prof !0 {
  %1 = load volatile i8, ptr @__trodden_switch, align 1
  %2 = icmp ne i8 %1, 0
  %3 = call ptr asm "", "=r,0"(ptr @table)
  br i1 %2, label %23, label %entry, !prof !1

entry:                                            ; preds = %0
  br label %next

next:                                             ; preds = %add, %entry
  %at = phi ptr [ %code, %entry ], [ %more, %add ]
  %sum = phi i32 [ 0, %entry ], [ %added, %add ]
  %operation = load i32, ptr %at, align 4
  %slot = getelementptr ptr, ptr %3, i32 %operation
  %target = load ptr, ptr %slot, align 8
  indirectbr ptr %target, [label %add, label %stop]

add:                                              ; preds = %next
  %added = add i32 %sum, 7
  %more = getelementptr i32, ptr %at, i32 1
  br label %next

stop:                                             ; preds = %next
  ret i32 %sum

4:                                                ; preds = %28
  br label %5

5:                                                ; preds = %16, %4
  %6 = phi i64 [ 0, %16 ], [ -1, %4 ]
  %7 = phi ptr [ %code, %4 ], [ %18, %16 ]
  %8 = phi i32 [ 0, %4 ], [ %17, %16 ]
  %9 = load i32, ptr %7, align 4
  %10 = getelementptr ptr, ptr @table.counted, i32 %9
  %11 = load ptr, ptr %10, align 8
  %12 = getelementptr i64, ptr %30, i64 1
  %13 = getelementptr i64, ptr %12, i64 %6
  %14 = load i64, ptr %13, align 8
  %15 = add i64 %14, 1
  store i64 %15, ptr %13, align 8
  indirectbr ptr %11, [label %16, label %19]

16:                                               ; preds = %5
  %17 = add i32 %8, 7
  %18 = getelementptr i32, ptr %7, i32 1
  br label %5

19:                                               ; preds = %5
  %20 = getelementptr i64, ptr %30, i64 2
  %21 = load i64, ptr %20, align 8
  %22 = add i64 %21, 1
  store i64 %22, ptr %20, align 8
  ret i32 %8

23:                                               ; preds = %0
  %24 = load i64, ptr @__trodden_bias, align 8
  %25 = icmp eq i64 %24, 0
  br i1 %25, label %26, label %28, !prof !1

26:                                               ; preds = %23
  %27 = call preserve_allcc i64 @__trodden_enter()
  br label %28

28:                                               ; preds = %26, %23
  %29 = phi i64 [ %24, %23 ], [ %27, %26 ]
  %30 = getelementptr i8, ptr @__trodden_counters, i64 %29
  br label %4
}
