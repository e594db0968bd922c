//! Command-line definition of `trodden-lab sweep`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
An experiment file:
  sources = [\"bzip2.trodrec\", \"perl.trodrec\"]
  design = \"full-factorial\"          # or plackett-burman, plackett-burman-foldover: two levels each
  metrics = [\"frequency\"]            # and events of trodden simulate --event; each gets a table
  model = \"fast\"                     # or reference, which power-cycle needs
  [factors]
  entries = [128, 512, 2048]
  associativity = [2, 4]
  index = [\"start\", \"xor\"]
  replacement = [\"lfu\", \"rap\"]

Other factors: preset, extensions, path-limit, path-stack, l2-size, l2-associativity, direction, branch-queue. Factors of the processor \
need recordings of all instructions (trodden simulate --record FILE --event instructions). Results are written to standard output as CSV.")]
pub struct SweepArguments {
    /// Experiment file (TOML).
    pub experiment: PathBuf,
    /// File for the results: CSV, or Parquet if its name ends in .parquet [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// File for results, effects and distributions, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// File for the skew and length of paths and the overlap of events with frequency, as CSV.
    #[arg(long, value_name = "FILE")]
    pub distributions: Option<PathBuf>,
    /// File for an HTML page with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Window size of the dynamic overlap, in instructions.
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    pub window: u64,
}
