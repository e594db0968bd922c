//! The inputs that programs of the corpus can be run on.

use clap::ValueEnum;

/// An input of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Input {
    /// The short run, about half a second.
    Train,
    /// The long run, about two seconds.
    Ref,
    /// A test suite: many short runs on small inputs. Only some programs have one.
    Suite,
}

impl Input {
    /// The input's name in the recipes.
    pub fn name(self) -> &'static str {
        match self {
            Input::Train => "train",
            Input::Ref => "ref",
            Input::Suite => "suite",
        }
    }
}
