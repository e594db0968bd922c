//! Other programs: finding them, giving them options, running them to their end.

use crate::context::DriverContext;
use crate::toolchain::on_path;
use anyhow::{Context, Result, ensure};
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The file that the first word of a command names: itself if it has a slash, else on the search path.
pub fn named(context: &DriverContext, word: &OsStr) -> Option<PathBuf> {
    if word.as_encoded_bytes().contains(&b'/') { Some(word.into()) } else { on_path(context, word) }
}

/// An option with its value behind it, in one word.
pub fn joined(option: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut word = OsString::from(option);
    word.push(value);
    word
}

/// What a command printed.
///
/// # Errors
/// It did not succeed: `failed`, and what it wrote to standard error.
pub fn succeeded(output: Output, failed: impl Display) -> Result<Vec<u8>> {
    ensure!(output.status.success(), "{failed}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

/// The same of a command that is run for it.
///
/// # Errors
/// As above, or it cannot be run.
pub fn run(command: &mut Command) -> Result<Vec<u8>> {
    let program = command.get_program().display().to_string();
    succeeded(command.output().with_context(|| format!("cannot run {program}"))?, format_args!("{program} fails"))
}
