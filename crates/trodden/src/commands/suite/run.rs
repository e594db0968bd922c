//! `trodden suite run` and the hidden `trodden suite step`: run tests from a list of commands, from ctest or from cargo.

use crate::cli::SuiteRunArguments;
use crate::commands::cargo::extract_instrumentation_settings;
use crate::context::driver_context;
use crate::notes::{note, warn};
use crate::output;
use crate::surroundings::recording_context;
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use trodden_driver::cargo;
use trodden_profile::store::check_suite_name;
use trodden_recording::suite::libtest::{self, TestBinary};
use trodden_recording::suite::{SuiteOutcome, SuiteRecorder, TestSource, check_no_lost_counts, list_tests, run_all_tests};
use trodden_report::words::{plural, quote_for_shell};

const TEST_FAILED_EXIT_STATUS: u8 = 1;

/// Runs tests. Returns status 1 if any test failed.
pub fn run(job: &SuiteRunArguments) -> Result<ExitCode> {
    check_suite_name(&job.suite)?;
    if job.source.cargo || job.source.nextest {
        return run_tests_by_cargo(job);
    }
    let tests = list_tests(&read_test_source(job)?)?;
    let recording = recording_context();
    let recorder = SuiteRecorder::new(&job.suite, Path::new("."), &recording)?;
    let SuiteOutcome { failed, not_recorded, lost } = run_all_tests(&tests, job.jobs.into(), &recorder)?;
    for name in &not_recorded {
        warn(format_args!("test `{name}` is not in the suite, because it ran no program built with trodden"));
    }
    note(format_args!(
        "{}, {} failed; `trodden suite list {}` shows them",
        plural(tests.len() as u128, "test", "tests"),
        failed.len(),
        quote_for_shell(&job.suite)
    ));
    failed.iter().for_each(|name| note(format_args!("failed: {name}")));
    check_no_lost_counts(lost)?;
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(TEST_FAILED_EXIT_STATUS) })
}

/// Runs the tests with cargo. Cargo runs each test binary through `trodden suite step` ([`record_test_binary`]).
fn run_tests_by_cargo(job: &SuiteRunArguments) -> Result<ExitCode> {
    ensure!(
        job.jobs == 1,
        "--jobs applies only to --commands and --ctest. Use `-- -- --test-threads N` for cargo, or `-- -j N` for nextest"
    );
    let verb: &[&str] = if job.source.nextest { &["nextest", "run"] } else { &["test"] };
    let mut arguments: Vec<OsString> = verb.iter().map(OsString::from).chain(job.options.iter().cloned()).collect();
    let before = count_runs_in_suite(&job.suite)?;
    let settings = extract_instrumentation_settings(&mut arguments)?;
    let status = cargo::run_tests_as_suite(driver_context(), arguments, settings, &job.suite)?;
    note(format_args!(
        "recorded {} in the suite {}",
        plural((count_runs_in_suite(&job.suite)?.saturating_sub(before)) as u128, "run", "runs"),
        job.suite
    ));
    Ok(status)
}

fn count_runs_in_suite(suite: &str) -> Result<u64> {
    let store = recording_context().run_store()?;
    Ok(store.suites()?.into_iter().find(|(name, _)| name == suite).map_or(0, |(_, runs)| runs))
}

fn read_test_source(job: &SuiteRunArguments) -> Result<TestSource> {
    match (&job.source.commands, &job.source.ctest) {
        (Some(file), _) => {
            ensure!(job.options.is_empty(), "--commands accepts no options after `--`. Remove these options");
            let mut text = String::new();
            match file == Path::new("-") {
                true => std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?,
                false => fs::File::open(file)
                    .and_then(|mut f| f.read_to_string(&mut text))
                    .with_context(|| format!("cannot read {}", file.display()))?,
            };
            Ok(TestSource::Commands { text, name: file.clone() })
        }
        (_, Some(folder)) => Ok(TestSource::Ctest { folder: folder.clone(), options: job.options.clone() }),
        _ => bail!("no tests are given. Use --commands, --ctest, --cargo or --nextest"),
    }
}

/// Records each test in a test binary as a separate run. Called by cargo.
pub fn record_test_binary(suite: &str, project: &Path, command: &[OsString]) -> Result<ExitCode> {
    let job = TestBinary {
        suite: suite.to_owned(),
        project: project.to_owned(),
        command: command.to_vec(),
        threads: env::var("RUST_TEST_THREADS").ok(),
    };
    libtest::run_binary(&job, &recording_context(), &mut output::text_writer())
}
