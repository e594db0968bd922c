//! Error messages for files that are not graphs, and for choices that do not apply to a command.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trodden-lab"));
    command.args(arguments).env_remove("TRODDEN_INSTRUMENT").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // This fails if the program has rejected its arguments and exited already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn expect_error(arguments: &[&str], input: &str) -> String {
    let output = run(arguments, input);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn invalid_graph_file_is_named() {
    for text in ["some words\n", "{}"] {
        let message = expect_error(&["graph", "number", "-"], text);
        assert!(message.contains("graph file -") && !message.contains("panicked"), "{text}: {message}");
    }
    assert!(expect_error(&["graph", "number", "/no/such/file"], "").contains("/no/such/file"));
    let answer = run(&["graph", "number", "-"], r#"{"entry":"s","exit":"t","edges":[["s","t"],["s","t"]]}"#);
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer["paths"], 2);
}

#[test]
fn choice_for_another_command_is_rejected() {
    assert!(expect_error(&["with", "--strategy", "p3", "--", "report"], "").contains("only to `trodden record`, `trodden fleet copies`"));
    assert!(expect_error(&["with", "--collector", "uprobes", "--", "record", "./x"], "").contains("only to `trodden trace record`"));
    assert!(expect_error(&["with", "--", "record", "./x"], "").contains("no option is given"));
    assert!(expect_error(&["with", "--strategy", "p4", "--", "record", "./x"], "").contains("p4"));
}
