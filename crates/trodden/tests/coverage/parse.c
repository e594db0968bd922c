// A parser of numbers, whose tests execute every line and not every path.
#include <stdio.h>

static int parse(const char *s) {
  int sign = 1, value = 0;
  if (*s == '-') {
    sign = -1;
    s++;
  }
  for (; *s; s++) {
    if (*s < '0' || *s > '9')
      return -1;
    value = value * 10 + (*s - '0');
  }
  if (value > 100)
    value = 100;
  return sign * value;
}

int main(int argc, char **argv) {
  int sum = 0;
  for (int i = 1; i < argc; i++)
    sum += parse(argv[i]);
  printf("%d\n", sum);
  return 0;
}
