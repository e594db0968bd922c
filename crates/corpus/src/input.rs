//! The inputs on which programs of the corpus can be run.

use clap::ValueEnum;

/// An input for the programs of the corpus. Each program has its own files for the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CorpusInput {
    /// An input that takes about half a second.
    Train,
    /// An input that takes about two seconds.
    Ref,
    /// The program's test suite, which runs the program many times on small inputs. Only some programs have one.
    Suite,
}

impl CorpusInput {
    /// Returns the name by which recipes call the input.
    pub fn name(self) -> &'static str {
        match self {
            CorpusInput::Train => "train",
            CorpusInput::Ref => "ref",
            CorpusInput::Suite => "suite",
        }
    }
}
