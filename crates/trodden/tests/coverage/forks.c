// Children that exit in several ways.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int work(int n) {
  int s = 0;
  for (int i = 0; i < n; i++)
    if (i % 3)
      s++;
    else
      s += 2;
  return s;
}

int main(void) {
  int s = work(10);
  for (int i = 0; i < 4; i++) {
    pid_t p = fork();
    if (p == 0) {
      s += work(20 + i);
      if (i == 2)
        _exit(1);
      exit(s & 1);
    }
  }
  while (wait(0) > 0)
    s++;
  printf("%d\n", s);
  return 0;
}
