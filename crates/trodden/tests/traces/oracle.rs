//! Compares traces with the instruction addresses that stepping records, which needs no graph. Every executed target of a jump, call or
//! return must start a block, as must both sides of each executed conditional jump. Each collector must record exactly the blocks through
//! which the addresses pass.

use crate::traced;
use crate::traced::{Folder, errors};
use std::collections::BTreeSet;
use std::process::Command;
use trodden_binary::Binary;
use trodden_binary::instruction::{BranchInstruction, classify_branch, decode_instruction};
use trodden_trace::{PartialTrace, RESUMED_FLAG, TRANSFER_FLAG, ThreadNumber, TraceEvent, TraceFile};

/// Options of `trodden trace record` for a recording in one run, and for one in several runs.
const IN_ONE_RUN: [&[&str]; 3] = [&["--collector", "single-step"], &["--runs", "1"], &["--runs", "1", "--collector", "ptrace"]];
const IN_SEVERAL_RUNS: &[&str] = &["--runs", "4"];

/// The executed addresses in the section `.text` of a program's first thread, and those addresses at which a block must start.
struct Steps {
    addresses: Vec<u64>,
    targets: BTreeSet<u64>,
}

fn record_steps(folder: &Folder, program: &[&str], status: i32) -> Steps {
    let stepped = folder.record(&["--collector", "single-step", "--keep-runs", "steps"], "steps.trace", program);
    assert_eq!(stepped.status.code(), Some(status), "{}", errors(&stepped));
    let binary = Binary::read(&folder.path(program[0])).unwrap();
    let (text, _) = binary.section(".text").unwrap();
    let partial = PartialTrace::open(&folder.path("steps/run-1.partial")).unwrap();
    let (mut addresses, mut targets) = (Vec::new(), BTreeSet::new());
    let mut leads = false;
    for symbol in partial.stream(ThreadNumber(0)).map(Result::unwrap) {
        let address = symbol & !(TRANSFER_FLAG | RESUMED_FLAG);
        let is_target = std::mem::replace(&mut leads, symbol & TRANSFER_FLAG != 0) && symbol & RESUMED_FLAG == 0;
        if !text.contains(&address) {
            continue;
        }
        targets.extend(is_target.then_some(address));
        let instruction = decode_instruction(binary.code_at(address).unwrap(), address).unwrap();
        if let Some(BranchInstruction::Conditional(to)) = classify_branch(&instruction) {
            targets.extend([to, instruction.next_ip()].into_iter().filter(|side| text.contains(side)));
        }
        addresses.push(address);
    }
    Steps { addresses, targets }
}

/// Asserts that the traces that are recorded with each set of options match the program's steps.
fn assert_traces_match_steps(folder: &Folder, program: &[&str], status: i32, record_options: &[&[&str]]) {
    let steps = record_steps(folder, program, status);
    assert!(steps.addresses.len() > 20, "{} steps", steps.addresses.len());
    for way in record_options {
        let recorded = folder.record(way, "one.trace", program);
        assert_eq!(recorded.status.code(), Some(status), "{way:?}: {}", errors(&recorded));
        let trace = TraceFile::open(&folder.path("one.trace")).unwrap();
        let starts: BTreeSet<u64> = trace.description().blocks.iter().map(|block| block.address).collect();
        let missing: Vec<String> = steps.targets.difference(&starts).map(|at| format!("{at:#x}")).collect();
        assert!(missing.is_empty(), "{way:?}: no block starts at {missing:?}; {}", errors(&recorded));
        let blocks = trace.stream(ThreadNumber(0)).filter_map(|event| match event.unwrap() {
            TraceEvent::Block(block) => Some(trace.block(block).address),
            _ => None,
        });
        let text = Binary::read(&folder.path(program[0])).unwrap().section(".text").unwrap().0;
        let blocks: Vec<u64> = blocks.filter(|at| text.contains(at)).collect();
        let expected: Vec<u64> = steps.addresses.iter().copied().filter(|at| starts.contains(at)).collect();
        let parts = blocks.iter().zip(&expected).position(|(found, expected)| found != expected);
        let around = |all: &[u64]| {
            let at = parts.unwrap_or(all.len().min(blocks.len()).min(expected.len()));
            all[at.saturating_sub(3)..all.len().min(at + 3)].iter().map(|at| format!("{at:#x}")).collect::<Vec<_>>().join(" ")
        };
        assert!(blocks == expected, "{way:?}: {} and {} blocks: {} | {}", blocks.len(), expected.len(), around(&blocks), around(&expected));
    }
}

fn compile_program(text: &str) -> Folder {
    let folder = Folder::new();
    folder.compile("cc", "oracle.c", text);
    folder
}

#[test]
fn jumps_that_look_like_calls_and_returns_start_blocks() {
    let folder = compile_program(include_str!("../cases/hand_written_jumps.c"));
    assert_traces_match_steps(&folder, &["./app"], 0, &[IN_ONE_RUN[0], IN_SEVERAL_RUNS]);
    for way in &IN_ONE_RUN[1..] {
        let recorded = folder.record(way, "one.trace", &["./app"]);
        // A single run does not find code that only an indirect branch reaches, and must report that.
        assert!(errors(&recorded).contains("blocks are missing after 3 indirect jumps"), "{way:?}: {}", errors(&recorded));
    }
}

#[test]
fn functions_with_several_entries_are_traced() {
    let folder = Folder::new();
    std::fs::write(folder.path("entries.s"), include_str!("../../../binary/tests/programs/entries.s")).unwrap();
    let compiled = Command::new("cc").current_dir(folder.path("")).args(["-no-pie", "entries.s", "-o", "app"]).status().unwrap();
    assert!(compiled.success());
    assert_traces_match_steps(&folder, &["./app"], 0, &[IN_ONE_RUN[0], IN_ONE_RUN[1], IN_ONE_RUN[2], IN_SEVERAL_RUNS]);
    let recorded = folder.record(IN_ONE_RUN[1], "one.trace", &["./app"]);
    assert!(!errors(&recorded).contains("does not trace the inside"), "{}", errors(&recorded));
}

/// A handler skips the trapping instructions, as the kernel does for `WARN`.
#[test]
fn code_after_trapping_instructions_starts_blocks() {
    let text = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <ucontext.h>
static volatile int n;
static void skip(int s, siginfo_t *i, void *u) { n++; ((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP] += 2; }
__attribute__((noinline)) static void check(void) { __asm__ volatile("ud2"); }
__attribute__((noinline)) static void after(int i) { n += i & 1 ? 2 : 0; }
int main(void) {
    struct sigaction a = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &a, 0);
    for (int i = 0; i < 10; i++) { check(); after(i); }
    return n == 20 ? 0 : 1;
}
"#;
    assert_traces_match_steps(&compile_program(text), &["./app"], 0, &IN_ONE_RUN);
}

/// A program with calls that end by `longjmp`, by the end of the program or by a signal. Earlier calls to some of the same functions have
/// returned.
const LEFT_PROGRAM: &str = r#"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static jmp_buf back;
static volatile int sum;
static void (*volatile end)(int) = exit;
__attribute__((noinline)) static void leave(int n) {
    sum += n;
    if (n & 1) longjmp(back, n);
    sum += 2;
}
__attribute__((noinline)) static int both(void) {
    leave(2);
    sum += 10;
    leave(3);
    sum += 100;
    return sum;
}
int main(int argc, char **argv) {
    int x = argc;
    if (!setjmp(back)) x += both();
    x += printf("%d\n", sum);
    if (argc > 1) {
        sum = *(volatile int *)(argc > 2 ? (long)argv : 0L);
        sum += 1000;
        raise(SIGTERM);
        sum += 1000;
    }
    end(0);
    x += printf("after %d\n", x);
    return x;
}
"#;

#[test]
fn calls_that_do_not_return_start_no_block_after_them() {
    let folder = Folder::new();
    std::fs::write(folder.path("oracle.c"), LEFT_PROGRAM).unwrap();
    let mut compiler = std::process::Command::new("cc");
    traced::must(compiler.args(["-O0", "-g", "oracle.c", "-o", "app"]).current_dir(folder.path("")).output().unwrap());
    assert_traces_match_steps(&folder, &["./app"], 0, &IN_ONE_RUN);
    let line = |text: &str| LEFT_PROGRAM.lines().position(|line| line.contains(text)).unwrap() + 1;
    let executions = |text: &str| {
        let found = folder.trodden(&["find", "--top", "0", &format!("oracle.c:{}", line(text)), "one.trace"]);
        let output = String::from_utf8(found.stdout).unwrap();
        output.lines().last().unwrap_or_else(|| panic!("{text}")).trim_start_matches("executions: ").to_owned()
    };
    let lines = ["sum += n;", "sum += 2;", "sum += 10;", "leave(3);", "sum += 100;", "end(0);", "after %d"];
    let expected = ["2", "1", "1", "1", "0", "1", "0"];
    let found: Vec<String> = lines.iter().map(|line| executions(line)).collect();
    assert_eq!(found, expected);
}

fn measure_nesting(folder: &Folder) -> usize {
    let trace = TraceFile::open(&folder.path("one.trace")).unwrap();
    let (mut depth, mut deepest) = (0usize, 0);
    for event in trace.stream(ThreadNumber(0)).map(Result::unwrap) {
        match event {
            TraceEvent::Call { tail: false, .. } => depth += 1,
            TraceEvent::Return | TraceEvent::Unwind => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Fibers switch stacks two hundred times, by the program's own code and by the C library.
#[test]
fn code_on_another_stack_loses_no_block_and_does_not_nest() {
    for text in [include_str!("../cases/fibers.c"), include_str!("../cases/contexts.c")] {
        let folder = compile_program(text);
        for way in IN_ONE_RUN {
            assert_traces_match_steps(&folder, &["./app"], 0, &[way]);
            let notes = TraceFile::open(&folder.path("one.trace")).unwrap().end().notes.clone();
            assert!(notes.iter().any(|note| note.contains("continued on a different stack")), "{way:?}: {notes:?}");
            assert!((4..12).contains(&measure_nesting(&folder)), "{way:?}: {}", measure_nesting(&folder));
            let again = folder.record(way, "again.trace", &["./app"]);
            assert!(again.status.success(), "{}", errors(&again));
            let compared = folder.trodden(&["diff", "--fail", "one.trace", "again.trace"]);
            assert_eq!(String::from_utf8_lossy(&compared.stdout), "the traces are equal\n", "{way:?}");
        }
    }
}

/// Before `longjmp` or an exception leaves a frame, the frame has made calls. That these returned is visible only in the code after them.
#[test]
fn code_executed_before_a_frame_is_left_is_traced() {
    assert_traces_match_steps(&compile_program(include_str!("../cases/left_by_longjmp.c")), &["./app"], 0, &IN_ONE_RUN);
    let folder = Folder::new();
    folder.compile("c++", "left.cc", include_str!("../cases/left_by_exceptions.cc"));
    assert_traces_match_steps(&folder, &["./app"], 0, &IN_ONE_RUN);
}

/// A program that single-steps itself must get all of its own signals, and no others.
#[test]
fn programs_that_set_their_own_trap_flag_get_their_signals() {
    let text = r#"
#include <signal.h>
#include <stdio.h>
static volatile int traps;
static void count(int s) { traps++; }
__attribute__((noinline)) static void step(void) {
    __asm__ volatile("sub $128,%%rsp; pushf; orl $0x100,(%%rsp); popf; nop;"
                     "pushf; andl $~0x100,(%%rsp); popf; add $128,%%rsp" ::: "cc", "memory");
}
__attribute__((noinline)) static void save(void) {
    __asm__ volatile("sub $128,%%rsp; pushf; nop; popf; add $128,%%rsp" ::: "cc", "memory");
}
int main(void) {
    signal(SIGTRAP, count);
    for (int i = 0; i < 5; i++) { step(); save(); }
    printf("%d\n", traps);
    return 0;
}
"#;
    let folder = compile_program(text);
    for way in IN_ONE_RUN {
        assert_eq!(traced::must(folder.record(way, "one.trace", &["./app"])), "20\n", "{way:?}");
    }
}

/// The program single-steps itself. Its handler must get one trap for each of its own instructions, in whichever block they are, and none
/// for instructions that trodden adds.
#[test]
fn programs_that_step_themselves_through_blocks_get_their_signals() {
    let folder = compile_program(include_str!("../cases/steps_itself.c"));
    let plain = std::process::Command::new(folder.path("app")).output().unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.split(' ').next().unwrap().parse::<u32>().unwrap() > 100, "{plain}");
    for way in IN_ONE_RUN {
        assert_eq!(traced::must(folder.record(way, "one.trace", &["./app"])), plain, "{way:?}");
    }
}

/// The program pushes and pops the flags as the counting runtime does, and a one-byte instruction follows `popf`.
#[test]
fn stepping_restores_flags() {
    let text = r#"
#include <stdio.h>
__attribute__((naked, noinline)) static void restore(void) {
    __asm__("push %rbp; mov %rsp,%rbp; pushf; push %rcx; pop %rcx; popf; pop %rbp; ret");
}
int main(void) {
    for (int i = 0; i < 5; i++) restore();
    return puts("restored") < 0;
}
"#;
    assert_traces_match_steps(&compile_program(text), &["./app"], 0, &IN_ONE_RUN);
}

/// After `popf`, the kernel shows the trap flag that stepping sets as the program's. Signals then arrive, and traces end, at any
/// instruction.
#[test]
fn stepping_leaves_no_trap_flag_to_handlers_and_after_its_end() {
    let text = r#"
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
static volatile int ticks;
static void tick(int s) { ticks++; }
int main(int count, char **arguments) {
    signal(SIGALRM, tick);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 3000}, {0, 3000}}, 0);
    unsigned x = 1;
    while (ticks < (count > 1 ? 1000 : 40)) {
        for (int i = 0; i < 10; i++) __asm__ volatile("sub $128,%%rsp; pushf; popf; add $128,%%rsp" ::: "cc", "memory");
        for (int i = 0; i < 20; i++) x = x * 3 + 1;
    }
    return puts(x ? "ticked" : "") < 0;
}
"#;
    let folder = compile_program(text);
    assert_eq!(traced::must(folder.record(&["--collector", "single-step"], "one.trace", &["./app"])), "ticked\n");
    let mut long = std::process::Command::new(folder.path("app"));
    let long = long.arg("long").stdout(std::process::Stdio::piped()).spawn().unwrap();
    for _ in 0..8 {
        let id = long.id().to_string();
        let record = ["trace", "record", "--collector", "single-step", "--pid", &id, "--for", "40ms", "--output", "p.trace"];
        traced::must(folder.trodden(&record));
    }
    assert_eq!(traced::must(long.wait_with_output().unwrap()), "ticked\n");
}

/// A static program looks for the vDSO. A trace of several runs hides the vDSO, and must say so.
#[test]
fn a_hidden_vdso_is_reported() {
    let folder = Folder::new();
    // The program does without the C library, whose graph takes long to recover. It finds the auxiliary vector after the environment on the
    // stack.
    let text = r#"
#include <elf.h>
static long system_call(long number, long a, const void *b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
__attribute__((noreturn, used)) static void begin(long *stack) {
    const char **word = (const char **)(stack + 1) + *stack + 1;
    while (*word++) {}
    long address = 0;
    for (Elf64_auxv_t *entry = (Elf64_auxv_t *)word; entry->a_type != AT_NULL; entry++)
        if (entry->a_type == AT_SYSINFO_EHDR) address = entry->a_un.a_val;
    if (address) system_call(1, 1, "present\n", 8);
    else system_call(1, 1, "absent\n", 7);
    for (;;) system_call(231, 0, 0, 0);
}
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call begin\n hlt\n");
"#;
    std::fs::write(folder.path("vdso.c"), text).unwrap();
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-static", "-nostdlib", "-O1", "-fno-stack-protector", "vdso.c", "-o", "app"]);
    traced::must(compiler.current_dir(folder.path("")).output().unwrap());
    for (options, said, is_noted) in
        [(&["--runs", "2"][..], "absent\n", true), (&["--runs", "2", "--no-repeat", "time"], "present\n", false), (&[], "present\n", false)]
    {
        let recorded = folder.record(options, "one.trace", &["./app"]);
        assert_eq!(String::from_utf8_lossy(&recorded.stdout), said);
        assert_eq!(errors(&recorded).contains("vDSO was hidden"), is_noted, "{}", errors(&recorded));
    }
}

/// The blocks in JSON are those that `trodden export addresses` writes.
#[test]
fn blocks_are_shown_as_json() {
    let folder = compile_program("int main(int n, char **a) { int s = 0; for (int i = 0; i < n + 2; i++) s += a[0][i]; return s & 0; }\n");
    traced::must(folder.record(&["--runs", "1"], "one.trace", &["./app"]));
    let addresses = folder.addresses("one.trace");
    let blocks: serde_json::Value = serde_json::from_str(&traced::must(folder.trodden(&["show", "--json", "one.trace"]))).unwrap();
    let blocks = blocks["threads"][0]["blocks"].as_array().unwrap();
    assert_eq!(blocks.iter().map(|b| b["address"].as_str().unwrap()).collect::<Vec<_>>(), addresses);
    assert!(blocks.iter().any(|b| b["function"] == "main" && b["lines"][0][1] == 1 && b["depth"].as_u64() > Some(0)), "{blocks:?}");
}
