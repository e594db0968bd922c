// A handler for one type, which other exceptions bypass; a handler for everything; and an object that needs cleanup.
#include <cstdio>
#include <stdexcept>

struct Guard {
    int *n;
    ~Guard() { ++*n; }
};

static int left;

__attribute__((noinline)) int risky(int i) {
    if (i % 3 == 0) throw std::runtime_error("three");
    if (i % 3 == 1) throw i;
    return i * 2;
}

__attribute__((noinline)) int guarded(int i) {
    Guard guard{&left};
    return risky(i) + 1;
}

__attribute__((noinline)) int typed(int i) {
    try {
        return guarded(i);
    } catch (const std::exception &) {
        return -1;
    }
}

__attribute__((noinline)) int any(int i) {
    try {
        return typed(i);
    } catch (...) {
        return -2;
    }
}

int main() {
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += any(i);
    std::printf("%d %d\n", sum, left);
    return 0;
}
