//! Tests that the runtime's entry function keeps its contract with the code generator: it changes only rax and r11, however the stack is
//! aligned.

use crate::laboratory::{Laboratory, object};

/// A program that fills registers with patterns, enters the runtime with the stack misaligned by `skew` bytes, and checks the registers
/// afterwards.
const CHECKS_REGISTERS: &str = r#"
    #include "subject.h"
    #include <stdio.h>
    #include <string.h>
    #include <stdlib.h>
    struct state { unsigned long general[14]; unsigned char vector[16][16]; unsigned mxcsr; unsigned short control; unsigned long flags; };
    __attribute__((visibility("hidden"))) struct state before, after;
    void probe(long skew);
    __asm__(
        ".globl probe\nprobe:\n push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov %rsp, saved(%rip)\n sub %rdi, %rsp\n"
        " ldmxcsr before+368(%rip)\n fldcw before+372(%rip)\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movups before+112+16*\\n(%rip), %xmm\\n\n.endr\n"
        " mov before(%rip), %rbx\n mov before+8(%rip), %rcx\n mov before+16(%rip), %rdx\n mov before+24(%rip), %rsi\n"
        " mov before+32(%rip), %rdi\n"
        " mov before+40(%rip), %rbp\n mov before+48(%rip), %r8\n mov before+56(%rip), %r9\n mov before+64(%rip), %r10\n"
        " mov before+72(%rip), %r12\n"
        " mov before+80(%rip), %r13\n mov before+88(%rip), %r14\n mov before+96(%rip), %r15\n"
        " std\n stc\n call __trodden_enter\n pushfq\n cld\n pop after+376(%rip)\n"
        " mov %rbx, after(%rip)\n mov %rcx, after+8(%rip)\n mov %rdx, after+16(%rip)\n mov %rsi, after+24(%rip)\n"
        " mov %rdi, after+32(%rip)\n"
        " mov %rbp, after+40(%rip)\n mov %r8, after+48(%rip)\n mov %r9, after+56(%rip)\n mov %r10, after+64(%rip)\n"
        " mov %r12, after+72(%rip)\n"
        " mov %r13, after+80(%rip)\n mov %r14, after+88(%rip)\n mov %r15, after+96(%rip)\n mov %rax, after+104(%rip)\n"
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movups %xmm\\n, after+112+16*\\n(%rip)\n.endr\n"
        " stmxcsr after+368(%rip)\n fnstcw after+372(%rip)\n"
        " mov saved(%rip), %rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n"
        ".local saved\n.comm saved,8,8\n");
    int main(void) {
        for (long skew = 0; skew < 16; skew++) {
            for (size_t i = 0; i < sizeof before.general / 8; i++) before.general[i] = 0x0123456789abcdefUL * (i + 3 + skew);
            for (int i = 0; i < 256; i++) before.vector[i / 16][i % 16] = (unsigned char)(i * 7 + skew);
            before.mxcsr = 0x7f80, before.control = 0x0f7f;
            __trodden_bias = 0;
            probe(skew);
            int flags = (after.flags & 0x401) == 0x401;
            if (memcmp(&before, &after, 13 * 8) || memcmp(before.vector, after.vector,
                256) || before.mxcsr != after.mxcsr || before.control != after.control || !flags)
                printf("changed with a stack off by %ld: flags %lx\n", skew, after.flags), exit(1);
            if (!__trodden_bias || (long)after.general[13] != __trodden_bias) printf("bias %ld, returned %ld\n", __trodden_bias,
                after.general[13]), exit(1);
        }
        return 0;
    }
"#;

#[test]
fn registers_survive_entering() {
    let lab = Laboratory::new("registers");
    let program = lab.program("program", CHECKS_REGISTERS, &["-Wl,-z,noexecstack"]);
    for pattern in ["", "out/%m.raw"] {
        let output = lab.command(&program, pattern).output().unwrap();
        assert!(output.status.success(), "{:?} {}", output.status, String::from_utf8_lossy(&output.stdout));
    }
}

/// A program that checks the upper halves of vector registers, on which code compiled for AVX relies, too.
const CHECKS_VECTOR_REGISTERS: &str = r#"
    #include "subject.h"
    #include <stdio.h>
    #include <string.h>
    unsigned char before[16][32], after[16][32];
    __attribute__((target("avx"))) int main(void) {
        if (!__builtin_cpu_supports("avx")) { puts("no AVX"); return 0; }
        for (int i = 0; i < 512; i++) before[i / 32][i % 32] = (unsigned char)(i * 11 + 5);
        __asm__ volatile(".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n vmovups 32*\\n(%0), %%ymm\\n\n.endr\n"
            "call __trodden_enter\n"
            ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n vmovups %%ymm\\n, 32*\\n(%1)\n.endr\n vzeroupper" : : "r"(before), "r"(after)
            : "rax", "r11", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                "xmm12", "xmm13", "xmm14", "xmm15");
        return memcmp(before, after, 512) != 0;
    }
"#;

#[test]
fn vector_registers_survive_entering() {
    let lab = Laboratory::new("vectors");
    let program = lab.program("program", CHECKS_VECTOR_REGISTERS, &["-mno-red-zone"]);
    lab.run(&program, "");
    lab.run(&program, "out/%m.raw");
}

/// A program that measures how much stack entering the runtime takes, because signal stacks and fibers are small.
const MEASURES_STACK: &str = r#"
    #include "subject.h"
    #include <stdio.h>
    #include <string.h>
    static unsigned char stack[16384] __attribute__((aligned(64)));
    int main(void) {
        memset(stack, 0xa5, sizeof stack);
        __asm__ volatile("mov %%rsp, %%r12\n mov %0, %%rsp\n call __trodden_enter\n"
        " mov %%r12, %%rsp" : : "r"(stack + sizeof stack) : "rax", "r11", "r12", "memory");
        int untouched = 0;
        while (stack[untouched] == 0xa5) untouched++;
        printf("%d", (int)sizeof stack - untouched);
        return 0;
    }
"#;

#[test]
fn entering_takes_little_stack() {
    let lab = Laboratory::new("depth");
    // Without the constructor, the first call does all of the initialisation.
    let init = ["-R", ".init_array.00001", "-R", ".rela.init_array.00001"];
    lab.compile("objcopy", &[&init[..], &[object().to_str().unwrap(), "lazy.o"]].concat());
    lab.source("program.c", MEASURES_STACK);
    lab.compile("gcc", &["-O1", "-mno-red-zone", "-fno-stack-protector", "-o", "program", "program.c", "lazy.o"]);
    let program = lab.path("program");
    for pattern in ["", "a%q", "out/sub/%h-%m.raw"] {
        let output = lab.command(&program, pattern).output().unwrap();
        let depth: u32 = String::from_utf8(output.stdout).unwrap().parse().unwrap();
        println!("{depth} bytes of stack with {pattern:?}");
        assert_eq!(lab.raw_files("out/sub").len(), usize::from(pattern.starts_with("out")));
        assert!(depth < 2560, "{depth} bytes of stack with {pattern:?}");
    }
}
