//! `cargo trodden` for several programs with panic=abort and an LTO setting of their own, C code that a build script compiles, all kinds of
//! libraries, and tests.

use crate::place::{Place, cargo_trodden, executions, must, trodden};
use std::path::Path;
use std::process::{Command, Output};
use trodden_profile::{Profile, RunStore};

const MANIFEST: &str = r#"
[package]
name = "subject"
version = "0.1.0"
edition = "2021"

[profile.dev]
opt-level = 1
panic = "abort"
lto = "off"
debug = 0

[lib]
crate-type = ["rlib", "cdylib"]

[dependencies]
plugin = { path = "plugin" }

[workspace]
members = ["plugin", "shared"]
"#;

/// A build script that does what the crate `cc` would do.
const BUILD_SCRIPT: &str = r#"
use std::{env, process::Command};
fn main() {
    let out = env::var("OUT_DIR").unwrap();
    let target = env::var("TARGET").unwrap().replace('-', "_");
    let cc = env::var(format!("CC_{target}")).unwrap_or("cc".into());
    assert!(Command::new(cc).args(["-O1", "-fPIC", "-c", "pick.c", "-o"]).arg(format!("{out}/pick.o")).status().unwrap().success());
    assert!(Command::new("ar").arg("rcs").arg(format!("{out}/libpick.a")).arg(format!("{out}/pick.o")).status().unwrap().success());
    println!("cargo::rerun-if-changed=pick.c");
    println!("cargo::rustc-link-search={out}");
    println!("cargo::rustc-link-lib=static=pick");
}
"#;

const LIBRARY_SOURCE: &str = r#"
unsafe extern "C" { fn pick(n: i32) -> i32; }
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn weigh(n: i32) -> i32 { if n % 2 == 0 { unsafe { pick(n) } } else { plugin::id!(n) } }
#[cfg(test)]
mod tests {
    #[test]
    fn even() { assert_eq!(super::weigh(4), 8); }
    #[test]
    fn odd() { assert_eq!(super::weigh(5), 5); }
    #[test]
    fn also_odd() { assert_eq!(super::weigh(7), 7); }
}
"#;

fn create_subject() -> Place {
    Place::with(&[
        ("Cargo.toml", MANIFEST),
        ("build.rs", BUILD_SCRIPT),
        ("pick.c", "int pick(int n) { if (n > 2) return 2 * n; return n; }\n"),
        ("src/lib.rs", LIBRARY_SOURCE),
        ("src/bin/one.rs", "fn main() { println!(\"{}\", (0..6).map(|n| subject::weigh(n)).sum::<i32>()); }\n"),
        ("src/bin/two.rs", "fn main() { println!(\"two {}\", subject::weigh(3)); std::process::exit(7) }\n"),
        ("plugin/Cargo.toml", "[package]\nname = \"plugin\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[lib]\nproc-macro = true\n"),
        ("plugin/src/lib.rs", "#[proc_macro]\npub fn id(input: proc_macro::TokenStream) -> proc_macro::TokenStream { input }\n"),
        ("shared/Cargo.toml", "[package]\nname = \"shared\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[lib]\ncrate-type = [\"dylib\"]\n"),
        ("shared/src/lib.rs", "#[unsafe(no_mangle)]\npub extern \"C\" fn grade(n: i32) -> i32 { if n > 9 { 9 } else { n } }\n"),
    ])
}

fn run_cargo(place: &Place, arguments: &str) -> Output {
    must(command_outside_cargo(place, cargo_trodden()).arg("trodden").args(arguments.split_whitespace()))
}

/// Creates a command without the variables that cargo sets for tests, because they would change what the command does.
fn command_outside_cargo(place: &Place, program: &Path) -> Command {
    let mut command: Command = place.command(program);
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("CARGO") && n != "CARGO_HOME") {
        command.env_remove(name);
    }
    for name in ["RUSTC_WRAPPER", "RUSTFLAGS", "OUT_DIR", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command
}

#[test]
fn programs_libraries_and_tests_are_counted() {
    let place = create_subject();
    let folder = "target/trodden/x86_64-unknown-linux-gnu/debug";
    check_parameters(&place, folder);
    check_programs(&place, folder);
    check_libraries(&place, folder);
    check_variant(&place, folder);
    check_recorded_tests(&place);
}

/// Checks that cargo rebuilds a program if and only if its counting options change.
fn check_parameters(place: &Place, folder: &str) {
    let built = |options: &str| {
        run_cargo(place, &format!("build --workspace --offline {options}"));
        std::fs::metadata(place.path(folder).join("one")).unwrap().modified().unwrap()
    };
    let first = built("--events tsc");
    assert_eq!(built("--events tsc"), first);
    assert!(built("") > first);
}

fn check_programs(place: &Place, folder: &str) {
    let (printed, profile) = place.record(&format!("{folder}/one"));
    assert_eq!(printed, "19\n");
    assert_eq!(executions(&profile, "weigh"), Some(6));
    assert_eq!(executions(&profile, "pick"), Some(3));
    assert!(place.sources(&format!("{folder}/one")).contains(&"pick.c".to_owned()));
    let output = place
        .command(trodden())
        .args(["record", "--no-store", "-o", "two.trodden", "--"])
        .arg(place.path(folder).join("two"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"two 3\n");
    let profile = Profile::read(&place.path("two.trodden")).unwrap();
    assert_eq!(executions(&profile, "weigh"), Some(1));
}

/// Checks that a `cdylib` contains the module of a complete program, and a `dylib` the module of its own crate.
fn check_libraries(place: &Place, folder: &str) {
    place.write(
        "use.c",
        "#include <stdio.h>\nint weigh(int), grade(int);\nint main(void) { printf(\"%d\\n\", weigh(1) + weigh(4) + \
        grade(12)); return 0; }\n",
    );
    place.shell(&format!(
        "clang-22 use.c -o use {folder}/libsubject.so {folder}/libshared.so -Wl,-rpath,$PWD/{folder}:$(rustc --print sysroot)/lib"
    ));
    let (printed, profile) = place.record("use");
    assert_eq!(printed, "18\n");
    assert_eq!(executions(&profile, "weigh"), Some(2));
    assert_eq!(executions(&profile, "grade"), Some(1));
}

fn check_variant(place: &Place, folder: &str) {
    place.trodden(&format!("instrument {folder}/one -o other --chords off"));
    let (printed, profile) = place.record("other");
    assert_eq!(printed, "19\n");
    assert_eq!(executions(&profile, "weigh"), Some(6));
}

fn check_recorded_tests(place: &Place) {
    run_cargo(place, "test --lib --offline");
    let store = RunStore::open(&place.path(".trodden")).unwrap();
    let runs = store.select("test").unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(executions(&store.load(&runs[0]).unwrap(), "weigh"), Some(3));
    check_each_test(place);
}

/// Checks that each test in a test binary is recorded as a separate run. cargo has already built both binaries.
fn check_each_test(place: &Place) {
    // Without this file, cargo asks rustc for its version again, as it does in a folder without builds.
    std::fs::remove_file(place.path("target/trodden/.rustc_info.json")).unwrap();
    let arguments = "suite run each --cargo -- --lib --offline";
    let output = must(command_outside_cargo(place, trodden()).args(arguments.split_whitespace()));
    let store = RunStore::open(&place.path(".trodden")).unwrap();
    let runs = store.select("each").unwrap();
    let mut tests: Vec<_> = runs.iter().map(|r| r.run.test.clone().unwrap()).collect();
    tests.sort();
    assert_eq!(tests, ["subject::tests::also_odd", "subject::tests::even", "subject::tests::odd"], "{output:?}");
    let picked = |test: &str| {
        let run = runs.iter().find(|r| r.run.test.as_deref() == Some(test)).unwrap();
        executions(&store.load(run).unwrap(), "pick")
    };
    // Only even numbers reach the C function.
    assert_eq!((picked("subject::tests::even"), picked("subject::tests::odd")), (Some(1), Some(0)));
    check_redundant_tests(place);
}

/// Each test is a function of its own, and the harness takes different paths for each test. Only the paths of the tested code show that one
/// of the two tests with odd numbers is redundant.
fn check_redundant_tests(place: &Place) {
    let redundant = |options: &[&str]| {
        let said = must(place.command(trodden()).args(["suite", "list", "each", "--redundant", "--json"]).args(options)).stdout;
        let found: serde_json::Value = serde_json::from_slice(&said).unwrap();
        found["redundant"].as_array().unwrap().iter().map(|t| t["test"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(redundant(&[]), [""; 0]);
    for options in [&["--file", "src", "--except", "::tests::"][..], &["--function", "weigh"]] {
        let found = redundant(options);
        assert!(found.len() == 1 && found[0].ends_with("odd"), "{options:?}: {found:?}");
    }
}
