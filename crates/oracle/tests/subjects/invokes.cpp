// Results of calls that may throw, which stay live across loops, joins and other such calls. Fuel makes all loops terminate.
#include <cstdio>
#include <vector>
typedef unsigned long u64;
struct Trouble { u64 x; };
struct Guard { u64 &at; Guard(u64 &a) : at(a) { at += 3; } ~Guard() { at ^= 5; } };
__attribute__((noinline)) static u64 may_throw(u64 x) { if (x % 11 == 4) throw Trouble{x}; return x * 7 + 1; }
__attribute__((noinline)) static u64 use(u64 x) { static u64 all; all = all * 31 + x; if (all % 97 == 5) throw Trouble{all}; return all; }

// The result is used in the loop right after the call.
__attribute__((noinline)) static u64 loop_behind(u64 a, u64 n) {
    u64 sum = 0;
    if (a % 3 == 0) return n;
    try {
        u64 v = may_throw(a);
        for (u64 i = 0; i < n; i++) { if ((v ^ i) & 1) sum += v; else sum ^= use(v + i); }
    } catch (Trouble &t) { return t.x; }
    return sum;
}

// The result is merged with another value before a loop.
__attribute__((noinline)) static u64 met_in_front(u64 a, u64 n) {
    u64 v = 1, sum = 0;
    Guard guard(sum);
    try { v = a % 2 ? may_throw(a) : n; } catch (Trouble &) { sum++; }
    for (u64 i = 0; i < n; i++) { if (v & 1) v = v * 3 + 1; else v /= 2; sum += use(v); }
    return sum + v;
}

// Two results: the second is defined in a loop, and the first is used after it.
__attribute__((noinline)) static u64 two(u64 a, u64 n) {
    u64 first = 0, sum = 0;
    try {
        first = may_throw(a);
        u64 second = 0;
        for (u64 i = 0; i < n; i++) {
            Guard guard(sum);
            second = i % 3 ? may_throw(first + i) : second;
            if (second > first) continue;
            sum += second - first;
        }
        if (sum & 4) sum += may_throw(sum);
    } catch (Trouble &t) { sum ^= t.x + first; }
    return sum * 3 + first;
}

// An object that only the landing pad and the loop use.
__attribute__((noinline)) static u64 objects(u64 a, u64 n) {
    u64 sum = a;
    for (u64 i = 0; i < n; i++) {
        try {
            u64 *p = new u64(may_throw(sum + i));
            while (*p > 4) { *p /= 2; if (*p % 2) sum += use(*p); }
            sum ^= *p;
            delete p;
        } catch (Trouble &t) { if (t.x % 2) sum++; else sum -= 2; }
        if (sum % 5 == 0) sum = may_throw(sum);
    }
    return sum;
}

// Results that are carried around a loop through a switch.
__attribute__((noinline)) static u64 around(u64 a, u64 n) {
    u64 v = a, w = 1;
    for (u64 i = 0; i < n; i++) {
        switch ((v + i) % 4) {
        case 0: try { w = may_throw(v); } catch (Trouble &) { w = 2; } break;
        case 1: v += w; break;
        case 2: v = may_throw(w + i);
        default: w ^= v;
        }
    }
    return v * 5 + w;
}

// The buffer of a growing vector, which one loop fills and others read.
struct Pair { u64 a; u64 b; Pair(u64 x, u64 y) : a(x), b(y) {} Pair(const Pair &p) : a(p.a), b(p.b) {} };
__attribute__((noinline)) static u64 pushes(u64 a, u64 n) {
    std::vector<Pair> all;
    std::vector<u64> few;
    for (u64 i = 0; i < n; i++) {
        if ((a ^ i) % 3 == 0) continue;
        all.push_back(Pair(a + i, i));
        if (i % 2) few.push_back(i * a);
    }
    u64 sum = 0;
    for (const Pair &p : all) { if (p.a & 1) sum += p.a; else sum ^= p.b; }
    for (u64 x : few) sum = sum * 3 + x;
    return sum;
}

int main() {
    u64 all = 0;
    u64 (*const functions[])(u64, u64) = {loop_behind, met_in_front, two, objects, around, pushes};
    for (u64 round = 0; round < 200; round++)
        for (auto function : functions) {
            try { all = all * 31 + function(round * 7 + all % 13, round % 9); } catch (Trouble &t) { all ^= t.x; }
        }
    std::printf("%lu\n", all);
}
