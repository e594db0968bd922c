//! `trodden-lab with`: a command of trodden with choices that it has no options for.
//!
//! They are handed over in an environment variable, so that the processes which the command starts read them, too.

use crate::cli::With;
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use trodden_console::arguments::choices::{word, word_for};
use trodden_console::arguments::laboratory::{LABORATORY_VARIABLE, LaboratoryChoices};
use trodden_console::arguments::partition::{COPY_STRATEGIES, HITS};
use trodden_unit::experiment::Spelling;
use trodden_unit::experiment::spelling::SETTINGS_VARIABLE;

/// Becomes the command.
///
/// # Errors
/// A choice does not concern the command, or `trodden` cannot be run.
pub fn run(job: &With) -> Result<ExitCode> {
    let words: Vec<&str> = job.command.iter().map(|word| word.to_str().unwrap_or("")).collect();
    let options = options(&job.choices);
    ensure!(!options.is_empty(), "give a choice: --scheme, --strategy, --hits, --all-procedures, --count-hits or --collector");
    for (option, _) in &options {
        let concerned = concerned(option);
        if !concerned.iter().any(|command| words.starts_with(command)) {
            let list: Vec<String> = concerned.iter().map(|command| format!("`trodden {}`", command.join(" "))).collect();
            bail!("{option} does not concern `trodden {}`: it is for {}", words[0], list.join(", "));
        }
    }
    let program = trodden()?;
    let mut command = Command::new(&program);
    command.args(&job.command);
    let spelled: Vec<String> = options.iter().flat_map(|(option, value)| [Some((*option).to_owned()), value.clone()]).flatten().collect();
    command.env(LABORATORY_VARIABLE, spelled.join(" "));
    // Drivers have settings, not options.
    if let (Some(scheme), ["cc" | "c++", ..]) = (job.choices.scheme, &words[..]) {
        let before = env::var(SETTINGS_VARIABLE).unwrap_or_default();
        command.env(SETTINGS_VARIABLE, format!("{before} scheme={}", scheme.name()).trim_start());
    }
    Err(command.exec()).with_context(|| format!("cannot run {}", program.display()))
}

/// The choices that were made, as options and their values.
fn options(choices: &LaboratoryChoices) -> Vec<(&'static str, Option<String>)> {
    let is_given = |given: bool| given.then_some(None);
    let all = [
        ("--scheme", choices.scheme.map(|scheme| Some(scheme.name().to_owned()))),
        ("--strategy", choices.strategy.map(|strategy| Some(word_for(&COPY_STRATEGIES, &strategy).to_owned()))),
        ("--hits", choices.hits.map(|hits| Some(word_for(&HITS, &hits).to_owned()))),
        ("--all-procedures", is_given(choices.all_procedures)),
        ("--count-hits", is_given(choices.count_hits)),
        ("--collector", choices.collector.map(|collector| Some(word(collector)))),
    ];
    all.into_iter().filter_map(|(option, value)| Some((option, value?))).collect()
}

/// The commands that an option concerns.
fn concerned(option: &str) -> &'static [&'static [&'static str]] {
    match option {
        "--scheme" => &[&["cc"], &["c++"], &["build"], &["instrument"]],
        "--strategy" | "--all-procedures" => &[&["record"], &["fleet", "copies"]],
        "--hits" | "--count-hits" => &[&["record"]],
        _ => &[&["trace", "record"]],
    }
}

/// The command `trodden`, which lies beside this program.
fn trodden() -> Result<PathBuf> {
    let own = env::current_exe().context("cannot find the running program's own file (is /proc mounted?)")?;
    let program = own.with_file_name("trodden");
    ensure!(program.is_file(), "{} is not there: both programs lie in one folder", program.display());
    Ok(program)
}
