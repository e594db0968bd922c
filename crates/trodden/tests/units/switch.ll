; Several cases to one target: an edge that cannot be parted is parted all the same.
; settings:
; settings: chords=off
target triple = "x86_64-pc-linux-gnu"

define i32 @switch(i32 %x) {
entry:
  switch i32 %x, label %rest [ i32 0, label %low
                               i32 1, label %low
                               i32 2, label %mid
                               i32 9, label %rest ]
low:
  br label %end
mid:
  br label %end
rest:
  br label %end
end:
  %r = phi i32 [ 1, %low ], [ 2, %mid ], [ 3, %rest ]
  ret i32 %r
}
; ----
