//! The entry of executables without libc's start-up: thread-local storage and relative relocations, which neither
//! kernel nor libc sees to there, then the program's own `_start`.
//!
//! Instrumented code reads `__trodden_bias` by way of the FS base, which is 0 when the kernel starts a static program.
//! This is an object of its own (`trodden_start.o`, made by `build_object.rs`), for those links only that bring no
//! start files and name no entry.
//!
//! The block is laid out as the x86-64 psABI's variant II has it: variables below the FS base, a pointer to itself at
//! the base. How far down they reach is the link-time constant that every access uses, so no table has to be found. All
//! is zero, as `__trodden_bias` is in the beginning; initial values of the program's own thread-local variables are
//! left to the program, which would not have them without us either. Where the FS base is set (the dynamic loader was
//! here), nothing is done.
//!
//! The runtime's own pointers in a static PIE need the base address before `_start` runs. So relocations of type
//! R_X86_64_RELATIVE in the table DT_RELA are applied here; a program that relocates itself writes the same values
//! again. Packed ones (DT_RELR) are not: adding twice would be wrong.
//!
//! Invariants: `_start` finds the stack and all registers as they were, but rcx and r11, which are 0 as the kernel
//! leaves them; nothing here depends on a relocation.
#![no_std]

// `_start` is weak, so that a program that has none links as it does without us. The section `.trodden.start`, which is
// not loaded, says to the driver whether it was found.
core::arch::global_asm!(
    ".pushsection .text.__trodden_start, \"ax\", @progbits",
    ".weak _start",
    ".weak _DYNAMIC",
    ".hidden _DYNAMIC",
    ".weak __ehdr_start",
    ".hidden __ehdr_start",
    ".globl __trodden_start",
    ".hidden __trodden_start",
    ".hidden __trodden_bias",
    ".type __trodden_start, @function",
    ".balign 16",
    "__trodden_start:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    // Linkers that collect garbage keep the section.
    ".reloc ., R_X86_64_NONE, .trodden.start",
    "pushq %rax",
    "pushq %rdx",
    "pushq %rsi",
    "pushq %rdi",
    "pushq %r8",
    "pushq %r9",
    "pushq %r10",
    "pushq $0",
    // arch_prctl(ARCH_GET_FS, stack)
    "movl $158, %eax",
    "movl $0x1003, %edi",
    "movq %rsp, %rsi",
    "syscall",
    "testq %rax, %rax",
    "jnz 1f",
    "cmpq $0, (%rsp)",
    "jne 1f",
    // mmap of whole pages for the variables (one more, since those of units may lie below ours), and one for what is at
    // and above the base (compilers read a canary there).
    "movq $__trodden_bias@TPOFF, %rsi",
    "negq %rsi",
    "addq $8191, %rsi",
    "andq $-4096, %rsi",
    "movq %rsi, (%rsp)",
    "addq $4096, %rsi",
    "movl $9, %eax",
    "xorl %edi, %edi",
    "movl $3, %edx",
    "movl $0x22, %r10d",
    "movq $-1, %r8",
    "xorl %r9d, %r9d",
    "syscall",
    "cmpq $-4096, %rax",
    "ja 1f",
    // arch_prctl(ARCH_SET_FS, base)
    "addq (%rsp), %rax",
    "movq %rax, (%rax)",
    "movq %rax, %rsi",
    "movl $0x1002, %edi",
    "movl $158, %eax",
    "syscall",
    // A position-independent image (e_type is ET_DYN)? The dynamic section says where relocations are: DT_RELA, DT_RELASZ.
    // Distances of 64 bits: a static image has no such section (0), and may be far from that.
    "5:",
    "leaq 5b(%rip), %rax",
    "movabsq $_DYNAMIC - 5b, %rsi",
    "addq %rax, %rsi",
    "movabsq $__ehdr_start - 5b, %rdi",
    "addq %rax, %rdi",
    "testq %rsi, %rsi",
    "jz 1f",
    "cmpw $3, 16(%rdi)",
    "jne 1f",
    "xorl %edx, %edx",
    "xorl %ecx, %ecx",
    "2:",
    "movq (%rsi), %rax",
    "cmpq $7, %rax",
    "cmoveq 8(%rsi), %rdx",
    "cmpq $8, %rax",
    "cmoveq 8(%rsi), %rcx",
    "addq $16, %rsi",
    "testq %rax, %rax",
    "jnz 2b",
    "addq %rdi, %rdx",
    "3:",
    "subq $24, %rcx",
    "jb 1f",
    "cmpl $8, 8(%rdx)",
    "jne 4f",
    "movq (%rdx), %rax",
    "movq 16(%rdx), %r8",
    "addq %rdi, %r8",
    "movq %r8, (%rdi,%rax)",
    "4:",
    "addq $24, %rdx",
    "jmp 3b",
    "1:",
    "popq %r10",
    "popq %r10",
    "popq %r9",
    "popq %r8",
    "popq %rdi",
    "popq %rsi",
    "popq %rdx",
    "popq %rax",
    "xorl %ecx, %ecx",
    "xorl %r11d, %r11d",
    "jmp _start@PLT",
    ".cfi_endproc",
    ".size __trodden_start, . - __trodden_start",
    ".popsection",
    ".pushsection .trodden.start, \"\", @progbits",
    ".quad _start",
    ".popsection",
    options(att_syntax),
);
