//! Inputs of the programs of the corpus.

use clap::ValueEnum;

/// Which of the runs of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Input {
    /// About half a second.
    Train,
    /// About two seconds.
    Ref,
    /// Many short runs of small inputs; some programs have them.
    Suite,
}

impl Input {
    /// Its name in the recipes.
    pub fn name(self) -> &'static str {
        match self {
            Input::Train => "train",
            Input::Ref => "ref",
            Input::Suite => "suite",
        }
    }
}
