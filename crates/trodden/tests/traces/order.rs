//! The common order of threads in a trace (`show --interleave`), and programs whose threads are disturbed while they take order stamps.

use crate::traced::{Folder, errors, must};
use std::process::Command;

/// Two threads take turns: each waits for a byte of the other, executes its function, and sends a byte.
const TURNS_PROGRAM: &str = r#"
#include <pthread.h>
#include <unistd.h>
static int there[2], back[2];
static volatile int sum;
__attribute__((noinline)) static void ping(int i) { sum += i; }
__attribute__((noinline)) static void pong(int i) { sum -= i; }
static void *run(void *p) {
    char byte;
    for (int i = 0; i < 200; i++) {
        if (read(there[0], &byte, 1) != 1) _exit(1);
        pong(i);
        if (write(back[1], &byte, 1) != 1) _exit(1);
    }
    return p;
}
int main(void) {
    pthread_t thread;
    char byte = 7;
    if (pipe(there) || pipe(back) || pthread_create(&thread, 0, run, 0)) return 1;
    for (int i = 0; i < 200; i++) {
        ping(i);
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
    }
    pthread_join(thread, 0);
    return sum;
}
"#;

/// Returns the functions `ping` and `pong` in the order in which `show --interleave` prints their first blocks.
fn shown_turns(folder: &Folder, options: &[&str]) -> Vec<String> {
    let shown = must(folder.trodden(&[&["show", "--interleave", "t.trace"], options].concat()));
    let functions = shown.lines().filter_map(|line| line.split_whitespace().nth(2));
    functions.filter(|function| matches!(*function, "ping" | "pong")).map(str::to_owned).collect()
}

#[test]
fn blocks_of_threads_are_shown_in_the_order_of_their_system_calls() {
    for (compiler, level) in [("cc", "-O1"), ("cc", "-O2"), ("clang-22", "-O0"), ("clang-22", "-O2")] {
        let folder = Folder::new();
        std::fs::write(folder.path("turns.c"), TURNS_PROGRAM).unwrap();
        let arguments = ["-g", level, "-pthread", "turns.c", "-o", "app"];
        must(Command::new(compiler).args(arguments).current_dir(folder.path("")).output().unwrap());
        must(folder.record(&[], "t.trace", &["./app"]));
        let expected: Vec<&str> = ["ping", "pong"].into_iter().cycle().take(400).collect();
        assert_eq!(shown_turns(&folder, &["--count", "0"]), expected, "{compiler} {level}");
        // The 101st pong follows the 101st ping.
        assert_eq!(shown_turns(&folder, &["--from", "pong 101", "--thread", "1", "--count", "0"]), expected[201..], "{compiler} {level}");
    }
}

#[test]
fn threads_without_recorded_order_are_not_interleaved() {
    let folder = Folder::new();
    folder.compile("cc", "turns.c", TURNS_PROGRAM);
    must(folder.record(&["--collector", "ptrace"], "t.trace", &["./app"]));
    let shown = folder.trodden(&["show", "--interleave", "t.trace"]);
    assert!(errors(&shown).contains("Record the trace with `--collector trampolines`"), "{}", errors(&shown));
    must(folder.trodden(&["show", "t.trace"]));
    let one_thread = folder.trodden(&["show", "--interleave", "--thread", "1", "t.trace"]);
    assert!(errors(&one_thread).contains("Leave out --thread, or pass --from"), "{}", errors(&one_thread));
}

/// Two threads make system calls through the C library and on their own, while signals interrupt them. Registers that a stamp uses carry
/// values across the calls.
const INTERRUPTED_PROGRAM: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
static volatile long alarms;
static void on_alarm(int s) { alarms += s != 0; }
__attribute__((noinline)) static long add(long a, long b, long c, long d) { return a + 2 * b + 3 * c + 5 * d + (getppid() == 0); }
static void *run(void *p) {
    unsigned long sum = (unsigned long)p;
    for (long i = 0; i < 1000; i++) {
        long result;
        __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_getppid) : "rcx", "r11", "memory");
        sum = sum * 31 + add(i, i + 1, i + 2, sum & 0xff) + (result == 0);
    }
    return (void *)sum;
}
int main(void) {
    struct itimerval every = { { 0, 300 }, { 0, 300 } };
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &every, 0);
    pthread_t threads[2];
    unsigned long sum = 0;
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, run, (void *)i);
    for (int i = 0; i < 2; i++) { void *one; pthread_join(threads[i], &one); sum = sum * 7 + (unsigned long)one; }
    // The stamps of these calls, which no signal interrupts, fill the ring several times.
    struct itimerval never = { { 0, 0 }, { 0, 0 } };
    setitimer(ITIMER_REAL, &never, 0);
    for (long i = 0; i < 200000; i++) sum = sum * 31 + add(i, i + 1, i + 2, sum & 0xff);
    printf("%lx\n", sum);
    return alarms == 0;
}
"#;

#[test]
fn signals_during_order_stamps_leave_registers_unchanged() {
    let folder = Folder::new();
    folder.compile("cc", "interrupted.c", INTERRUPTED_PROGRAM);
    let plain = must(Command::new(folder.path("app")).output().unwrap());
    for _ in 0..2 {
        assert_eq!(must(folder.record(&[], "t.trace", &["./app"])), plain);
    }
}

/// A thread forbids itself to read the time-stamp counter.
const FORBIDDEN_COUNTER_PROGRAM: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
static volatile long sum;
static void *run(void *p) {
    sigset_t all;
    sigfillset(&all);
    if (p) pthread_sigmask(SIG_BLOCK, &all, 0);
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV)) return 0;
    for (long i = 0; i < 1000; i++) sum += i + (getppid() == 0);
    return 0;
}
int main(void) {
    for (long i = 0; i < 2; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, run, (void *)i);
        pthread_join(thread, 0);
    }
    printf("%ld\n", sum);
    return 0;
}
"#;

#[test]
fn program_may_forbid_the_time_stamp_counter() {
    let folder = Folder::new();
    folder.compile("cc", "forbidden.c", FORBIDDEN_COUNTER_PROGRAM);
    assert_eq!(must(folder.record(&[], "t.trace", &["./app"])), "999000\n");
    must(folder.trodden(&["show", "t.trace", "--interleave"]));
}
