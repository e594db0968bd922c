//! The syntax of `trodden-lab loops`.

use clap::Args;
use std::path::PathBuf;
use trodden_console::arguments::Parameters;
use trodden_console::arguments::laboratory::CountingChoices;
use trodden_stored::named::LAST;
use trodden_unit::Settings;

/// `trodden-lab loops`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab loops ./prog                          of its last recorded run
  trodden-lab loops ./prog last~1 --top 1
  trodden-lab loops ./prog --function parse --max-paths 64

The program's bitcode must have been kept. What counting adds is marked by +; LLVM's `opt` must be installed (package llvm-22).
A build with --residual is refused: it counts no known paths, so its iterations are not known.")]
pub struct Loops {
    /// The program or shared library.
    pub program: PathBuf,
    /// A profile of it: a file, or a run (12, last, last~1), or a suite.
    #[arg(default_value = LAST)]
    pub profile: String,
    /// At most this many loops; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub top: usize,
    /// At most this many blocks of each, those that execute most.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub blocks: usize,
    /// Only loops of this function.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// How to count; by default as the program does.
    #[command(flatten)]
    pub parameters: Parameters,
    /// The same, of what only the laboratory chooses.
    #[command(flatten)]
    pub choices: CountingChoices,
}

impl Loops {
    /// How to count.
    pub fn settings(&self) -> Settings {
        self.parameters.settings().over(self.choices.settings())
    }
}
