//! The syntax of `trodden isolate`.

use clap::Args;
use trodden_console::arguments::laboratory::IsolationChoices;

/// `trodden isolate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden isolate nightly                          passing and failing runs of a suite
  trodden isolate --failing 7 --failing 9 --passing good
  trodden isolate nightly --top 3 --json
  trodden isolate checks --program parse           of a suite that runs several programs

Use --failing for failing tests that exit with 0. Only runs of one build of one program are compared; runs whose exit status is unknown \
are left out.")]
pub struct Isolate {
    /// Profiles: files, runs (12, last, last~1), or suites. The exit status says whether a run failed.
    pub runs: Vec<String>,
    /// Profiles of failing runs, whatever their exit status. May be given several times.
    #[arg(long, value_name = "PROFILE")]
    pub failing: Vec<String>,
    /// Profiles of passing runs, whatever their exit status. May be given several times.
    #[arg(long, value_name = "PROFILE")]
    pub passing: Vec<String>,
    /// Only runs of this program, given by file name or path.
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<String>,
    /// Only functions of this name, or whose full name matches this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Maximum number of paths; 0 for all. [default: 10, in JSON all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// What only the laboratory chooses.
    #[arg(skip)]
    pub choices: IsolationChoices,
}
