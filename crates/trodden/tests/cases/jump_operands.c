/* Indirect jumps with every kind of operand, while flags, the red zone and all registers are in use; targets in the middle of a block; and
 * targets that differ in the upper bits of their addresses only. */
#include <stdio.h>
__asm__(".text\n"
        /* Each jumps to the label whose number is in %rsi, and returns a sum of what it must not change. */
        ".macro jump name, operand:vararg\n"
        ".globl \\name\n\\name:\n"
        "  push %rbx\n push %rbp\n"
        "  mov %rdi,%rbx\n mov %rsi,%rbp\n"
        "  movq $0x11,-8(%rsp)\n movq $0x22,-16(%rsp)\n movq $0x33,-120(%rsp)\n movq $0x44,-128(%rsp)\n"
        "  mov (%rbx,%rbp,8),%rdx\n mov %rdx,%rcx\n mov %rdx,%rax\n mov %rdx,%r11\n mov %rdx,-24(%rsp)\n"
        "  mov %rbx,%r8\n mov %rbp,%r9\n"
        "  cmp $1,%rsi\n stc\n"
        "  jmp \\operand\n"
        ".endm\n"
        "jump by_rax, *%rax\n"
        "jump by_rcx, *%rcx\n"
        "jump by_rdx, *%rdx\n"
        "jump by_r11, *%r11\n"
        "jump by_table, *(%r8,%r9,8)\n"
        "jump by_stack, *-24(%rsp)\n"
        ".globl target0,target1\n"
        "target0: jnc 9f\n jz 9f\n mov $100,%r10\n jmp 8f\n"
        "target1: jnc 9f\n jnz 9f\n mov $200,%r10\n"
        "8: cmp %rax,%rcx\n jne 9f\n cmp %rax,%rdx\n jne 9f\n cmp %rax,%r11\n jne 9f\n"
        "  mov %r10,%rax\n add -8(%rsp),%rax\n add -16(%rsp),%rax\n add -120(%rsp),%rax\n add -128(%rsp),%rax\n"
        "  pop %rbp\n pop %rbx\n ret\n"
        "9: ud2\n"
        /* The second instruction is reached by its computed address as well. */
        ".globl within\nwithin: lea 1f-7(%rip),%rax\n lea 7(%rax,%rsi),%rax\n test %edi,%edi\n je 1f\n jmp *%rax\n"
        "1: xor %edi,%edi\n inc %edi\n lea (%rdi,%rdi),%eax\n ret\n"
        /* Three functions whose addresses have the same lower 16 bits. */
        ".balign 65536\n.globl far0,far1,far2\n"
        "far0: mov $1,%eax\n ret\n.balign 65536\nfar1: mov $2,%eax\n ret\n.balign 65536\nfar2: mov $3,%eax\n ret\n"
        ".globl leave\nleave: jmp *%rdi\n");
typedef long by(void *const *labels, long n);
by by_rax, by_rcx, by_rdx, by_r11, by_table, by_stack;
void target0(void), target1(void);
int within(int jumps, long at), far0(void), far1(void), far2(void), leave(int (*to)(void));
int main(int argc, char **argv) {
    void *const labels[] = {(void *)target0, (void *)target1};
    by *const all[] = {by_rax, by_rcx, by_rdx, by_r11, by_table, by_stack};
    int (*const far[])(void) = {far0, far1, far2};
    int sum = 0;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 6; i++)
            for (long n = 0; n < 2; n++) sum += all[i](labels, n);
        sum += within(0, 0) + within(3, 0);
#ifndef ONLY_BLOCKS
        sum += within(3, 2);
#endif
        for (int i = 0; i < 3; i++) sum += leave(far[i]);
        /* Outside of the program. */
        sum += leave((int (*)(void))getchar) == EOF ? 1 : 0;
    }
    printf("%d\n", sum);
    return 0;
}
