# A function with two entries: `second` is the middle of `first`. Both reach the return, so it is a function of its own when they are split.

        .text
        .globl  main
        .type   main, @function
main:
        .cfi_startproc
        pushq   %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        mov     $12, %ebx
.Lagain:
        mov     %ebx, %edi
        call    first
        mov     %ebx, %edi
        call    second
        call    by_tags
        sub     $4, %ebx
        jns     .Lagain
        xor     %eax, %eax
        popq    %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size   main, .-main

        .globl  first
        .type   first, @function
first:
        .cfi_startproc
        test    %edi, %edi
        je      .Lreturn
        mov     $1, %eax
second:
        add     $2, %eax
        cmp     $9, %edi
        ja      .Llarge
        inc     %eax
.Lreturn:
        ret
.Llarge:
        dec     %eax
        jmp     .Lreturn
        .cfi_endproc
        .size   first, .-first

# A table as GHC makes it: three tag bits select the target, there is no target 0, and only four values occur. The code has no unwind
# information, and another entry lies between two of its targets.
        .type   by_tag, @function
by_tag:
        mov     %edi, %ecx
        and     $7, %ecx
        jmp     *tags(, %rcx, 8)
.Lone:
        inc     %eax
        ret
        .type   between, @function
between:
        add     $3, %eax
        jmp     .Lone
.Lthree:
        add     $9, %eax
.Lfour:
        dec     %eax
        ret

        .globl  by_tags
        .type   by_tags, @function
by_tags:
        .cfi_startproc
        mov     $1, %edi
        call    by_tag
        mov     $3, %edi
        call    by_tag
        mov     $4, %edi
        call    by_tag
        call    between
        ret
        .cfi_endproc
        .size   by_tags, .-by_tags

        .section .rodata
        .balign 8
tags:
        .quad   0, .Lone, .Lthree, .Lthree, .Lfour
# Other data ends the table.
next:
        .quad   .Lone
        .text
        .globl  reads_next
        .type   reads_next, @function
reads_next:
        .cfi_startproc
        mov     next, %rax
        ret
        .cfi_endproc
        .size   reads_next, .-reads_next
        .section .note.GNU-stack, "", @progbits
