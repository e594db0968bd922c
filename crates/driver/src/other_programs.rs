//! Finds and runs other programs.

use crate::context::DriverContext;
use crate::toolchain::find_on_path;
use anyhow::{Context, Result, ensure};
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Returns the program that the first word of a command names: the word itself if it contains a slash, otherwise a file on the search path.
pub fn find_program(context: &DriverContext, word: &OsStr) -> Option<PathBuf> {
    if word.as_encoded_bytes().contains(&b'/') { Some(word.into()) } else { find_on_path(context, word) }
}

/// Joins an option and its value to one word.
pub fn option_with_value(option: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut word = OsString::from(option);
    word.push(value);
    word
}

/// Returns the standard output of a finished command. If the command did not succeed, fails with the message `failed`, followed by the
/// command's standard error output.
pub fn checked_stdout(output: Output, failed: impl Display) -> Result<Vec<u8>> {
    ensure!(output.status.success(), "{failed}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

/// Runs a command and returns its standard output.
pub fn run(command: &mut Command) -> Result<Vec<u8>> {
    let program = command.get_program().display().to_string();
    checked_stdout(command.output().with_context(|| format!("cannot run {program}"))?, format_args!("{program} failed"))
}
