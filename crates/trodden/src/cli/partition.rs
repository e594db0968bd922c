//! How counting is divided among copies of a program.

use super::choices::{Choice, one_of};
use clap::Args;
use std::path::PathBuf;
use trodden_flow::partition::{Measure, PartitionStrategy};

/// Most copies, or profiles, that can be asked for.
const MOST_COPIES: usize = 4096;

/// `trodden plan`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden plan ./prog -k 8
  trodden plan ./prog -k 2,4,8 --strategy sbl,pbl,p3,weighted --profile last
  trodden plan ./prog -k 4 --hits labels --json
  trodden plan ./prog -k 8 --profile last --make parts     copies to distribute: `trodden field` adds up what their users report")]
pub struct Plan {
    /// An instrumented program or shared library.
    pub program: PathBuf,
    /// Numbers of copies.
    #[arg(short = 'k', long, value_name = "K", default_value = "4", value_delimiter = ',', value_parser = copies)]
    pub copies: Vec<usize>,
    /// How to divide.
    #[arg(long, value_parser = one_of(COPY_STRATEGIES), default_value = "weighted", value_delimiter = ',')]
    pub strategy: Vec<PartitionStrategy>,
    /// A profile of the program: a file, a run or a suite. Without one, frequencies are estimated.
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// Divide functions that are called from several places as well (p3).
    #[arg(long)]
    pub all_procedures: bool,
    /// Fold conditionals until nothing folds, rather than once (p3).
    #[arg(long)]
    pub fold_again: bool,
    /// What is to be small.
    #[arg(long, value_parser = one_of(HITS), default_value = "all")]
    pub hits: Measure,
    /// Make the copies in this new folder, to be distributed to users: for one number of copies and one strategy.
    #[arg(long, value_name = "FOLDER")]
    pub make: Option<PathBuf>,
    /// The file to which copies write what they count, unless TRODDEN_OUTPUT says otherwise; as in TRODDEN_OUTPUT, %m
    /// stands for the build, %p for the process. Where its folder does not exist, a copy writes nothing and does not
    /// complain: make the folder on machines whose users agreed to report.
    #[arg(long, value_name = "PATTERN", requires = "make")]
    pub writes: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// How paths are divided among copies.
pub const COPY_STRATEGIES: [Choice<PartitionStrategy>; 4] = [
    (PartitionStrategy::Sbl, "sbl", "Not at all: sequential Ball-Larus"),
    (PartitionStrategy::Pbl, "pbl", "Whole functions"),
    (PartitionStrategy::P3, "p3", "Partitioned path profiling, as published"),
    (PartitionStrategy::Weighted, "weighted", "By frequencies and the ends of paths, with search"),
];

/// What counts as a hit.
pub const HITS: [Choice<Measure>; 2] =
    [(Measure::All, "all", "Labels, and counts of paths"), (Measure::Labels, "labels", "Labels alone, as the paper counts")];

/// A number of copies.
pub fn copies(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|e| format!("{e}"))?;
    match number {
        1..=MOST_COPIES => Ok(number),
        _ => Err(format!("between 1 and {MOST_COPIES}")),
    }
}
