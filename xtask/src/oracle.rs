//! `cargo xtask oracle`: checks path profiles against independent oracles (`crates/oracle`), which are other ways to count executions.
//!
//! Each program is rebuilt from its bitcode, once with a counter in every basic block and once with LLVM's edge counters. All counts of
//! blocks and edges are then compared with those that follow from the path profile. Random programs are also compared with a log of every
//! block that they execute.

mod interesting;

use crate::corpus::{corpus_in_target, remove_uncompilable_programs};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use trodden_corpus::oracle::{build_oracle, check_run, has_differences};
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::{Corpus, CorpusInput, CorpusVariant, steps};

/// The programs to check if none are named. They are written in C, C++ and Rust, and one of them is multi-threaded.
const DEFAULT_PROGRAMS: &[&str] = &["gzip", "bzip2", "lua", "sqlite", "minisat", "pbzip2", "oxipng"];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask oracle                        check programs in C, C++ and Rust, one of them multi-threaded
  cargo xtask oracle cppcheck --input ref   check another program, in a longer run
  cargo xtask oracle --seeds 500            check random programs, each in five variants
  cargo xtask oracle gzip lua --scheme ppp --scheme pspp --interesting share:90%
                                            compare programs that count interesting paths with those that count all")]
pub struct OracleOptions {
    /// Programs of the corpus (default: a selection).
    programs: Vec<String>,
    /// Input to run the programs on.
    #[arg(long, value_enum, default_value_t = CorpusInput::Train)]
    input: CorpusInput,
    /// Check builds that count interesting paths by this scheme, or by `all` schemes. Can be repeated.
    #[arg(long, value_name = "SCHEME", conflicts_with = "seeds")]
    scheme: Vec<String>,
    /// Interesting paths, as for `trodden instrument --interesting` but without the profile.
    #[arg(long, value_name = "SET", default_value = "share:90%", requires = "scheme")]
    interesting: String,
    /// Write the results for --scheme to this file as a table, after each program.
    #[arg(long, value_name = "FILE", requires = "scheme")]
    output: Option<PathBuf>,
    /// Check N random programs instead.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// First seed of the random programs.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
}

/// Checks the programs and prints the results. Fails if a tool is missing or fails, or if counts differ.
pub fn run(options: &OracleOptions) -> Result<()> {
    packages::ensure_packages_for(PackagePurpose::Bench)?;
    let oracle = build_oracle()?;
    if let Some(seeds) = options.seeds {
        let numbers = ["--first".to_owned(), options.first.to_string(), "--seeds".to_owned(), seeds.to_string()];
        return steps::run(std::process::Command::new(&oracle).arg("random").args(numbers));
    }
    let corpus = corpus_in_target()?;
    let programs = remove_uncompilable_programs(&corpus, corpus.prepare(&options.programs, DEFAULT_PROGRAMS)?)?;
    let (mut different, mut rows) = (Vec::new(), Vec::new());
    for program in &programs {
        let equal = match options.scheme.is_empty() {
            true => check_program(&corpus, program, options.input, &oracle)?,
            false => {
                let checked = interesting::check(&corpus, program, options, &oracle)?;
                let equal = checked.iter().all(|row| !row.is_wrong());
                rows.extend(checked);
                if let Some(file) = &options.output {
                    let text = interesting::render_page(&rows, options.input, &options.interesting)?;
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
        false => bail!("counts differ in {}, see the differences above", different.join(", ")),
    }
}

/// Runs a program on an input and compares all counts. Returns true if they are equal.
fn check_program(corpus: &Corpus, program: &str, input: CorpusInput, oracle: &Path) -> Result<bool> {
    corpus.fetch(program)?;
    let variant = CorpusVariant::trodden();
    corpus.build_once(program, &variant)?;
    corpus.create_inputs(program)?;
    let text = check_run(corpus, program, &variant, input, oracle)?;
    print!("{text}");
    Ok(!has_differences(&text))
}
