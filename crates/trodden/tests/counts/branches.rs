//! Paths from recorded branches: `trodden import` reads the branch trace of a program without counters, and `record --branches` runs with
//! and without a perf that can record branches.
//!
//! Machines that run tests rarely have hardware that records branches. Instead, the oracle single-steps the program and writes what
//! `perf script` would print for its branch trace or for its branch stacks. In the last tests, a script acts as `perf`: it runs the command
//! and prints such a text. The real perf is called, too.

use crate::place::{Place, trodden};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use trodden_oracle::step;
use trodden_profile::Profile;

const PROGRAM: &str = "\
volatile long sink;
__attribute__((noinline)) long collatz(long n) { long steps = 0; while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; steps++; } return steps; }
int main(void) { long s = 0; for (long i = 1; i < 40; i++) s += collatz(i); sink = s; return 3; }
";

/// Builds the program twice and runs both. Returns the profile of the program with counters, and a trace of all branches in the program
/// without them.
fn build_and_trace(program: &str, status: i32) -> (Place, Profile, String) {
    let place = Place::with(&[("prog.c", program)]);
    place.cc("-O1 prog.c -o counted");
    let output = place.command(trodden()).args(["record", "--no-store", "-o", "counted.trodden", "--", "./counted"]).output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    // Linked statically, because most single steps would otherwise be in the dynamic linker.
    place.cc("--trodden=addresses -O1 -static prog.c -o marked");
    let mut trace = Vec::new();
    step::record(&place.path("marked"), &[], Stdio::null(), &place.path(""), &mut trace).unwrap();
    let counted = Profile::read(&place.path("counted.trodden")).unwrap();
    (place, counted, String::from_utf8(trace).unwrap())
}

fn count_paths(profile: &Profile, function: &str) -> Vec<(u64, u64)> {
    let (_, unit, map) = profile.functions().find(|(_, _, f)| f.name == function).unwrap();
    unit.counts_of(map).collect()
}

#[test]
fn programs_with_marked_blocks_are_described() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("--trodden=addresses -O1 prog.c -o marked");
    place.cc("-O1 prog.c -o counted");
    let info = |file: &str| -> serde_json::Value { serde_json::from_slice(&place.trodden(&format!("info --json {file}")).stdout).unwrap() };
    let (marked, counted) = (info("marked"), info("counted"));
    assert_eq!((&marked["functions"], &marked["counters"]), (&counted["functions"], &counted["counters"]));
    assert!(marked["units"][0]["scheme"].as_str().unwrap().contains("observe=addresses"), "{marked}");
}

#[test]
fn imported_trace_gives_exact_counts() {
    let (place, counted, trace) = build_and_trace(PROGRAM, 3);
    place.write("trace.txt", &trace);
    place.trodden("import trace.txt --program marked --no-store -o traced.trodden");
    let traced = Profile::read(&place.path("traced.trodden")).unwrap();
    for function in ["main", "collatz"] {
        assert_eq!(count_paths(&traced, function), count_paths(&counted, function), "{function}");
    }
    let report = String::from_utf8(place.trodden("report traced.trodden").stdout).unwrap();
    assert!(report.contains("collatz") && report.contains("sampled"), "{report}");
    // If the text contains no samples, the error names the fields that perf must print.
    place.write("empty.txt", "");
    let output = place.command(trodden()).args(["import", "empty.txt", "--program", "marked"]).output().unwrap();
    assert!(output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("brstack"), "{output:?}");
    let output = place.command(trodden()).args(["import", "trace.txt", "--program", "counted"]).output().unwrap();
    assert!(output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("--addresses"), "{output:?}");
}

/// In `attempt`, compiled code takes the address of the block after `setjmp` before it calls `setjmp`.
const SECOND_RETURNS_PROGRAM: &str = "\
#include <setjmp.h>
static jmp_buf back;
volatile int sink;
__attribute__((noinline)) static int leaf(int x) { return x > 2 ? x : -x; }
__attribute__((noinline)) static void jump(int n) { if (n & 1) longjmp(back, 1); }
__attribute__((noinline)) static int attempt(int n) { if (setjmp(back)) return leaf(n); jump(n); return 1; }
int main(void) { int sum = 0; for (int i = 0; i < 8; i++) sum += attempt(i); sink = sum; return 0; }
";

#[test]
fn second_return_begins_a_path() {
    let (place, counted, trace) = build_and_trace(SECOND_RETURNS_PROGRAM, 0);
    place.write("trace.txt", &trace);
    place.trodden("import trace.txt --program marked --no-store -o traced.trodden");
    let traced = Profile::read(&place.path("traced.trodden")).unwrap();
    for function in ["main", "attempt", "leaf"] {
        assert_eq!(count_paths(&traced, function), count_paths(&counted, function), "{function}");
    }
}

/// An interpreter with an indirect jump, one target of which is the next instruction.
const NEAR_JUMPS_PROGRAM: &str = "\
enum { INC, DEC, ADD, MUL, JNZ, OUT, SWAP, HALT };
volatile long sink;
__attribute__((noinline)) long run(const unsigned char *code, long a, long b) {
    const unsigned char *at = code;
    for (;;) switch (*at++) {
        case INC: a++; break;
        case DEC: b--; break;
        case ADD: a += b; break;
        case MUL: a = a * 3 & 0xffff; break;
        case JNZ: if (b) at = code + *at; else at++; break;
        case OUT: sink += a; break;
        case SWAP: { long t = a; a = b; b = t; } break;
        case HALT: return a;
        default: return -1;
    }
}
int main(void) {
    unsigned char code[] = { INC, ADD, MUL, OUT, DEC, JNZ, 0, SWAP, INC, HALT };
    for (int i = 1; i < 5; i++) sink += run(code, i, 10 * i);
    return 0;
}
";

#[test]
fn jump_to_the_next_instruction_is_a_branch() {
    let (place, counted, trace) = build_and_trace(NEAR_JUMPS_PROGRAM, 0);
    place.write("trace.txt", &trace);
    place.trodden("import trace.txt --program marked --no-store -o traced.trodden");
    let traced = Profile::read(&place.path("traced.trodden")).unwrap();
    assert_eq!(count_paths(&traced, "run"), count_paths(&counted, "run"));
}

#[test]
fn imported_branch_windows_rank_the_paths() {
    let (place, counted, trace) = build_and_trace(PROGRAM, 3);
    place.write("windows.txt", &step::sample_windows(&trace, 32, 7));
    place.trodden("import windows.txt --program marked --no-store -o sampled.trodden");
    let sampled = Profile::read(&place.path("sampled.trodden")).unwrap();
    let hottest = |profile: &Profile| count_paths(profile, "collatz").into_iter().max_by_key(|c| c.1).unwrap().0;
    assert_eq!(hottest(&sampled), hottest(&counted));
    // Paths that are cut off at the end of a branch sample must not be reported as unfinished.
    let report = String::from_utf8(place.trodden("report sampled.trodden").stdout).unwrap();
    assert!(report.contains("sampled from branch records") && !report.to_lowercase().contains("unfinished"), "{report}");
}

#[test]
fn record_runs_perf_and_imports_its_output() {
    let (place, counted, trace) = build_and_trace(PROGRAM, 3);
    place.write("windows.txt", &step::sample_windows(&trace, 32, 7));
    place.write("trace.txt", &trace);
    // This script acts as `perf record` by running the command after `--`, and as `perf script` by printing the text with the requested
    // fields.
    let stand_in = "#!/bin/sh\nverb=$1\necho \"$@\" >> perf.log\ncase $verb in\n\
                    record) while [ \"$1\" != -- ]; do [ \"$1\" = -o ] && : > \"$2\"; shift; done; shift; exec \"$@\";;\n\
                    script) case \"$*\" in *brstack*) cat windows.txt;; *) cat trace.txt;; esac;;\nesac\n";
    place.write("bin/perf", stand_in);
    fs::set_permissions(place.path("bin/perf"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap());
    for (option, log) in [("--branches", "-b -c 100003 -e branches:u"), ("--branches=trace", "-e intel_pt//u")] {
        let mut record = place.command(trodden());
        record.args(["record", option, "--no-store", "-o", "run.trodden", "--", "./marked"]).env("PATH", &path);
        let output = record.output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let profile = Profile::read(&place.path("run.trodden")).unwrap();
        assert_eq!(profile.run.command, ["./marked"]);
        assert!(count_paths(&profile, "collatz").len() > 1);
        if option == "--branches=trace" {
            assert_eq!(count_paths(&profile, "collatz"), count_paths(&counted, "collatz"));
        }
        assert!(fs::read_to_string(place.path("perf.log")).unwrap().contains(log));
    }
}

#[test]
fn error_names_requirements_where_branches_cannot_be_recorded() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("--trodden=addresses -O1 prog.c -o marked");
    let mut record = place.command(trodden());
    let output = record.args(["record", "--branches", "--", "./marked"]).env("PATH", place.path("nothing")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("perf is not installed"), "{text}");
    // Either outcome is allowed, because this machine may or may not be able to record branches.
    let output = place.command(trodden()).args(["record", "--branches", "--", "./marked"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let reported = ["perf is not installed", "perf_event_paranoid"].iter().any(|w| text.contains(w));
    assert!(output.status.code() == Some(3) || (output.status.code() == Some(2) && reported), "{text}");
}
