//! `trodden record --copies K --divide iterations`: copies that share the path sequences of functions, compared with the iterations counted
//! from the stream of the complete program.

mod place;

use place::{Place, must, trodden};
use serde_json::Value;
use std::collections::BTreeMap;
use trodden_profile::Profile;

/// Loops with alternating iterations, within mutual recursion and across `longjmp` over other functions' frames.
const TURNS: &str = r#"
#include <setjmp.h>
#include <stdio.h>
static jmp_buf back;
static int odd(int n);
__attribute__((noinline)) static int leaf(int x) { return x % 3 ? x * 2 : x + 1; }
__attribute__((noinline)) static int even(int n) {
    int s = 0;
    for (int i = 0; i < n; i++) { if (i & 1) s += leaf(i); else if (i % 3) s ^= odd(n - i - 2); else s++; }
    return s;
}
__attribute__((noinline)) static int odd(int n) {
    int s = 1;
    for (int i = 0; i < n; i++) { if (i % 3 == 2) s += even(n - 3); else s ^= leaf(s); }
    return s;
}
__attribute__((noinline)) static void deep(int n) {
    for (int i = 0; i < n; i++) if (leaf(i) == 4) longjmp(back, n); else if (i == 1 && n < 5) deep(n + 1);
}
__attribute__((noinline)) static int caught(int n) { if (setjmp(back) == 0) deep(n); return leaf(n); }
__attribute__((noinline)) static int jumps(int n) {
    int s = 0;
    for (int i = 0; i < n; i++) { if (i & 1) s += caught(1 + i % 3); else s ^= leaf(i); }
    return s;
}
int main(void) { printf("%d %d\n", even(12), jumps(40)); return 0; }
"#;

/// A loop that calls functions which catch exceptions. The exceptions pass frames with and without landing pads.
const EXCEPTIONS: &str = r#"
#include <cstdio>
#include <stdexcept>
struct Guard { int *n; ~Guard() { ++*n; } };
__attribute__((noinline)) int check(int n) {
    int s = 0;
    for (int i = 0; i < n % 9; i++) { if (i == 7) throw std::runtime_error("seven"); if (i & 1) s += n; else s ^= i; }
    return s;
}
__attribute__((noinline)) int guarded(int n, int *g) { Guard guard{g}; return check(n) + check(n + 1); }
__attribute__((noinline)) int caught(int n, int *g) {
    try { return guarded(n, g); } catch (const std::exception &e) { return e.what()[0] & 1; }
}
__attribute__((noinline)) int outer(int n, int *g) {
    int sum = 0;
    for (int i = 0; i < n; i++) { if (i % 3) sum += caught(i, g); else sum -= check(i % 5); }
    return sum;
}
int main() { int g = 0; int s = outer(60, &g); std::printf("%d %d\n", s, g); }
"#;

/// Returns the paths across iterations and their counts, by function and events.
fn iterations(place: &Place, wanted: &str, k: &str) -> BTreeMap<String, u64> {
    let output = place.laboratory(&format!("patterns iterations {wanted} --length {k} --json"));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = answer["paths"].as_array().unwrap().iter();
    rows.map(|row| (format!("{} {}", row["function"], row["iterations"]), row["count"].as_u64().unwrap())).collect()
}

#[test]
fn copies_share_path_sequences_by_function() {
    for (file, source) in [("turns.c", TURNS), ("prog.cc", EXCEPTIONS)] {
        let place = Place::with(&[(file, source)]);
        let compile = |line: &str| if file.ends_with(".cc") { place.cxx(line) } else { place.cc(line) };
        compile(&format!("--trodden=stream -O1 {file} -o streaming"));
        compile(&format!("-O1 {file} -o prog"));
        let run = |program: &str, options: &str| {
            let arguments = format!("record --no-store {options} -- ./{program}");
            must(place.command(trodden()).args(arguments.split_whitespace())).stdout
        };
        let plain = run("streaming", "-o stream.trodden --whole-program");
        let counts = place.paths("stream.trodden");
        for (copies, program) in [("3", "prog"), ("2", "streaming")] {
            assert_eq!(run(program, &format!("-o shared.trodden --copies {copies} --divide iterations")), plain);
            for k in ["1", "2", "4"] {
                let expected = iterations(&place, "stream.trodden.streams", k);
                assert!(expected.len() > 8, "{expected:?}");
                assert_eq!(iterations(&place, "shared.trodden.streams", k), expected, "{file}, {k} iterations");
            }
            assert_eq!(place.paths("shared.trodden"), counts, "{file}: the counts of {copies} copies");
            let profile = Profile::read(&place.path("shared.trodden")).unwrap();
            assert_eq!(profile.images.len().to_string(), copies);
            let refused = place.command(trodden()).args(["segments", "shared.trodden.streams", "--thread", "0"]).output().unwrap();
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && said.contains("copies that each stream only some functions"), "{said}");
        }
    }
}

impl Place {
    /// Returns the executions of all executed paths of a profile, by function and number.
    fn paths(&self, profile: &str) -> BTreeMap<(String, u64), u64> {
        let profile = Profile::read(&self.path(profile)).unwrap();
        let mut paths = BTreeMap::new();
        for (_, unit, function) in profile.functions() {
            for (path, count) in unit.counts_of(function).filter(|(_, count)| *count > 0) {
                *paths.entry((function.name.clone(), path)).or_default() += count;
            }
        }
        paths
    }
}
