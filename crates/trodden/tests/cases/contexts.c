#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
static ucontext_t main_c, fiber_c;
static int value;
__attribute__((noinline)) static int work(int n) { return n * 3 + 1; }
__attribute__((noinline)) static void deeper(int n) { value += work(n); swapcontext(&fiber_c, &main_c); value ^= n; }
__attribute__((noinline)) static void fiber(void) { for (int i = 0;; i++) deeper(i); }
__attribute__((noinline)) static void resume(void) { swapcontext(&main_c, &fiber_c); }
int main(void) {
  getcontext(&fiber_c); fiber_c.uc_stack.ss_sp = malloc(65536); fiber_c.uc_stack.ss_size = 65536; fiber_c.uc_link = &main_c;
  makecontext(&fiber_c, fiber, 0);
  for (int i = 0; i < 200; i++) { resume(); value += work(i); }
  printf("%d\n", value);
  return 0;
}
