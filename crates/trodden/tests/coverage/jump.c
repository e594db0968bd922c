// A jump out of frames that never return, exit below main, a handler at exit.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

static jmp_buf back;

static int depth(int n) {
  if (n == 0)
    longjmp(back, 1);
  if (n > 5 || n == 2)
    puts("x");
  int r = depth(n - 1);
  return r + 1;
}

static void bye(void) { puts("bye"); }

int main(void) {
  atexit(bye);
  int k = 0;
  if (setjmp(back)) {
    k++;
    puts("back");
  } else
    depth(7);
  for (int i = 0; i < 10; i++) {
    if (i == 7)
      exit(k ? 0 : 2);
    k += i & 1;
  }
  return 1;
}
