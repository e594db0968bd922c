//! Inputs for the programs of the corpus.

use clap::ValueEnum;

/// An input that a program is run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Input {
    /// The short run: about half a second.
    Train,
    /// The long run: about two seconds.
    Ref,
    /// The test suite: many short runs on small inputs. Only some programs have a test suite.
    Suite,
}

impl Input {
    /// The name that recipes use for the input.
    pub fn name(self) -> &'static str {
        match self {
            Input::Train => "train",
            Input::Ref => "ref",
            Input::Suite => "suite",
        }
    }
}
