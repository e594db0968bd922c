//! `cargo xtask release-check`: runs all checks that a release must pass, including those that take too long for every change.

use crate::corpus::{CLANG_VARIABLE, OWN_PROGRAM_PATH};
use crate::suite::{self, OLDEST_CLANG};
use anyhow::{Result, bail};
use std::process::Command;
use std::time::Instant;
use trodden_corpus::steps;

/// The `cargo xtask` commands to run, as lists of arguments.
const RELEASE_TASKS: &[&[&str]] = &[
    &["test"],
    &["sessions", "--slow"],
    &["corpus", "run", "all"],
    &["oracle"],
    &["oracle", "--seeds", "200"],
    &["fuzz", "--seconds", "300"],
    &["disturb", "--rounds", "200"],
    &["dist", "--check"],
];

/// `cargo xtask` commands to run again with [`OLDEST_CLANG`].
const OLDEST_CLANG_TASKS: &[&[&str]] = &[&["corpus", "run", "all"], &["oracle"]];

/// Test files that are also run with the oldest clang. They compare counts with those of LLVM's own instrumentation and of other builds.
const OLDEST_CLANG_TESTS: [&str; 4] = ["lines", "pgo", "oracles", "random"];

/// The environment variable that selects the random programs for the tests of `trodden-oracle`, and the seeds of these programs. They are
/// more than in `cargo xtask test`.
const ORACLE_SEEDS: (&str, &str) = ("TRODDEN_ORACLE_SEEDS", "0-19");

/// The environment variable that says how often the programs of `guard` repeat what their threads do, and its value.
const GUARD_ROUNDS: (&str, &str) = ("TRODDEN_TEST_ROUNDS", "10");

/// Runs all tasks, even after one of them has failed. Fails if any task has failed; the error names all that did.
pub fn run() -> Result<()> {
    let mut failed = Vec::new();
    for (name, mut task) in list_tasks() {
        let started = Instant::now();
        let result = steps::run(&mut task);
        eprintln!("\n== {name}: {}, {} s", if result.is_ok() { "passed" } else { "failed" }, started.elapsed().as_secs());
        if result.is_err() {
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("these tasks failed: {}", failed.join("; "));
    }
    Ok(())
}

/// Returns all tasks in the order of running, each with its name.
fn list_tasks() -> Vec<(String, Command)> {
    let own = |arguments: &[&str]| {
        let mut command = Command::new(OWN_PROGRAM_PATH);
        command.args(arguments);
        command
    };
    let mut tasks: Vec<_> = RELEASE_TASKS.iter().map(|arguments| (arguments.join(" "), own(arguments))).collect();
    let mut oracle = suite::test_files_command(&["interesting", "residual", "branches", "sample"]);
    oracle.envs([ORACLE_SEEDS]);
    tasks.push((format!("oracle tests with seeds {}", ORACLE_SEEDS.1), oracle));
    let mut guard = suite::test_files_command(&["guard"]);
    guard.envs([GUARD_ROUNDS]);
    tasks.push((format!("guard tests with {} rounds", GUARD_ROUNDS.1), guard));
    tasks.push((format!("tests of counts with {OLDEST_CLANG}"), suite::command_for_oldest_clang_tests(&OLDEST_CLANG_TESTS)));
    for arguments in OLDEST_CLANG_TASKS {
        let mut command = own(arguments);
        command.env(CLANG_VARIABLE, OLDEST_CLANG);
        tasks.push((format!("{} with {OLDEST_CLANG}", arguments.join(" ")), command));
    }
    tasks
}
