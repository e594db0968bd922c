//! Records each test of a Rust test binary as a run.
//!
//! This is the `runner` through which cargo and cargo-nextest run test binaries. nextest lists a binary's tests and runs each of them with
//! `--exact`, so one such call is one test. Cargo runs a binary once for all its tests, so this runner lists the tests and runs them one by
//! one. A binary that cannot list its tests is recorded as a single test.

use super::{SuiteOutcome, SuiteRecorder, TestCommand, TestCounts, check_no_lost_counts, run_all_tests};
use crate::RecordingContext;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use trodden_launch::process::cannot_run_error;
use trodden_text::words::plural;

const FORWARDED_OPTIONS: [&str; 5] = ["--nocapture", "--no-capture", "--include-ignored", "--ignored", "--show-output"];
/// Exit status of a test binary if a test failed.
const TEST_FAILED_STATUS: u8 = 101;

/// A test binary, and how cargo called it.
#[derive(Clone, Debug)]
pub struct TestBinary {
    /// Name of the suite to record.
    pub suite: String,
    /// The folder with the run store.
    pub project: PathBuf,
    /// The binary and its arguments.
    pub command: Vec<OsString>,
    /// The value of `RUST_TEST_THREADS`, if it is set.
    pub threads: Option<String>,
}

/// Runs a test binary. Writes the number of tests and the names of failed tests to `out`.
pub fn run_binary(job: &TestBinary, context: &RecordingContext, out: &mut dyn Write) -> Result<ExitCode> {
    let command = &job.command[..];
    let (binary, arguments) = command.split_first().context("expected a test binary: cargo passed none")?;
    let has = |option: &str| arguments.iter().any(|a| a == option);
    if has("--list") {
        return Err(cannot_run_error(binary, Command::new(binary).args(arguments).exec()).into());
    }
    let recorder = SuiteRecorder::new(&job.suite, &job.project, context)?;
    let test_binary_name = test_binary_name(Path::new(binary));
    if has("--exact") {
        let name = arguments.iter().find(|a| !a.to_string_lossy().starts_with('-')).map(|a| a.to_string_lossy().into_owned());
        let name = name.map_or(test_binary_name.clone(), |name| format!("{test_binary_name}::{name}"));
        return run_single_test(&recorder, &name, command);
    }
    let Some(names) = list_selected_tests(binary, arguments)? else {
        return run_single_test(&recorder, &test_binary_name, command);
    };
    let forwarded: Vec<OsString> = arguments.iter().filter(|a| FORWARDED_OPTIONS.iter().any(|k| a == k)).cloned().collect();
    let test = |name: &String| {
        let arguments = [binary.clone(), "--exact".into(), name.into(), "--quiet".into()];
        TestCommand {
            name: format!("{test_binary_name}::{name}"),
            arguments: arguments.into_iter().chain(forwarded.iter().cloned()).collect(),
        }
    };
    let tests: Vec<TestCommand> = names.iter().map(test).collect();
    let SuiteOutcome { failed, lost, .. } = run_all_tests(&tests, thread_count(arguments, job.threads.clone()), &recorder)?;
    writeln!(out, "{test_binary_name}: {}, {} failed", plural(tests.len() as u128, "test", "tests"), failed.len())?;
    failed.iter().try_for_each(|name| writeln!(out, "failed: {name}"))?;
    check_no_lost_counts(lost)?;
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(TEST_FAILED_STATUS) })
}

fn run_single_test(recorder: &SuiteRecorder<'_>, name: &str, command: &[OsString]) -> Result<ExitCode> {
    let (status, counts) = recorder.run(name, command)?;
    check_no_lost_counts(usize::from(counts == TestCounts::Lost))?;
    Ok(trodden_launch::process::exit_code(status))
}

/// Returns the number of tests to run at the same time, determined as by the test harness.
fn thread_count(arguments: &[OsString], from_environment: Option<String>) -> usize {
    let mut rest = arguments.iter().map(|a| a.to_string_lossy());
    let mut threads = from_environment;
    while let Some(argument) = rest.next() {
        match argument.strip_prefix("--test-threads") {
            Some("") => threads = rest.next().map(Into::into),
            Some(joined) => threads = joined.strip_prefix('=').map(str::to_owned),
            None => {}
        }
    }
    let number = threads.and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    number.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Returns the tests that a binary would run with these arguments, or `None` if it cannot list them.
fn list_selected_tests(binary: &OsString, arguments: &[OsString]) -> Result<Option<Vec<String>>> {
    let Some(mut names) = list_tests(binary, arguments, &[])? else { return Ok(None) };
    // The list includes ignored tests, which must run only on request.
    if !arguments.iter().any(|a| a == "--ignored" || a == "--include-ignored") {
        let Some(ignored) = list_tests(binary, arguments, &["--ignored"])? else { return Ok(None) };
        let ignored: BTreeSet<String> = ignored.into_iter().collect();
        names.retain(|name| !ignored.contains(name));
    }
    Ok(Some(names))
}

fn list_tests(binary: &OsString, arguments: &[OsString], more: &[&str]) -> Result<Option<Vec<String>>> {
    let output = Command::new(binary).args(arguments).args(more).args(["--list", "--format", "terse"]).output();
    let output = output.map_err(|e| cannot_run_error(binary, e))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let tests: Option<Vec<&str>> = text.lines().map(|l| l.strip_suffix(": test").or_else(|| l.strip_suffix(": benchmark"))).collect();
    Ok(tests.filter(|_| output.status.success()).map(|tests| tests.into_iter().map(str::to_owned).collect()))
}

/// Returns the name of a test binary without the hash that cargo appends.
fn test_binary_name(binary: &Path) -> String {
    let name = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.rsplit_once('-') {
        Some((stem, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => stem.to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crate_name_excludes_hash() {
        assert_eq!(test_binary_name(Path::new("/t/deps/my-crate-0123456789abcdef")), "my-crate");
        assert_eq!(test_binary_name(Path::new("/t/my-tests")), "my-tests");
    }

    #[test]
    fn ignored_tests_run_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("tests");
        std::fs::write(&binary, "case \" $* \" in *' --ignored '*) echo 'b: test';; *) echo 'a: test'; echo 'b: test';; esac\n").unwrap();
        let arguments = |more: &[&str]| -> Vec<OsString> {
            [binary.as_os_str().to_owned()].into_iter().chain(more.iter().map(OsString::from)).collect()
        };
        let of = |more: &[&str]| list_selected_tests(&"sh".into(), &arguments(more)).unwrap().unwrap();
        assert_eq!(of(&[]), ["a"]);
        assert_eq!(of(&["--include-ignored"]), ["a", "b"]);
        assert_eq!(of(&["--ignored"]), ["b"]);
    }

    #[test]
    fn number_of_threads_follows_harness_options() {
        let of = |text: &str| thread_count(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>(), Some("7".into()));
        assert_eq!((of("--test-threads=3 x"), of("x --test-threads 5")), (3, 5));
        assert_eq!(of("x"), 7);
        assert!(thread_count(&[], None) > 0);
    }
}
