//! Records test suites. Each test, from a list of commands, ctest or a Rust test binary, becomes a run.
//!
//! A test is a command with all its processes. ctest is called separately for each test, so that the test's environment, fixtures, time
//! limits and pass criteria apply. Cargo runs test binaries through [`libtest`].

pub mod libtest;

use crate::{RecordingContext, RunFolder, TEST_VARIABLE, command, process_ending, run_metadata};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, UNIX_EPOCH};
use trodden_launch::process::cannot_run_error;
use trodden_profile::{Run, RunStore, collect, raw_files};
use trodden_text::words::{plural, quote_for_shell};

/// A test and the command that runs it.
pub struct TestCommand {
    /// Name of the test.
    pub name: String,
    /// The program and its arguments.
    pub arguments: Vec<OsString>,
}

/// Where a suite's tests come from.
#[derive(Clone, Debug)]
pub enum TestSource {
    /// Shell commands, one per line.
    Commands {
        /// Content of the file with the commands.
        text: String,
        /// Name of the file, for messages.
        name: PathBuf,
    },
    /// The tests of a CMake build.
    Ctest {
        /// The build folder.
        folder: PathBuf,
        /// Options that tell ctest which tests to select.
        options: Vec<OsString>,
    },
}

/// Lists the tests of a source. Fails if the tests cannot be listed, or there are none.
pub fn list_tests(source: &TestSource) -> Result<Vec<TestCommand>> {
    match source {
        TestSource::Commands { text, name } => parse_unique_commands(text, name),
        TestSource::Ctest { folder, options } => list_ctest_tests(folder, options),
    }
}

/// Parses shell commands, one per line, and checks that the tests' names are unique.
fn parse_unique_commands(text: &str, file: &Path) -> Result<Vec<TestCommand>> {
    let tests = parse_commands(text);
    ensure!(!tests.is_empty(), "{} has no commands. Write one on each line", file.display());
    let mut names = BTreeSet::new();
    if let Some(twice) = tests.iter().find(|t| !names.insert(&t.name)) {
        bail!("{} has two tests called `{}`. Write a unique name and a tab before each command", file.display(), twice.name);
    }
    Ok(tests)
}

fn parse_commands(text: &str) -> Vec<TestCommand> {
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let test = |line: &str| {
        let (name, command) = line.split_once('\t').unwrap_or((line, line));
        TestCommand { name: name.trim().into(), arguments: ["sh", "-c", command.trim()].map(OsString::from).to_vec() }
    };
    lines.map(test).collect()
}

fn list_ctest_tests(folder: &Path, options: &[OsString]) -> Result<Vec<TestCommand>> {
    ensure!(folder.is_dir(), "folder {} does not exist. Pass the CMake build folder to --ctest", folder.display());
    let base = || -> Vec<OsString> { ["ctest", "--test-dir"].map(OsString::from).into_iter().chain([folder.into()]).collect() };
    let query_ctest = |options: &[OsString]| -> Result<Value> {
        let arguments = base();
        let output = Command::new(&arguments[0]).args(&arguments[1..]).arg("--show-only=json-v1").args(options).output();
        let output = output.context("cannot run ctest, which is part of CMake (Debian: apt install cmake)")?;
        let failure = || format!("ctest cannot list the tests of {}: {}", folder.display(), String::from_utf8_lossy(&output.stderr).trim());
        ensure!(output.status.success(), failure());
        serde_json::from_slice(&output.stdout).context("cannot parse the list of tests that ctest printed. Use CMake 3.20 or later")
    };
    // ctest selects a test by its index in the complete list, so all tests are listed as well.
    let all = query_ctest(&[])?;
    let name = |test: &Value| test["name"].as_str().unwrap_or_default().to_owned();
    let tests_of = |listing: &Value| listing["tests"].as_array().cloned().unwrap_or_default();
    let chosen: BTreeSet<String> = tests_of(&query_ctest(options)?).iter().map(name).collect();
    let disabled = |test: &Value| {
        let properties = test["properties"].as_array();
        properties.into_iter().flatten().any(|p| p["name"] == "DISABLED" && p["value"] == true)
    };
    let tests = tests_of(&all).into_iter().zip(1usize..).filter(|(test, _)| chosen.contains(&name(test)) && !disabled(test));
    let tests: Vec<TestCommand> = tests
        .map(|(test, index)| {
            let rest = ["--output-on-failure".into(), "--quiet".into(), "-I".into(), format!("{index},{index}").into()];
            TestCommand { name: name(&test), arguments: base().into_iter().chain(rest).collect() }
        })
        .collect();
    ensure!(
        !tests.is_empty(),
        "ctest found no tests in {}{}",
        folder.display(),
        if options.is_empty() { ". Build it first" } else { " that match these options" }
    );
    Ok(tests)
}

/// What happened to a test's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestCounts {
    /// The counts are in the run store.
    Stored,
    /// The test counted nothing.
    None,
    /// The counts cannot be decoded. A message has named the folder with the raw files.
    Lost,
}

/// The result of running a suite.
#[derive(Debug, Default)]
pub struct SuiteOutcome {
    /// Names of tests that failed.
    pub failed: Vec<String>,
    /// Names of tests that counted nothing.
    pub not_recorded: Vec<String>,
    /// Number of tests whose counts cannot be decoded.
    pub lost: usize,
}

/// Fails if `lost`, the number of tests whose counts are lost, is not 0.
pub fn check_no_lost_counts(lost: usize) -> Result<()> {
    ensure!(lost == 0, "the suite is incomplete: cannot decode the counts of {}", plural(lost as u128, "test", "tests"));
    Ok(())
}

/// Runs tests, at most `jobs` of them at the same time.
pub fn run_all_tests(tests: &[TestCommand], jobs: usize, recorder: &SuiteRecorder<'_>) -> Result<SuiteOutcome> {
    let next = AtomicUsize::new(0);
    let outcome = Mutex::new(SuiteOutcome::default());
    let work = || -> Result<()> {
        while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (status, counts) = recorder.run(&test.name, &test.arguments)?;
            let mut outcome = outcome.lock().expect("no thread panics with it");
            if counts == TestCounts::None {
                outcome.not_recorded.push(test.name.clone());
            }
            outcome.lost += usize::from(counts == TestCounts::Lost);
            if !status.success() {
                outcome.failed.push(test.name.clone());
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.min(tests.len()).max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(outcome.into_inner().expect("no thread panics with it"))
}

/// Runs tests and stores their counts.
pub struct SuiteRecorder<'a> {
    store: Mutex<RunStore>,
    context: &'a RecordingContext,
    suite: String,
    folder: PathBuf,
    reported: Mutex<BTreeSet<String>>,
}

impl<'a> SuiteRecorder<'a> {
    /// Creates a recorder for a suite, which uses the run store of the folder `project`.
    pub fn new(suite: &str, project: &Path, context: &'a RecordingContext) -> Result<SuiteRecorder<'a>> {
        let store = RunStore::create(&std::path::absolute(project)?)?;
        let folder = store.folder().to_owned();
        Ok(SuiteRecorder { store: Mutex::new(store), context, suite: suite.into(), folder, reported: Mutex::default() })
    }

    /// Runs a test. Returns its exit status, and what happened to its counts.
    pub fn run(&self, name: &str, arguments: &[OsString]) -> Result<(ExitStatus, TestCounts)> {
        let raw = RunFolder::create_in(&self.folder)?;
        let (started, clock) = (UNIX_EPOCH.elapsed().unwrap_or_default(), Instant::now());
        let mut command = command(arguments, raw.path(), "%m.raw", self.context);
        let status = command.env(TEST_VARIABLE, name).status().map_err(|e| cannot_run_error(&arguments[0], e))?;
        let run = Run {
            duration_ns: clock.elapsed().as_nanos() as u64,
            suite: Some(self.suite.clone()),
            test: Some(name.to_owned()),
            ..run_metadata(arguments, started, process_ending(status), self.context)
        };
        raw.check_exists()?;
        let files = raw_files(raw.path())?;
        if files.is_empty() {
            return Ok((status, TestCounts::None));
        }
        let collected = collect(files, run, self.context.units.as_ref());
        for problem in &collected.problems {
            let problem = problem.to_string();
            if self.reported.lock().expect("no thread panics with it").insert(problem.clone()) {
                log::warn!("{}", problem);
            }
        }
        if collected.problems.iter().any(|p| p.loses_counts() && !p.is_recorded_in_profile()) {
            let kept = raw.keep();
            let word = kept.to_string_lossy();
            let (folder, word) = (kept.display(), quote_for_shell(&word));
            log::warn!(
                "cannot decode the counts of test `{name}`. The raw counts are kept in {folder}; to store them, run `trodden import {word}`"
            );
            return Ok((status, TestCounts::Lost));
        }
        // A process that is killed while it starts leaves a file without images.
        if collected.profile.images.is_empty() {
            return Ok((status, TestCounts::None));
        }
        self.store.lock().expect("no thread panics with it").add_run(&collected.profile)?;
        Ok((status, TestCounts::Stored))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tab_separates_test_name_from_command() {
        let tests = parse_commands("# tests\n\n./prog a  b\nsecond test\t./prog 'x'  \n");
        assert_eq!(tests.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["./prog a  b", "second test"]);
        assert_eq!(tests[1].arguments, ["sh", "-c", "./prog 'x'"]);
    }
}
