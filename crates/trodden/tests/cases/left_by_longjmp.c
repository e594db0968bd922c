#include <setjmp.h>
#include <stdio.h>
static jmp_buf env;
static int value;
__attribute__((noinline)) static int work(int n) { return n * 3 + 1; }
__attribute__((noinline)) static void deeper(int n) { value += work(n); if (n & 1) longjmp(env, 1); value += 2; }
__attribute__((noinline)) static void out(int n) { value += work(n); longjmp(env, 1); }
__attribute__((noinline)) static void middle(int n) { if (n % 5 == 4) out(n); deeper(n); value ^= 1; deeper(n + 1); value++; }
int main(void) {
  for (volatile int i = 0; i < 100; i++) if (!setjmp(env)) middle(i);
  printf("%d\n", value);
  return 0;
}
