; Unoptimised code counts by calls, which LLVM's fast instruction selection supports.
; settings:
; settings: threads=atomic
target triple = "x86_64-pc-linux-gnu"

define i32 @f(i32 %x) noinline optnone {
  %slot = alloca i32
  store i32 %x, ptr %slot
  %value = load i32, ptr %slot
  %more = icmp sgt i32 %value, 3
  br i1 %more, label %large, label %small
large:
  ret i32 1
small:
  ret i32 0
}
; ----
; settings: 
define i32 @f(i32 %x) #0 {
  %slot = alloca i32, align 4
  store i32 %x, ptr %slot, align 4
  %1 = call ptr @__trodden_counters_of_thread()
  %value = load i32, ptr %slot, align 4
  %more = icmp sgt i32 %value, 3
  br i1 %more, label %large, label %small

large:                                            ; preds = %0
  %2 = getelementptr i64, ptr %1, i64 0
  call void @__trodden_increment(ptr %2)
  ret i32 1

small:                                            ; preds = %0
  %3 = getelementptr i64, ptr %1, i64 1
  call void @__trodden_increment(ptr %3)
  ret i32 0
}

; settings: threads=atomic
define i32 @f(i32 %x) #0 {
  %slot = alloca i32, align 4
  store i32 %x, ptr %slot, align 4
  %1 = call ptr @__trodden_counters_of_thread()
  %value = load i32, ptr %slot, align 4
  %more = icmp sgt i32 %value, 3
  br i1 %more, label %large, label %small

large:                                            ; preds = %0
  %2 = getelementptr i64, ptr %1, i64 0
  call void @__trodden_increment_atomically(ptr %2)
  ret i32 1

small:                                            ; preds = %0
  %3 = getelementptr i64, ptr %1, i64 1
  call void @__trodden_increment_atomically(ptr %3)
  ret i32 0
}
