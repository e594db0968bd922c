//! `trodden suite` and `trodden find` through the real command: tests from lists and from ctest, redundant tests, orders by a change, path expressions.

mod place;

use place::{Place, must, trodden};
use serde_json::Value;
use std::process::Output;

/// Two options that do something each; a third argument makes it fail.
const PROGRAM: &str = "\
#include <stdlib.h>
#define KEEP __attribute__((noinline))
KEEP void touch(int *n) { __asm__ volatile(\"\" : : \"r\"(n) : \"memory\"); }
KEEP int convert(int n, int scaled, int rounded) {
    if (scaled) {
        n *= 10;
        touch(&n);
    }
    if (rounded) {
        n = n / 10 * 10;
        touch(&n);
    }
    return n;
}
int main(int argc, char **argv) {
    convert(7, atoi(argv[1]), atoi(argv[2]));
    return argc > 3;
}
";

/// The first test is redundant beside the last, which does what it does and more.
const TESTS: &str = "\
# tests
plain\t./prog 0 0
scaled\t./prog 1 0
both\t./prog 1 1
rounded\t./prog 0 1
plain and scaled\t./prog 0 0; ./prog 1 0; ./prog 0 0 fail
";

fn built() -> Place {
    let place = Place::with(&[("a.c", PROGRAM), ("tests.txt", TESTS)]);
    place.cc("-O1 -g a.c -o prog");
    place
}

fn run(place: &Place, words: &str) -> Output {
    place.command(trodden()).args(words.split_whitespace()).output().unwrap()
}

fn json(place: &Place, words: &str) -> Value {
    serde_json::from_slice(&place.trodden(words).stdout).unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|t| t["test"].as_str().unwrap()).collect()
}

#[test]
fn redundant_tests_are_found_and_orders_follow_changes() {
    let place = built();
    let output = run(&place, "suite run tests --commands tests.txt --jobs 2");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("5 tests, 1 failed") && said.contains("failed: plain and scaled"), "{said}");
    let list = json(&place, "suite list tests --json");
    assert_eq!(list["tests"].as_array().unwrap().len(), 5);
    let failed: Vec<&Value> = list["tests"].as_array().unwrap().iter().filter(|t| t["status"] == "failed").collect();
    assert_eq!(failed.len(), 1);

    let found = json(&place, "suite redundant tests --json");
    assert_eq!(
        (&found["cost"], &found["least_cost"], &found["proven"]),
        (&Value::from(3), &Value::from(3), &Value::from(true)),
        "{found:#}"
    );
    let mut redundant = names(&found["redundant"]);
    redundant.sort_unstable();
    assert_eq!(redundant, ["plain", "scaled"]);
    let text = String::from_utf8(place.trodden("suite redundant tests").stdout).unwrap();
    assert!(text.contains("3 tests take them all: no set needs less (proven)"), "{text}");

    // Line 10 is in the branch of `rounded`.
    place.write("change.diff", "--- a/a.c\n+++ b/a.c\n@@ -10 +10 @@\n-        n = n / 10 * 10;\n+        n = n / 10 * 11;\n");
    let order = json(&place, "suite order tests --diff change.diff --only-changed --json");
    let mut first = names(&order["tests"]);
    first.sort_unstable();
    assert_eq!((first, &order["changed_paths"]), (vec!["both", "rounded"], &Value::from(2)));
    // A change of what no test runs orders nothing.
    place.write("other.diff", "--- a/other.c\n+++ b/other.c\n@@ -1 +1 @@\n-int a;\n+int b;\n");
    assert_eq!(json(&place, "suite order tests --diff other.diff --json")["average_percentage_covered"], Value::Null);
    let text = String::from_utf8(place.trodden("suite order tests --diff other.diff").stdout).unwrap();
    assert!(text.contains("the change chooses no test") && !text.contains("100.0 %"), "{text}");
    let all = String::from_utf8(place.trodden("suite order tests --names").stdout).unwrap();
    assert!(all.starts_with("plain and scaled\n") && all.lines().count() == 5, "{all}");
}

#[test]
fn tests_of_ctest_are_runs() {
    let place = built();
    place.write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.20)\nproject(x NONE)\nenable_testing()\n\
         add_test(NAME one COMMAND ${CMAKE_SOURCE_DIR}/prog 0 0)\nadd_test(NAME fails COMMAND ${CMAKE_SOURCE_DIR}/prog 1 0 fail)\n\
         add_test(NAME \"should fail\" COMMAND ${CMAKE_SOURCE_DIR}/prog 1 1 fail)\nset_tests_properties(\"should fail\" PROPERTIES WILL_FAIL TRUE)\n",
    );
    must(place.command("cmake").args(["-S", ".", "-B", "out"]));
    assert_eq!(run(&place, "suite run checks --ctest out").status.code(), Some(1));
    let list = json(&place, "suite list checks --json");
    let seen: Vec<_> =
        list["tests"].as_array().unwrap().iter().map(|t| (t["test"].as_str().unwrap(), t["status"].as_str().unwrap())).collect();
    assert_eq!(seen, [("one", "passed"), ("fails", "failed"), ("should fail", "passed")]);
    assert_eq!(run(&place, "suite run one --ctest out -- -R ^one$").status.code(), Some(0));
    assert_eq!(names(&json(&place, "suite list one --json")["tests"]), ["one"]);
}

#[test]
fn expressions_find_paths() {
    let place = built();
    for options in ["0 0", "1 0", "1 1", "0 1"] {
        place.trodden(&format!("record --suite tests -- ./prog {options}"));
    }
    let find = |expression: &str, more: &[&str]| {
        let output = place.command(trodden()).arg("find").arg(expression).arg("tests").args(more).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (expression, paths) in [
        ("convert: 6 .. 10", 1),
        ("convert: 10 .. 6", 0),
        ("convert: 6 !10", 1),
        ("convert: !6 !10", 1),
        ("convert: 6 | 10", 3),
        ("convert: 6 & 10", 1),
        ("convert: entry .. exit", 4),
        ("a.c:10 .. exit", 2),
        ("convert: back", 0),
    ] {
        let (status, out, said) = find(expression, &["--json"]);
        assert_eq!(status, Some(0), "{expression}: {said}");
        let found: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(found["paths_found"], Value::from(paths), "{expression}: {found:#}");
    }
    let (_, text, said) = find("convert: 6 .. 10 !99", &["--fail"]);
    assert!(text.contains("1 path, 1 of 4 executions") && text.contains("n *= 10;"), "{text}");
    assert!(said.contains("line 99 is in no block of these functions"), "{said}");
    assert_eq!(find("convert: 6", &["--fail"]).0, Some(1));
    let (_, text, _) = find("convert: 10 .. 6", &[]);
    assert!(text.contains("no executed path") && !text.contains("0 of 0"), "{text}");
    let (status, _, said) = find("convert: 6 nonsense", &[]);
    assert!(
        status == Some(2) && said.contains("`nonsense` is no place") && said.ends_with("  convert: 6 nonsense\n             ^\n"),
        "{said}"
    );
    assert!(find("nowhere: 6", &[]).2.contains("nowhere"));
}

/// Takes the watched path after a while; if nobody minds it goes on for a minute, unless it is told not to.
const SLOW: &str = "\
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) int step(int n) {
    __asm__ volatile(\"\");
    if (n == 20) {
        __asm__ volatile(\"\");
        n = 2;
    }
    return n;
}
int main(int argc, char **argv) {
    for (int i = 0; i < atoi(argv[1]); i++) {
        step(i % 30);
        usleep(2000);
    }
    return 3;
}
";

#[test]
fn watched_paths_are_noticed_while_the_program_runs() {
    let place = Place::with(&[("a.c", SLOW)]);
    place.cc("-O1 -g a.c -o prog");
    let record = |options: &[&str], rounds: &str| {
        let output = place.command(trodden()).arg("record").args(options).args(["--", "./prog", rounds]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, said) = record(&["--watch", "step: 6", "--on-match", "abort"], "30000");
    assert_eq!(status, Some(134), "{said}");
    assert!(said.contains(" of step was taken: lines ") && said.contains("1 path matches; taken"), "{said}");
    let (status, said) = record(&["--watch", "step: !6", "--on-match", "count"], "65");
    assert!(status == Some(3) && said.contains("1 path matches; taken 63 times") && !said.contains("was taken:"), "{said}");
    let (status, said) = record(&["--watch", "step: 8000"], "2");
    assert!(status == Some(3) && said.contains("line 8000 is in no block") && said.contains("0 paths match"), "{said}");
    let (status, said) = record(&["--watch", "stop: 6"], "2");
    assert!(status == Some(3) && said.contains("no instrumented function of what ran is called `stop`"), "{said}");
    for (expression, message) in [("step: 6 call", "cannot be watched"), ("step: 6 x", "is no place")] {
        let (status, said) = record(&["--watch", expression], "2");
        assert!(status == Some(2) && said.contains(message), "{said}");
    }
}
