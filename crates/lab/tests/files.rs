//! Files that are no graphs, and choices that do not concern a command: what is wrong is named.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trodden-lab"));
    command.args(arguments).env_remove("TRODDEN_INSTRUMENT").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn error(arguments: &[&str], input: &str) -> String {
    let output = run(arguments, input);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn files_that_are_no_graphs_are_named() {
    for text in ["some words\n", "{}"] {
        let said = error(&["graph", "number", "-"], text);
        assert!(said.contains("graph file -") && !said.contains("panicked"), "{text}: {said}");
    }
    assert!(error(&["graph", "number", "/no/such/file"], "").contains("/no/such/file"));
    let answer = run(&["graph", "number", "-"], r#"{"entry":"s","exit":"t","edges":[["s","t"],["s","t"]]}"#);
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer["paths"], 2);
}

#[test]
fn choices_are_for_commands_that_they_concern() {
    assert!(error(&["with", "--strategy", "p3", "--", "report"], "").contains("it is for `trodden record`, `trodden fleet copies`"));
    assert!(error(&["with", "--collector", "uprobes", "--", "record", "./x"], "").contains("it is for `trodden trace record`"));
    assert!(error(&["with", "--", "record", "./x"], "").contains("give a choice"));
    assert!(error(&["with", "--strategy", "p4", "--", "record", "./x"], "").contains("p4"));
}
