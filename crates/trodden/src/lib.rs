//! The command `trodden` and its other names. Thin: algorithms and formats are in the other crates.
//!
//! | room | what |
//! |---|---|
//! | `cli` | syntax of the command line, and nothing else |
//! | `commands` | one file or folder for each verb |
//! | `last_store.rs` | where the last run was stored |
//! | `context.rs`, `surroundings.rs`, `temporary.rs` | what libraries are given of this process; where temporary files lie |
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod context;
mod last_store;
mod surroundings;
mod temporary;

use anyhow::{Error, Result};
use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, FromArgMatches};
use cli::Cli;
use context::context;
use signal_hook::consts::signal::SIGXFSZ;
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use trodden_console::arguments::laboratory::LaboratoryChoices;
use trodden_console::{notes, output, program};
use trodden_driver::compile_step::SourceLanguage;
use trodden_driver::{cc, stand_ins};

/// Commands that are the laboratory's.
const IN_THE_LABORATORY: [&str; 4] = ["graph", "loops", "man", "plan"];

/// Runs the command under the name by which it was called.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    let called = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let name = &*called.to_string_lossy().into_owned();
    notes::show_log();
    survive_file_size_limit();
    trodden_profile::temporary::before_names(trodden_launch::temporary::remove_on_signals);
    last_store::end(run(name, arguments))
}

/// A write beyond the limit of file sizes (`ulimit -f`) fails from now on, and does not end trodden. By a handler, since programs that
/// we start would inherit that the signal is ignored, and handlers not.
fn survive_file_size_limit() {
    if !trodden_launch::signals::ignored_signals().contains(&SIGXFSZ) {
        // Where that cannot be, the signal ends us as before.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

fn run(name: &str, arguments: Vec<OsString>) -> Result<ExitCode> {
    if name.starts_with("trodden-") || name.starts_with("cargo-") || stand_ins::language(name).is_some() {
        surroundings::read_variables()?;
    }
    let rest = |from: usize| arguments.get(from..).unwrap_or_default().to_vec();
    match name {
        "trodden-cc" => return cc::drive(context(), SourceLanguage::C, rest(1)),
        "trodden-c++" => return cc::drive(context(), SourceLanguage::Cxx, rest(1)),
        "cargo-trodden" => return commands::cargo(rest(1)),
        _ => {}
    }
    if let Some(language) = stand_ins::language(name) {
        return cc::drive(context(), language, rest(1));
    }
    // The arguments of compiler drivers are clang's: nothing else reads them first.
    match arguments.get(1).and_then(|a| a.to_str()) {
        Some("cc" | "c++") if arguments.get(2).is_some_and(|a| a == "--help") => own_help(&arguments),
        Some("cc") => surroundings::read_variables().and_then(|()| cc::drive(context(), SourceLanguage::C, rest(2))),
        Some("c++") => surroundings::read_variables().and_then(|()| cc::drive(context(), SourceLanguage::Cxx, rest(2))),
        _ => {
            let parsed = cli::command_line().try_get_matches_from(arguments);
            match parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches))) {
                Ok((mut command, matches)) => {
                    surroundings::read_variables()?;
                    let choices = LaboratoryChoices::from_environment(&words_of(&matches)).map_err(Error::msg)?;
                    command.command.take_choices(&choices)?;
                    commands::run(command)
                }
                // Help and versions come this way, too.
                Err(said) => {
                    let status = program::said_by_clap(&said)?;
                    if let Some(ContextValue::String(verb)) = said.get(ContextKind::InvalidSubcommand)
                        && IN_THE_LABORATORY.contains(&verb.as_str())
                    {
                        notes::note(format_args!("`trodden-lab {verb}` has this command"));
                    }
                    Ok(status)
                }
            }
        }
    }
}

/// Prints what `trodden cc` adds to clang. Only this very command line is ours: builds ask a compiler for its help by other names.
fn own_help(arguments: &[OsString]) -> Result<ExitCode> {
    let words = [OsString::from("trodden"), OsString::from("help"), arguments[1].clone()];
    match cli::command_line().try_get_matches_from(words) {
        Err(said) => program::said_by_clap(&said),
        Ok(_) => unreachable!("`help` always ends the reading of a command line"),
    }
}

/// The words that name a command.
fn words_of(matches: &ArgMatches) -> Vec<&str> {
    std::iter::successors(matches.subcommand(), |(_, of)| of.subcommand()).map(|(word, _)| word).collect()
}

/// What the laboratory (`trodden-lab`) uses of the command.
pub mod laboratory {
    pub use crate::cli::{Untested, UntestedFormat};
    pub use crate::commands::simulate::run as simulate;
    pub use crate::commands::{SchemeRequest, compare_schemes, hot};
    pub use crate::context::context;
    pub use crate::last_store::end;
    pub use crate::surroundings::{folders, read_variables};
    pub use trodden_report::residual::UntestedOrder;

    /// The definition of the command line, for manual pages.
    pub fn definition() -> clap::Command {
        <crate::cli::Cli as clap::CommandFactory>::command()
    }
}

/// Readers of the command, for the fuzz targets.
#[doc(hidden)]
pub mod fuzzing {
    use anyhow::Result;
    use std::ffi::OsString;
    use std::process::ExitCode;

    /// Runs the command with arguments, without its name.
    ///
    /// # Errors
    /// Those of the command.
    pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
        crate::run("trodden", [OsString::from("trodden")].into_iter().chain(arguments).collect())
    }

    /// Reads what `otf2-print` prints of an archive's definitions and events.
    ///
    /// # Errors
    /// A line is not understood.
    pub fn otf2(definitions: &[u8], events: &[u8]) -> Result<()> {
        trodden_waits_file::import::read_otf2_text(definitions, events)
    }
}
