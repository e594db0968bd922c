//! `trodden trace` on programs that were not built for it. Merged traces of several runs are compared with single-stepping, block by block.
//! Further tests are about threads, exceptions, signals, forks, and programs that cannot be traced.

use crate::traced::{Folder, errors, is_installed, must};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

#[test]
fn traces_of_gzip_agree_with_stepping() {
    let folder = Folder::new();
    let blocks = folder.assert_matches_stepping(&["/usr/bin/gzip", "-c", "input"], 0);
    assert!(blocks.len() > 5000, "{} blocks", blocks.len());
    // A single run, and breakpoints instead of trampolines, must give the same trace.
    for options in [&["--runs", "1"][..], &["--runs", "1", "--collector", "ptrace"], &["--runs", "4", "--collector", "ptrace"]] {
        must(folder.record(options, "other.trace", &["/usr/bin/gzip", "-c", "input"]));
        assert!(folder.addresses("other.trace") == blocks, "{options:?}");
    }
    // Witnesses are the blocks that a run records. Each strategy to select them must give the same trace.
    for strategy in ["fine", "grouped", "weighted"] {
        must(folder.record(&["--runs", "3", "--witness-strategy", strategy], "other.trace", &["/usr/bin/gzip", "-c", "input"]));
        assert!(folder.addresses("other.trace") == blocks, "strategy {strategy}");
    }
    let hardware = folder.record_with("--collector hardware", &["--runs", "1"], "no.trace", &["/usr/bin/gzip", "-c", "input"]);
    assert!(errors(&hardware).contains("collector `hardware` can watch"), "{}", errors(&hardware));
}

#[test]
fn traces_of_sed_agree_with_stepping() {
    let folder = Folder::new();
    folder.assert_matches_stepping(&["/usr/bin/sed", "s/a\\(.\\)/\\1b/g", "input"], 0);
}

#[test]
fn traces_of_a_cxx_program_agree_with_stepping() {
    if is_installed("/usr/bin/soelim") {
        Folder::new().assert_matches_stepping(&["/usr/bin/soelim", "input"], 0);
    }
}

#[test]
fn traces_of_grep_which_reads_its_mappings_agree_with_stepping() {
    Folder::new().assert_matches_stepping(&["/usr/bin/grep", "-c", "text", "input"], 0);
}

/// A function in a different file calls back, by name and through a pointer. The callbacks are also called directly, after a call that does
/// not call back.
const CALLED_BACK_PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int calls;
__attribute__((noinline)) int compare(const void *a, const void *b) { calls++; return strcmp(a, b); }
__attribute__((noinline)) int length(const char *text) { int n = strlen(text); return n + compare(text, "b"); }
int main(int argc, char **argv) {
    void (*volatile sort)(void *, size_t, size_t, int (*)(const void *, const void *)) = argc > 9 ? 0 : qsort;
    char words[4][2] = { "d", "a", "c", "b" };
    sort(words, 4, 2, compare);
    qsort(words, 4, 2, compare);
    printf("%s %d %d\n", words[0], length(words[3]), calls);
    return 0;
}
"#;

#[test]
fn callbacks_are_traced() {
    let folder = Folder::new();
    folder.compile("cc", "back.c", CALLED_BACK_PROGRAM);
    folder.assert_matches_stepping(&["./app"], 0);
    must(folder.record(&["--runs", "1"], "one.trace", &["./app"]));
    let calls = must(folder.trodden(&["report", "one.trace"]));
    // Each line has two columns of numbers before the function's name, which is indented by its depth.
    let tree: Vec<(usize, &str)> = calls.lines().map(|line| (line.rfind(' ').unwrap(), line.rsplit(' ').next().unwrap())).collect();
    let main = tree.iter().find(|(_, name)| *name == "main").unwrap_or_else(|| panic!("{calls}")).0;
    assert!(tree.contains(&(main + 2, "compare")) && tree.contains(&(main + 2, "length")), "{calls}");
    assert!(tree.contains(&(main + 4, "compare")) && !tree.contains(&(main + 6, "compare")), "{calls}");
}

/// A program that counts all its mappings, and the mappings of its own file by permissions. It reads the list in pieces of odd sizes.
const MAPPINGS_PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    static char text[1 << 16];
    for (int size = 1; size < 20000; size = size * 3 + 1) {
        int file = open("/proc/self/maps", O_RDONLY), all = 0, read_now, lines = 0, code = 0, own = 0;
        while ((read_now = read(file, text + all, size)) > 0) all += read_now;
        close(file);
        text[all] = 0;
        for (char *line = strtok(text, "\n"); line; line = strtok(0, "\n")) {
            lines++;
            own += strstr(line, "/app") != 0;
            code += strstr(line, "r-xp") != 0;
        }
        printf("%d %d %d\n", lines, own, code);
    }
    return 0;
}
"#;

#[test]
fn programs_see_only_their_own_mappings() {
    let folder = Folder::new();
    folder.compile("cc", "maps.c", MAPPINGS_PROGRAM);
    let plain = must(Command::new(folder.path("app")).output().unwrap());
    // Several runs hide the vDSO, which changes the mappings, unless `--no-repeat time` is given.
    for options in [&["--runs", "2", "--no-repeat", "time"][..], &["--runs", "1"], &["--collector", "single-step"]] {
        assert_eq!(must(folder.record(options, "maps.trace", &["./app"])), plain, "{options:?}");
    }
}

const THROWS_PROGRAM: &str = r#"
#include <cstdio>
#include <stdexcept>
struct Guard { int *n; ~Guard() { ++*n; } };
static int left;
__attribute__((noinline)) int risky(int i) { Guard g{&left}; if (i % 3 == 0) throw std::runtime_error("three"); return i * 2; }
__attribute__((noinline)) int careful(int i) { try { return risky(i); } catch (const std::exception &) { return -1; } }
int main() { int sum = 0; for (int i = 0; i < 8; i++) sum += careful(i); std::printf("%d %d\n", sum, left); return 0; }
"#;

#[test]
fn exceptions_are_traced() {
    let folder = Folder::new();
    folder.compile("c++", "throws.cc", THROWS_PROGRAM);
    folder.assert_matches_stepping(&["./app"], 0);
    let tree = must(folder.trodden(&["report", "merged.trace"]));
    assert!(tree.lines().any(|l| l.contains("careful(int)") && l.trim_start().starts_with("8 ")), "{tree}");
    let found = must(folder.trodden(&["find", "risky", "merged.trace", "--json"]));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&found).unwrap()["times"], 8);
}

/// A program that panics in a recursive function. Some of the destructors that run during unwinding print text.
const PANICS_PROGRAM: &str = r#"
struct Loud(u32);
impl Drop for Loud { fn drop(&mut self) { if self.0 % 2 == 0 { println!("drop {}", self.0); } } }
#[inline(never)] fn descend(n: u32) -> u32 { let guard = Loud(n); if n == 5 { panic!("five"); } descend(n + 1) + guard.0 }
fn careful(n: u32) -> u32 { std::panic::catch_unwind(|| descend(n)).unwrap_or(n) }
fn main() { println!("{}", (2..5).map(careful).sum::<u32>()); }
"#;

#[test]
fn rust_panics_are_traced_in_several_runs() {
    let folder = Folder::new();
    std::fs::write(folder.path("panics.rs"), PANICS_PROGRAM).unwrap();
    let options = ["-O", "-C", "strip=symbols", "panics.rs", "-o", "app"];
    must(Command::new("rustc").current_dir(folder.path("")).args(options).output().unwrap());
    folder.assert_matches_stepping(&["./app"], 0);
}

/// A program that adds up the bytes of its own code.
const CHECKSUM_PROGRAM: &str = r#"
#include <stdio.h>
extern const unsigned char __executable_start, etext;
__attribute__((noinline)) static unsigned sum(const unsigned char *from, const unsigned char *to) {
    unsigned s = 1; for (; from < to; from++) s = s * 31 + *from; return s;
}
int main(void) { printf("%08x\n", sum(&__executable_start, &etext)); return 0; }
"#;

#[test]
fn programs_that_checksum_their_code_see_their_own_bytes_or_are_rejected() {
    let folder = Folder::new();
    folder.compile("cc", "self.c", CHECKSUM_PROGRAM);
    let plain = must(Command::new(folder.path("app")).output().unwrap());
    assert_eq!(must(folder.record(&["--collector", "single-step"], "self.trace", &["./app"])), plain);
    for collector in ["trampolines", "ptrace"] {
        let several = folder.record(&["--runs", "2", "--collector", collector], "no.trace", &["./app"]);
        let said = errors(&several);
        if trodden_trace::has_protection_keys() {
            assert_eq!(must(several), plain, "{collector}: {said}");
            continue;
        }
        assert!(!several.status.success() && said.contains("diverged") && said.contains("--collector single-step"), "{collector}: {said}");
    }
}

/// A program with a `longjmp` from a recursive function to a function that is entered only once.
const JUMPS_PROGRAM: &str = r#"
#include <setjmp.h>
#include <stdio.h>
static jmp_buf out;
__attribute__((noinline)) int descend(int n) { if (n == 6) longjmp(out, n); return descend(n + 1) + 1; }
__attribute__((noinline)) int guarded(int n) { int got = setjmp(out); return got ? got : descend(n); }
int main(void) { printf("%d\n", guarded(2)); return 0; }
"#;

#[test]
fn longjmp_to_a_function_entered_once_is_traced_in_several_runs() {
    let folder = Folder::new();
    folder.compile("cc", "jumps.c", JUMPS_PROGRAM);
    folder.assert_matches_stepping(&["./app"], 0);
}

const THREADS_PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
static int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += i & 3 ? i : -i; return s; }
static void *run(void *p) { return (void *)(long)work((int)(long)p); }
int main(void) {
    pthread_t t[2];
    void *r[2];
    for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, run, (void *)(10 + i));
    for (int i = 0; i < 2; i++) pthread_join(t[i], &r[i]);
    printf("%ld\n", (long)r[0] + (long)r[1]);
    return 0;
}
"#;

#[test]
fn threads_have_separate_streams_in_a_single_run() {
    let folder = Folder::new();
    folder.compile("cc", "threads.c", THREADS_PROGRAM);
    let several = folder.record(&["--runs", "2"], "t.trace", &["./app"]);
    assert_eq!(several.status.code(), Some(2));
    assert!(errors(&several).contains("3 threads") && errors(&several).contains("--runs 1"), "{}", errors(&several));
    must(folder.record(&["--runs", "1"], "t.trace", &["./app"]));
    must(folder.record(&["--collector", "single-step"], "s.trace", &["./app"]));
    for thread in ["0", "1", "2"] {
        let of = |trace: &str| must(folder.trodden(&["export", "addresses", "--thread", thread, trace]));
        assert!(!of("t.trace").is_empty());
        assert_eq!(of("t.trace"), of("s.trace"), "thread {thread}");
    }
    let absent = folder.trodden(&["export", "addresses", "--thread", "7", "t.trace"]);
    assert!(errors(&absent).contains("no thread with number 7"), "{}", errors(&absent));
}

const CANCELLED_THREAD_PROGRAM: &str = r#"
#include <pthread.h>
#include <unistd.h>
static int ends[2];
static volatile int after;
__attribute__((noinline)) static void wait_forever(void) { char byte; read(ends[0], &byte, 1); after = 1; }
static void *run(void *p) { wait_forever(); return p; }
int main(void) {
    pthread_t thread;
    if (pipe(ends)) return 1;
    pthread_create(&thread, 0, run, 0);
    usleep(10000);
    pthread_cancel(thread);
    pthread_join(thread, 0);
    return after;
}
"#;

#[test]
fn code_after_the_call_in_which_a_thread_is_cancelled_is_not_shown() {
    let folder = Folder::new();
    folder.compile("cc", "cancelled.c", CANCELLED_THREAD_PROGRAM);
    must(folder.record(&[], "t.trace", &["./app"]));
    must(folder.record(&["--collector", "single-step"], "s.trace", &["./app"]));
    let of = |trace: &str| must(folder.trodden(&["export", "addresses", "--thread", "1", trace]));
    assert_eq!(of("t.trace"), of("s.trace"));
}

const SIGNALS_PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int traps, alarms;
static void trap(int s) { if (s == SIGTRAP) traps++; else alarms++; }
int main(void) {
    signal(SIGTRAP, trap);
    signal(SIGUSR1, trap);
    for (int i = 0; i < 3; i++) __asm__ volatile("int3");
    raise(SIGTRAP);
    raise(SIGUSR1);
    pid_t child = fork();
    if (child == 0) { int s = 0; for (int i = 0; i < 100; i++) s += i; _exit(s & 1); }
    int status;
    waitpid(child, &status, 0);
    if (vfork() == 0) { execl("/bin/true", "true", (char *)0); _exit(9); }
    wait(&status);
    printf("%d %d %d\n", traps, alarms, WEXITSTATUS(status));
    return 0;
}
"#;

#[test]
fn programs_that_trap_fork_and_get_signals_behave_as_without_tracing() {
    let folder = Folder::new();
    folder.compile("cc", "signals.c", SIGNALS_PROGRAM);
    for options in [["--runs", "1"], ["--collector", "single-step"]] {
        let output = folder.record(&options, "t.trace", &["./app"]);
        let notes = errors(&output);
        assert_eq!(must(output), "4 1 0\n", "{options:?}");
        assert!(notes.contains("that the program started"), "{notes}");
    }
}

const KILLED_PROGRAM: &str = r#"
#include <signal.h>
#include <unistd.h>
static volatile int n;
__attribute__((noinline)) static void deep(int i) { n += i; if (i == 5) kill(getpid(), SIGKILL); }
int main(void) { for (int i = 0; i < 10; i++) deep(i); return 0; }
"#;

#[test]
fn killed_programs_leave_a_trace_of_what_they_executed() {
    let folder = Folder::new();
    folder.compile("cc", "killed.c", KILLED_PROGRAM);
    for options in [["--runs", "2"], ["--runs", "1"]] {
        let output = folder.record(&options, "t.trace", &["./app"]);
        assert_eq!(output.status.code(), Some(128 + 9), "{}", errors(&output));
        assert!(errors(&output).contains("signal 9 ended the program"), "{}", errors(&output));
        let found = must(folder.trodden(&["find", "deep", "t.trace", "--json"]));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&found).unwrap()["times"], 6, "{options:?}");
    }
}

#[test]
fn programs_that_execute_another_are_traced_until_then() {
    let folder = Folder::new();
    let output = folder.record(&["--runs", "1"], "t.trace", &["/usr/bin/env", "echo", "there"]);
    assert!(errors(&output).contains("executed a different program"), "{}", errors(&output));
    assert_eq!(must(output), "there\n");
    assert!(!folder.addresses("t.trace").is_empty());
}

const BRANCHES_PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) static int log_it(int i) { return printf("%d\n", i); }
__attribute__((noinline)) static int common(int i) { return log_it(i) + 1; }
__attribute__((noinline)) static int other(int i) { return log_it(-i) + 2; }
int main(int n, char **v) {
    int s = 0;
    for (int i = 0; i < 4; i++)
        s += i == 2 && n > 1 ? other(i) : common(i);
    return s > 100;
}
"#;

#[test]
fn traces_are_compared_by_their_calls() {
    let folder = Folder::new();
    folder.compile("cc", "branches.c", BRANCHES_PROGRAM);
    must(folder.record(&["--runs", "2"], "a.trace", &["./app"]));
    must(folder.record(&["--runs", "2"], "b.trace", &["./app", "x"]));
    let equal = folder.trodden(&["diff", "--fail", "a.trace", "a.trace"]);
    assert_eq!(must(equal), "the traces are equal\n");
    let differ = folder.trodden(&["diff", "--fail", "a.trace", "b.trace"]);
    assert_eq!(differ.status.code(), Some(1));
    let text = String::from_utf8(differ.stdout).unwrap();
    assert!(text.contains("> main") && text.contains("common") && text.contains("other") && text.contains("branches.c:"), "{text}");
    let absent = folder.trodden(&["diff", "a.trace", "b.trace", "--ignore", "nothing"]);
    assert!(errors(&absent).contains("no function or source file `nothing`"), "{}", errors(&absent));
    // Ranges can start and end at functions that are given by name.
    let lines = must(folder.trodden(&["show", "--from", "main", "--to", "log_it 2", "a.trace"]));
    assert!(lines.lines().next().unwrap().contains("main branches.c:"), "{lines}");
    assert!(lines.lines().last().unwrap().contains("log_it"), "{lines}");
}

#[test]
fn a_trace_can_be_imported_as_a_profile() {
    let folder = Folder::new();
    folder.compile("cc", "branches.c", BRANCHES_PROGRAM);
    must(folder.record(&["--runs", "2"], "a.trace", &["./app"]));
    must(folder.trodden(&["import", "a.trace", "--output", "a.trodden", "--no-store"]));
    let report = must(folder.trodden(&["report", "a.trodden", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let common = report["functions"].as_array().unwrap().iter().find(|f| f["name"] == "common").unwrap();
    assert_eq!(common["executions"], 4, "{common}");
}

#[test]
fn size_limits_end_the_trace_and_only_the_owner_can_read_it() {
    let folder = Folder::new();
    let output = folder.record(&["--runs", "1", "--collector", "ptrace", "--max-size", "1k"], "t.trace", &["/usr/bin/gzip", "-c", "input"]);
    assert!(errors(&output).contains("a limit or a request ended the trace"), "{}", errors(&output));
    assert!(output.status.success(), "{}", errors(&output));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(folder.path("t.trace")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn programs_processes_and_files_that_cannot_be_used_are_named() {
    let folder = Folder::new();
    let says = |program: &[&str], text: &str| {
        let output = folder.record(&[], "t.trace", program);
        assert_eq!(output.status.code(), Some(2), "{program:?}");
        assert!(errors(&output).contains(text), "{program:?}: {}", errors(&output));
    };
    says(&["./nothing-here"], "cannot find program `./nothing-here`");
    says(&["./input"], "is not an ELF file");
    std::fs::write(folder.path("script"), "#!/bin/sh\n").unwrap();
    says(&["./script"], "Pass its interpreter's program");
    let mut small = std::fs::read("/usr/bin/gzip").unwrap();
    small[4] = 1;
    std::fs::write(folder.path("small"), small).unwrap();
    says(&["./small"], "32-bit");
    let absent = folder.record(&["--opaque", "no_such_function"], "t.trace", &["/usr/bin/gzip", "-c", "input"]);
    assert!(errors(&absent).contains("function `no_such_function`, because the program has no such function"), "{}", errors(&absent));
    let missing = folder.trodden(&["trace", "record", "--pid", "999999999"]);
    assert!(errors(&missing).contains("cannot trace process 999999999: it does not exist"), "{}", errors(&missing));
    let several = folder.trodden(&["trace", "record", "--pid", "1", "--runs", "3"]);
    assert!(errors(&several).contains("Omit --runs"), "{}", errors(&several));
    let foreign = folder.trodden(&["show", "input"]);
    assert!(errors(&foreign).contains("cannot recognise the format of input"), "{}", errors(&foreign));
    std::fs::write(folder.path("empty"), "").unwrap();
    let empty = folder.trodden(&["report", "empty"]);
    assert!(errors(&empty).contains("the file is empty"), "{}", errors(&empty));
    must(folder.record(&["--runs", "1"], "t.trace", &["/usr/bin/gzip", "-c", "input"]));
    let whole = std::fs::read(folder.path("t.trace")).unwrap();
    std::fs::write(folder.path("begun"), &whole[..100]).unwrap();
    let begun = folder.trodden(&["report", "begun"]);
    assert!(errors(&begun).contains("the file ends before the description of the program"), "{}", errors(&begun));
    // If buffered output cannot be written, there must be an error.
    for options in [&["report", "--json"][..], &["report"], &["show", "--count", "0"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_trodden"));
        let output = command.args(options).arg(folder.path("t.trace")).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(errors(&output).contains("cannot write to standard output"), "{options:?}: {}", errors(&output));
    }
}

#[test]
fn ocaml_programs_run_as_without_tracing() {
    let program = "/usr/bin/unison";
    if !is_installed(program) {
        return;
    }
    let folder = Folder::new();
    let said = must(Command::new(program).arg("-version").output().unwrap());
    for options in [&["--runs", "1"][..], &["--runs", "1", "--collector", "ptrace"]] {
        assert_eq!(must(folder.record(options, "one.trace", &[program, "-version"])), said, "{options:?}");
        assert!(folder.addresses("one.trace").len() > 10_000, "{options:?}");
    }
}

#[test]
fn graph_of_a_large_program_is_stored_and_used_again() {
    let folder = Folder::new();
    let record = |cache: &str| {
        let mut command = Command::new("setarch");
        command.current_dir(folder.path("")).env("XDG_CACHE_HOME", folder.path(cache)).env_remove("HOME").arg("-R");
        let arguments = ["trace", "record", "--output", "one.trace", "--", "bash", "-c", "echo $((6 * 7))"];
        let output = command.arg(env!("CARGO_BIN_EXE_trodden")).args(arguments).output().unwrap();
        assert_eq!(must(output), "42\n");
        folder.addresses("one.trace")
    };
    let first = record("cache");
    let graphs = folder.path("cache/trodden/graphs");
    let files: Vec<_> = std::fs::read_dir(&graphs).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&files[0]), mode(&graphs)), (0o600, 0o700));
    let written = files[0].metadata().unwrap().ino();
    assert_eq!(record("cache"), first);
    assert_eq!(files[0].metadata().unwrap().ino(), written, "the graph was recovered again");
    // If the stored graph cannot be used, the result is the same.
    std::fs::write(&files[0], "other").unwrap();
    assert_eq!(record("cache"), first);
    assert_ne!(files[0].metadata().unwrap().len(), 5, "the file is replaced");
    std::fs::write(folder.path("file"), "").unwrap();
    assert_eq!(record("file"), first);
}
