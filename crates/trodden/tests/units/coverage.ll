; LLVM's coverage counters are removed: their values follow from the paths.
; settings: observe=coverage
target triple = "x86_64-pc-linux-gnu"

$__covrec_E58012BB6ED42EA7u = comdat any
$__profc_covered = comdat nodeduplicate

@__covrec_E58012BB6ED42EA7u = linkonce_odr hidden constant <{ i64, i32, i64, i64, [37 x i8] }> <{ i64 -1909505645777506649, i32 37, i64 175187032, i64 5737121922193081447, [37 x i8] c"\01\01\01\01\05\05\01\02\14\004\01\00\1A\00\1F \05\02\00\1A\00\1F\05\00 \00\A1\80\80\80\08\05\00!\00'" }>, section "__llvm_covfun", comdat, align 8
@__llvm_coverage_mapping = private constant { { i32, i32, i32, i32 }, [33 x i8] } { { i32, i32, i32, i32 } { i32 0, i32 33, i32 0, i32 6 }, [33 x i8] c"\02\19\1Ex\DA\13\D1/\C9-\D0//\D1/\CF/J)6\D3\03\F1J\98\93\F5\92\01m\D8\08\\" }, section "__llvm_covmap", align 8
@__profc_covered = private global [2 x i64] zeroinitializer, section "__llvm_prf_cnts", comdat, align 8
@__profd_covered = private global { i64, i64, i64, i64, ptr, ptr, i32, [3 x i16], i32 } { i64 -1909505645777506649, i64 175187032, i64 sub (i64 ptrtoint (ptr @__profc_covered to i64), i64 ptrtoint (ptr @__profd_covered to i64)), i64 0, ptr null, ptr null, i32 2, [3 x i16] zeroinitializer, i32 0 }, section "__llvm_prf_data", comdat($__profc_covered), align 8
@__llvm_prf_nm = private constant [9 x i8] c"\07\00covered", section "__llvm_prf_names", align 1
@llvm.used = appending global [3 x ptr] [ptr @__covrec_E58012BB6ED42EA7u, ptr @__llvm_coverage_mapping, ptr @__llvm_prf_nm], section "llvm.metadata"
@llvm.compiler.used = appending global [1 x ptr] [ptr @__profd_covered], section "llvm.metadata"

define i32 @covered(i32 %x) {
entry:
  %0 = atomicrmw add ptr @__profc_covered, i64 1 monotonic
  %big = icmp sgt i32 %x, 9
  br i1 %big, label %then, label %end
then:
  %1 = atomicrmw add ptr getelementptr inbounds nuw (i8, ptr @__profc_covered, i64 8), i64 1 monotonic
  call void @note() nounwind willreturn
  br label %end
end:
  ret i32 %x
}

declare void @note() nounwind willreturn
; ----
; settings: observe=coverage
define i32 @covered(i32 %x) {
  %1 = load i64, ptr @__trodden_bias, align 8
  %2 = icmp eq i64 %1, 0
  br i1 %2, label %3, label %5, !prof !1

3:                                                ; preds = %0
  %4 = call preserve_allcc i64 @__trodden_enter()
  br label %5

5:                                                ; preds = %3, %0
  %6 = phi i64 [ %1, %0 ], [ %4, %3 ]
  %7 = getelementptr i8, ptr @__trodden_counters, i64 %6
  br label %entry

entry:                                            ; preds = %5
  %big = icmp sgt i32 %x, 9
  br i1 %big, label %then, label %8

8:                                                ; preds = %entry
  %9 = getelementptr i64, ptr %7, i64 1
  %10 = load i64, ptr %9, align 8
  %11 = add i64 %10, 1
  store i64 %11, ptr %9, align 8
  br label %end

then:                                             ; preds = %entry
  call void @note() #0
  %12 = getelementptr i64, ptr %7, i64 0
  %13 = load i64, ptr %12, align 8
  %14 = add i64 %13, 1
  store i64 %14, ptr %12, align 8
  br label %end

end:                                              ; preds = %8, %then
  ret i32 %x
}
