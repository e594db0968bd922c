//! Path streams: their counts are compared with those of a counting build. Also tested are frames across `longjmp`, exceptions, threads and
//! `fork`, and what survives a crash, an abort and `kill -9`.
// Length: all stream tests share a program and its helpers.

use crate::place;
use crate::place::{Place, must, trodden, with_choices};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use trodden_oracle::random::{RandomLanguage, program};
use trodden_profile::stream::{CallNesting, CounterLookup, LiveStream, NestingStep, StreamLog, StreamSymbol};
use trodden_profile::stream::{ThreadKey, ThreadLog, is_stream_file};
use trodden_profile::{FunctionPaths, Profile};
use trodden_unit::FunctionMap;
use trodden_wire::stream::Event;

/// A program with threads, recursion, `longjmp` across frames, `fork` in the middle of a function, `exec`, and a signal handler that
/// counts.
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

/// A program in which exceptions pass frames with and without landing pads, and the same function catches two of them.
const EXCEPTIONS_PROGRAM: &str = r#"
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

const RUST_PROGRAM: &str = r#"
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

/// Counts by function name, path number, blocks, and whether the path is complete.
type Counts = BTreeMap<(String, u64, Vec<u32>, bool), i64>;

fn read_counts(profile: &Profile) -> Counts {
    let mut counts = Counts::new();
    for (_, unit, function) in profile.functions().filter(|f| !is_standard_library(&f.2.name)) {
        let paths = FunctionPaths::decode(function, unit.counts_of(function)).unwrap();
        let name = remove_hash(&function.name).to_owned();
        let blocks = |blocks: &[trodden_flow::Node]| blocks.iter().map(|b| b.0).collect::<Vec<u32>>();
        for path in &paths.complete {
            *counts.entry((name.clone(), path.id, blocks(&path.blocks), true)).or_default() += path.count as i64;
        }
        for path in &paths.unfinished {
            *counts.entry((name.clone(), path.id, blocks(&path.blocks), false)).or_default() += path.count;
        }
    }
    counts
}

/// Returns true for functions of the standard library. Their paths depend on the order of threads or (in `rust_eh_personality`) on code
/// addresses, so they are not compared.
fn is_standard_library(name: &str) -> bool {
    name == "rust_eh_personality" || (name.contains("3std") && !name.contains("subject"))
}

/// Returns a function's name without parts that vary between builds: the hash at the end of a Rust name, and the number that the linker of
/// modules appends to a local name if several modules contain it.
fn remove_hash(name: &str) -> &str {
    let name = match name.rsplit_once('.') {
        Some((rest, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => name,
    };
    // LTO within a crate appends this suffix.
    let name = name.strip_suffix(".llvm").unwrap_or(name);
    name.rfind("17h").filter(|at| name.len() - at == 20).map_or(name, |at| &name[..at])
}

fn record_program(place: &Place, program: &str, options: &[&str], file: &str) -> (Output, Profile) {
    let mut command = place.command(trodden());
    command.arg("record").args(options).args(["--no-store", "-o", file, "--"]).arg(place.path(program));
    let output = command.output().unwrap();
    let read = Profile::read(&place.path(file));
    let profile = read.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    (output, profile)
}

/// For each function, by name: the hash of its shape, its number of counters, and its edge values, which determine the path numbers.
type Numberings = BTreeMap<String, BTreeSet<(u64, u64, Vec<i64>)>>;

fn read_numberings(profile: &Profile) -> Numberings {
    let mut numberings = Numberings::new();
    for (_, _, function) in profile.functions().filter(|f| !is_standard_library(&f.2.name)) {
        let numbers = (function.shape, function.counters, function.values.clone());
        numberings.entry(remove_hash(&function.name).to_owned()).or_default().insert(numbers);
    }
    numberings
}

/// Checks that output, path numbers and counts are the same with counters and with a stream. Returns the streamed profile.
fn check_stream_matches_counts(place: &Place) -> Profile {
    let (plain, counted) = record_program(place, "counting", &[], "counted.trodden");
    let (output, streamed) = record_program(place, "streaming", &["--whole-program"], "streamed.trodden");
    assert_eq!(String::from_utf8_lossy(&plain.stdout), String::from_utf8_lossy(&output.stdout));
    assert_eq!(plain.status, output.status);
    let (numbers, of_stream) = (read_numberings(&counted), read_numberings(&streamed));
    let other: Vec<&String> = numbers.keys().chain(of_stream.keys()).filter(|name| numbers.get(*name) != of_stream.get(*name)).collect();
    assert!(other.is_empty(), "of {} functions these have other numbers: {other:?}", numbers.len());
    let (counted, from_stream) = (read_counts(&counted), read_counts(&streamed));
    assert!(counted.len() > 5, "{counted:?}");
    let differ = |a: &Counts, b: &Counts| a.iter().filter(|(k, n)| b.get(k) != Some(n)).map(|(k, n)| (k.clone(), *n)).collect::<Vec<_>>();
    assert_eq!(differ(&counted, &from_stream), [], "counted, and not so in the stream");
    assert_eq!(differ(&from_stream, &counted), [], "in the stream, and not so counted");
    streamed
}

/// Checks that each thread's events determine its stack of frames. Returns the numbers of unwound frames and of frames at the thread's end.
fn check_frames_nest(place: &Place, profile: &Profile) -> Vec<(u64, usize)> {
    let mut threads = Vec::new();
    for file in std::fs::read_dir(place.path("streamed.trodden.streams")).unwrap().map(|e| e.unwrap().path()) {
        let log = StreamLog::open(&file).unwrap();
        let image = profile.images.iter().find(|i| i.identity == log.header().image).unwrap().with_events_as_paths();
        let places = CounterLookup::new(log.header(), &image);
        for thread in log.threads() {
            let (mut nesting, mut unwound, mut uncalled) = (CallNesting::new(&places), 0, 0);
            log.visit(thread, 0, |event| {
                let step = nesting.feed_symbol(event);
                assert_ne!(step, NestingStep::Unknown);
                if let NestingStep::Unwound(frames) = step {
                    unwound += frames as u64;
                }
                if let (NestingStep::Entered(frame), StreamSymbol::Enter(_)) = (step, event) {
                    uncalled += u64::from(frame.call.is_none() && nesting.frames().len() > 1);
                }
                true
            })
            .unwrap();
            let unclear = nesting.unclear_frame_counts();
            assert_eq!((unclear.vanished, unclear.unseen), (0, 0), "thread {:?}", thread.key);
            assert_eq!(uncalled, 0, "frames whose call is not known");
            threads.push((unwound, nesting.frames().len()));
        }
    }
    threads
}

#[test]
fn c_counts_agree_with_threads_forks_signals_and_longjmp() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("-O1 -pthread prog.c -o counting");
    place.cc("--trodden=stream -O1 -pthread prog.c -o streaming");
    let profile = check_stream_matches_counts(&place);
    let threads = check_frames_nest(&place, &profile);
    // The main thread, three threads, two children, and the program that one of the children executed.
    assert_eq!(threads.len(), 1 + 3 + 2 + 1, "{threads:?}");
    assert_eq!(threads.iter().map(|t| t.0).sum::<u64>(), (3..8).map(|n| n + 1).sum::<u64>(), "frames that longjmp left");
}

#[test]
fn cxx_counts_agree_with_exceptions() {
    let place = Place::with(&[("prog.cc", EXCEPTIONS_PROGRAM)]);
    place.cxx("-O1 prog.cc -o counting");
    place.cxx("--trodden=stream -O1 prog.cc -o streaming");
    let profile = check_stream_matches_counts(&place);
    let threads = check_frames_nest(&place, &profile);
    assert!(threads.len() == 1 && threads[0].0 > 0, "{threads:?}");
}

#[test]
fn rust_counts_agree_with_panics_and_threads() {
    let place = Place::with(&[
        ("src/main.rs", RUST_PROGRAM),
        (
            "Cargo.toml",
            "[package]\nname = \"subject\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[profile.dev]\nopt-level = 1\n[workspace]\n",
        ),
    ]);
    for (name, options) in [("counting", &[][..]), ("streaming", &["--stream"])] {
        let mut command = place.command(place::cargo_trodden());
        must(command.args(["trodden", "build"]).args(options).env("CARGO_TARGET_DIR", place.path(name).with_extension("target")));
        let built =
            Command::new("find").arg(place.path(name).with_extension("target")).args(["-name", "subject", "-type", "f"]).output().unwrap();
        let built = String::from_utf8(built.stdout).unwrap();
        std::fs::copy(built.lines().next().unwrap(), place.path(name)).unwrap();
    }
    let profile = check_stream_matches_counts(&place);
    assert!(check_frames_nest(&place, &profile).len() >= 4);
}

/// The programs are random C and C++ programs with threads, recursion, `longjmp` and exceptions.
#[test]
fn path_numbers_and_counts_of_random_programs_agree() {
    let place = Place::new();
    for seed in 0..6 {
        let program = program(seed);
        let is_c = program.language == RandomLanguage::C;
        let source = if is_c { "subject.c" } else { "subject.cpp" };
        place.write(source, &program.text);
        let level = ["-O0", "-O2", "-O1"][seed as usize % 3];
        for line in ["-o counting", "--trodden=stream -o streaming"].map(|line| format!("{level} -w -pthread {source} {line}")) {
            if is_c {
                place.cc(&line)
            } else {
                place.cxx(&line)
            };
        }
        check_stream_matches_counts(&place);
    }
}

/// Returns each thread's symbols and number of lost events in a log, or `None` if the log is unreadable or reported as corrupt.
fn read_log(file: &std::path::Path) -> Option<Vec<(ThreadKey, u64, Vec<StreamSymbol>)>> {
    let log = StreamLog::open(file).ok()?;
    let read = |thread: &ThreadLog| {
        let mut symbols = Vec::new();
        let read = log.visit(thread, 0, |symbol| {
            symbols.push(symbol);
            true
        });
        read.ok().map(|()| (thread.key, thread.lost, symbols))
    };
    let threads = log.threads().iter().map(read).collect::<Option<Vec<_>>>();
    threads.filter(|_| log.corrupt_bytes() == 0 && !log.is_truncated())
}

/// If a byte of a log is changed, reading it must fail or report corruption. If the byte is in the header of a frame (one block of the
/// log), all other frames must still be readable.
#[test]
fn corrupt_logs_are_never_misread() {
    let place = Place::with(&[("prog.c", PROGRAM)]);
    place.cc("--trodden=stream -O1 -pthread prog.c -o prog");
    must(place.command(trodden()).args(["record", "--whole-program", "--no-store", "-o", "whole.trodden", "--"]).arg(place.path("prog")));
    let logs = std::fs::read_dir(place.path("whole.trodden.streams")).unwrap().map(|e| e.unwrap().path());
    let log = logs.max_by_key(|file| StreamLog::open(file).unwrap().threads().len()).unwrap();
    let (bytes, whole) = (std::fs::read(&log).unwrap(), read_log(&log).unwrap());
    assert!(whole.len() >= 4 && whole.iter().all(|thread| thread.1 == 0), "{}", whole.len());
    let file = place.path("damaged.log");
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&file, damaged).unwrap();
        assert_eq!(read_log(&file), None, "byte {at} of {}", bytes.len());
    }
    // The first section of a log describes the program. All other sections are frames.
    let heads: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"\x93SECTION")).skip(1).collect();
    assert!(heads.len() >= whole.len());
    for at in &heads {
        for byte in [0, 33, 79, 130] {
            let mut damaged = bytes.clone();
            damaged[at + byte] ^= 0x10;
            std::fs::write(&file, damaged).unwrap();
            let log = StreamLog::open(&file).unwrap();
            let read: usize = log.threads().iter().map(ThreadLog::window_count).sum();
            assert_eq!((read, log.is_truncated()), (heads.len() - 1, false), "head at {at}, byte {byte}");
            assert!(log.corrupt_bytes() > 136);
        }
    }
    for length in [bytes.len() - 1, heads[heads.len() - 1] + 1, heads[1] + 90] {
        std::fs::write(&file, &bytes[..length]).unwrap();
        let log = StreamLog::open(&file).unwrap();
        assert_eq!((log.is_truncated(), log.corrupt_bytes()), (true, 0));
    }
    let shown = must(place.command(trodden()).arg("info").arg(&file));
    assert!(String::from_utf8_lossy(&shown.stderr).contains("is truncated, so later events are missing"));
}

/// The program overwrites the chunks of a flight recorder while they are read. What is read must still be contiguous in the stream.
#[test]
fn last_paths_of_a_running_process_are_contiguous() {
    const PERIOD: usize = 5;
    let place = Place::with(&[(
        "prog.c",
        "#include <stdlib.h>\n#include <unistd.h>\n\
         #define STEP(N) __attribute__((noinline)) static void step##N(void) { __asm__ volatile(\"# \" #N); }\n\
         STEP(0) STEP(1) STEP(2) STEP(3) STEP(4)\n\
         int main(void) { pid_t parent = getppid(); for (;;) {\n\
         for (int i = 0; i < 1000000; i++) { step0(); step1(); step2(); step3(); step4(); } if (getppid() != parent) return 0; } }\n",
    )]);
    place.cc("--trodden=stream -O1 prog.c -o prog");
    let mut child = Command::new(place.path("prog"));
    let mut child = child.env("TRODDEN_OUTPUT", place.path("%p.stream")).env("TRODDEN_STREAM", "4100").spawn().unwrap();
    let file = place.path(&format!("{}.stream", child.id()));
    let mut checked = 0;
    while checked < 300 {
        let Some(stream) = is_stream_file(&file).then(|| LiveStream::open(&file, false).ok()).flatten() else {
            std::thread::sleep(std::time::Duration::from_millis(1));
            continue;
        };
        for thread in stream.threads().unwrap() {
            let entered = |event: &Event| if let Event::Enter(counter) = event { Some(*counter) } else { None };
            let entered: Vec<u32> = thread.events.iter().filter_map(entered).collect();
            if thread.earlier == 0 || entered.len() < 2 * PERIOD {
                continue;
            }
            let distinct: BTreeSet<u32> = entered[..PERIOD].iter().copied().collect();
            assert_eq!(distinct.len(), PERIOD, "{:?}", &entered[..PERIOD]);
            let other = (PERIOD..entered.len()).find(|at| entered[*at] != entered[at - PERIOD]);
            assert_eq!(other, None, "of {} calls", entered.len());
            checked += 1;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Streams record calls to functions that always return, but path numbers must not depend on that, even if paths are split because of a
/// limit or contain several calls.
#[test]
fn path_numbers_of_recursive_functions_agree() {
    const RECURSIVE_PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static int seen[64], sum;
__attribute__((noinline)) static void leaf(int i) { if (i & 1) sum += i; else sum -= 1; }
__attribute__((noinline)) static void walk(int i) {
    if (i >= 63 || seen[i]) return;
    seen[i] = 1;
    leaf(i);
    if (i & 2) walk(i + 3);
    walk(i + 1);
}
__attribute__((noinline)) static int mixed(int n) {
    if (n <= 0) return 1;
    leaf(n);
    if (n > 900) exit(3);
    switch (n % 5) {
    case 0: sum ^= mixed(n - 1); break;
    case 1: leaf(n); printf("%d ", mixed(n - 2)); break;
    case 2: if (n & 4) leaf(sum); sum += mixed(n - 3); leaf(1); break;
    default: sum -= n;
    }
    for (int i = 0; i < n % 4; i++) { leaf(i); if (sum & 1) sum += mixed(n / 2 - i); }
    return sum & 15;
}
__attribute__((noinline)) static void many(unsigned n) {
    for (int i = 0; i < 16; i++) {
#define STEP(k) if (n >> k & 1) leaf(k); else sum += k;
        STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) STEP(13)
        n = n * 1103515245 + 12345;
    }
}
int main(void) {
    walk(0);
    for (int i = 0; i < 9; i++) leaf(i);
    for (int i = 0; i < 20; i++) { mixed(i); many(i * 77); }
    printf("%d\n", sum);
    return 0;
}
"#;
    for level in ["-O0", "-O1", "-O2"] {
        let place = Place::with(&[("prog.c", RECURSIVE_PROGRAM)]);
        place.cc(&format!("{level} prog.c -o counting"));
        place.cc(&format!("--trodden=stream {level} prog.c -o streaming"));
        let profile = check_stream_matches_counts(&place);
        assert_eq!(check_frames_nest(&place, &profile), [(0, 0)]);
        let is_walk = |f: &&FunctionMap| f.name == "walk";
        let walk = profile.functions().map(|f| f.2).find(is_walk).unwrap();
        assert!(walk.event_words().is_some_and(|words| words.words > walk.counters), "calls have events of their own");
        // A build that counts untested paths treats the paths in a stream as tested.
        place.trodden("instrument counting --residual streamed.trodden -o deployed");
        must(place.command(trodden()).args(["record", "--no-store", "-o", "deployed.trodden", "--"]).arg(place.path("deployed")));
        let untested = Profile::read(&place.path("deployed.trodden")).unwrap();
        assert_eq!(read_counts(&untested), Counts::new(), "paths that the stream has are tested");
    }
}

/// A child must start in the frames that its parent had at the fork, although the parent leaves these frames immediately.
#[test]
fn forked_children_start_in_the_frames_of_their_parent() {
    const FORKS_PROGRAM: &str = r#"
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
    let place = Place::with(&[("prog.c", FORKS_PROGRAM)]);
    place.cc("--trodden=stream -O0 prog.c -o prog");
    for us in ["0", "20000"] {
        let mut record = place.command(trodden());
        record.args(["record", "--whole-program", "--no-store", "-o", "f.trodden", "--"]).arg(place.path("prog")).arg(us);
        let said = String::from_utf8(must(&mut record).stderr).unwrap();
        assert!(!said.contains("not events"), "{said}");
        let shown = must(place.command(trodden()).args(["show", "f.trodden.streams", "--thread", "1", "--count", "4"])).stdout;
        let shown = String::from_utf8(shown).unwrap();
        let begins: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().skip(1).collect()).collect();
        assert_eq!(begins, ["main", "outer", "middle", "forks"].map(|name| vec!["enter", name]), "{shown}");
    }
}

/// Creates a program in which `main` calls `middle`, `middle` calls `leaf`, and `leaf` ends the program in the way that `how` says.
fn create_program_that_ends(how: &str) -> Place {
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
    place.cc("--trodden=stream -O1 prog.c -o prog");
    place
}

fn read_last_report(place: &Place) -> serde_json::Value {
    let output = must(place.command(trodden()).args(["show", "--json", "--count", "0"]));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check_last_report(report: &serde_json::Value) {
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
fn last_paths_before_a_crash_an_abort_and_an_exit_are_shown() {
    for (how, status) in [("s += *p;", 139), ("if (s > 0) abort();", 134), ("if (s > 0) _exit(3);", 3)] {
        let place = create_program_that_ends(how);
        let output = place.command(trodden()).args(["record", "--last", "100", "--"]).arg(place.path("prog")).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
        check_last_report(&read_last_report(&place));
    }
}

#[test]
fn last_paths_before_kill_9_are_shown() {
    let place = create_program_that_ends("if (s > 0) { puts(\"here\"); fflush(stdout); pause(); }");
    let mut child = place.command(trodden());
    let mut child = child.args(["record", "--last", "100", "--"]).arg(place.path("prog")).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = Command::new("pgrep").args(["-P", &child.id().to_string()]).output().unwrap();
    let pid = String::from_utf8(pid.stdout).unwrap();
    assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(137));
    check_last_report(&read_last_report(&place));
}

/// If the recorder is killed, the program continues and its stream is complete.
#[test]
fn killing_the_recorder_loses_nothing() {
    let place = Place::with(&[(
        "prog.c",
        "#include <stdio.h>\n#include <unistd.h>\n__attribute__((noinline)) static int step(int n) { __asm__ volatile(\"\"); return n & \
            1 ? n : 2 * n; }\n\
         int main(void) { int s = 0; for (int i = 0; i < 300000; i++) s += step(i); puts(\"half\"); fflush(stdout); char c; read(0, &c, \
         1);\n\
         for (int i = 0; i < 300000; i++) s += step(i); FILE *f = fopen(\"done\", \"w\"); fclose(f); return s == 1; }\n",
    )]);
    place.cc("--trodden=stream -O1 prog.c -o prog");
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
    must(place.command(trodden()).args(["import"]).arg(&left));
    let report = must(place.command(trodden()).args(["info", "last", "--json"]));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let thread = &report["streams"]["logs"][0]["threads"][0];
    assert_eq!((thread["calls"].as_u64(), thread["lost"].as_u64()), (Some(600_001), Some(0)), "{report:#}");
}

/// A program that writes events faster than any recorder reads them: four per call to `work` in `main`, and two more.
const FAST_PROGRAM: &str = r##"
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

fn read_statistics(place: &Place, of: &str) -> (u64, u64) {
    let report = must(place.command(trodden()).args(["info", "--json", of]));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let thread = &report["streams"]["logs"][0]["threads"][0];
    (thread["events"].as_u64().unwrap(), thread["lost"].as_u64().unwrap())
}

#[test]
fn events_without_room_are_counted_as_lost() {
    let place = Place::with(&[("fast.c", FAST_PROGRAM)]);
    place.cc("--trodden=stream -O1 fast.c -o fast");
    // Here, the program runs without a recorder, has one region, and does not wait for free space.
    let mut alone = place.command(place.path("fast"));
    alone.arg("200000").env("TRODDEN_OUTPUT", place.path("alone/%m.%p.stream")).env("TRODDEN_STREAM", "whole,1,0");
    let expected = must(&mut alone).stdout;
    let collected = place.command(trodden()).args(["import", "alone"]).output().unwrap();
    assert_eq!(collected.status.code(), Some(2), "{}", String::from_utf8_lossy(&collected.stderr));
    assert!(String::from_utf8_lossy(&collected.stderr).contains(", because the file was full"));
    let (events, lost) = read_statistics(&place, "last");
    assert!(events > 100_000 && lost > 100_000 && events + lost == 800_002, "{events} and {lost}");
    // Here, there is a recorder, but the file is limited to two regions (2 MiB, in blocks of 512 bytes).
    let limited = "ulimit -f 4200; exec ./fast 3000000";
    let mut recorded = place.command(trodden());
    let words = ["record", "--whole-program", "--max-wait", "0", "--no-store", "-o", "few.trodden", "--", "sh", "-c", limited];
    with_choices(&mut recorded, words);
    let recorded = recorded.output().unwrap();
    let said = String::from_utf8_lossy(&recorded.stderr);
    assert_eq!(recorded.status.code(), Some(2), "{said}");
    assert_eq!(said.matches("raise the limit (ulimit -f)").count(), 1, "{said}");
    let (events, lost) = read_statistics(&place, "few.trodden");
    assert!(lost > 0 && events + lost == 12_000_002, "{events} and {lost}");
    let report = String::from_utf8(place.trodden("report few.trodden").stdout).unwrap();
    assert!(report.contains("not exact"), "{report}");
    // With enough space, nothing may be lost, and the program must print the same.
    let mut whole = place.command(trodden());
    whole.args(["record", "--whole-program", "--no-store", "-o", "whole.trodden", "--", "./fast", "200000"]);
    assert_eq!(must(&mut whole).stdout, expected);
    assert_eq!(read_statistics(&place, "whole.trodden"), (800_002, 0));
}

/// A program with a loop in a virtual member function, called through a pointer to the base class. The failing line is marked.
const CRASH_PROGRAM: &str = r#"
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

/// The frames and the innermost line must be those that gdb shows for the core file that it writes.
#[test]
fn last_frames_agree_with_the_debugger() {
    let place = Place::with(&[("prog.cc", CRASH_PROGRAM)]);
    place.cxx("--trodden=stream -O1 -g prog.cc -o prog");
    let mut gdb = place.command("gdb");
    gdb.args(["-nx", "-batch", "-ex", "run", "-ex", "generate-core-file prog.core", "-ex", "bt", "./prog"]);
    gdb.env("TRODDEN_OUTPUT", place.path("flight/%m.%p.stream")).env("TRODDEN_STREAM", "50").env("DEBUGINFOD_URLS", "");
    let said = String::from_utf8(must(&mut gdb).stdout).unwrap();
    // gdb prints lines like `#0 0x... in Square::area (this=..., n=3) at prog.cc:11`.
    let frames: Vec<&str> = said.lines().filter(|l| l.starts_with('#')).collect();
    let function = |line: &str| {
        let behind = line.split_once(" in ").map_or(line.split_once("  ").unwrap().1, |(_, behind)| behind);
        behind.split(" (").next().unwrap().to_owned()
    };
    let line = |frame: &str| frame.rsplit_once(':').unwrap().1.parse::<u64>().unwrap();
    let expected: Vec<String> = frames.iter().map(|f| function(f)).collect();
    assert_eq!(expected, ["Square::area", "measure", "total", "main"], "{said}");
    let report = must(place.command(trodden()).args(["show", "flight", "--core", "prog.core", "--json"]));
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
    let text = String::from_utf8(place.trodden("show flight --core prog.core").stdout).unwrap();
    assert!(text.contains("stopped in Square::area of prog, instruction 0x"), "{text}");
    // A file that is not a core file is rejected.
    let refused = place.command(trodden()).args(["show", "flight", "--core", "prog"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not a core file. Pass the core file"));
}

#[test]
fn old_recordings_of_last_paths_are_deleted() {
    let place = create_program_that_ends("if (s < 0) abort();");
    for _ in 0..23 {
        place.command(trodden()).args(["record", "--last", "5", "--"]).arg(place.path("prog")).output().unwrap();
    }
    let mut left: Vec<String> =
        std::fs::read_dir(place.path(".trodden/last")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!((left.len(), left[0].as_str(), left[20].as_str()), (21, "000003", "000023"));
}
