//! Coverage computed from paths: equal to that of the compiler's own coverage build, count by count, by `llvm-cov export` of both.

mod place;

use place::{Place, cargo_trodden, must, trodden};
use serde_json::Value;
use std::process::Command;

const PROGRAMS: [(&str, &str); 6] = [
    ("plain.c", include_str!("coverage/plain.c")),
    ("jump.c", include_str!("coverage/jump.c")),
    ("cxx.cc", include_str!("coverage/cxx.cc")),
    ("threads.c", include_str!("coverage/threads.c")),
    ("forks.c", include_str!("coverage/forks.c")),
    ("killed.c", include_str!("coverage/killed.c")),
];

/// What `llvm-cov` exports of a program and a profile: all regions, branches and functions, with their counts.
fn exported(place: &Place, program: &str, profile: &str) -> Value {
    let text = place.tool("llvm-cov-22", &format!("export {program} -instr-profile={profile}")).stdout;
    let mut all: Value = serde_json::from_slice(&text).unwrap();
    all["data"].take()
}

/// The compiler's own coverage of a run: with counters in a shared mapping of the file, so that forks and kills lose nothing.
fn reference(place: &Place, compiler: &str, options: &str, source: &str) {
    let counting = "-fprofile-instr-generate -fcoverage-mapping -fprofile-update=atomic -mllvm -runtime-counter-relocation";
    place.tool(compiler, &format!("{options} {counting} {source} -o reference"));
    let raw = format!("%c{}", place.path("reference.profraw").display());
    // Some end in ways that `must` would not have.
    place.command(place.path("reference")).env("LLVM_PROFILE_FILE", raw).output().unwrap();
    place.tool("llvm-profdata-22", "merge reference.profraw -o reference.profdata");
}

fn check(source: &str, level: &str) {
    let (name, text) = PROGRAMS.iter().find(|(name, _)| *name == source).unwrap();
    let place = Place::with(&[(name, text)]);
    let (compiler, driver) = if name.ends_with(".cc") { ("clang++-22", "c++") } else { ("clang-22", "cc") };
    let options = format!("{level} -w -pthread");
    reference(&place, compiler, &options, name);
    place.trodden(&format!("{driver} --trodden-coverage {options} {name} -o own"));
    place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--", "./own"]).output().unwrap();
    place.trodden("export profdata run.trodden -o own.profdata");
    let (llvm, own) = (exported(&place, "reference", "reference.profdata"), exported(&place, "own", "own.profdata"));
    assert!(llvm[0]["functions"].as_array().unwrap().iter().any(|f| f["count"].as_u64() > Some(0)), "{name} {level}: nothing was executed");
    assert_eq!(llvm, own, "{name} {level}");
    let text = must(place.command(trodden()).args(["coverage", "export", "run.trodden"])).stdout;
    assert_eq!(llvm, serde_json::from_slice::<Value>(&text).unwrap()["data"], "{name} {level}: coverage export");
}

#[test]
fn c_without_optimisation() {
    check("plain.c", "-O0");
}

#[test]
fn c_optimised() {
    check("plain.c", "-O2");
}

#[test]
fn frames_that_do_not_return() {
    check("jump.c", "-O2");
}

#[test]
fn templates_and_exceptions_without_optimisation() {
    check("cxx.cc", "-O0");
}

#[test]
fn templates_and_exceptions_optimised() {
    check("cxx.cc", "-O2");
}

#[test]
fn threads() {
    check("threads.c", "-O2");
}

#[test]
fn forked_processes() {
    check("forks.c", "-O2");
}

#[test]
fn a_process_killed() {
    check("killed.c", "-O2");
}

/// Tests run below cargo, which leaves variables behind.
fn without_cargos_variables(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("CARGO") && n != "CARGO_HOME") {
        command.env_remove(name);
    }
    ["RUSTC_WRAPPER", "RUSTFLAGS", "OUT_DIR"].into_iter().for_each(|name| _ = command.env_remove(name));
    command
}

/// Without what is not the same from build to build: cargo makes other hashes in names with other flags.
fn without_hashes(mut data: Value) -> Value {
    let functions = data[0]["functions"].as_array_mut().unwrap();
    functions.iter_mut().for_each(|f| f["name"] = Value::Null);
    functions.sort_by_key(Value::to_string);
    data
}

#[test]
fn rust() {
    let manifest = "[package]\nname = \"subject\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    let place = Place::with(&[("Cargo.toml", manifest), ("src/main.rs", include_str!("coverage/subject.rs"))]);
    let target = "x86_64-unknown-linux-gnu";
    must(without_cargos_variables(place.command(cargo_trodden())).args(["build", "--release", "--coverage"]));
    let program = format!("target/trodden/{target}/release/subject");
    must(place.command(trodden()).args(["record", "--no-store", "-o", "run.trodden", "--"]).arg(place.path(&program)));
    let words = ["build", "--release", "--target", target, "--target-dir", "reference"];
    must(without_cargos_variables(place.command("cargo")).args(words).env("RUSTFLAGS", "-Cinstrument-coverage"));
    let reference = format!("reference/{target}/release/subject");
    must(place.command(place.path(&reference)).env("LLVM_PROFILE_FILE", "reference.profraw"));
    place.tool("llvm-profdata-22", "merge reference.profraw -o reference.profdata");
    place.trodden("export profdata run.trodden -o own.profdata");
    let llvm = without_hashes(exported(&place, &reference, "reference.profdata"));
    assert_eq!(llvm, without_hashes(exported(&place, &program, "own.profdata")));
    let report = String::from_utf8(place.trodden("coverage report run.trodden").stdout).unwrap();
    assert!(report.contains("main.rs") && !report.contains("/rustc/"), "{report}");
}
