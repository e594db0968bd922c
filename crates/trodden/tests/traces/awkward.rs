//! `trodden trace` on code whose control flow is not visible in its instructions: a signal handler that resumes after the instruction that
//! trapped, a `longjmp` that the program implements itself, reads of the time-stamp counter, and a program that is started without the
//! dynamic loader.

use crate::traced;
use crate::traced::{Folder, must};
use std::process::Command;
use std::time::{Duration, Instant};

const IN_ONE_RUN: [&[&str]; 3] = [&["--runs", "1"], &["--runs", "1", "--collector", "ptrace"], &["--collector", "single-step"]];

fn assert_traces_equal(folder: &Folder, said: &str) -> Vec<String> {
    let traces = IN_ONE_RUN.map(|options| {
        assert_eq!(must(folder.record(options, "one.trace", &["./app"])), said, "{options:?}");
        folder.addresses("one.trace")
    });
    assert!(traces[0] == traces[1] && traces[1] == traces[2], "{:?} blocks", traces.each_ref().map(Vec::len));
    traces.into_iter().next().unwrap()
}

/// Records a program that jumps to code which no control-flow graph contains, and returns the blocks that stepping records. The other
/// collectors must miss the code after such jumps, and must say so.
fn record_stepping(folder: &Folder, said: &str) -> Vec<String> {
    let traces = IN_ONE_RUN.map(|options| {
        let output = folder.record(options, "one.trace", &["./app"]);
        let lacks = traced::errors(&output).contains("blocks are missing after");
        assert_eq!(must(output), said, "{options:?}");
        (lacks, folder.addresses("one.trace"))
    });
    assert_eq!(traces.each_ref().map(|trace| trace.0), [true, true, false]);
    assert_eq!(traces[0].1, traces[1].1);
    let [_, (_, watched), (_, all)] = traces;
    let mut rest = all.iter();
    assert!(watched.iter().all(|block| rest.any(|other| other == block)), "{watched:?} of {all:?}");
    all
}

/// The bytes after `ud2` look like padding, but are executed.
const RESUMED_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
static volatile int traps, faults;
static void trap(int s) { traps++; }
static void fault(int s, siginfo_t *i, void *u) { faults++; ((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP] += 2; }
int main(void) {
    struct sigaction a = { 0 };
    a.sa_sigaction = fault;
    a.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &a, 0);
    signal(SIGTRAP, trap);
    __asm__ volatile("ud2; nop; int3; nop; nop; nop");
    __asm__ volatile("int3; nop; int3");
    printf("%d %d\n", traps, faults);
    return 0;
}
"#;

#[test]
fn code_after_a_trapping_instruction_is_not_overwritten() {
    let folder = Folder::new();
    folder.compile("cc", "resumed.c", RESUMED_PROGRAM);
    for options in [&["--runs", "1"][..], &["--runs", "1", "--collector", "ptrace"]] {
        assert_eq!(must(folder.record(options, "one.trace", &["./app"])), "3 1\n", "{options:?}");
    }
}

/// A program that implements `longjmp` itself: an indirect jump to the instruction after a call in another function.
const OWN_LONGJMP_PROGRAM: &str = r#"
#include <stdio.h>
typedef unsigned long Saved[8];
int save(Saved) __attribute__((returns_twice));
void restore(Saved, int) __attribute__((noreturn));
__asm__(".globl save\n.type save,@function\nsave: mov %rbx,(%rdi); mov %rbp,8(%rdi); mov %r12,16(%rdi); mov %r13,24(%rdi);"
        "mov %r14,32(%rdi); mov %r15,40(%rdi); lea 8(%rsp),%rdx; mov %rdx,48(%rdi); mov (%rsp),%rdx; mov %rdx,56(%rdi);"
        "xor %eax,%eax; ret\n.size save,.-save\n.globl restore\n.type restore,@function\nrestore: mov %esi,%eax; mov (%rdi),%rbx;"
        "mov 8(%rdi),%rbp; mov 16(%rdi),%r12; mov 24(%rdi),%r13; mov 32(%rdi),%r14; mov 40(%rdi),%r15; mov 48(%rdi),%rsp;"
        "jmp *56(%rdi)\n.size restore,.-restore\n");
static Saved saved;
static int calls;
__attribute__((noinline)) void down(int depth) { calls++; if (!depth) restore(saved, calls); down(depth - 1); calls--; }
__attribute__((noinline)) int attempt(int most) { int now = save(saved); if (now < most) down(2); return now; }
int main(void) {
    int sum = 0;
    for (int i = 1; i < 5; i++) sum += attempt(4 * i);
    printf("%d %d\n", sum, calls);
    return 0;
}
"#;

#[test]
fn jumps_to_after_a_call_in_another_function_leave_both_functions_whole() {
    let folder = Folder::new();
    folder.compile("cc", "own.c", OWN_LONGJMP_PROGRAM);
    let said = must(Command::new(folder.path("app")).output().unwrap());
    assert_traces_equal(&folder, &said);
    must(folder.record(&["--runs", "1"], "two.trace", &["./app"]));
    must(folder.trodden(&["diff", "--fail", "one.trace", "two.trace"]));
    let tree = must(folder.trodden(&["report", "one.trace"]));
    let row = |name: &str| tree.lines().find(|line| line.split_whitespace().last() == Some(name)).map(str::to_owned);
    assert!(row("attempt").is_some_and(|row| row.trim_start().starts_with("4 ")), "{tree}");
    assert!(row("restore").is_some(), "{tree}");
}

/// A program in which the first instruction of a block causes a fault. One handler leaves by `siglongjmp`; another repairs the cause and
/// returns. One more fault is in a library.
const FAULTS_PROGRAM: &str = r#"
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
static sigjmp_buf back;
static int left, mended;
static void leave(int s) { left++; siglongjmp(back, s); }
static void mend(int s, siginfo_t *i, void *u) {
    mended++;
    mprotect((void *)((long)i->si_addr & ~4095), 4096, PROT_READ | PROT_WRITE);
}
void poke(volatile char *p) __attribute__((noinline));
void poke(volatile char *p) { *p = 7; }
int main(void) {
    struct sigaction mends = { .sa_sigaction = mend, .sa_flags = SA_SIGINFO };
    signal(SIGSEGV, leave);
    for (volatile int i = 0; i < 3; i++)
        if (!sigsetjmp(back, 1)) poke((char *)8);
    sigaction(SIGSEGV, &mends, 0);
    char *m = mmap(0, 16384, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++) poke(m + i * 4096);
    memset(m + 8192, 1, 8192);
    printf("%d %d\n", left, mended);
    return 0;
}
"#;

#[test]
fn faulting_instructions_are_recorded_once_whatever_the_handler_does() {
    let folder = Folder::new();
    folder.compile("cc", "faults.c", FAULTS_PROGRAM);
    assert_traces_equal(&folder, "3 4\n");
    let tree = must(folder.trodden(&["report", "one.trace"]));
    let rows = || tree.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let calls = |name: &str| -> u32 { rows().filter(|row| row.last() == Some(&name)).map(|row| row[0].parse::<u32>().unwrap()).sum() };
    assert_eq!(["poke", "leave", "mend"].map(calls), [5, 3, 4], "{tree}");
    // If several runs each watch some of the blocks, nobody knows in which block a handler interrupted the program, so this is rejected.
    let refused = folder.record(&["--runs", "2"], "two.trace", &["./app"]);
    assert!(refused.status.code() == Some(2) && traced::errors(&refused).contains("--runs 1"), "{refused:?}");
}

/// A program that ends with a call to a library function that does not return, and has padding after an earlier call. The tracer patches
/// the code after each call that may not return.
const PADDED_PROGRAM: &str = ".globl main\n.text\n.type main,@function\nmain: .cfi_startproc\npush %rbx\n.cfi_adjust_cfa_offset 8\n\
mov $5,%ebx\nlea text(%rip),%rdi\ncall puts@plt\npxor %xmm0,%xmm0\n.byte 0x0f,0x1f,0x44,0,0\n1: addsd (%rsp),%xmm0\nadd $-1,%rbx\n\
test %rbx,%rbx\njne 1b\nlea text(%rip),%rdi\ncall puts@plt\nmov $7,%edi\ncall finish\n.cfi_endproc\n.size main,.-main\n\
.section .rodata\ntext: .string \"a\"\n.section .note.GNU-stack,\"\",@progbits\n";

#[test]
fn padding_after_a_site_within_a_block_is_left_alone() {
    let folder = Folder::new();
    std::fs::write(folder.path("finish.c"), "#include <stdlib.h>\nvoid finish(int status) { exit(status); }\n").unwrap();
    std::fs::write(folder.path("padded.s"), PADDED_PROGRAM).unwrap();
    for line in ["-shared -fPIC finish.c -o libfinish.so", "padded.s -o app -L. -lfinish -Wl,-rpath,$ORIGIN"] {
        must(Command::new("cc").current_dir(folder.path("")).args(line.split_whitespace()).output().unwrap());
    }
    let merged = folder.record(&["--runs", "2", "--collector", "trampolines"], "two.trace", &["./app"]);
    assert_eq!((merged.status.code(), &merged.stdout[..]), (Some(7), &b"a\na\n"[..]), "{merged:?}");
    assert!(!traced::errors(&merged).contains("signal"), "{merged:?}");
    folder.record(&["--collector", "single-step"], "one.trace", &["./app"]);
    assert!(folder.addresses("two.trace") == folder.addresses("one.trace"));
}

/// An assembly program without symbol sizes and unwind tables. It jumps to code to which nothing else refers.
const BARE_PROGRAM: &str = ".globl main\n.text\nmain: push %rbx\nmov $4,%ebx\n7: lea table(%rip),%rdx\nmovslq (%rdx,%rbx,4),%rsi\n\
add %rdx,%rsi\njmp *%rsi\n.p2align 2\ntable: .long 1f-table, 2f-table, 3f-table, 2f-table, 4f-table\n1: jmp 6f\n2: add $1,%eax\njmp 5f\n\
3: add $7,%eax\n4: add $100,%eax\n5: dec %ebx\njns 7b\n6: pop %rbx\nxor %eax,%eax\nret\n.section .note.GNU-stack,\"\",@progbits\n";

#[test]
fn code_that_only_a_jump_reaches_is_found_in_assembly_without_sizes() {
    let folder = Folder::new();
    folder.compile("cc", "bare.s", BARE_PROGRAM);
    let blocks = record_stepping(&folder, "").len();
    let alone = must(folder.trodden(&["show", "--count", "0", "one.trace"]));
    let of_main = alone.lines().filter(|line| line.contains(" main+")).count();
    // The loop has five iterations. Each executes one of the blocks in the jump table, and all but the last execute the end of the loop.
    assert!(of_main >= 5 + 4 + 4, "{blocks} blocks: {alone}");
}

const TIME_PROGRAM: &str = r#"
#include <stdio.h>
#include <x86intrin.h>
int main(void) {
    unsigned which;
    unsigned long sum = 0;
    for (int i = 0; i < 6; i++) { if (i & 1) sum |= __rdtscp(&which); else sum |= __rdtsc(); }
    printf("%d\n", sum != 0);
    return 0;
}
"#;

#[test]
fn every_collector_can_trace_reads_of_the_time_stamp_counter() {
    let folder = Folder::new();
    folder.compile("cc", "time.c", TIME_PROGRAM);
    assert_traces_equal(&folder, "1\n");
    let probed = folder.record_with("--collector uprobes", &["--runs", "1"], "probed.trace", &["./app"]);
    if !probed.status.success() {
        // Without root or kernel support for uprobes, recording may fail, but the program must not crash.
        assert!(!traced::errors(&probed).contains("signal 11"), "{}", traced::errors(&probed));
        return;
    }
    must(folder.record(&["--runs", "1"], "one.trace", &["./app"]));
    assert!(folder.addresses("probed.trace") == folder.addresses("one.trace"));
}

#[test]
fn static_programs_are_traced_from_their_first_instruction() {
    let folder = Folder::new();
    // The C library's code to which a signal handler returns must be traced, too. Its entry in the unwind table starts one byte before it.
    let text = "#include <signal.h>\n#include <stdio.h>\nstatic void get(int signal) { puts(\"static\"); }\n\
                int main(void) { signal(SIGUSR1, get); raise(SIGUSR1); return 0; }\n";
    std::fs::write(folder.path("static.c"), text).unwrap();
    must(Command::new("cc").current_dir(folder.path("")).args(["-O1", "-static", "static.c", "-o", "app"]).output().unwrap());
    assert_traces_equal(&folder, "static\n");
}

/// A program that works forever. An interrupt ends its trace, but not the process.
const SPIN_PROGRAM: &str = "#include <unistd.h>\n\
    __attribute__((noinline)) int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += i ^ n; return s; }\n\
    int main(void) { int s = 0; for (;;) { s += work(50); usleep(1000 + (s & 1)); } }\n";

/// Starts a recording and sends it a signal after two seconds. Returns the recording's exit status, or `None` if it does not end in time.
fn interrupt_recording(folder: &Folder, options: &[&str], signal: &str) -> Option<i32> {
    let mut trace = Command::new(env!("CARGO_BIN_EXE_trodden"));
    let mut recorder = trace.current_dir(folder.path("")).args(["trace", "record"]).args(options).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    must(Command::new("kill").args([signal, &recorder.id().to_string()]).output().unwrap());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if let Some(status) = recorder.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    None
}

#[test]
fn interrupted_traces_of_a_process_are_kept() {
    let folder = Folder::new();
    folder.compile("cc", "spin.c", SPIN_PROGRAM);
    let mut program = Command::new(folder.path("app")).spawn().unwrap();
    let status = interrupt_recording(&folder, &["--pid", &program.id().to_string(), "--output", "p.trace"], "-INT");
    let runs_on = program.try_wait().unwrap().is_none();
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!(status, Some(0));
    assert!(runs_on, "the process has ended");
    assert!(folder.addresses("p.trace").len() > 10);
}

#[test]
fn started_programs_get_the_signal_and_their_traces_are_kept() {
    let folder = Folder::new();
    folder.compile("cc", "spin.c", SPIN_PROGRAM);
    assert_eq!(interrupt_recording(&folder, &["--runs", "1", "--output", "c.trace", "./app"], "-TERM"), Some(128 + 15));
    assert!(folder.addresses("c.trace").len() > 10);
}

/// A program that ignores the signals of a timer, which arrive while the program's code runs.
const IGNORED_PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
int main(void) {
    struct itimerval every = {{0, 2000}, {0, 2000}};
    signal(SIGALRM, SIG_IGN);
    setitimer(ITIMER_REAL, &every, 0);
    unsigned sum = 0;
    for (volatile int i = 0; i < 3000; i++) sum += i & 3 ? 1 : 2;
    printf("%u\n", sum);
    return 0;
}
"#;

#[test]
fn ignored_signals_do_not_prevent_merging_runs() {
    let folder = Folder::new();
    folder.compile("cc", "ignored.c", IGNORED_PROGRAM);
    let merged = folder.record(&["--runs", "2", "--collector", "ptrace"], "merged.trace", &["./app"]);
    assert!(!traced::errors(&merged).contains("falling back to one run"), "{}", traced::errors(&merged));
    assert_eq!(must(merged), "3750\n");
    assert_eq!(assert_traces_equal(&folder, "3750\n"), folder.addresses("merged.trace"));
}

/// A program with children that are created inside the C library and return to the program's own code.
const FORKS_PROGRAM: &str = r#"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) { volatile int n = 40; for (int k = 0; k <= i; k++) n++; _exit(n); }
        int status;
        waitpid(child, &status, 0);
        printf("%d %d\n", WIFEXITED(status), WEXITSTATUS(status));
    }
    return 0;
}
"#;

#[test]
fn untraced_children_run_as_without_tracing() {
    let folder = Folder::new();
    folder.compile("cc", "forks.c", FORKS_PROGRAM);
    assert_traces_equal(&folder, "1 41\n1 42\n");
}

/// A program without symbols and unwind tables, in which only words in the data refer to the functions. One `call` jumps to the instruction
/// after it.
const DATA_CALL_PROGRAM: &str = ".globl _start\n.text\n_start: xor %ebx,%ebx\n1: mov %ebx,%edx\nand $3,%edx\ncall *tab(,%rdx,8)\ninc %ebx\n\
cmp $9,%ebx\njl 1b\ncall 2f\n2: pop %rax\nmov $60,%eax\nxor %edi,%edi\nsyscall\nhlt\n.p2align 4\nf0: inc %ecx\nret\n.p2align 4\n\
f1: push %rbx\ncall f0\npop %rbx\nret\n.p2align 4\nf2: test %ebx,%ebx\njz 3f\nret\n3: ret\n.p2align 4\nf3: ret\n.data\n\
tab: .quad f0, f1, f2, f3\n.section .note.GNU-stack,\"\",@progbits\n";

#[test]
fn functions_that_only_data_refers_to_are_traced() {
    let folder = Folder::new();
    std::fs::write(folder.path("named.s"), DATA_CALL_PROGRAM).unwrap();
    let options = ["-nostdlib", "-static", "-no-pie", "-Wl,-s", "-o"];
    must(Command::new("cc").args(options).arg(folder.path("app")).arg(folder.path("named.s")).output().unwrap());
    let blocks = assert_traces_equal(&folder, "");
    // One block at the start, two in each of nine iterations, and two at the end; then five in `f0`, two in each of two calls to `f1` and
    // to `f2`, and two in `f3`.
    assert_eq!(blocks.len(), 1 + 2 * 9 + 2 + 5 + 4 + 4 + 2, "{blocks:?}");
    must(folder.record(&["--runs", "4"], "several.trace", &["./app"]));
    assert_eq!(folder.addresses("several.trace"), blocks);
}

/// An interpreter as in GCC's manual ("Labels as Values"). No analysis understands its table of two-byte distances. Only execution shows
/// where its jumps lead, and the code that they reach contains more such jumps.
const DISTANCES_PROGRAM: &str = r#"
#include <stdio.h>
__attribute__((noinline)) static int run(const unsigned char *p) {
    static const short offset[] = { &&add - &&add, &&sub - &&add, &&dup - &&add, &&end - &&add };
    int a = 1;
    goto *(&&add + offset[*p++]);
add: a += 3; goto *(&&add + offset[*p++]);
sub: a -= 1; goto *(&&add + offset[*p++]);
dup: a *= 2; goto *(&&add + offset[*p++]);
end: return a;
}
int main(void) { static const unsigned char code[] = { 0, 1, 2, 0, 2, 1, 3 }; printf("%d\n", run(code)); return 0; }
"#;

#[test]
fn jumps_reached_only_by_resolved_jumps_are_traced() {
    let folder = Folder::new();
    std::fs::write(folder.path("distances.c"), DISTANCES_PROGRAM).unwrap();
    must(Command::new("gcc").args(["-O2", "-o"]).arg(folder.path("app")).arg(folder.path("distances.c")).output().unwrap());
    assert_traces_equal(&folder, "17\n");
    let shown = must(folder.trodden(&["report", "one.trace"]));
    let run: Vec<&str> = shown.lines().find(|line| line.ends_with(" run")).unwrap().split_whitespace().collect();
    // One block at the entry, and one for each of the seven executed instructions of the interpreter.
    assert_eq!(run, ["1", "8", "run"], "{shown}");
}

/// A program with a function to which nothing refers: its address is computed, and the function is called through a register and through
/// the stack. With an argument, the last call faults.
const COMPUTED_PROGRAM: &str = ".globl _start\n.text\n_start: mov $3,%ebx\n1: mov $(f0+0x10000000),%eax\nsub $0x10000000,%eax\ncall *%rax\n\
push %rax\ncall *(%rsp)\npop %rax\ndec %ebx\njnz 1b\nmov (%rsp),%rdi\ncmp $1,%rdi\nje 2f\ncall *0x28(%rbx)\n2: mov $60,%eax\n\
xor %edi,%edi\nsyscall\nhlt\n.p2align 4\nf0: test $1,%bl\njz 3f\ninc %ecx\n3: ret\n.section .note.GNU-stack,\"\",@progbits\n";

#[test]
fn functions_that_only_executed_calls_reveal_are_traced() {
    let folder = Folder::new();
    std::fs::write(folder.path("computed.s"), COMPUTED_PROGRAM).unwrap();
    let options = ["-nostdlib", "-static", "-no-pie", "-Wl,-s", "-o"];
    must(Command::new("cc").args(options).arg(folder.path("app")).arg(folder.path("computed.s")).output().unwrap());
    let blocks = record_stepping(&folder, "");
    // Three iterations of three blocks each, because each contains two calls. Per iteration, both calls execute three blocks, except for
    // two in the second iteration. Three more blocks are the start, the branch after the loop, and the end.
    assert_eq!(blocks.len(), 3 * 3 + 2 * (3 + 2 + 3) + 3, "{blocks:?}");
    for options in IN_ONE_RUN {
        let killed = folder.record(options, "killed.trace", &["./app", "x"]);
        assert_eq!(killed.status.code(), Some(128 + 11), "{options:?}: {}", traced::errors(&killed));
        if options.contains(&"single-step") {
            assert_eq!(folder.addresses("killed.trace")[..blocks.len() - 1], blocks[..blocks.len() - 1], "{options:?}");
        }
    }
}

/// A program with a retpoline, and with a `ret` to an address that it pushed.
const RETURNS_AS_JUMPS_PROGRAM: &str = r#"
__asm__(".globl thunk\nthunk: lea 6f(%rip),%rax\n call 7f\n8: pause\n lfence\n jmp 8b\n7: mov %rax,(%rsp)\n ret\n6: mov %edi,%eax\n ret\n"
        ".globl pushed\npushed: lea 3f(%rip),%rax\n test $1,%edi\n je 4f\n lea 5f(%rip),%rax\n4: push %rax\n ret\n"
        "3: mov $10,%eax\n ret\n5: mov $20,%eax\n ret\n");
int thunk(int);
int pushed(int);
int main(void) {
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += thunk(i) + pushed(i);
    return sum == 28 + 120 ? 0 : 1;
}
"#;

#[test]
fn code_after_retpolines_and_returns_used_as_jumps_is_traced() {
    let folder = Folder::new();
    folder.compile("cc", "returns.c", RETURNS_AS_JUMPS_PROGRAM);
    for options in IN_ONE_RUN.iter().copied().chain([&["--runs", "4"][..]]) {
        must(folder.record(options, "one.trace", &["./app"]));
        let tree = must(folder.trodden(&["report", "one.trace"]));
        // Each of eight rounds executes at least one block, and one more block follows the loop.
        let blocks = tree.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|row| row.last() == Some(&"main"));
        assert!(blocks.is_some_and(|row| row[1].parse::<u32>().unwrap() >= 9), "{options:?}: {tree}");
    }
}

/// A handler skips the trapping instruction, as the kernel does for `WARN`.
const SKIPPED_TRAP_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
static volatile int n;
static void skip(int s, siginfo_t *i, void *u) { n++; ((ucontext_t *)u)->uc_mcontext.gregs[REG_RIP] += 2; }
__attribute__((noinline)) static void check(void) { __asm__ volatile(TRAP); }
__attribute__((noinline)) static void after(int i) { n += i & 1 ? 2 : 0; }
int main(void) {
    struct sigaction a = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &a, 0);
    sigaction(SIGSEGV, &a, 0);
    for (int i = 0; i < 10; i++) { check(); after(i); }
    printf("%d\n", n);
    return 0;
}
"#;

#[test]
fn code_after_a_trap_skipped_by_a_handler_is_traced() {
    for trap in ["ud2", "hlt; nop"] {
        let folder = Folder::new();
        folder.compile("cc", "skipped.c", &format!("#define TRAP \"{trap}\"\n{SKIPPED_TRAP_PROGRAM}"));
        assert_traces_equal(&folder, "20\n");
        let tree = must(folder.trodden(&["report", "one.trace"]));
        for name in ["check", "after"] {
            let row = tree.lines().find(|line| line.split_whitespace().last() == Some(name));
            assert!(row.is_some_and(|row| row.trim_start().starts_with("10 ")), "{trap}: {tree}");
        }
    }
}

/// `clone3` with `CLONE_UNTRACED` creates a process that shares the program's memory. After the call, the flags in its arguments must still
/// be those that the program set.
const CLONE3_PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int sum;
static char stack[65536] __attribute__((aligned(16)));
__attribute__((noinline)) static void work(int n) { for (int i = 0; i < n; i++) sum += i & 1 ? 2 : 1; }
__attribute__((noinline, used)) static void child(void) { work(10); syscall(SYS_exit, 7); }
int main(void) {
    struct clone_args a = {.flags = CLONE_VM | CLONE_UNTRACED, .exit_signal = SIGCHLD, .stack = (long)stack, .stack_size = sizeof stack};
    long made;
    __asm__ volatile("syscall; test %%rax,%%rax; jne 1f; call child; hlt; 1:" : "=a"(made)
                     : "a"(SYS_clone3), "D"(&a), "S"(sizeof a) : "rcx", "r11", "memory");
    int status = 0;
    waitpid(made, &status, 0);
    work(10);
    printf("%d %d %d\n", sum, WIFEXITED(status) ? WEXITSTATUS(status) : -1, (a.flags & CLONE_UNTRACED) != 0);
    return 0;
}
"#;

#[test]
fn untraced_processes_from_clone3_hit_no_breakpoints() {
    let folder = Folder::new();
    folder.compile("cc", "untraced.c", CLONE3_PROGRAM);
    assert_eq!(must(Command::new(folder.path("app")).output().unwrap()), "30 7 1\n");
    for options in &IN_ONE_RUN[..2] {
        assert_eq!(must(folder.record(options, "one.trace", &["./app"])), "30 7 1\n", "{options:?}");
    }
}
