//! `trodden trace` on programs with computed jumps, such as interpreters. The jumps' targets have instrumented copies like all other code,
//! so that the program does not have to stop at each jump.

use crate::traced::{Folder, errors, must};
use std::collections::BTreeMap;
use trodden_trace::{ThreadNumber, TraceEvent, TraceFile};

/// With an argument, a timer interrupts the interpreter.
const INTERPRETER_PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
static volatile int ticks;
static void tick(int s) { ticks++; }
__attribute__((noinline)) static long add(long a) { return a + 3; }
static long (*volatile step)(long) = add;
__attribute__((noinline)) static long run(const unsigned char *code, long n) {
    static const void *const labels[] = {&&inc, &&twice, &&call, &&loop, &&end};
    const unsigned char *p = code;
    long a = 0;
    goto *labels[*p++];
inc: a += 1; goto *labels[*p++];
twice: a = a * 2 % 1000003; goto *labels[*p++];
call: a = step(a); goto *labels[*p++];
loop: if (--n > 0) p = code; goto *labels[*p++];
end: return a;
}
int main(int argc, char **argv) {
    static const unsigned char code[] = {0, 1, 2, 0, 3, 4};
    struct itimerval every = {{0, 1000}, {0, 1000}};
    if (argc > 1) {
        signal(SIGALRM, tick);
        setitimer(ITIMER_REAL, &every, 0);
    }
    printf("%ld\n", run(code, argc > 1 ? 300000 : 50));
    return argc > 1 && ticks == 0;
}
"#;

/// Options of `trodden trace record`, one entry for each collector that records a single run.
const COLLECTORS: [&[&str]; 2] = [&[], &["--collector", "ptrace"]];

/// Records a program with each collector, checks that its output and blocks equal those of stepping, and returns the blocks.
fn assert_matches_stepping(folder: &Folder, program: &[&str]) -> Vec<String> {
    let expected = folder.record(&["--collector", "single-step"], "stepped.trace", program);
    assert_eq!(expected.status.code(), Some(0), "{}", errors(&expected));
    let blocks = folder.addresses("stepped.trace");
    for options in COLLECTORS {
        let found = folder.record(options, "one.trace", program);
        assert_eq!((found.status.code(), &found.stdout), (Some(0), &expected.stdout), "{options:?}: {}", errors(&found));
        let addresses = folder.addresses("one.trace");
        let parts = addresses.iter().zip(&blocks).position(|(a, b)| a != b);
        assert!(addresses == blocks, "{options:?}: {} and {} blocks, {parts:?}", addresses.len(), blocks.len());
    }
    blocks
}

/// Returns the number of executions of each block, by address.
fn count_executions(folder: &Folder) -> BTreeMap<u64, u64> {
    let trace = TraceFile::open(&folder.path("one.trace")).unwrap();
    let mut counts = BTreeMap::new();
    for event in trace.stream(ThreadNumber(0)).map(Result::unwrap) {
        if let TraceEvent::Block(block) = event {
            *counts.entry(trace.block(block).address).or_default() += 1;
        }
    }
    counts
}

#[test]
fn computed_jumps_are_traced_without_recording_their_targets() {
    for options in [&["-O1", "-fcf-protection=none"][..], &["-O2", "-fno-gcse", "-fcf-protection=full"], &["-O0"]] {
        let folder = Folder::new();
        std::fs::write(folder.path("computed.c"), INTERPRETER_PROGRAM).unwrap();
        let mut compiler = std::process::Command::new("cc");
        must(compiler.args(options).args(["computed.c", "-o", "app"]).current_dir(folder.path("")).output().unwrap());
        let blocks = assert_matches_stepping(&folder, &["./app"]);
        assert!(blocks.len() > 300, "{options:?}: {}", blocks.len());
        // A jump that stopped the program would be recorded in addition to its target, which would give more events than blocks.
        must(folder.record(&[], "one.trace", &["./app"]));
        let trace = TraceFile::open(&folder.path("one.trace")).unwrap();
        let hits = trace.end().runs[0].hits;
        assert!(hits < blocks.len() as u64 + 20, "{options:?}: {hits} hits of {} blocks", blocks.len());
    }
}

#[test]
fn signals_between_a_computed_jump_and_its_target_change_nothing() {
    let folder = Folder::new();
    folder.compile("cc", "computed.c", INTERPRETER_PROGRAM);
    let plain = must(std::process::Command::new(folder.path("app")).arg("x").output().unwrap());
    let recorded = folder.record(&[], "one.trace", &["./app", "x"]);
    assert_eq!((recorded.status.code(), String::from_utf8_lossy(&recorded.stdout).into_owned()), (Some(0), plain), "{}", errors(&recorded));
    let counts = count_executions(&folder);
    let times = |n: u64| counts.values().filter(|count| **count == n).count();
    // The blocks of `twice`, `call`, `loop` and the called function are executed 300,000 times, and that of `inc` 600,000 times.
    assert!(times(300_000) >= 4 && times(600_000) >= 1, "{counts:?}");
    let near = |count: &&u64| (299_900..300_100).contains(*count) || (599_900..600_100).contains(*count);
    let exact = |count: &&u64| matches!(**count, 299_999 | 300_000 | 600_000);
    assert_eq!(counts.values().filter(near).count(), counts.values().filter(near).filter(exact).count(), "{counts:?}");
}

#[test]
fn computed_jumps_change_no_flags_registers_or_memory() {
    let folder = Folder::new();
    folder.compile("cc", "operands.c", include_str!("../cases/jump_operands.c"));
    let plain = must(std::process::Command::new(folder.path("app")).stdin(std::process::Stdio::null()).output().unwrap());
    let sum = 4 * (6 * (100 + 200 + 2 * (0x11 + 0x22 + 0x33 + 0x44)) + (2 + 2 + 8) + (1 + 2 + 3) + 1);
    assert_eq!(plain, format!("{sum}\n"));
    for options in COLLECTORS {
        let recorded = folder.record(options, "one.trace", &["./app"]);
        assert_eq!((recorded.status.code(), String::from_utf8_lossy(&recorded.stdout)), (Some(0), plain.as_str().into()), "{options:?}");
    }
    // With this option, the program does not jump into the middle of a block, which only stepping could record.
    let compiled = ["-O1", "operands.c", "-o", "app", "-DONLY_BLOCKS"];
    must(std::process::Command::new("cc").args(compiled).current_dir(folder.path("")).output().unwrap());
    assert_matches_stepping(&folder, &["./app"]);
}
