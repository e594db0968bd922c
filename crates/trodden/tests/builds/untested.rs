//! Untested paths: their ranking if runs failed, and builds that find them by counting the tested paths under numbering schemes for
//! interesting paths.

use crate::place::{Place, must, trodden};
use serde_json::Value;
use std::collections::BTreeSet;

/// A program with two branches. Tests take both sides of each branch, but only two of the four combinations. Two further branches, of which
/// one ends the program by `exit`, are taken by no test. The program sleeps between calls, because times of first execution have a
/// resolution of some milliseconds.
const SUBJECT_PROGRAM: &str = r#"#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define NOP __asm__ volatile("nop")
__attribute__((noinline)) int classify(int a, int b) {
    int r = 0;
    if (a > 10) { NOP; r += 1; } else { NOP; NOP; r -= 1; }
    NOP;
    if (b > 10) { NOP; NOP; r *= 3; } else { NOP; r += 7; }
    if (b > 100) { NOP; NOP; NOP; r += a; }
    if (b > 1000) exit(3);
    return r;
}
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        sum += classify(atoi(argv[i]), atoi(argv[i + 1]));
        usleep(20000);
    }
    printf("%d\n", sum);
    return 0;
}
"#;

/// Creates a program, a suite with runs of its tests, and a field build, which counts only paths that these tests did not take.
fn create_place() -> Place {
    let place = Place::with(&[("prog.c", SUBJECT_PROGRAM), ("run-tests", "./prog 1 1\n./prog 20 20\n")]);
    place.cc("-O1 -g prog.c -o prog");
    place.trodden("record --suite tests -- sh run-tests");
    place.trodden("instrument ./prog --residual tests -o prog.field");
    place
}

fn read_json(place: &Place, arguments: &str) -> Value {
    serde_json::from_slice(&place.trodden(&format!("untested --json {arguments}")).stdout).unwrap()
}

/// Returns all complete paths in a report, each with its function, number and count.
fn list_paths(report: &Value) -> BTreeSet<(String, u64, u64)> {
    let complete = report["paths"].as_array().unwrap().iter().filter(|p| p["complete"] == true);
    complete.map(|p| (p["function"].as_str().unwrap().into(), p["id"].as_u64().unwrap(), p["count"].as_u64().unwrap())).collect()
}

/// Paths that only failing runs take must come first, then paths that the failure cut off, then the paths executed most recently.
#[test]
fn untested_paths_of_a_failing_run_are_ranked() {
    let place = create_place();
    let record = |suite: &str, program: &str, arguments: &str, status: i32| {
        let words = arguments.split_whitespace();
        let output = place.command(trodden()).args(["record", "--suite", suite, "--"]).arg(place.path(program)).args(words).output();
        assert_eq!(output.unwrap().status.code(), Some(status), "{arguments}");
    };
    // The arguments (1, 20) occur in a failing and in a passing run, and (20, 1) only in the failing one. With (1, 2000), `classify` does
    // not return.
    record("field", "prog", "1 20", 0);
    record("field", "prog", "1 20 20 1 1 20 1 2000", 3);
    let report = read_json(&place, "field --known tests --function classify");
    let rows: Vec<(bool, u64, f64)> = report["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["complete"].as_bool().unwrap(), p["passing_runs"].as_u64().unwrap(), p["suspicion"].as_f64().unwrap()))
        .collect();
    let [exits, alone, both] = rows[..] else { panic!("{report}") };
    assert_eq!((exits, alone), ((true, 0, 1.0), (true, 0, 1.0)), "{report}");
    assert!(both.0 && both.1 == 1 && (both.2 - 0.5f64.sqrt()).abs() < 1e-12, "{report}");
    // The path of `main` that the failure cut off comes first.
    let first = &read_json(&place, "field --known tests")["paths"][0];
    assert!(first["function"] == "main" && first["complete"] == false, "{first}");
    let by_count = read_json(&place, "field --known tests --function classify --by count");
    assert_eq!(by_count["paths"][0]["count"], 3, "{by_count}");
    let text = String::from_utf8(place.trodden("untested field --known tests").stdout).unwrap();
    assert!(text.contains("(1 of 1 failing run and 1 of 1 passing run)"), "{text}");
    // Within a single run, the path whose first execution was the latest must come first.
    let ids = |suite: &str, options: &str| -> Vec<u64> {
        let report = read_json(&place, &format!("{suite} {options} --function classify"));
        report["paths"].as_array().unwrap().iter().map(|p| p["id"].as_u64().unwrap()).collect()
    };
    let apart = |suite: &str, arguments: &str, status: i32| {
        record(suite, "prog", arguments, status);
        ids(suite, "--known tests")[0]
    };
    let [low, high, exits] = [apart("low", "1 20", 0), apart("high", "20 1", 0), apart("exits", "1 2000", 3)];
    record("one", "prog.field", "20 1 1 20 20 1 1 2000", 3);
    assert_eq!(ids("one", ""), [exits, low, high]);
    record("other", "prog.field", "1 20 20 1 1 20 1 2000", 3);
    assert_eq!(ids("other", ""), [exits, high, low]);
    assert_eq!(ids("other", "--by count")[0], low);
}

/// These builds declare the tested paths interesting and count them. They must list, or at least count, every execution of an untested
/// path.
#[test]
fn builds_of_interesting_tests_find_every_untested_execution() {
    let place = create_place();
    let arguments = ["1", "20", "1", "20", "1", "200", "30", "3", "300", "300"];
    let record = |program: &str, suite: &str| {
        must(place.command(trodden()).args(["record", "--suite", suite, "--"]).arg(place.path(program)).args(arguments));
        read_json(&place, &format!("{suite} --known tests"))
    };
    let all = list_paths(&record("prog", "full"));
    let executions = |paths: &BTreeSet<(String, u64, u64)>| paths.iter().map(|path| path.2).sum::<u64>();
    assert!(all.len() > 3, "{all:?}");
    for scheme in ["pspp", "ppp", "known-table"] {
        place.laboratory(&format!("with --scheme {scheme} -- instrument ./prog --interesting tests -o prog.{scheme}"));
        let report = record(&format!("prog.{scheme}"), scheme);
        let listed = list_paths(&report);
        assert!(listed.is_subset(&all), "{scheme}: {listed:?} of {all:?}");
        assert_eq!(listed.is_empty(), scheme != "pspp", "{scheme}: {listed:?}");
        let rest = report["summary"]["untested_executions_without_path"].as_u64().unwrap();
        assert_eq!(executions(&listed) + rest, executions(&all), "{scheme}: {report}");
        assert_eq!(report["summary"]["unclear_executions_without_path"], 0);
    }
    // If the report knows the same tests as the build, or fewer, no execution is unclear. If it knows more, some executions that the build
    // counted together may be tested.
    let more = read_json(&place, "ppp --known tests --known full");
    assert!(more["summary"]["unclear_executions_without_path"].as_u64() > Some(0), "{more}");
}
