//! Command-line definition of `trodden-lab loops`.

use clap::Args;
use std::path::PathBuf;
use trodden_console::arguments::CountingArguments;
use trodden_console::arguments::laboratory::CountingChoices;
use trodden_stored::named::LAST_RUN_NAME;
use trodden_unit::Settings;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab loops ./prog                          uses the last recorded run
  trodden-lab loops ./prog last~1 --top 1
  trodden-lab loops ./prog --function parse --max-paths 64

Requires a build that kept its bitcode, and LLVM's `opt` (package llvm-22). Instructions added by counting are marked with +.
Builds made with --residual are rejected, because they do not count the known paths of loops.")]
pub struct LoopsArguments {
    /// Program or shared library.
    pub program: PathBuf,
    /// Profile of the program: a file, a run (12, last, last~1) or a suite.
    #[arg(default_value = LAST_RUN_NAME)]
    pub profile: String,
    /// Maximum number of loops to show (0 = all).
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub top: usize,
    /// Maximum number of blocks to show per loop; the hottest are kept.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub blocks: usize,
    /// Show only loops of this function.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Counting options; by default those that the program was built with.
    #[command(flatten)]
    pub parameters: CountingArguments,
    /// Counting options available only in `trodden-lab`.
    #[command(flatten)]
    pub choices: CountingChoices,
}

impl LoopsArguments {
    /// Returns the settings that result from both groups of counting options.
    pub fn settings(&self) -> Settings {
        self.parameters.settings().or(self.choices.settings())
    }
}
