//! `cargo xtask release-check`: what takes too long for each change, and must hold before a release.

use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Instant;
use trodden_corpus::steps;

/// The tasks, as they would be typed.
const TASKS: &[&[&str]] = &[
    &["test"],
    &["corpus", "run", "all"],
    &["oracle"],
    &["oracle", "--seeds", "200"],
    &["fuzz", "--seconds", "300"],
    &["disturb", "--rounds", "200"],
    &["dist", "--check"],
];

/// Runs all tasks, those after a failed one too.
///
/// # Errors
/// One or more failed; the message names them.
pub fn run() -> Result<()> {
    let this = std::env::current_exe().context("cannot find the program of xtask")?;
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
        bail!("failed: {}", failed.join("; "));
    }
    Ok(())
}
