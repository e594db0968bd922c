//! `cargo xtask release-check`: runs all checks that a release must pass, including those that take too long to run for every change.

use crate::corpus::{CLANG_VARIABLE, OWN_PROGRAM};
use crate::suite::OLDEST_CLANG;
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

/// Runs all commands, even after one has failed. Fails if a command failed. The message names all commands that failed.
pub fn run() -> Result<()> {
    let mut failed = Vec::new();
    let again = OLDEST_CLANG_TASKS.iter().map(|task| (task, Some(OLDEST_CLANG)));
    for (task, clang) in RELEASE_TASKS.iter().map(|task| (task, None)).chain(again) {
        let name = [task.join(" "), clang.map(|clang| format!(" with {clang}")).unwrap_or_default()].concat();
        let started = Instant::now();
        let mut command = Command::new(OWN_PROGRAM);
        command.args(*task);
        if let Some(clang) = clang {
            command.env(CLANG_VARIABLE, clang);
        }
        let result = steps::run(&mut command);
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
