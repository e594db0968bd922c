//! Compares trampolines with single-stepping on system programs: every block of the image, in order.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use trodden_binary::{AddressMap, Binary, recover};
use trodden_trace::{
    CollectError, Collector, Executable, FixedRunConditions, FollowEnding, InheritedSignals, Launcher, ProgramStart, PtraceBreakpoints,
    RESUMED_FLAG, RunOutcome, RunTarget, SingleStep, Sink, SinkFlow, TRANSFER_FLAG, ThreadNumber, TraceRun, TrampolineCollector,
    UprobeCollector,
};

/// Sink that keeps the hits of each thread in memory.
#[derive(Default)]
struct Streams(Vec<Vec<u64>>);

impl Sink for Streams {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> std::io::Result<SinkFlow> {
        self.0.resize(self.0.len().max(thread.0 as usize + 1), Vec::new());
        self.0[thread.0 as usize].push(what & !(TRANSFER_FLAG | RESUMED_FLAG));
        Ok(SinkFlow::Continue)
    }
}

/// Returns all blocks of a program, ascending.
fn blocks(program: &Path) -> Vec<Range<u64>> {
    let binary = Binary::read(program).unwrap();
    let map = AddressMap::read(&binary).unwrap();
    let graph = recover(&binary, map.as_ref(), &[]).unwrap();
    let mut blocks: Vec<Range<u64>> = graph.functions.iter().flat_map(|f| &f.blocks).map(|b| b.start..b.end_address()).collect();
    blocks.sort_by_key(|b| (b.start, b.end));
    blocks.dedup_by_key(|b| b.start);
    blocks
}

fn collect(collector: &dyn Collector, command: ProgramStart, blocks: &[Range<u64>]) -> (Vec<Vec<u64>>, RunOutcome) {
    let sites: Vec<u64> = blocks.iter().map(|b| b.start).collect();
    collect_sites(collector, command, blocks, &sites)
}

/// Records the hits of some sites.
fn collect_sites(collector: &dyn Collector, command: ProgramStart, blocks: &[Range<u64>], sites: &[u64]) -> (Vec<Vec<u64>>, RunOutcome) {
    let mut streams = Streams::default();
    let outcome = try_collect(collector, command, blocks, sites, &mut streams).unwrap();
    if collector.name() == "single-step" {
        streams.0.iter_mut().for_each(|stream| stream.retain(|address| sites.binary_search(address).is_ok()));
    } else {
        streams.0.iter_mut().flatten().for_each(|site| *site = sites[*site as usize]);
    }
    (streams.0, outcome)
}

fn try_collect(
    collector: &dyn Collector,
    command: ProgramStart,
    blocks: &[Range<u64>],
    sites: &[u64],
    streams: &mut Streams,
) -> Result<RunOutcome, CollectError> {
    let executable = Executable::read(Path::new(&command.program)).unwrap();
    let recipe = FixedRunConditions { core: trodden_trace::cores().first().copied(), ..FixedRunConditions::ALL };
    let target = RunTarget::Start(Box::new(command));
    let stop = AtomicBool::new(false);
    let run = TraceRun {
        target,
        executable: &executable,
        sites,
        jumps: &[],
        blocks,
        guarded: &HashSet::new(),
        unwatched: &HashSet::new(),
        libraries: &[],
        recipe,
        first: None,
        stop: &stop,
        limit: None,
        process_sender: None,
        children: None,
        note: |_| {},
    };
    std::thread::scope(|s| s.spawn(|| collector.collect(run, streams)).join().unwrap())
}

fn command(line: &[&str], input: &Path) -> ProgramStart {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]);
    let mut program = ProgramStart::new(&Launcher::fork(&InheritedSignals::now()).unwrap(), &command);
    let nothing = || Some(File::options().write(true).open("/dev/null").unwrap().into());
    program.streams = [Some(File::open(input).unwrap().into()), nothing(), nothing()];
    program
}

#[test]
fn programs_that_cannot_be_traced_are_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("marker");
    let program = command(&["/bin/touch", marker.to_str().unwrap()], Path::new("/dev/null"));
    // No code is at this address.
    let outcome = try_collect(&TrampolineCollector, program, std::slice::from_ref(&(8..9)), &[8], &mut Streams::default());
    assert!(matches!(outcome, Err(CollectError::NoCode { address: 8, .. })), "{outcome:?}");
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!marker.exists());
}

fn check_against_stepping(line: &[&str], input: &str) {
    check_collector_against_stepping(&TrampolineCollector, line, input);
}

fn check_collector_against_stepping(collector: &dyn Collector, line: &[&str], input: &str) {
    if !Path::new(line[0]).exists() {
        eprintln!("skipped: {} is not installed", line[0]);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input");
    std::fs::write(&file, input).unwrap();
    let blocks = blocks(Path::new(line[0]));
    let (expected, first) = collect(&SingleStep, command(line, &file), &blocks);
    let (found, second) = collect(collector, command(line, &file), &blocks);
    assert_eq!(first.followed.status, second.followed.status, "{line:?}");
    let parts = found[0].iter().zip(&expected[0]).position(|(a, b)| a != b);
    let near = |stream: &[u64]| format!("{:x?}", &stream[parts.unwrap_or(0).saturating_sub(3)..stream.len().min(parts.unwrap_or(0) + 4)]);
    assert!(
        found == expected,
        "{line:?}: {} and {} blocks, they differ at {parts:?}: {} and {}",
        found[0].len(),
        expected[0].len(),
        near(&found[0]),
        near(&expected[0])
    );
    assert!(found[0].len() > 20, "{line:?}");
}

const TEXT: &str = "a small text, a small text\nof two lines\n";

#[test]
fn trampolines_agree_with_stepping_on_gzip() {
    check_against_stepping(&["/usr/bin/gzip", "-c"], TEXT);
}

#[test]
fn trampolines_agree_with_stepping_on_sed() {
    check_against_stepping(&["/usr/bin/sed", "s/a\\(.\\)/\\1b/g"], TEXT);
}

#[test]
fn trampolines_agree_with_stepping_on_sort() {
    check_against_stepping(&["/usr/bin/sort", "-r"], TEXT);
}

#[test]
fn trampolines_agree_with_stepping_on_grep() {
    check_against_stepping(&["/usr/bin/grep", "-c", "t[ex]*t"], TEXT);
}

#[test]
fn trampolines_agree_with_stepping_on_a_shell_with_a_signal_handler() {
    check_against_stepping(&["/usr/bin/dash", "-c", "for i in 1 2 3; do echo $i; done; trap 'echo t' TERM; kill $$; exit 3"], "");
}

#[test]
fn trampolines_agree_with_stepping_on_mawk() {
    check_against_stepping(&["/usr/bin/mawk", "{ n += length($0); print substr($0, 2) } END { print n }"], TEXT);
}

#[test]
fn children_run_untraced() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        __attribute__((noinline)) static int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += i & 1 ? i : 3; return s; }
        static void caught(int s) { (void)s; }
        int main(void) {
            int status, sum = 0;
            signal(SIGTRAP, caught);
            for (int i = 0; i < 3; i++) {
                pid_t child = fork();
                if (child == 0) { __asm__ volatile("int3"); _exit(work(i + 4)); }
                waitpid(child, &status, 0);
                sum += WEXITSTATUS(status) + work(i);
            }
            pid_t child = vfork();
            if (child == 0) _exit(7);
            waitpid(child, &status, 0);
            return system("exit 5") / 256 + sum + WEXITSTATUS(status);
        }"#;
    std::fs::write(folder.path().join("a.c"), source).unwrap();
    for options in [&["-O1"][..], &["-O1", "-static"]] {
        let status = Command::new("cc").current_dir(folder.path()).args(options).args(["a.c", "-o", "app"]).status().unwrap();
        assert!(status.success());
        let app = folder.path().join("app");
        let plain = Command::new(&app).status().unwrap();
        assert!(plain.code().unwrap() > 12);
        let blocks = blocks(&app);
        let (found, outcome) = collect(&TrampolineCollector, command(&[app.to_str().unwrap()], &folder.path().join("a.c")), &blocks);
        assert_eq!(outcome.followed.status, Some(plain.code().unwrap() << 8), "{options:?}");
        let (expected, _) = collect(&PtraceBreakpoints, command(&[app.to_str().unwrap()], &folder.path().join("a.c")), &blocks);
        assert!(found[0] == expected[0], "{options:?}: {} and {} blocks", found[0].len(), expected[0].len());
    }
}

#[test]
fn trampolines_agree_with_stepping_on_cxx_with_exceptions_and_signals() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <cstdio>
        #include <stdexcept>
        #include <csignal>
        static volatile int signals;
        static void handler(int) { for (int i = 0; i < 3; i++) signals = signals + i; }
        __attribute__((noinline)) int risky(int i) { if (i % 3 == 0) throw std::runtime_error("three"); return i * 2; }
        __attribute__((noinline)) int careful(int i) { try { return risky(i); } catch (const std::exception &) { return -1; } }
        int main() {
            std::signal(SIGUSR1, handler);
            int sum = 0;
            for (int i = 0; i < 8; i++) { sum += careful(i); std::raise(SIGUSR1); }
            for (int i = 0; i < 4; i++) switch (sum % 5 + i) {
                case 0: sum++; break; case 1: sum += 2; break; case 2: sum *= 3; break; case 3: sum -= 7; }
            std::printf("%d %d\n", sum, signals);
            return 0;
        }"#;
    std::fs::write(folder.path().join("a.cc"), source).unwrap();
    let status = Command::new("c++").current_dir(folder.path()).args(["-O2", "a.cc", "-o", "app"]).status().unwrap();
    assert!(status.success());
    check_against_stepping(&[folder.path().join("app").to_str().unwrap()], "");
}

#[test]
fn full_rings_lose_no_hits() {
    // The loop causes more hits than a ring holds. Its number of iterations determines how many hits must be recorded.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("a.c"),
        "int main(void) { unsigned s = 1; for (unsigned i = 0; i < 2000000; i++) s = s * 31 + (s & 4 ? i : 7); return s >> 28; }\n",
    )
    .unwrap();
    let status = Command::new("clang-22").current_dir(folder.path()).args(["-O0", "a.c", "-o", "app"]).status().unwrap();
    assert!(status.success());
    let app = folder.path().join("app");
    let blocks = blocks(&app);
    let input = folder.path().join("a.c");
    let (found, outcome) = collect(&TrampolineCollector, command(&[app.to_str().unwrap()], &input), &blocks);
    let plain = Command::new(&app).status().unwrap();
    assert_eq!(outcome.followed.status, Some(plain.code().unwrap() << 8));
    // The loop's condition is executed once more than its body.
    let mut counts = std::collections::BTreeMap::<u64, u64>::new();
    found[0].iter().for_each(|block| *counts.entry(*block).or_default() += 1);
    let mut most: Vec<u64> = counts.into_values().filter(|n| *n >= 2_000_000).collect();
    most.sort_unstable();
    assert_eq!(most, [2_000_000, 2_000_000, 2_000_001]);
}

/// Runs a program and returns the number of hits of a function's entry in each thread, with the outcome.
fn count_entries(collector: &dyn Collector, source: &str, options: &[&str], function: &str) -> (Vec<usize>, RunOutcome) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.c"), source).unwrap();
    let status = Command::new("cc").current_dir(folder.path()).args(options).args(["a.c", "-o", "app"]).status().unwrap();
    assert!(status.success());
    let app = folder.path().join("app");
    let blocks = blocks(&app);
    let entry = Binary::read(&app).unwrap().functions().iter().find(|f| f.name == function).unwrap().address;
    let command = command(&[app.to_str().unwrap()], &folder.path().join("a.c"));
    let (found, outcome) = collect_sites(collector, command, &blocks, &[entry]);
    (found.iter().map(|stream| stream.iter().filter(|block| **block == entry).count()).collect(), outcome)
}

#[test]
fn hundreds_of_concurrent_threads_are_recorded() {
    let source = r#"
        #include <pthread.h>
        static pthread_barrier_t all;
        __attribute__((noinline)) static void met(void) { pthread_barrier_wait(&all); }
        static void *run(void *p) { met(); return p; }
        int main(void) {
            static pthread_t t[300];
            pthread_attr_t small;
            pthread_attr_init(&small);
            pthread_attr_setstacksize(&small, 65536);
            pthread_barrier_init(&all, 0, 301);
            for (int i = 0; i < 300; i++) if (pthread_create(&t[i], &small, run, 0)) return 1;
            met();
            for (int i = 0; i < 300; i++) pthread_join(t[i], 0);
            return 0;
        }"#;
    let (found, outcome) = count_entries(&TrampolineCollector, source, &["-O1", "-pthread"], "met");
    assert_eq!((outcome.followed.status, outcome.followed.threads), (Some(0), 301));
    assert_eq!(found, vec![1; 301]);
}

/// Returns true if this process may set probes, which requires root.
fn may_probe() -> bool {
    let root = std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|l| l.starts_with("Uid:\t0\t"));
    let may = root && Path::new("/sys/bus/event_source/devices/uprobe").exists();
    if !may {
        eprintln!("skipped: this user may not set uprobes, or the kernel has none");
    }
    may
}

#[test]
fn uprobes_on_all_blocks_agree_with_stepping() {
    if may_probe() {
        check_collector_against_stepping(&UprobeCollector, &["/usr/bin/gzip", "-c"], "a small text, a small text\n");
        check_collector_against_stepping(&UprobeCollector, &["/usr/bin/mawk", "{ n += NF } END { print n }"], "a b\nc d e\n");
    }
}

#[test]
fn half_full_probe_ring_loses_no_hits() {
    if !may_probe() {
        return;
    }
    let source = "__attribute__((noinline)) static int one(int i) { __asm__ volatile(\"\"); return i & 1; }\n\
        int main(void) { unsigned s = 0; for (int i = 0; i < 400000; i++) s += one(i); return s == 200000 ? 7 : 1; }\n";
    let (found, outcome) = count_entries(&UprobeCollector, source, &["-O1"], "one");
    assert_eq!((outcome.followed.ending, outcome.followed.asynchronous_signals), (FollowEnding::Exited(7), 0));
    assert_eq!(found, [400_000]);
}

#[test]
fn threads_with_timer_signals_are_recorded() {
    // Signals arrive at any time. Apart from the handlers' blocks, each thread's blocks are those of a run with breakpoints.
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <sys/time.h>
        static volatile int ticks;
        static void tick(int s) { (void)s; for (int i = 0; i < 5; i++) ticks += i & 1; }
        __attribute__((noinline)) static long work(long n) {
            long s = n; for (long i = 0; i < 300000; i++) s = s * 7 + (s & 2 ? i : -i) + (s & 8 ? 3 : 1); return s; }
        static void *run(void *p) { return (void *)work((long)p); }
        int main(void) {
            struct itimerval every = {{0, 500}, {0, 500}};
            signal(SIGALRM, tick);
            setitimer(ITIMER_REAL, &every, 0);
            pthread_t t[3];
            long sum = 0;
            for (long i = 0; i < 3; i++) pthread_create(&t[i], 0, run, (void *)i);
            for (int i = 0; i < 3; i++) { void *r; pthread_join(t[i], &r); sum += (long)r; }
            // However fast the machine is, signals interrupt code: each counts two.
            while (ticks < 40) {}
            return (int)(sum & 63);
        }"#;
    std::fs::write(folder.path().join("a.c"), source).unwrap();
    let status = Command::new("cc").current_dir(folder.path()).args(["-O1", "-pthread", "a.c", "-o", "app"]).status().unwrap();
    assert!(status.success());
    let app = folder.path().join("app");
    let plain = Command::new(&app).status().unwrap();
    let blocks = blocks(&app);
    let (found, outcome) = collect(&TrampolineCollector, command(&[app.to_str().unwrap()], &folder.path().join("a.c")), &blocks);
    assert_eq!(outcome.followed.status, Some(plain.code().unwrap() << 8));
    assert_eq!(found.len(), 4);
    let symbol = |name: &str| {
        Binary::read(&app).unwrap().functions().iter().find(|f| f.name == name).map(|f| f.address..f.address + f.size).unwrap()
    };
    let (tick, work) = (symbol("tick"), symbol("work"));
    assert!(outcome.followed.asynchronous_signals > 3, "{outcome:?}");
    assert!(found.iter().flatten().filter(|block| **block == tick.start).count() > 3);
    for stream in &found[1..] {
        let own: Vec<u64> = stream.iter().copied().filter(|block| work.contains(block)).collect();
        assert!(own.len() > 300_000, "{} blocks", own.len());
    }
    let again = |collector: &dyn Collector| {
        let command = command(&[app.to_str().unwrap()], &folder.path().join("a.c"));
        let (found, _) = collect_sites(collector, command, &blocks, &[work.start]);
        found.iter().flatten().filter(|block| **block == work.start).count()
    };
    assert_eq!((again(&TrampolineCollector), again(&PtraceBreakpoints)), (3, 3));
}

/// Jumps through a table to blocks of two and four bytes at the end of a page, while a timer sends signals. With a second argument, the
/// next page, which has the other blocks, is made writable first.
const SHORT_BLOCKS: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
static volatile int ticks;
static void tick(int s) { (void)s; ticks++; }
long work(long n);
__asm__(".text\n.balign 4096\n.globl work\n.type work, @function\n"
    "work: xor %eax, %eax\n jmp test\n"
    ".org work + 4090, 0xcc\n"
    "one: inc %eax\n"
    "two: dec %edi\n jmp test\n"
    "test: lea 1(%rdi), %ecx\n lea 2(%rdi), %edx\n test %edi, %edi\n je over\n"
    " mov %edi, %ecx\n and $1, %ecx\n lea table(%rip), %rdx\n"
    " movslq (%rdx, %rcx, 4), %rcx\n add %rdx, %rcx\n jmp *%rcx\n"
    "over: ret\n .size work, .-work\n"
    ".section .rodata\n.balign 4\ntable: .long one - table, two - table\n.text\n");
int main(int count, char **arguments) {
    struct itimerval every = {{0, 300}, {0, 300}};
    signal(SIGALRM, tick);
    if (count > 2 && mprotect((char *)work + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)) return 9;
    setitimer(ITIMER_REAL, &every, 0);
    long n = atol(arguments[1]);
    return work(n) == n / 2 ? 3 : 4;
}
"#;

/// Records the hits of the blocks of `work` in order of address: its entry, the two short ones, and the three on the next page.
fn hits_of_short_blocks(collector: &dyn Collector, arguments: &[&str]) -> (Vec<usize>, RunOutcome) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.c"), SHORT_BLOCKS).unwrap();
    assert!(Command::new("cc").current_dir(folder.path()).args(["-O1", "a.c", "-o", "app"]).status().unwrap().success());
    let app = folder.path().join("app");
    let work = Binary::read(&app).unwrap().functions().iter().find(|f| f.name == "work").unwrap().address;
    let blocks = [0..7, 4090..4092, 4092..4096, 4096..4106, 4106..4127, 4127..4128].map(|b| work + b.start..work + b.end);
    let sites: Vec<u64> = blocks.iter().map(|b| b.start).collect();
    let line = [&[app.to_str().unwrap()], arguments].concat();
    let (found, outcome) = collect_sites(collector, command(&line, &folder.path().join("a.c")), &blocks, &sites);
    (sites.iter().map(|site| found[0].iter().filter(|hit| *hit == site).count()).collect(), outcome)
}

#[test]
fn short_blocks_are_recorded_while_signals_arrive() {
    const N: usize = 3_000_000;
    let (found, outcome) = hits_of_short_blocks(&TrampolineCollector, &[&N.to_string()]);
    assert_eq!(outcome.followed.ending, FollowEnding::Exited(3));
    assert!(outcome.followed.asynchronous_signals > 0, "{outcome:?}");
    assert_eq!(found, [1, N / 2, N, N + 1, N, 1]);
}

#[test]
fn short_blocks_are_recorded_after_the_code_of_their_relays_has_changed() {
    const N: usize = 500;
    for collector in [&TrampolineCollector as &dyn Collector, &PtraceBreakpoints] {
        let (found, outcome) = hits_of_short_blocks(collector, &[&N.to_string(), "changed"]);
        assert_eq!((outcome.followed.ending, outcome.followed.changed_code.len()), (FollowEnding::Exited(3), 1), "{}", collector.name());
        assert_eq!(found, [1, N / 2, N, 0, 0, 0], "{}", collector.name());
    }
}
