//! Finds deliberate bugs by comparing the paths of failing and passing runs.

use crate::place::{Place, trodden};
use serde_json::Value;

/// A program in which the first branch scales a number and the second rounds it. The result is wrong only if both happen. Passing runs
/// execute every line and every branch, but not this combination.
const PROGRAM: &str = "\
#include <stdlib.h>
#define KEEP __attribute__((noinline))
KEEP void touch(int *n) { __asm__ volatile(\"\" : : \"r\"(n) : \"memory\"); }
KEEP int convert(int n, int scaled, int rounded) {
    int unit = 1;
    if (scaled) {
        n *= 10;
        touch(&n);
        unit = 10;
    }
    if (rounded) {
        n = n / 10 * 10;
        touch(&n);
        unit -= 5;
    }
    return n / unit;
}
int main(int argc, char **argv) {
    int scaled = atoi(argv[1]), rounded = atoi(argv[2]), n = 0;
    for (int i = 10; i <= 40; i += 10)
        n += convert(i, scaled, rounded);
    /* 100 is right, whatever the options. */
    return n != (rounded && !scaled ? -24 : 100);
}
";

fn record_tests() -> Place {
    let place = Place::with(&[("a.c", PROGRAM)]);
    place.cc("-O1 -g a.c -o prog");
    for options in ["0 0", "1 0", "0 1", "1 1", "0 0", "1 1", "1 0", "0 1"] {
        let arguments = format!("record --suite nightly -- ./prog {options}");
        let output = place.command(trodden()).args(arguments.split_whitespace()).output().unwrap();
        assert_eq!(output.status.code(), Some(i32::from(options == "1 1")), "{output:?}");
    }
    place
}

fn run_isolate(place: &Place, arguments: &str) -> Value {
    let output = place.trodden(&format!("isolate {arguments} --json"));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["schema_version"], &json["kind"]), (&Value::from(3), &Value::from("isolation")));
    json
}

#[test]
fn path_with_two_branches_that_fail_only_together_is_ranked_first() {
    let place = record_tests();
    for arguments in ["nightly", "nightly --score tarantula", "nightly --score importance"] {
        let json = run_isolate(&place, arguments);
        assert_eq!((&json["failing_runs"], &json["passing_runs"]), (&Value::from(2), &Value::from(6)));
        let first = &json["suspects"][0];
        assert_eq!(first["function"], "convert", "{json:#}");
        assert_eq!(
            (&first["failing"], &first["passing"], &first["new_edges"]),
            (&Value::from(2), &Value::from(0), &Value::from(0)),
            "{first:#}"
        );
        assert!(first["ochiai"] == 1.0 && first["importance"].as_f64().unwrap() > 0.8);
    }
    let text = String::from_utf8(place.trodden("isolate nightly --top 1").stdout).unwrap();
    assert!(
        text.contains("2 failing and 6 passing runs")
            && text.contains("in 2 of 2 failing and 0 of 6 passing runs")
            && text.contains("n *= 10;")
            && text.contains("n = n / 10 * 10;"),
        "{text}"
    );
    // Failing and passing runs execute the same lines and branches.
    let all = run_isolate(&place, "nightly --top 1000");
    assert!(all["suspects"].as_array().unwrap().iter().all(|s| s["new_edges"] == 0), "{all:#}");
}

#[test]
fn runs_of_other_programs_or_builds_or_with_unknown_status_are_left_out() {
    let place = record_tests();
    place.write("b.c", "int main(void) { return 0; }\n");
    place.cc("-O1 -g b.c -o other");
    let isolated = |arguments: &str| {
        let output = place.command(trodden()).arg("isolate").args(arguments.split_whitespace()).arg("--json").output().unwrap();
        let found: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        (
            output.status.code(),
            found.map(|f| (f["failing_runs"].clone(), f["passing_runs"].clone())),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let nightly = Some((Value::from(2), Value::from(6)));
    place.trodden("record --suite others -- ./other");
    let (status, runs, said) = isolated("nightly others");
    assert!(
        (status, &runs) == (Some(0), &nightly) && said.contains("1 run of other programs") && said.contains("--program"),
        "{runs:?} {said}"
    );
    let (status, _, said) = isolated("nightly others --program other");
    assert!(status == Some(2) && said.contains("0 failing and 1 passing"), "{said}");
    assert!(isolated("nightly others --program nothing").2.contains("other, prog"));
    let (status, _, said) = isolated("1 others");
    assert!(status == Some(2) && said.contains("only runs of one build can be compared"), "{said}");
    // A merged profile of runs with different exit statuses has no exit status, so it is neither passing nor failing.
    place.trodden("merge --output sum.trodden nightly");
    let (status, runs, said) = isolated("nightly sum.trodden");
    assert!(
        (status, &runs) == (Some(0), &nightly) && said.contains("sum.trodden") && said.contains("its exit status is not recorded"),
        "{runs:?} {said}"
    );
    place.write("a.c", &PROGRAM.replace("unit = 10", "unit = 10, touch(&unit)"));
    place.cc("-O1 -g a.c -o prog");
    place.trodden("record --suite rebuilt -- ./prog 0 0");
    let (status, runs, said) = isolated("nightly rebuilt");
    assert!((status, &runs) == (Some(0), &nightly) && said.contains("of other programs or builds"), "{runs:?} {said}");
}

#[test]
fn failing_and_passing_options_override_the_exit_status() {
    let place = record_tests();
    let json = run_isolate(&place, "nightly --passing 4 --failing 2");
    assert_eq!((&json["failing_runs"], &json["passing_runs"]), (&Value::from(2), &Value::from(6)));
    for (arguments, message) in [
        ("isolate 1 2 3", "needs failing and passing runs"),
        ("isolate", "no runs are given"),
        ("isolate nightly --failing 1 --passing 1", "by both --failing and --passing"),
        ("isolate nowhere", "no run or suite"),
        ("isolate nightly --function nothing", "nothing"),
    ] {
        let output = place.command(trodden()).args(arguments.split_whitespace()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(message), "{arguments}: {output:?}");
    }
}
