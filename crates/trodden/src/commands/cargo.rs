//! `cargo trodden`, and the roles that this program plays for cargo and rustc.

use super::coverage;
use crate::cli::{BurstScheduleArguments, CountingArguments};
use crate::context::driver_context;
use crate::output;
use crate::surroundings::recording_context;
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::ExitCode;
use trodden_driver::cargo::{CargoCommand, InstrumentedScope};
use trodden_driver::{cargo, experiment, rust};
use trodden_profile::store;
use trodden_recording::ProfileDestination;
use trodden_recording::record::{self, RunnerCommand};
use trodden_unit::Settings;
use trodden_unit::experiment::Observe;

const HELP_TEXT: &str = "\
Build, run, test or benchmark a Rust workspace with its paths counted.

Usage: cargo trodden <build|run|test|bench|nextest|install> [OPTIONS] [cargo's options] [-- arguments]

Options:
  --dependencies  Count dependencies, too (default: workspace members)
  --std           Count the standard library, too

Options of `trodden build`: --weights FILE, --sample, --addresses, --pgo, --coverage[=mcdc],
--events EVENT, --residual PROFILE, --stream, --flight-recorder PATTERN. The variable
TRODDEN_INSTRUMENT and `trodden-lab with` provide others. All other arguments are cargo's.

Programs go to target/trodden/x86_64-unknown-linux-gnu/PROFILE. `test`, `bench` and `nextest run`
record all programs that they run as one run, in the run store of the workspace; with --coverage,
they print its coverage. `run` records the program. `trodden report` shows the result. After --pgo,
`trodden export profdata` exports a profile for -Cprofile-use.

Each crate is instrumented when it is compiled. A profile with `lto = true`, \"fat\" or \"thin\" is
optimised as a whole, and then counted with its dependencies and the standard library.

Examples:
  cargo trodden test --workspace --coverage
  cargo trodden nextest run --coverage
  cargo trodden build --release
  trodden record -- target/trodden/x86_64-unknown-linux-gnu/release/prog
  cargo trodden run --release -- args
";

/// Runs the command, or acts as rustc's wrapper or linker if cargo or rustc calls this program.
pub fn run(mut arguments: Vec<OsString>) -> Result<ExitCode> {
    match driver_context().variable(rust::ROLE_VARIABLE).and_then(OsStr::to_str) {
        Some(rust::WRAPPER_ROLE) => return rust::run_rustc(driver_context(), arguments, &mut io::stdout()),
        Some(role @ (rust::LINKER_ROLE | rust::CRATE_LINKER_ROLE | rust::TEST_LINKER_ROLE)) => {
            return rust::run_linker(driver_context(), role, arguments);
        }
        _ => {}
    }
    if arguments.first().is_some_and(|a| a == "trodden") {
        arguments.remove(0);
    }
    let Some(verb) = arguments.first().and_then(|a| a.to_str()).filter(|a| !["-h", "--help", "help"].contains(a)) else {
        output::print(HELP_TEXT.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    cargo::check_cargo_verb(verb)?;
    let typed = ["cargo", "trodden"].into_iter().map(OsString::from).chain(arguments.iter().cloned()).collect();
    let settings = extract_instrumentation_settings(&mut arguments)?;
    let scope =
        InstrumentedScope { dependencies: remove_flag(&mut arguments, "--dependencies"), std: remove_flag(&mut arguments, "--std") };
    let own = settings.clone().or(experiment::from_environment(driver_context())?);
    match own.observe {
        // Streams and branches are stored as one run per program, so `record_tests`, which makes one run of all processes, does not apply.
        Some(Observe::Stream | Observe::Addresses | Observe::Trace) => cargo::run(driver_context(), arguments, settings, scope),
        observe => match cargo::command_for_tests(driver_context(), &arguments, &settings, scope)? {
            Some(tests) => {
                let covered = (observe == Some(Observe::Coverage)).then_some(scope);
                record_tests(tests, typed, &arguments, covered)
            }
            None => cargo::run(driver_context(), arguments, settings, scope),
        },
    }
}

const TEST_SUITE: &str = "test";
const BENCHMARK_SUITE: &str = "bench";

/// Runs tests and records all their processes as one run in the workspace's run store. Reports the coverage of the code in `covered`, if
/// given.
fn record_tests(tests: CargoCommand, typed: Vec<OsString>, arguments: &[OsString], covered: Option<InstrumentedScope>) -> Result<ExitCode> {
    store::set_store_folder(tests.workspace.join(store::FOLDER));
    let suite = if arguments.first().is_some_and(|verb| verb == "bench") { BENCHMARK_SUITE } else { TEST_SUITE };
    let what = RunnerCommand {
        command: tests.command,
        typed,
        output_variable: rust::OUTPUT_VARIABLE,
        images: tests.images,
        destination: ProfileDestination { suite: Some(suite.to_owned()), ..ProfileDestination::default() },
    };
    let bursts = BurstScheduleArguments { burst: None, every: None };
    let (status, is_recorded) = record::run_through_runner(what, bursts.to_burst_schedule(), &recording_context())?;
    if let Some(scope) = covered.filter(|_| is_recorded) {
        coverage::report_coverage_of_last_run(scope.dependencies)?;
    }
    Ok(status)
}

/// Removes an option that has no value from the arguments before `--`. Returns true if the option was there.
fn remove_flag(arguments: &mut Vec<OsString>, option: &str) -> bool {
    let end = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
    let rest = arguments.split_off(end);
    let before = arguments.len();
    arguments.retain(|argument| argument != option);
    let was_given = arguments.len() < before;
    arguments.extend(rest);
    was_given
}

/// Removes trodden's own options from the arguments before `--` and returns them as settings.
pub fn extract_instrumentation_settings(arguments: &mut Vec<OsString>) -> Result<Settings> {
    let end = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
    let rest = arguments.split_off(end);
    let parameters = CountingArguments::extract_from(arguments)?;
    arguments.extend(rest);
    Ok(parameters.settings())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_options_are_removed_and_cargo_options_remain() {
        let text = "run --release --pgo --weights w --bin x --events=tsc --sample -- --release --pgo";
        let mut arguments = text.split(' ').map(OsString::from).collect();
        let settings = extract_instrumentation_settings(&mut arguments).unwrap();
        assert_eq!(arguments, ["run", "--release", "--bin", "x", "--", "--release", "--pgo"].map(OsString::from));
        assert_eq!(settings.to_string(), "when=bursts observe=edge-profile events=tsc weights=w");
    }
}
