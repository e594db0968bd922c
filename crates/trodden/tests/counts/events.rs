//! Events per path, such as elapsed time or page faults. Path counts must be the same as in a build without events. The sum of a path must
//! contain only its own events, even if the path ends by `longjmp` or an exception.
//!
//! A program can cause page faults one by one, so its text determines their expected sums. If the kernel does not let users count page
//! faults, the runtime must say so, and no profile may be written.

use crate::place;
use crate::place::{Place, trodden};
use std::path::Path;
use trodden_oracle::random::{RandomLanguage, program};
use trodden_profile::events::PathEvents;
use trodden_profile::{FunctionPaths, Profile};

/// Seeds of random C and C++ programs with threads, `longjmp` and exceptions.
const SEEDS: [u64; 6] = [0, 1, 2, 3, 4, 5];

#[test]
fn counts_equal_those_of_a_build_without_events() {
    let place = Place::new();
    for seed in SEEDS {
        let program = program(seed);
        let (driver, source) = if program.language == RandomLanguage::C { ("cc", "subject.c") } else { ("c++", "subject.cpp") };
        place.write(source, &program.text);
        let level = ["-O0", "-O2", "-Os"][seed as usize % 3];
        let mut known: Option<(Vec<u8>, Counts)> = None;
        for option in ["-Wall", "--trodden=events=tsc"] {
            let mut build = place.command(trodden());
            build.args([driver, option, level, "-w", "-pthread", source, "-o", "subject"]);
            assert!(build.status().unwrap().success(), "seed {seed}");
            let output = place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./subject"]).output().unwrap();
            let profile = Profile::read(&place.path("run.trodden")).unwrap();
            check_squares(&profile);
            let found = (output.stdout, read_counts(&profile));
            assert!(known.get_or_insert(found.clone()) == &found, "seed {seed} {level}: counts differ");
        }
    }
}

/// A signal handler may run between any two instructions, and the events that it adds must not be lost. Unoptimised code must therefore
/// update each word with one instruction in memory, and the 128-bit sum of squares with two (add, then add with carry).
#[test]
fn sums_are_incremented_in_memory_in_unoptimised_code() {
    let place = Place::with(&[("leaf.c", "int leaf(int x) { return x + 1; }\n")]);
    let mut build = place.command(trodden());
    build.args(["cc", "--trodden=events=tsc", "-O0", "-S", "leaf.c", "-o", "leaf.s"]);
    assert!(build.status().unwrap().success());
    let text = std::fs::read_to_string(place.path("leaf.s")).unwrap();
    let body = text.split("\nleaf:").nth(1).unwrap().split(".Lfunc_end").next().unwrap();
    let to_memory = |name: &str| {
        let operands =
            |line: &str| line.trim().strip_prefix(name).map(|operands| operands.trim().ends_with(')') || operands.contains("%fs:"));
        body.lines().filter(|line| operands(line) == Some(true)).count()
    };
    // One addition each for the cost of reading the event, the count, the sum, the lower half of the square, and the time already charged.
    assert_eq!((to_memory("addq"), to_memory("adcq")), (5, 1), "{body}");
}

/// Counts of each function's paths, in the program's order of functions.
type Counts = Vec<(String, Vec<(u64, u64)>)>;

fn read_counts(profile: &Profile) -> Counts {
    profile.functions().map(|(_, unit, function)| (function.name.clone(), unit.counts_of(function).collect())).collect()
}

/// Checks that the mean of squares is at least the square of the mean, and that only executed paths have events.
fn check_squares(profile: &Profile) {
    for (_, unit, function) in profile.functions() {
        let executed: Vec<(u64, u64)> = unit.counts_of(function).collect();
        for (id, count) in &executed {
            let events = unit.events_of(function, *id);
            let sum = events.sum.unsigned_abs();
            assert!(events.squares * u128::from(*count) >= sum * sum, "{} path {id}: {events:?} in {count}", function.name);
        }
        let has_count = |at: u64| executed.iter().any(|(id, _)| function.first_counter + id == at);
        let own =
            unit.counts.events.iter().filter(|(at, _)| (function.first_counter..function.first_counter + function.counters).contains(at));
        own.for_each(|(at, _)| assert!(has_count(*at), "{}: events without executions", function.name));
    }
}

/// A program in which each iteration of `heavy` takes far longer than reading the clock, so that its sum is meaningful even on a busy
/// machine.
const TIMED_PROGRAM: &str = r#"
#include <stdio.h>
#include <setjmp.h>
#include <x86intrin.h>
static jmp_buf back;
__attribute__((noinline)) long heavy(long n) {
  long s = 0;
  for (long i = 0; i < n; i++) { __asm__ volatile(".rept 64\n\timulq %0, %0\n\t.endr" : "+r"(s)); s += i; }
  return s;
}
__attribute__((noinline)) long choose(long i) {
  if (i % 8 == 0) { long s = 0; __asm__ volatile(".rept 4000\n\timulq %0, %0\n\t.endr" : "+r"(s)); return s + 1; }
  __asm__ volatile(""); return i;
}
__attribute__((noinline)) long recurse(long n) { return n <= 0 ? heavy(4000) : 1 + recurse(n - 1); }
__attribute__((noinline)) void leap(long n) { heavy(4000); if (n & 1) longjmp(back, 1); }
__attribute__((noinline)) long work(void) {
  long s = 0;
  for (long i = 0; i < 800; i++) s += choose(i);
  s += recurse(50);
  for (volatile long i = 0; i < 100; i++) if (!setjmp(back)) leap(i);
  return s;
}
__attribute__((no_profile_instrument_function)) int main(void) {
  unsigned long long before = __rdtsc();
  long s = work();
  unsigned long long after = __rdtsc();
  printf("%llu %d\n", after - before, s == 1);
  return 0;
}
"#;

#[test]
fn times_of_paths_exclude_callees_and_do_not_exceed_the_total() {
    let place = Place::with(&[("timed.c", TIMED_PROGRAM)]);
    place.cc("--trodden=events=tsc -O2 timed.c -o timed");
    let (output, profile) = place.record("timed");
    let elapsed: i128 = output.split_whitespace().next().unwrap().parse().unwrap();
    let total: i128 = profile.functions().map(|(_, unit, function)| sum_events(unit, function)).sum();
    // No time may be counted twice, so the sum is at most the elapsed time. It may be far less on a busy machine.
    let by_function = || profile.functions().map(|(_, unit, f)| format!("{} {}", f.name, sum_events(unit, f))).collect::<Vec<_>>();
    assert!(0 < total && total <= elapsed, "{total} of {elapsed}: {:?}", by_function());
    for (_, unit, function) in profile.functions() {
        assert!(sum_events(unit, function) > -elapsed / 10, "{}", function.name);
    }
    // An interruption is counted for the path that it interrupts, which differs between runs, so up to eight runs are tried.
    let right = (0..8).any(|_| is_time_attributed_correctly(&place.record("timed").1));
    assert!(right, "{:?}", read_path_events(&profile, "choose"));
}

/// Returns true if the path with 4,000 multiplications has more events than the path without any, and `heavy` has nearly all events that it
/// causes.
fn is_time_attributed_correctly(profile: &Profile) -> bool {
    let choose = read_path_events(profile, "choose");
    let mean = |n: u64| choose.iter().filter(|(count, _)| *count == n).map(|(_, events)| events.mean(n)).fold(0.0, f64::max);
    let of = |name| read_path_events(profile, name).iter().map(|(_, e)| e.sum).sum::<i128>();
    mean(100) > 1000.0 && mean(700) < mean(100) / 2.0 && of("recurse") < of("heavy") / 10 && of("leap") < of("heavy") / 2
}

fn sum_events(unit: &trodden_profile::UnitProfile, function: &trodden_unit::FunctionMap) -> i128 {
    unit.counts_of(function).map(|(id, _)| unit.events_of(function, id).sum).sum()
}

/// Returns the numbers of executions and events of a function's complete paths.
fn read_path_events(profile: &Profile, name: &str) -> Vec<(u64, PathEvents)> {
    let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == name).unwrap();
    let decoded = FunctionPaths::decode(function, unit.counts_of(function)).unwrap();
    decoded.complete.iter().map(|p| (p.count, unit.events_of(function, p.id))).collect()
}

/// A program in which a call to `touch` causes one page fault if its number is odd, and none otherwise. `leap` causes one page fault and
/// never returns.
const FAULTS_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static __thread volatile char *next;
static __thread jmp_buf back;
__attribute__((no_profile_instrument_function, noinline)) static void fresh(long pages) {
  next = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise((void *)next, pages * 4096, MADV_NOHUGEPAGE);
}
__attribute__((noinline)) void touch(long n) { if (n & 1) { *next = 1; next += 4096; } __asm__ volatile(""); }
__attribute__((no_profile_instrument_function, noinline)) static void hop(void) { longjmp(back, 1); }
static void (*volatile way)(void) = hop;
__attribute__((noinline)) void leap(void) { *next = 1; next += 4096; way(); *next = 2; }
__attribute__((noinline)) void *many(void *calls) { for (long i = 0; i < (long)calls; i++) touch(i); return 0; }
static void *thread(void *calls) { fresh(1000); return many(calls); }
int main(void) {
  fresh(1000);
  many((void *)1000);
  if (!setjmp(back)) leap();
  pthread_t t[4];
  for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, thread, (void *)200);
  for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
  pid_t child = fork();
  if (!child) { fresh(1000); many((void *)100); _exit(0); }
  waitpid(child, 0, 0);
  return 3;
}
"#;

#[test]
fn page_faults_are_charged_to_the_paths_that_cause_them() {
    let place = Place::with(&[("faults.c", FAULTS_PROGRAM)]);
    place.cc("--trodden=events=page-faults -O2 -pthread faults.c -o faults");
    let output = place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./faults"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    if !place.path("run.trodden").exists() {
        return check_rejection(&output.stderr);
    }
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    let mut touch = read_path_events(&profile, "touch");
    touch.sort_by_key(|(_, events)| events.sum);
    let calls = 500 + 4 * 100 + 50;
    // The first use of the counter's page and of the code's page may add one fault each.
    let [(none, quiet), (one, faulting)] = touch[..] else { panic!("{touch:?}") };
    assert_eq!((none, one), (calls, calls));
    let near = |events: PathEvents, expected: i128| (events.sum - expected).abs() <= 12;
    assert!(near(quiet, 0) && near(faulting, i128::from(calls)), "{quiet:?} {faulting:?}");
    assert!(faulting.deviation(one) < 0.5 && (faulting.mean(one) - 1.0).abs() < 0.02, "{faulting:?}");
    assert!(read_path_events(&profile, "leap").is_empty());
    // `leap` does not return, so its fault is added to the path that ends next, in `main`.
    let main: i128 = read_path_events(&profile, "main").iter().map(|(_, e)| e.sum).sum();
    assert!(main >= 1, "{main}");
}

fn check_rejection(stderr: &[u8]) {
    let text = String::from_utf8_lossy(stderr);
    assert!(text.contains("event") && text.contains("--events tsc") && text.contains("is not counted"), "{text}");
}

/// Each interesting path has its own sum, under its standard number. All other paths of a function share one sum.
#[test]
fn only_interesting_paths_have_separate_sums() {
    let place = Place::with(&[("timed.c", TIMED_PROGRAM)]);
    place.cc("--trodden=events=tsc -O2 -g timed.c -o timed");
    let (_, all) = place.record("timed");
    for scheme in ["known-table", "ppp", "pspp", "ball-larus"] {
        let mut command = place.command(trodden());
        let arguments = ["instrument", "timed", "-o", "chosen", "--interesting", "touch:timed.c:13", "--events", "tsc", "--scheme", scheme];
        let output = place::with_choices(&mut command, arguments).output().unwrap();
        assert!(output.status.success(), "{scheme}: {output:?}");
        let (_, profile) = place.record("chosen");
        check_squares(&profile);
        let names: Vec<&str> = profile.functions().map(|(_, _, function)| function.name.as_str()).collect();
        assert_eq!(names, ["choose"], "{scheme}");
        let (_, unit, choose) = profile.functions().next().unwrap();
        let (_, whole, same) = all.functions().find(|(_, _, function)| function.name == "choose").unwrap();
        let counts: Vec<(u64, u64)> = unit.counts_of(choose).collect();
        if scheme == "ball-larus" {
            assert_eq!(counts, whole.counts_of(same).collect::<Vec<_>>());
            continue;
        }
        // Seven of eight calls take the path through line 13. The eighth call multiplies 4,000 times, and its events are added to the
        // shared sum.
        let [(path, 700)] = counts[..] else { panic!("{scheme}: {counts:?}") };
        assert_eq!((whole.counts_of(same).find(|(id, _)| *id == path), unit.unattributed(choose)), (Some((path, 700)), 100));
        let others = unit.counts.events_of(choose.unattributed().start);
        assert!(others.mean(100) > 1000.0 && unit.events_of(choose, path).squares > 0, "{scheme}: {:?}", unit.counts.events);
        assert_eq!(unit.counts.events.len(), 2, "{scheme}: {:?}", unit.counts.events);
    }
}

#[test]
fn no_profile_is_written_if_the_event_cannot_be_counted() {
    let place = Place::with(&[("prog.c", "int main(int n, char **w) { return n > 1 ? 5 : 4; }\n")]);
    place.cc("--trodden=events=cache-misses -O2 prog.c -o prog");
    let output = place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./prog"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    match place.path("run.trodden").exists() {
        true => check_squares(&Profile::read(&place.path("run.trodden")).unwrap()),
        false => check_rejection(&output.stderr),
    }
}

#[test]
fn reports_show_events_and_merging_adds_them() {
    let place = Place::with(&[("timed.c", TIMED_PROGRAM)]);
    place.cc("--trodden=events=tsc -O2 timed.c -o timed");
    let (_, profile) = place.record("timed");
    place.trodden("merge -o twice.trodden run.trodden run.trodden");
    let twice = Profile::read(&place.path("twice.trodden")).unwrap();
    for ((_, unit, function), (_, other, _)) in profile.functions().zip(twice.functions()) {
        for (id, _) in unit.counts_of(function) {
            let (one, two) = (unit.events_of(function, id), other.events_of(function, id));
            assert_eq!((2 * one.sum, 2 * one.squares), (two.sum, two.squares));
        }
    }
    let text = String::from_utf8(place.trodden("report --measure events --top 1 twice.trodden").stdout).unwrap();
    assert!(text.contains("heavy") && text.contains("own ticks: ") && text.contains(" ticks of tsc"), "{text}");
    let json: serde_json::Value =
        serde_json::from_slice(&place.trodden("report --json --measure events --top 500 run.trodden").stdout).unwrap();
    assert_eq!((&json["measure"], &json["totals"]["events"]["source"]), (&"events".into(), &"tsc".into()));
    let sums: Vec<i64> = json["paths"].as_array().unwrap().iter().map(|p| p["events"]["sum"].as_i64().unwrap()).collect();
    assert!(sums.is_sorted_by(|a, b| a.max(&0) >= b.max(&0)), "{sums:?}");
    assert_eq!(sums.iter().sum::<i64>(), json["totals"]["events"]["sum"].as_i64().unwrap());
    // A variant of the same program without events has no sums.
    place.trodden("instrument timed -o plain");
    place.record("plain");
    let output = place.command(trodden()).args(["report", "--measure", "events", "run.trodden"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--events tsc"), "{output:?}");
}

#[test]
fn conflicting_events_and_settings_are_rejected() {
    let place = Place::with(&[("a.c", "int f(int); int main(void) { return f(2); }\n"), ("b.c", "int f(int n) { return n > 2; }\n")]);
    place.cc("--trodden=events=tsc -c a.c -o a.o");
    place.cc("--trodden=events=cycles -c b.c -o b.o");
    for (arguments, message) in [
        ("cc a.o b.o -o mixed", "__trodden_event"),
        ("cc --trodden=events=sneezes -c a.c -o c.o", "Values of events: tsc|cycles"),
        ("cc --trodden=events=tsc --trodden=sample -c a.c -o c.o", "cannot be combined"),
        ("build --events tsc --sample -- true", "cannot be combined"),
        ("build --events sneezes -- true", "possible values: tsc, cycles"),
    ] {
        let output = place.command(trodden()).args(arguments.split_whitespace()).output().unwrap();
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains(message), "{arguments}: {output:?}");
    }
    assert!(!Path::new("mixed").exists());
    // Units with events can be linked with units that have none.
    place.cc("-c b.c -o b.o");
    place.cc("a.o b.o -o both");
    let output = place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./both"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(Profile::read(&place.path("run.trodden")).unwrap().functions().count() == 2);
}
