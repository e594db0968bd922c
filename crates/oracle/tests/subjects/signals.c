// `longjmp` out of a signal handler; cleanups declared by attribute.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static sigjmp_buf b;
static volatile int n;
static void on(int s) {
    n++;
    if (n % 2)
        siglongjmp(b, n);
}
__attribute__((noinline)) static int work(int i) {
    if (i % 3 == 0)
        raise(SIGUSR1);
    return i * 2 + (n & 1);
}
static void clean(int *p) { n += *p; }
__attribute__((noinline)) static int scoped(int i) {
    int x __attribute__((cleanup(clean))) = i;
    if (i & 4)
        return work(i);
    x++;
    return work(i + 1) ? 3 : 4;
}
int main(void) {
    signal(SIGUSR1, on);
    volatile int s = 0;
    for (volatile int i = 0; i < 50; i++) {
        if (sigsetjmp(b, 1) == 0)
            s += scoped(i);
        else
            s--;
    }
    printf("%d\n", s);
    return 0;
}
