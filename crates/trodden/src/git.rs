//! What git says of sources.

use anyhow::{Context, Result, ensure};
use std::process::Command;

/// The difference from a commit to the files as they are, in the unified form, without context.
///
/// # Errors
/// git cannot be run, or knows no such commit.
pub fn difference(commit: &str) -> Result<String> {
    let words = ["diff", "--unified=0", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/", commit, "--"];
    let output = Command::new("git").args(words).output().context("cannot run git")?;
    ensure!(output.status.success(), "git diff {commit}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
