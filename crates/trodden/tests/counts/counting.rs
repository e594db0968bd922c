//! Less common ways to count, in real programs with threads and forks: hash tables, counters that threads share, incomplete profiles. The
//! text of each program determines the expected count of each path.

use crate::place::{Place, trodden};
use std::process::Command;
use trodden_profile::{FunctionPaths, InexactnessReason, Profile};

/// A program with eight paths. Each path is taken equally often by two threads, and by a process that one of the threads creates.
const SUBJECT_PROGRAM: &str = "#include <pthread.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n#define NOP __asm__ \
    volatile(\"nop\")\n\
    __attribute__((noinline)) void tread(unsigned x) { if (x & 1) NOP; if (x & 2) NOP; if (x & 4) NOP; }\n\
    static void iterations(void) { for (unsigned i = 0; i < 8000; i++) tread(i); }\n\
    static void *run(void *forks) {\n\
      iterations();\n\
      if (forks) { pid_t child = fork(); if (!child) { iterations(); _exit(0); } int status; waitpid(child, &status, 0); if (status) \
      abort(); }\n\
      iterations(); return 0; }\n\
    int main(void) { pthread_t t[2]; for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, run, (void *)i);\n\
      for (int i = 0; i < 2; i++) pthread_join(t[i], 0); return 0; }\n";
/// Five times 8,000 iterations are divided among eight paths.
const EXECUTIONS_PER_PATH: u64 = 5000;

fn build_command(place: &Place, parameters: &str) -> Command {
    build_command_at("-O2", place, parameters)
}

fn build_command_at(level: &str, place: &Place, parameters: &str) -> Command {
    let mut compile = place.command(trodden());
    compile.args(["cc", level, "-pthread", "prog.c", "-o", "prog"]).env("TRODDEN_INSTRUMENT", parameters);
    compile
}

fn record(place: &Place) -> Profile {
    let output = place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./prog"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Profile::read(&place.path("run.trodden")).unwrap()
}

fn record_subject(parameters: &str) -> Profile {
    let place = Place::with(&[("prog.c", SUBJECT_PROGRAM)]);
    assert!(build_command(&place, parameters).status().unwrap().success());
    record(&place)
}

fn record_unoptimised_subject(parameters: &str) -> Profile {
    let place = Place::with(&[("prog.c", SUBJECT_PROGRAM)]);
    assert!(build_command_at("-O0", &place, parameters).status().unwrap().success());
    record(&place)
}

/// Returns the counts of the paths of `tread`, and the number of executions of `tread` whose path is unknown because the table was full.
fn count_tread_paths(profile: &Profile) -> (Vec<u64>, u64) {
    let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == "tread").unwrap();
    let paths = FunctionPaths::decode(function, unit.counts_of(function)).unwrap();
    let mut counts: Vec<u64> = paths.complete.iter().map(|p| p.count).collect();
    counts.sort_unstable();
    (counts, unit.unattributed(function))
}

#[test]
fn tables_and_atomic_counters_are_exact_in_threads_and_forks() {
    for parameters in
        ["table-slots=8 array-paths=1", "table-slots=700 array-paths=1", "threads=atomic", "threads=atomic table-slots=64 array-paths=1"]
    {
        let profile = record_subject(parameters);
        assert_eq!(count_tread_paths(&profile), (vec![EXECUTIONS_PER_PATH; 8], 0), "{parameters}");
        assert!(profile.inexactness_reasons().is_empty(), "{parameters}");
    }
}

#[test]
fn unoptimised_code_counts_exactly_in_threads_and_forks() {
    for parameters in ["", "threads=atomic", "table-slots=64 array-paths=1", "chords=off"] {
        let profile = record_unoptimised_subject(parameters);
        assert_eq!(count_tread_paths(&profile), (vec![EXECUTIONS_PER_PATH; 8], 0), "{parameters}");
        assert!(profile.inexactness_reasons().is_empty(), "{parameters}");
    }
}

/// A program with loops, calls, a switch and parameters of several kinds. The numbers of some paths are constants; those of others are
/// computed.
const UNOPTIMISED_PROGRAM: &str = "static int twice(int x) { return x > 9 ? 9 : 2 * x; }\n\
    int run(int n, double d, char *s) { int sum = 0; for (int i = 0; i < n; i++) { if (i & 1) sum += twice(i); if (d > i) sum++; \
      switch (s[i & 3]) { case 'a': sum++; break; case 'b': sum--; break; case 'z': return 1; } } return sum; }\n\
    int main(void) { return run(4, 1.5, \"abc\") & 0; }\n";

/// If FastISel does not support some code, clang uses the instruction selection for optimised code, which would take most of the compile
/// time.
#[test]
fn fast_instruction_selection_supports_all_code_added_to_unoptimised_code() {
    let place = Place::with(&[("prog.c", UNOPTIMISED_PROGRAM)]);
    let remarks = |mut command: Command| -> Vec<String> {
        let output = command.args(["-O0", "-c", "prog.c", "-o", "prog.o", "-Rpass-missed=sdagisel"]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{text}");
        text.lines().filter_map(|line| Some(line.split_once("FastISel missed")?.1.split_once(':')?.0.to_owned())).collect()
    };
    for parameters in ["", "threads=atomic"] {
        let mut counting = place.command(trodden());
        counting.arg("cc").env("TRODDEN_INSTRUMENT", parameters);
        // clang's own code already makes FastISel fall back at a switch, so the remarks are compared.
        assert_eq!(remarks(counting), remarks(place.command("clang-22")), "{parameters}");
    }
}

#[test]
fn full_tables_lose_paths_but_no_executions_and_are_reported() {
    let profile = record_subject("table-slots=4 array-paths=4");
    let (counts, unattributed) = count_tread_paths(&profile);
    // Each table holds the four paths that its thread or process executed first, and these may differ between tables.
    assert!((4..=8).contains(&counts.len()), "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>() + unattributed, 8 * EXECUTIONS_PER_PATH);
    assert_eq!(unattributed, 4 * EXECUTIONS_PER_PATH);
    // The function `run` may also have filled its table.
    assert!(matches!(profile.inexactness_reasons()[..],
            [InexactnessReason::TableFull { functions: 1.., executions }] if executions >= unattributed));
}

/// With RARE set, a thread calls a function that no other run calls, and a branch leads to a tail call that the compiler must keep.
const RARE_PROGRAM: &str = "#include <pthread.h>\n#include <stdlib.h>\n#define NOP __asm__ volatile(\"nop\")\n\
    static __attribute__((noinline)) void rare(unsigned x) { if (x & 1) NOP; }\n\
    static void *run(void *too) { if (too) for (unsigned i = 0; i < 1000; i++) rare(i); return 0; }\n\
    static __attribute__((noinline)) int other(int x) { NOP; return x + 1; }\n\
    __attribute__((noinline)) int turn(int x) { if (x) __attribute__((musttail)) return other(x); NOP; return 1; }\n\
    int main(void) { char *rare = getenv(\"RARE\"); pthread_t t; pthread_create(&t, 0, run, rare); pthread_join(t, 0); return !turn(rare \
    != 0); }\n";

#[test]
fn residual_builds_count_untested_paths_in_threads_and_at_tail_calls() {
    let place = Place::with(&[("prog.c", RARE_PROGRAM)]);
    assert!(build_command(&place, "").status().unwrap().success());
    record(&place);
    assert!(place.command(trodden()).args(["export", "known", "run.trodden", "-o", "known"]).status().unwrap().success());
    assert!(build_command(&place, &format!("known={}", place.path("known").display())).status().unwrap().success());
    let again = place.command(trodden()).args(["record", "--no-store", "-o", "rare.trodden", "--", "./prog"]).env("RARE", "1").status();
    assert!(again.unwrap().success());
    let profile = Profile::read(&place.path("rare.trodden")).unwrap();
    let counts = |name: &str| {
        let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == name).unwrap();
        let mut counts: Vec<u64> = unit.counts_of(function).map(|(_, count)| count).collect();
        counts.sort_unstable();
        counts
    };
    assert_eq!(counts("rare"), [500, 500]);
    assert_eq!(counts("turn"), [1]);
}

#[test]
fn paths_with_nonstandard_numbers_are_not_exported_as_known() {
    let place = Place::with(&[("prog.c", SUBJECT_PROGRAM)]);
    assert!(build_command(&place, "table-slots=64 array-paths=1").status().unwrap().success());
    record(&place);
    let export = place.command(trodden()).args(["export", "known", "run.trodden", "-o", "known"]).output().unwrap();
    assert!(!export.status.success() && String::from_utf8_lossy(&export.stderr).contains("are not numbered as"));
}

/// A program with loops that have too many instructions for tight loops. Their trip counts are 16, 5, 7 and 2^20 + 2, or arguments. Their
/// steps are 1, 4, 2^12 and 2^13. One loop has an exit edge in the middle, and another contains a loop.
const LOOPS_PROGRAM: &str = "#define STAY _Pragma(\"clang loop unroll(disable) vectorize(disable)\")\n#define N __attribute__((noinline))\n\
    static volatile unsigned a, b, c, d, e;\n#define BODY a += i; b ^= a; c += b; d ^= c; e += d;\n\
    N void up(void) { STAY for (unsigned i = 0; i < 16; i++) { BODY } }\n\
    N void down(void) { STAY for (int i = 5; i > 0; i--) { BODY } }\n\
    N void steps(unsigned s) { unsigned i = -6u; STAY do { BODY i += 3; } while (i != 15); a = s; }\n\
    N void many(void) { STAY for (unsigned i = 0; i < (1 << 20) + 2; i++) { BODY } }\n\
    N void reported(unsigned n) { STAY for (unsigned i = 0; i < n; i++) { BODY } }\n\
    N void fours(unsigned long n) { STAY for (unsigned long i = 8; i < n; i += 4) { BODY } }\n\
    N void near(unsigned long n) { STAY for (unsigned long i = 8; i < n << 12; i += 1 << 12) { BODY } }\n\
    N void far(unsigned long n) { STAY for (unsigned long i = 8; i < n << 13; i += 1 << 13) { BODY } }\n\
    N void left(unsigned n) { STAY for (unsigned i = 0; i < 16; i++) { BODY if (i == n) break; } }\n\
    N void nested(void) { STAY for (unsigned j = 0; j < 3; j++) { a = j; STAY for (unsigned i = 0; i < 9; i++) { BODY } } }\n\
    int main(void) { for (unsigned k = 0; k < 10; k++) { up(); down(); steps(1); many(); reported(k); fours(3 * k); near(k); far(k); \
    left(k); nested(); } return 0; }\n";

#[test]
fn loops_with_computable_trip_counts_are_counted_when_they_are_left() {
    let place = Place::with(&[("prog.c", LOOPS_PROGRAM)]);
    assert!(build_command(&place, "").status().unwrap().success());
    let counted = record(&place);
    assert!(build_command(&place, "trip-counts=off").status().unwrap().success());
    let off = record(&place);
    let sorted = |profile: &Profile, name: &str| {
        let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == name).unwrap();
        let mut counts: Vec<u64> = unit.counts_of(function).map(|(_, count)| count).collect();
        counts.sort_unstable();
        (counts, function.by_trip_count.len())
    };
    // Sorted counts of the path up to the loop, of the path that leaves the loop, and of the iterations, then the number of loops counted
    // by trip count.
    for (name, counts, by_trip_count) in [
        ("up", vec![10, 10, 140], 1),
        ("down", vec![10, 10, 30], 1),
        ("steps", vec![10, 10, 50], 1),
        ("many", vec![10, 10, 10 << 20], 0),
        ("reported", vec![1, 1, 8, 8, 28], 0),
        ("fours", vec![2, 3, 5, 5, 8], 1),
        ("near", vec![1, 1, 8, 8, 28], 1),
        // The induction variable may wrap around to an earlier value, so the trip count is unknown.
        ("far", vec![1, 1, 8, 8, 28], 0),
        ("left", vec![1, 9, 9, 36], 0),
    ] {
        assert_eq!(sorted(&counted, name), (counts, by_trip_count), "{name}");
    }
    for name in ["up", "down", "steps", "many", "reported", "fours", "near", "far", "left", "nested", "main"] {
        assert_eq!(sorted(&counted, name).0, sorted(&off, name).0, "{name}");
    }
    assert_eq!(sorted(&counted, "nested").1, 1);
}

#[test]
fn trip_count_is_computed_from_the_programs_own_induction_variable() {
    const WALK_SOURCE: &str = "__attribute__((noinline)) unsigned long walk(unsigned long n, volatile char *p) {\n\
        _Pragma(\"clang loop unroll(disable)\") for (unsigned long i = 0; i < n; i += 4) { p[i] += p[i + 1]; p[i + 2] += p[i + 3]; }\n\
        return n; }\nint main(int c, char **v) { (void)v; char s[32]; return walk(c, s) == 0; }\n";
    let place = Place::with(&[("prog.c", WALK_SOURCE)]);
    let number = |parameters: &str| count_walk_lines(&place, parameters, |l| l.starts_with("shr"));
    assert_eq!((number(""), number("trip-counts=off")), (1, 0));
    let steps = |parameters: &str| count_walk_lines(&place, parameters, |l| ["incq\t%", "decq\t%"].iter().any(|i| l.starts_with(i)));
    assert_eq!(steps(""), 0);
}

#[test]
fn endless_loops_are_counted_while_they_run() {
    const ENDLESS_PROGRAM: &str = "#include <pthread.h>\n#include <unistd.h>\nstatic volatile unsigned iterations, turns, odd;\n\
        static __attribute__((noinline)) void *spin(void *p) { for (;;) iterations++; return p; }\n\
        static __attribute__((noinline)) void *turn(void *p) { for (;;) { turns++; if (turns & 1) odd++; } return p; }\n\
        int main(void) { pthread_t t; if (pthread_create(&t, 0, spin, 0) || pthread_create(&t, 0, turn, 0)) return 1;\n\
          while (iterations < 1000 || turns < 1000) usleep(1000);\n\
          return 0; }\n";
    let place = Place::with(&[("prog.c", ENDLESS_PROGRAM)]);
    for parameters in ["", "trip-counts=on"] {
        assert!(build_command(&place, parameters).status().unwrap().success());
        let profile = record(&place);
        for name in ["spin", "turn"] {
            let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == name).unwrap();
            let counted: u64 = unit.counts_of(function).map(|(_, count)| count).sum();
            assert!(counted >= 999, "{name}: {counted}");
        }
    }
}

/// A program with a loop that has several paths. The first iteration takes a different path from all others.
const DOMINANT_PROGRAM: &str = "static volatile unsigned a, b;\n\
    __attribute__((noinline)) unsigned walk(unsigned n, unsigned seldom) {\n\
      unsigned sum = 0; if (seldom & 1) a = n;\n\
      _Pragma(\"clang loop unroll(disable)\") for (unsigned i = 0; i != n; i++) { if (__builtin_expect(i % seldom == 0, 0)) { a = i; \
      sum++; } b = i; }\n\
      return sum; }\n\
    int main(int c, char **v) { (void)v; if (c == 1) for (unsigned n = 0; n < 9; n++) walk(n, 3 + n % 2); return 0; }\n";

/// Returns the number of machine code lines in `walk` that satisfy a condition.
fn count_walk_lines(place: &Place, parameters: &str, is: impl Fn(&str) -> bool) -> usize {
    assert!(build_command(place, parameters).args(["-S", "-o", "prog.s"]).status().unwrap().success());
    let text = std::fs::read_to_string(place.path("prog.s")).unwrap();
    let walk = text.split("\nwalk:").nth(1).and_then(|t| t.split("\n.Lfunc_end").next()).unwrap();
    walk.lines().filter(|l| is(l.trim_start())).count()
}

#[test]
fn untested_loop_increments_counters_in_memory_with_a_base_address_computed_once() {
    let place = Place::with(&[("prog.c", DOMINANT_PROGRAM)]);
    assert!(build_command(&place, "").status().unwrap().success());
    let run = |arguments: &[&str]| assert!(place.command(trodden()).args(arguments).output().unwrap().status.success(), "{arguments:?}");
    run(&["record", "--no-store", "-o", "test.trodden", "--", "./prog", "none"]);
    run(&["export", "known", "test.trodden", "-o", "known"]);
    let parameters = format!("known={}", place.path("known").display());
    assert_eq!(count_walk_lines(&place, &parameters, |l| l.contains("__trodden_direct_bias@")), 1);
    let counts = |l: &str| ["incq\t", "addq\t%", "subq\t%"].iter().any(|i| l.starts_with(i)) && l.contains('(');
    assert!(count_walk_lines(&place, &parameters, counts) > 2);
}

#[test]
fn untested_tight_loop_is_counted_by_trip_count() {
    let place = Place::with(&[(
        "prog.c",
        "static unsigned steps[8];\n\
        __attribute__((noinline)) unsigned walk(int n) { unsigned at = 1;\n\
        _Pragma(\"clang loop unroll(disable)\") for (int i = 0; i < n; i++) at = steps[at & 7]; return at; }\n\
        int main(int c, char **v) { (void)v; return c == 1 ? walk(c) : 0; }\n",
    )]);
    assert!(build_command(&place, "").status().unwrap().success());
    let run = |arguments: &[&str]| assert!(place.command(trodden()).args(arguments).output().unwrap().status.success(), "{arguments:?}");
    run(&["record", "--no-store", "-o", "test.trodden", "--", "./prog", "none"]);
    run(&["export", "known", "test.trodden", "-o", "known"]);
    let parameters = |more: &str| format!("known={}{more}", place.path("known").display());
    // The first build adds the trip count once. The second build adds 1 in each iteration.
    let is_sum = |l: &str| (l.starts_with("addq\t%") || l.starts_with("subq\t%")) && l.contains('(');
    assert_eq!(count_walk_lines(&place, &parameters(""), is_sum), 1);
    assert_eq!(count_walk_lines(&place, &parameters(" trip-counts=off dominant-iteration=shared"), is_sum), 0);
}

#[test]
fn dominant_iteration_of_a_short_loop_has_its_own_increment_or_with_weights_a_register() {
    let place = Place::with(&[("prog.c", DOMINANT_PROGRAM)]);
    let additions = |parameters: &str| count_walk_lines(&place, parameters, |l| l.starts_with("incq") && l.contains('('));
    let sums = |parameters: &str| count_walk_lines(&place, parameters, |l| l.starts_with("addq\t%") && l.contains('('));
    let counts = |parameters: &str| {
        assert!(build_command(&place, parameters).status().unwrap().success());
        let profile = record(&place);
        let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == "walk").unwrap();
        unit.counts_of(function).collect::<Vec<_>>()
    };
    let split = counts("");
    assert_eq!(split, counts("dominant-iteration=shared"));
    assert_eq!(split.iter().map(|(_, count)| count).sum::<u64>(), 1 + 36);
    assert!(build_command(&place, "").status().unwrap().success());
    let run = |arguments: &[&str]| assert!(place.command(trodden()).args(arguments).output().unwrap().status.success(), "{arguments:?}");
    run(&["record", "--no-store", "-o", "run.trodden", "--", "./prog"]);
    run(&["export", "weights", "run.trodden", "-o", "weights"]);
    let weights = format!("weights={}", place.path("weights").display());
    assert_eq!(split, counts(&weights));
    // Without weights, the dominant iteration gets an addition of its own. With weights, a register counts it, and the register's value is
    // added at the loop's exits.
    assert_eq!(additions(""), additions("dominant-iteration=shared") + 1);
    assert_eq!(additions(&weights), additions("dominant-iteration=shared"));
    assert_eq!([sums(&weights), sums(""), sums("dominant-iteration=shared")], [1, 0, 0]);
}

/// A program that, with an argument, is constantly interrupted by a signal handler which takes the same path. It prints how often the path
/// is taken.
const INTERRUPTED_PROGRAM: &str = "#include <signal.h>\n#include <stdio.h>\n#include <sys/time.h>\n#define NOP __asm__ volatile(\"nop\")\n\
    __attribute__((noinline)) void step(unsigned n) { if (n & 1) NOP; }\n\
    static volatile unsigned long handled;\n\
    static void handle(int signal) { (void)signal; handled++; for (int i = 0; i < 100; i++) step(1); }\n\
    int main(int count, char **v) { (void)v; unsigned long own = 0; signal(SIGALRM, handle);\n\
      struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};\n\
      if (count > 1) { setitimer(ITIMER_REAL, &often, 0); for (; handled < 3000; own++) step(1); setitimer(ITIMER_REAL, &never, 0); }\n\
      printf(\"%lu\\n\", own + 100 * handled); return 0; }\n";

#[test]
fn counts_of_signal_handlers_are_not_lost_in_optimised_and_unoptimised_code() {
    let place = Place::with(&[("prog.c", INTERRUPTED_PROGRAM)]);
    for level in ["-O0", "-O2"] {
        for is_residual in [false, true] {
            let mut compile = place.command(trodden());
            compile.args(["cc", level, "prog.c", "-o", "prog"]);
            if is_residual {
                // Without an argument, the program does not call `step`, so all paths of `step` are untested.
                assert!(build_command(&place, "").status().unwrap().success());
                record(&place);
                assert!(place.command(trodden()).args(["export", "known", "run.trodden", "-o", "known"]).status().unwrap().success());
                compile.env("TRODDEN_INSTRUMENT", format!("known={}", place.path("known").display()));
            }
            assert!(compile.status().unwrap().success());
            let run =
                place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./prog", "often"]).output().unwrap();
            let expected: u64 = String::from_utf8_lossy(&run.stdout).trim().parse().unwrap();
            let profile = Profile::read(&place.path("run.trodden")).unwrap();
            let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == "step").unwrap();
            let counted: u64 = unit.counts_of(function).map(|(_, count)| count).sum();
            assert_eq!(counted, expected, "{level} {is_residual}");
        }
    }
}

/// Returns a state machine like those that code generators write. In each of 1,000 steps, the state continues in one of twenty other
/// states, which the next number selects.
fn generate_state_machine(states: u32) -> String {
    let state = |at: u32| {
        let cases = (0..20).map(|case| format!("case {case}: goto s{};", (at * 7 + case * 13 + 1) % states));
        format!(
            "s{at}: if (!left--) return at; at += {at}; seed = seed * 1103515245 + 12345; \
            switch (seed >> 16 & 31) {{ {} default: goto s{}; }}\n",
            cases.collect::<String>(),
            (at + 1) % states
        )
    };
    let states: String = (0..states).map(state).collect();
    format!(
        "#include <stdio.h>\n__attribute__((noinline)) unsigned f(unsigned seed, unsigned left) {{ unsigned at = 0; goto s0;\n{states}}}\n\
        int main(void) {{ printf(\"%u\\n\", f(1, 1000)); }}\n"
    )
}

/// Hoisting would make code generation for the instrumented machine three times slower, and ten times slower with 2,000 states.
#[test]
fn jump_table_addresses_are_not_hoisted_in_a_large_state_machine() {
    let place = Place::with(&[("large.c", &generate_state_machine(260)), ("small.c", &generate_state_machine(40))]);
    assert!(place.tool("clang-22", "-O1 large.c -o plain").status.success());
    let said = |output: std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let note = said(place.cc("-O1 large.c -o large"));
    assert!(note.contains("`f` has 260 switches") && note.contains("disabling LLVM's machine LICM"), "{note}");
    assert!(!said(place.cc("-O1 small.c -o small")).contains("machine LICM"));
    place.check("./large", &place.output("./plain"), &[("f", 1), ("main", 1)]);
}
