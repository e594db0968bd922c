# Code that recovery reaches late. Among it are two indirect jumps with three targets each.

        .text
        .globl  main
        .type   main, @function
main:
        .cfi_startproc
        xor     %edi, %edi
        call    states
        mov     $1, %edi
        call    cold_first
        xor     %eax, %eax
        ret
        .cfi_endproc
        .size   main, .-main

# A state machine: the first state is bounded, and the code of each state, which only the jump reaches, chooses the next.
        .globl  states
        .type   states, @function
states:
        .cfi_startproc
        mov     %edi, %eax
        and     $1, %eax
        lea     state_table(%rip), %rcx
.Ldispatch:
        movslq  (%rcx, %rax, 4), %rax
        add     %rcx, %rax
        jmp     *%rax
.Lstart:
        mov     $1, %eax
        jmp     .Ldispatch
.Lmiddle:
        movslq  next_state(%rip), %rax
        jmp     .Ldispatch
.Lend:
        ret
        .cfi_endproc
        .size   states, .-states

# A switch whose first target is the beginning of cold code. Nothing shows that the cold code is part of the function but a jump back, after
# a call that never returns.
        .globl  cold_first
        .type   cold_first, @function
cold_first:
        .cfi_startproc
        cmp     $2, %edi
        ja      cold_part
.Lswitch:
        mov     %edi, %eax
        jmp     *cold_table(, %rax, 8)
.Lone:
        mov     $1, %eax
        ret
.Ltwo:
        mov     $2, %eax
        ret
        .cfi_endproc
        .size   cold_first, .-cold_first

# Thirty calls that never return. Nothing leads to the code after each of them.
        .globl  chain
        .type   chain, @function
chain:
        .cfi_startproc
        .rept   30
        call    abort
        mov     $1, %eax
        .endr
        ret
        .cfi_endproc
        .size   chain, .-chain

# The end of this function is reached from `bare` only, which has no unwind information, and whose address is only in data.
        .globl  shared_end
        .type   shared_end, @function
shared_end:
        .cfi_startproc
        jmp     *%rdi
        .byte   0x06    # not an instruction
.Lshared:
        ret
        .cfi_endproc
        .size   shared_end, .-shared_end
        .balign 16
bare:
        mov     $4, %eax
        jmp     .Lshared
        .balign 16

        .section .text.unlikely, "ax", @progbits
cold_part:
        .cfi_startproc
        call    abort
        xor     %edi, %edi
        jmp     .Lswitch
        .cfi_endproc

        .section .rodata
        .balign 8
cold_table:
        .quad   cold_part
        .quad   .Lone
        .quad   .Ltwo
        .balign 4
state_table:
        .long   .Lstart - state_table
        .long   .Lmiddle - state_table
        .long   .Lend - state_table
        .long   0x7fffffff

        .data
        .balign 8
        .quad   bare
next_state:
        .long   2
        .section .note.GNU-stack, "", @progbits
