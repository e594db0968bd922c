//! `trodden trace` on programs that continue after their trace ends: processes that were already running, and programs that are released
//! when a limit is reached.

use crate::traced::{Folder, errors, must};
use std::process::{Command, Stdio};

#[test]
fn running_processes_can_be_attached_to() {
    let folder = Folder::new();
    let text = "#include <unistd.h>\nstatic volatile int n;\nvoid tick(void) { n++; usleep(1000); }\nint main(void) { for (;;) tick(); }\n";
    folder.compile("cc", "ticks.c", text);
    let mut process = Command::new(folder.path("app")).spawn().unwrap();
    let id = process.id().to_string();
    let mappings = || std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap().lines().count();
    while !std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap().contains("libc") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    let before = mappings();
    // After each trace, the process must be as it was, so that the next trace can attach. Stepping may end at any moment, even while the
    // code is not executable.
    let steps = ["single-step"; 30].map(|collector| (collector, "30ms"));
    for (collector, time) in [("trampolines", "300ms"), ("ptrace", "300ms"), ("trampolines", "300ms")].into_iter().chain(steps) {
        let arguments = ["trace", "record", "--collector", collector, "--pid", &id, "--for", time, "--output", "t.trace"];
        let output = folder.trodden(&arguments);
        assert!(output.status.success(), "{collector}: {}", errors(&output));
        assert!(!folder.addresses("t.trace").is_empty(), "{collector}");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(process.try_wait().unwrap().is_none(), "{collector}");
        if collector == "trampolines" {
            assert_eq!(mappings(), before);
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

/// A program that sleeps, and prints a message if a sleep was cut short or a call was interrupted.
const SLEEPER_PROGRAM: &str = r#"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static long elapsed(const struct timespec *a) {
    struct timespec b;
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (b.tv_sec - a->tv_sec) * 1000000L + (b.tv_nsec - a->tv_nsec) / 1000;
}
int main(void) {
    for (int i = 0;; i++) {
        struct timespec a, want = {0, 150000000};
        clock_gettime(CLOCK_MONOTONIC, &a);
        int failed = i % 2 ? nanosleep(&want, 0) : poll(0, 0, 150);
        if (failed || elapsed(&a) < 149000) { printf("cut: call %d, %d, errno %d, %ld us\n", i % 2, failed, errno, elapsed(&a)); return 1; }
    }
}
"#;

#[test]
fn attaching_does_not_cut_sleeps_short() {
    let folder = Folder::new();
    folder.compile("cc", "sleeper.c", SLEEPER_PROGRAM);
    let mut process = Command::new(folder.path("app")).stdout(Stdio::piped()).spawn().unwrap();
    let id = process.id().to_string();
    while !std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap().contains("libc") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for collector in ["ptrace", "trampolines", "single-step", "ptrace", "trampolines"] {
        let arguments = ["trace", "record", "--collector", collector, "--pid", &id, "--for", "220ms", "--output", "t.trace"];
        let output = folder.trodden(&arguments);
        assert!(output.status.success(), "{collector}: {}", errors(&output));
        if let Some(status) = process.try_wait().unwrap() {
            let mut said = String::new();
            std::io::Read::read_to_string(&mut process.stdout.take().unwrap(), &mut said).unwrap();
            panic!("{collector}: {status} {said}");
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn busy_processes_survive_traces_that_end_at_any_moment() {
    let folder = Folder::new();
    let text = "static volatile int n;\n__attribute__((noinline)) static void tick(void) { n++; }\nint main(void) { for (;;) tick(); }\n";
    folder.compile("cc", "ticks.c", text);
    let mut process = Command::new(folder.path("app")).spawn().unwrap();
    let id = process.id().to_string();
    std::thread::sleep(std::time::Duration::from_millis(100));
    // The process constantly hits breakpoints, even just before it is released. If a breakpoint remained in its code, the process would be
    // killed.
    for time in 0..4 {
        let arguments = ["trace", "record", "--collector", "ptrace", "--pid", &id, "--for", "20ms", "--output", "t.trace"];
        let output = folder.trodden(&arguments);
        assert!(output.status.success(), "{time}: {}", errors(&output));
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(process.try_wait().unwrap().is_none(), "{time}");
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

/// A program in which one thread forks and starts programs with `posix_spawn`, whose child shares the parent's memory at first. Another
/// thread makes short system calls. Any error ends the process.
const FORKING_PROGRAM: &str = r#"
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static void *calls(void *unused) { for (;;) if (usleep(50) || getppid() < 0) abort(); }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, calls, 0);
    for (;;) {
        int status;
        pid_t child = fork();
        if (child < 0) abort();
        if (!child) _exit(getppid() > 0 ? 7 : 8);
        if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7) abort();
        char *arguments[] = { "true", 0 };
        if (posix_spawn(&child, "/bin/true", 0, 0, arguments, environ)) abort();
        if (waitpid(child, &status, 0) != child || status) abort();
    }
}
"#;

#[test]
fn processes_that_fork_and_spawn_survive_traces_that_begin_and_end_at_any_moment() {
    let folder = Folder::new();
    folder.compile("cc", "maker.c", FORKING_PROGRAM);
    for collector in ["single-step", "ptrace", "trampolines"] {
        let mut process = Command::new(folder.path("app")).spawn().unwrap();
        let id = process.id().to_string();
        std::thread::sleep(std::time::Duration::from_millis(50));
        for attach in 0..6 {
            let time = format!("{}ms", 11 + 7 * attach);
            let output =
                folder.trodden(&["trace", "record", "--collector", collector, "--pid", &id, "--for", &time, "--output", "t.trace"]);
            assert!(output.status.success(), "{collector}, {attach}: {}", errors(&output));
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(process.try_wait().unwrap().is_none(), "{collector}, {attach}");
        }
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

/// A program that, like its child, constantly reads the time-stamp counter. In the end, the child executes a different program.
const READER_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>
static volatile unsigned long sum;
__attribute__((noinline)) static void tick(void) { sum += __rdtsc(); usleep(1000); }
static int cores(void) { cpu_set_t set; sched_getaffinity(0, sizeof set, &set); return CPU_COUNT(&set); }
int main(int count, char **arguments) {
    if (count > 2) { sum = __rdtsc(); printf("other %d\n", cores() == atoi(arguments[1])); return 0; }
    pid_t child = fork();
    for (int i = 0; i < (child ? 400 : 500); i++) tick();
    if (!child) execl("./app", "app", arguments[1], "again", (char *)0);
    int status;
    waitpid(child, &status, 0);
    printf("done %d %d\n", status, cores() == atoi(arguments[1]));
    return 0;
}
"#;

#[test]
fn released_programs_continue_with_their_children() {
    let folder = Folder::new();
    folder.compile("cc", "reader.c", READER_PROGRAM);
    let cores = std::thread::available_parallelism().unwrap().to_string();
    let traces = [&[][..], &["--runs", "1"], &["--runs", "1", "--collector", "ptrace"], &["--collector", "single-step"]].map(|options| {
        let options = [options, &["--for", "150ms"]].concat();
        let output = folder.record(&options, "t.trace", &["./app", &cores]);
        assert_eq!(must(output), "other 1\ndone 0 1\n", "{options:?}");
        folder.addresses("t.trace")
    });
    // The traces end at different blocks, because the time limit stops them, but up to the end of the shorter one, they must be equal.
    for trace in &traces {
        assert!(trace.len() > 20, "{:?}", traces.each_ref().map(Vec::len));
        let common = trace.len().min(traces[3].len());
        assert_eq!(trace[..common], traces[3][..common]);
    }
}

/// A program in which one thread queues numbered signals for the other thread. The other thread must get each signal once, in order, with
/// the right information. With an argument, the process restricts itself to reading and writing.
const RECEIVER_PROGRAM: &str = r#"
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
static volatile int last;
static pthread_t receiver;
static void get(int signal, siginfo_t *information, void *context) {
    if (information->si_code != SI_QUEUE || information->si_value.sival_int != last + 1) abort();
    last = information->si_value.sival_int;
}
static void *give(void *unused) {
    for (int i = 1;; i++) {
        union sigval value = { .sival_int = i };
        while (pthread_sigqueue(receiver, SIGRTMIN, value)) usleep(100);
        usleep(50);
    }
}
__attribute__((noinline)) static void tick(void) { static volatile int n; n++; }
int main(int count, char **arguments) {
    if (count > 1) {
        char byte;
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        return read(0, &byte, 1) < 0;
    }
    struct sigaction action = { .sa_sigaction = get, .sa_flags = SA_SIGINFO };
    sigaction(SIGRTMIN, &action, 0);
    receiver = pthread_self();
    pthread_t giver;
    pthread_create(&giver, 0, give, 0);
    for (;;) tick();
}
"#;

#[test]
fn queued_signals_survive_a_trace() {
    let folder = Folder::new();
    folder.compile("cc", "receiver.c", &format!("#define _GNU_SOURCE{RECEIVER_PROGRAM}"));
    let mut process = Command::new(folder.path("app")).spawn().unwrap();
    let id = process.id().to_string();
    std::thread::sleep(std::time::Duration::from_millis(100));
    for collector in ["ptrace", "trampolines", "single-step", "ptrace", "trampolines", "single-step"] {
        let arguments = ["trace", "record", "--collector", collector, "--pid", &id, "--for", "60ms", "--output", "t.trace"];
        let output = folder.trodden(&arguments);
        assert!(output.status.success(), "{collector}: {}", errors(&output));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(process.try_wait().unwrap().is_none(), "{collector}");
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn processes_that_a_trace_would_harm_are_rejected() {
    let folder = Folder::new();
    folder.compile("cc", "receiver.c", &format!("#define _GNU_SOURCE{RECEIVER_PROGRAM}"));
    let refused = |id: u32, why: &str| {
        let output = folder.trodden(&["trace", "record", "--pid", &id.to_string(), "--for", "50ms"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(errors(&output).contains(why), "{}", errors(&output));
    };
    let mut strict = Command::new(folder.path("app")).arg("strict").stdin(Stdio::piped()).spawn().unwrap();
    while !std::fs::read_to_string(format!("/proc/{}/status", strict.id())).unwrap().contains("Seccomp:\t1") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    refused(strict.id(), "it filters its system calls (seccomp)");
    assert!(strict.try_wait().unwrap().is_none());
    strict.kill().unwrap();
    strict.wait().unwrap();
    let mut stopped = Command::new("sleep").arg("60").spawn().unwrap();
    must(Command::new("kill").args(["-STOP", &stopped.id().to_string()]).output().unwrap());
    refused(stopped.id(), "it is stopped by a signal");
    stopped.kill().unwrap();
    stopped.wait().unwrap();
}
