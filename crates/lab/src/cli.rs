//! Command-line definition of `trodden-lab`; manual pages and `--help` are generated from it.

mod convert;
mod extract;
mod grammar;
mod graph;
mod loops;
mod numbering;
mod patterns;
mod plan;
mod sequence;
mod simulate;
mod sweep;
mod untested;
mod witnesses;

pub use convert::ConvertArguments;
pub use extract::{ExtractArguments, GraphFormat};
pub use grammar::GrammarArguments;
pub use graph::GraphCommand;
pub use loops::LoopsArguments;
pub use numbering::{GraphModelArguments, GraphNumberArguments, InterestingPathsArguments, ModelScheme};
pub use patterns::{LengthRange, PatternKind, PatternsArguments};
pub use plan::PlanArguments;
pub use sequence::{CountedPathsArguments, SequenceCheckArguments, SequenceCommand};
pub use simulate::LabSimulateArguments;
pub use sweep::SweepArguments;
pub use untested::{HotPathsArguments, SchemesArguments};
pub use witnesses::{ReconstructArguments, VerifiedCondition, WitnessesArguments};

use crate::experiments::LabExperiment;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_console::arguments::laboratory::GivenChoices;
use trodden_console::output::Color;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "trodden-lab",
    version,
    about = "Research tools for trodden: graph algorithms on files, experiments, and published methods to compare with",
    max_term_width = 100
)]
pub struct Cli {
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// The subcommand to run.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Run the graph algorithms on graphs from files, and extract graphs from programs.
    #[command(subcommand)]
    Graph(GraphCommand),
    /// Divide counting among copies of a program, and show the expected cost of each copy without running it.
    Plan(PlanArguments),
    /// Show the hottest loops' machine code with and without counting, side by side.
    Loops(LoopsArguments),
    /// Simulate a hardware path profiler on a program; all parameters of the model can be set.
    Simulate(Box<LabSimulateArguments>),
    /// Simulate all configurations of an experiment (TOML) with the hardware path profiler, reading each recording once.
    Sweep(SweepArguments),
    /// Convert a trace from another simulator (CBP-5, CBP2025, ChampSim) to a recording for `trodden simulate --from`.
    Convert(ConvertArguments),
    /// Compare compression methods on a sequence of paths and calls: size, symbols, depth and time.
    Grammar(GrammarArguments),
    /// Count paths in a recorded sequence with published methods, or check counted segments against the sequence.
    #[command(subcommand)]
    Sequence(SequenceCommand),
    /// Find repetition in a recorded sequence of paths: hot subpaths, iterations, phases.
    Patterns(PatternsArguments),
    /// Compare the schemes that find untested paths and segments, on one program with its tests and field runs.
    Schemes(SchemesArguments),
    /// Show whether the hottest paths of the tests are also hot in the field.
    HotPaths(HotPathsArguments),
    /// Run a trodden command with a published method instead of trodden's own, or with other parameters.
    With(Box<WithArguments>),
    /// Measure cost and benefit of counting, recording and analysis on real programs. Needs a checkout of the sources.
    #[command(subcommand)]
    Experiment(LabExperiment),
    /// Run a command and append its resource usage to a file, as a line of JSON.
    #[command(hide = true)]
    Measure {
        /// File to append to.
        file: PathBuf,
        /// Command to run, with its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Write the manual pages of trodden and trodden-lab into a folder.
    Man {
        /// Folder to write to; created if it does not exist.
        folder: PathBuf,
    },
    /// Print the completion script of trodden for a shell.
    Completions {
        /// Shell to complete in.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab with --strategy p3 -- record --copies 4 -- ./prog
  trodden-lab with --scheme pspp -- instrument ./prog -o ./other --interesting run.trodden
  trodden-lab with --table-slots 4096 -- build -- make
  trodden-lab with --collector uprobes -- trace record -- ./prog

Each heading names the commands that its options apply to. The exit status is that of the command.")]
pub struct WithArguments {
    /// Trodden command with its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Methods and parameters to use.
    #[command(flatten)]
    pub given: GivenChoices,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }
}
