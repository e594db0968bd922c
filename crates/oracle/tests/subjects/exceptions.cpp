// Exceptions thrown by destructors, while others are handled, and through functions that must not throw.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>
static int depth;
struct D {
    std::string s;
    D(int n) : s(n, 'x') { depth++; }
    ~D() noexcept(false) {
        depth--;
        if (s.size() == 13 && !std::uncaught_exceptions())
            throw std::runtime_error(s);
    }
};
int thrower(int n) noexcept(false) {
    D d(n);
    if (n % 4 == 1)
        throw std::out_of_range("a");
    std::vector<int> v(n + 1);
    return v.at(n % 6 == 5 ? n + 2 : n) + 1;
}
int safe(int n) noexcept {
    try {
        return thrower(n);
    } catch (const std::out_of_range &e) {
        return -1;
    } catch (const std::exception &e) {
        try {
            throw;
        } catch (std::runtime_error &) {
            return -2;
        }
    }
}
int nested(int n) {
    try {
        try {
            return thrower(n) + safe(n);
        } catch (const std::out_of_range &) {
            if (n % 2)
                throw std::string("s");
            return 5;
        }
    } catch (const std::string &s) {
        return (int)s.size();
    }
}
static void term() {
    std::printf("terminated %d\n", depth);
    std::fflush(stdout);
    std::_Exit(0);
}
int bad(int n) noexcept {
    if (n > 2)
        throw n;
    return n;
}
int main() {
    std::set_terminate(term);
    int s = 0;
    for (int i = 0; i < 40; i++) {
        try {
            s += nested(i);
        } catch (std::exception &) {
            s ^= 77;
        }
    }
    std::printf("%d\n", s);
    for (int i = 0; i < 5; i++)
        s += bad(i);
    return s;
}
