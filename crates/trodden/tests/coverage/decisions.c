// Decisions of several conditions, one of eleven, and one of twenty, whose test vectors are more than LLVM's text holds.
#include <stdio.h>

static int some(int a, int b, int c, int d) {
  if ((a > 3 && b < 10) || (c && !d) || a + b == 7)
    return 1;
  return 0;
}

static int both(int a, int b) { return a && b; }

static int many(unsigned m) {
  return ((m & 1) && (m & 2)) || ((m & 4) && (m & 8) && (m & 16)) || ((m & 32) && ((m & 64) || (m & 128))) ||
         ((m & 256) && (m & 512) && (m & 1024));
}

static int most(unsigned m) {
#define PAIR(i) ((m >> (2 * i) & 1) && (m >> (2 * i + 1) & 1))
  return PAIR(0) || PAIR(1) || PAIR(2) || PAIR(3) || PAIR(4) || PAIR(5) || PAIR(6) || PAIR(7) || PAIR(8) || PAIR(9);
}

int main(void) {
  int s = 0;
  for (int i = 0; i < 12; i++) {
    s += some(i, 12 - i, i % 3 == 0, i % 2);
    if ((both(i, i & 1) && s > 2) || i == 11)
      s++;
    while (s % 3 && i > 4)
      s++;
    s += many(i * 97);
    s += most(i * 40503u);
  }
  printf("%d\n", s);
  return 0;
}
