// Loops, a switch, conditions, and a function that is never called.
#include <stdio.h>
#include <stdlib.h>

static int weigh(int n) {
  if (n > 3 && n < 10)
    return 1;
  return n % 2 ? 3 : 2;
}

static int unused(int x) { return x + 1; }

static int grade(int n) {
  switch (n % 7) {
  case 0:
    return 5;
  case 1:
  case 2:
    return 7;
  case 3:
    if (n > 12)
      return 9;
  default:
    return 1;
  }
}

int main(int argc, char **argv) {
  int s = 0;
  for (int i = 0; i < 20; i++) {
    s += weigh(i) + grade(i);
    if (i == 15 && argc > 5)
      exit(3);
    int j = i;
    while (j-- > 0) {
      if (j == 3)
        continue;
      if (j == 1)
        break;
      s ^= j || i > 3;
    }
    do {
      s++;
    } while (s & 3);
  }
  printf("%d %s\n", s, s > 3 ? "x" : "y");
  return 0;
}
