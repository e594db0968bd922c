//! The syntax of `trodden isolate`.

use clap::Args;
use trodden_analysis::isolate::Score;
use trodden_console::arguments::choices::spelled;

/// `trodden isolate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden isolate nightly                          runs of a suite: those that exited with 0, or failed
  trodden isolate --failing 7 --failing 9 --passing good
  trodden isolate nightly --by importance --top 3 --json
  trodden isolate checks --program parse           of a suite that runs several programs

Give a failing test that exits with 0 by --failing. Runs are compared within one build of one program: those of others are left out, and \
so are runs whose end is not known.")]
pub struct Isolate {
    /// Profiles: files, runs (12, last, last~1), or suites. How a run ended says whether it failed.
    pub runs: Vec<String>,
    /// Profiles of failing runs, however they ended. May be given several times.
    #[arg(long, value_name = "PROFILE")]
    pub failing: Vec<String>,
    /// Profiles of passing runs, however they ended. May be given several times.
    #[arg(long, value_name = "PROFILE")]
    pub passing: Vec<String>,
    /// Only runs of this program, given by its file's name or path.
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<String>,
    /// What paths are ranked by.
    #[arg(long, value_parser = spelled::<Score>(), default_value = "ochiai")]
    pub by: Score,
    /// Only functions of this name, or whose full name this regular expression matches.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// At most this many paths; 0 for all. [default: 10, of JSON all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
