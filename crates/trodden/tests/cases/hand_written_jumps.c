/* A switch by a computed offset, a jump into an instruction, a return used as a jump, and a retpoline. */
__asm__(".text\n"
        "computed: lea 1f(%rip),%rax\n and $3,%edi\n lea (%rax,%rdi,8),%rax\n jmp *%rax\n"
        ".balign 8\n1: mov $1,%eax\n ret\n.balign 8\n mov $2,%eax\n ret\n.balign 8\n mov $3,%eax\n ret\n.balign 8\n mov $4,%eax\n ret\n"
        "overlapped: test %edi,%edi\n jne 2f+1\n2: .byte 0xb8,0x90,0x90,0x90,0x90\n lea 3(%rdi),%eax\n ret\n"
        "pushed: lea 3f(%rip),%rax\n test $1,%edi\n je 4f\n lea 5f(%rip),%rax\n4: push %rax\n ret\n"
        "3: mov $10,%eax\n ret\n5: mov $20,%eax\n ret\n"
        "thunk: lea 6f(%rip),%rax\n call 7f\n8: pause\n lfence\n jmp 8b\n7: mov %rax,(%rsp)\n ret\n6: mov %edi,%eax\n ret\n");
int computed(int), overlapped(int), pushed(int), thunk(int);
int main(void) {
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += computed(i) + overlapped(i & 1) + pushed(i) + thunk(i);
    return sum == 20 + 28 + 120 + 28 ? 0 : 1;
}
