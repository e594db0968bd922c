; Branches directly to a join with many phis: the edges are split, and each phi keeps one value for each edge.
; settings:
target triple = "x86_64-pc-linux-gnu"

define i32 @join(i32 %x, i32 %y) {
entry:
  %a = icmp slt i32 %x, 0
  br i1 %a, label %join, label %second
second:
  %b = icmp slt i32 %y, 0
  br i1 %b, label %join, label %third
third:
  %c = icmp eq i32 %x, %y
  br i1 %c, label %join, label %last
last:
  br label %join
join:
  %p = phi i32 [ 0, %entry ], [ 1, %second ], [ 2, %third ], [ 3, %last ]
  %q = phi i32 [ %x, %entry ], [ %y, %second ], [ %x, %third ], [ %y, %last ]
  %d = icmp eq i32 %p, %q
  br i1 %d, label %same, label %end
same:
  br label %end
end:
  %r = phi i32 [ %p, %join ], [ 9, %same ]
  ret i32 %r
}
; ----
; settings: 
define i32 @join(i32 %x, i32 %y) {
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
  %a = icmp slt i32 %x, 0
  br i1 %a, label %8, label %second

8:                                                ; preds = %entry
  br label %join

second:                                           ; preds = %entry
  %b = icmp slt i32 %y, 0
  br i1 %b, label %join, label %third

third:                                            ; preds = %second
  %c = icmp eq i32 %x, %y
  br i1 %c, label %9, label %last

9:                                                ; preds = %third
  br label %join

last:                                             ; preds = %third
  br label %join

join:                                             ; preds = %9, %8, %last, %second
  %10 = phi i64 [ 5, %9 ], [ 1, %8 ], [ 7, %last ], [ 3, %second ]
  %11 = phi i32 [ 0, %8 ], [ 1, %second ], [ 2, %9 ], [ 3, %last ]
  %12 = phi i32 [ %x, %8 ], [ %y, %second ], [ %x, %9 ], [ %y, %last ]
  %d = icmp eq i32 %11, %12
  br i1 %d, label %same, label %end

same:                                             ; preds = %join
  %13 = add i64 %10, -1
  br label %end

end:                                              ; preds = %same, %join
  %14 = phi i64 [ %13, %same ], [ %10, %join ]
  %r = phi i32 [ %11, %join ], [ 9, %same ]
  %15 = getelementptr i64, ptr %7, i64 0
  %16 = getelementptr i64, ptr %15, i64 %14
  %17 = load i64, ptr %16, align 8
  %18 = add i64 %17, 1
  store i64 %18, ptr %16, align 8
  ret i32 %r
}
