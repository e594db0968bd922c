//! `cargo trodden`, and the roles in which cargo and rustc call the same program.

use crate::cli::Parameters;
use crate::context::context;
use crate::output;
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::ExitCode;
use trodden_driver::{cargo, rust};
use trodden_unit::Settings;

const HELP: &str = "\
Build, run, test or benchmark a Rust package with its paths counted.

Usage: cargo trodden <build|run|test|bench> [OPTIONS] [cargo's options] [-- arguments]

Options, as of `trodden build`: --weights FILE, --sample, --addresses, --pgo, --coverage[=mcdc],
--events EVENT, --residual PROFILE, --stream, --flight-recorder PATTERN. The variable
TRODDEN_INSTRUMENT and `trodden-lab with` provide others. All other arguments are cargo's.

Programs go to target/trodden/x86_64-unknown-linux-gnu/PROFILE. `run`, `test` and `bench` record the
programs they run; `trodden report` shows the result. After --pgo, `trodden export profdata` exports
a profile for -Cprofile-use.

Examples:
  cargo trodden build --release
  trodden record -- target/trodden/x86_64-unknown-linux-gnu/release/prog
  cargo trodden run --release -- args
  cargo trodden test
";

/// Runs the command, or acts as rustc's wrapper or linker: cargo and rustc call the same program.
pub fn run(mut arguments: Vec<OsString>) -> Result<ExitCode> {
    match context().variable(rust::ROLE_VARIABLE).and_then(OsStr::to_str) {
        Some(rust::WRAPPER_ROLE) => return rust::run_rustc(context(), arguments, &mut io::stdout()),
        Some(rust::LINKER_ROLE) => return rust::run_linker(context(), arguments),
        _ => {}
    }
    if arguments.first().is_some_and(|a| a == "trodden") {
        arguments.remove(0);
    }
    let Some(verb) = arguments.first().and_then(|a| a.to_str()).filter(|a| !["-h", "--help", "help"].contains(a)) else {
        output::print(HELP.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    cargo::check_verb(verb)?;
    let settings = take_settings(&mut arguments)?;
    cargo::run(context(), arguments, settings)
}

/// Removes trodden's own options from the arguments before `--`, and returns them as settings.
pub fn take_settings(arguments: &mut Vec<OsString>) -> Result<Settings> {
    let end = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
    let rest = arguments.split_off(end);
    let parameters = Parameters::extract_from(arguments)?;
    arguments.extend(rest);
    Ok(parameters.settings())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_options_are_removed_and_cargos_stay() {
        let text = "run --release --pgo --weights w --bin x --events=tsc --sample -- --release --pgo";
        let mut arguments = text.split(' ').map(OsString::from).collect();
        let settings = take_settings(&mut arguments).unwrap();
        assert_eq!(arguments, ["run", "--release", "--bin", "x", "--", "--release", "--pgo"].map(OsString::from));
        assert_eq!(settings.to_string(), "when=bursts observe=edge-profile events=tsc weights=w");
    }
}
