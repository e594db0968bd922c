/* Jump tables of several forms, computed gotos, callbacks, setjmp, calls that never return, tail calls. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf out_of_steps;

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

__attribute__((noinline, noreturn)) static void give_up(int status) {
  fprintf(stderr, "status %d\n", status);
  longjmp(out_of_steps, status);
}

__attribute__((noinline)) static int dense(int x) {
  switch (x) {
  case 1: return 5;
  case 2: return x * 9;
  case 3: return puts("three");
  case 4: return x / 2;
  case 5: return x << 4;
  case 6: return printf("%d\n", x);
  case 7: return x ^ 77;
  default: return 0;
  }
}

__attribute__((noinline)) static int letters(const unsigned char *text) {
  int sum = 0;
  for (; *text; text++)
    switch (*text) {
    case 'a': sum += 1; break;
    case 'b': sum *= 3; break;
    case 'c': sum -= 4; break;
    case 'd': sum ^= 15; break;
    case 'e': sum = dense(sum & 7); break;
    case 'f': sum <<= 1; break;
    case 'z': give_up(sum | 1);
    default: sum += *text; break;
    }
  return sum;
}

__attribute__((noinline)) static int interpret(const unsigned char *code, int steps) {
  static void *const labels[] = {&&add, &&subtract, &&again, &&halt};
  int value = 1;
#define NEXT() do { if (steps-- == 0) give_up(7); goto *labels[*code++]; } while (0)
  NEXT();
add: value += *code++; NEXT();
subtract: value -= *code++; NEXT();
again: if (value < 40) code -= 3; NEXT();
halt: return value;
}

typedef int operation(int, int);
__attribute__((noinline)) static int sum(int a, int b) { return a + b; }
__attribute__((noinline)) static int product(int a, int b) { return a * b; }
__attribute__((noinline)) static int larger(int a, int b) { return a > b ? a : b; }
static operation *const operations[] = {sum, product, larger};
__attribute__((noinline)) static int apply(unsigned which, int a, int b) { return operations[which % 3](b, a); }

int main(int argc, char **argv) {
  int numbers[] = {5, 3, 9, 1, argc};
  qsort(numbers, 5, sizeof *numbers, ascending);
  for (int i = 0; i < 5; i++) printf("%d %f %d\n", numbers[i], sqrt(numbers[i]), apply(i, i, argc));
  const unsigned char code[] = {0, 7, 1, 2, 0, 3, 2, 3};
  printf("%d\n", interpret(code, 1000));
  volatile int total = 0;
  for (int i = 0; i < 9; i++) total += dense(i);
  if (setjmp(out_of_steps) == 0) total += letters((const unsigned char *)"abcdefxyz");
  else total += 100;
  if (setjmp(out_of_steps) == 0) total += interpret(code, 2);
  char *copy = malloc(64);
  memcpy(copy, argv[0], 4);
  printf("%d\n", total + (copy[0] != 0));
  free(copy);
  exit(dense(argc) & 1);
}
