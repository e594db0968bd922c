//! The commands that analyse event sequences (`segments`, `patterns`, `find --events`, `diff`, `show`), on text files and on recorded
//! programs.

use crate::place::{Place, must, program_of, trodden};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use trodden_profile::{FunctionPaths, Profile};

/// The example of section 3.4.2 of Vaswani's thesis.
const EXAMPLE_EVENTS: &str = "#trodden events 1
thread\tmain
enter\tf1
path\tf1\tp1\tcall
enter\tf2
path\tf2\tp2\tcall
enter\tf3
path\tf3\tp3\tcall
enter\tf4
path\tf4\tp4\tloop
path\tf4\tp5\tloop
path\tf4\tp6\treturn
leave
path\tf3\tp7\tcall
enter\tf5
path\tf5\tp8\treturn
leave
path\tf3\tp9\treturn
leave
path\tf2\tp10\treturn
leave
leave
";

/// Creates a command of `trodden` or `trodden-lab`, depending on the first argument.
fn command_for(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command(program_of(arguments[0]));
    command.args(arguments);
    command
}

fn read_json(place: &Place, status: i32, arguments: &[&str]) -> Value {
    let output = command_for(place, arguments).arg("--json").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {error}"));
    // `show` and `trodden-lab sequence` have JSON schemas of their own.
    let version = if matches!(arguments[0], "show" | "sequence") { 1 } else { 2 };
    assert_eq!(answer["schema_version"], version);
    answer
}

fn expect_error(place: &Place, arguments: &[&str]) -> String {
    let output = command_for(place, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn format_rows(answer: &Value, rows: &str) -> Vec<String> {
    let text = |row: &Value| {
        row["events"].as_array().unwrap().iter().map(|event| event.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    answer[rows].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn the_thesis_example_is_analysed_as_text() {
    let place = Place::with(&[("example.events", EXAMPLE_EVENTS)]);
    let answer = read_json(&place, 0, &["segments", "example.events"]);
    let mut segments = format_rows(&answer, "segments");
    segments.sort();
    let expected = ["f1:p1 enter f2 f2:p2", "f2:p2 enter f3 f3:p3", "f3:p3 enter f4 f4:p4", "f3:p7 enter f5 f5:p8 leave f3:p9"];
    assert_eq!(segments, expected);
    let answer = read_json(&place, 0, &["sequence", "supergraph", "example.events"]);
    assert!(format_rows(&answer, "segments").contains(&"f4:p6 leave f3:p7 enter f5 f5:p8 leave f3:p9".to_owned()));
    let answer = read_json(&place, 0, &["find", "--events", "leave; f3:p7", "example.events"]);
    assert_eq!((&answer["occurrences"], &answer["found"][0]["position"]), (&1.into(), &10.into()));
    assert_eq!(answer["found"][0]["open_calls"].as_array().unwrap().len(), 4);
    let answer: Value = serde_json::from_slice(&place.laboratory("grammar --json example.events").stdout).unwrap();
    assert_eq!((&answer["events"], answer["methods"].as_array().unwrap().len()), (&20.into(), 4));
}

#[test]
fn errors_name_the_line_or_argument_that_is_wrong() {
    let place = Place::with(&[("bad.events", "#trodden events 1\nenter\tf\npath\tf\tp\tsomewhere\n"), ("other.txt", "hello\n")]);
    let message = expect_error(&place, &["segments", "bad.events"]);
    assert!(message.contains("line 3") && message.contains("call, loop or return"), "{message}");
    assert!(expect_error(&place, &["patterns", "hot", "other.txt"]).contains("cannot recognise the format of other.txt"));
    let place = Place::with(&[("example.events", EXAMPLE_EVENTS)]);
    assert!(expect_error(&place, &["segments", "example.events", "--depth", "0"]).contains("1..=16"));
    assert!(expect_error(&place, &["find", "--events", "f9:p9", "example.events"]).contains("no event `f9:p9`"));
    assert!(expect_error(&place, &["patterns", "hot", "example.events", "--thread", "4"]).contains("has only 1 thread (main)"));
    assert!(
        expect_error(&place, &["sequence", "branches", "example.events", "--length", "2"])
            .contains("does not list the path's basic blocks")
    );
    assert!(
        expect_error(&place, &["show", "example.events"]).contains("is a sequence of events as text, which `trodden show` does not accept")
    );
    assert!(expect_error(&place, &["find", "f1:p1", "example.events"]).contains("--events"));
    assert!(expect_error(&place, &["segments", "example.events", "--function", "f1"]).contains("--function does not apply"));
}

#[test]
fn numbers_out_of_range_and_contradictory_options_are_rejected_by_name() {
    let place = Place::with(&[("example.events", EXAMPLE_EVENTS)]);
    let questions: [(&[&str], &str); 7] = [
        (&["patterns", "iterations", "--length", "2-3"], "--length must be a single number"),
        (&["patterns", "iterations", "--threshold", "150"], "--threshold"),
        (&["patterns", "phases", "--top", "0"], "--top"),
        (&["patterns", "phases", "--length", "3"], "--length does not apply to `patterns phases`"),
        (&["patterns", "hot", "--length", "5-4"], "5 is more than 4"),
        (&["patterns", "hot", "--html", "page.html"], "--html does not apply to `patterns hot`"),
        (&["segments", "--depth", "101"], "--depth"),
    ];
    for (question, expected) in questions {
        let said = expect_error(&place, &[question, &["example.events"]].concat());
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn corrupt_texts_are_rejected_with_their_line() {
    let damaged = [
        ("leave\n", "line 2", "`leave` is not preceded by a matching `enter`"),
        ("path\tx\t0\treturn\n", "line 2", "`path` is not preceded by an `enter` of its function"),
        ("enter\tx\npath\ty\t1\treturn\n", "line 3", "`path` names a different function than `x`"),
        ("enter\tx\nleave\nleave\n", "line 4", "`leave` is not preceded by a matching `enter`"),
        ("thread\ta\nenter\tx\nthread\tb\nleave\n", "line 5", "`leave` is not preceded by a matching `enter`"),
    ];
    for (lines, line, expected) in damaged {
        let place = Place::with(&[("bad.events", &format!("#trodden events 1\n{lines}"))]);
        let said = expect_error(&place, &["patterns", "hot", "bad.events"]);
        assert!(said.contains(line) && said.contains(expected), "{said}");
    }
}

/// Both instances of the template have the same short name, so reports must use the long one.
const TEMPLATE_PROGRAM: &str = "
template <typename T> __attribute__((noinline)) T half(T x) { return x / 2; }
int main(int argc, char **) { return half(argc) + half(2.5 * argc) > 100; }
";

#[test]
fn functions_with_the_same_short_name_get_longer_names() {
    let place = Place::with(&[("prog.cc", TEMPLATE_PROGRAM)]);
    place.cxx("--trodden=stream -O1 prog.cc -o prog");
    place.trodden("record --whole-program --no-store -o run -- ./prog");
    let answer = read_json(&place, 0, &["segments", "run.streams", "--thread", "0"]);
    let text = format_rows(&answer, "segments").join("\n");
    assert!(text.contains("enter half<int> half<int>:") && text.contains("enter half<double> half<double>:"), "{text}");
    // A profile's name can be used instead of the name of the folder with its stream logs.
    let shown = place.trodden("show run --count 0").stdout;
    assert_eq!(shown, place.trodden("show run.streams --count 0").stdout);
    let answer = read_json(&place, 0, &["show", "run"]);
    let events = answer["events"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["kind"]), (String::from_utf8(shown).unwrap().lines().count(), &"enter".into()), "{answer}");
    assert!(expect_error(&place, &["show", "run", "--to", "5"]).contains("--to does not apply to a stream of paths"));
    let output = place.trodden("show run.streams --from 1000000");
    assert!(output.stdout.is_empty() && String::from_utf8_lossy(&output.stderr).contains("event 1000000 does not exist"));
}

#[test]
fn iterations_and_differences_of_text_files_are_found() {
    let iteration = |side: usize| format!("path\tf\t{side}\tloop\thead\t{}\n", ["left", "right"][side]);
    let events = |iterations: usize| {
        let body: String = (0..iterations).map(|n| iteration(n % 2)).collect();
        format!("#trodden events 1\nenter\tf\n{body}path\tf\tout\treturn\thead\nleave\n")
    };
    let place = Place::with(&[("a.events", &events(20)), ("b.events", &events(21))]);
    let answer = read_json(&place, 0, &["patterns", "iterations", "a.events"]);
    assert_eq!(answer["patterns"][0]["period"], 2);
    assert_eq!(answer["paths"][0]["iterations"].as_array().unwrap().len(), 4);
    let answer = read_json(&place, 0, &["sequence", "branches", "a.events", "--length", "2"]);
    // There are five pairs of branches: head after left, left after head, right after head, head after right, and the first branch, which
    // has no predecessor.
    assert_eq!(answer["distinct"], 5);
    let answer = read_json(&place, 1, &["diff", "--fail", "a.events", "b.events"]);
    assert_eq!(answer["differences"].as_array().unwrap().len(), 1);
    assert_eq!(answer["differences"][0]["right"]["events"][0], "f:0");
    assert_eq!(read_json(&place, 0, &["diff", "--fail", "a.events", "a.events"])["equal"], true);
    assert_eq!(read_json(&place, 0, &["diff", "a.events", "b.events"])["equal"], false);
}

/// A program with two diamonds in series. In two of four phases, both take the same side; in the other two, they take different sides. All
/// phases take each side equally often.
const PHASES_PROGRAM: &str = r##"
#include <stdio.h>
#include <stdlib.h>
static unsigned state = 1;
__attribute__((noinline)) static int step(int a, int b) {
    int r = 0;
    if (a) { __asm__ volatile("# left" : "+r"(r)); r += 3; } else { __asm__ volatile("# right" : "+r"(r)); r ^= 9; }
    if (b) { __asm__ volatile("# up" : "+r"(r)); r *= 5; } else { __asm__ volatile("# down" : "+r"(r)); r -= 7; }
    return r;
}
int main(int argc, char **argv) {
    int extra = argc > 1 ? atoi(argv[1]) : 0, sum = 0;
    for (int phase = 0; phase < 4; phase++) {
        for (int i = 0; i < 2000 + (phase == 2) * extra; i++) {
            state = state * 1103515245 + 12345;
            int side = state >> 16 & 1;
            sum += step(side, phase & 1 ? !side : side);
        }
    }
    printf("%d\n", sum);
    return 0;
}
"##;

fn record(place: &Place, name: &str, arguments: &[&str]) -> Profile {
    let file = format!("{name}.trodden");
    let mut command = place.command(trodden());
    command.args(["record", "--whole-program", "--no-store", "-o", &file, "--"]).arg(place.path("prog")).args(arguments);
    must(&mut command);
    Profile::read(&place.path(&file)).unwrap()
}

#[test]
fn phases_that_differ_in_paths_but_not_in_blocks_are_found() {
    let place = Place::with(&[("prog.c", PHASES_PROGRAM)]);
    place.cc("--trodden=stream -O1 prog.c -o prog");
    let profile = record(&place, "a", &[]);
    place.laboratory("patterns phases a.trodden.streams --html phases.html");
    let answer = read_json(&place, 0, &["patterns", "phases", "a.trodden.streams"]);
    let changes: Vec<u64> = answer["by_paths"]["changes"].as_array().unwrap().iter().map(|c| c.as_u64().unwrap()).collect();
    assert_eq!((changes.len(), answer["by_paths"]["phases"].as_array().unwrap().len()), (3, 2), "{changes:?}");
    assert!(changes.iter().zip([25, 50, 75]).all(|(change, expected)| change.abs_diff(expected) <= 1), "{changes:?}");
    assert_eq!(answer["by_blocks"]["changes"].as_array().unwrap().len(), 0);
    assert!(std::fs::read_to_string(place.path("phases.html")).unwrap().contains("<svg"));
    check_supergraph_counts(&place, &profile);
    check_event_numbers(&place);
    record(&place, "b", &["1"]);
    let answer = read_json(&place, 1, &["diff", "--sequence", "--fail", "a.trodden", "b.trodden"]);
    let first = &answer["differences"][0];
    assert!(first["left"]["start"].as_u64() == answer["first_difference"].as_u64(), "{answer}");
    let answer = read_json(&place, 0, &["patterns", "hot", "a.trodden", "--threshold", "5"]);
    assert!(!format_rows(&answer, "subpaths").is_empty());
    assert!(!answer["sources"].as_object().unwrap().is_empty());
}

/// All forms of the report, and the advice, must mention that the iterations of a loop alternate.
#[test]
fn alternating_iterations_are_reported_and_advised_on() {
    const ALTERNATING_PROGRAM: &str = "#include <stdio.h>\nint main(int argc, char **argv) {\n  int sum = 0;\n  for (int i = 0; i < \
        3000; i++) {\n    \
        if (i & argc)\n      __asm__ volatile(\"# odd\" : \"+r\"(sum));\n    \
        else\n      __asm__ volatile(\"# even\" : \"+r\"(sum));\n  }\n  \
        printf(\"%d\\n\", sum);\n  return 0;\n}\n";
    let place = Place::with(&[("turns.c", ALTERNATING_PROGRAM)]);
    place.cc("--trodden=stream -O1 -g turns.c -o prog");
    record(&place, "turns", &[]);
    let asked = |arguments: &str| must(place.command(trodden()).args(arguments.split(' '))).stdout;
    let report: Value = serde_json::from_slice(&asked("report turns.trodden --json")).unwrap();
    let sequence = &report["sequence"];
    assert_eq!(sequence["threads"], 1, "{report:#}");
    assert_eq!(sequence["iterations"]["patterns"][0]["period"], 2, "{sequence:#}");
    assert!(sequence["events"].as_u64() > Some(3000));
    assert_eq!(sequence["phases"]["by_paths"]["changes"].as_array().unwrap().len(), 0);
    assert!(sequence["last_branches"]["distinct"].as_u64() >= Some(2));
    assert!(String::from_utf8(asked("report turns.trodden")).unwrap().contains("every second iteration takes the other path"));
    let advice: Value = serde_json::from_slice(&asked("advise turns.trodden --json")).unwrap();
    assert_eq!((advice["iterations"].as_array().unwrap().len(), &advice["iterations"][0]["function"]), (1, &"main".into()));
    asked("advise turns.trodden --sarif turns.sarif");
    let log: Value = serde_json::from_slice(&std::fs::read(place.path("turns.sarif")).unwrap()).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let turns = results.iter().find(|result| result["ruleId"] == "iterations").unwrap();
    let rules = &log["runs"][0]["tool"]["driver"]["rules"];
    assert_eq!(rules[turns["ruleIndex"].as_u64().unwrap() as usize]["id"], "iterations");
    assert_eq!(turns["locations"][0]["physicalLocation"]["region"]["startLine"], 2, "{turns:#}");
    assert!(turns["message"]["text"].as_str().unwrap().contains("every second iteration"));
    asked("report turns.trodden --html turns.html");
    assert!(std::fs::read_to_string(place.path("turns.html")).unwrap().contains("Alternating iterations"));
}

/// Checks that `show` and `find --events` number events in the same way, although `show` prints a path and the following return in one
/// line.
fn check_event_numbers(place: &Place) {
    let show = |arguments: &str| {
        let mut command = place.command(trodden());
        must(command.args(["show", "a.trodden.streams", "--count", "0"]).args(arguments.split_whitespace())).stdout
    };
    let all = String::from_utf8(show("")).unwrap();
    let mut shown: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in all.lines() {
        let mut words = line.split_whitespace();
        let number = words.next().unwrap().trim_start_matches('#').parse().unwrap();
        shown.entry(words.find(|word| word.contains(':')).unwrap_or("enter")).or_default().push(number);
    }
    shown.remove("enter");
    assert!(shown.len() >= 6, "{all}");
    for (event, numbers) in shown {
        let answer = read_json(place, 0, &["find", "--events", event, "a.trodden.streams"]);
        let found: Vec<u64> = answer["found"].as_array().unwrap().iter().map(|f| f["position"].as_u64().unwrap()).collect();
        assert_eq!(found, numbers, "{event}");
        let last = numbers[numbers.len() - 1];
        let from = String::from_utf8(show(&format!("--from {last}"))).unwrap();
        assert!(from.starts_with(&format!("#{last} ")) && all.ends_with(&from), "{event} at {last}: {from}");
    }
}

/// Checks that supergraph paths of length 0 have the counts of the profile, because they are the paths of functions.
fn check_supergraph_counts(place: &Place, profile: &Profile) {
    let answer = read_json(place, 0, &["sequence", "supergraph", "a.trodden.streams", "--length", "0", "--top", "0"]);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (row, events) in answer["segments"].as_array().unwrap().iter().zip(format_rows(&answer, "segments")) {
        *found.entry(events.rsplit(' ').next().unwrap().to_owned()).or_default() += row["count"].as_u64().unwrap();
    }
    let mut expected = BTreeMap::new();
    for (_, unit, function) in profile.functions() {
        for path in FunctionPaths::decode(function, unit.counts_of(function)).unwrap().complete {
            expected.insert(format!("{}:{}", function.name, path.id), path.count);
        }
    }
    assert!(expected.len() >= 6, "{expected:?}");
    assert_eq!(found, expected);
}
