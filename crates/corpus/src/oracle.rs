//! Checks profiles of corpus programs with the oracles (`crates/oracle`), which count executions in other ways.

use crate::corpus::Corpus;
use crate::input::CorpusInput;
use crate::steps::{self, build_trodden};
use crate::variant::CorpusVariant;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Builds trodden and its oracles. Returns the path of `trodden-oracle`.
pub fn build_oracle() -> Result<PathBuf> {
    let release = build_trodden()?;
    steps::run(steps::cargo_command().args(["build", "--release", "--package", "trodden-oracle"]))?;
    Ok(release.join("trodden-oracle"))
}

/// Returns the command `trodden` of the current build, without arguments.
pub fn trodden() -> std::process::Command {
    std::process::Command::new(steps::programs_folder().join("trodden"))
}

/// Runs a program that trodden has built, and compares its counts with those of the oracles. Returns the report, in which details follow
/// the line for each oracle and process. Fails if the run or an oracle fails and the report contains no difference that explains it.
pub fn check_run(corpus: &Corpus, program: &str, variant: &CorpusVariant, input: CorpusInput, oracle: &Path) -> Result<String> {
    let report = corpus.folder().join(format!("{program}.{}.{}.verdict", variant.folder(), input.name()));
    if report.exists() {
        std::fs::remove_file(&report).with_context(|| format!("cannot remove {}", report.display()))?;
    }
    let plugin = oracle.with_file_name("libtrodden_instrument.so");
    let runner = format!("env TRODDEN_PLUGIN={} {} check --report {} --", plugin.display(), oracle.display(), report.display());
    let outcome = corpus.run(program, variant, input, &runner);
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    match outcome {
        Err(error) if !has_differences(&text) => Err(error),
        _ => Ok(text),
    }
}

/// Returns true if the report of the oracles contains a difference.
pub fn has_differences(verdict: &str) -> bool {
    verdict.lines().any(|line| line.starts_with("  differs: "))
}
