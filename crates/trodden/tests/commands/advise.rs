//! Runs `trodden advise` on programs with known opportunities.

use crate::place::{Place, must, trodden};
use serde_json::Value;

/// In `decide`, the first branch determines the second, which the compiler cannot know. In `reuse`, the second load of `b->used` is
/// necessary only on two rare paths, but the function has too many paths for the compiler to move the load to these two.
const PROGRAM: &str = "\
#define KEEP __attribute__((noinline))
struct buffer { int used; int limit; };
KEEP void one(void) { __asm__ volatile(\"\"); }
KEEP void two(void) { __asm__ volatile(\"\"); }
KEEP void flush(struct buffer *b) { __asm__ volatile(\"\" : : \"r\"(b) : \"memory\"); b->used = 0; }
KEEP void refill(struct buffer *b) { __asm__ volatile(\"\" : : \"r\"(b) : \"memory\"); b->used = b->limit; }
KEEP void decide(int x, int y) {
    if (x)
        one();
    else
        two();
    if (y)
        two();
    else
        one();
}
KEEP int reuse(struct buffer *b, int c) {
    int first = b->used;
    if (c == 1)
        flush(b);
    else if (c == 2)
        refill(b);
    return first * 3 + b->used;
}
int main(void) {
    struct buffer b = { 5, 9 };
    int sum = 0;
    for (int i = 0; i < 10000; i++) {
        decide(i & 1, (i & 1) + (i % 3 == 9));
        sum += reuse(&b, i % 100);
    }
    return sum == 0;
}
";

fn build_and_record(options: &str) -> Place {
    let place = Place::with(&[("a.c", PROGRAM)]);
    place.cc(&format!("{options} a.c -o prog"));
    place.record("prog");
    place
}

fn list_findings(place: &Place, arguments: &str) -> Vec<Value> {
    let out = place.trodden(&format!("advise run.trodden --json {arguments}")).stdout;
    let json: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&json["schema_version"], &json["kind"]), (&Value::from(3), &Value::from("advice")));
    json["findings"].as_array().unwrap().clone()
}

#[test]
fn branch_decided_by_an_earlier_branch_is_found_with_its_counts() {
    let place = build_and_record("-O2 -g");
    let found = list_findings(&place, "--function decide");
    let [only] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!((&only["kind"], &only["saves_instructions"]), (&Value::from("correlated"), &Value::from(20_000)));
    let evidence = &only["evidence"];
    assert_eq!((&evidence["earlier"]["line"], &evidence["later"]["line"]), (&Value::from(8), &Value::from(12)), "{evidence:#}");
    assert_eq!((&evidence["executions"], &evidence["decided"]), (&Value::from(10_000), &Value::from(10_000)));
    assert_eq!((evidence["entropy_bits"].as_f64(), evidence["information_bits"].as_f64()), (Some(1.0), Some(1.0)));
    assert!(evidence["given"].as_array().unwrap().iter().all(|g| g["executions"] == 5000 && g["outcomes"].as_array().unwrap().len() == 1));
}

#[test]
fn load_that_nearly_all_executions_repeat_is_found_in_stored_bitcode() {
    let place = build_and_record("-O2 -g");
    let found = list_findings(&place, "--function reuse --kind redundant");
    let [only] = found.as_slice() else { panic!("{found:#?}") };
    let evidence = &only["evidence"];
    assert_eq!(evidence["on_every_path"], true);
    let [load] = evidence["repeated"].as_array().unwrap().as_slice() else { panic!("{evidence:#}") };
    assert_eq!((&load["operation"], &load["at"]["line"]), (&Value::from("load i32"), &Value::from(23)));
    // Two of every hundred calls change the loaded value in between, so they cannot reuse it.
    assert_eq!((&evidence["executions"], &load["found"]), (&Value::from(10_000), &Value::from(9_800)));
    assert_eq!(load["from"][0]["at"]["line"], 18);
}

#[test]
fn without_bitcode_other_findings_are_reported_and_missing_bitcode_is_named() {
    let place = Place::with(&[("a.c", PROGRAM)]);
    must(place.command(trodden()).args(["cc", "-O2", "-g", "a.c", "-o", "prog"]).env("TRODDEN_INSTRUMENT", "keep=map"));
    place.record("prog");
    let output = place.trodden("advise run.trodden");
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(out.contains("The branch in line 12 takes both edges; the branch in line 8 decides all of its executions."), "{out}");
    assert!(err.contains("did not search for redundant computations in") && err.contains("without the setting `keep=map`"), "{err}");
    assert_eq!(place.trodden("advise run.trodden --kind correlated").stderr, b"");
    // The note above recommends to build without `keep=map`.
    must(place.command(trodden()).args(["cc", "-O2", "-g", "a.c", "-o", "prog"]));
    place.record("prog");
    let again = String::from_utf8(place.trodden("advise run.trodden").stderr).unwrap();
    assert!(!again.contains("did not search for redundant computations"), "{again}");
}

#[test]
fn sarif_lists_the_locations_of_a_finding_as_a_code_flow() {
    let place = build_and_record("-O2 -g");
    place.trodden("advise run.trodden --sarif advice.sarif --kind correlated");
    let log: Value = serde_json::from_slice(&std::fs::read(place.path("advice.sarif")).unwrap()).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let result = &log["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "correlated");
    let flow = result["codeFlows"][0]["threadFlows"][0]["locations"].as_array().unwrap();
    let lines: Vec<&Value> = flow.iter().map(|l| &l["location"]["physicalLocation"]["region"]["startLine"]).collect();
    assert_eq!(lines, [8, 12]);
    assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 12);
}

#[test]
fn unknown_kind_or_function_is_rejected() {
    let place = build_and_record("-O1 -g0");
    for (arguments, expected) in [("--kind nothing", "nothing"), ("--function nothing", "nothing")] {
        let output = place.command(trodden()).args(["advise", "run.trodden"]).args(arguments.split(' ')).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && err.contains(expected), "{arguments}: {err}");
    }
    // Without debug information, advice refers to blocks instead of lines.
    let out = String::from_utf8(place.trodden("advise run.trodden --function decide").stdout).unwrap();
    assert!(out.contains("the branch in block 0 decides all of its executions"), "{out}");
}
