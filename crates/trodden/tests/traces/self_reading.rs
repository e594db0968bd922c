//! `trodden trace` on programs that read their own code. They must see their original bytes, whatever the tracer has written into the code.
//! Hiding such changes needs memory protection keys.

use crate::traced::{Folder, errors, must};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATCHING_COLLECTORS: [&[&str]; 2] = [&["--runs", "1"], &["--runs", "1", "--collector", "ptrace"]];

/// Returns true if the processor has memory protection keys. Without them, programs see the tracer's changes.
fn has_protection_keys() -> bool {
    let has = trodden_trace::has_protection_keys();
    if !has {
        eprintln!("skipped: this processor has no memory protection keys");
    }
    has
}

/// A program that reads all of its code, in the way that its argument names, and compares it with its file. It ends with status 3 if they
/// differ.
const READS_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
extern const unsigned char __executable_start, etext;
static const unsigned char *begin;
static size_t length;
static unsigned char *original;
static volatile sig_atomic_t ticks, is_over;
static void tick(int s) { ticks++; }
static void end(int s) { is_over = 1; }
__attribute__((noinline)) unsigned mix(unsigned sum, unsigned char byte) { if (byte & 1) return sum * 31 + byte; return sum * 33 + byte; }
__attribute__((noinline)) unsigned sum(const unsigned char *at, size_t length) {
    unsigned sum = 1;
    for (size_t i = 0; i < length; i++) sum = sum * 31 + at[i];
    return sum;
}
__attribute__((noinline)) int collatz(int n) { int steps = 0; while (n > 1) { n = n & 1 ? 3 * n + 1 : n / 2; steps++; } return steps; }
static void check(int is_right) { if (!is_right) { write(2, "differs\n", 8); _exit(3); } }
static void *sums(void *rounds) {
    unsigned expected = sum(original, length);
    for (long i = 0; i < (long)rounds; i++) { check(sum(begin, length) == expected); check(collatz(27) == 111); }
    return 0;
}
static void compare(int file) {
    unsigned char *copy = malloc(length);
    check(pread(file, copy, length, 0) == (ssize_t)length && !memcmp(copy, original, length));
    close(file);
}
int main(int count, char **arguments) {
    const char *how = arguments[1];
    begin = &__executable_start;
    length = &etext - begin;
    original = malloc(length);
    int file = open("/proc/self/exe", O_RDONLY), copy = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (read(file, original, length) != (ssize_t)length || copy < 0) return 1;
    if (!strcmp(how, "sum")) {
        printf("%u\n", sum(begin, length));
    } else if (!strcmp(how, "calls")) {
        unsigned s = 1;
        for (const unsigned char *at = (const unsigned char *)mix; at < (const unsigned char *)mix + 300; at++) s = mix(s, *at);
        printf("%u\n", s);
    } else if (!strcmp(how, "compare")) {
        check(!memcmp(begin, original, length));
        unsigned char *moved = malloc(length);
        memcpy(moved, begin, length);
        check(!memcmp(moved, original, length));
        void *to = memset(moved, 0, length);
        const void *from = begin;
        size_t left = length;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(left) : : "memory");
        check(!memcmp(moved, original, length));
    } else if (!strcmp(how, "threads")) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, sums, (void *)3);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    } else if (!strcmp(how, "signals")) {
        struct itimerval every = {{0, 700}, {0, 700}};
        signal(SIGALRM, tick);
        setitimer(ITIMER_REAL, &every, 0);
        while (ticks < 100) sums((void *)1);
    } else if (!strcmp(how, "write")) {
        check(write(copy, begin, length) == (ssize_t)length);
        compare(copy);
    } else if (!strcmp(how, "fwrite")) {
        FILE *stream = fdopen(copy, "w+");
        check(fwrite(begin, 1, length, stream) == length && !fflush(stream));
        compare(copy);
    } else if (!strcmp(how, "vectors")) {
        struct iovec parts[] = {{(void *)begin, 100}, {(void *)begin + 100, length - 200}, {(void *)begin + length - 100, 100}};
        check(writev(copy, parts, 3) == (ssize_t)length);
        compare(copy);
        int ends[2];
        socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
        struct msghdr message = {.msg_iov = parts + 1, .msg_iovlen = 2};
        size_t sent = sendmsg(ends[0], &message, MSG_DONTWAIT);
        unsigned char *got = malloc(length);
        check(sent == length - 100 && recv(ends[1], got, length, 0) == (ssize_t)sent && !memcmp(got, original + 100, sent));
    } else if (!strcmp(how, "memory")) {
        int memory = open("/proc/self/mem", O_RDONLY);
        unsigned char *got = malloc(length);
        check(pread(memory, got, length, (uintptr_t)begin) == (ssize_t)length && !memcmp(got, original, length));
        struct iovec to[] = {{got, 1000}, {got + 1000, length - 1000}};
        struct iovec from[] = {{(void *)begin, 3000}, {(void *)begin + 3000, length - 3000}};
        memset(got, 0, length);
        check(preadv(memory, to, 2, (uintptr_t)begin) == (ssize_t)length && !memcmp(got, original, length));
        memset(got, 0, length);
        check(process_vm_readv(getpid(), to, 2, from, 2, 0) == (ssize_t)length && !memcmp(got, original, length));
    } else if (!strcmp(how, "blocked")) {
        sigset_t all, old;
        signal(SIGSEGV, end);
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, 0);
        sums((void *)2);
        sigprocmask(SIG_SETMASK, 0, &old);
        struct sigaction action;
        sigaction(SIGSEGV, 0, &action);
        check(action.sa_handler == end && sigismember(&old, SIGSEGV) && sigismember(&old, SIGTRAP));
    } else if (!strcmp(how, "faults")) {
        // Accesses that would fail without a trace must fail.
        signal(SIGSEGV, SIG_DFL);
        void *volatile nowhere = (void *)16, *volatile code = (void *)main;
        check(write(copy, nowhere, 10) == -1 && errno == EFAULT);
        check(read(file, code, 10) <= 0);
        if (!fork()) { *(volatile char *)begin = *(volatile char *)main; _exit(0); }
        int status;
        wait(&status);
        check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        if (!fork()) { sums((void *)1); _exit(7); }
        wait(&status);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        *(volatile char *)main = *(volatile char *)sum;
    } else if (!strcmp(how, "protect")) {
        unsigned char *page = (unsigned char *)((uintptr_t)collatz & ~4095ul);
        sums((void *)1);
        check(!mprotect(page, 4096, PROT_READ | PROT_EXEC));
        sums((void *)1);
        char line[200], *last = 0;
        FILE *maps = fopen("/proc/self/maps", "r");
        int lines = 0;
        while (fgets(line, sizeof line, maps)) lines += !!strstr(line, "/app");
        // As soon as the program allocates a key itself, trodden stops hiding its changes.
        printf("%d %d\n", lines, pkey_alloc(0, 0));
    } else if (!strcmp(how, "loop")) {
        signal(SIGUSR1, end);
        puts("ready");
        fflush(stdout);
        while (!is_over) { sums((void *)1); usleep(1000); }
        puts("right");
    }
    printf("%d\n", collatz(27));
    return 0;
}
"#;

fn create_reader() -> Folder {
    let folder = Folder::new();
    folder.compile("cc", "reads.c", READS_PROGRAM);
    folder
}

#[test]
fn a_program_that_reads_its_code_in_any_way_sees_its_own() {
    if !has_protection_keys() {
        return;
    }
    let folder = create_reader();
    for how in ["sum", "calls", "compare", "write", "fwrite", "vectors", "memory", "blocked", "protect"] {
        let said = must(Command::new(folder.path("app")).current_dir(folder.path("")).arg(how).output().unwrap());
        let stepped = must(folder.record(&["--collector", "single-step"], "stepped.trace", &["./app", how]));
        assert_eq!(stepped, said, "{how}");
        let expected = folder.addresses("stepped.trace");
        for options in PATCHING_COLLECTORS {
            let output = folder.record(options, "one.trace", &["./app", how]);
            assert!(!errors(&output).contains("missing"), "{how} {options:?}: {}", errors(&output));
            assert_eq!(must(output), said, "{how} {options:?}");
            let found = folder.addresses("one.trace");
            let parts = found.iter().zip(&expected).position(|(a, b)| a != b);
            assert!(found == expected, "{how} {options:?}: {} and {} blocks, part at {parts:?}", found.len(), expected.len());
        }
    }
}

#[test]
fn a_program_that_reads_its_code_is_traced_in_several_runs() {
    if has_protection_keys() {
        let folder = create_reader();
        folder.assert_matches_stepping(&["./app", "sum"], 0);
        folder.assert_matches_stepping(&["./app", "write"], 0);
    }
}

#[test]
fn threads_and_signals_do_not_disturb_reads_of_code() {
    if !has_protection_keys() {
        return;
    }
    let folder = create_reader();
    for how in ["threads", "signals"] {
        let said = must(Command::new(folder.path("app")).current_dir(folder.path("")).arg(how).output().unwrap());
        for options in PATCHING_COLLECTORS {
            let output = folder.record(options, "one.trace", &["./app", how]);
            assert_eq!(must(output), said, "{how} {options:?}");
        }
    }
}

#[test]
fn program_whose_code_is_guarded_gets_the_faults_that_it_causes() {
    if !has_protection_keys() {
        return;
    }
    let folder = create_reader();
    for options in PATCHING_COLLECTORS {
        let output = folder.record(options, "one.trace", &["./app", "faults"]);
        assert_eq!(output.status.code(), Some(128 + 11), "{options:?}: {output:?}");
    }
}

/// Starts the program in a mode in which it checks its code repeatedly until a signal ends it.
fn start_checking(folder: &Folder) -> Child {
    let mut process = Command::new(folder.path("app")).current_dir(folder.path("")).arg("loop").stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 6];
    process.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    process
}

/// Ends the program and checks that it always saw its original code.
fn end_checking(mut process: Child, what: &str) {
    must(Command::new("kill").args(["-USR1", &process.id().to_string()]).output().unwrap());
    let mut rest = String::new();
    process.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!((process.wait().unwrap().code(), rest.as_str()), (Some(0), "right\n111\n"), "{what}");
}

fn list_protection_keys(process: &Child) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps", process.id())).unwrap();
    text.lines().filter(|line| line.starts_with("ProtectionKey:") && !line.ends_with(" 0")).map(str::to_owned).collect()
}

#[test]
fn a_process_that_checks_its_code_is_traced_and_left_as_it_was() {
    if !has_protection_keys() {
        return;
    }
    let folder = create_reader();
    for collector in ["trampolines", "ptrace"] {
        let process = start_checking(&folder);
        let id = process.id().to_string();
        let maps = || std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
        let before = maps();
        for _ in 0..4 {
            let arguments = ["trace", "record", "--collector", collector, "--pid", &id, "--for", "150ms", "--output", "p.trace"];
            must(folder.trodden(&arguments));
            assert_eq!((maps(), list_protection_keys(&process)), (before.clone(), vec![]), "{collector}");
        }
        assert!(!folder.addresses("p.trace").is_empty(), "{collector}");
        end_checking(process, collector);
    }
}

#[test]
fn a_process_that_checks_its_code_survives_the_end_of_the_command() {
    if !has_protection_keys() {
        return;
    }
    let folder = create_reader();
    for (number, signal) in ["-INT", "-KILL", "-TERM", "-KILL"].into_iter().enumerate() {
        let process = start_checking(&folder);
        let before = std::fs::read_to_string(format!("/proc/{}/maps", process.id())).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_trodden"));
        let collector = ["trampolines", "ptrace"][number / 2];
        command.args(["trace", "record", "--collector", collector, "--pid", &process.id().to_string(), "--output"]);
        let mut client = command.arg(folder.path("p.trace")).stderr(Stdio::null()).spawn().unwrap();
        // As soon as the process has a protection key, the tracer hides its changes.
        let started = Instant::now();
        while list_protection_keys(&process).is_empty() {
            assert!(started.elapsed() < Duration::from_secs(60), "{collector}");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(50));
        must(Command::new("kill").args([signal, &client.id().to_string()]).output().unwrap());
        client.wait().unwrap();
        let started = Instant::now();
        while std::fs::read_to_string(format!("/proc/{}/maps", process.id())).unwrap() != before
            || !list_protection_keys(&process).is_empty()
        {
            assert!(started.elapsed() < Duration::from_secs(10), "{signal} {collector}");
            std::thread::sleep(Duration::from_millis(5));
        }
        end_checking(process, &format!("{signal} {collector}"));
    }
}

/// A program with data in its code: messages, the arguments of a program, and a table that a loop reads.
const DATA_IN_CODE_PROGRAM: &str = r#"
.globl _start
.text
message: .ascii "data in code\n"
path: .asciz "/bin/echo"
word: .asciz "executed"
.balign 8
table: .long 3, 1, 4, 1, 5, 9, 2, 6
.type mix, @function
mix: test $1, %al
 je even
 lea 1(%rax, %rax, 2), %eax
 ret
even: shr $1, %eax
 ret
.size mix, .-mix
.type _start, @function
_start:
 mov $1, %edi
 lea message(%rip), %rsi
 mov $13, %edx
 mov $1, %eax
 syscall
 mov $20000, %ebx
 lea table(%rip), %r12
again:
 mov %ebx, %ecx
 and $7, %ecx
 mov (%r12, %rcx, 4), %eax
 call mix
 add %eax, %r13d
 dec %ebx
 jne again
 push $0
 lea word(%rip), %rax
 push %rax
 lea path(%rip), %rdi
 push %rdi
 mov %rsp, %rsi
 xor %edx, %edx
 mov $59, %eax
 syscall
 mov $60, %eax
 mov $9, %edi
 syscall
 ud2
.size _start, .-_start
"#;

#[test]
fn data_within_code_is_read_as_usual() {
    if !has_protection_keys() {
        return;
    }
    let folder = Folder::new();
    std::fs::write(folder.path("data.s"), DATA_IN_CODE_PROGRAM).unwrap();
    must(Command::new("cc").current_dir(folder.path("")).args(["-nostdlib", "-static", "data.s", "-o", "app"]).output().unwrap());
    let said = "data in code\nexecuted\n";
    for options in PATCHING_COLLECTORS {
        let output = folder.record(options, "one.trace", &["./app"]);
        assert!(errors(&output).contains("reads data in its code"), "{options:?}: {}", errors(&output));
        assert_eq!(must(output), said, "{options:?}");
        let blocks = folder.addresses("one.trace").len();
        assert!(blocks > 60_000, "{options:?}: {blocks} blocks");
    }
}

/// A program that installs a filter which allows everything, and then reads its own code.
const FILTERED_PROGRAM: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
extern const unsigned char __executable_start, etext;
__attribute__((noinline)) unsigned sum(void) {
    unsigned sum = 1;
    for (const unsigned char *at = &__executable_start; at < &etext; at++) sum = sum * 31 + *at;
    return sum;
}
int main(void) {
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog filter = {1, &allow};
    printf("%u\n", sum());
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 1;
    fprintf(stderr, "%u\n", sum());
    return 0;
}
"#;

#[test]
fn a_filter_ends_the_guard_and_the_trace_says_so() {
    if !has_protection_keys() {
        return;
    }
    let folder = Folder::new();
    folder.compile("cc", "filtered.c", FILTERED_PROGRAM);
    let said = must(Command::new(folder.path("app")).output().unwrap());
    for options in PATCHING_COLLECTORS {
        let output = folder.record(options, "one.trace", &["./app"]);
        assert!(errors(&output).contains("restricted itself"), "{options:?}: {}", errors(&output));
        assert_eq!(must(output), said, "{options:?}");
    }
}

#[test]
fn doctor_says_whether_code_can_be_hidden() {
    let output = Command::new(env!("CARGO_BIN_EXE_trodden")).arg("doctor").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("memory protection keys")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(line.starts_with("ok"), trodden_trace::has_protection_keys(), "{line}");
}
