//! The syntax of `trodden-lab schemes` and `hot-paths`.

use clap::Args;
use std::path::PathBuf;
use trodden_command::laboratory::UntestedFormat;

/// `trodden-lab schemes`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  trodden-lab schemes prog --tests 'make check PROG={}' --field '{} input'

The program keeps its bitcode, as everything that trodden builds.")]
pub struct Schemes {
    /// The program.
    pub program: PathBuf,
    /// A shell command that runs the tests; `{}` stands for the program.
    #[arg(long, value_name = "COMMAND")]
    pub tests: String,
    /// A shell command that runs the program as the field does; `{}` stands for the program.
    #[arg(long, value_name = "COMMAND")]
    pub field: String,
    /// Run the field's command this often with each build, and report its processor time.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub rounds: u32,
    /// Exit with status 1 if there is an untested path or segment.
    #[arg(long)]
    pub fail: bool,
    /// Format of the report.
    #[arg(long, value_enum, default_value_t = UntestedFormat::Text)]
    pub format: UntestedFormat,
}

/// `trodden-lab hot-paths`
#[derive(Debug, Args)]
pub struct HotPaths {
    /// Profiles of the field: files, runs, suites, raw files or folders of them. By default, what programs built with --residual
    /// wrote into the run store.
    pub profiles: Vec<String>,
    /// Profiles of the tests. May be given several times.
    #[arg(long, value_name = "PROFILE", required = true)]
    pub known: Vec<String>,
    /// Number of the hottest tested paths.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub top: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
