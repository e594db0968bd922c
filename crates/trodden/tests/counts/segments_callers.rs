//! Callers of segments across calls. Each segment must be counted for its real caller, even if a callee is not instrumented, is left before
//! its first instruction, or is called by a signal handler while the caller is being passed on.

use crate::place::{Place, must, trodden};
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the counts of segments of depth 1, by caller and callee.
fn count_callers(place: &Place, profile: &str) -> BTreeMap<(String, String), u64> {
    let answer = place.trodden(&format!("segments {profile} --json --top 0"));
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let mut sums = BTreeMap::new();
    for row in answer["segments"].as_array().unwrap() {
        let name = |at: usize| row["paths"][at]["function"].as_str().unwrap().to_owned();
        *sums.entry((name(0), name(1))).or_default() += row["count"].as_u64().unwrap();
    }
    sums
}

fn sum_calls(sums: &BTreeMap<(String, String), u64>, caller: &str, callee: &str) -> u64 {
    sums.get(&(caller.to_owned(), callee.to_owned())).copied().unwrap_or(0)
}

/// Records the segments of the first program. Returns the number of times that the second program executes each of them, by caller and
/// callee.
fn build_and_count(
    place: &Place,
    [first, second]: [&str; 2],
    growth: &str,
    [tests, field]: [&[&str]; 2],
) -> BTreeMap<(String, String), u64> {
    let record = |program: &str, file: &str, options: &[&str], arguments: &[&str]| {
        let mut command = place.command(trodden());
        command.arg("record").args(options).args(["--no-store", "-o", file, "--"]).arg(place.path(program)).args(arguments);
        must(&mut command);
    };
    record(first, "stream.trodden", &["--whole-program"], tests);
    place.trodden(&format!("instrument {second} -o counting --segments stream.trodden.streams --growth {growth}"));
    record("counting", "counted.trodden", &[], field);
    count_callers(place, "counted.trodden")
}

/// A function that calls other functions in all possible ways. In `called`, it counts how often it calls `leaf` itself.
const MAIN_SOURCE: &str = r##"
#include <stdio.h>
#include <stdlib.h>
int leaf(int x);
int plain(int n), tail(int n), pointed(int n), many(int a, int b, int c, int d, int e, int f, int g, int h);
int (*volatile pointer)(int) = pointed;
__attribute__((noinline)) int top(int n) {
    char room[n % 3 + 1];
    room[0] = 1;
    int s = leaf(n) + room[0];
    s += plain(n);
    s ^= pointer(n);
    s += many(n, 2, 3, 4, 5, 6, 7, 8);
    return s;
}
__attribute__((noinline)) int jumps(int n) { return tail(n); }
int main(void) {
    int s = 0;
    for (int i = 0; i < 100; i++) s += top(i) ^ jumps(i);
    printf("%d\n", s);
    return 0;
}
"##;

/// Intermediate functions. They call `leaf` 3 + 1 + 2 + 1 times, and no other function.
const INTERMEDIATE_SOURCE: &str = r"
int leaf(int x);
int plain(int n) { int s = 1; for (int i = 0; i < 3; i++) s += leaf(n + i) * 3; return s; }
int tail(int n) { return leaf(n * 3); }
int pointed(int n) { return leaf(n) - 3 * leaf(n + 1); }
int many(int a, int b, int c, int d, int e, int f, int g, int h) { return leaf(a + b + c + d + e + f) * 3 + g * h; }
";

const LEAF_SOURCE: &str = "__attribute__((noinline)) int leaf(int x) { __asm__ volatile(\"# leaf\" : \"+r\"(x)); return x + 1; }";

#[test]
fn changed_intermediate_functions_do_not_pass_on_their_caller() {
    let place = Place::with(&[("main.c", MAIN_SOURCE), ("between.c", INTERMEDIATE_SOURCE), ("leaf.c", LEAF_SOURCE)]);
    for level in ["-O1", "-O2", "-O0"] {
        place.write("between.c", INTERMEDIATE_SOURCE);
        place.cc(&format!("--trodden=stream {level} main.c between.c leaf.c -o first"));
        // With unchanged intermediate functions, all segments must have their real callers.
        let same = build_and_count(&place, ["first", "first"], "0", [&[], &[]]);
        let report = String::from_utf8(place.trodden("report stream.trodden --function leaf --top 0").stdout).unwrap();
        let (_, callers) = report.split_once("\nCallers from the run's stream").unwrap_or_else(|| panic!("{level}: {report}"));
        for part in ["leaf  800 calls: from plain 300 (37.5%), pointed 200 (25.0%), many 100 (12.5%), ", "100 (12.5%), 1 more"] {
            assert!(callers.contains(part), "{level}: {callers}");
        }
        for (caller, count) in [("top", 100), ("plain", 300), ("tail", 100), ("pointed", 200), ("many", 100)] {
            assert_eq!(sum_calls(&same, caller, "leaf"), count, "{level}: {caller}: {same:?}");
        }
        // Each call ends two segments: the caller's path up to this call, and its path from an earlier call.
        for callee in ["plain", "pointed", "many"] {
            assert_eq!(sum_calls(&same, "top", callee), 200, "{level}: {callee}: {same:?}");
        }
        place.write("between.c", &INTERMEDIATE_SOURCE.replace('3', "7").replace("i < 7", "i < 3"));
        place.cc(&format!("{level} main.c between.c leaf.c -o second"));
        for growth in ["0", "1000"] {
            let sums = build_and_count(&place, ["first", "second"], growth, [&[], &[]]);
            assert_eq!(sum_calls(&sums, "top", "leaf"), 100, "{level}: {sums:?}");
            let to_leaf: u64 = sums.iter().filter(|((_, callee), _)| callee == "leaf").map(|(_, count)| count).sum();
            assert_eq!(to_leaf, 100, "{level}: the others have no caller that counts: {sums:?}");
        }
    }
}

/// The intermediate functions are moved to a library that is not instrumented.
#[test]
fn uninstrumented_library_functions_do_not_pass_on_their_caller() {
    let place = Place::with(&[("main.c", MAIN_SOURCE), ("between.c", INTERMEDIATE_SOURCE), ("leaf.c", LEAF_SOURCE)]);
    place.cc("--trodden=stream -O2 main.c between.c leaf.c -o first");
    place.tool("gcc", "-O2 -fPIC -shared between.c -o libbetween.so");
    place.cc("-O2 -rdynamic main.c leaf.c ./libbetween.so -o second");
    let sums = build_and_count(&place, ["first", "second"], "0", [&[], &[]]);
    assert_eq!(sum_calls(&sums, "top", "leaf"), 100, "{sums:?}");
    let to_leaf: u64 = sums.iter().filter(|((_, callee), _)| callee == "leaf").map(|(_, count)| count).sum();
    assert_eq!(to_leaf, 100, "{sums:?}");
}

/// With an argument, the program is interrupted after each instruction of `window`, which reaches `leaf` by a call and `low` by a jump.
///
/// - `1`: the handler is `leaf` itself. `2`: it calls `leaf` through `inner`. `3`: it jumps to `back`, once for each instruction.
/// - The program prints how often the handler and `window` called `leaf`.
const STEPS_PROGRAM: &str = r##"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
int leaf(int x);
int low(int x);
static sigjmp_buf back;
static volatile int handled, steps, limit = 1, outside;
volatile int of_window, of_others;
__attribute__((noinline)) static void step(int on) {
    if (on) __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    else __asm__ volatile("pushfq; andq $-257, (%%rsp); popfq" ::: "memory", "cc");
}
__attribute__((noinline)) static int calls(int x) { return leaf(x) + 1; }
__attribute__((noinline)) static int jumps(int x) { __asm__ volatile("# jumps" : "+r"(x)); return low(x); }
__attribute__((noinline)) static int window(int x) { return calls(x) ^ jumps(x + 1); }
__attribute__((noinline)) static int inner(int x) { return leaf(x) * 2; }
static void is_leaf(int n) { leaf(-n); handled++; }
static void calls_inner(int n) { inner(-n); handled++; }
static void goes_back(int n) { (void)n; if (++steps == limit) siglongjmp(back, 1); }
/// First calls `leaf` on a path of the recorded run, then, in the same frame, on a path that the recorded run did not take.
__attribute__((noinline)) static int returns_here(int x, int on) {
    int y = x;
    steps = 0;
    if (sigsetjmp(back, 1)) {
        step(0);
        outside++;
        __asm__ volatile("# again" : "+r"(y));
        return leaf(-1000);
    }
    step(on);
    y += leaf(x);
    step(0);
    return y;
}
int main(int argc, char **argv) {
    int s = 0, mode = argc > 1 ? atoi(argv[1]) : 0;
    for (int i = 0; i < 3; i++) s += window(i) + inner(i) + returns_here(i, 0);
    of_window = of_others = 0;
    signal(SIGTRAP, mode == 1 ? is_leaf : mode == 2 ? calls_inner : goes_back);
    if (mode == 3) {
        for (limit = 1; limit < 400; limit++) s += returns_here(limit, 1);
    } else {
        for (int i = 0; i < 50; i++) {
            if (mode) step(1);
            s ^= window(i);
            if (mode) step(0);
        }
    }
    fprintf(stderr, "%d\n", s);
    printf("%d %d %d %d\n", handled, outside, of_window, of_others);
    return 0;
}
"##;

const LEAVES_SOURCE: &str = r##"
extern volatile int of_window, of_others;
__attribute__((noinline)) int leaf(int x) { if (x < 0) of_others++; else of_window++; return x + 1; }
__attribute__((noinline)) int low(int x) { if (x < 0) of_others++; else of_window++; return x + 1; }
"##;

/// Returns the counts of a program that contains [`STEPS_PROGRAM`], and what it prints, in one of its modes.
fn run_stepped(place: &Place, mode: &str) -> (BTreeMap<(String, String), u64>, Vec<u64>) {
    let sums = build_and_count(place, ["prog", "prog"], "0", [&[], &[mode]]);
    let mut command = place.command(trodden());
    command.args(["record", "--no-store", "-o", "counted.trodden", "--"]).arg(place.path("counting")).arg(mode);
    let printed = String::from_utf8(must(&mut command).stdout).unwrap();
    assert_eq!(count_callers(place, "counted.trodden"), sums, "mode {mode}: two runs");
    (sums, printed.split_whitespace().map(|n| n.parse().unwrap()).collect())
}

#[test]
fn signal_handlers_at_any_instruction_do_not_take_a_context() {
    let place = Place::with(&[("prog.c", STEPS_PROGRAM), ("leaves.c", LEAVES_SOURCE)]);
    for level in ["-O1", "-O2"] {
        place.cc(&format!("--trodden=stream {level} prog.c leaves.c -o prog"));
        // All segments are executed 3 times before the interruptions begin.
        let (sums, printed) = run_stepped(&place, "1");
        let [handled, _, of_window, of_others] = printed[..] else { panic!("{printed:?}") };
        assert!(handled > 1000 && of_others == handled && of_window == 100, "{printed:?}");
        assert_eq!(sum_calls(&sums, "calls", "leaf"), 53, "{level}: {sums:?}");
        assert_eq!(sum_calls(&sums, "jumps", "low"), 53, "{level}: {sums:?}");
        let (sums, printed) = run_stepped(&place, "2");
        assert!(printed[0] > 1000, "{printed:?}");
        assert_eq!(sum_calls(&sums, "calls", "leaf"), 53, "{level}: {sums:?}");
        assert_eq!(sum_calls(&sums, "inner", "leaf"), printed[0] + 3, "{level}: {sums:?}");
        assert!((3..=53).contains(&sum_calls(&sums, "jumps", "low")), "{level}: {sums:?}");
    }
}

#[test]
fn handler_that_does_not_return_leaves_no_stale_caller() {
    let place = Place::with(&[("prog.c", STEPS_PROGRAM), ("leaves.c", LEAVES_SOURCE)]);
    for level in ["-O1", "-O2"] {
        place.cc(&format!("--trodden=stream {level} prog.c leaves.c -o prog"));
        let (sums, printed) = run_stepped(&place, "3");
        let [_, outside, of_window, of_others] = printed[..] else { panic!("{printed:?}") };
        assert!(outside > 20 && of_others == outside && of_window > 100, "{printed:?}");
        // If the handler leaves `leaf` between its entry and the end of its path, `leaf` has counted its call, but no segment is counted.
        let counted = sum_calls(&sums, "returns_here", "leaf") - 3;
        assert!(counted <= of_window && counted + 20 > of_window, "{level}: {counted} of {of_window}: {sums:?}");
    }
}
