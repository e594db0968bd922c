//! Runs the complete command: `doctor`, `info`, manual pages, advice in messages, closed pipes.

use crate::place::{Place, laboratory, must, trodden};
use serde_json::Value;
use std::process::{Command, Stdio};

const PROGRAM: &str =
    "#include <stdio.h>\n#include <string.h>\nint main(int c, char **v) { if (c > 1 && !strcmp(v[1], \"x\")) puts(\"x\"); return 0; }\n";

fn expect_error(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{command:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn doctor_passes_on_the_machine_that_runs_the_tests() {
    let place = Place::new();
    let found: Value = serde_json::from_slice(&place.trodden("doctor --json").stdout).unwrap();
    assert_eq!(found["ok"], true, "{found}");
    assert!(found["checks"].as_array().unwrap().iter().any(|c| c["what"] == "end-to-end trial"));
}

#[test]
fn doctor_names_missing_component_and_how_to_install_it() {
    let place = Place::new();
    let output = place.command(trodden()).args(["doctor", "--json"]).env("TRODDEN_CLANG", "/nowhere/clang").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let clang = found["checks"].as_array().unwrap().iter().find(|c| c["what"] == "clang").unwrap();
    assert_eq!((&clang["ok"], &clang["remedy"]), (&Value::Bool(false), &Value::from("apt-get install clang-22")));
}

#[test]
fn error_names_missing_component_and_what_to_do() {
    let place = Place::with(&[("a.c", PROGRAM)]);
    let cc = || {
        let mut command = place.command(trodden());
        command.args(["cc", "-c", "a.c"]);
        command
    };
    assert!(expect_error(cc().env("TRODDEN_CLANG", "/nowhere/clang")).contains("TRODDEN_CLANG is /nowhere/clang, which is not a program"));
    assert!(expect_error(cc().env("TRODDEN_PLUGIN", "/no.so")).contains("/no.so does not exist"));
    assert!(expect_error(cc().env_remove("TRODDEN_CACHE").env_remove("HOME").env_remove("XDG_DATA_HOME")).contains("Set TRODDEN_CACHE"));
    assert!(expect_error(place.command(trodden()).args(["report", "last"])).contains("record"));
    assert!(
        expect_error(place.command(trodden()).args(["info", "missing"]))
            .contains("file missing does not exist, and the current folder has no run store")
    );
}

#[test]
fn info_lists_uninstrumented_functions() {
    let place = Place::with(&[("a.c", PROGRAM), ("plain.c", "int plain(void) { return 1; }\n")]);
    place.tool("clang-22", "-c plain.c");
    place.cc("-O1 a.c plain.o -o prog");
    let found: Value = serde_json::from_slice(&place.trodden("info --json prog").stdout).unwrap();
    assert_eq!(found["units"][0]["source"], "a.c");
    assert_eq!(found["units"][0]["bitcode"], true);
    assert_eq!(found["functions"], 1);
    let names: Vec<&str> = found["uninstrumented"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    assert!(names.contains(&"plain") && !names.contains(&"main"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("4core") || name.contains("trodden")), "{names:?}");
    let libraries = found["libraries"].as_array().unwrap();
    assert!(libraries.iter().any(|l| l["name"] == "libc.so.6" && l["units"] == 0), "{libraries:?}");
}

#[test]
fn runs_are_reported_compared_and_merged() {
    let place = Place::with(&[("a.c", PROGRAM)]);
    place.cc("-O1 -g a.c -o prog");
    place.trodden("record --suite s -- ./prog");
    place.trodden("record --suite s -- ./prog x");
    let report: Value = serde_json::from_slice(&place.trodden("report --json").stdout).unwrap();
    assert_eq!(report["paths"].as_array().unwrap().len(), 1);
    let difference: Value = serde_json::from_slice(&place.trodden("diff --json last~1 last").stdout).unwrap();
    assert_eq!(difference["functions"][0]["function"], "main");
    assert_eq!(place.command(trodden()).args(["diff", "--fail", "1", "2"]).output().unwrap().status.code(), Some(1));
    assert_eq!(place.command(trodden()).args(["diff", "--fail", "1", "1"]).output().unwrap().status.code(), Some(0));
    place.trodden("merge -o both.trodden s");
    let both: Value = serde_json::from_slice(&place.trodden("report --json both.trodden").stdout).unwrap();
    assert_eq!(both["paths"].as_array().unwrap().len(), 2);
    place.trodden("report --html page.html");
    assert!(std::fs::read_to_string(place.path("page.html")).unwrap().contains("<html"));
    for format in ["folded", "pprof", "lcov", "json", "html"] {
        assert!(!place.trodden(&format!("export {format}")).stdout.is_empty(), "{format}");
    }
    place.trodden("runs remove 1");
    let runs: Value = serde_json::from_slice(&place.trodden("runs --json").stdout).unwrap();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn closed_pipe_is_not_an_error() {
    let place = Place::new();
    let mut child = place.command(trodden()).args(["doctor"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stderr, b"");
}

#[test]
fn manual_pages_and_completions_are_generated() {
    let place = Place::new();
    must(place.command(laboratory()).args(["man", "pages"]));
    let page = std::fs::read_to_string(place.path("pages/trodden-record.1")).unwrap();
    assert!(page.contains("Examples"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.laboratory(&format!("completions {shell}")).stdout.len() > 1000);
    }
}

#[test]
fn file_names_may_contain_blanks() {
    let place = Place::with(&[("a b.c", PROGRAM)]);
    must(place.command(trodden()).args(["cc", "-O1", "-c", "a b.c", "-o", "a b.o"]));
    must(place.command(trodden()).args(["cc", "a b.o", "-o", "the program"]));
    must(place.command(laboratory()).args(["with", "--chords", "off", "--", "instrument", "the program", "-o", "other program"]));
    assert_eq!(place.image("other program").units.len(), 1);
}

#[test]
fn prune_removes_only_old_units_from_the_cache() {
    let place = Place::with(&[("a.c", "int main(void) { return 0; }\n")]);
    place.cc("a.c -o old");
    place.shell("find store/units -type f -exec touch -d 2001-01-01 {} +");
    place.write("b.c", "int main(int n, char **v) { return n > 5; }\n");
    place.cc("b.c -o new");
    let units = |place: &Place| {
        let output = place.trodden("cache");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find(|l| l.trim_start().starts_with("units")).unwrap().split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(units(&place), 2);
    place.trodden("cache --prune 365");
    assert_eq!(units(&place), 1);
    // The pruned cache no longer has the unit's map, but the program contains a copy of it.
    assert!(place.trodden("info old").status.success());
}
