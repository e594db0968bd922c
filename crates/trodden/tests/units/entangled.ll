; Two loops, from c to a and from c to b, each of which contains the other's head: neither may check only once in several iterations,
; because the copies of its blocks would copy the other loop's check.
; settings: when=bursts
target triple = "x86_64-pc-linux-gnu"

define i32 @main(i32 %n) {
entry:
  br label %a
a:
  %i = phi i32 [ %n, %entry ], [ %j, %c ]
  %odd = trunc i32 %i to i1
  br i1 %odd, label %b, label %c
b:
  %y = phi i32 [ %i, %a ], [ %j, %c ]
  %x = xor i32 %y, 5
  br label %c
c:
  %z = phi i32 [ %i, %a ], [ %x, %b ]
  %j = add i32 %z, -1
  switch i32 %j, label %b [
    i32 0, label %end
    i32 1, label %a
  ]
end:
  ret i32 %z
}
; ----
; settings: when=bursts
define i32 @main(i32 %n) !prof !0 {
  %1 = load volatile i8, ptr @__trodden_switch, align 1
  %2 = icmp ne i8 %1, 0
  br i1 %2, label %48, label %entry, !prof !1

entry:                                            ; preds = %0
  br label %a

a:                                                ; preds = %29, %5, %entry
  %3 = phi i32 [ %n, %entry ], [ %j, %5 ], [ %28, %29 ]
  %odd = trunc i32 %3 to i1
  br i1 %odd, label %b, label %c

b:                                                ; preds = %36, %8, %a
  %4 = phi i32 [ %3, %a ], [ %j, %8 ], [ %28, %36 ]
  %x = xor i32 %4, 5
  br label %c

c:                                                ; preds = %b, %a
  %z = phi i32 [ %3, %a ], [ %x, %b ]
  %j = add i32 %z, -1
  switch i32 %j, label %8 [
    i32 0, label %end
    i32 1, label %5
  ]

5:                                                ; preds = %c
  %6 = load volatile i8, ptr @__trodden_switch, align 1
  %7 = icmp ne i8 %6, 0
  br i1 %7, label %64, label %a, !prof !1

8:                                                ; preds = %c
  %9 = load volatile i8, ptr @__trodden_switch, align 1
  %10 = icmp ne i8 %9, 0
  br i1 %10, label %56, label %b, !prof !1

end:                                              ; preds = %c
  ret i32 %z

11:                                               ; preds = %53
  br label %12

12:                                               ; preds = %29, %69, %11
  %13 = phi ptr [ %25, %29 ], [ %71, %69 ], [ %55, %11 ]
  %14 = phi i64 [ 3, %29 ], [ -6, %11 ], [ 3, %69 ]
  %15 = phi i32 [ %n, %11 ], [ %28, %29 ], [ %j, %69 ]
  %16 = trunc i32 %15 to i1
  br i1 %16, label %19, label %17

17:                                               ; preds = %12
  %18 = add i64 %14, 3
  br label %24

19:                                               ; preds = %36, %61, %12
  %20 = phi ptr [ %25, %36 ], [ %63, %61 ], [ %13, %12 ]
  %21 = phi i64 [ 0, %36 ], [ %14, %12 ], [ 0, %61 ]
  %22 = phi i32 [ %15, %12 ], [ %28, %36 ], [ %j, %61 ]
  %23 = xor i32 %22, 5
  br label %24

24:                                               ; preds = %17, %19
  %25 = phi ptr [ %13, %17 ], [ %20, %19 ]
  %26 = phi i64 [ %18, %17 ], [ %21, %19 ]
  %27 = phi i32 [ %15, %17 ], [ %23, %19 ]
  %28 = add i32 %27, -1
  switch i32 %28, label %36 [
    i32 0, label %43
    i32 1, label %29
  ]

29:                                               ; preds = %24
  %30 = getelementptr i64, ptr %25, i64 8
  %31 = getelementptr i64, ptr %30, i64 %26
  %32 = load i64, ptr %31, align 8
  %33 = add i64 %32, 1
  store i64 %33, ptr %31, align 8
  %34 = load volatile i8, ptr @__trodden_switch, align 1
  %35 = icmp ne i8 %34, 0
  br i1 %35, label %12, label %a, !prof !1

36:                                               ; preds = %24
  %37 = getelementptr i64, ptr %25, i64 7
  %38 = getelementptr i64, ptr %37, i64 %26
  %39 = load i64, ptr %38, align 8
  %40 = add i64 %39, 1
  store i64 %40, ptr %38, align 8
  %41 = load volatile i8, ptr @__trodden_switch, align 1
  %42 = icmp ne i8 %41, 0
  br i1 %42, label %19, label %b, !prof !1

43:                                               ; preds = %24
  %44 = getelementptr i64, ptr %25, i64 6
  %45 = getelementptr i64, ptr %44, i64 %26
  %46 = load i64, ptr %45, align 8
  %47 = add i64 %46, 1
  store i64 %47, ptr %45, align 8
  ret i32 %27

48:                                               ; preds = %0
  %49 = load i64, ptr @__trodden_bias, align 8
  %50 = icmp eq i64 %49, 0
  br i1 %50, label %51, label %53, !prof !1

51:                                               ; preds = %48
  %52 = call preserve_allcc i64 @__trodden_enter()
  br label %53

53:                                               ; preds = %51, %48
  %54 = phi i64 [ %49, %48 ], [ %52, %51 ]
  %55 = getelementptr i8, ptr @__trodden_counters, i64 %54
  br label %11

56:                                               ; preds = %8
  %57 = load i64, ptr @__trodden_bias, align 8
  %58 = icmp eq i64 %57, 0
  br i1 %58, label %59, label %61, !prof !1

59:                                               ; preds = %56
  %60 = call preserve_allcc i64 @__trodden_enter()
  br label %61

61:                                               ; preds = %59, %56
  %62 = phi i64 [ %57, %56 ], [ %60, %59 ]
  %63 = getelementptr i8, ptr @__trodden_counters, i64 %62
  br label %19

64:                                               ; preds = %5
  %65 = load i64, ptr @__trodden_bias, align 8
  %66 = icmp eq i64 %65, 0
  br i1 %66, label %67, label %69, !prof !1

67:                                               ; preds = %64
  %68 = call preserve_allcc i64 @__trodden_enter()
  br label %69

69:                                               ; preds = %67, %64
  %70 = phi i64 [ %65, %64 ], [ %68, %67 ]
  %71 = getelementptr i8, ptr @__trodden_counters, i64 %70
  br label %12
}
