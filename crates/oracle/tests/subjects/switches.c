// Switches with ranges, wide values, shared and absent defaults; loops headed by a switch; an endless loop left by `exit`.
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) static unsigned f(unsigned x, unsigned long long y) {
    unsigned r = 0;
    switch (x) {
    case 0 ... 9:
        r = 1;
        break;
    case 100:
    case 200:
    case 300:
        r = 2;
    case 400:
        r += 3;
        break;
    case 0xffffffffu:
        r = 9;
        break;
    case 55:
        return 4;
    }
    switch (y) {
    case 1ull << 63:
        r ^= 1;
        break;
    case ~0ull:
        r ^= 2;
        break;
    case 7:
        r++;
    default:
        r += 2;
    }
L:
    switch (r % 7) {
    case 3:
        r += 5;
        if (r < 40)
            goto L;
        break;
    case 5:
        r -= 1;
    case 6:
        if (x & 1)
            abort();
    default:;
    }
    return r;
}
int main(void) {
    unsigned s = 0;
    for (unsigned i = 0; i < 500; i += 2)
        s += f(i, i % 5 ? i : ~0ull);
    s += f(~1u, 1ull << 63);
    printf("%u\n", s);
    int (*volatile p)(const char *) = puts;
    for (int i = 0; i < 3; i++)
        p("x");
    s = 0;
    do {
        if (s % 3) {
            s += 2;
            continue;
        }
        s++;
    } while (s < 50);
    for (;;) {
        if (s++ > 100) {
            static int k;
            if (k++)
                exit(7);
        }
    }
}
