// Killed by a signal that no handler sees, below frames that do not return.
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static int deep(int n) {
  if (n == 0)
    kill(getpid(), SIGKILL);
  if (n & 1)
    return deep(n - 1) + 1;
  return deep(n - 1) * 2;
}

static int work(int n) {
  int s = 0;
  for (int i = 0; i < n; i++)
    if (i % 3 && n > 4)
      s++;
    else
      s += 2;
  return s;
}

int main(void) {
  int s = work(10);
  s += work(3);
  s += deep(9);
  printf("%d\n", s);
  return 0;
}
