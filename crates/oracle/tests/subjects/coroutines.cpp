// Coroutines that run to their end, or are left and destroyed before it.
#include <coroutine>
#include <cstdio>
#include <exception>
struct Gen {
    struct promise_type {
        int v;
        Gen get_return_object() { return Gen{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(int x) {
            v = x;
            return {};
        }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<promise_type> h;
    ~Gen() {
        if (h)
            h.destroy();
    }
    Gen(std::coroutine_handle<promise_type> x) : h(x) {}
    Gen(Gen &&o) : h(o.h) { o.h = {}; }
};
Gen count(int n) {
    for (int i = 0; i < n; i++) {
        if (i % 3 == 1)
            continue;
        co_yield i;
        if (i > 20)
            co_return;
    }
}
int main() {
    int s = 0;
    for (int k = 0; k < 30; k += 7) {
        Gen g = count(k);
        while (!g.h.done()) {
            g.h.resume();
            s += g.h.promise().v;
            if (s % 11 == 3)
                break;
        }
    }
    printf("%d\n", s);
}
