//! `trodden instrument --segments`: interprocedural segments are counted without a stream. The expected counts are those of the segments in
//! the whole program path (from events, and from the grammar), or follow from the program's arithmetic.
// Length: all kinds of segment sets are compared on the same programs.

use crate::place::{Place, laboratory, must, trodden, with_choices};
use serde_json::Value;
use std::collections::BTreeMap;

/// A program in which `caller` has two paths, depending on the parity of x, and `callee`, in a separate unit, has two paths, depending on
/// whether 3 divides x.
const CALLER_SOURCE: &str = r##"
#include <stdio.h>
#include <stdlib.h>
int callee(int y);
int (*volatile pointer)(int) = callee;
__attribute__((noinline)) static int direct(int x) {
    int r = 1;
    if (x & 1) { __asm__ volatile("# odd" : "+r"(r)); r += 3; } else { __asm__ volatile("# even" : "+r"(r)); r ^= 9; }
    return r * callee(x) + 1;
}
__attribute__((noinline)) static int indirect(int x) {
    int r = 1;
    if (x & 1) { __asm__ volatile("# odd" : "+r"(r)); r += 3; } else { __asm__ volatile("# even" : "+r"(r)); r ^= 9; }
    return r * pointer(x) + 1;
}
__attribute__((noinline)) static int tail(int x) {
    if (x & 1) { __asm__ volatile("# odd" : "+r"(x)); } else { __asm__ volatile("# even" : "+r"(x)); }
    return callee(x);
}
int main(int argc, char **argv) {
    int sum = 0, n = argc > 1 ? atoi(argv[1]) : 600;
    for (int x = 0; x < n; x++) { sum += direct(x); sum ^= indirect(x); sum += tail(x); }
    printf("%d\n", sum);
    return 0;
}
"##;

const CALLEE_SOURCE: &str = r##"
__attribute__((noinline)) int callee(int y) {
    int r = y;
    if (y % 3 == 0) { __asm__ volatile("# three" : "+r"(r)); r += 3; } else { __asm__ volatile("# none" : "+r"(r)); r ^= 9; }
    return r;
}
"##;

/// A program with threads, recursion, `longjmp` over frames, callbacks from libc, a function that does not return, and several calls in a
/// block.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
static jmp_buf back;
__attribute__((noinline)) static int leaf(int x) { return x % 3 ? x * 2 : x + 1; }
__attribute__((noinline)) static int other(int x) { return x & 4 ? leaf(x) : x; }
__attribute__((noinline)) static void deep(int n) { if (n == 0) longjmp(back, 1); deep(n - 1); puts("never"); }
__attribute__((noinline)) static int work(int n) {
    int s = 0;
    for (int i = 0; i < n; i++) { if (i & 1) s += leaf(i) + other(i) + leaf(s); else s ^= i; }
    return s;
}
__attribute__((noinline)) static int down(int n) { return n ? down(n - 1) + leaf(n) : 0; }
__attribute__((noinline)) static int by_size(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return leaf(x) < leaf(y) ? -1 : x > y;
}
typedef int (*step)(int);
static step volatile steps[3] = { leaf, other, down };
__attribute__((noinline)) static int choose(int n) { return n & 8 ? steps[n % 3](n) + 1 : steps[n % 2](n / 2) - 1; }
static void *thread(void *p) { long r = (long)p; for (int i = 0; i < 40; i++) r += work(50) + choose(i); return (void *)r; }
__attribute__((noreturn, noinline)) static void leave(int s) { printf("%d\n", leaf(s)); exit(0); }
int main(void) {
    pthread_t t[3];
    for (long i = 0; i < 3; i++) pthread_create(&t[i], 0, thread, (void *)i);
    long r = 0;
    for (int i = 0; i < 3; i++) { void *v; pthread_join(t[i], &v); r += (long)v; }
    for (volatile int i = 0; i < 5; i++) if (!setjmp(back)) deep(i + 3);
    int all[50];
    for (int i = 0; i < 50; i++) all[i] = i * 37 % 101;
    qsort(all, 50, sizeof *all, by_size);
    for (int i = 0; i < 50; i++) r += choose(all[i]);
    leave(r + down(30) + work(100));
}
"#;

const EXCEPTIONS_PROGRAM: &str = r#"
#include <cstdio>
#include <stdexcept>
struct Guard { int *n; ~Guard() { ++*n; } };
struct Shape { virtual int area(int n) const = 0; virtual ~Shape() = default; };
__attribute__((noinline)) int check(int n) { if (n % 7 == 3) throw std::runtime_error("three"); return n; }
struct Square : Shape { int area(int n) const override { return n > 2 ? check(n) * n : n; } };
struct Line : Shape { int area(int n) const override { return n % 2 ? 0 : check(n); } };
__attribute__((noinline)) int guarded(const Shape &s, int n, int *g) { Guard guard{g}; return s.area(n) + s.area(n + 1); }
__attribute__((noinline)) int outer(int n, int *g) {
    int sum = 0;
    Square square; Line line;
    for (int i = 0; i < n; i++) {
        const Shape *s = i % 3 ? static_cast<Shape *>(&square) : &line;
        try { sum += guarded(*s, i, g); } catch (const std::exception &e) { sum -= check(e.what()[0] & 1); }
    }
    return sum;
}
int main() { int g = 0; int s = outer(50, &g); std::printf("%d %d\n", s, g); }
"#;

/// A program with calls nested deeper than the counted segments, many call sites of one function, calls through pointers to functions of
/// this unit and of libc, and a variable-length array on the stack.
const LEVELS_PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef long (*step)(long);
__attribute__((noinline)) static long low(long x) { return x % 5 ? x + 1 : x * 3; }
__attribute__((noinline)) static long high(long x) {
    char room[x % 7 + 1];
    memset(room, 1, sizeof room);
    return x & 2 ? low(x) + room[0] : x;
}
__attribute__((noinline)) static long up(long x) { return x % 3 ? high(x - 1) : high(x) + low(x); }
__attribute__((noinline)) static long many(long x) { return low(x) + low(x + 1) + low(x + 2) + low(x + 3) + low(x + 4) + low(x + 5); }
static step volatile steps[] = { low, high, up, many, labs };
__attribute__((noinline)) static long even(long n);
__attribute__((noinline)) static long odd(long n) { return n ? even(n - 1) + 1 : low(n); }
__attribute__((noinline)) static long even(long n) { return n ? odd(n - 1) - 2 : high(n); }
int main(void) {
    long s = 0;
    for (long i = 0; i < 300; i++) {
        if (i % 4) s += up(i); else s ^= many(i);
        s += steps[i % 5](i);
        if (i % 50 == 0) s += even(i / 10);
    }
    printf("%ld\n", s);
    return 0;
}
"#;

/// Records a run to `NAME.trodden`, and its stream to `NAME.trodden.streams`.
fn record_stream(place: &Place, program: &str, name: &str, options: &[&str], arguments: &[&str]) -> String {
    let file = format!("{name}.trodden");
    let mut command = place.command(trodden());
    with_choices(command.arg("record"), options.iter().copied());
    command.args(["--no-store", "-o", &file, "--"]).arg(place.path(program)).args(arguments);
    // With `--copies`, the recorder would wait for the end of standard input.
    command.stdin(std::process::Stdio::null());
    String::from_utf8(must(&mut command).stdout).unwrap()
}

/// Returns the counts of segments. Keys consist of the names of a segment's paths.
fn count_segments(place: &Place, arguments: &str) -> BTreeMap<String, u64> {
    let output = place.trodden(&format!("segments {arguments} --json --top 0"));
    count_by_names(&serde_json::from_slice(&output.stdout).unwrap())
}

fn count_untested_segments(place: &Place, file: &str) -> BTreeMap<String, u64> {
    let answer = place.trodden(&format!("untested {file} --json")).stdout;
    count_by_names(&serde_json::from_slice::<Value>(&answer).unwrap()["segments"][0])
}

fn count_by_names(answer: &Value) -> BTreeMap<String, u64> {
    let name = |path: &Value| format!("{}:{}", path["function"].as_str().unwrap(), path["path"].as_u64().unwrap());
    let row = |row: &Value| {
        let paths: Vec<String> = row["paths"].as_array().unwrap().iter().map(name).collect();
        (paths.join(" > "), row["count"].as_u64().unwrap())
    };
    answer["segments"].as_array().unwrap().iter().map(row).collect()
}

/// Returns the counts of the segments that start in one function and end in another, in ascending order.
fn list_counts_between(found: &BTreeMap<String, u64>, caller: &str, callee: &str) -> Vec<u64> {
    let is = |name: &str| name.starts_with(&format!("{caller}:")) && name.contains(&format!(" > {callee}:"));
    let mut counts: Vec<u64> = found.iter().filter(|(name, _)| is(name)).map(|(_, count)| *count).collect();
    counts.sort_unstable();
    counts
}

#[test]
fn segment_counts_equal_arithmetic_predictions() {
    let place = Place::with(&[("caller.c", CALLER_SOURCE), ("callee.c", CALLEE_SOURCE)]);
    place.cc("--trodden=stream -O2 caller.c callee.c -o streaming");
    place.cc("-O2 caller.c callee.c -o prog");
    let plain = record_stream(&place, "streaming", "stream", &["--whole-program"], &[]);
    place.trodden("instrument prog -o counting --segments stream.trodden.streams");
    assert_eq!(record_stream(&place, "counting", "counted", &[], &[]), plain);
    for wanted in ["stream.trodden.streams", "counted.trodden"] {
        let found = count_segments(&place, wanted);
        for caller in ["direct", "indirect", "tail"] {
            assert_eq!(list_counts_between(&found, caller, "callee"), [100, 100, 200, 200], "{wanted}: {found:?}");
        }
    }
    place.laboratory("sequence check counted.trodden stream.trodden.streams");
    let answer: Value = serde_json::from_slice(&place.trodden("segments counted.trodden --json").stdout).unwrap();
    let callee = answer["counters"].as_array().unwrap().iter().find(|f| f["function"] == "callee").unwrap();
    // Each of three callers has two paths, and after each of these, the callee takes two paths. One more counter is for all other
    // executions.
    assert!(callee["interesting"] == 12 && callee["counters"] == 13, "{callee}");
    let found = count_segments(&place, "counted.trodden");
    // Ball-Larus numbering also gives counters to these paths if they follow other callers.
    place.laboratory("with --scheme ball-larus -- instrument prog -o all --segments stream.trodden.streams");
    record_stream(&place, "all", "all", &[], &[]);
    assert!(count_segments(&place, "all.trodden") == found);
    let answer: Value = serde_json::from_slice(&place.trodden("segments all.trodden --json").stdout).unwrap();
    let callee = answer["counters"].as_array().unwrap().iter().find(|f| f["function"] == "callee").unwrap();
    assert!(callee["interesting"] == 12 && callee["counters"].as_u64() >= Some(14), "{callee}");
    // This set consists of a single segment. The set below has the most frequent segments of a different input.
    let one = found.keys().find(|name| name.starts_with("direct:")).unwrap();
    must(place.command(trodden()).args(["instrument", "prog", "-o", "one", "--segments", "stream.trodden.streams", "--only", one]));
    record_stream(&place, "one", "one", &[], &[]);
    assert_eq!(count_segments(&place, "one.trodden").get(one), found.get(one));
    for set in ["top:3:stream.trodden.streams", "calls:stream.trodden", "tested:stream.trodden.streams"] {
        let both = place.command(trodden()).args(["instrument", "prog", "-o", "none", "--segments", set, "--only", one]).output().unwrap();
        assert!(String::from_utf8_lossy(&both.stderr).contains("--only cannot be combined with --segments"), "{both:?}");
    }
    place.trodden("instrument prog -o top --segments top:3:stream.trodden.streams");
    record_stream(&place, "top", "top", &[], &["60"]);
    record_stream(&place, "streaming", "again", &["--whole-program"], &["60"]);
    place.laboratory("sequence check top.trodden again.trodden.streams");
}

#[test]
fn segment_counts_equal_those_of_the_whole_program_path() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("--trodden=stream -O1 -pthread prog.c -o prog");
    record_stream(&place, "prog", "stream", &["--whole-program"], &[]);
    for depth in [1, 2, 3] {
        place.trodden(&format!("instrument prog -o counting --segments stream.trodden.streams --depth {depth}"));
        record_stream(&place, "counting", "counted", &[], &[]);
        for shorter in 1..=depth {
            place.laboratory(&format!("sequence check counted.trodden stream.trodden.streams --depth {shorter}"));
        }
    }
    // Without --depth, segments of all counted depths are compared. Asking for a greater depth is an error.
    let said = String::from_utf8(place.laboratory("sequence check counted.trodden stream.trodden.streams").stdout).unwrap();
    assert!([1, 2, 3].iter().all(|depth| said.contains(&format!("of depth {depth} compared"))), "{said}");
    let deeper = ["sequence", "check", "counted.trodden", "stream.trodden.streams", "--depth", "4"];
    assert_eq!(place.command(laboratory()).args(deeper).output().unwrap().status.code(), Some(2));
    let report = String::from_utf8(place.trodden("report counted.trodden").stdout).unwrap();
    assert!(report.contains("parts of segments (paths across calls)") && !report.contains("ball-larus"), "{report}");
    let info = String::from_utf8(place.trodden("info counting").stdout).unwrap();
    assert!(!info.contains(".segments."), "{info}");
    let found = count_segments(&place, "stream.trodden.streams");
    assert!(
        !list_counts_between(&found, "by_size", "leaf").is_empty() && list_counts_between(&found, "main", "by_size").is_empty(),
        "{found:?}"
    );
    assert!(
        !list_counts_between(&found, "main", "leave").is_empty() && !list_counts_between(&found, "deep", "deep").is_empty(),
        "{found:?}"
    );
    // If the program is a different version, the comparison must report different counts.
    record_stream(&place, "counting", "counted", &[], &[]);
    place.write("less.c", &PROGRAM.replace("i < 40", "i < 39"));
    place.cc("--trodden=stream -O1 -pthread less.c -o less");
    record_stream(&place, "less", "less", &["--whole-program"], &[]);
    let output = place.command(laboratory()).args(["sequence", "check", "counted.trodden", "less.trodden.streams"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn segments_across_exceptions_and_virtual_calls_are_exact() {
    let place = Place::with(&[("prog.cc", EXCEPTIONS_PROGRAM)]);
    place.cxx("--trodden=stream -O1 prog.cc -o prog");
    let plain = record_stream(&place, "prog", "stream", &["--whole-program"], &[]);
    place.trodden("instrument prog -o counting --segments stream.trodden.streams --depth 2");
    assert_eq!(record_stream(&place, "counting", "counted", &[], &[]), plain);
    place.laboratory("sequence check counted.trodden stream.trodden.streams --depth 1");
    place.laboratory("sequence check counted.trodden stream.trodden.streams --depth 2");
}

/// Depending on the growth limit, callees are inlined, are cloned for some callers, or read from a variable who called them. The counts
/// must be the same.
#[test]
fn inlined_and_copied_callees_count_the_same() {
    let sources = [("prog.c", PROGRAM, "-O1 -pthread"), ("prog.cc", EXCEPTIONS_PROGRAM, "-O1"), ("levels.c", LEVELS_PROGRAM, "-O2")];
    for (file, source, options) in sources {
        let place = Place::with(&[(file, source)]);
        let line = format!("--trodden=stream {options} {file} -o prog");
        if file.ends_with(".cc") {
            place.cxx(&line)
        } else {
            place.cc(&line)
        };
        let plain = record_stream(&place, "prog", "stream", &["--whole-program"], &[]);
        let mut ways = Vec::new();
        for (depth, growth) in [(1, 20), (1, 100_000), (2, 100), (3, 100_000)] {
            let (depth, growth) = (depth.to_string(), growth.to_string());
            let options = ["-o", "counting", "--segments", "stream.trodden.streams", "--depth", &depth, "--growth", &growth];
            must(with_choices(place.command(trodden()).args(["instrument", "prog"]), options));
            assert_eq!(record_stream(&place, "counting", "counted", &[], &[]), plain);
            place.laboratory(&format!("sequence check counted.trodden stream.trodden.streams --depth {depth}"));
            let answer: Value = serde_json::from_slice(&place.trodden("segments counted.trodden --json").stdout).unwrap();
            let sum = |what: &str| answer["counters"].as_array().unwrap().iter().map(|f| f[what].as_u64().unwrap()).sum::<u64>();
            ways.push((sum("inlined"), sum("duplicated")));
            // Virtual calls, which may throw, become guarded direct calls.
            let is_virtual = |f: &&Value| f["function"].as_str().unwrap().contains("area");
            let passed = |f: &Value| f["inlined"].as_u64().unwrap() + f["duplicated"].as_u64().unwrap();
            let virtually: u64 = answer["counters"].as_array().unwrap().iter().filter(is_virtual).map(passed).sum();
            assert!(file != "prog.cc" || growth != "100000" || virtually > 2, "{answer}");
        }
        // A lower growth limit allows less inlining. With the highest limit, all calls that can be inlined are inlined.
        assert!(ways[0].0 < ways[1].0 && ways[1].0 > 2 && ways[3].0 >= ways[1].0, "{file}: {ways:?}");
        if file == "levels.c" {
            assert!(ways[2].1 > 0, "{ways:?}");
        }
    }
}

/// Each copy of the program counts the segments of some functions. Together, the counts must be those of the whole program path.
#[test]
fn copies_share_the_counting_of_segments() {
    for (file, source, options) in [("levels.c", LEVELS_PROGRAM, "-O2"), ("prog.cc", EXCEPTIONS_PROGRAM, "-O1")] {
        let place = Place::with(&[(file, source)]);
        let line = format!("--trodden=stream {options} {file} -o prog");
        if file.ends_with(".cc") {
            place.cxx(&line)
        } else {
            place.cc(&line)
        };
        let plain = record_stream(&place, "prog", "stream", &["--whole-program"], &[]);
        for (copies, depth) in [("3", "1"), ("2", "2")] {
            let options = ["--copies", copies, "--divide", "segments:stream.trodden.streams", "--segment-depth", depth];
            assert_eq!(record_stream(&place, "prog", "shared", &options, &[]), plain);
            place.laboratory(&format!("sequence check shared.trodden stream.trodden.streams --depth {depth}"));
            let depth = format!("--depth {depth}");
            assert_eq!(
                count_segments(&place, &format!("shared.trodden {depth}")),
                count_segments(&place, &format!("stream.trodden.streams {depth}")),
                "{file}"
            );
            let profile = trodden_profile::Profile::read(&place.path("shared.trodden")).unwrap();
            // Two copies never count the same segment, except for segments that all copies count as a check. Of these, only the first
            // copy's counts are kept.
            let asked: Vec<u64> =
                profile.images.iter().map(|i| trodden_profile::segments::counted_segments(i).interesting.len() as u64).collect();
            assert_eq!(asked.len().to_string(), copies, "{asked:?}");
            let all = trodden_profile::segments::counted_segments(&profile.images[0]).interesting;
            assert!(asked.iter().skip(1).all(|n| *n > 0) && !all.is_empty(), "{asked:?}");
            assert!(profile.images.iter().all(|i| i.path.ends_with("/prog")), "copies are gone with their folder");
            let report = String::from_utf8(place.trodden("report shared.trodden").stdout).unwrap();
            assert!(report.contains("`trodden segments` shows them"), "{report}");
        }
    }
}

/// A run that is stored in an existing file must replace the stream logs of the file's previous run.
#[test]
fn run_replaces_the_streams_of_an_earlier_run_in_the_same_file() {
    let place = Place::with(&[("caller.c", CALLER_SOURCE), ("callee.c", CALLEE_SOURCE)]);
    place.cc("--trodden=stream -O2 caller.c callee.c -o prog");
    for (n, expected) in [("600", [100, 100, 200, 200]), ("60", [10, 10, 20, 20])] {
        record_stream(&place, "prog", "run", &["--whole-program"], &[n]);
        assert_eq!(list_counts_between(&count_segments(&place, "run.trodden.streams"), "direct", "callee"), expected);
    }
    place.cc("-O2 caller.c callee.c -o counting");
    record_stream(&place, "counting", "run", &[], &[]);
    assert!(!place.path("run.trodden.streams").exists(), "a counting run has no stream");
}

/// Segments found in the grammar may continue after the callee's first path. Cut off there, they must have the counts of segments of depth
/// 1.
#[test]
fn call_segments_of_the_grammar_start_with_the_counted_segments() {
    let place = Place::with(&[("caller.c", CALLER_SOURCE), ("callee.c", CALLEE_SOURCE)]);
    place.cc("--trodden=stream -O2 caller.c callee.c -o prog");
    record_stream(&place, "prog", "stream", &["--whole-program"], &[]);
    let output = place.trodden("segments stream.trodden.streams --thread 0 --json");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for row in answer["segments"].as_array().unwrap() {
        let events: Vec<&str> = row["events"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
        if let [caller, enter, callee, ..] = events[..]
            && enter.starts_with("enter ")
            && !caller.starts_with("enter ")
        {
            *expected.entry(format!("{caller} > {callee}")).or_default() += row["count"].as_u64().unwrap();
        }
    }
    let found = count_segments(&place, "stream.trodden.streams");
    assert!(expected.len() >= 8, "{expected:?}");
    for (name, count) in &expected {
        assert_eq!(found.get(name), Some(count), "{name}: {found:?}");
    }
}

#[test]
fn both_schemes_find_the_same_untested_segments() {
    let place = Place::with(&[("caller.c", CALLER_SOURCE), ("callee.c", CALLEE_SOURCE)]);
    place.cc("--trodden=stream -O2 caller.c callee.c -o streaming");
    place.cc("-O2 caller.c callee.c -o prog");
    // With n = 2, the tests execute x = 0 (even and divisible by 3) and x = 1 (odd and not divisible).
    record_stream(&place, "streaming", "tests", &["--whole-program"], &["2"]);
    place.trodden("instrument prog -o field --segments tested:tests.trodden.streams");
    record_stream(&place, "field", "field", &[], &["600"]);
    let untested = count_untested_segments(&place, "field.trodden");
    // The other two combinations, "odd, divisible" and "even, not divisible", are untested.
    assert_eq!(list_counts_between(&untested, "direct", "callee"), [100, 200], "{untested:?}");
    place.trodden("instrument prog -o one --reach calls");
    record_stream(&place, "one", "one", &[], &["2"]);
    place.trodden("instrument prog -o two --segments calls:one.trodden");
    record_stream(&place, "two", "two", &[], &["2"]);
    place.trodden("instrument prog -o three --segments tested:two.trodden");
    record_stream(&place, "three", "three", &[], &["600"]);
    let by_stages = count_untested_segments(&place, "three.trodden");
    // The second scheme also covers calls through pointers by other callers, so only callers that both schemes know are compared.
    for (caller, callee) in [("direct", "callee"), ("indirect", "callee"), ("tail", "callee"), ("main", "direct")] {
        assert_eq!(list_counts_between(&by_stages, caller, callee), list_counts_between(&untested, caller, callee), "{caller}, {callee}");
    }
    let log: Value = serde_json::from_slice(&place.trodden("untested field.trodden --sarif -").stdout).unwrap();
    assert_eq!(log["runs"][0]["results"].as_array().unwrap().len(), untested.len());
    let run = &log["runs"][0];
    let rules: Vec<&str> = run["tool"]["driver"]["rules"].as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap()).collect();
    let results = run["results"].as_array().unwrap();
    assert!(results.iter().all(|r| r["ruleId"] == rules[r["ruleIndex"].as_u64().unwrap() as usize]), "{rules:?}");
    // A code flow starts in the caller and ends in the callee.
    let files = |r: &Value| {
        let flow = r["codeFlows"][0]["threadFlows"][0]["locations"].as_array().unwrap().clone();
        flow.iter().map(|l| l["location"]["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut across = results.iter().filter(|r| r["ruleId"] == "untested-segment").map(files);
    assert!(across.any(|flow| flow[0].ends_with("caller.c") && flow.last().unwrap().ends_with("callee.c")), "{results:#?}");
    assert_eq!(place.command(trodden()).args(["untested", "field.trodden", "--fail"]).output().unwrap().status.code(), Some(1));
}

/// A program built to write a stream can be turned into one that counts segments. If the units of the program differ from those of the
/// stream, the error must say so.
#[test]
fn stream_build_becomes_a_segment_counting_build() {
    let place = Place::with(&[("caller.c", CALLER_SOURCE), ("callee.c", CALLEE_SOURCE), ("other.c", "int main(void) { return 0; }")]);
    place.cc("--trodden=stream -O2 caller.c callee.c -o streaming");
    record_stream(&place, "streaming", "stream", &["--whole-program"], &[]);
    place.trodden("instrument streaming -o counting --segments stream.trodden.streams");
    record_stream(&place, "counting", "counted", &[], &[]);
    place.laboratory("sequence check counted.trodden stream.trodden.streams");
    place.cc("-O2 other.c -o other");
    let refused =
        place.command(trodden()).args(["instrument", "other", "-o", "none", "--segments", "stream.trodden.streams"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("instrument other --stream -o other.stream"), "{said}");
    assert!(!place.path("none").exists());
    // Only one of several units has changed.
    place.write("callee.c", &CALLEE_SOURCE.replace("y % 3 == 0", "y % 3 == 0 && y % 5"));
    place.cc("-O2 caller.c callee.c -o changed");
    let partly = place.trodden("instrument changed -o counting --segments stream.trodden.streams");
    let said = String::from_utf8_lossy(&partly.stderr);
    assert!(said.contains("1 function of these segments") && said.contains("(callee)"), "{said}");
}

/// A program that calls two functions through a pointer. The tests call each of them after only one path of the caller.
const BY_POINTER_PROGRAM: &str = r##"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) static int add(int x) {
    int r = x;
    if (x % 3) { __asm__ volatile("# none" : "+r"(r)); r += 3; } else { __asm__ volatile("# three" : "+r"(r)); r ^= 9; }
    return r;
}
__attribute__((noinline)) static int sub(int x) { return x - 1; }
static int (*const steps[])(int) = { add, sub };
__attribute__((noinline)) static int apply(int x, int (*step)(int)) {
    int r = 1;
    if (x & 1) { __asm__ volatile("# odd" : "+r"(r)); r += 3; } else { __asm__ volatile("# even" : "+r"(r)); r ^= 9; }
    return r * step(x) + 1;
}
int main(int argc, char **argv) {
    int sum = 0, n = atoi(argv[1]), from = atoi(argv[2]);
    for (int x = from; x < from + n; x++) sum += apply(x, steps[x >= from + n / 2]);
    printf("%d\n", sum);
    return 0;
}
"##;

#[test]
fn one_command_compares_both_schemes_and_reports_paths_and_segments() {
    let place = Place::with(&[("prog.c", BY_POINTER_PROGRAM)]);
    place.cc("-O1 -g prog.c -o prog");
    let report = |more: &[&str]| {
        // The tests call `add` for 0 (even, divisible) and `sub` for 1 (odd). The field calls `add` for 0 to 29 and `sub` for 30 to 59.
        let mut command = place.command(laboratory());
        command.args(["schemes", "prog", "--tests", "{} 2 0", "--field", "{} 60 0"]).args(more).output().unwrap()
    };
    let output = report(&["--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    for scheme in 0..2 {
        let scheme = &answer["schemes"][scheme];
        assert!(scheme["alone"].as_array().unwrap().is_empty(), "{scheme}");
    }
    let builds: Vec<&str> = answer["costs"].as_array().unwrap().iter().map(|row| row["build"].as_str().unwrap()).collect();
    assert_eq!(builds, ["nothing is counted", "all paths", "all paths across calls", "untested segments", "untested paths"]);
    assert!(
        answer["costs"][1]["code_ratio"].as_f64() > Some(1.0)
            && answer["costs"][2]["code_bytes"].as_u64() > answer["costs"][1]["code_bytes"].as_u64()
            && answer["costs"][3]["code_bytes"].as_u64() > answer["costs"][0]["code_bytes"].as_u64()
    );
    assert!(answer["costs"][0]["time_us"].is_null());
    let rows = answer["segments"][0]["segments"].as_array().unwrap();
    let mut counts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for row in rows {
        let callee = row["paths"][1]["function"].as_str().unwrap();
        counts.entry(callee).or_default().push(row["count"].as_u64().unwrap());
    }
    counts.values_mut().for_each(|c| c.sort_unstable());
    // Of the 30 calls to `add`, 5 are even and divisible by 3, which is tested; 10 are even and not divisible, 5 are odd and divisible, and
    // 10 are odd and not divisible. Of the calls to `sub`, 15 are even; the odd ones are tested.
    assert_eq!(counts["add"], [5, 10, 10]);
    assert_eq!(counts["sub"], [15]);
    // The same report has the untested path of `add` for numbers that 3 does not divide.
    let paths = answer["paths"].as_array().unwrap();
    assert!(paths.iter().any(|p| p["function"] == "add" && p["count"].as_u64() == Some(20)), "{paths:?}");
    let text = String::from_utf8(report(&["--fail"]).stdout).unwrap();
    assert!(text.starts_with("How untested segments were found") && text.contains("Untested paths of prog"), "{text}");
    assert_eq!(report(&["--fail"]).status.code(), Some(1));
    let unclear = place.command(laboratory()).args(["schemes", "prog", "--tests", "prog 2", "--field", "{}"]).output().unwrap();
    assert!(String::from_utf8_lossy(&unclear.stderr).contains("Write {} in place of the program"));
}
