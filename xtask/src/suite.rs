//! `cargo xtask test`: runs all checks that a change must pass before it is merged.

use crate::corpus::{self, CLANG_VARIABLE};
use crate::cycles;
use crate::fuzz;
use crate::pages;
use crate::tidy;
use anyhow::{Result, bail, ensure};
use clap::Args;
use std::ffi::OsString;
use std::process::Command;
use std::time::Instant;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;

/// How long each fuzz target runs, in seconds.
const FUZZ_SECONDS: u64 = 5;

/// An environment variable with its value. It tells tests not to build the clang plugin, because the plugin is already in the folder of the
/// built programs.
const PLUGIN_IS_BUILT_VARIABLE: (&str, &str) = ("TRODDEN_TEST_PLUGIN", "built");

/// The environment variable with the folder for caches. Tests get a folder of their own, so that they leave the user's as it is.
const CACHE_VARIABLE: &str = "XDG_CACHE_HOME";

/// A part of the name of each documentation test, as in `crates/flow/src/lib.rs - (line 14)`.
const DOCUMENTATION_TEST_MARK: &str = " (line ";

pub const OLDEST_CLANG: &str = "clang-19";

#[derive(Debug, Args)]
pub struct SuiteOptions {
    /// Install and fetch nothing, and skip lints and documentation tests.
    #[arg(long)]
    fast: bool,
    /// Run only tests whose names contain this text.
    filter: Option<String>,
}

pub fn run(options: &SuiteOptions) -> Result<()> {
    let started = Instant::now();
    if !options.fast {
        packages::ensure_packages_for(PackagePurpose::Test)?;
        ensure_components()?;
        steps::log_headline("Format");
        steps::run(steps::cargo_command().args(["fmt", "--all", "--check"]))?;
    }
    run_tidy()?;
    if !options.fast {
        steps::log_headline("Lints");
        steps::run(steps::cargo_command().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    }
    steps::log_headline("Build");
    // The complete workspace is built because cargo does not know that tests need the plugin. `--all-targets` makes cargo build the tests
    // as well: without them, dependencies would have fewer features, and would be compiled again for the tests.
    steps::run(steps::cargo_command().args(["build", "--workspace", "--all-targets"]))?;
    steps::log_headline("Commands in the documentation");
    fail_on_findings(&pages::check_commands(&steps::target_folder().join("debug/trodden"))?)?;
    if !options.fast {
        run_sessions(&pages::sessions::SessionOptions::fast_sessions())?;
    }
    steps::log_headline("Tests");
    run_tests(options)?;
    if options.filter.is_none() {
        if !options.fast {
            corpus::run_suite_programs(None)?;
            if steps::is_on_search_path(OLDEST_CLANG) {
                corpus::run_suite_programs(Some(OLDEST_CLANG))?;
            }
        }
        steps::log_headline("Fuzz targets");
        fuzz::run_targets(None, FUZZ_SECONDS, 1)?;
    }
    eprintln!("\nAll checks passed, in {} s.", started.elapsed().as_secs());
    Ok(())
}

pub fn run_tidy() -> Result<()> {
    steps::log_headline("Sources and documentation");
    let mut findings = tidy::check()?;
    findings.extend(cycles::check()?);
    findings.extend(pages::check()?);
    fail_on_findings(&findings)
}

pub fn run_sessions(options: &pages::sessions::SessionOptions) -> Result<()> {
    steps::log_headline("Console sessions in the documentation");
    fail_on_findings(&pages::sessions::check(options)?)
}

fn fail_on_findings(findings: &[String]) -> Result<()> {
    for finding in findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => bail!("1 problem found, see above"),
        n => bail!("{n} problems found, see above"),
    }
}

fn run_tests(options: &SuiteOptions) -> Result<()> {
    let filter = options.filter.as_slice();
    if !has_nextest() {
        return steps::run(steps::cargo_command().args(["test", "--workspace", "--no-fail-fast"]).args(filter).envs(test_environment()));
    }
    if !options.fast {
        // nextest does not run documentation tests. With `--doc`, dependencies would have different features, and cargo would compile all
        // crates again. So all tests are selected by a part of the names that only documentation tests have.
        let results = steps::output(steps::cargo_command().args(["test", "--workspace", "--", DOCUMENTATION_TEST_MARK]))?;
        let is_run = |line: &str| line.starts_with("test ") && line.contains(DOCUMENTATION_TEST_MARK);
        ensure!(results.lines().any(is_run), "no documentation test was run. Mend how they are selected");
    }
    steps::run(steps::cargo_command().args(["nextest", "run", "--workspace", "--no-fail-fast"]).args(filter).envs(test_environment()))
}

fn test_environment() -> [(&'static str, OsString); 2] {
    let (name, value) = PLUGIN_IS_BUILT_VARIABLE;
    [(name, value.into()), (CACHE_VARIABLE, steps::target_folder().join("tmp/cache").into())]
}

/// Returns a command that runs the tests in all test files with the given names with the oldest clang.
pub fn command_for_oldest_clang_tests(names: &[&str]) -> Command {
    let mut tests = test_files_command(names);
    // The oldest clang cannot read code from rustc's newer LLVM.
    tests.args(["--skip", "rust", "--skip", "cargo"]).env(CLANG_VARIABLE, OLDEST_CLANG);
    tests
}

/// Returns a command that runs the tests in all test files with the given names. The workspace must have been built.
pub fn test_files_command(names: &[&str]) -> Command {
    let mut tests = steps::cargo_command();
    if has_nextest() {
        let filter = format!("test(/^({})::/)", names.join("|"));
        tests.args(["nextest", "run", "--workspace", "--no-fail-fast", "--filterset", &filter, "--"]);
    } else {
        tests.args(["test", "--workspace", "--no-fail-fast", "--tests", "--"]).args(names.iter().map(|name| format!("{name}::")));
    }
    tests.envs(test_environment());
    tests
}

fn has_nextest() -> bool {
    Command::new("cargo").args(["nextest", "--version"]).output().is_ok_and(|out| out.status.success())
}

fn ensure_components() -> Result<()> {
    let has = |name: &str| Command::new("cargo").args([name, "--version"]).output().is_ok_and(|out| out.status.success());
    let missing: Vec<&str> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(command, _)| !has(command))
        .map(|(_, component)| component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !steps::is_on_search_path("rustup") {
        bail!("these components of Rust are missing: {}. Install them, or install rustup", missing.join(", "));
    }
    steps::log_headline(&format!("Installing components of Rust: {}", missing.join(", ")));
    steps::run(Command::new("rustup").args(["component", "add"]).args(missing).current_dir(steps::checkout_root()))
}
