//! `trodden record --copies` in case of faults: signals, a killed recorder, programs whose paths depend on addresses, unusual runs as
//! weights.

mod place;

use place::{Place, laboratory, trodden, with_choices};
use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use trodden_profile::Profile;

fn record(place: &Place, arguments: &str) -> Output {
    let mut command = place.command(trodden());
    with_choices(command.args("record --no-store -o run.trodden".split(' ')), arguments.split_whitespace());
    command.stdin(Stdio::null()).output().unwrap()
}

fn reported(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn profile(place: &Place) -> Profile {
    Profile::read(&place.path("run.trodden")).unwrap()
}

/// Counts by function and path.
fn counts(place: &Place) -> BTreeMap<(String, u64), u64> {
    let profile = profile(place);
    profile.functions().flat_map(|(_, unit, f)| unit.counts_of(f).map(move |(path, n)| ((f.name.clone(), path), n))).collect()
}

fn not_exact(place: &Place) -> Vec<String> {
    let report: serde_json::Value = serde_json::from_slice(&place.trodden("report run.trodden --json").stdout).unwrap();
    report["totals"]["not_exact"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Runs until a timer's signal ends it.
const TIMED: &str = "#include <unistd.h>\nvolatile unsigned sink;\n\
    __attribute__((noinline)) unsigned one(unsigned n) { if (n & 1) return n * 3; return n / 2; }\n\
    __attribute__((noinline)) unsigned two(unsigned n) { if (n % 3) return n + 1; return n; }\n\
    int main(void) { ualarm(100000, 0); for (unsigned i = 0;; i++) sink += one(i) + two(i); }\n";

#[test]
fn copies_ended_by_the_same_signal_are_marked() {
    let place = Place::with(&[("prog.c", TIMED)]);
    place.cc("-O1 prog.c -o prog");
    let output = record(&place, "--copies 2 --no-first-run -- ./prog");
    assert_eq!(output.status.code(), Some(128 + 14), "{}", reported(&output));
    assert!(
        reported(&output).contains("signal 14 ended all copies") && !reported(&output).contains("did not execute the same paths"),
        "{}",
        reported(&output)
    );
    assert_eq!((profile(&place).run.interrupted, profile(&place).run.diverged), (2, 0));
    assert!(not_exact(&place)[0].contains("a signal ended each of the 2 copies"), "{:?}", not_exact(&place));
    // The merged profile is marked as well.
    place.trodden("merge -o sum.trodden run.trodden run.trodden");
    assert_eq!(Profile::read(&place.path("sum.trodden")).unwrap().run.interrupted, 4);
}

/// A signal ends the second copy, either at each attempt or only at the first.
const ONE_IS_ENDED: &str = "#include <signal.h>\n#include <string.h>\n#include <sys/stat.h>\n#include <unistd.h>\n\
    __attribute__((noinline)) int work(int n) { int s = 0; for (int i = 0; i < n; i++) { if (i % 3) s += i; else s ^= i; } return s; }\n\
    int main(int c, char **v) { char self[4096] = { 0 }; if (readlink(\"/proc/self/exe\", self, sizeof self - 1) < 0) return 9;\n\
    int s = work(40); if (strstr(self, \"copy-0001/\") && (c > 1 || !mkdir(\"once\", 0700))) kill(getpid(), SIGKILL); return work(s & 7) \
    == 1; }\n";

#[test]
fn copies_ended_by_a_signal_run_again_if_others_end_normally() {
    let place = Place::with(&[("prog.c", ONE_IS_ENDED)]);
    place.cc("-O1 prog.c -o prog");
    record(&place, "-- ./prog");
    let truth = counts(&place);
    let output = record(&place, "--copies 2 --no-first-run --ignore-output -- ./prog");
    assert!(reported(&output).contains("a signal ended only 1 of 2 copies"), "{}", reported(&output));
    // The copy ends normally at its second attempt. Its difference in `main` is visible only if several copies count `main`.
    assert!(place.path("once").is_dir() && !reported(&output).contains("ended with"), "{}", reported(&output));
    let of_work =
        |counts: &BTreeMap<(String, u64), u64>| counts.iter().filter(|(at, _)| at.0 == "work").map(|(_, n)| *n).collect::<Vec<_>>();
    assert_eq!(of_work(&counts(&place)), of_work(&truth));
    let output = record(&place, "--copies 2 --no-first-run --ignore-output -- ./prog always");
    assert_eq!(output.status.code(), Some(1), "{}", reported(&output));
    assert!(reported(&output).contains("copy 1 ended with signal 9, but copy 0 with status 0"), "{}", reported(&output));
    assert!(profile(&place).run.diverged > 0 && !not_exact(&place).is_empty());
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
    // Each of the two copies has a child.
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

/// Behaves like a program that depends on addresses: the second copy takes the slow path of a hot function twice as often, and its output
/// is the same.
const ANOTHER_EXECUTION: &str = "#include <string.h>\n#include <unistd.h>\nvolatile int sink;\n\
    __attribute__((noinline)) void work(int i, int other) { if ((i & 127) < 1 + other) { sink += 3; __asm__ volatile(\"\"); } else { \
    sink ^= i; __asm__ volatile(\" \"); } }\n\
    __attribute__((noinline)) void rest(int i) { if (i % 3) sink += i; else sink -= 4; if (i & 4) sink ^= 9; }\n\
    int main(void) { char self[4096] = { 0 }; if (readlink(\"/proc/self/exe\", self, sizeof self - 1) < 0) return 9;\n\
    int other = strstr(self, \"copy-0001/\") != 0; for (int i = 0; i < 12800; i++) { work(i, other); rest(i); } return 0; }\n";

#[test]
fn different_executions_are_detected_by_paths_that_all_copies_count() {
    let place = Place::with(&[("prog.c", ANOTHER_EXECUTION)]);
    place.cc("-O1 prog.c -o prog");
    record(&place, "-- ./prog");
    std::fs::copy(place.path("run.trodden"), place.path("one.trodden")).unwrap();
    for arguments in
        ["--copies 2 --weights one.trodden", "--copies 3 --weights one.trodden", "--copies 2 --strategy pbl --weights one.trodden"]
    {
        let output = record(&place, &format!("{arguments} -- ./prog"));
        assert_eq!(output.status.code(), Some(1), "{arguments}: {}", reported(&output));
        assert!(
            reported(&output).contains("did not execute the same paths") && reported(&output).contains("of function `work`"),
            "{arguments}: {}",
            reported(&output)
        );
        assert!(profile(&place).run.diverged > 0 && !not_exact(&place).is_empty());
    }
}

/// An argument determines which path is hot.
const UNLIKE: &str = "#include <stdlib.h>\nvolatile unsigned sink;\n\
    __attribute__((noinline)) void one(int n) { for (int i = 0; i < n; i++) { if (i & 1) sink += i; else sink ^= i; if (i % 3) sink--; } \
    }\n\
    __attribute__((noinline)) void two(int n) { for (int i = 0; i < n; i++) { if (i & 2) sink += i; else sink ^= i; if (i % 5) sink--; } \
    }\n\
    int main(int c, char **v) { one(atoi(v[1])); two(atoi(v[2])); return 0; }\n";

#[test]
fn several_runs_balance_copies_better_than_an_unusual_one() {
    let place = Place::with(&[("prog.c", UNLIKE)]);
    place.cc("-O1 prog.c -o prog");
    place.trodden("record -- ./prog 3000 2000");
    place.trodden("record -- ./prog 2000 3000");
    place.trodden("record -- ./prog 900000 0");
    let output = record(&place, "--copies 2 --costs costs.json -- ./prog 2500 2500");
    assert_eq!(output.status.code(), Some(0), "{}", reported(&output));
    let said = "based on 3 runs of this build, with equal weights: 3 (./prog 900000 0), 2 (./prog 2000 3000), 1 (./prog 3000 2000)";
    assert!(reported(&output).contains(said), "{}", reported(&output));
    let costs: serde_json::Value = serde_json::from_slice(&std::fs::read(place.path("costs.json")).unwrap()).unwrap();
    let hits = |name: &str| costs[name].as_u64().unwrap() as f64;
    assert!(hits("hits_of_slowest") < 0.8 * hits("sequential_hits"), "{costs}");
    // Two runs of the same command are used as weights.
    place.trodden("record -- ./prog 2500 2500");
    place.trodden("record -- ./prog 2500 2500");
    let output = record(&place, "--copies 2 -- ./prog 2500 2500");
    assert!(
        reported(&output).contains("based on 2 runs of this build, with equal weights: 5 (./prog 2500 2500), 4 "),
        "{}",
        reported(&output)
    );
}

/// The sets of edges of a function whose paths are cut at many loops would need gigabytes, so the function is not divided, and a message
/// says so.
#[test]
fn functions_that_strategy_p3_cannot_divide_are_named() {
    let loops: String = (0..1750).map(|n| format!("  while (v > {n}) i += v;\n")).collect();
    let source = format!("static volatile int v;\nint main(int n, char **a) {{\n  int i = n;\n{loops}  return i == 77;\n}}\n");
    let place = Place::with(&[("many.c", &source)]);
    place.cc("-O1 many.c -o many");
    let output = place.command(laboratory()).args(["plan", "many", "--copies", "2", "--strategy", "p3"]).output().unwrap();
    assert!(output.status.success() && reported(&output).contains("strategy p3 does not divide main"), "{}", reported(&output));
    let output = place.command(laboratory()).args(["plan", "many", "--copies", "2", "--strategy", "weighted"]).output().unwrap();
    assert!(output.status.success() && !reported(&output).contains("leaves"), "{}", reported(&output));
}
