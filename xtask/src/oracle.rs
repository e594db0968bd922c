//! `cargo xtask oracle`: path profiles against independent oracles (`crates/oracle`).
//!
//! Programs of the corpus are rebuilt from their own bitcode with a plain counter in every block, and with LLVM's
//! edge counters; blocks and edges of every function are compared. Random programs are also compared with a log of every
//! step.

mod interesting;

pub use interesting::InterestingBuilds;

use crate::bench::variant::Variant;
use crate::corpus::{Corpus, Input};
use crate::packages::{self, PackagePurpose};
use crate::steps;
use crate::steps::build_trodden;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};

/// Programs in C, C++ and Rust, one of them threaded.
const DEFAULT: &[&str] = &["gzip", "bzip2", "lua", "sqlite", "minisat", "pbzip2", "oxipng"];

/// `cargo xtask oracle`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask oracle                        programs in C, C++ and Rust, one of them threaded
  cargo xtask oracle cppcheck --input ref   another one, in a longer run
  cargo xtask oracle --seeds 500            random programs, each in five variants
  cargo xtask oracle gzip lua --scheme ppp --scheme pspp --interesting share:90%
                                            programs that count interesting paths, against those that count all")]
pub struct OracleOptions {
    /// Programs of the corpus.
    programs: Vec<String>,
    /// Which run.
    #[arg(long, value_enum, default_value_t = Input::Train)]
    input: Input,
    /// Count only some paths, numbered in this way, and compare with the counts of all; may be given several times, or be `all`.
    #[arg(long, value_name = "SCHEME", conflicts_with = "seeds")]
    scheme: Vec<String>,
    /// Which paths: as of `trodden instrument --interesting`, without the profile.
    #[arg(long, value_name = "SET", default_value = "share:90%", requires = "scheme")]
    interesting: String,
    /// With --scheme: write the result to this file as a table, after each program.
    #[arg(long, value_name = "FILE", requires = "scheme")]
    output: Option<PathBuf>,
    /// Check this many random programs instead.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// The first of their seeds.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
}

/// Checks, and prints what was found.
///
/// # Errors
/// A tool is missing or failed, or something differs.
pub fn run(options: &OracleOptions) -> Result<()> {
    packages::ensure(PackagePurpose::Bench)?;
    let oracle = build_oracle()?;
    if let Some(seeds) = options.seeds {
        let numbers = ["--first".to_owned(), options.first.to_string(), "--seeds".to_owned(), seeds.to_string()];
        return steps::run(std::process::Command::new(&oracle).arg("random").args(numbers));
    }
    let corpus = Corpus::own();
    let programs = corpus.ready(&options.programs, DEFAULT)?;
    let (mut different, mut rows) = (Vec::new(), Vec::new());
    for program in &programs {
        let equal = match options.scheme.is_empty() {
            true => check_program(&corpus, program, options.input, &oracle)?,
            false => {
                let checked = interesting::check(&corpus, program, options, &oracle)?;
                let equal = checked.iter().all(|row| !row.is_wrong());
                rows.extend(checked);
                if let Some(file) = &options.output {
                    let text = interesting::page(&rows, options.input, &options.interesting)?;
                    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
                }
                equal
            }
        };
        if !equal {
            different.push(program.as_str());
        }
    }
    match different.is_empty() {
        true => Ok(()),
        false => bail!("counts differ in {}; the differences are named above", different.join(", ")),
    }
}

/// Builds trodden and the oracles; gives the oracles' program.
///
/// # Errors
/// Cargo failed.
pub fn build_oracle() -> Result<PathBuf> {
    let release = build_trodden()?;
    steps::run(steps::cargo().args(["build", "--release", "--package", "trodden-oracle"]))?;
    Ok(release.join("trodden-oracle"))
}

/// Checks a program's run; whether all counts are equal.
fn check_program(corpus: &Corpus, program: &str, input: Input, oracle: &Path) -> Result<bool> {
    corpus.fetch(program)?;
    let variant = Variant::trodden();
    corpus.build_once(program, &variant)?;
    corpus.inputs(program)?;
    let text = verdict(corpus, program, &variant, input, oracle)?;
    print!("{text}");
    Ok(!differs(&text))
}

/// The command as it was built.
pub fn trodden() -> std::process::Command {
    std::process::Command::new(steps::target().join("release/trodden"))
}

/// What the oracles say of a run of a program that was built by trodden: a line for each oracle and process, and what is behind it.
///
/// # Errors
/// The run or an oracle failed, and there is no difference that explains it.
pub fn verdict(corpus: &Corpus, program: &str, variant: &Variant, input: Input, oracle: &Path) -> Result<String> {
    let report = steps::target().join("corpus").join(format!("{program}.{}.{}.verdict", variant.folder(), input.name()));
    if report.exists() {
        std::fs::remove_file(&report).with_context(|| format!("cannot remove {}", report.display()))?;
    }
    let plugin = oracle.with_file_name("libtrodden_instrument.so");
    let runner = format!("env TRODDEN_PLUGIN={} {} check --report {} --", plugin.display(), oracle.display(), report.display());
    let outcome = corpus.run(program, variant, input, &runner);
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    match outcome {
        Err(error) if !differs(&text) => Err(error),
        _ => Ok(text),
    }
}

fn differs(verdict: &str) -> bool {
    verdict.lines().any(|line| line.starts_with("  differs: "))
}
