//! Command-line definitions of `trodden-lab schemes` and `trodden-lab hot-paths`.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  trodden-lab schemes prog --tests 'make check PROG={}' --field '{} input'

The program must have kept its bitcode, as trodden builds do by default.")]
pub struct SchemesArguments {
    /// Program to examine.
    pub program: PathBuf,
    /// Shell command that runs the tests; `{}` is replaced by the program.
    #[arg(long, value_name = "COMMAND")]
    pub tests: String,
    /// Shell command that runs the program as in the field; `{}` is replaced by the program.
    #[arg(long, value_name = "COMMAND")]
    pub field: String,
    /// Number of timed runs of the field command per build; 0 does not report processor time.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub rounds: u32,
    /// Exit with status 1 if a path or segment is untested.
    #[arg(long)]
    pub fail: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct HotPathsArguments {
    /// Profiles from the field: files, runs, suites, raw files or folders of them [default: what programs built with --residual
    /// wrote to the run store].
    pub profiles: Vec<String>,
    /// Profile of the tests. Can be repeated.
    #[arg(long, value_name = "PROFILE", required = true)]
    pub known: Vec<String>,
    /// Number of hottest tested paths to look up.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub top: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
