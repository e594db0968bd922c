// Processes that become two in a loop, in a callee, and once more in the child; each ends by exit.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static int work(int n) {
  int s = 0;
  for (int i = 0; i < n; i++)
    if (i % 3)
      s++;
    else
      s += 2;
  return s;
}

__attribute__((noinline)) static pid_t spawn(int n) {
  if (n > 90)
    return -1;
  pid_t p = fork();
  if (p < 0) {
    perror("fork");
    exit(9);
  }
  return p;
}

static int serve(int n) {
  int parents = 0;
  for (int i = 0; i < n; i++) {
    if (i == 2)
      continue;
    pid_t p = spawn(i);
    if (p == 0) {
      work(20 + i);
      if (i == 1 && fork() == 0)
        exit(work(3) & 1);
      else if (i == 1)
        wait(0);
      exit(0);
    } else if (p > 0)
      parents++;
    else
      return -1;
  }
  return parents;
}

int main(int n, char **v) {
  int s = work(10);
  s += serve(n > 1 ? 99 : 4);
  while (wait(0) > 0)
    s++;
  printf("%d\n", s);
  return 0;
}
