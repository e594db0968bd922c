//! `cargo xtask release-check`: runs all checks that a release must pass, including those that take too long to run for every change.

use crate::corpus::{CLANG_VARIABLE, OWN_PROGRAM};
use crate::suite::{self, OLDEST_CLANG};
use anyhow::{Result, bail};
use std::process::Command;
use std::time::Instant;
use trodden_corpus::steps;

/// Arguments of the `cargo xtask` commands to run.
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

/// Commands that are run again with the oldest clang that trodden supports.
const OLDEST_CLANG_TASKS: &[&[&str]] = &[&["corpus", "run", "all"], &["oracle"]];

/// More random programs for the tests of `trodden-oracle`: the variable that selects them, and their seeds.
const ORACLE_SEEDS: (&str, &str) = ("TRODDEN_ORACLE_SEEDS", "0-19");

/// Runs all commands, even after one has failed. Fails if a command failed. The message names all commands that failed.
pub fn run() -> Result<()> {
    let mut failed = Vec::new();
    for (name, mut task) in tasks() {
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

/// All tasks in order, with their names.
fn tasks() -> Vec<(String, Command)> {
    let own = |arguments: &[&str]| {
        let mut command = Command::new(OWN_PROGRAM);
        command.args(arguments);
        command
    };
    let mut tasks: Vec<_> = RELEASE_TASKS.iter().map(|arguments| (arguments.join(" "), own(arguments))).collect();
    let mut oracle = suite::test_files(&["interesting", "residual", "branches", "sample"]);
    oracle.envs([ORACLE_SEEDS]);
    tasks.push((format!("oracle tests with seeds {}", ORACLE_SEEDS.1), oracle));
    for arguments in OLDEST_CLANG_TASKS {
        let mut command = own(arguments);
        command.env(CLANG_VARIABLE, OLDEST_CLANG);
        tasks.push((format!("{} with {OLDEST_CLANG}", arguments.join(" ")), command));
    }
    tasks
}
