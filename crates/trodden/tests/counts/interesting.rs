//! Programs that are rebuilt to count only some paths: all kinds of path sets, all numbering schemes, and the messages about paths that are
//! not counted.

use crate::place::{Place, must, trodden, with_choices};
use std::collections::BTreeMap;
use trodden_profile::{FunctionPaths, InexactnessReason, Profile, UnitProfile};
use trodden_unit::FunctionMap;

/// `tread` has eight paths, each executed 1,000 times. Lines 4, 6 and 8 are each on half of the paths.
const SUBJECT_PROGRAM: &str = "#define NOP __asm__ volatile(\"nop\")
__attribute__((noinline)) void tread(unsigned x) {
  if (x & 1)
    NOP;
  if (x & 2)
    NOP;
  if (x & 4)
    NOP;
}
void other(unsigned x);
int main(void) { for (unsigned i = 0; i < 8000; i++) { tread(i); other(i); } return 0; }
";

/// A second unit. In some tests, none of its paths are interesting.
const OTHER_SOURCE: &str = "void other(unsigned x) { if (x & 1) __asm__ volatile(\"nop\"); }\n";

fn build_subject() -> Place {
    let place = Place::with(&[("prog.c", SUBJECT_PROGRAM), ("other.c", OTHER_SOURCE)]);
    place.cc("-O2 -g prog.c other.c -o prog");
    place.record("prog");
    place
}

fn rebuild_and_run(place: &Place, arguments: &str) -> Profile {
    must(with_choices(place.command(trodden()).args(["instrument", "prog", "-o", "again"]), arguments.split(' ')));
    place.trodden("record --no-store -o again.trodden -- ./again");
    Profile::read(&place.path("again.trodden")).unwrap()
}

fn expect_error(place: &Place, arguments: &str) -> String {
    let mut command = place.command(trodden());
    let output = with_choices(command.args(["instrument", "prog", "-o", "again"]), arguments.split(' ')).output().unwrap();
    assert!(!output.status.success(), "{arguments}");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns the counts of a function's paths, and the number of its executions on paths that are not counted. Returns `None` if the function
/// is not instrumented.
fn count_paths(profile: &Profile, name: &str) -> Option<(Vec<u64>, u64)> {
    let (_, unit, function) = profile.functions().find(|(_, _, f)| f.name == name)?;
    let paths = FunctionPaths::decode(function, unit.counts_of(function)).unwrap();
    Some((paths.complete.iter().map(|p| p.count).collect(), unit.unattributed(function)))
}

#[test]
fn all_kinds_of_path_sets_are_counted() {
    let place = build_subject();
    place.write("paths", "# all three\ntread: prog.c:4 prog.c:6 prog.c:8\n");
    place.write("change.diff", "--- a/prog.c\n+++ b/prog.c\n@@ -6 +6 @@\n-x\n+y\n");
    for (set, paths) in [
        ("touch:prog.c:4", 4),
        ("touch:prog.c:4-5", 8),
        ("through:prog.c:4,prog.c:8", 2),
        ("paths:paths", 1),
        ("diff:change.diff", 4),
        ("function:tread", 8),
    ] {
        let profile = rebuild_and_run(&place, &format!("--interesting {set}"));
        assert_eq!(count_paths(&profile, "tread"), Some((vec![1000; paths], 8000 - 1000 * paths as u64)), "{set}");
        assert_eq!(count_paths(&profile, "other"), None, "{set}");
    }
    let all = rebuild_and_run(&place, "--interesting run.trodden");
    assert_eq!((count_paths(&all, "tread"), count_paths(&all, "other")), (Some((vec![1000; 8], 0)), Some((vec![4000; 2], 0))));
    // The loop in `main` takes one path 7,999 times. The next most frequent paths are the two paths of `other`.
    let top = rebuild_and_run(&place, "--interesting top:3:run.trodden");
    assert_eq!((count_paths(&top, "tread"), count_paths(&top, "other")), (None, Some((vec![4000; 2], 0))));
    let both = rebuild_and_run(&place, "--interesting top:3:run.trodden --interesting touch:prog.c:4");
    assert!(count_paths(&both, "tread").is_some() && count_paths(&both, "other").is_some());
    let share = rebuild_and_run(&place, "--interesting share:60%:run.trodden");
    assert_eq!((count_paths(&share, "tread"), count_paths(&share, "other")), (None, Some((vec![4000; 2], 0))));
}

#[test]
fn every_scheme_counts_its_paths_and_reports_what_it_leaves_out() {
    let place = build_subject();
    for scheme in ["spp", "mspp", "pertinent", "pspp", "ppp", "known-table", "ppp-optimal", "approximate"] {
        let profile = rebuild_and_run(&place, &format!("--interesting touch:prog.c:4 --scheme {scheme}"));
        let (found, others) = count_paths(&profile, "tread").unwrap();
        let inexact = profile.inexactness_reasons();
        assert!(matches!(&inexact[0],
                InexactnessReason::Interesting { scheme: named, functions: 1, executions: n } if named == scheme && *n == others));
        let aliases = inexact.iter().any(|i| matches!(i, InexactnessReason::Aliases { .. }));
        assert!(aliases || (found == [1000; 4] && others == 4000), "{scheme}: {found:?} {others}");
        assert!(!aliases || scheme == "spp" || scheme == "approximate", "{scheme}");
    }
    let full = rebuild_and_run(&place, "--interesting touch:prog.c:4 --scheme ball-larus");
    assert_eq!((count_paths(&full, "tread"), full.inexactness_reasons()), (Some((vec![1000; 8], 0)), vec![]));
}

/// A calculator with loops, recursion, and `longjmp` out of deep frames.
const CALCULATOR_PROGRAM: &str = r#"#include <setjmp.h>
#include <stdio.h>
#include <string.h>
static jmp_buf wrong;
static const char *at;
static long sum(void);
static long factor(void) {
  while (*at == ' ') at++;
  if (*at == '(') { at++; long n = sum(); if (*at != ')') longjmp(wrong, 1); at++; return n; }
  if (*at == '-') { at++; return -factor(); }
  if (*at < '0' || *at > '9') longjmp(wrong, 2);
  long n = 0;
  for (; *at >= '0' && *at <= '9'; at++) n = n * 10 + *at - '0';
  return n;
}
static long product(void) {
  long n = factor();
  for (;;) {
    while (*at == ' ') at++;
    if (*at == '*') { at++; n *= factor(); }
    else if (*at == '/') { at++; long by = factor(); if (by == 0) longjmp(wrong, 3); n /= by; }
    else return n;
  }
}
static long sum(void) {
  long n = product();
  while (*at == '+' || *at == '-') { char sign = *at++; long more = product(); n += sign == '+' ? more : -more; }
  return n;
}
int main(void) {
  static const char *const lines[] = {"1 + 2*3", "(4 - (5+6)) * -7", "8/0", "((1", "2*(3+4)*5/6", "x", "-(1)-(2)-(3)", "12345*6/7",
      "((((9))))/(1-1)"};
  long all = 0;
  for (int round = 0; round < 40; round++)
    for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++) {
      if (i % 4 == round % 4) continue;
      at = lines[i];
      int what = setjmp(wrong);
      all = what ? all * 3 + what : all + sum();
    }
  printf("%ld\n", all);
}
"#;

/// Checks that a function's interesting paths have the same counts as in the build that counts all paths, and that the sums over all paths
/// are equal. Returns the number of compared paths.
fn compare_function(full: &Profile, unit: &UnitProfile, function: &FunctionMap, what: &str) -> usize {
    let (_, in_full, oracle) = full.functions().find(|(_, _, f)| f.name == function.name).unwrap();
    let all: BTreeMap<u64, u64> = in_full.counts_of(oracle).collect();
    let counted: BTreeMap<u64, u64> = unit.counts_of(function).collect();
    let Some(interesting) = function.interesting_words() else {
        assert_eq!(counted, all, "{what}");
        return all.len();
    };
    let count = |counts: &BTreeMap<u64, u64>, path: u64| counts.get(&path).copied().unwrap_or(0);
    for (_, path) in &interesting.paths {
        let (found, expected) = (count(&counted, *path), count(&all, *path));
        // Some schemes count other paths together with an interesting path. The map must list these as aliases.
        assert!(
            found == expected || found > expected && !interesting.aliases.is_empty(),
            "{what}: path {path} {found} times, not {expected}"
        );
    }
    let total = FunctionPaths::decode(oracle, in_full.counts_of(oracle)).unwrap().total();
    assert_eq!(
        interesting.paths.iter().map(|(_, path)| count(&counted, *path)).sum::<u64>() + unit.unattributed(function),
        total,
        "{what}"
    );
    interesting.paths.len()
}

#[test]
fn every_scheme_agrees_with_the_full_build_on_loops_recursion_and_longjmp() {
    let place = Place::with(&[("calc.c", CALCULATOR_PROGRAM)]);
    place.cc("-O1 -g calc.c -o prog");
    place.trodden("record --no-store -o full.trodden -- ./prog");
    let full = Profile::read(&place.path("full.trodden")).unwrap();
    for scheme in ["ball-larus", "spp", "mspp", "pertinent", "pspp", "ppp", "known-table", "ppp-optimal", "approximate"] {
        let profile = rebuild_and_run(&place, &format!("--interesting share:80%:full.trodden --scheme {scheme}"));
        let paths: usize = profile.functions().map(|(_, unit, f)| compare_function(&full, unit, f, &format!("{scheme}: {}", f.name))).sum();
        assert!(paths >= 5, "{scheme}: {paths} paths");
        let exact = !["spp", "approximate"].contains(&scheme);
        let aliases = profile.functions().any(|(_, _, f)| f.interesting_words().is_some_and(|c| !c.aliases.is_empty()));
        assert!(!(exact && aliases), "{scheme}");
        assert_eq!(aliases, profile.inexactness_reasons().iter().any(|i| matches!(i, InexactnessReason::Aliases { .. })), "{scheme}");
    }
}

#[test]
fn uncounted_paths_and_invalid_sets_are_reported() {
    let place = build_subject();
    rebuild_and_run(&place, "--interesting touch:prog.c:4 --scheme ppp");
    let info = String::from_utf8(place.trodden("info again").stdout).unwrap();
    assert!(info.contains("none of its paths is interesting") && info.contains("scheme ppp"), "{info}");
    let report = String::from_utf8(place.trodden("report again.trodden").stdout).unwrap();
    assert!(report.contains("their other paths are counted together (4000 executions)"), "{report}");
    assert!(expect_error(&place, "--scheme ppp").contains("--interesting"));
    assert!(expect_error(&place, "--scheme ppp --watch 3").contains("cannot be combined with --watch"));
    assert!(expect_error(&place, "--interesting share:0%:run.trodden").contains("expected a percentage"));
    assert!(expect_error(&place, "--interesting touch:prog.c:999").contains("none of them is a path of the program"));
    assert!(expect_error(&place, "--interesting touch:prog.c").contains("Write FILE:LINE"));
    assert!(expect_error(&place, "--interesting share:2:run.trodden").contains("99%"));
}

/// A function with 131,072 paths: too many for a counter array, and for a numbering scheme that tries all paths.
const LARGE_FUNCTION_SOURCE: &str = "
#define ONE(n) if (x & 1u << n) __asm__ volatile(\"nop\");
#define FOUR(n) ONE(n) ONE(n + 1) ONE(n + 2) ONE(n + 3)
__attribute__((noinline)) void large(unsigned x) { FOUR(0) FOUR(4) FOUR(8) FOUR(12) ONE(16) }
int main(void) { large(77777); large(4711); return 0; }
";

#[test]
fn functions_with_nonstandard_path_numbers_are_named() {
    let place = Place::with(&[("prog.c", LARGE_FUNCTION_SOURCE)]);
    let arguments = ["cc", "-O1", "-g", "prog.c", "-o", "prog"];
    must(place.command(trodden()).env("TRODDEN_INSTRUMENT", "table-slots=64").args(arguments));
    place.record("prog");
    let made = |scheme: &str| {
        let arguments = ["instrument", "prog", "-o", "again", "--interesting", "run.trodden", "--scheme", scheme];
        let said = String::from_utf8(must(with_choices(&mut place.command(trodden()), arguments)).stderr).unwrap();
        let info: serde_json::Value = serde_json::from_slice(&place.trodden("info again --json").stdout).unwrap();
        let reported: Vec<String> = said.lines().filter(|l| l.contains("`large`")).map(str::to_owned).collect();
        (reported, info["counted_in_full"].as_array().unwrap().iter().map(|f| f["reason"].to_string()).collect::<Vec<_>>())
    };
    for (scheme, why) in [("mspp", "131072 paths are too many for the scheme mspp"), ("ball-larus", "")] {
        let (reported, reasons) = made(scheme);
        assert_eq!((reported.len(), reasons.len()), (1, 1), "{scheme}: {reported:?} {reasons:?}");
        for text in [&reported[0], &reasons[0]] {
            assert!(
                text.contains(why) && text.contains("it has 131072 paths but max-paths is 4096") && text.contains("differ from those"),
                "{text}"
            );
        }
    }
    // These schemes keep the standard path numbers, so there is nothing to report.
    for scheme in ["pspp", "known-table"] {
        assert_eq!(made(scheme), (vec![], vec![]), "{scheme}");
    }
}

#[test]
fn set_of_a_diff_contains_the_paths_through_changed_lines() {
    let place = Place::with(&[("prog.c", SUBJECT_PROGRAM), ("other.c", OTHER_SOURCE)]);
    must(place.command("git").args(["init", "--quiet"]));
    must(place.command("git").args(["add", "prog.c"]));
    must(place.command("git").args(["-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "--message", "one"]));
    place.write("prog.c", &SUBJECT_PROGRAM.replacen("  if (x & 4)\n    NOP;", "  if (x & 4)\n    __asm__ volatile(\"nop; nop\");", 1));
    place.cc("-O2 -g prog.c other.c -o prog");
    let profile = rebuild_and_run(&place, "--interesting diff:HEAD");
    assert_eq!(count_paths(&profile, "tread"), Some((vec![1000; 4], 4000)));
    assert_eq!(count_paths(&profile, "other"), None);
}
