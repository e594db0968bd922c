//! Compiling the same source twice must give the same object, whatever is observed.
//!
//! Two compilations differ in memory addresses and in the seeds of hash tables, and neither may influence the result. The unit contains
//! constructs that create many values and blocks: nested loops, a switch, indirect branches, exceptions, calls to functions that return
//! twice.

use crate::place;
use crate::place::Place;

const SUBJECT_PROGRAM: &str = r#"
#include <csetjmp>
#include <stdexcept>
volatile int sink;
std::jmp_buf place;
__attribute__((noinline)) int leaf(int n) { if (n % 7 == 3) throw std::runtime_error("seven"); return n & 1 ? n * 3 + 1 : n / 2; }
__attribute__((noinline)) int loops(const int *v, int n) {
    int s = 0, t = 1, u = 2;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) { if (v[j] > s) s += v[j]; else t ^= j; if (j & 4) u -= s; }
        for (int j = i; j > 0; j--) { t += v[j] * u; if (t & 8) break; if (u & 2) s ^= t; }
        switch (v[i] & 7) { case 0: s++; break; case 1: t--; break; case 2: u += s; break; case 5: s = t; break; case 6: t = u; break;
            default: u ^= 3; }
        while (u > 100) { u -= t & 15; if (u & 1) u--; s += u; if (!(t & 15)) break; }
    }
    return s + t + u;
}
__attribute__((noinline)) int dispatch(const unsigned char *code) {
    static void *const targets[] = { &&add, &&subtract, &&twice, &&skip, &&end };
    int a = 1, b = 2;
next: goto *targets[*code++ % 5];
add: a += b; if (a > 1000) b = 1; goto *targets[*code++ % 5];
subtract: b -= a; if (b < 0) b = -b; goto next;
twice: a *= 2; goto *targets[*code++ % 5];
skip: code += *code % 2; goto next;
end: return a + b;
}
__attribute__((noinline)) int guarded(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) { try { sum += leaf(i); } catch (const std::exception &) { sum -= 5; } }
    if (setjmp(place)) return sum;
    return n > 5 ? guarded(n - 1) + sum : sum;
}
int main(int c, char **v) {
    int data[16]; for (int i = 0; i < 16; i++) data[i] = i * 37 % 11 + c;
    const unsigned char code[] = { 0, 2, 1, 3, 0, 0, 1, 2, 4, 4 };
    sink = loops(data, 16) + dispatch(code) + guarded(9);
    return 0;
}
"#;

#[test]
fn compiling_twice_gives_identical_objects() {
    let place = Place::with(&[("subject.cpp", SUBJECT_PROGRAM)]);
    place.cxx("-O2 subject.cpp -o full");
    place.trodden("record --no-store -o run.trodden -- ./full");
    place.trodden("export known run.trodden -o run.known");
    let known = format!("known={}", place.path("run.known").display());
    // `observe=addresses` is left out, because LLVM writes the probes of inlined functions in an order that varies.
    let cases = [
        "",
        "when=bursts",
        "observe=stream",
        "observe=coverage",
        "observe=edge-profile",
        "threads=atomic",
        "table-slots=64",
        "early=off chords=off",
        known.as_str(),
    ];
    for settings in cases {
        let object = |name: &str| {
            let mut command = place.command(place::trodden());
            command.args(["c++", "-O2", "-c", "subject.cpp", "-o", name]).env("TRODDEN_INSTRUMENT", settings);
            place::must(&mut command);
            std::fs::read(place.path(name)).unwrap()
        };
        let first = object("first.o");
        assert!(object("again.o") == first, "`{settings}`: the object differs, compiled again");
    }
}
