#include <signal.h>
#include <stdio.h>
static volatile int traps;
static void count(int s) { traps++; }
__attribute__((noinline)) static int work(int n) { int r = 0; for (int i = 0; i < n; i++) r += i & 1 ? n : 3; return r; }
__attribute__((noinline)) static int step(int n) {
    __asm__ volatile("sub $128,%%rsp; pushf; orl $0x100,(%%rsp); popf; add $128,%%rsp" ::: "cc", "memory");
    int r = work(n);
    __asm__ volatile("sub $128,%%rsp; pushf; andl $~0x100,(%%rsp); popf; add $128,%%rsp" ::: "cc", "memory");
    return r;
}
int main(void) {
    signal(SIGTRAP, count);
    int r = 0;
    for (int i = 0; i < 5; i++) r += step(i);
    printf("%d %d\n", traps, r);
    return 0;
}
