//! `trodden record --copies` when something goes wrong: signals, a killed recorder, programs whose paths depend on addresses, and weights
//! from unusual runs.

use crate::place::{Place, laboratory, trodden, with_choices};
use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use trodden_profile::Profile;

fn record(place: &Place, arguments: &str) -> Output {
    let mut command = place.command(trodden());
    with_choices(command.args("record --no-store -o run.trodden".split(' ')), arguments.split_whitespace());
    command.stdin(Stdio::null()).output().unwrap()
}

fn read_messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn read_profile(place: &Place) -> Profile {
    Profile::read(&place.path("run.trodden")).unwrap()
}

fn count_paths(place: &Place) -> BTreeMap<(String, u64), u64> {
    let profile = read_profile(place);
    profile.functions().flat_map(|(_, unit, f)| unit.counts_of(f).map(move |(path, n)| ((f.name.clone(), path), n))).collect()
}

fn list_inexactness(place: &Place) -> Vec<String> {
    let report: serde_json::Value = serde_json::from_slice(&place.trodden("report run.trodden --json").stdout).unwrap();
    report["totals"]["not_exact"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// A program that runs until the signal of a timer ends it.
const TIMED_PROGRAM: &str = "#include <unistd.h>\nvolatile unsigned sink;\n\
    __attribute__((noinline)) unsigned one(unsigned n) { if (n & 1) return n * 3; return n / 2; }\n\
    __attribute__((noinline)) unsigned two(unsigned n) { if (n % 3) return n + 1; return n; }\n\
    int main(void) { ualarm(100000, 0); for (unsigned i = 0;; i++) sink += one(i) + two(i); }\n";

#[test]
fn copies_ended_by_the_same_signal_are_marked() {
    let place = Place::with(&[("prog.c", TIMED_PROGRAM)]);
    place.cc("-O1 prog.c -o prog");
    let output = record(&place, "--copies 2 --no-first-run -- ./prog");
    assert_eq!(output.status.code(), Some(128 + 14), "{}", read_messages(&output));
    assert!(
        read_messages(&output).contains("signal 14 ended all copies") && !read_messages(&output).contains("did not execute the same paths"),
        "{}",
        read_messages(&output)
    );
    assert_eq!((read_profile(&place).run.interrupted, read_profile(&place).run.diverged), (2, 0));
    assert!(list_inexactness(&place)[0].contains("a signal ended each of the 2 copies"), "{:?}", list_inexactness(&place));
    // Merging adds the numbers of interrupted copies.
    place.trodden("merge -o sum.trodden run.trodden run.trodden");
    assert_eq!(Profile::read(&place.path("sum.trodden")).unwrap().run.interrupted, 4);
}

/// A program whose second copy kills itself: at each attempt if there is an argument, otherwise only at the first.
const SECOND_COPY_KILLED_PROGRAM: &str = "#include <signal.h>\n#include <string.h>\n#include <sys/stat.h>\n#include <unistd.h>\n\
    __attribute__((noinline)) int work(int n) { int s = 0; for (int i = 0; i < n; i++) { if (i % 3) s += i; else s ^= i; } return s; }\n\
    int main(int c, char **v) { char self[4096] = { 0 }; if (readlink(\"/proc/self/exe\", self, sizeof self - 1) < 0) return 9;\n\
    int s = work(40); if (strstr(self, \"copy-0001/\") && (c > 1 || !mkdir(\"once\", 0700))) kill(getpid(), SIGKILL); return work(s & 7) \
    == 1; }\n";

#[test]
fn copies_ended_by_a_signal_run_again_if_others_end_normally() {
    let place = Place::with(&[("prog.c", SECOND_COPY_KILLED_PROGRAM)]);
    place.cc("-O1 prog.c -o prog");
    record(&place, "-- ./prog");
    let truth = count_paths(&place);
    let output = record(&place, "--copies 2 --no-first-run --ignore-output -- ./prog");
    assert!(read_messages(&output).contains("a signal ended only 1 of 2 copies"), "{}", read_messages(&output));
    // The second attempt ends normally. It takes a different path in `main`, but this is noticed only if several copies count `main`.
    assert!(place.path("once").is_dir() && !read_messages(&output).contains("ended with"), "{}", read_messages(&output));
    let of_work =
        |counts: &BTreeMap<(String, u64), u64>| counts.iter().filter(|(at, _)| at.0 == "work").map(|(_, n)| *n).collect::<Vec<_>>();
    assert_eq!(of_work(&count_paths(&place)), of_work(&truth));
    let output = record(&place, "--copies 2 --no-first-run --ignore-output -- ./prog always");
    assert_eq!(output.status.code(), Some(1), "{}", read_messages(&output));
    assert!(read_messages(&output).contains("copy 1 ended with signal 9, but copy 0 with status 0"), "{}", read_messages(&output));
    assert!(read_profile(&place).run.diverged > 0 && !list_inexactness(&place).is_empty());
}

#[test]
fn copies_end_if_their_recorder_is_killed() {
    let source = "#include <stdio.h>\n#include <unistd.h>\nint main(void) { if (!fork()) { for (;;) pause(); } char name[64]; \
        sprintf(name, \"pid-%d\", getpid()); fclose(fopen(name, \"w\"));\n\
        for (;;) pause(); }\n";
    let place = Place::with(&[("prog.c", source)]);
    place.cc("-O1 prog.c -o prog");
    let mut command = place.command(trodden());
    with_choices(&mut command, "record --no-store -o run.trodden --copies 2 --no-first-run -- ./prog".split(' '));
    let mut recorder = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let program = place.path("raw-");
    let running = || {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("exe")).ok());
        processes.filter(|exe| exe.to_string_lossy().starts_with(&*program.to_string_lossy())).count()
    };
    let begun = Instant::now();
    // Two copies, each with a child process.
    while running() < 4 {
        assert!(begun.elapsed() < Duration::from_secs(120) && recorder.try_wait().unwrap().is_none(), "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let killed = Instant::now();
    while running() > 0 {
        assert!(killed.elapsed() < Duration::from_secs(60), "{} programs go on", running());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program that behaves as if its paths depended on addresses: its second copy takes the slow path of a hot function twice as often, but
/// prints the same.
const DIVERGING_PROGRAM: &str = "#include <string.h>\n#include <unistd.h>\nvolatile int sink;\n\
    __attribute__((noinline)) void work(int i, int other) { if ((i & 127) < 1 + other) { sink += 3; __asm__ volatile(\"\"); } else { \
    sink ^= i; __asm__ volatile(\" \"); } }\n\
    __attribute__((noinline)) void rest(int i) { if (i % 3) sink += i; else sink -= 4; if (i & 4) sink ^= 9; }\n\
    int main(void) { char self[4096] = { 0 }; if (readlink(\"/proc/self/exe\", self, sizeof self - 1) < 0) return 9;\n\
    int other = strstr(self, \"copy-0001/\") != 0; for (int i = 0; i < 12800; i++) { work(i, other); rest(i); } return 0; }\n";

#[test]
fn different_executions_are_detected_by_paths_that_all_copies_count() {
    let place = Place::with(&[("prog.c", DIVERGING_PROGRAM)]);
    place.cc("-O1 prog.c -o prog");
    record(&place, "-- ./prog");
    std::fs::copy(place.path("run.trodden"), place.path("one.trodden")).unwrap();
    for arguments in
        ["--copies 2 --weights one.trodden", "--copies 3 --weights one.trodden", "--copies 2 --strategy pbl --weights one.trodden"]
    {
        let output = record(&place, &format!("{arguments} -- ./prog"));
        assert_eq!(output.status.code(), Some(1), "{arguments}: {}", read_messages(&output));
        assert!(
            read_messages(&output).contains("did not execute the same paths") && read_messages(&output).contains("of function `work`"),
            "{arguments}: {}",
            read_messages(&output)
        );
        assert!(read_profile(&place).run.diverged > 0 && !list_inexactness(&place).is_empty());
    }
}

/// A program whose argument determines which path is hot.
const ARGUMENT_PROGRAM: &str = "#include <stdlib.h>\nvolatile unsigned sink;\n\
    __attribute__((noinline)) void one(int n) { for (int i = 0; i < n; i++) { if (i & 1) sink += i; else sink ^= i; if (i % 3) sink--; } \
    }\n\
    __attribute__((noinline)) void two(int n) { for (int i = 0; i < n; i++) { if (i & 2) sink += i; else sink ^= i; if (i % 5) sink--; } \
    }\n\
    int main(int c, char **v) { one(atoi(v[1])); two(atoi(v[2])); return 0; }\n";

#[test]
fn several_runs_balance_copies_better_than_an_unusual_one() {
    let place = Place::with(&[("prog.c", ARGUMENT_PROGRAM)]);
    place.cc("-O1 prog.c -o prog");
    place.trodden("record -- ./prog 3000 2000");
    place.trodden("record -- ./prog 2000 3000");
    place.trodden("record -- ./prog 900000 0");
    let output = record(&place, "--copies 2 --costs costs.json -- ./prog 2500 2500");
    assert_eq!(output.status.code(), Some(0), "{}", read_messages(&output));
    let said = "according to 3 runs of this build, with equal weights: 3 (./prog 900000 0), 2 (./prog 2000 3000), 1 (./prog 3000 2000)";
    assert!(read_messages(&output).contains(said), "{}", read_messages(&output));
    let costs: serde_json::Value = serde_json::from_slice(&std::fs::read(place.path("costs.json")).unwrap()).unwrap();
    let hits = |name: &str| costs[name].as_u64().unwrap() as f64;
    assert!(hits("hits_of_slowest") < 0.8 * hits("sequential_hits"), "{costs}");
    // From now on, there are two runs of exactly this command, so the weights come from these.
    place.trodden("record -- ./prog 2500 2500");
    place.trodden("record -- ./prog 2500 2500");
    let output = record(&place, "--copies 2 -- ./prog 2500 2500");
    assert!(
        read_messages(&output).contains("according to 2 runs of this build, with equal weights: 5 (./prog 2500 2500), 4 "),
        "{}",
        read_messages(&output)
    );
}

/// Strategy p3 skips functions that are cut at many loops, because its sets of edges would need gigabytes of memory.
#[test]
fn functions_that_strategy_p3_cannot_divide_are_named() {
    let loops: String = (0..1750).map(|n| format!("  while (v > {n}) i += v;\n")).collect();
    let source = format!("static volatile int v;\nint main(int n, char **a) {{\n  int i = n;\n{loops}  return i == 77;\n}}\n");
    let place = Place::with(&[("many.c", &source)]);
    place.cc("-O1 many.c -o many");
    let output = place.command(laboratory()).args(["plan", "many", "--copies", "2", "--strategy", "p3"]).output().unwrap();
    assert!(
        output.status.success() && read_messages(&output).contains("strategy p3 does not divide the paths of main"),
        "{}",
        read_messages(&output)
    );
    let output = place.command(laboratory()).args(["plan", "many", "--copies", "2", "--strategy", "weighted"]).output().unwrap();
    assert!(output.status.success() && !read_messages(&output).contains("leaves"), "{}", read_messages(&output));
}
