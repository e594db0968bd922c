//! Syntax of `trodden isolate`.

use clap::Args;
use trodden_console::arguments::laboratory::IsolationChoices;

/// `trodden isolate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden record --suite nightly -- ./prog   do this for each run, then:
  trodden isolate nightly                    passing and failing runs of a suite
  trodden isolate --failing 7 --failing 9 --passing good
  trodden isolate nightly --top 3 --json
  trodden isolate checks --program parse     one program of a suite that runs several

Runs must be of the same build of one program; runs with an unknown exit status are left out. Use
--failing for failed tests that exited with status 0.")]
pub struct IsolateArguments {
    /// Files, runs (12, last, last~1) or suites; a run failed if its exit status is not 0.
    pub runs: Vec<String>,
    /// Profiles of failing runs, whatever their exit status (repeatable).
    #[arg(long, value_name = "PROFILE")]
    pub failing: Vec<String>,
    /// Profiles of passing runs, whatever their exit status (repeatable).
    #[arg(long, value_name = "PROFILE")]
    pub passing: Vec<String>,
    /// Only runs of this program, given by file name or path.
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<String>,
    /// Only functions with this name or matching this regular expression.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Maximum number of paths, 0 for all [default: 10; JSON: all].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: IsolationChoices,
}
