//! `cargo xtask release-check`: all checks that a release must pass, including those that take too long for every change.

use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Instant;
use trodden_corpus::steps;

/// The arguments of the `cargo xtask` commands to run.
const TASKS: &[&[&str]] = &[
    &["test"],
    &["sessions", "--slow"],
    &["corpus", "run", "all"],
    &["oracle"],
    &["oracle", "--seeds", "200"],
    &["fuzz", "--seconds", "300"],
    &["disturb", "--rounds", "200"],
    &["dist", "--check"],
];

/// Runs all tasks, even after one has failed.
///
/// # Errors
/// A task failed; the message names all failed tasks.
pub fn run() -> Result<()> {
    let this = std::env::current_exe().context("cannot find the executable of xtask")?;
    let mut failed = Vec::new();
    for task in TASKS {
        let name = task.join(" ");
        let started = Instant::now();
        let result = steps::run(Command::new(&this).args(*task));
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
