//! `trodden record --copies K --divide iterations`: each copy records the path sequences of some functions, or counts some of the paths
//! across several loop iterations. The expected counts come from the path stream of a single program.

use crate::place::{Place, must, trodden, with_choices};
use serde_json::Value;
use std::collections::BTreeMap;
use trodden_profile::Profile;

/// A program with loops that have alternating iterations, in mutually recursive functions, and with `longjmp` over frames of other
/// functions.
const ALTERNATING_PROGRAM: &str = r#"
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

/// A program with a loop that calls functions which catch exceptions. The exceptions pass frames with and without landing pads.
const EXCEPTIONS_PROGRAM: &str = r#"
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

/// A program with nested loops whose trip counts are arguments and whose paths change after a while, with `setjmp` in a loop to which the
/// loop itself jumps, and with a loop that ends at a call that does not return.
const NESTED_PROGRAM: &str = r#"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
static jmp_buf again;
__attribute__((noinline)) static int nest(int n) {
    int s = 0;
    for (int i = 0; i < n; i++) {
        if (i % 3 == 0) s += i;
        for (int j = 0; j < i % 5; j++) {
            switch ((i + j) % 4) { case 0: s ^= j; break; case 1: s += 3; if (s & 8) continue; break; case 2: s--; }
            if (i > 40 && j == 2) s *= 3;
        }
        if (i % 7 == 6) s -= 2; else if (s & 1) s ^= i;
    }
    return s;
}
__attribute__((noinline)) static int retry(volatile int n) {
    volatile int tries = 0, s = 0;
    for (volatile int i = 0; i < n; i++) {
        if (setjmp(again) > 2) { s += 100; continue; }
        for (volatile int j = 0; j < 3; j++) { if ((s + j) & 1) s++; }
        if (++tries % 4 == 1) longjmp(again, 1 + tries % 5);
        s += i & 1 ? 1 : 2;
    }
    return s;
}
__attribute__((noinline)) static void search(int n) {
    for (int i = 0; ; i++) { if (i * i % 31 == 5) printf("%d\n", i); if (i > n) exit(0); }
}
int main(int argc, char **argv) { int n = atoi(argv[1]); printf("%d %d\n", nest(n), retry(n)); search(n); }
"#;

/// Returns the counts of paths across loop iterations. Keys consist of the function's name and the path's events.
fn count_iterations(place: &Place, wanted: &str, k: &str) -> BTreeMap<String, u64> {
    count_iterations_and_others(place, wanted, k).0
}

/// Returns the counts of paths across loop iterations, and the number of executions that the program counted together as other paths.
fn count_iterations_and_others(place: &Place, wanted: &str, k: &str) -> (BTreeMap<String, u64>, Option<u64>) {
    let output = place.laboratory(&format!("patterns iterations {wanted} --length {k} --json"));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = answer["paths"].as_array().unwrap().iter();
    let rows = rows.map(|row| (format!("{} {}", row["function"], row["iterations"]), row["count"].as_u64().unwrap()));
    (rows.collect(), answer["others"].as_u64())
}

fn count_differences(place: &Place, profile: &str) -> u64 {
    Profile::read(&place.path(profile)).unwrap().run.diverged
}

#[test]
fn copies_share_the_counting_of_paths_over_iterations() {
    for (file, source) in [("turns.c", ALTERNATING_PROGRAM), ("prog.cc", EXCEPTIONS_PROGRAM), ("nested.c", NESTED_PROGRAM)] {
        let place = Place::with(&[(file, source)]);
        let compile = |line: &str| if file.ends_with(".cc") { place.cxx(line) } else { place.cc(line) };
        compile(&format!("--trodden=stream -O1 {file} -o streaming"));
        compile(&format!("-O1 {file} -o prog"));
        let run = |program: &str, options: &str| {
            let arguments = format!("record --no-store {options} -- ./{program} 60");
            must(with_choices(&mut place.command(trodden()), arguments.split_whitespace())).stdout
        };
        let plain = run("streaming", "-o stream.trodden --whole-program");
        let executions = count_iterations(&place, "stream.trodden.streams", "1");
        for k in ["2", "3"] {
            let expected = count_iterations(&place, "stream.trodden.streams", k);
            assert!(expected.len() > 8, "{expected:?}");
            for copies in ["1", "2", "3"] {
                let options = format!("-o counted.trodden --copies {copies} --divide iterations --iterations {k}:stream.trodden.streams");
                assert_eq!(run("prog", &options), plain);
                let counted = count_iterations_and_others(&place, "counted.trodden", k);
                assert_eq!(counted, (expected.clone(), Some(0)), "{file}, {k} iterations, {copies} copies");
                let single = count_iterations(&place, "counted.trodden", "1");
                assert!(single.len() > 4 && single.iter().all(|(path, count)| executions.get(path) == Some(count)), "{single:?}");
                assert_eq!(count_differences(&place, "counted.trodden"), 0);
                let profile = Profile::read(&place.path("counted.trodden")).unwrap();
                assert!((1..=copies.parse().unwrap()).contains(&profile.images.len()));
            }
        }
        let said = place.read_output("report counted.trodden");
        assert!(said.contains("paths over iterations were counted instead of paths"), "{said}");
    }
}

/// The counted set comes from a shorter run. Paths across iterations that only the longer run takes must be counted together.
#[test]
fn other_paths_over_iterations_are_counted_together() {
    let place = Place::with(&[("nested.c", NESTED_PROGRAM)]);
    place.cc("--trodden=stream -O1 nested.c -o streaming");
    place.cc("-O1 nested.c -o prog");
    let run = |program: &str, options: &str| {
        let arguments = format!("record --no-store {options} -- ./{program}");
        must(with_choices(&mut place.command(trodden()), arguments.split_whitespace()))
    };
    run("streaming 9", "-o short.trodden --whole-program");
    run("streaming 80", "-o long.trodden --whole-program");
    let with_loop = |(name, _): &(String, u64)| !name.starts_with("\"main ");
    let all: u64 = count_iterations(&place, "long.trodden.streams", "1").into_iter().filter(with_loop).map(|(_, count)| count).sum();
    for k in ["2", "3"] {
        let known = count_iterations(&place, "short.trodden.streams", k);
        let mut expected = count_iterations(&place, "long.trodden.streams", k);
        let of_long: u64 = expected.values().sum();
        expected.retain(|path, _| known.contains_key(path));
        let unknown = of_long - expected.values().sum::<u64>();
        assert!(unknown > 20 && expected.len() > 8, "{unknown} executions, {} paths", expected.len());
        for copies in ["1", "3"] {
            let options = format!("-o counted.trodden --copies {copies} --divide iterations --iterations {k}:short.trodden.streams");
            run("prog 80", &options);
            let (mut counted, others) = count_iterations_and_others(&place, "counted.trodden", k);
            // Near the start of a call, a path has fewer than `k` iterations. Such paths may be counted among the others, so the number of
            // others has only bounds.
            let others = others.unwrap();
            assert!(others >= unknown && others < unknown + all - of_long, "{others}, {unknown}");
            counted.retain(|_, count| *count > 0);
            assert_eq!(counted, expected, "{k} iterations, {copies} copies");
            let said = place.read_output("report counted.trodden");
            assert!(said.contains(&format!("{others} executions of paths over iterations that were unknown")), "{said}");
        }
    }
}

#[test]
fn copies_share_path_sequences_by_function() {
    for (file, source) in [("turns.c", ALTERNATING_PROGRAM), ("prog.cc", EXCEPTIONS_PROGRAM)] {
        let place = Place::with(&[(file, source)]);
        let compile = |line: &str| if file.ends_with(".cc") { place.cxx(line) } else { place.cc(line) };
        compile(&format!("--trodden=stream -O1 {file} -o streaming"));
        compile(&format!("-O1 {file} -o prog"));
        let run = |program: &str, options: &str| {
            let arguments = format!("record --no-store {options} -- ./{program}");
            must(place.command(trodden()).args(arguments.split_whitespace())).stdout
        };
        let plain = run("streaming", "-o stream.trodden --whole-program");
        let counts = place.count_paths("stream.trodden");
        for (copies, program) in [("3", "prog"), ("2", "streaming")] {
            assert_eq!(run(program, &format!("-o shared.trodden --copies {copies} --divide iterations")), plain);
            for k in ["1", "2", "4"] {
                let expected = count_iterations(&place, "stream.trodden.streams", k);
                assert!(expected.len() > 8, "{expected:?}");
                assert_eq!(count_iterations(&place, "shared.trodden.streams", k), expected, "{file}, {k} iterations");
            }
            assert_eq!(place.count_paths("shared.trodden"), counts, "{file}: the counts of {copies} copies");
            let profile = Profile::read(&place.path("shared.trodden")).unwrap();
            assert_eq!(profile.images.len().to_string(), copies);
            let refused = place.command(trodden()).args(["segments", "shared.trodden.streams", "--thread", "0"]).output().unwrap();
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(
                !refused.status.success() && said.contains("copies of the program, each of which recorded only some functions"),
                "{said}"
            );
        }
    }
}

impl Place {
    fn read_output(&self, arguments: &str) -> String {
        String::from_utf8(self.trodden(arguments).stdout).unwrap()
    }

    /// Returns the counts of all executed paths in a profile, by function and path number.
    fn count_paths(&self, profile: &str) -> BTreeMap<(String, u64), u64> {
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
