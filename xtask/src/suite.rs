//! `cargo xtask test`: everything that is checked before a change goes in.

use crate::circles;
use crate::fuzz;
use crate::pages;
use crate::tidy;
use anyhow::{Result, bail};
use clap::Args;
use std::process::Command;
use std::time::Instant;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;

/// Time for each fuzz target, in seconds.
const FUZZ_SECONDS: u64 = 5;

/// `cargo xtask test`
#[derive(Debug, Args)]
pub struct SuiteOptions {
    /// Tests only: nothing installed or fetched, no lints, no tests of examples in documentation.
    #[arg(long)]
    fast: bool,
    /// Only tests whose names contain this.
    filter: Option<String>,
}

/// Runs all checks; the first that fails ends it.
///
/// # Errors
/// A check failed.
pub fn run(options: &SuiteOptions) -> Result<()> {
    let started = Instant::now();
    if !options.fast {
        packages::ensure(PackagePurpose::Test)?;
        ensure_components()?;
        steps::headline("Format");
        steps::run(steps::cargo().args(["fmt", "--all", "--check"]))?;
    }
    tidy()?;
    if !options.fast {
        steps::headline("Lints");
        steps::run(steps::cargo().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    }
    steps::headline("Build");
    // The plugin is a file beside the command, which cargo does not know to be needed. All targets: without those of tests, dependencies
    // have other features, and everything would be compiled again for them.
    steps::run(steps::cargo().args(["build", "--workspace", "--all-targets"]))?;
    steps::headline("Commands that the documentation names");
    report(&pages::check_commands(&steps::target().join("debug/trodden"))?)?;
    if !options.fast {
        steps::headline("Sessions of the README");
        report(&pages::sessions::check(&steps::target().join("debug"))?)?;
    }
    steps::headline("Tests");
    tests(options)?;
    if options.filter.is_none() {
        steps::headline("Fuzz targets");
        fuzz::targets(None, FUZZ_SECONDS, 1)?;
    }
    eprintln!("\nAll checks passed, in {} s.", started.elapsed().as_secs());
    Ok(())
}

/// `cargo xtask tidy`
///
/// # Errors
/// Something is untidy; each place was printed.
pub fn tidy() -> Result<()> {
    steps::headline("Sources and documentation");
    let mut findings = tidy::check()?;
    findings.extend(circles::check()?);
    findings.extend(pages::check()?);
    report(&findings)
}

/// Prints what was found.
fn report(findings: &[String]) -> Result<()> {
    for finding in findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => bail!("1 thing to mend, named above"),
        n => bail!("{n} things to mend, named above"),
    }
}

fn tests(options: &SuiteOptions) -> Result<()> {
    let has_nextest = Command::new("cargo").args(["nextest", "--version"]).output().is_ok_and(|out| out.status.success());
    let filter = options.filter.as_slice();
    if !has_nextest {
        return steps::run(steps::cargo().args(["test", "--workspace", "--no-fail-fast"]).args(filter));
    }
    if !options.fast {
        // nextest leaves these out.
        steps::run(steps::cargo().args(["test", "--workspace", "--doc"]).args(filter))?;
    }
    steps::run(steps::cargo().args(["nextest", "run", "--workspace", "--no-fail-fast"]).args(filter))
}

/// rustfmt and clippy, which come with most installations of Rust.
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
    if !steps::on_path("rustup") {
        bail!("missing parts of Rust: {}; there is no rustup to install them", missing.join(", "));
    }
    steps::headline(&format!("Installing parts of Rust: {}", missing.join(", ")));
    steps::run(Command::new("rustup").args(["component", "add"]).args(missing).current_dir(steps::root()))
}
