//! The command `trodden` and its other names: command line and output. Algorithms and formats are in other crates.
//!
//! | module | contents |
//! |---|---|
//! | `cli` | syntax of the command line |
//! | `commands` | one file or folder per command |
//! | `debuginfod.rs` | debug files from servers |
//! | `last_store.rs` | location of the last used run store |
//! | `rust_sources.rs` | sources of Rust's standard library |
//! | `context.rs`, `surroundings.rs`, `temporary.rs` | environment of the process, for the libraries; temporary folders |
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod context;
mod debuginfod;
mod last_store;
mod rust_sources;
mod surroundings;
mod temporary;

use anyhow::{Error, Result};
use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, FromArgMatches};
use cli::Cli;
use context::driver_context;
use signal_hook::consts::signal::SIGXFSZ;
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use trodden_console::arguments::laboratory::LaboratoryChoices;
use trodden_console::{notes, output, program};
use trodden_driver::assets::{CARGO_RUNNER, RUSTDOC_DRIVER};
use trodden_driver::compile_step::SourceLanguage;
use trodden_driver::{cc, rust, stand_ins};

/// Commands that exist only in `trodden-lab`. If the user gives one of them to `trodden`, a note says where it is.
const LABORATORY_COMMANDS: [&str; 6] = ["completions", "graph", "loops", "man", "patterns", "plan"];

/// Runs the command that the program's file name and its arguments select.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    let called = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let name = &*called.to_string_lossy().into_owned();
    notes::install_logger();
    survive_file_size_limit();
    trodden_profile::temporary::set_registry_lock_hook(trodden_launch::temporary::remove_folders_on_signals);
    last_store::print_error_and_suggest_store(run(name, arguments))
}

/// Makes writes beyond the file size limit (`ulimit -f`) fail; otherwise, they would kill trodden. The signal gets a handler instead of
/// being ignored, because the programs that trodden starts would inherit the ignored signal.
fn survive_file_size_limit() {
    if !trodden_launch::signals::ignored_signals().contains(&SIGXFSZ) {
        // Without a handler, the signal kills trodden.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

fn run(name: &str, arguments: Vec<OsString>) -> Result<ExitCode> {
    if name.starts_with("trodden-") || name.starts_with("cargo-") || stand_ins::language_of_compiler(name).is_some() {
        surroundings::read_environment_variables()?;
    }
    let rest = |from: usize| arguments.get(from..).unwrap_or_default().to_vec();
    match name {
        "trodden-cc" => return cc::drive(driver_context(), SourceLanguage::C, rest(1)),
        "trodden-c++" => return cc::drive(driver_context(), SourceLanguage::Cxx, rest(1)),
        "cargo-trodden" => return commands::cargo(rest(1)),
        RUSTDOC_DRIVER => return rust::run_rustdoc(driver_context(), &rest(1)),
        CARGO_RUNNER => return rust::run_program(driver_context(), &rest(1)),
        _ => {}
    }
    if let Some(language) = stand_ins::language_of_compiler(name) {
        return cc::stand_in_for_compiler(driver_context(), name, language, rest(1));
    }
    // Apart from `--help`, all arguments of the compiler drivers are for clang, so clap must not parse them.
    match arguments.get(1).and_then(|a| a.to_str()) {
        Some("cc" | "c++") if arguments.get(2).is_some_and(|a| a == "--help") => print_driver_help(&arguments),
        Some("cc") => surroundings::read_environment_variables().and_then(|()| cc::drive(driver_context(), SourceLanguage::C, rest(2))),
        Some("c++") => surroundings::read_environment_variables().and_then(|()| cc::drive(driver_context(), SourceLanguage::Cxx, rest(2))),
        _ => {
            let parsed = cli::command_line().try_get_matches_from(arguments);
            match parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches))) {
                Ok((mut command, matches)) => {
                    surroundings::read_environment_variables()?;
                    let choices = LaboratoryChoices::from_environment(&subcommand_words(&matches)).map_err(Error::msg)?;
                    command.command.apply_laboratory_choices(&choices)?;
                    commands::run(command)
                }
                // clap also reports `--help` and `--version` as errors.
                Err(output) => {
                    let status = program::print_clap_output(&output)?;
                    if let Some(ContextValue::String(verb)) = output.get(ContextKind::InvalidSubcommand)
                        && LABORATORY_COMMANDS.contains(&verb.as_str())
                    {
                        notes::note(format_args!(
                            "`trodden {verb}` is a command of trodden-lab, the program for experiments. Run `trodden-lab {verb}`"
                        ));
                    }
                    Ok(status)
                }
            }
        }
    }
}

/// Prints trodden's own help for `trodden cc --help`. Builds that query a compiler's help call the driver by its other name, and thus get
/// clang's help.
fn print_driver_help(arguments: &[OsString]) -> Result<ExitCode> {
    let words = [OsString::from("trodden"), OsString::from("help"), arguments[1].clone()];
    match cli::command_line().try_get_matches_from(words) {
        Err(output) => program::print_clap_output(&output),
        Ok(_) => unreachable!("clap reports `help` as an error"),
    }
}

/// Returns the words of the selected command, such as `trace` and `record`.
fn subcommand_words(matches: &ArgMatches) -> Vec<&str> {
    std::iter::successors(matches.subcommand(), |(_, matches)| matches.subcommand()).map(|(word, _)| word).collect()
}

/// The items of this crate that `trodden-lab` uses.
pub mod laboratory {
    pub use crate::cli::UntestedArguments;
    pub use crate::commands::simulate::run as simulate;
    pub use crate::commands::{SchemeComparisonRequest, compare_schemes, find_stream_to_read, show_field_counts_of_hot_paths};
    pub use crate::context::driver_context;
    pub use crate::last_store::print_error_and_suggest_store;
    pub use crate::surroundings::{folders, read_environment_variables};
    pub use trodden_report::residual::UntestedOrder;

    /// Returns the definition of the command line, for manual pages and completions.
    pub fn command_line_definition() -> clap::Command {
        <crate::cli::Cli as clap::CommandFactory>::command()
    }
}

/// Entry points for the fuzz targets.
#[doc(hidden)]
pub mod fuzzing {
    use anyhow::Result;
    use std::ffi::OsString;
    use std::process::ExitCode;

    /// Runs the command with arguments that do not include the program's name. Errors: any error of the command.
    pub fn run_trodden(arguments: Vec<OsString>) -> Result<ExitCode> {
        crate::run("trodden", [OsString::from("trodden")].into_iter().chain(arguments).collect())
    }

    /// Parses the text that `otf2-print` prints for an archive's definitions and events. Fails if a line is malformed.
    pub fn parse_otf2_text(definitions: &[u8], events: &[u8]) -> Result<()> {
        trodden_waits_file::import::read_otf2_text(definitions, events)
    }
}
