//! `trodden-lab graph witnesses` and `trodden-lab graph reconstruct`: answers, exit statuses and messages.

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Figure 1 of "Distributed program tracing".
fn example_of_figure_1() -> Value {
    json!({"entry": "entry", "exit": "exit", "edges": [
        ["entry", "b1"], ["b1", "b2"], ["b1", "exit"], ["b2", "b3"], ["b2", "b4"], ["b3", "b5"], ["b4", "b5"], ["b5", "b1"]
    ]})
}

/// Figure 3 of the same paper: `foo` calls `bar` in a loop.
fn example_of_figure_3() -> Value {
    json!({
        "functions": {
            "foo": {"entry": "entry", "exit": "exit", "edges": [["entry", "c1"], ["c1", "c1"], ["c1", "exit"]]},
            "bar": {"entry": 0, "exit": 4, "edges": [[0, 1], [1, 2], [1, 3], [2, 4], [3, 4]]}
        },
        "calls": [{"function": "foo", "block": "c1", "callee": "bar"}],
        "main": "foo"
    })
}

fn with_added_keys(mut file: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("an object") };
    file.as_object_mut().unwrap().extend(more);
    file
}

fn run(arguments: &str, file: &Value) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trodden-lab"));
    command.arg("graph").args(arguments.split(' ')).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(file.to_string().as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn run_and_parse(arguments: &str, file: &Value, status: i32) -> Value {
    let output = run(arguments, file);
    assert_eq!(output.status.code(), Some(status), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn expect_error(arguments: &str, file: &Value) -> String {
    let output = run(arguments, file);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn unrealizable_distribution_is_explained_by_two_executions() {
    let file = with_added_keys(example_of_figure_1(), json!({"profiles": [["entry", "b1", "b2", "b5"], ["b3", "exit"], ["b4"]]}));
    let found = run_and_parse("witnesses -", &file, 1);
    assert_eq!(found["realizable"], false);
    assert_eq!(found["cost"].as_array().unwrap().len(), 3);
    let violation = &found["violations"][0];
    assert_eq!((&violation["branch"], &violation["targets"]), (&json!("b2"), &json!(["b3", "b4"])));
    let executions = violation["executions"].as_array().unwrap();
    assert_eq!(executions.len(), 2);
    assert_ne!(executions[0], executions[1]);
    for profile in found["profiles"].as_array().unwrap() {
        let trace = |execution: &Value| -> Vec<Value> {
            execution.as_array().unwrap().iter().filter(|n| profile.as_array().unwrap().contains(n)).cloned().collect()
        };
        assert_eq!(trace(&executions[0]), trace(&executions[1]));
    }
}

#[test]
fn every_strategy_and_placement_is_realizable() {
    for strategy in ["fine", "function", "grouped", "weighted"] {
        for more in ["", " --edges", " --limit 4 --machines 2", " --order given", " --lookahead function"] {
            for file in [example_of_figure_1(), example_of_figure_3()] {
                let found = run_and_parse(&format!("witnesses - --profiles 3 --strategy {strategy}{more}"), &file, 0);
                assert!(found["realizable"] == true && found["violations"] == json!([]), "{found}");
                assert!(found["profiles"].as_array().unwrap().len() >= 3);
                let machines = if more.contains("machines") { 2 } else { found["profiles"].as_array().unwrap().len() };
                assert_eq!(found["cost"].as_array().unwrap().len(), machines);
            }
        }
    }
    for placement in ["blocks", "targets", "spanning-tree --edges", "repaired", "exact", "exact --edges"] {
        run_and_parse(&format!("witnesses - --placement {placement}"), &example_of_figure_1(), 0);
    }
    let known = json!({"entry": 0, "exit": 3, "edges": [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]], "weights": [1, 1, 1, 1, 1]});
    let found = run_and_parse("witnesses - --placement paper", &known, 1);
    assert_eq!(found["profiles"], json!([[2]]));
    // All weights are 1, but node 1 has one in-edge and two out-edges, and node 2 has two in-edges and one out-edge.
    assert_eq!(found["unbalanced"], json!([1, 2]));
}

#[test]
fn reconstruction_uses_the_names_of_the_file() {
    let file = with_added_keys(
        example_of_figure_1(),
        json!({"profiles": [["b3", "b2"], ["b4", "b2"]], "traces": [["b2", "b3", "b2"], ["b2", "b2", "b4"]]}),
    );
    let execution = json!(["entry", "b1", "b2", "b3", "b5", "b1", "b2", "b4", "b5", "b1", "exit"]);
    assert_eq!(run_and_parse("reconstruct -", &file, 0)["execution"], execution);
    // The same distribution with edges as witnesses: 3 is b2 -> b3, and 4 is b2 -> b4.
    let file = with_added_keys(example_of_figure_1(), json!({"profiles": [[3, 4]], "traces": [[3, 4]]}));
    assert_eq!(run_and_parse("reconstruct - --edges", &file, 0)["execution"], execution);
    let traces = json!({"profiles": [[["foo", "c1"], ["bar", 2]]], "traces": [[["foo", "c1"], ["foo", "c1"], ["bar", 2]]]});
    let found = run_and_parse("reconstruct -", &with_added_keys(example_of_figure_3(), traces), 0);
    let bar = |middle: u32| json!([["foo", "c1"], ["bar", 0], ["bar", 1], ["bar", middle], ["bar", 4]]);
    let mut all = vec![json!(["foo", "entry"])];
    [bar(3), bar(2)].iter().for_each(|b| all.extend(b.as_array().unwrap().clone()));
    all.push(json!(["foo", "exit"]));
    assert_eq!(found["execution"], Value::from(all));
}

#[test]
fn ambiguous_execution_is_reconstructed_up_to_the_branch() {
    let file = with_added_keys(example_of_figure_1(), json!({"profiles": [["b3"], ["b4"]], "traces": [["b3"], ["b4"]]}));
    let found = run_and_parse("reconstruct -", &file, 1);
    assert_eq!(found["realizable"], false);
    assert_eq!(found["execution"], json!(["entry", "b1", "b2"]));
    assert_eq!(found["ambiguous"], json!({"branch": "b2", "targets": ["b3", "b4"]}));
}

#[test]
fn calls_can_end_the_run_and_unwind() {
    let file = json!({
        "functions": {
            "main": {
                "entry": "a", "exit": "z", "unwind": [4],
                "edges": [["a", "b"], ["a", "c"], ["b", "z"], ["c", "z"], ["b", "pad"], ["pad", "z"]]
            },
            "stop": {"entry": "s", "exit": "t", "edges": [["s", "t"]]}
        },
        "calls": [
            {"function": "main", "block": "b", "callee": "stop"},
            {"function": "main", "block": "c", "opaque": {"ends_run": true}},
            {"function": "stop", "block": "s", "opaque": {"unwinds": true}}
        ]
    });
    let planned = run_and_parse("witnesses - --profiles 2", &file, 0);
    let profiles = planned["profiles"].clone();
    let executions = [
        json!([["main", "a"], ["main", "c"]]),
        // In this execution, the exception is not caught.
        json!([["main", "a"], ["main", "b"], ["stop", "s"]]),
        json!([["main", "a"], ["main", "b"], ["stop", "s"], ["main", "pad"], ["main", "z"]]),
        json!([["main", "a"], ["main", "b"], ["stop", "s"], ["stop", "t"], ["main", "z"]]),
        json!([["main", "a"], ["main", "c"], ["main", "z"]]),
    ];
    for execution in executions {
        let trace = |profile: &Value| -> Vec<Value> {
            execution.as_array().unwrap().iter().filter(|n| profile.as_array().unwrap().contains(n)).cloned().collect()
        };
        let traces: Vec<Vec<Value>> = profiles.as_array().unwrap().iter().map(trace).collect();
        let found = run_and_parse("reconstruct -", &with_added_keys(file.clone(), json!({"profiles": profiles, "traces": traces})), 0);
        assert_eq!(found["execution"], execution);
    }
}

#[test]
fn truncated_traces_give_the_certain_part() {
    let file =
        with_added_keys(example_of_figure_1(), json!({"profiles": [["b3", "b2"], ["b4", "b2"]], "traces": [["b2", "b3", "b2"], ["b2"]]}));
    let found = run_and_parse("reconstruct - --truncated", &file, 0);
    assert_eq!((&found["truncated"], &found["execution"]), (&json!(true), &json!(["entry", "b1", "b2", "b3", "b5", "b1", "b2"])));
}

#[test]
fn check_paper_reports_both_theorems() {
    // The two profiles together distinguish the branches to 1 and to 2, although each profile alone records nothing in one of the two
    // executions.
    let file = json!({"entry": 0, "exit": 3, "edges": [[0, 1], [0, 2], [1, 3], [2, 3]], "profiles": [[1], [2]]});
    assert_eq!(run_and_parse("witnesses -", &file, 0)["realizable"], true);
    let found = run_and_parse("witnesses - --check paper", &file, 0);
    assert_eq!(found["theorems"], json!({"graph": true, "path": true}));
    // After b2, the second and the third profile's traces do not show whether b3 or b4 came first.
    let file = with_added_keys(example_of_figure_1(), json!({"profiles": [["entry", "b1", "b2", "b5"], ["b3", "exit"], ["b4"]]}));
    let found = run_and_parse("witnesses - --check paper", &file, 1);
    assert_eq!((&found["realizable"], &found["theorems"]), (&json!(false), &json!({"graph": false, "path": false})));
}

#[test]
fn invalid_files_are_rejected_with_a_reason() {
    let bad = |arguments: &str, file: Value, what: &str| {
        let message = expect_error(arguments, &file);
        assert!(message.contains(what), "{what}: {message}");
    };
    bad("witnesses -", json!([]), "the JSON is not a graph");
    bad("witnesses -", json!({"entry": 0, "edges": []}), "exit");
    bad("witnesses -", with_added_keys(example_of_figure_1(), json!({"profiles": [["b9"]]})), "node `b9` does not exist");
    bad("witnesses - --edges", with_added_keys(example_of_figure_1(), json!({"profiles": [[8]]})), "no edge has number 8");
    bad("witnesses -", with_added_keys(example_of_figure_3(), json!({"profiles": [["c1"]]})), "[FUNCTION, NODE]");
    bad("witnesses -", with_added_keys(example_of_figure_3(), json!({"main": "baz"})), "function `baz` does not exist");
    bad("witnesses -", with_added_keys(example_of_figure_3(), json!({"calls": [{"function": "foo", "block": "c1"}]})), "no callee");
    bad("witnesses -", with_added_keys(example_of_figure_3(), json!({"colour": 1})), "`colour`");
    bad("witnesses - --limit 1", example_of_figure_1(), "Raise --limit");
    bad("witnesses - --placement spanning-tree", example_of_figure_1(), "--edges");
    bad("reconstruct -", example_of_figure_1(), "\"profiles\"");
    let profiles = json!({"profiles": [["b3", "b4"]]});
    bad("reconstruct -", with_added_keys(example_of_figure_1(), profiles.clone()), "\"traces\"");
    bad(
        "reconstruct -",
        with_added_keys(with_added_keys(example_of_figure_1(), profiles.clone()), json!({"traces": [["b1"]]})),
        "profile 0 does not contain this witness",
    );
    bad(
        "reconstruct -",
        with_added_keys(with_added_keys(example_of_figure_1(), profiles), json!({"traces": [[], []]})),
        "one list per profile: expected 1, found 2",
    );
    let straight = json!({"entry": 0, "exit": 1, "edges": [[0, 1]], "profiles": [[0]], "traces": [[0, 0]]});
    bad("reconstruct -", straight, "do not belong to one execution");
}
