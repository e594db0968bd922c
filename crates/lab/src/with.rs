//! `trodden-lab with`: a command of trodden with choices that it has no options for.
//!
//! They are handed over in an environment variable, so that the processes which the command starts read them, too.

use crate::cli::With;
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use trodden_console::arguments::laboratory::{GivenChoice, LABORATORY_VARIABLE, names};
use trodden_unit::Settings;
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;

/// Becomes the command.
///
/// # Errors
/// A choice does not concern the command, or `trodden` cannot be run.
pub fn run(job: &With) -> Result<ExitCode> {
    let words: Vec<&str> = job.command.iter().map(|word| word.to_str().unwrap_or("")).collect();
    ensure!(!job.given.given.is_empty(), "give a choice: {}", names());
    for choice in &job.given.given {
        let GivenChoice { option, commands, .. } = choice;
        if !choice.concerns(&words) {
            let list: Vec<String> = commands.iter().map(|command| full_name(command)).collect();
            bail!("{option} does not concern {}: it is for {}", full_name(words[0]), list.join(", "));
        }
    }
    let program = trodden()?;
    let mut command = Command::new(&program);
    match &words[..] {
        ["cc" | "c++", ..] => command.args(&job.command),
        ["cargo", "trodden", ..] => command.arg0("cargo-trodden").args(&job.command[2..]),
        _ => command.args(&job.command).env(LABORATORY_VARIABLE, job.given.spelled()),
    };
    // Drivers have settings, not options.
    if let ["cc" | "c++" | "cargo", ..] = &words[..] {
        let before = env::var_os(SETTINGS_VARIABLE).map(|text| Settings::from_variable(&text)).transpose()?.unwrap_or_default();
        command.env(SETTINGS_VARIABLE, job.given.choices.counting.settings().over(before).to_string());
    }
    Err(command.exec()).with_context(|| format!("cannot run {}", program.display()))
}

/// A command as it is typed.
fn full_name(command: &str) -> String {
    match command.starts_with("cargo") {
        true => format!("`{command}`"),
        false => format!("`trodden {command}`"),
    }
}

/// The command `trodden`, which lies beside this program.
fn trodden() -> Result<PathBuf> {
    let own = env::current_exe().context("cannot find the running program's own file (is /proc mounted?)")?;
    let program = own.with_file_name("trodden");
    ensure!(program.is_file(), "{} is not there: both programs lie in one folder", program.display());
    Ok(program)
}
