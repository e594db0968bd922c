//! `trodden-lab with`: runs a trodden command with settings for which the command has no options. They are passed in an environment
//! variable, so that the processes started by the command can also read them.

use crate::cli::WithArguments;
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use trodden_console::arguments::laboratory::{GivenChoice, LABORATORY_VARIABLE, option_names};
use trodden_unit::Settings;
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;

/// Replaces this process with the command. Fails if a choice does not apply to the command, or if `trodden` cannot be run.
pub fn run(job: &WithArguments) -> Result<ExitCode> {
    let words: Vec<&str> = job.command.iter().map(|word| word.to_str().unwrap_or("")).collect();
    ensure!(!job.given.given.is_empty(), "no option is given. Add at least one of {}", option_names());
    for choice in &job.given.given {
        let GivenChoice { option, commands, .. } = choice;
        if !choice.applies_to(&words) {
            let list: Vec<String> = commands.iter().map(|command| full_command_name(command)).collect();
            bail!("{option} does not apply to {}, only to {}", full_command_name(words[0]), list.join(", "));
        }
    }
    let program = trodden_program()?;
    let mut command = Command::new(&program);
    match &words[..] {
        ["cc" | "c++", ..] => command.args(&job.command),
        ["cargo", "trodden", ..] => command.arg0("cargo-trodden").args(&job.command[2..]),
        _ => command.args(&job.command).env(LABORATORY_VARIABLE, job.given.to_variable_value()),
    };
    // cargo and the compiler drivers are configured by the settings variable instead of options.
    if let ["cc" | "c++" | "cargo", ..] = &words[..] {
        let before = env::var_os(SETTINGS_VARIABLE).map(|text| Settings::from_variable(&text)).transpose()?.unwrap_or_default();
        command.env(SETTINGS_VARIABLE, job.given.choices.counting.settings().or(before).to_string());
    }
    Err(command.exec()).with_context(|| format!("cannot run {}", program.display()))
}

fn full_command_name(command: &str) -> String {
    match command.starts_with("cargo") {
        true => format!("`{command}`"),
        false => format!("`trodden {command}`"),
    }
}

/// Returns the path of the `trodden` command, which is installed beside this program.
fn trodden_program() -> Result<PathBuf> {
    let own = env::current_exe().context("cannot find trodden's own executable (is /proc mounted?)")?;
    let program = own.with_file_name("trodden");
    ensure!(program.is_file(), "{} does not exist. Install trodden and trodden-lab in the same folder", program.display());
    Ok(program)
}
