//! `trodden trace` on programs that read their own code in situations in which hiding the trace's changes could disturb them. The programs
//! must behave as without a trace.

use crate::traced::{Folder, errors, must};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

const PROGRAM: &str = include_str!("../traced/guarded.c");
const COLLECTORS: [&str; 2] = ["trampolines", "ptrace"];

fn has_protection_keys() -> bool {
    let has = trodden_trace::has_protection_keys();
    if !has {
        eprintln!("skipped: this processor has no memory protection keys");
    }
    has
}

/// Runs the program in each of the `ways`, with and without a trace, and compares the results. `before` is a shell script that runs first.
fn check_ways(before: &str, ways: &[&str]) {
    if !has_protection_keys() {
        return;
    }
    let folder = Folder::new();
    folder.compile("cc", "guarded.c", PROGRAM);
    let run = |line: &[&str]| {
        let mut command = Command::new("setarch");
        command.current_dir(folder.path("")).env_remove("TRODDEN_QUIET").stdin(Stdio::null());
        command.args(["-R", "sh", "-c", &format!("{before}exec \"$@\""), "sh"]).args(line).output().unwrap()
    };
    for way in ways {
        let plain = run(&["./app", way]);
        for collector in COLLECTORS {
            let recorder = [env!("CARGO_BIN_EXE_trodden"), "trace", "record", "--runs", "1", "--collector", collector];
            let traced = run(&[&recorder[..], &["--output", "one.trace", "--", "./app", way]].concat());
            let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said(&traced), said(&plain), "{way} {collector}: {}", errors(&traced));
            let code = |status: ExitStatus| status.code().or(status.signal().map(|signal| 128 + signal));
            assert_eq!(code(traced.status), code(plain.status), "{way} {collector}: {}", errors(&traced));
        }
    }
}

#[test]
fn signal_actions_stay_as_the_program_sets_them() {
    check_ways("", &["reset", "own-actions", "ignored", "inherited"]);
    check_ways("trap '' SEGV TRAP; ", &["inherited"]);
}

#[test]
fn signal_masks_stay_as_the_program_sets_them() {
    check_ways("", &["masks", "handlers", "suspend", "trap-blocked", "raised"]);
}

#[test]
fn program_gets_the_faults_that_it_causes() {
    check_ways("", &["store", "fatal-blocked", "stack", "emulated", "mappings"]);
}

#[test]
fn program_can_use_protection_keys_itself() {
    check_ways("", &["keys", "executable-only"]);
}

#[test]
fn system_calls_that_read_code_have_the_same_results() {
    check_ways("", &["asynchronous", "messages", "queue", "splice", "direct", "short", "consumed", "data", "mapped"]);
}

#[test]
fn threads_processes_and_timers_are_not_disturbed() {
    check_ways("", &["forks", "threads", "traps", "timer", "stopped", "exec"]);
}

#[test]
fn end_of_a_trace_restores_signal_masks_and_actions() {
    if !has_protection_keys() {
        return;
    }
    let folder = Folder::new();
    folder.compile("cc", "guarded.c", PROGRAM);
    let mut process = Command::new(folder.path("app")).current_dir(folder.path("")).arg("loop").stdout(Stdio::piped()).spawn().unwrap();
    let (id, mut output, mut line) = (process.id().to_string(), BufReader::new(process.stdout.take().unwrap()), String::new());
    output.read_line(&mut line).unwrap();
    let signals = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let is_state = |line: &&str| ["SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"].iter().any(|name| line.starts_with(name));
        status.lines().filter(is_state).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = signals();
    for round in 0..10 {
        let (collector, time) = (COLLECTORS[round % 2], format!("{}ms", 60 + 23 * round));
        must(folder.trodden(&["trace", "record", "--collector", collector, "--pid", &id, "--for", &time, "--output", "p.trace"]));
        assert_eq!(signals(), before, "{round} {collector}");
    }
    must(Command::new("kill").args(["-USR1", &id]).output().unwrap());
    line.clear();
    output.read_to_string(&mut line).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0), "{line}");
    assert_eq!(line, "after: 11 own, flags 14000000, blocked\nafter: 5 ignored, flags 14000000, free\n111\n");
}
