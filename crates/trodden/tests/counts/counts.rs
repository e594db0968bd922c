//! Counts of real programs are exact: with many threads, threads that end early, many processes at the same time, processes that fork, and
//! all ways in which a program can end. The text of each program determines each count.

use crate::place::{Place, executions, trodden};
use serde_json::Value;
use trodden_profile::{FunctionPaths, Profile};

const PROLOGUE: &str = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <setjmp.h>\n#include <signal.h>\n#include <stdio.h>\n#include \
    <stdlib.h>\n\
                    #include <sys/wait.h>\n#include <unistd.h>\n\
                    __attribute__((noinline)) long step(long n) { if (n & 1) { __asm__ volatile(\"nop\"); return n; } return 2 * n; }\n";

fn record(main: &str, status: i32) -> Profile {
    record_with("", main, status)
}

/// Compiles a program with `TRODDEN_INSTRUMENT` set to `parameters`, records it, and checks its exit status.
fn record_with(parameters: &str, main: &str, status: i32) -> Profile {
    let place = Place::with(&[("prog.c", &format!("{PROLOGUE}{main}"))]);
    let mut compile = place.command(trodden());
    compile.args(["cc", "-O2", "-pthread", "prog.c", "-o", "prog"]).env("TRODDEN_INSTRUMENT", parameters);
    assert!(compile.status().unwrap().success());
    let output = place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./prog"]).output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
    Profile::read(&place.path("run.trodden")).unwrap()
}

fn decode_paths(profile: &Profile, name: &str) -> FunctionPaths {
    let mut all = profile.functions().filter(|(_, _, f)| f.name == name);
    let (_, unit, function) = all.next().unwrap_or_else(|| panic!("no function {name}"));
    assert!(all.next().is_none());
    FunctionPaths::decode(function, unit.counts_of(function)).unwrap()
}

/// A program with loops whose trip counts are constants, as the vectoriser leaves them. The second loop takes its back edge once, the first
/// loop never.
const CONSTANT_LOOPS_PROGRAM: &str = "\
target triple = \"x86_64-pc-linux-gnu\"
@sum = global i64 0
define void @walk(i64 %n) noinline {
entry:
  %odd = trunc i64 %n to i1
  br i1 %odd, label %first, label %once
once:
  %i = phi i64 [ 32, %entry ], [ %i.next, %once ]
  %a = load i64, ptr @sum
  %a.next = add i64 %a, %i
  store volatile i64 %a.next, ptr @sum
  %i.next = add i64 %i, 2
  %i.end = icmp eq i64 %i.next, 34
  br i1 %i.end, label %end, label %once
first:
  %j = phi i64 [ 30, %entry ], [ %j.next, %first ]
  %b = load i64, ptr @sum
  %b.next = add i64 %b, %j
  store volatile i64 %b.next, ptr @sum
  %j.next = add i64 %j, 2
  %j.end = icmp eq i64 %j.next, 34
  br i1 %j.end, label %end, label %first
end:
  ret void
}
define i32 @main() {
entry:
  br label %head
head:
  %n = phi i64 [ 0, %entry ], [ %next, %head ]
  call void @walk(i64 %n)
  %next = add i64 %n, 1
  %done = icmp eq i64 %next, 7
  br i1 %done, label %end, label %head
end:
  ret i32 0
}
";

#[test]
fn loops_that_never_take_their_back_edge_have_no_iterations() {
    for trip_counts in ["off", "tight", "on"] {
        let place = Place::with(&[("prog.ll", CONSTANT_LOOPS_PROGRAM)]);
        let mut compile = place.command(trodden());
        compile.args(["cc", "-O0", "prog.ll", "-o", "prog"]).env("TRODDEN_INSTRUMENT", format!("trip-counts={trip_counts}"));
        assert!(compile.status().unwrap().success());
        place.trodden("record --no-store -o run.trodden -- ./prog");
        let walk = decode_paths(&Profile::read(&place.path("run.trodden")).unwrap(), "walk");
        let mut counts: Vec<u64> = walk.complete.iter().map(|p| p.count).filter(|n| *n > 0).collect();
        counts.sort_unstable();
        // In four of the seven calls, no back edge is taken. In the other three, one is taken, so that each call makes two paths.
        assert_eq!((walk.call_count(), counts), (7, vec![3, 3, 4]), "{trip_counts}");
    }
}

#[test]
fn counts_of_sixty_four_threads_are_complete() {
    let profile = record(
        "static void *run(void *p) { long s = 0; for (long i = 0; i < 200000; i++) s += step(i); return (void *)s; }\n\
         int main(void) { pthread_t t[64]; for (int i = 0; i < 64; i++) pthread_create(&t[i], 0, run, 0);\n\
         for (int i = 0; i < 64; i++) pthread_join(t[i], 0); return 0; }",
        0,
    );
    let step = decode_paths(&profile, "step");
    assert_eq!(step.call_count(), 64 * 200_000);
    let mut counts: Vec<u64> = step.complete.iter().map(|p| p.count).collect();
    counts.sort_unstable();
    assert_eq!(counts, [64 * 100_000, 64 * 100_000]);
    assert_eq!(executions(&profile, "run"), Some(64));
}

#[test]
fn threads_that_end_early_are_counted_and_have_unfinished_paths() {
    let profile = record(
        "__attribute__((noinline)) void leave(long n) { step(n); if (n >= 0) pthread_exit(0); }\n\
         static void *run(void *p) { step(1); leave((long)p); step(2); return 0; }\n\
         int main(void) { for (long i = 0; i < 500; i++) { pthread_t t; pthread_create(&t, 0, run, (void *)i); pthread_join(t, 0); } \
         return 0; }",
        0,
    );
    assert_eq!(executions(&profile, "step"), Some(1000));
    let run = decode_paths(&profile, "run");
    assert_eq!((run.call_count(), run.total()), (500, 0));
    assert_eq!(run.unfinished.iter().map(|u| u.count).sum::<i64>(), 500);
}

/// Returns a program that ends, in the given way, ten calls deep.
fn generate_deep_program(end: &str) -> String {
    format!(
        "__attribute__((noinline)) void deep(int n) {{ step(n); if (n == 0) {{ {end}; }} deep(n - 1); step(7); }}\n\
         int main(void) {{ step(1); deep(9); step(2); return 0; }}"
    )
}

#[test]
fn counts_are_complete_however_the_program_ends() {
    for (end, status) in [("exit(3)", 3), ("_exit(4)", 4), ("quick_exit(5)", 5), ("abort()", 134), ("raise(SIGKILL)", 137)] {
        let profile = record(&generate_deep_program(end), status);
        assert_eq!(executions(&profile, "step"), Some(11), "{end}");
        let main = decode_paths(&profile, "main");
        assert_eq!((main.call_count(), main.total()), (1, 0), "{end}");
        // The nine callers in the chain are still in their calls, which never return.
        assert!(decode_paths(&profile, "deep").unfinished.iter().map(|u| u.count).sum::<i64>() >= 9, "{end}");
    }
}

#[test]
fn callers_at_a_crash_are_known_if_all_calls_are_counted() {
    let crash = generate_deep_program("*(volatile int *)0 = 1");
    let profile = record_with("reach=all", &crash, 139);
    assert_eq!(executions(&profile, "step"), Some(11));
    assert_eq!(decode_paths(&profile, "main").unfinished.len(), 1);
    // Nine callers are still in their calls. In the innermost frame, the last call has returned before the crash.
    assert_eq!(decode_paths(&profile, "deep").unfinished.iter().map(|u| u.count).sum::<i64>(), 10);
    // Without `reach=all`, calls that always return are not counted. The callers at the crash are then unknown, but the counts of complete
    // paths are exact.
    let profile = record(&crash, 139);
    assert_eq!(executions(&profile, "step"), Some(11));
    assert!(decode_paths(&profile, "main").unfinished.is_empty());
}

#[test]
fn longjmp_leaves_the_callers_paths_unfinished() {
    let profile = record(
        "static jmp_buf back;\n\
         __attribute__((noinline)) void inner(int n) { step(n); if (n % 3 == 0) longjmp(back, 1); step(n); }\n\
         __attribute__((noinline)) void outer(int n) { inner(n); step(n); }\n\
         int main(void) { for (volatile int i = 0; i < 90; i++) if (setjmp(back) == 0) outer(i); return 0; }",
        0,
    );
    let outer = decode_paths(&profile, "outer");
    assert_eq!((outer.call_count(), outer.total()), (90, 60));
    assert_eq!(outer.unfinished.iter().map(|u| u.count).sum::<i64>(), 30);
    assert_eq!(executions(&profile, "step"), Some(90 + 60 + 60));
    assert_eq!(decode_paths(&profile, "main").call_count(), 1);
}

#[test]
fn forked_processes_have_separate_counts() {
    let profile = record(
        "int main(void) { step(1); for (int i = 0; i < 20; i++) { pid_t p = fork(); if (p == 0) { for (int k = 0; k < 1000; k++) step(k);\n\
         if (i & 1) _exit(0); return 0; } } while (wait(0) > 0) step(2); return 0; }",
        0,
    );
    assert_eq!(executions(&profile, "step"), Some(1 + 20 * 1000 + 20));
    assert_eq!(decode_paths(&profile, "main").call_count(), 1);
}

#[test]
fn counts_of_a_hundred_simultaneous_runs_are_added() {
    let place = Place::with(&[("prog.c", &format!("{PROLOGUE}int main(void) {{ for (long i = 0; i < 5000; i++) step(i); return 0; }}"))]);
    place.cc("-O2 prog.c -o prog");
    let script = "for i in $(seq 100); do ./prog & done; wait";
    let output = place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success());
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    assert_eq!(executions(&profile, "step"), Some(500_000));
    assert_eq!(decode_paths(&profile, "main").call_count(), 100);
}

#[test]
fn exceptions_take_their_own_paths() {
    let place = Place::with(&[(
        "prog.cc",
        "#include <stdexcept>\n\
         struct Guard { ~Guard(); };\nstatic int guards;\nGuard::~Guard() { guards++; }\n\
         __attribute__((noinline)) int thrower(int n) { if (n % 4 == 0) throw std::runtime_error(\"four\"); return n; }\n\
         __attribute__((noinline)) int bare(int n) { int r = thrower(n); return r + 1; }\n\
         __attribute__((noinline)) int guarded(int n) { Guard g; return bare(n) + thrower(n + 1); }\n\
         int main() { int caught = 0; for (int i = 0; i < 100; i++) try { guarded(i); } catch (const std::exception &) { caught++; }\n\
         return caught == 50 && guards == 100 ? 0 : 1; }\n",
    )]);
    place.cxx("-O2 prog.cc -o prog");
    let (_, profile) = place.record("prog");
    let bare = decode_paths(&profile, "_Z4barei");
    assert_eq!((bare.call_count(), bare.total()), (100, 75));
    assert_eq!(bare.unfinished.iter().map(|u| u.count).sum::<i64>(), 25);
    // The guarded function continues unwinding with its own code, so all its paths are complete.
    let guarded = decode_paths(&profile, "_Z7guardedi");
    assert_eq!((guarded.call_count(), guarded.total()), (100, 100));
    assert!(guarded.are_all_paths_finished());
}

#[test]
fn measured_weights_are_used_by_a_later_build() {
    // One of the loops iterates a hundred times, so that it is counted by trip count if weights are known. The other loop is not.
    let source = "#include <stdio.h>\n__attribute__((noinline)) int sum(const int *a, int n, int odd) {\n  int s = odd ? 7 : 1;\n  for \
        (int i = 0; i < n; i++) s = s * 3 + a[i];\n  \
                  return s;\n}\nint main(void) { int a[100] = {1, 2}, t = 0; for (int i = 0; i < 9; i++) t += sum(a, i % 3 ? 100 : i / \
                  3, i & 1);\n  printf(\"%d\\n\", t); return 0; }\n";
    let place = Place::with(&[("main.c", source)]);
    place.cc("-O1 main.c -o prog");
    let (first, profile) = place.record("prog");
    place.trodden("export weights run.trodden -o prog.weights");
    place.trodden("instrument prog -o tuned --weights prog.weights");
    assert!(place.image("tuned").frames[0].map().unwrap().experiment.placement().weights.is_some());
    let (second, tuned) = place.record("tuned");
    assert_eq!(first, second);
    for function in ["sum", "main"] {
        let (before, after) = (decode_paths(&profile, function), decode_paths(&tuned, function));
        assert_eq!((before.blocks, before.edges), (after.blocks, after.edges), "{function}");
        assert!(before.complete.iter().any(|p| p.count >= 5));
    }
    for (file, message) in [("main.c", "trodden export weights"), ("missing", "cannot read missing")] {
        let output = place.command(trodden()).args(["instrument", "prog", "-o", "other", "--weights", file]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(message), "{text}");
    }
}

/// The function ends with a call to a function that may jump away. A tail call ends the path; an ordinary call may leave the path
/// unfinished.
#[test]
fn path_that_ends_with_a_tail_call_does_not_end_with_a_return() {
    const PROGRAM: &str = "#include <setjmp.h>\n#include <stdio.h>\n\
        static jmp_buf out;\n\
        __attribute__((noinline)) void value(int n) { if (n % 3 == 0) longjmp(out, 1); __asm__ volatile(\"\" ::: \"memory\"); }\n\
        __attribute__((noinline)) void other(int n) { __asm__ volatile(\"\" ::: \"memory\"); if (n == 99) puts(\"x\"); }\n\
        __attribute__((noinline)) void parse(int n) { if (n & 1) { other(n); value(n & 63); } else { other(n); } }\n\
        int main(void) { volatile int i; for (i = 0; i < 90; i++) if (setjmp(out) == 0) parse(i); return 0; }\n";
    let place = Place::with(&[("a.c", PROGRAM)]);
    for (options, calls) in [("-O2", 45), ("-O2 -fno-optimize-sibling-calls", 30)] {
        place.cc(&format!("{options} -g a.c -o prog"));
        place.record("prog");
        let report: Value = serde_json::from_slice(&place.trodden("report --json --top 99 run.trodden").stdout).unwrap();
        let (paths, functions) = (report["paths"].as_array().unwrap(), report["functions"].as_array().unwrap());
        let of = |name: &str| -> Vec<(u64, &str)> {
            let own = paths.iter().filter(|p| functions[p["function"].as_u64().unwrap() as usize]["name"] == name);
            own.map(|p| (p["count"].as_u64().unwrap(), p["ends"]["by"].as_str().unwrap())).collect()
        };
        let jumps = if calls == 45 { "tail call" } else { "return" };
        assert!(of("parse").contains(&(calls, jumps)), "{options}: {:?}", of("parse"));
        assert!(of("value").iter().all(|(_, by)| *by != "tail call"), "{options}: assembly is no call: {:?}", of("value"));
        let parse = functions.iter().find(|f| f["name"] == "parse").unwrap();
        let unfinished = parse["unfinished"].as_array().into_iter().flatten();
        let left: i64 = unfinished.map(|p| p["count"].as_i64().unwrap()).sum();
        assert_eq!(left, 45 - calls as i64, "{options}");
    }
}
