#include <stdio.h>
#include <stdlib.h>
void switch_to(void **save, void *to);
__asm__(".text\n.globl switch_to\n.type switch_to,@function\nswitch_to:\n"
 "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
 "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
 "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.size switch_to,.-switch_to\n");
static void *main_sp, *fiber_sp;
static int value;
__attribute__((noinline)) static int work(int n) { return n * 3 + 1; }
__attribute__((noinline)) static void deeper(int n) { value += work(n); switch_to(&fiber_sp, main_sp); value ^= n; }
__attribute__((noinline)) static void fiber(void) { for (int i = 0;; i++) deeper(i); }
__attribute__((noinline)) static void resume(void) { switch_to(&main_sp, fiber_sp); }
int main(void) {
  void **stack = (void **)((char *)aligned_alloc(16, 65536) + 65536);
  *--stack = 0; *--stack = (void *)fiber; for (int i = 0; i < 6; i++) *--stack = 0;
  fiber_sp = stack;
  for (int i = 0; i < 200; i++) { resume(); value += work(i); }
  printf("%d\n", value);
  return 0;
}
