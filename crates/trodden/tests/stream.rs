//! Streams: counts made from them against those of a counting run; frames across `longjmp`, exceptions, threads, `fork`;
//! what is left after a crash, an abort, `kill -9`.

mod place;

use place::{Place, must, trodden};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use trodden_profile::stream::{Nesting, NestingStep, Places, StreamLog, Symbol};
use trodden_profile::{FunctionPaths, Profile};

/// Threads, recursion, `longjmp` over frames, `fork` in the middle of a function, `exec`, a signal handler that counts.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static jmp_buf back;
static volatile int ticks;
__attribute__((noinline)) static int leaf(int x) { return x % 3 ? x * 2 : x + 1; }
__attribute__((noinline)) static void deep(int n) { if (n == 0) longjmp(back, 1); deep(n - 1); puts("never"); }
__attribute__((noinline)) static int work(int n) {
    int s = 0;
    for (int i = 0; i < n; i++) { if (i & 1) s += leaf(i); else s ^= i; }
    return s;
}
__attribute__((noinline)) static int down(int n) { return n ? down(n - 1) + leaf(n) : 0; }
static void *thread(void *p) { long r = (long)p; for (int i = 0; i < 40; i++) r += work(500); return (void *)r; }
static void on(int s) { ticks += work(s) > 0; }
int main(int argc, char **argv) {
    if (argc > 1) { printf("%d\n", work(9)); return 0; }
    pthread_t t[3];
    for (long i = 0; i < 3; i++) pthread_create(&t[i], 0, thread, (void *)i);
    for (volatile int i = 0; i < 5; i++) if (!setjmp(back)) deep(i + 3);
    long r = 0;
    for (int i = 0; i < 3; i++) { void *v; pthread_join(t[i], &v); r += (long)v; }
    signal(SIGUSR1, on);
    for (int i = 0; i < 20; i++) raise(SIGUSR1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) { printf("child %d\n", work(77)); fflush(stdout); _exit(work(5) & 1); }
    waitpid(child, 0, 0);
    child = fork();
    if (child == 0) { work(3); execl(argv[0], argv[0], "again", (char *)0); }
    waitpid(child, 0, 0);
    printf("%ld %d %d %d\n", r, work(10000), down(300), ticks);
    return 0;
}
"#;

/// Exceptions through frames with and without landing pads, caught in the same function twice.
const EXCEPTIONS: &str = r#"
#include <cstdio>
#include <stdexcept>
#include <string>
struct Guard { int *n; ~Guard() { ++*n; } };
__attribute__((noinline)) int check(int n) { if (n % 7 == 3) throw std::runtime_error("three"); return n; }
__attribute__((noinline)) int plain(int n) { return n > 2 ? check(n) + 1 : check(n) - 1; }
__attribute__((noinline)) int guarded(int n, int *g) { Guard guard{g}; return plain(n) + plain(n + 1); }
__attribute__((noinline)) int outer(int n, int *g) {
    int sum = 0;
    for (int i = 0; i < n; i++) { try { sum += guarded(i, g); } catch (const std::exception &e) { sum -= e.what()[0] & 1; } }
    return sum;
}
int main() { int g = 0; int s = outer(50, &g); std::printf("%d %d\n", s, g); }
"#;

const RUST: &str = r#"
use std::collections::BTreeMap;
use std::panic;
#[inline(never)]
fn score(word: &str) -> usize { if word.len() > 3 { word.bytes().filter(|b| *b == b'e').count() } else { word.len() } }
#[inline(never)]
fn strict(n: u32) -> u32 { if n == 3 { panic!("three") } n * 2 }
fn main() {
    panic::set_hook(Box::new(|_| {}));
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for word in "the quick brown fox jumps over the lazy dog where the eels are".split(' ') {
        *seen.entry(word.to_owned()).or_default() += score(word);
    }
    let threads: Vec<_> = (0..3).map(|n| std::thread::spawn(move ||
        (0..200u32).filter(|i| i % (n + 2) == 0).map(strict).sum::<u32>())).collect();
    let ended = threads.into_iter().map(|t| t.join().is_ok()).filter(|ok| *ok).count();
    let caught = (0..5).filter(|n| panic::catch_unwind(|| strict(*n)).is_err()).count();
    println!("{} {} {}", seen.values().sum::<usize>(), ended, caught);
}
"#;

/// Complete and unfinished paths of every function, by its blocks.
type Counts = BTreeMap<(String, Vec<u32>, bool), i64>;

fn counts(profile: &Profile) -> Counts {
    let mut counts = Counts::new();
    // What Rust's standard library does depends on the order of threads, and its personality on where the code lies.
    let is_of_std = |name: &str| name == "rust_eh_personality" || (name.contains("3std") && !name.contains("subject"));
    for (_, unit, function) in profile.functions().filter(|f| !is_of_std(&f.2.name)) {
        let paths = FunctionPaths::decode(function, unit.counts_of(function)).unwrap();
        let name = without_hash(&function.name).to_owned();
        let blocks = |blocks: &[trodden_flow::Node]| blocks.iter().map(|b| b.0).collect::<Vec<u32>>();
        for path in &paths.complete {
            *counts.entry((name.clone(), blocks(&path.blocks), true)).or_default() += path.count as i64;
        }
        for path in &paths.unfinished {
            *counts.entry((name.clone(), blocks(&path.blocks), false)).or_default() += path.count;
        }
    }
    counts
}

/// Rust's names end with a hash, of the way they were built, too.
fn without_hash(name: &str) -> &str {
    name.rfind("17h").filter(|at| name.len() - at == 20).map_or(name, |at| &name[..at])
}

fn recorded(place: &Place, program: &str, options: &[&str], file: &str) -> (Output, Profile) {
    let mut command = place.command(trodden());
    command.arg("record").args(options).args(["--no-store", "-o", file, "--"]).arg(place.path(program));
    let output = must(&mut command);
    (output, Profile::read(&place.path(file)).unwrap())
}

/// Records a program by counting and by its stream: output and counts must be equal.
fn same(place: &Place) -> Profile {
    let (plain, counted) = recorded(place, "counting", &[], "counted.trodden");
    let (output, streamed) = recorded(place, "streaming", &["--whole-program"], "streamed.trodden");
    assert_eq!(String::from_utf8_lossy(&plain.stdout), String::from_utf8_lossy(&output.stdout));
    let (counted, from_stream) = (counts(&counted), counts(&streamed));
    assert!(counted.len() > 5, "{counted:?}");
    let differ = |a: &Counts, b: &Counts| a.iter().filter(|(k, n)| b.get(k) != Some(n)).map(|(k, n)| (k.clone(), *n)).collect::<Vec<_>>();
    assert_eq!(differ(&counted, &from_stream), [], "counted, and not so in the stream");
    assert_eq!(differ(&from_stream, &counted), [], "in the stream, and not so counted");
    streamed
}

/// Every thread's frames follow from its events without a doubt.
fn nests(place: &Place, profile: &Profile) -> Vec<(u64, usize)> {
    let mut threads = Vec::new();
    for file in std::fs::read_dir(place.path("streamed.trodden.streams")).unwrap().map(|e| e.unwrap().path()) {
        let log = StreamLog::open(&file).unwrap();
        let image = profile.images.iter().find(|i| i.identity == log.head().image).unwrap();
        let places = Places::new(log.head(), image);
        for thread in log.threads() {
            let (mut nesting, mut unwound, mut uncalled) = (Nesting::new(&places), 0, 0);
            log.visit(thread, 0, |event| {
                let step = nesting.feed(event);
                assert_ne!(step, NestingStep::Unknown);
                if let NestingStep::Unwound(frames) = step {
                    unwound += frames as u64;
                }
                if let (NestingStep::Entered(frame), Symbol::Enter(_)) = (step, event) {
                    uncalled += u64::from(frame.call.is_none() && nesting.frames().len() > 1);
                }
                true
            })
            .unwrap();
            let unclear = nesting.unclear();
            assert_eq!((unclear.vanished, unclear.unseen), (0, 0), "thread {:?}", thread.key);
            assert_eq!(uncalled, 0, "frames whose call is not known");
            threads.push((unwound, nesting.frames().len()));
        }
    }
    threads
}

#[test]
fn counts_of_a_c_program_with_threads_forks_signals_and_longjmp() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("-O1 -pthread prog.c -o counting");
    place.cc("--trodden-stream -O1 -pthread prog.c -o streaming");
    let profile = same(&place);
    let threads = nests(&place, &profile);
    // The process, its threads, two children, the program that one of them became.
    assert_eq!(threads.len(), 1 + 3 + 2 + 1, "{threads:?}");
    assert_eq!(threads.iter().map(|t| t.0).sum::<u64>(), (3..8).map(|n| n + 1).sum::<u64>(), "frames that longjmp left");
}

#[test]
fn counts_of_a_cxx_program_with_exceptions() {
    let place = Place::with(&[("prog.cc", EXCEPTIONS)]);
    place.cxx("-O1 prog.cc -o counting");
    place.cxx("--trodden-stream -O1 prog.cc -o streaming");
    let profile = same(&place);
    let threads = nests(&place, &profile);
    assert!(threads.len() == 1 && threads[0].0 > 0, "{threads:?}");
}

#[test]
fn counts_of_a_rust_program_with_panics_and_threads() {
    let place = Place::with(&[
        ("src/main.rs", RUST),
        (
            "Cargo.toml",
            "[package]\nname = \"subject\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[profile.dev]\nopt-level = 1\n[workspace]\n",
        ),
    ]);
    for (name, options) in [("counting", &["--reach", "calls"][..]), ("streaming", &["--stream"])] {
        let mut command = place.command(place::cargo_trodden());
        must(command.args(["trodden", "build"]).args(options).env("CARGO_TARGET_DIR", place.path(name).with_extension("target")));
        let built =
            Command::new("find").arg(place.path(name).with_extension("target")).args(["-name", "subject", "-type", "f"]).output().unwrap();
        let built = String::from_utf8(built.stdout).unwrap();
        std::fs::copy(built.lines().next().unwrap(), place.path(name)).unwrap();
    }
    let profile = same(&place);
    assert!(nests(&place, &profile).len() >= 4);
}

/// The child begins in the frames that its parent had at the fork, though the parent leaves them at once.
#[test]
fn a_child_of_fork_begins_in_the_frames_of_the_fork() {
    const FORKS: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static pid_t child;
__attribute__((noinline)) static int work(int x) { return x % 3 ? 3 * x : x / 2; }
__attribute__((noinline)) static int other(int x) { return x > 3 ? work(x) + 1 : work(-x); }
__attribute__((noinline)) static void forks(int us) { child = fork(); if (!child) { usleep(us); work(1); } }
__attribute__((noinline)) static void middle(int us) { forks(us); if (us > 5) work(us); }
__attribute__((noinline)) static void outer(int us) { middle(us); if (us > 6) work(us); }
int main(int argc, char **argv) {
    outer(atoi(argv[1]));
    other(argc) + other(-argc);
    if (!child) _exit(0);
    waitpid(child, 0, 0);
    return 0;
}
"#;
    let place = Place::with(&[("prog.c", FORKS)]);
    place.cc("--trodden-stream -O0 prog.c -o prog");
    for us in ["0", "20000"] {
        let mut record = place.command(trodden());
        record.args(["record", "--whole-program", "--no-store", "-o", "f.trodden", "--"]).arg(place.path("prog")).arg(us);
        let said = String::from_utf8(must(&mut record).stderr).unwrap();
        assert!(!said.contains("no events"), "{said}");
        let shown = must(place.command(trodden()).args(["stream", "show", "f.trodden.streams", "--thread", "1", "--count", "4"])).stdout;
        let shown = String::from_utf8(shown).unwrap();
        let begins: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().skip(1).collect()).collect();
        assert_eq!(begins, ["main", "outer", "middle", "forks"].map(|name| vec!["enter", name]), "{shown}");
    }
}

/// A program that ends in `leaf`, called by `middle`, called by `main`, in a way of its own.
fn ending(how: &str) -> Place {
    let place = Place::with(&[(
        "prog.c",
        &format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
             __attribute__((noinline)) static int step(int n) {{ return n & 1 ? n : 2 * n; }}\n\
             __attribute__((noinline)) static int leaf(int *p, int n) {{\n  int s = 0;\n  for (int i = 0; i < n; i++) s += step(i);\n  \
             {how}\n  return s;\n}}\n\
             __attribute__((noinline)) static int middle(int *p, int n) {{\n  if (n > 3)\n    return leaf(p, n) + 1;\n  return 0;\n}}\n\
             int main(int c, char **v) {{\n  int s = step(c);\n  return middle((int *)(long)(c - 1), 5) + s;\n}}\n"
        ),
    )]);
    place.cc("--trodden-stream -O1 prog.c -o prog");
    place
}

fn last(place: &Place) -> serde_json::Value {
    let output = must(place.command(trodden()).args(["last", "--json", "--paths", "0"]));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check_last(report: &serde_json::Value) {
    let thread = &report["streams"][0]["threads"][0];
    let frames = thread["frames"].as_array().unwrap();
    let names: Vec<&str> = frames.iter().map(|f| f["function"].as_str().unwrap()).collect();
    assert_eq!(names, ["leaf", "middle", "main"], "{report:#}");
    let lines = |frame: usize| frames[frame]["lines"].as_array().unwrap().iter().map(|l| l["line"].as_u64().unwrap()).collect::<Vec<_>>();
    assert!(lines(1).contains(&13) && lines(2).contains(&18), "{report:#}");
    let steps = thread["events"].as_array().unwrap().iter().filter(|e| e["function"] == "step" && e["kind"] == "enter").count();
    assert_eq!(steps, 6, "{report:#}");
}

#[test]
fn the_last_paths_before_a_crash_and_an_abort() {
    for (how, status) in [("s += *p;", 139), ("if (s > 0) abort();", 134), ("if (s > 0) _exit(3);", 3)] {
        let place = ending(how);
        let output = place.command(trodden()).args(["record", "--last", "100", "--"]).arg(place.path("prog")).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
        check_last(&last(&place));
    }
}

#[test]
fn the_last_paths_before_kill_9() {
    let place = ending("if (s > 0) { puts(\"here\"); fflush(stdout); pause(); }");
    let mut child = place.command(trodden());
    let mut child = child.args(["record", "--last", "100", "--"]).arg(place.path("prog")).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = Command::new("pgrep").args(["-P", &child.id().to_string()]).output().unwrap();
    let pid = String::from_utf8(pid.stdout).unwrap();
    assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(137));
    check_last(&last(&place));
}

/// The recorder is killed: the program goes on, and all of its stream is there.
#[test]
fn a_killed_recorder_loses_nothing() {
    let place = Place::with(&[(
        "prog.c",
        "#include <stdio.h>\n#include <unistd.h>\n__attribute__((noinline)) static int step(int n) { __asm__ volatile(\"\"); return n & \
            1 ? n : 2 * n; }\n\
         int main(void) { int s = 0; for (int i = 0; i < 300000; i++) s += step(i); puts(\"half\"); fflush(stdout); char c; read(0, &c, \
         1);\n\
         for (int i = 0; i < 300000; i++) s += step(i); FILE *f = fopen(\"done\", \"w\"); fclose(f); return s == 1; }\n",
    )]);
    place.cc("--trodden-stream -O1 prog.c -o prog");
    let mut child = place.command(trodden());
    let mut child = child
        .args(["record", "--whole-program", "--"])
        .arg(place.path("prog"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(child.stdin.take());
    for _ in 0..1000 {
        if place.path("done").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let left = std::fs::read_dir(place.path(".trodden")).unwrap().map(|e| e.unwrap().path());
    let left = left.into_iter().find(|p| p.file_name().unwrap().to_string_lossy().starts_with("raw-")).unwrap();
    must(place.command(trodden()).args(["stream", "collect"]).arg(&left));
    let report = must(place.command(trodden()).args(["stream", "statistics", "--json"]));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let thread = &report["logs"][0]["threads"][0];
    assert_eq!((thread["calls"].as_u64(), thread["lost"].as_u64()), (Some(600_001), Some(0)), "{report:#}");
}

/// Four events for each call of `work` from `main`, and two more, of a thread that is faster than any recorder.
const FAST: &str = r##"
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) static unsigned work(unsigned x) {
    unsigned r = x;
    if (x & 1) { __asm__ volatile("# odd" : "+r"(r)); } else { __asm__ volatile("# even" : "+r"(r)); }
    return r + 3;
}
int main(int argc, char **argv) {
    unsigned long n = strtoul(argv[1], 0, 10), x = 1;
    unsigned s = 0;
    for (unsigned long i = 0; i < n; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
        s += work((unsigned)(x >> 40));
    }
    printf("%u\n", s);
    return 0;
}
"##;

fn statistics(place: &Place, of: &str) -> (u64, u64) {
    let report = must(place.command(trodden()).args(["stream", "statistics", "--json", of]));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let thread = &report["logs"][0]["threads"][0];
    (thread["events"].as_u64().unwrap(), thread["lost"].as_u64().unwrap())
}

#[test]
fn what_there_was_no_room_for_is_counted() {
    let place = Place::with(&[("fast.c", FAST)]);
    place.cc("--trodden-stream -O1 fast.c -o fast");
    // No recorder, one region, and no patience.
    let mut alone = place.command(place.path("fast"));
    alone.arg("200000").env("TRODDEN_OUTPUT", place.path("alone/%m.%p.stream")).env("TRODDEN_STREAM", "whole,1,0");
    let expected = must(&mut alone).stdout;
    let collected = place.command(trodden()).args(["stream", "collect", "alone"]).output().unwrap();
    assert_eq!(collected.status.code(), Some(2), "{}", String::from_utf8_lossy(&collected.stderr));
    assert!(String::from_utf8_lossy(&collected.stderr).contains("are lost, since there was no room for them"));
    let (events, lost) = statistics(&place, "last");
    assert!(events > 100_000 && lost > 100_000 && events + lost == 800_002, "{events} and {lost}");
    // With a recorder, but the file may have two regions at most: 2 MiB, in blocks of 512 bytes.
    let limited = "ulimit -f 4200; exec ./fast 3000000";
    let mut recorded = place.command(trodden());
    recorded.args(["record", "--whole-program", "--patience", "0", "--no-store", "-o", "few.trodden", "--", "sh", "-c", limited]);
    let recorded = recorded.output().unwrap();
    let said = String::from_utf8_lossy(&recorded.stderr);
    assert_eq!(recorded.status.code(), Some(2), "{said}");
    assert_eq!(said.matches("raise the limit (ulimit -f)").count(), 1, "{said}");
    let (events, lost) = statistics(&place, "few.trodden.streams");
    assert!(lost > 0 && events + lost == 12_000_002, "{events} and {lost}");
    let report = String::from_utf8(place.trodden("report few.trodden").stdout).unwrap();
    assert!(report.contains("not exact"), "{report}");
    // With room, nothing is lost, and the program is the same.
    let mut whole = place.command(trodden());
    whole.args(["record", "--whole-program", "--no-store", "-o", "whole.trodden", "--", "./fast", "200000"]);
    assert_eq!(must(&mut whole).stdout, expected);
    assert_eq!(statistics(&place, "whole.trodden.streams"), (800_002, 0));
}

/// A member function behind a pointer to its base, with a loop; the line that fails is marked.
const CRASH: &str = r#"
#include <vector>
struct Shape { virtual int area(int n) = 0; virtual ~Shape() = default; };
struct Square : Shape {
    int *side;
    explicit Square(int *s) : side(s) {}
    __attribute__((noinline)) int area(int n) override {
        int sum = 0;
        for (int i = 0; i < n; i++) {
            if (i & 1) __asm__ volatile("" : "+r"(sum));
            sum += *side; // here
        }
        return sum;
    }
};
__attribute__((noinline)) int measure(Shape *shape, int n) { int a = shape->area(n); __asm__ volatile("" : "+r"(a)); return a; }
__attribute__((noinline)) int total(std::vector<Shape *> &all) {
    int sum = 0;
    for (Shape *shape : all) { sum += measure(shape, 3); __asm__ volatile("" : "+r"(sum)); }
    return sum;
}
int main() {
    int one = 1;
    Square good(&one), bad(nullptr);
    std::vector<Shape *> all { &good, &good, &bad };
    int sum = total(all);
    __asm__ volatile("" : "+r"(sum));
    return sum;
}
"#;

/// Live frames and the line of the innermost are those of gdb, which also writes the core file.
#[test]
fn the_last_frames_are_those_of_a_debugger() {
    let place = Place::with(&[("prog.cc", CRASH)]);
    place.cxx("--trodden-stream -O1 -g prog.cc -o prog");
    let mut gdb = place.command("gdb");
    gdb.args(["-nx", "-batch", "-ex", "run", "-ex", "generate-core-file prog.core", "-ex", "bt", "./prog"]);
    gdb.env("TRODDEN_OUTPUT", place.path("flight/%m.%p.stream")).env("TRODDEN_STREAM", "50").env("DEBUGINFOD_URLS", "");
    let said = String::from_utf8(must(&mut gdb).stdout).unwrap();
    // #0  0x... in Square::area (this=..., n=3) at prog.cc:11
    let frames: Vec<&str> = said.lines().filter(|l| l.starts_with('#')).collect();
    let function = |line: &str| {
        let behind = line.split_once(" in ").map_or(line.split_once("  ").unwrap().1, |(_, behind)| behind);
        behind.split(" (").next().unwrap().to_owned()
    };
    let line = |frame: &str| frame.rsplit_once(':').unwrap().1.parse::<u64>().unwrap();
    let expected: Vec<String> = frames.iter().map(|f| function(f)).collect();
    assert_eq!(expected, ["Square::area", "measure", "total", "main"], "{said}");
    let report = must(place.command(trodden()).args(["last", "flight", "--core", "prog.core", "--json"]));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let thread = &report["streams"][0]["threads"][0];
    let live: Vec<&str> = thread["frames"].as_array().unwrap().iter().map(|f| f["function"].as_str().unwrap()).collect();
    assert_eq!(live, expected, "{report:#}");
    for (at, frame) in frames.iter().enumerate().skip(1) {
        let lines = thread["frames"][at]["lines"].as_array().unwrap();
        assert!(lines.iter().any(|l| l["line"].as_u64() == Some(line(frame))), "{frame}: {lines:?}");
    }
    let stopped = &thread["stopped"];
    assert_eq!(
        (stopped["function"].as_str(), stopped["lines"][0]["line"].as_u64()),
        (Some("Square::area"), Some(line(frames[0]))),
        "{stopped}"
    );
    assert!(stopped["lines"][0]["text"].as_str().unwrap().contains("// here"));
    let text = String::from_utf8(place.trodden("last flight --core prog.core").stdout).unwrap();
    assert!(text.contains("stopped in Square::area of prog, instruction 0x"), "{text}");
    // A core file of another process, and a file that is none.
    let refused = place.command(trodden()).args(["last", "flight", "--core", "prog"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no core file; name the core file"));
}

#[test]
fn old_recordings_of_the_last_paths_go() {
    let place = ending("if (s < 0) abort();");
    for _ in 0..23 {
        place.command(trodden()).args(["record", "--last", "5", "--"]).arg(place.path("prog")).output().unwrap();
    }
    let mut left: Vec<String> =
        std::fs::read_dir(place.path(".trodden/last")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!((left.len(), left[0].as_str(), left[20].as_str()), (21, "000003", "000023"));
}
