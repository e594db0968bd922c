//! `cargo xtask oracle`: path profiles against independent oracles (`crates/oracle`).
//!
//! Programs of the corpus are rebuilt from their own bitcode with a plain counter in every block, and with LLVM's
//! edge counters; blocks and edges of every function are compared. Random programs are also compared with a log of every
//! step.

mod interesting;

use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use trodden_corpus::oracle::{build_oracle, differs, verdict};
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::{Corpus, Input, Variant, steps};

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
