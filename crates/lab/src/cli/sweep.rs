//! The syntax of `trodden-lab sweep`.

use clap::Args;
use std::path::PathBuf;

/// `trodden-lab sweep`
#[derive(Debug, Args)]
#[command(after_help = "\
An experiment:
  sources = [\"bzip2.trodrec\", \"perl.trodrec\"]
  design = \"full-factorial\"          # or plackett-burman, plackett-burman-foldover: two levels each
  metrics = [\"frequency\"]            # and events of trodden simulate --event, with a table for each
  model = \"fast\"                     # or reference, which power-cycle needs
  [factors]
  entries = [128, 512, 2048]
  associativity = [2, 4]
  index = [\"start\", \"xor\"]
  replacement = [\"lfu\", \"rap\"]

Other factors: preset, extensions, path-limit, path-stack, l2-size, l2-associativity, direction, branch-queue. Those of the processor \
need sources of whole
instructions (trodden simulate --record FILE --event instructions). Results go to standard output as CSV.")]
pub struct Sweep {
    /// The experiment.
    pub experiment: PathBuf,
    /// Write the results to this file: CSV, or Parquet if its name ends in .parquet.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write the results, effects and distributions to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write skew and length of paths, and the overlap of events with frequency, to this file as CSV.
    #[arg(long, value_name = "FILE")]
    pub distributions: Option<PathBuf>,
    /// Write a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Instructions of a window of the dynamic overlap.
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    pub window: u64,
}
