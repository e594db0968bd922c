//! The tracer is a separate process. However the command ends, traced programs must continue as if they had never been traced, and no
//! temporary files may remain. A program that the command starts must have the same session, terminal and descriptors as without the
//! command.

use crate::traced::{Folder, errors, is_installed, must};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Creates a `trodden` command that puts its temporary files in `tmp`.
fn trodden_command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trodden"));
    let _ = fs::create_dir(folder.path("tmp"));
    command.current_dir(folder.path("")).env("TMPDIR", folder.path("tmp")).env("RUST_BACKTRACE", "0").args(arguments);
    command
}

fn list_temporary_files(folder: &Folder) -> Vec<PathBuf> {
    fs::read_dir(folder.path("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Returns a field of `/proc/PID/status`, or `None` if the process does not exist.
fn read_status(process: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|value| value.trim().to_owned())
}

/// A program that works until the file `finish` exists. Then it reports whether its results were right, and whether its code equals that in
/// its file.
const WORKER_PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
extern char __executable_start, etext;
static char code[1 << 16];
__attribute__((noinline)) static unsigned step(unsigned n) { return n % 3 ? n / 2 : n * 5 + 1; }
int main(void) {
    FILE *f = fopen("began", "w");
    fprintf(f, "%d\n", getpid());
    fclose(f);
    rename("began", "ready");
    unsigned wrong = 0;
    while (access("finish", F_OK)) {
        unsigned sum = 0;
        for (unsigned i = 0; i < 200; i++) sum += step(i);
        wrong += sum != 39932;
        usleep(500);
    }
    int file = open("/proc/self/exe", O_RDONLY);
    long size = &etext - (char *)main;
    pread(file, code, size, (char *)main - &__executable_start);
    f = fopen("end", "w");
    fprintf(f, "%u wrong, code %s\n", wrong, memcmp(code, main, size) ? "changed" : "as it was");
    fclose(f);
    rename("end", "result");
    return 0;
}
"#;

fn create_worker() -> Folder {
    let folder = Folder::new();
    // The expected result is computed here and put into the program.
    let sum: u32 = (0..200u32).map(|n| if n % 3 != 0 { n / 2 } else { n * 5 + 1 }).sum();
    folder.compile("cc", "worker.c", &WORKER_PROGRAM.replace("39932", &sum.to_string()));
    folder
}

/// Waits until the program has begun to work. Returns its process ID.
fn wait_until_ready(folder: &Folder) -> String {
    wait_until("the program does not begin", || folder.path("ready").exists());
    fs::read_to_string(folder.path("ready")).unwrap().trim().to_owned()
}

/// Checks that the program is no longer traced, and that it finishes with the right results.
fn check_continues(folder: &Folder, process: &str, case: &str) {
    wait_until(&format!("{case}: it is not let go"), || read_status(process, "TracerPid").is_none_or(|tracer| tracer == "0"));
    wait_until(&format!("{case}: {:?}", list_temporary_files(folder)), || list_temporary_files(folder).is_empty());
    fs::write(folder.path("finish"), "").unwrap();
    wait_until(&format!("{case}: it has no result"), || folder.path("result").exists());
    assert_eq!(fs::read_to_string(folder.path("result")).unwrap(), "0 wrong, code as it was\n", "{case}");
    ["ready", "finish", "result"].iter().for_each(|name| fs::remove_file(folder.path(name)).unwrap());
}

#[test]
fn programs_survive_the_command_that_started_them() {
    let folder = create_worker();
    for collector in ["trampolines", "ptrace", "single-step"] {
        let arguments = ["trace", "record", "--runs", "1", "--collector", collector, "--output", "t.trace", "--", "./app"];
        let mut command = trodden_command(&folder, &arguments).stdin(Stdio::null()).spawn().unwrap();
        let process = wait_until_ready(&folder);
        assert!(read_status(&process, "TracerPid").unwrap() != "0" && !list_temporary_files(&folder).is_empty());
        command.kill().unwrap();
        assert_eq!(command.wait().unwrap().signal(), Some(9));
        check_continues(&folder, &process, collector);
        wait_until("the program ends", || read_status(&process, "State").is_none_or(|state| state.starts_with('Z')));
    }
}

#[test]
fn children_survive_the_command_that_traces_them() {
    let folder = create_worker();
    for collector in ["trampolines", "ptrace"] {
        let arguments = ["trace", "record", "--follow", "--collector", collector, "--output", "t.trace", "--", "sh", "-c", "./app & wait"];
        let mut command = trodden_command(&folder, &arguments).stdin(Stdio::null()).spawn().unwrap();
        let process = wait_until_ready(&folder);
        command.kill().unwrap();
        command.wait().unwrap();
        check_continues(&folder, &process, collector);
    }
}

#[test]
fn traces_of_children_that_outlive_the_program_end_with_a_signal_and_are_kept() {
    let folder = create_worker();
    let arguments = ["trace", "record", "--follow", "--output", "t.trace", "--", "sh", "-c", "./app &"];
    // The child keeps the output open, so it is a file.
    let notes = fs::File::create(folder.path("notes")).unwrap();
    let mut command = trodden_command(&folder, &arguments).stdin(Stdio::null()).stderr(notes).spawn().unwrap();
    let process = wait_until_ready(&folder);
    let command_process = nix::unistd::Pid::from_raw(command.id() as i32);
    wait_until("the command does not end", || {
        // Signals that arrive before the shell has ended are meant for the shell.
        let _ = nix::sys::signal::kill(command_process, nix::sys::signal::Signal::SIGTERM);
        std::thread::sleep(Duration::from_millis(50));
        command.try_wait().unwrap().is_some()
    });
    check_continues(&folder, &process, "SIGTERM");
    let notes = fs::read_to_string(folder.path("notes")).unwrap();
    assert!(notes.contains("of `./app` in t.trace."), "{notes}");
}

#[test]
fn several_runs_end_with_the_command_and_their_program_continues() {
    let folder = create_worker();
    let mut command = trodden_command(&folder, &["trace", "record", "--runs", "4", "--output", "t.trace", "--", "./app"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let process = wait_until_ready(&folder);
    // With several runs, each run sees the same made-up process ID instead of its own.
    let traced = || fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str().map(str::to_owned));
    let is_traced_program = |p: &String| fs::read_link(format!("/proc/{p}/exe")).is_ok_and(|exe| exe == folder.path("app"));
    let process = traced().find(is_traced_program).unwrap_or(process);
    command.kill().unwrap();
    command.wait().unwrap();
    wait_until("it is let go", || read_status(&process, "TracerPid").is_none_or(|tracer| tracer == "0"));
    fs::write(folder.path("finish"), "").unwrap();
    wait_until("it has no result", || folder.path("result").exists());
    assert_eq!(fs::read_to_string(folder.path("result")).unwrap(), "0 wrong, code as it was\n");
    wait_until("something is left", || list_temporary_files(&folder).is_empty());
}

/// Starts a process, and then a command that traces this process.
fn attach_recorder(folder: &Folder, collector: &str) -> (Child, Child) {
    let program = Command::new(folder.path("app")).current_dir(folder.path("")).spawn().unwrap();
    let process = wait_until_ready(folder);
    let arguments = ["trace", "record", "--collector", collector, "--pid", &process, "--output", "t.trace"];
    let command = trodden_command(folder, &arguments).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it is not traced", || read_status(&process, "TracerPid").is_some_and(|tracer| tracer != "0"));
    (program, command)
}

#[test]
fn processes_survive_the_command_that_traces_them() {
    let folder = create_worker();
    for collector in ["trampolines", "ptrace"] {
        let (mut program, mut command) = attach_recorder(&folder, collector);
        command.kill().unwrap();
        command.wait().unwrap();
        check_continues(&folder, &program.id().to_string(), collector);
        assert!(program.wait().unwrap().success());
    }
}

#[test]
fn every_signal_ends_the_trace_of_a_process_and_keeps_it() {
    let folder = create_worker();
    for signal in ["INT", "TERM", "HUP", "QUIT", "USR1", "ALRM"] {
        let (mut program, command) = attach_recorder(&folder, "ptrace");
        must(Command::new("kill").args(["-s", signal, &command.id().to_string()]).output().unwrap());
        let output = command.wait_with_output().unwrap();
        assert!(output.status.success(), "{signal}: {}", errors(&output));
        must(folder.trodden(&["report", "t.trace"]));
        check_continues(&folder, &program.id().to_string(), signal);
        assert!(program.wait().unwrap().success(), "{signal}");
    }
}

#[test]
fn signals_before_anything_runs_end_the_command_and_leave_nothing() {
    let folder = create_worker();
    for (signal, number) in [("TERM", 15), ("INT", 2), ("QUIT", 3), ("USR2", 12)] {
        // Because several runs get the same input, the recorder first reads its input to the end, which never comes here.
        let mut command =
            trodden_command(&folder, &["trace", "record", "--runs", "4", "--", "./app"]).stdin(Stdio::piped()).spawn().unwrap();
        let input = command.stdin.take();
        wait_until("it does not begin", || !list_temporary_files(&folder).is_empty());
        must(Command::new("kill").args(["-s", signal, &command.id().to_string()]).output().unwrap());
        assert_eq!(command.wait().unwrap().code(), Some(128 + number), "{signal}");
        assert!(list_temporary_files(&folder).is_empty(), "{signal}: {:?}", list_temporary_files(&folder));
        assert!(!folder.path("ready").exists() && input.is_some());
    }
}

/// A program that prints its session, process group, terminal and descriptors in one line.
const SURROUNDINGS_PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    printf("%d %d %d %d %d%d%d", getsid(0), getpgrp(), tcgetpgrp(0), getpid() == getpgrp(), isatty(0), isatty(1), isatty(2));
    for (int descriptor = 3; descriptor < 64; descriptor++) if (fcntl(descriptor, F_GETFD) >= 0) printf(" %d", descriptor);
    puts("");
    return 0;
}
"#;

/// Runs a shell command in a separate terminal. As soon as a file exists, writes some bytes to the terminal. Returns the output and the
/// exit status.
fn run_in_terminal(folder: &Folder, line: &str, written: Option<(&str, &[u8])>) -> (String, ExitStatus) {
    let _ = fs::create_dir(folder.path("tmp"));
    let mut script = Command::new("script");
    script.current_dir(folder.path("")).env("TMPDIR", folder.path("tmp")).args(["-qe", "-c", line, "/dev/null"]);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    if let Some((file, bytes)) = written {
        wait_until("the program does not begin", || folder.path(file).exists());
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    drop(input);
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status)
}

#[test]
fn programs_have_the_session_and_descriptors_that_they_have_without_the_recorder() {
    if !is_installed("/usr/bin/script") {
        return;
    }
    let folder = Folder::new();
    folder.compile("cc", "stands.c", SURROUNDINGS_PROGRAM);
    let trodden = env!("CARGO_BIN_EXE_trodden");
    let (said, status) = run_in_terminal(&folder, &format!("./app; {trodden} trace record --runs 1 --output t.trace -- ./app"), None);
    assert!(status.success(), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| !line.contains("trodden")).collect();
    assert!(lines.len() == 2 && lines[0] == lines[1] && lines[0].contains(" 0 111"), "{said}");
}

/// A program that counts interrupts. After the first interrupt, it waits some time for a second one.
const INTERRUPTED_PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile int interrupts;
static void interrupt(int s) { interrupts++; }
int main(int count, char **arguments) {
    if (count == 1) signal(SIGINT, interrupt);
    for (int i = 0; i < 20; i++) usleep(1);
    fclose(fopen("ready", "w"));
    while (!interrupts) usleep(1000);
    for (int i = 0; i < 200; i++) usleep(1000);
    printf("%d interrupt\n", interrupts);
    return 5;
}
"#;

#[test]
fn terminal_interrupts_reach_the_program_once_and_the_trace_is_kept() {
    if !is_installed("/usr/bin/script") {
        return;
    }
    let folder = Folder::new();
    folder.compile("cc", "interrupted.c", INTERRUPTED_PROGRAM);
    let trodden = env!("CARGO_BIN_EXE_trodden");
    for (argument, code) in [("", 5), ("x", 128 + 2)] {
        let line = format!("exec {trodden} trace record --runs 1 --output t.trace -- ./app {argument}");
        let (said, status) = run_in_terminal(&folder, &line, Some(("ready", b"\x03")));
        assert_eq!(status.code(), Some(code), "{said}");
        assert_eq!(said.contains("1 interrupt"), code == 5, "{said}");
        let trace = must(folder.trodden(&["report", "t.trace"]));
        assert!(trace.lines().any(|line| line.ends_with(" main")) && folder.addresses("t.trace").len() > 10, "{said}\n{trace}");
        assert!(list_temporary_files(&folder).is_empty(), "{:?}", list_temporary_files(&folder));
        ["ready", "t.trace"].iter().for_each(|name| fs::remove_file(folder.path(name)).unwrap());
    }
}

/// A program with a jump to a target to which nothing refers. `BEFORE` stands for bytes in front of the target. Each execution appends a
/// line to `count`.
const HIDDEN_PROGRAM: &str = r#"
#include <stdio.h>
volatile long hidden = 0x12345;
__attribute__((noinline)) int jump(int n) {
  int r = n;
  __asm__ volatile("leaq 1f-0x12345(%%rip), %%rax\n\taddq %1, %%rax\n\tcmpl $3, %0\n\tjg 2f\n\tjmp *%%rax\n2:\tnop\n"
           "\tjmp 3f\n\t.p2align 4\nBEFORE1:\taddl $7, %0\n\tnop\n3:\n" : "+c"(r) : "m"(hidden) : "rax", "cc");
  return r;
}
int main(void) { FILE *f = fopen("count", "a"); fprintf(f, "ran\n"); fclose(f); printf("%d\n", jump(1)); return 0; }
"#;

/// Traces [`HIDDEN_PROGRAM`] with each collector, with the bytes `before` in front of the jump's target. Returns, for each collector,
/// whether a note says that blocks are missing, and the recorded blocks.
fn trace_hidden_program(before: &str) -> Vec<(bool, Vec<String>)> {
    let folder = Folder::new();
    folder.compile("cc", "hidden.c", &HIDDEN_PROGRAM.replace("BEFORE", before));
    let trace = |collector: &&str| {
        let output = folder.record(&["--runs", "1", "--collector", collector], "t.trace", &["./app"]);
        let said = errors(&output);
        assert_eq!(must(output), "8\n");
        assert_eq!(fs::read_to_string(folder.path("count")).unwrap(), "ran\n", "{collector}");
        fs::remove_file(folder.path("count")).unwrap();
        (said.contains("blocks are missing after 1 indirect jump"), folder.addresses("t.trace"))
    };
    ["trampolines", "ptrace", "single-step"].iter().map(trace).collect()
}

#[test]
fn single_runs_execute_the_program_once_and_say_what_they_lack() {
    // The byte 0xb8 makes the target look like the operand of one longer instruction.
    let traces = trace_hidden_program("\\t.byte 0xb8\\n");
    assert_eq!(traces.iter().map(|trace| trace.0).collect::<Vec<_>>(), [true, true, false], "{traces:?}");
    assert_eq!(traces[0].1, traces[1].1);
    // Only stepping records the code at the target.
    assert!(traces[2].1.len() > traces[0].1.len(), "{traces:?}");
}

#[test]
fn blocks_between_others_are_recorded_even_if_nothing_refers_to_them() {
    let traces = trace_hidden_program("");
    assert!(traces.iter().all(|trace| !trace.0 && trace.1 == traces[2].1), "{traces:?}");
}

/// A program that starts a daemon. The daemon keeps the program's output open as long as the program's file exists.
const DAEMON_PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
int main(void) {
    if (fork() == 0) { setsid(); while (!access("app", F_OK)) usleep(5000); _exit(0); }
    printf("done\n");
    return 3;
}
"#;

#[test]
fn daemons_that_hold_the_output_are_not_waited_for() {
    let folder = Folder::new();
    folder.compile("cc", "daemon.c", DAEMON_PROGRAM);
    for runs in ["1", "2"] {
        let out = fs::File::create(folder.path("out")).unwrap();
        let arguments = ["trace", "record", "--runs", runs, "--output", "t.trace", "--", "./app"];
        let mut command = trodden_command(&folder, &arguments).stdin(Stdio::null()).stdout(out).spawn().unwrap();
        let mut ended = None;
        wait_until("it waits for the daemon", || {
            ended = command.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), Some(3), "{runs}");
        assert_eq!(fs::read_to_string(folder.path("out")).unwrap(), "done\n", "{runs}");
    }
}

#[test]
fn suite_programs_survive_the_command() {
    let folder = create_worker();
    let mut command = trodden_command(&folder, &["record", "--suite", "tests", "--", "sh", "-c", "./app; exit 4"]).spawn().unwrap();
    let process = wait_until_ready(&folder);
    command.kill().unwrap();
    command.wait().unwrap();
    check_continues(&folder, &process, "suite");
}

#[test]
fn signals_inherited_as_ignored_stay_ignored() {
    let folder = Folder::new();
    folder.compile("cc", "app.c", "int main(void) { return 0; }\n");
    let status_of = |prefix: &str| {
        let line = format!("trap '' INT USR1; {prefix} cat /proc/self/status");
        let mut shell = Command::new("sh");
        shell.current_dir(folder.path("")).args(["-c", &line]);
        let said = must(shell.output().unwrap());
        ["SigBlk:", "SigIgn:", "SigCgt:"].map(|name| said.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned())
    };
    let trodden = env!("CARGO_BIN_EXE_trodden");
    let plain = status_of("");
    assert_eq!(status_of(&format!("{trodden} trace record --runs 1 --output t.trace --")), plain);
    assert_eq!(status_of(&format!("{trodden} record --suite tests --")), plain);
}

/// With `ptrace_scope` 1, Yama lets a process trace only its own descendants.
#[test]
fn started_programs_may_be_traced_under_yama() {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !matches!(scope.trim(), "1") {
        eprintln!("skipped: this kernel has no Yama with ptrace_scope 1");
        return;
    }
    let folder = create_worker();
    fs::write(folder.path("finish"), "").unwrap();
    must(folder.record(&["--runs", "1"], "t.trace", &["./app"]));
}
