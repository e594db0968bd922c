// A function whose paths end with tail calls, one of which never returns.
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static int last(int n) {
    printf("%d\n", n);
    if (n == 7) exit(0);
    return n * 3;
}

__attribute__((noinline)) static int either(int n, int m) {
    if (n % 4 == 0) return m;
    if (n % 2 == 0) m += n;
    return last(m + n);
}

int main(void) {
    int sum = 0;
    for (int i = 0;; i++) sum += either(i, i == 7 ? 0 : sum % 5 + 20);
}
