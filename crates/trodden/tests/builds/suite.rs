//! `trodden suite` and `trodden find`: tests from lists and from ctest, redundant tests, test orders for a change, and path expressions.

use crate::place::{Place, must, trodden};
use serde_json::Value;
use std::fs::File;
use std::process::Output;

/// A program in which two options each have an effect, and a third argument makes it fail.
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

/// The first test is redundant: the last one executes the same paths and more.
const TEST_LIST: &str = "\
# tests
plain\t./prog 0 0
scaled\t./prog 1 0
both\t./prog 1 1
rounded\t./prog 0 1
plain and scaled\t./prog 0 0; ./prog 1 0; ./prog 0 0 fail
";

fn build_program() -> Place {
    let place = Place::with(&[("a.c", PROGRAM), ("tests.txt", TEST_LIST)]);
    place.cc("-O1 -g a.c -o prog");
    place
}

fn run_trodden(place: &Place, arguments: &str) -> Output {
    place.command(trodden()).args(arguments.split_whitespace()).output().unwrap()
}

fn read_json(place: &Place, arguments: &str) -> Value {
    serde_json::from_slice(&place.trodden(arguments).stdout).unwrap()
}

fn read_names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|t| t["test"].as_str().unwrap()).collect()
}

#[test]
fn redundant_tests_are_found_and_orders_follow_changes() {
    let place = build_program();
    let output = run_trodden(&place, "suite run tests --commands tests.txt --jobs 2");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("5 tests, 1 failed") && said.contains("failed: plain and scaled"), "{said}");
    let list = read_json(&place, "suite list tests --json");
    assert_eq!(list["tests"].as_array().unwrap().len(), 5);
    let failed: Vec<&Value> = list["tests"].as_array().unwrap().iter().filter(|t| t["status"] == "failed").collect();
    assert_eq!(failed.len(), 1);

    let found = read_json(&place, "suite list tests --redundant --json");
    assert_eq!(
        (&found["cost"], &found["cost_lower_bound"], &found["proven"]),
        (&Value::from(3), &Value::from(3), &Value::from(true)),
        "{found:#}"
    );
    let mut redundant = read_names(&found["redundant"]);
    redundant.sort_unstable();
    assert_eq!(redundant, ["plain", "scaled"]);
    let text = String::from_utf8(place.trodden("suite list tests --redundant").stdout).unwrap();
    assert!(text.contains("3 tests take them all: no set is cheaper (proven)"), "{text}");

    // Without the paths of `convert` and `touch`, all tests execute the same paths, so one of them is sufficient.
    let found = read_json(&place, "suite list tests --redundant=time --file a.c --except ^convert$ --except ^touch$ --json");
    let kept = read_names(&found["kept"]);
    assert_eq!((&found["cost_unit"], &found["paths"], kept.len()), (&"microseconds".into(), &1.into(), 1), "{found:#}");
    assert_eq!(read_json(&place, "suite list tests --function convert --json")["paths"], Value::from(4));
    let order = read_json(&place, "suite order tests --function convert --json");
    assert_eq!((&order["tests"][0]["adds"], &order["paths"]), (&Value::from(2), &Value::from(4)));
    for (options, wanted) in [
        ("--function nowhere", "no function that the tests execute matches `nowhere`"),
        ("--file other.c", "declared in"),
        ("--function convert --except convert", "together"),
        ("--function *", "regular expression"),
    ] {
        let output = run_trodden(&place, &format!("suite list tests --redundant {options}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(wanted), "{options}: {said}");
    }

    // The test `rounded` executes line 10.
    place.write("change.diff", "--- a/a.c\n+++ b/a.c\n@@ -10 +10 @@\n-        n = n / 10 * 10;\n+        n = n / 10 * 11;\n");
    let order: Value = serde_json::from_str(&run_order_by_diff(&place, "change.diff", "--only-changed --json")).unwrap();
    let mut first = read_names(&order["tests"]);
    first.sort_unstable();
    assert_eq!((first, &order["changed_paths"]), (vec!["both", "rounded"], &Value::from(2)));
    // If no test executes the changed line, the diff determines no order.
    place.write("other.diff", "--- a/other.c\n+++ b/other.c\n@@ -1 +1 @@\n-int a;\n+int b;\n");
    let by_diff = |options| run_order_by_diff(&place, "other.diff", options);
    assert_eq!(serde_json::from_str::<Value>(&by_diff("--json")).unwrap()["average_percentage_covered"], Value::Null);
    let text = by_diff("");
    assert!(text.contains("no test executes changed lines") && !text.contains("100.0 %"), "{text}");
    let all = String::from_utf8(place.trodden("suite order tests --names").stdout).unwrap();
    assert!(all.starts_with("plain and scaled\n") && all.lines().count() == 5, "{all}");
}

#[test]
fn options_that_do_not_apply_are_rejected() {
    let place = Place::new();
    for (arguments, option) in
        [("order tests --by lines --except x", "--except"), ("order tests --object prog", "--object"), ("list --redundant", "<SUITE>")]
    {
        let output = run_trodden(&place, &format!("suite {arguments}"));
        assert!(output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains(option), "{output:?}");
    }
}

fn run_order_by_diff(place: &Place, diff: &str, options: &str) -> String {
    let mut command = place.command(trodden());
    command.args(["suite", "order", "tests", "--changed-since", "-"]).args(options.split_whitespace());
    String::from_utf8(must(command.stdin(File::open(place.path(diff)).unwrap())).stdout).unwrap()
}

#[test]
fn impossible_suite_names_are_rejected_before_anything_runs() {
    let place = Place::new();
    for name in ["12", "last", "''"] {
        let output = place.command(trodden()).args(["record", "--suite", name.trim_matches('\''), "--", "touch", "ran"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("invalid suite name"), "{output:?}");
    }
    assert!(!place.path("ran").exists());
}

#[test]
fn diff_paths_are_resolved_as_git_means_them() {
    let place = Place::with(&[("src/m.c", PROGRAM), ("m.c", PROGRAM), ("ä.c", PROGRAM), ("tests.txt", "both\t./prog 1 1; ./umlaut 1 1\n")]);
    let git = |arguments: &str| must(place.command("git").args(arguments.split(' '))).stdout;
    for arguments in [
        "init --quiet",
        "config diff.mnemonicPrefix true",
        "config user.name x",
        "config user.email x@x",
        "add .",
        "commit --quiet --message one",
    ] {
        git(arguments);
    }
    place.cc("-O1 -g src/m.c -o prog");
    place.cc("-O1 -g ä.c -o umlaut");
    place.trodden("suite run tests --commands tests.txt");
    let changed = |file: &str| {
        place.write(file, &PROGRAM.replace("/ 10 * 10", "/ 10 * 11"));
        place.write("change.diff", &String::from_utf8(git("diff")).unwrap());
        let of_commit = read_json(&place, "suite order tests --changed-since HEAD --json")["changed_paths"].clone();
        let of_diff: Value = serde_json::from_str(&run_order_by_diff(&place, "change.diff", "--json")).unwrap();
        let both = (of_commit, of_diff["changed_paths"].clone());
        place.write(file, PROGRAM);
        both
    };
    assert_eq!(changed("src/m.c"), (1.into(), 1.into()));
    assert_eq!(changed("ä.c"), (1.into(), 1.into()));
    // `m.c` is not part of the program. The diff's file name alone would also fit `src/m.c`.
    assert_eq!(changed("m.c"), (0.into(), 1.into()));
}

#[test]
fn ctest_tests_are_recorded_as_runs() {
    let place = build_program();
    place.write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.20)\nproject(x NONE)\nenable_testing()\n\
         add_test(NAME one COMMAND ${CMAKE_SOURCE_DIR}/prog 0 0)\nadd_test(NAME fails COMMAND ${CMAKE_SOURCE_DIR}/prog 1 0 fail)\n\
         add_test(NAME \"should fail\" COMMAND ${CMAKE_SOURCE_DIR}/prog 1 1 fail)\nset_tests_properties(\"should fail\" PROPERTIES \
         WILL_FAIL TRUE)\n",
    );
    must(place.command("cmake").args(["-S", ".", "-B", "out"]));
    assert_eq!(run_trodden(&place, "suite run checks --ctest out").status.code(), Some(1));
    let list = read_json(&place, "suite list checks --json");
    let seen: Vec<_> =
        list["tests"].as_array().unwrap().iter().map(|t| (t["test"].as_str().unwrap(), t["status"].as_str().unwrap())).collect();
    assert_eq!(seen, [("one", "passed"), ("fails", "failed"), ("should fail", "passed")]);
    assert_eq!(run_trodden(&place, "suite run one --ctest out -- -R ^one$").status.code(), Some(0));
    assert_eq!(read_names(&read_json(&place, "suite list one --json")["tests"]), ["one"]);
}

#[test]
fn path_expressions_find_paths() {
    let place = build_program();
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
    let (_, text, _) = find("convert: 6 .. 10", &["--fail"]);
    assert!(text.contains("1 path, 1 of 4 executions") && text.contains("n *= 10;"), "{text}");
    let (status, _, said) = find("convert: 6 .. 10 !99", &[]);
    assert!(status == Some(2) && said.contains("none of the functions' basic blocks contains code of line 99"), "{said}");
    assert_eq!(find("convert: 6", &["--fail"]).0, Some(1));
    let (_, text, _) = find("convert: 10 .. 6", &[]);
    assert!(text.contains("no executed path") && !text.contains("0 of 0"), "{text}");
    // A sampled profile cannot show that a path was not executed.
    place.trodden("instrument prog -o sampled --sample");
    place.trodden("record --no-store -o sampled.trodden -- ./sampled 0 0");
    let output = place.command(trodden()).args(["find", "convert: 10 .. 6", "sampled.trodden", "--json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &found["answer"]), (Some(2), &Value::from("unknown")), "{found:#}");
    assert_eq!(found["functions_not_counted_whole"], serde_json::json!(["convert"]));
    let (status, _, said) = find("convert: 6 nonsense", &[]);
    assert!(
        status == Some(2) && said.contains("`nonsense` is not a place") && said.ends_with("  convert: 6 nonsense\n               ^\n"),
        "{said}"
    );
    assert!(find("nowhere: 6", &[]).2.contains("nowhere"));
}

/// A program that takes the watched path in iteration 20, and prints a character at the end of each iteration. Because `longjmp` re-enters
/// `land`, this function cannot have a separate version for known paths.
const LOOPS_PROGRAM: &str = "\
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>
static jmp_buf place;
__attribute__((noinline)) int step(int n) {
    __asm__ volatile(\"\");
    if (n == 20) {
        __asm__ volatile(\"\");
        n = 2;
    }
    return n;
}
__attribute__((noinline)) int land(int n) {
    if (setjmp(place) == 0 && n == 7)
        longjmp(place, 1);
    if (n == 9)
        __asm__ volatile(\"nop\");
    return n;
}
int main(int argc, char **argv) {
    for (int i = 0; i < atoi(argv[1]); i++) {
        land(step(i % 30));
        if (write(1, \".\", 1) != 1)
            return 4;
    }
    return 3;
}
";

#[test]
fn watching_programs_act_where_the_path_ends() {
    let place = Place::with(&[("a.c", LOOPS_PROGRAM)]);
    place.cc("-O1 -g a.c -o prog");
    let made = |expression: &str, action: &str| {
        let arguments = ["instrument", "prog", "-o", "prog.watch", "--watch", expression, "--action", action];
        let output = place.command(trodden()).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let run = |iterations: &str| {
        let output = place.command(place.path("prog.watch")).arg(iterations).output().unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        (output.status.code(), signal, output.stdout.len(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (expression, iterations, function) in [("step: 8", 20, "step"), ("land: 17", 9, "land")] {
        let (status, said) = made(expression, "abort");
        assert!(status == Some(0) && said.contains("path of 1 function is watched"), "{said}");
        let (_, signal, ended, said) = run("100");
        assert_eq!((signal, ended), (Some(6), iterations), "{said}");
        assert!(said.contains(&format!(" of {function} matches {expression}\n")) && said.lines().count() == 1, "{said}");
        assert_eq!(run("9").0, Some(3));
    }
    // The watching program must count this path exactly as often as the program that counts all paths.
    assert_eq!(made("step: !8", "count").0, Some(0));
    assert_eq!(run("65"), (Some(3), None, 65, String::new()));
    for program in ["prog", "prog.watch"] {
        let status = place.command(trodden()).args(["record", "--", &format!("./{program}"), "65"]).output().unwrap().status;
        assert_eq!(status.code(), Some(3));
        let found = must(place.command(trodden()).args(["find", "step: !8", "--json"])).stdout;
        let found: Value = serde_json::from_slice(&found).unwrap();
        assert_eq!((&found["paths_found"], &found["executions"]), (&1.into(), &63.into()), "{program}: {found:#}");
    }
    let report = String::from_utf8(place.trodden("report").stdout).unwrap();
    assert!(report.contains("(--watch)"), "{report}");
    let none = place.command(trodden()).arg("untested").output().unwrap();
    assert!(
        String::from_utf8_lossy(&none.stderr).contains("no counts of programs built with --residual"),
        "what is watched for is not what is untested"
    );
    for (expression, message) in [
        ("step: 8 call", "cannot watch for `call`"),
        ("step: 8 x", "is not a place"),
        ("stop: 8", "no instrumented function `stop`"),
        ("step: 8000", "contains code of line 8000"),
        ("step: 8 !8", "no path of prog matches"),
    ] {
        let (status, said) = made(expression, "report");
        assert!(status == Some(2) && said.contains(message), "{said}");
    }
}
