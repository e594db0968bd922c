//! Untested paths from end to end. Programs that count only untested paths must find the same paths as programs that count all paths, and
//! every output format must be valid.
//!
//! `sarif-2.1.0.schema.json` is the schema published by OASIS (as in the package serde-sarif 0.8).

use crate::place::{Place, laboratory, must, trodden};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::{Command, Output};
use trodden_wire::file_header::{FileHeader, FileKind};
use trodden_wire::{KNOWN_VERSION, KnownHeader};

/// A program with two branches. Tests take both sides of each branch, but only two of the four combinations. A third branch, which no test
/// takes, may end the program by `exit`.
const SUBJECT_PROGRAM: &str = r#"#include <stdio.h>
#include <stdlib.h>
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
    for (int i = 1; i + 1 < argc; i += 2) sum += classify(atoi(argv[i]), atoi(argv[i + 1]));
    printf("%d\n", sum);
    return 0;
}
"#;
const CALLBACK_SOURCE: &str = r#"#include <stdio.h>
int called;
__attribute__((noinline)) int helper(int n) { if (n % 3 == 2) { __asm__ volatile("nop"); return 1; } return 0; }
void trodden_untested(const char *function, unsigned long path, unsigned long count) {
    called += helper((int)count);
    printf("untested %s %lu %lu\n", function, path, count);
}
"#;

/// Creates a program, runs of its tests in a suite, and a field build, which counts only paths that these tests did not take.
fn create_place() -> Place {
    let place = Place::with(&[("prog.c", SUBJECT_PROGRAM), ("callback.c", CALLBACK_SOURCE), ("run-tests", "./prog 1 1\n./prog 20 20\n")]);
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

fn run_program(place: &Place, program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    place.command(place.path(program)).args(arguments).envs(variables.iter().copied()).output().unwrap()
}

/// Checks commands that read the field program's raw file: twice in one command, and after importing it.
fn check_raw_file(place: &Place, found: &BTreeSet<(String, u64, u64)>) {
    // A file that is named twice must be counted once.
    let raw = fs::read_dir(place.path(".trodden/field")).unwrap().next().unwrap().unwrap().path();
    let raw = raw.display();
    assert_eq!(list_paths(&read_json(place, &format!("{raw} {raw}"))), *found);
    let said = |arguments: &str| String::from_utf8(place.trodden(arguments).stderr).unwrap();
    must(place.command(trodden()).args(["import", "-o", "field.trodden", "--no-store"]).arg(raw.to_string()));
    for arguments in ["export lcov field.trodden", "find .. field.trodden", "annotate classify field.trodden"] {
        assert!(said(arguments).contains("only paths that no test had taken"), "{arguments}");
    }
}

/// Checks recorded runs of the field program, and that known paths are not reported as untested.
fn check_recorded_runs(place: &Place) {
    // The report names the command line of the first run.
    must(place.command(trodden()).args(["record", "--suite", "field", "--", "./prog.field", "1", "20"]));
    let recorded = read_json(place, "field --function classify");
    assert_eq!(recorded["paths"][0]["first_run"]["command"], "./prog.field 1 20");
    // At first, there are untested paths, so `--fail` must have an effect.
    assert_eq!(place.command(trodden()).args(["untested", "field", "--fail"]).status().unwrap().code(), Some(1));
    // The exit status must be the same if nobody reads the output.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut unread = place.command(trodden());
    assert_eq!(unread.args(["untested", "field", "--fail"]).stdout(writer).status().unwrap().code(), Some(1));
    place.trodden("untested field --fail --known full");
    assert_eq!(list_paths(&read_json(place, "field --known full")).len(), 0);
}

#[test]
fn field_run_reports_paths_that_tests_did_not_take() {
    let place = create_place();
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let field = ["1", "20", "1", "20", "20", "200", "1", "1"];
    assert_eq!(run_program(&place, "prog.field", &field, &[]).stdout, b"23\n");
    let report = read_json(&place, "");
    // The expected paths come from a build that counts all paths; the tested ones are removed.
    must(place.command(trodden()).args(["record", "--suite", "full", "--", "./prog"]).args(field));
    let full = read_json(&place, "full --known tests");
    let found = list_paths(&report);
    assert_eq!(found, list_paths(&full));
    let classify: BTreeSet<u64> = found.iter().filter(|p| p.0 == "classify").map(|p| p.2).collect();
    assert_eq!(classify, BTreeSet::from([1, 2]), "{found:?}");
    let of = |count: u64| report["paths"].as_array().unwrap().iter().find(|p| p["function"] == "classify" && p["count"] == count).unwrap();
    assert_eq!((&of(2)["all_edges_tested"], &of(1)["all_edges_tested"]), (&true.into(), &false.into()));
    let seen = of(2)["first_seen_ns"].as_u64().or_else(|| of(2)["first_seen_ns"].as_str().map(|t| t.parse().unwrap())).unwrap();
    assert!(seen + 100_000_000 > before && seen < before + 60_000_000_000, "{seen} is not about {before}");
    assert_eq!(report["summary"]["share_of_executions"], Value::Null);
    // The numbers in the summary must equal the numbers of listed paths.
    for arguments in ["", "--function classify"] {
        let report = read_json(&place, arguments);
        let sum = |name: &str| report["summary"][name].as_u64().unwrap();
        assert_eq!(sum("untested_paths") + sum("unfinished_paths"), report["found"].as_u64().unwrap(), "{report:#}");
        assert_eq!(sum("untested_paths"), list_paths(&report).len() as u64);
    }
    check_raw_file(&place, &found);
    let shown = String::from_utf8(place.trodden("report field.trodden").stdout).unwrap();
    assert!(shown.contains(" of the counted code") && !shown.contains("Unfinished paths"), "{shown}");
    let share = full["summary"]["share_of_executions"].as_f64().unwrap();
    let untested = full["summary"]["untested_executions"].as_f64().unwrap();
    assert!(share > 0.0 && share < 1.0 && untested > 3.0, "{share} {untested}");
    let text = String::from_utf8(place.trodden("untested --function classify").stdout).unwrap();
    assert!(text.contains("every edge is known") && text.contains("if (a > 10)") && text.contains("taken 2 times in 1 run"), "{text}");
    assert!(text.starts_with("Untested paths of prog.field, 1 run\n"), "{text}");
    // Several processes may count in the same file unless its name contains a process ID, so the report cannot name one.
    assert!(text.contains(" by a process of ") && !text.contains("(pid "), "{text}");
    let own = place.path("own-%p.raw");
    run_program(&place, "prog.field", &["1", "20"], &[("TRODDEN_OUTPUT", own.to_str().unwrap())]);
    let own = fs::read_dir(place.path("")).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).find(|f| f.starts_with("own-"));
    let text = String::from_utf8(place.trodden(&format!("untested {}", own.unwrap())).stdout).unwrap();
    assert!(text.contains("(pid "), "{text}");
    let missing = place.command(trodden()).args(["untested", "nowhere"]).output().unwrap();
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no file, folder, run or suite is called nowhere. The run store"));
    check_recorded_runs(&place);
}

#[test]
fn tests_of_a_different_program_version_are_reported() {
    let place = create_place();
    let said = |arguments: &str| String::from_utf8(place.trodden(&format!("instrument ./prog {arguments} -o prog.field")).stderr).unwrap();
    assert!(!said("--residual tests").contains("warning"));
    place.write("prog.c", &SUBJECT_PROGRAM.replace("if (b > 1000) exit(3);", "if (b > 1000) exit(3); if (a > 1000) NOP;"));
    place.cc("-O1 -g prog.c -o prog");
    let changed = said("--residual tests");
    assert!(
        changed.contains("warning: 1 function has changed since the tests were recorded") && changed.contains("(classify)"),
        "{changed}"
    );
    // The function's graph is unchanged, but its code is not.
    place.write("prog.c", &SUBJECT_PROGRAM.replace("r += 7", "r += 8"));
    place.cc("-O1 -g prog.c -o prog");
    assert!(said("--residual tests").contains("(classify)"));
    // The function only moved.
    place.write("prog.c", &format!("\n\n{SUBJECT_PROGRAM}"));
    place.cc("-O1 -g prog.c -o prog");
    assert!(!said("--residual tests").contains("warning"));
    place.write("other.c", "int main(void) { return 0; }\n");
    place.cc("-O1 -g other.c -o prog");
    let other = said("--residual tests");
    assert!(other.contains("the tests executed no function of this program"), "{other}");
    place.trodden("record --suite others -- ./prog");
    let report = String::from_utf8(place.trodden("untested others --known tests").stderr).unwrap();
    assert!(report.contains("the tests executed no function of this program"), "{report}");
}

#[test]
fn folder_name_may_contain_a_percent_sign() {
    let place = Place::with(&[("100%h/prog.c", SUBJECT_PROGRAM)]);
    let at = place.path("100%h");
    let trodden_there = |arguments: &str| must(place.command(trodden()).current_dir(&at).args(arguments.split(' ')));
    trodden_there("cc -O1 prog.c -o prog");
    trodden_there("record -- ./prog 1 1");
    trodden_there("instrument ./prog --residual last -o prog.field");
    must(place.command("./prog.field").current_dir(&at).args(["20", "1"]));
    assert_eq!(fs::read_dir(at.join(".trodden/field")).unwrap().count(), 1);
}

/// Compares a file with the schema of SARIF, by the system's Python, for which the package `python3-jsonschema` is installed.
fn validate_sarif(file: &Path) -> Result<(), String> {
    const PROGRAM: &str = "import json, jsonschema, sys; jsonschema.validate(*(json.load(open(name)) for name in sys.argv[1:]))";
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sarif-2.1.0.schema.json");
    let output = Command::new("/usr/bin/python3").args(["-c", PROGRAM]).arg(file).arg(schema).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn sarif_and_lcov_outputs_are_valid() {
    let place = create_place();
    run_program(&place, "prog.field", &["1", "20", "20", "200"], &[]);
    place.trodden("untested --sarif untested.sarif");
    let sarif: Value = serde_json::from_slice(&fs::read(place.path("untested.sarif")).unwrap()).unwrap();
    validate_sarif(&place.path("untested.sarif")).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    let flow = |r: &Value| r["codeFlows"][0]["threadFlows"][0]["locations"].as_array().map_or(0, Vec::len);
    assert!(results.len() >= 2 && results.iter().all(|r| flow(r) >= 2), "{results:?}");
    let mut wrong = sarif.clone();
    wrong["runs"][0]["results"][0]["level"] = "loud".into();
    fs::write(place.path("wrong.sarif"), wrong.to_string()).unwrap();
    assert!(validate_sarif(&place.path("wrong.sarif")).unwrap_err().contains("loud"));
    let lcov = |arguments: &str| String::from_utf8(place.trodden(&format!("untested --lcov - {arguments}")).stdout).unwrap();
    // The output contains only the selected paths.
    let some = lcov("--function classify");
    assert!(some.contains("DA:9,2\n") && !some.contains("main"), "{some}");
    let lcov = lcov("");
    assert!(lcov.contains("DA:6,2") && lcov.contains("DA:9,2") && !lcov.contains(",0\n"), "{lcov}");
}

/// Parses a line of a target list as a directed fuzzer does: the file's base name, and the line number.
fn parse_fuzzer_target(line: &str) -> (String, u64) {
    let line = line.rsplit(['/', '\\']).next().unwrap();
    let (file, number) = line.rsplit_once(':').unwrap();
    (file.to_owned(), number.parse().unwrap())
}

#[test]
fn untested_paths_are_targets_for_test_generators() {
    let place = create_place();
    run_program(&place, "prog.field", &["1", "20", "20", "200"], &[]);
    let report = read_json(&place, "--function classify");
    let rows = report["paths"].as_array().unwrap();
    assert!(!rows.is_empty());
    // A directed fuzzer looks up the lines in the debug information of the program that it compiles.
    let dump = must(place.command("/usr/lib/llvm-22/bin/llvm-dwarfdump").args(["--debug-line", "prog"]));
    let text = String::from_utf8(dump.stdout).unwrap();
    let known: BTreeSet<u64> =
        text.lines().filter(|line| line.starts_with("0x0")).filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
    let lines = |row: &Value| row["lines"].as_array().unwrap().iter().map(|l| parse_fuzzer_target(l.as_str().unwrap())).collect::<Vec<_>>();
    for row in rows {
        assert!(lines(row).iter().all(|(file, line)| file == "prog.c" && known.contains(line)), "{row} {known:?}");
    }
    // Line 9 has `if (b > 100) { ... }`, which is executed with 200 and with 20.
    let side = |row: &Value| -> (String, String) {
        let at_line_9 = |branch: &&Value| branch["at"].as_str().is_some_and(|at| at.contains("prog.c:9:"));
        let branch = row["branches"].as_array().unwrap().iter().find(at_line_9).unwrap_or_else(|| panic!("{row}"));
        (branch["to"].as_str().unwrap().to_owned(), branch["not"][0].as_str().unwrap().to_owned())
    };
    let complete: Vec<&Value> = rows.iter().filter(|row| row["complete"] == true).collect();
    let is_inside = |to: &str| to.contains("prog.c:9:");
    let mut sides: Vec<(bool, bool)> = complete.iter().map(|row| side(row)).map(|(to, not)| (is_inside(&to), is_inside(&not))).collect();
    sides.sort();
    assert_eq!(sides, [(false, true), (true, false)], "{report}");
}

#[test]
fn hot_paths_of_tests_are_compared_with_builds_that_count_all_paths() {
    let place = create_place();
    must(place.command(trodden()).args(["record", "--suite", "full", "--", "./prog", "1", "20", "1", "20", "1", "1"]));
    let hot = must(place.command(laboratory()).args("hot-paths full --known tests --top 4 --json".split(' ')));
    let hot: Value = serde_json::from_slice(&hot.stdout).unwrap();
    let paths = hot["paths"].as_array().unwrap();
    // The tests have exactly three complete paths.
    assert_eq!(paths.len(), 3);
    let field = |name: &str| -> Vec<&Value> { paths.iter().filter(|p| p["function"] == name).map(|p| &p["field_count"]).collect() };
    assert!(field("classify").contains(&&Value::from(1)), "{hot}");
    run_program(&place, "prog.field", &["1", "20"], &[]);
    let refused = place.command(laboratory()).args(["hot-paths", "--known", "tests"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has no counts of tested paths"));
}

#[test]
fn programs_act_on_untested_paths() {
    let place = create_place();
    let act = |arguments: &[&str], action: &str| {
        run_program(&place, "prog.field", arguments, &[("TRODDEN_ON_UNTESTED", action), ("TRODDEN_OUTPUT", "")])
    };
    let errors = |output: &Output| String::from_utf8(output.stderr.clone()).unwrap();
    let reported = act(&["1", "20", "1", "20", "1", "1"], "report");
    assert!(reported.status.success() && reported.stdout == b"0\n");
    assert_eq!(errors(&reported).lines().filter(|l| l.starts_with("trodden: untested path ") && l.ends_with(" of classify")).count(), 1);
    assert_eq!(errors(&act(&["1", "1"], "report")), "");
    let aborted = act(&["1", "20"], "abort");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&aborted.status), Some(6));
    assert!(act(&["1", "1"], "abort").status.success());
    assert!(errors(&act(&["1", "1"], "callback")).contains("does not define the function trodden_untested"));
    assert!(errors(&act(&["1", "1"], "shout")).contains("must be count, report, abort or callback"));
    // The callback itself has untested paths, too.
    place.cc("-O1 -g prog.c callback.c -o with");
    place.trodden("record --suite called -- ./with 1 1 20 20");
    place.trodden("instrument ./with --residual called --action callback -o with.field");
    let called = run_program(&place, "with.field", &["1", "20", "1", "20"], &[("TRODDEN_OUTPUT", "")]);
    let lines = String::from_utf8(called.stdout).unwrap();
    let of_classify: Vec<&str> = lines.lines().filter(|l| l.starts_with("untested classify ")).collect();
    assert!(of_classify.len() == 2 && of_classify[0].ends_with(" 1") && of_classify[1].ends_with(" 2"), "{lines}");
    assert!(!lines.contains("untested helper"), "{lines}");
    must(place.command(place.path("with.field")).args(["1", "20"]));
    assert!(list_paths(&read_json(&place, "")).iter().all(|p| p.0 != "trodden_untested"));
    let silent = run_program(&place, "with.field", &["1", "20"], &[("TRODDEN_OUTPUT", ""), ("TRODDEN_ON_UNTESTED", "count")]);
    assert!(!String::from_utf8_lossy(&silent.stdout).contains("untested"));
}

/// A program that calls the callback in many threads at the same time. `longjmp` and exceptions leave callbacks at increasing depth, so
/// that frames which have been left lie between live ones on the stack.
const CALLBACK_EXITS_PROGRAM: &str = r#"
#include <atomic>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sched.h>
enum { THREADS = 80 };
static std::jmp_buf back;
static std::atomic<int> inside, finished;
static int mode, called;
/* It may be replaced, so that the compiler does not know what it does. */
extern "C" __attribute__((weak, noinline)) int choose(int n) {
    if (n & 1) { __asm__ volatile("nop"); return n * 3; }
    __asm__ volatile("nop; nop");
    return n / 2;
}
extern "C" void trodden_untested(const char *function, unsigned long, unsigned long) {
    if (std::strcmp(function, "choose")) return;
    called++;
    choose(3);
    if (mode == 1) {
        inside++;
        while (inside + finished < THREADS) sched_yield();
    }
    if (mode == 2) std::longjmp(back, 1);
    if (mode == 3) throw 1;
}
extern "C" __attribute__((noinline)) int deeper(int depth, int n) {
    volatile int room[9] = { n };
    return depth ? deeper(depth - 1, n) + room[0] : choose(n) + room[depth];
}
static void *thread(void *) {
    choose(1);
    finished++;
    return nullptr;
}
int main(int argc, char **argv) {
    mode = std::atoi(argv[1]);
    std::printf("%d", deeper(3, 2));
    if (mode == 1) {
        pthread_t threads[THREADS];
        for (pthread_t &t : threads) pthread_create(&t, nullptr, thread, nullptr);
        for (pthread_t &t : threads) pthread_join(t, nullptr);
        std::printf(" inside %d", inside.load());
    }
    for (volatile int i = 0; mode == 2 && i < 12; i++) if (!setjmp(back)) deeper(i * 5 % 12, 1);
    for (int i = 0; mode == 3 && i < 12; i++) try { deeper(i * 5 % 12, 1); } catch (int) { }
    std::printf(" called %d\n", called);
    return 0;
}
"#;

#[test]
fn callbacks_run_in_all_threads_and_after_being_left_by_longjmp_or_exception() {
    let place = Place::with(&[("prog.cc", CALLBACK_EXITS_PROGRAM)]);
    place.cxx("-O1 -pthread prog.cc -o prog");
    place.trodden("record --suite known -- ./prog 0");
    place.trodden("instrument ./prog --residual known --action callback -o prog.field");
    for (mode, expected) in [("0", "called 0"), ("1", "inside 80"), ("2", "called 12"), ("3", "called 12")] {
        let output = run_program(&place, "prog.field", &[mode], &[("TRODDEN_OUTPUT", "")]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains(expected), "{mode}: {said} {:?}", output.status);
    }
}

/// A program with one function that tests never enter, and one of which the plugin cannot make a second version.
const UNCOMMON_FUNCTIONS_PROGRAM: &str = r#"#include <setjmp.h>
#include <stdlib.h>
#define NOP __asm__ volatile("nop")
static jmp_buf place;
__attribute__((noinline)) void never(int n) { for (int i = 0; i < n; i++) NOP; }
__attribute__((noinline)) int land(int n) { if (setjmp(place) == 0 && n > 5) longjmp(place, 1); if (n & 1) NOP; return n; }
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) if (land(atoi(argv[i])) == 9) never(argc);
    return 0;
}
"#;

#[test]
fn functions_without_known_paths_or_without_a_second_version_act_as_well() {
    let place = Place::with(&[("prog.c", UNCOMMON_FUNCTIONS_PROGRAM)]);
    place.cc("-O1 -g prog.c -o prog");
    place.trodden("record --suite tests -- ./prog 1 7");
    place.trodden("instrument ./prog --residual tests -o prog.field");
    let act = |arguments: &[&str]| {
        let output = run_program(&place, "prog.field", arguments, &[("TRODDEN_ON_UNTESTED", "abort"), ("TRODDEN_OUTPUT", "")]);
        (std::os::unix::process::ExitStatusExt::signal(&output.status), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(act(&["7", "1"]), (None, String::new()));
    let (signal, said) = act(&["1", "2"]);
    assert!(signal == Some(6) && said.ends_with(" of land\n"), "{said}");
    let (signal, said) = act(&["1", "9"]);
    assert!(signal == Some(6) && said.ends_with(" of never\n"), "{said}");
    must(place.command(place.path("prog.field")).args(["1", "9", "9", "2"]));
    let found = list_paths(&read_json(&place, ""));
    must(place.command(trodden()).args(["record", "--suite", "full", "--", "./prog", "1", "9", "9", "2"]));
    assert_eq!(found, list_paths(&read_json(&place, "full --known tests")));
    assert!(found.iter().any(|p| p.0 == "never" && p.2 > 1), "{found:?}");
}

#[test]
fn callback_runs_once_for_each_iteration_counted_by_trip_count() {
    let subject = r#"static unsigned steps[8];
__attribute__((noinline)) unsigned never(int n) { unsigned at = 1; for (int i = 0; i < n; i++) at = steps[at & 7]; return at; }
int main(int argc, char **argv) { return argc > 2 ? never(argc - 3) : 0; }
"#;
    let place = Place::with(&[("prog.c", subject), ("callback.c", CALLBACK_SOURCE)]);
    place.cc("-O1 -g prog.c callback.c -o prog");
    place.trodden("record --suite tests -- ./prog 1");
    place.trodden("instrument ./prog --residual tests -o prog.field");
    // The first iteration, all further iterations, and the exit of the loop are three different paths. A run with one iteration lacks the
    // second path, and a run without iterations lacks the first one, too.
    for iterations in [0, 1, 2, 6] {
        let arguments = vec!["1"; 2 + iterations];
        let called = run_program(&place, "prog.field", &arguments, &[("TRODDEN_ON_UNTESTED", "callback"), ("TRODDEN_OUTPUT", "")]);
        let lines = String::from_utf8(called.stdout).unwrap();
        let of_never = lines.lines().filter_map(|l| l.strip_prefix("untested never "));
        let mut seen: Vec<Vec<u64>> = of_never.map(|l| l.split(' ').map(|n| n.parse().unwrap()).collect()).collect();
        seen.sort_unstable();
        let of_never =
            |arguments: &str| list_paths(&read_json(&place, arguments)).into_iter().filter(|p| p.0 == "never").collect::<Vec<_>>();
        let file = place.path(&format!("{iterations}.raw"));
        run_program(&place, "prog.field", &arguments, &[("TRODDEN_OUTPUT", file.to_str().unwrap())]);
        let counted = of_never(file.to_str().unwrap());
        let words = ["record", "--no-store", "-o", "full", "--", "./prog"];
        place.command(trodden()).args(words).args(&arguments).output().unwrap();
        assert_eq!(counted, of_never("full --known tests"), "{iterations}");
        let each: Vec<Vec<u64>> = counted.into_iter().flat_map(|(_, path, count)| (1..=count).map(move |n| vec![path, n])).collect();
        assert!(each.len() == 1 + iterations && seen == each, "{iterations}: {seen:?} {each:?}");
    }
}

#[test]
fn paths_become_known_without_a_rebuild() {
    let place = create_place();
    must(place.command(trodden()).args(["record", "--suite", "more", "--", "./prog", "1", "20"]));
    place.trodden("export known more -o more.known --for prog.field");
    let counts = |known: &str| {
        let file = place.path(&format!("counts{}.raw", known.replace(['/', ' '], "-")));
        let variables = [("TRODDEN_OUTPUT", file.to_str().unwrap()), ("TRODDEN_KNOWN", known)];
        let output = run_program(&place, "prog.field", &["1", "20", "20", "200", "20", "200"], &variables);
        let report = read_json(&place, &format!("{} --function classify", file.display()));
        let counts: Vec<u64> = report["paths"].as_array().unwrap().iter().map(|p| p["count"].as_u64().unwrap()).collect();
        (counts, String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(counts(""), (vec![2, 1], String::new()));
    let more = place.path("more.known");
    assert_eq!(counts(more.to_str().unwrap()), (vec![2], String::new()));
    let (all, error) = counts(place.path("prog.c").to_str().unwrap());
    assert!(all == [2, 1] && error.contains("contains no known paths of this program"), "{error}");
    let (all, error) = counts(place.path("none.known").to_str().unwrap());
    assert!(all == [2, 1] && error.contains("none.known: it cannot be read: name a file"), "{error}");
    // A file in which any byte is changed must be rejected as a whole.
    let whole = std::fs::read(&more).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let later = FileHeader::new(FileKind::FURTHER_KNOWN_PATHS, KNOWN_VERSION + 1).to_bytes();
    for (name, bytes, wanted) in [
        ("a bit", flipped(whole.len() - 1), "it is corrupt"),
        ("the sum", flipped(offset_of!(KnownHeader, checksum)), "it is corrupt"),
        ("the end", whole[..whole.len() - 1].to_vec(), "it is corrupt"),
        ("an incomplete header", whole[..30].to_vec(), "it is corrupt"),
        ("the file header", flipped(9), "it is corrupt"),
        ("the program", flipped(offset_of!(KnownHeader, image)), "no known paths of this program"),
        ("an earlier one", [b"TRODMOR2", &whole[8..]].concat(), "a different version of trodden wrote it"),
        ("a later one", [&later[..], &whole[later.len()..]].concat(), "a different version of trodden wrote it"),
    ] {
        let file = place.path(name);
        std::fs::write(&file, bytes).unwrap();
        let (all, error) = counts(file.to_str().unwrap());
        assert!(all == [2, 1] && error.contains(wanted) && error.contains("write it again"), "{name}: {error}");
    }
    let refused = place.command(trodden()).args(["export", "known", "more", "-o", "x", "--for", "prog"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("was not built with --residual"));
}

#[test]
fn corrupt_file_of_known_paths_is_named() {
    let place = create_place();
    place.trodden("export known tests -o whole.known");
    let whole = std::fs::read(place.path("whole.known")).unwrap();
    for length in [12, 30, whole.len() / 2, whole.len() - 1] {
        std::fs::write(place.path("cut.known"), &whole[..length]).unwrap();
        for option in ["--residual", "--interesting"] {
            let output = place.command(trodden()).args(["instrument", "./prog", option, "cut.known", "-o", "prog.cut"]).output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success() && !place.path("prog.cut").exists());
            let is_named = ["cut.known: it ends within its header", "cut.known: it is corrupt"].iter().any(|what| error.contains(what));
            assert!(is_named && error.contains("trodden export known"), "{length} {option}: {error}");
        }
    }
}
