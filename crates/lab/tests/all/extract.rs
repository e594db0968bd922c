//! Runs `trodden-lab graph extract` on a system program and on invalid input.

use serde_json::Value;
use std::process::{Command, Output};

fn run_extract(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trodden-lab")).args(["graph", "extract"]).args(arguments).output().unwrap()
}

fn expect_error(arguments: &[&str]) -> String {
    let output = run_extract(arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn system_program_is_extracted_as_json_and_dot() {
    let output = run_extract(&["/usr/bin/gzip"]);
    assert!(output.status.success(), "{output:?}");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(all["schema_version"], 2);
    let functions = all["functions"].as_array().unwrap();
    assert!(functions.len() > 50);
    for function in functions {
        let starts: Vec<u64> = function["blocks"].as_array().unwrap().iter().map(|b| b["address"].as_u64().unwrap()).collect();
        assert!(starts.contains(&function["address"].as_u64().unwrap()) && starts.is_sorted());
        for edge in function["edges"].as_array().unwrap() {
            assert!(starts.contains(&edge["from"].as_u64().unwrap()) && starts.contains(&edge["to"].as_u64().unwrap()));
        }
        assert_eq!(function["source"]["kind"], "recovered");
    }
    let one = run_extract(&["/usr/bin/gzip", "--function", "main"]);
    let main: Value = serde_json::from_slice(&one.stdout).unwrap();
    let address = main["functions"][0]["address"].as_u64().unwrap();
    let by_address = run_extract(&["/usr/bin/gzip", "--function", &format!("{:#x}", address + 1)]);
    assert_eq!(one.stdout, by_address.stdout);
    let dot = String::from_utf8(run_extract(&["/usr/bin/gzip", "--function", "main", "--format", "dot"]).stdout).unwrap();
    assert!(dot.starts_with("digraph program {") && dot.contains(&format!("\"{address:#x}\"")) && dot.trim_end().ends_with('}'));
}

#[test]
fn invalid_input_is_rejected_with_advice() {
    assert!(expect_error(&["/etc/passwd"]).contains("is not an ELF file. Pass an x86-64 ELF executable"));
    assert!(expect_error(&["/no/such/file"]).contains("cannot read /no/such/file"));
    assert!(expect_error(&["/usr/bin/gzip", "--function", "mian"]).contains("similar: main"));
    assert!(
        expect_error(&["/usr/bin/gzip", "--function", "no_such_function_here"])
            .contains("it is stripped, so name the function by an address")
    );
    assert!(expect_error(&["/usr/bin/gzip", "--function", "0x1"]).contains("has no function `0x1`"));
    let side = expect_error(&["/usr/bin/gzip", "--side-build", "/usr/bin/sed"]);
    assert!(side.contains("cannot use /usr/bin/sed as a second build") && side.contains("-fbasic-block-address-map"), "{side}");
}
