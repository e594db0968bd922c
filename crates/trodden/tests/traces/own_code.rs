//! `trodden trace` on programs that change or read their own code. They must behave as without a trace, and the trace must say what is
//! missing in it.

use crate::traced::{Folder, errors, must};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use trodden_trace::{ThreadNumber, TraceEvent, TraceFile};

const IN_ONE_RUN: [&[&str]; 3] = [&["--runs", "1"], &["--runs", "1", "--collector", "ptrace"], &["--collector", "single-step"]];

/// A program that replaces the code of `f`, in the way that the argument names, and calls it before and after that. `other` is on another
/// page. Between both functions is code with many calls, so that instrumented copies of blocks call each other.
const CHANGES_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
__attribute__((noinline, aligned(4096))) int f(int x) { if (x > 3) return x * 2; return x + 1; }
__attribute__((noinline, aligned(4096))) int other(int x) { if (x & 1) return x * 3; return x; }
static const unsigned char five[] = {0xb8, 5, 0, 0, 0, 0xc3};
__attribute__((noinline, aligned(4096))) static void change(const char *how) {
    uint8_t *page = (uint8_t *)((uintptr_t)f & ~4095ul), copy[4096];
    if (!strcmp(how, "store")) {
        if (mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)) abort();
        memcpy((void *)f, five, sizeof five);
    } else if (!strcmp(how, "toggle")) {
        if (mprotect(page, 4096, PROT_READ | PROT_WRITE)) abort();
        memcpy((void *)f, five, sizeof five);
        if (mprotect(page, 4096, PROT_READ | PROT_EXEC)) abort();
    } else if (!strcmp(how, "file")) {
        int file = open("/proc/self/mem", O_RDWR);
        if (pread(file, copy, 4096, (uintptr_t)page) != 4096) abort();
        memcpy(copy + ((uintptr_t)f - (uintptr_t)page), five, sizeof five);
        if (pwrite(file, copy, 4096, (uintptr_t)page) != 4096) abort();
    } else if (!strcmp(how, "seek")) {
        int file = open("/proc/self/mem", O_RDWR);
        lseek(file, (uintptr_t)f, SEEK_SET);
        if (write(file, five, sizeof five) != sizeof five) abort();
    } else if (!strcmp(how, "map")) {
        uint8_t *fresh = mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (fresh != page) abort();
        memcpy((void *)f, five, sizeof five);
    } else if (!strcmp(how, "move")) {
        uint8_t *fresh = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(fresh + ((uintptr_t)f - (uintptr_t)page), five, sizeof five);
        if (mremap(fresh, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page) != page) abort();
    }
}
int main(int count, char **arguments) {
    int sum = 0;
    for (int i = 0; i < 6; i++) sum += f(i) + other(i);
    change(arguments[1]);
    for (int i = 0; i < 6; i++) sum += f(i) * 1000 + other(i);
    printf("%d\n", sum);
    return 0;
}
"#;

fn count_calls(folder: &Folder, trace: &str, name: &str) -> u32 {
    let tree = must(folder.trodden(&["report", trace]));
    let rows = tree.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.last() == Some(&name)).map(|row| row[0].parse::<u32>().unwrap()).sum()
}

#[test]
fn programs_that_change_their_code_execute_what_they_wrote() {
    let folder = Folder::new();
    folder.compile("cc", "changes.c", CHANGES_PROGRAM);
    for how in ["store", "toggle", "file", "seek", "map", "move"] {
        let said = must(Command::new(folder.path("app")).arg(how).output().unwrap());
        assert_eq!(said, "30094\n", "{how}");
        let mut first: Option<Vec<String>> = None;
        for options in IN_ONE_RUN {
            let output = folder.record(options, "one.trace", &["./app", how]);
            assert!(errors(&output).contains("changed its own code"), "{how} {options:?}: {}", errors(&output));
            assert_eq!(must(output), said, "{how} {options:?}");
            assert_eq!([count_calls(&folder, "one.trace", "f"), count_calls(&folder, "one.trace", "other")], [6, 12], "{how} {options:?}");
            // All collectors must record the same blocks, because only blocks on the changed page may be missing.
            let trace = folder.addresses("one.trace");
            assert!(first.get_or_insert_with(|| trace.clone()) == &trace, "{how} {options:?}");
        }
        let shown = folder.trodden(&["report", "one.trace"]);
        assert!(errors(&shown).contains("changed its own code"), "{shown:?}");
    }
    let several = folder.record(&["--runs", "2"], "two.trace", &["./app", "store"]);
    assert!(several.status.code() == Some(2) && errors(&several).contains("--runs 1"), "{several:?}");
}

/// A program in which several threads keep executing a function whose page another thread changes. All of them must see each change.
const THREADS_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline, aligned(4096))) int f(int x) { int sum = 0; for (int i = 0; i < 8; i++) sum += i % 3 ? x : 1; return sum; }
__attribute__((noinline, aligned(4096))) static void after(void) { __asm__ volatile(""); }
static atomic_int is_over, rounds;
__attribute__((aligned(4096))) static void *work(void *unused) {
    while (!is_over) { f(2); rounds++; usleep(100); }
    return (void *)(intptr_t)f(2);
}
int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
    while (rounds < 8) usleep(500);
    static const unsigned char nine[] = {0xb8, 9, 0, 0, 0, 0xc3};
    if (mprotect((void *)((uintptr_t)f & ~4095ul), 4096, PROT_READ | PROT_WRITE | PROT_EXEC)) abort();
    int seen = rounds;
    while (rounds < seen + 8) usleep(500);
    // An atomic write puts a jump to itself first, so that no thread executes a mixture while the other bytes are written.
    __atomic_store_n((uint16_t *)f, 0xfeeb, __ATOMIC_SEQ_CST);
    memcpy((char *)f + 2, nine + 2, sizeof nine - 2);
    __atomic_store_n((uint16_t *)f, *(const uint16_t *)nine, __ATOMIC_SEQ_CST);
    is_over = 1;
    long sum = 0;
    for (int i = 0; i < 3; i++) { void *value; pthread_join(threads[i], &value); sum += (intptr_t)value; }
    after();
    printf("%ld\n", sum);
    return 0;
}
"#;

#[test]
fn threads_execute_changed_code_wherever_they_were() {
    let folder = Folder::new();
    folder.compile("cc", "threads.c", THREADS_PROGRAM);
    let said = must(Command::new(folder.path("app")).output().unwrap());
    assert_eq!(said, "27\n");
    for options in [&[][..], &["--collector", "ptrace"]] {
        let output = folder.record(options, "one.trace", &["./app"]);
        assert!(errors(&output).contains("changed its own code"), "{options:?}: {}", errors(&output));
        assert_eq!(must(output), said, "{options:?}");
        assert_eq!(count_calls(&folder, "one.trace", "after"), 1, "{options:?}");
    }
}

fn make_code_writable(program: &Path) {
    let mut bytes = std::fs::read(program).unwrap();
    let word = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]) as usize;
    let (first, size, count) = (word(&bytes, 32), word(&bytes, 54), word(&bytes, 56));
    for header in (0..count).map(|n| first + n * size) {
        // Finds executable (flag 1) segments of type `PT_LOAD` (1), and makes them writable (flag 2).
        if word(&bytes, header) == 1 && bytes[header + 4] & 1 != 0 {
            bytes[header + 4] |= 2;
        }
    }
    std::fs::write(program, bytes).unwrap();
}

#[test]
fn code_that_is_writable_from_the_start_can_only_be_stepped() {
    let folder = Folder::new();
    folder.compile("cc", "changes.c", CHANGES_PROGRAM);
    make_code_writable(&folder.path("app"));
    let said = must(Command::new(folder.path("app")).arg("store").output().unwrap());
    assert_eq!(said, "30094\n");
    let each: [(&str, &[&str]); 4] = [
        ("", &["--runs", "1"]),
        ("", &["--runs", "1", "--collector", "ptrace"]),
        ("", &["--runs", "2"]),
        ("--collector hardware", &["--runs", "2"]),
    ];
    for (choices, options) in each {
        let output = folder.record_with(choices, options, "one.trace", &["./app", "store"]);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{choices} {options:?}: {output:?}");
        assert!(errors(&output).contains("writable code") && errors(&output).contains("--collector single-step"), "{}", errors(&output));
    }
    let output = folder.record(&["--collector", "single-step"], "one.trace", &["./app", "store"]);
    assert!(errors(&output).contains("can change its code"), "{}", errors(&output));
    assert_eq!(must(output), said);
}

/// A program that changes `f`, prints "ready", and computes until SIGUSR1 arrives.
const CHANGED_BEFORE_PROGRAM: &str = r#"
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile sig_atomic_t is_over;
static void end(int signal) { is_over = 1; }
__attribute__((noinline, aligned(4096))) int f(int x) { if (x > 3) return x * 2; if (x > 2) return 7; return x + 1; }
__attribute__((aligned(4096))) int main(void) {
    static const unsigned char code[] = {0xb8, 0xc3, 0xc3, 0xc3, 0xc3, 0x89, 0xf8, 0xc3};
    void *page = (void *)((uintptr_t)f & ~4095ul);
    signal(SIGUSR1, end);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    memcpy((void *)f, code, sizeof code);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    puts("ready");
    fflush(stdout);
    for (int i = 0; !is_over; i = (i + 1) % 100) { if (f(i) != i) abort(); usleep(100); }
    puts("right");
    return 0;
}
"#;

#[test]
fn code_changed_before_attaching_is_not_watched() {
    let folder = Folder::new();
    folder.compile("cc", "before.c", CHANGED_BEFORE_PROGRAM);
    for collector in ["trampolines", "ptrace", "single-step"] {
        let mut process = Command::new(folder.path("app")).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 6];
        process.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let id = process.id().to_string();
        let output = folder.trodden(&["trace", "record", "--collector", collector, "--pid", &id, "--for", "200ms", "--output", "p.trace"]);
        must(Command::new("kill").args(["-USR1", &id]).output().unwrap());
        let mut rest = String::new();
        process.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
        assert!(process.wait().unwrap().success(), "{collector}");
        assert_eq!(rest, "right\n", "{collector}: {}", errors(&output));
        assert!(output.status.success() && errors(&output).contains("changed its own code"), "{collector}: {}", errors(&output));
        assert_eq!(count_calls(&folder, "p.trace", "f"), 0, "{collector}");
        assert!(!folder.addresses("p.trace").is_empty(), "{collector}");
    }
}

/// A program that computes a checksum of its code, which it reads from `/proc/self/mem`.
const READS_PROGRAM: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
extern char __executable_start, etext;
__attribute__((noinline)) int f(int x) { if (x > 3) return x * 2; return x + 1; }
int main(void) {
    unsigned sum = 0;
    static unsigned char bytes[1 << 16];
    int memory = open("/proc/self/mem", O_RDONLY), file = open("/proc/self/exe", O_RDONLY);
    size_t length = (uintptr_t)&etext - (uintptr_t)&f;
    if (pread(memory, bytes, length, (uintptr_t)&f) != (ssize_t)length) return 1;
    for (size_t i = 0; i < length; i++) sum = sum * 31 + bytes[i];
    lseek(memory, (uintptr_t)&f, SEEK_SET);
    if (read(memory, bytes, length) != (ssize_t)length) return 1;
    for (size_t i = 0; i < length; i++) sum = sum * 31 + bytes[i];
    if (pread(file, bytes, length, 0x1000) != (ssize_t)length) return 1;
    for (size_t i = 0; i < length; i++) sum = sum * 31 + bytes[i];
    printf("%u %d\n", sum, f(5));
    return 0;
}
"#;

#[test]
fn programs_read_their_own_code_from_a_file() {
    let folder = Folder::new();
    folder.compile("cc", "reads.c", READS_PROGRAM);
    let said = must(Command::new(folder.path("app")).output().unwrap());
    for options in IN_ONE_RUN {
        assert_eq!(must(folder.record(options, "one.trace", &["./app"])), said, "{options:?}");
    }
}

/// A program that computes a checksum of its code, which it reads from memory directly.
const CHECKS_PROGRAM: &str = r#"
#include <stdio.h>
extern char etext;
__attribute__((noinline)) int f(int x) { if (x > 3) return x * 2; return x + 1; }
int main(void) {
    unsigned sum = 0;
    for (const unsigned char *at = (const unsigned char *)f; at < (const unsigned char *)&etext; at++) sum = sum * 31 + *at;
    int result = 0;
    for (int i = 0; i < 6; i++) result += f(i);
    printf("%u %d\n", sum, result);
    return 0;
}
"#;

#[test]
fn stepped_programs_read_their_own_code_from_memory() {
    let folder = Folder::new();
    folder.compile("cc", "checks.c", CHECKS_PROGRAM);
    let said = must(Command::new(folder.path("app")).output().unwrap());
    assert_eq!(must(folder.record(&["--collector", "single-step"], "one.trace", &["./app"])), said);
}

#[test]
fn stepping_restores_the_protection_of_the_code() {
    let folder = Folder::new();
    let text = "#include <unistd.h>\n\
                __attribute__((noinline)) int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += i ^ n; return s; }\n\
                int main(void) { int s = 0; for (;;) { s += work(20); usleep(100 + (s & 1)); } }\n";
    folder.compile("cc", "spin.c", text);
    make_code_writable(&folder.path("app"));
    let mut process = Command::new(folder.path("app")).spawn().unwrap();
    let id = process.id().to_string();
    let maps = || std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
    // As soon as the program sleeps, its loader has finished.
    while !std::fs::read_to_string(format!("/proc/{id}/syscall")).unwrap().starts_with("230 ") {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let before = maps();
    assert!(before.lines().any(|line| line.contains(" rwxp ") && line.ends_with("/app")), "{before}");
    for _ in 0..5 {
        let arguments = ["trace", "record", "--collector", "single-step", "--pid", &id, "--for", "30ms", "--output", "s.trace"];
        must(folder.trodden(&arguments));
        assert_eq!(maps(), before);
    }
    let refused = folder.trodden(&["trace", "record", "--pid", &id, "--for", "30ms", "--output", "p.trace"]);
    assert!(refused.status.code() == Some(2) && errors(&refused).contains("--collector single-step"), "{}", errors(&refused));
    process.kill().unwrap();
    process.wait().unwrap();
}

/// `main` jumps to generated code, as an interpreter does, and this code calls `called` again and again. Each call comes from outside,
/// and nothing in `main` explains it.
const GENERATED_CALLER: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
static volatile int count, choice;
__attribute__((noinline, used)) static void called(void) { count++; }
int main(void) {
    static void *labels[] = {&&generated, &&done};
    // push %rbx; mov $1000, %ebx; again: movabs $called, %rax; call *%rax; dec %ebx; jne again; pop %rbx; movabs $done, %rax; jmp *%rax
    unsigned char code[] = {0x53, 0xbb, 0xe8, 3, 0, 0, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0xff, 0xcb, 0x75, 0xf0, 0x5b,
        0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    void (*target)(void) = called;
    memcpy(code + 8, &target, 8);
    memcpy(code + 25, &labels[1], 8);
    unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    labels[0] = page;
    goto *labels[choice];
generated:
    return 1;
done:
    printf("%d\n", count);
    return 0;
}
"#;

#[test]
fn calls_from_generated_code_do_not_nest() {
    let folder = Folder::new();
    folder.compile("cc", "generated.c", GENERATED_CALLER);
    for options in IN_ONE_RUN {
        assert_eq!(must(folder.record(options, "one.trace", &["./app"])), "1000\n");
        let trace = TraceFile::open(&folder.path("one.trace")).unwrap();
        let (mut depth, mut deepest) = (0_usize, 0);
        for event in trace.stream(ThreadNumber(0)) {
            match event.unwrap() {
                TraceEvent::Call { tail: false, .. } => depth += 1,
                TraceEvent::Return | TraceEvent::Unwind => depth = depth.saturating_sub(1),
                TraceEvent::Call { .. } | TraceEvent::Block(_) => {}
            }
            deepest = deepest.max(depth);
        }
        assert!(deepest < 10, "{options:?}: {deepest} calls have not returned");
    }
}
