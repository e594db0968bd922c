//! `trodden record --copies K` for programs that count only a set of paths, made by `trodden instrument --watch` or `--interesting`.
//! Together, the copies must count the same as a single program.

use crate::place::{Place, must, trodden, with_choices};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};
use trodden_profile::{InexactnessReason, Profile};
use trodden_unit::Identity;

/// A program with mutual recursion, and with `longjmp` over frames of both functions and out of a loop.
const JUMPS_PROGRAM: &str = r#"
#include <setjmp.h>
#include <stdio.h>
static jmp_buf back;
static int odd(int n);
__attribute__((noinline)) static int even(int n) {
    int s = 0;
    for (int i = 0; i < n; i++) { if (i % 3 == 1) s += odd(n - i - 2); else if (i & 4) s ^= n; else s++; }
    return s;
}
__attribute__((noinline)) static int odd(int n) {
    if (n == 5) longjmp(back, n);
    return n < 1 ? 1 : n & 1 ? even(n - 1) : even(n - 3) + 1;
}
__attribute__((noinline)) static int caught(int n) {
    int k = setjmp(back);
    if (k == 0) return even(n);
    return k > 4 ? -1 : k;
}
int main(void) {
    int s = 0;
    for (int i = 0; i < 14; i++) { if (i & 1) s += caught(i); else s ^= caught(i + 1); }
    printf("%d\n", s);
    return s & 7;
}
"#;

/// A program with exceptions that leave a function with a cleanup, with recursion, and with a child process that runs beside its parent.
const THROWS_PROGRAM: &str = r#"
#include <cstdio>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>
struct Guard { int *n; ~Guard() { ++*n; } };
__attribute__((noinline)) int deep(int n) {
    if (n % 11 == 7) throw std::runtime_error("seven");
    if (n < 2) return n;
    return n & 1 ? deep(n - 1) + deep(n / 2) : deep(n - 2);
}
__attribute__((noinline)) int guarded(int n, int *g) { Guard guard{g}; return deep(n) + deep(n + 1); }
__attribute__((noinline)) int caught(int n, int *g) {
    try { return guarded(n, g); } catch (const std::exception &e) { return e.what()[0] & 1 ? n : -n; }
}
int main() {
    int g = 0, s = 0;
    pid_t pid = fork();
    for (int i = 0; i < (pid ? 40 : 9); i++) s += caught(i, &g);
    if (pid == 0) _exit(s & 3);
    int status = 0;
    waitpid(pid, &status, 0);
    std::printf("%d %d %d\n", s, g, WEXITSTATUS(status));
    return 0;
}
"#;

fn record_program(place: &Place, options: &str, program: &str) -> Output {
    let mut command = place.command(trodden());
    command.args(["record", "--no-store", "-o", "run.trodden"]).args(options.split_whitespace()).args(["--", program]);
    command.output().unwrap()
}

fn record(place: &Place, options: &str) -> Output {
    record_program(place, options, "./watch")
}

/// The program's image and the counts of its executed watched paths, by function and path number.
type WatchedMatches = (Identity, BTreeMap<(String, u64), u64>);

fn read_watched_matches(place: &Place) -> WatchedMatches {
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    assert_eq!(profile.images.len(), 1);
    let mut counts = BTreeMap::new();
    for (_, unit, function) in profile.functions() {
        for (path, count) in unit.counts_of(function) {
            assert!(unit.first_seen(function, path).is_some(), "{} {path}", function.name);
            counts.insert((function.name.clone(), path), count);
        }
    }
    (profile.images[0].identity, counts)
}

fn find_match_messages(output: &Output) -> BTreeSet<String> {
    String::from_utf8_lossy(&output.stderr).lines().filter(|line| line.contains(" matches ")).map(str::to_owned).collect()
}

fn build_watching_program(place: &Place, expression: &str, action: &str) {
    let made = place.command(trodden()).args(["instrument", "prog", "-o", "watch", "--watch", expression, "--action", action]).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn copies_together_report_all_matches_of_one_program() {
    for (file, source, expressions) in [
        ("jumps.c", JUMPS_PROGRAM, ["8 | 12-13 | 17-18", "even|odd|caught: exit", "odd: 12 !13"]),
        ("throws.cc", THROWS_PROGRAM, ["8-10 | 12", "deep: 9 !10", "caught: 14"]),
    ] {
        let place = Place::with(&[(file, source)]);
        let compile = |line: &str| if file.ends_with(".cc") { place.cxx(line) } else { place.cc(line) };
        compile(&format!("-O1 -g {file} -o prog"));
        let mut divided = 0;
        for (expression, copy_numbers) in expressions.into_iter().zip([[2, 64], [3, 2], [2, 3]]) {
            build_watching_program(&place, expression, "report");
            let one = record(&place, "");
            let (truth, lines) = (read_watched_matches(&place), find_match_messages(&one));
            assert!(!truth.1.is_empty() && lines.len() == truth.1.len(), "{expression}: {truth:?} {lines:?}");
            for copies in copy_numbers {
                let several = record(&place, &format!("--copies {copies}"));
                let said = String::from_utf8_lossy(&several.stderr).into_owned();
                assert_eq!((several.status.code(), &several.stdout), (one.status.code(), &one.stdout), "{expression}: {said}");
                assert_eq!(
                    (read_watched_matches(&place), find_match_messages(&several)),
                    (truth.clone(), lines.clone()),
                    "{expression}, {copies} copies: {said}"
                );
                divided += usize::from(said.contains("functions are divided") || said.contains("1 function is divided"));
            }
        }
        assert!(divided > 2, "{file}: {divided}");
    }
}

#[test]
fn actions_that_would_make_copies_differ_are_rejected() {
    let place = Place::with(&[("jumps.c", JUMPS_PROGRAM)]);
    place.cc("-O1 -g jumps.c -o prog");
    build_watching_program(&place, "odd: 12", "abort");
    let refused = |command: &mut Command, text: &str| {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(text), "{text}: {said}");
    };
    let options = ["record", "--no-store", "-o", "run.trodden", "--copies", "2"];
    refused(place.command(trodden()).args(options).args(["--", "./watch"]), "perform the action `abort`");
    refused(
        place.command(trodden()).args(options).args(["--weights", "x", "--", "./watch"]),
        "--weights applies only to programs that count all paths",
    );
    refused(place.command(trodden()).args(options).args(["--divide", "edges", "--", "./watch"]), "cannot divide the paths of");
    // `TRODDEN_ON_UNTESTED` overrides the built-in action in copies, as it does in the program itself.
    let counted = place.command(trodden()).args(options).args(["--", "./watch"]).env("TRODDEN_ON_UNTESTED", "count").output().unwrap();
    assert!(find_match_messages(&counted).is_empty() && !read_watched_matches(&place).1.is_empty(), "{counted:?}");
    let status = place.command("strip").args(["--strip-all", "watch"]).status().unwrap();
    assert!(status.success());
    refused(place.command(trodden()).args(options).args(["--", "./watch"]), "has no symbols");
}

/// Counts of interesting paths, executions of each function on all other paths, and the reasons why the profile is not exact.
type Counted = (BTreeMap<(String, u64), u64>, BTreeMap<String, u64>, Vec<InexactnessReason>);

fn read_counts(place: &Place) -> Counted {
    let profile = Profile::read(&place.path("run.trodden")).unwrap();
    let (mut paths, mut others) = (BTreeMap::new(), BTreeMap::new());
    for (_, unit, function) in profile.functions() {
        paths.extend(unit.counts_of(function).map(|(path, count)| ((function.name.clone(), path), count)));
        let without_path = unit.unattributed(function);
        if without_path > 0 {
            others.insert(function.name.clone(), without_path);
        }
    }
    (paths, others, profile.inexactness_reasons())
}

#[test]
fn merged_counts_of_interesting_paths_equal_counts_of_one_program() {
    for (file, source, sets) in [
        ("jumps.c", JUMPS_PROGRAM, ["touch:jumps.c:8", "run.trodden", "touch:jumps.c:17"]),
        ("throws.cc", THROWS_PROGRAM, ["touch:throws.cc:10", "run.trodden", "top:5:run.trodden"]),
    ] {
        let place = Place::with(&[(file, source)]);
        let compile = |line: &str| if file.ends_with(".cc") { place.cxx(line) } else { place.cc(line) };
        compile(&format!("-O1 -g {file} -o prog"));
        let mut divided = 0;
        let all = sets.into_iter().flat_map(|set| [(set, ""), (set, "--scheme ball-larus")]);
        for ((set, scheme), copy_numbers) in all.zip([[2, 64], [3, 2]].into_iter().cycle()) {
            assert!(record_program(&place, "", "./prog").status.code().is_some());
            let arguments = format!("instrument prog -o chosen {scheme} --interesting {set}");
            must(with_choices(&mut place.command(trodden()), arguments.split_whitespace()));
            let one = record_program(&place, "", "./chosen");
            let truth = read_counts(&place);
            assert!(!truth.0.is_empty(), "{set} {scheme}: {one:?}");
            for copies in copy_numbers {
                let several = record_program(&place, &format!("--copies {copies}"), "./chosen");
                let said = String::from_utf8_lossy(&several.stderr).into_owned();
                assert_eq!((several.status.code(), &several.stdout), (one.status.code(), &one.stdout), "{set} {scheme}: {said}");
                assert_eq!(read_counts(&place), truth, "{set} {scheme}, {copies} copies: {said}");
                divided += usize::from(said.contains("functions are divided") || said.contains("1 function is divided"));
            }
        }
        assert!(divided > 2, "{file}: {divided}");
    }
}

#[test]
fn options_that_do_not_apply_to_copies_of_interesting_paths_are_rejected() {
    let place = Place::with(&[("jumps.c", JUMPS_PROGRAM)]);
    place.cc("-O1 -g jumps.c -o prog");
    record_program(&place, "", "./prog");
    let make = |scheme: &str| {
        let arguments = format!("instrument prog -o chosen {scheme} --interesting run.trodden");
        must(with_choices(&mut place.command(trodden()), arguments.split_whitespace()));
    };
    let refused = |arguments: &str, text: &str| {
        let output = place.command(trodden()).args(arguments.split_whitespace()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(text), "{text}: {said}");
    };
    make("--scheme ppp");
    refused("record --copies 2 -- ./chosen", "because it was built with --scheme. Build it without --scheme");
    make("");
    refused("record --copies 2 --weights x -- ./chosen", "--weights applies only to programs that count all paths");
    refused("record --copies 2 --divide edges -- ./chosen", "because it was built with --interesting. Omit --divide");
    refused("fleet copies ./chosen -k 2 -o parts", "because it was built with --interesting");
}
