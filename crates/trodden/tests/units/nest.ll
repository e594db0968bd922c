; A loop in a loop.
; settings:
; settings: when=bursts
target triple = "x86_64-pc-linux-gnu"

define i32 @nest(i32 %n) {
entry:
  br label %outer
outer:
  %i = phi i32 [ 0, %entry ], [ %ni, %after ]
  %s = phi i32 [ 0, %entry ], [ %t, %after ]
  br label %inner
inner:
  %j = phi i32 [ 0, %outer ], [ %nj, %inner ]
  %t = phi i32 [ %s, %outer ], [ %u, %inner ]
  %u = add i32 %t, %j
  %nj = add i32 %j, 1
  %again = icmp ult i32 %nj, %i
  br i1 %again, label %inner, label %after
after:
  %ni = add i32 %i, 1
  %more = icmp ult i32 %ni, %n
  br i1 %more, label %outer, label %end
end:
  ret i32 %u
}
; ----
