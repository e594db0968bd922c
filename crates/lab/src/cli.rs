//! The syntax of `trodden-lab`. Man pages and `--help` come from here.

mod convert;
mod extract;
mod grammar;
mod graph;
mod loops;
mod numbering;
mod plan;
mod sequence;
mod simulate;
mod sweep;
mod untested;
mod witnesses;

pub use convert::Convert;
pub use extract::{Extract, GraphFormat};
pub use grammar::Grammar;
pub use graph::Graph;
pub use loops::Loops;
pub use numbering::{Interesting, ModelJob, ModelScheme, NumberJob};
pub use plan::Plan;
pub use sequence::{Check, CountedPaths, Sequence};
pub use simulate::Simulate;
pub use sweep::Sweep;
pub use untested::{HotPaths, Schemes};
pub use witnesses::{Condition, Reconstruct, Witnesses};

use crate::experiments::Experiment;
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
    about = "The laboratory beside trodden: algorithms on graphs from files, and published methods to compare",
    max_term_width = 100
)]
pub struct Cli {
    /// When to colour output.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Number the paths of a graph from a file, divide them, choose witnesses; show graphs of programs.
    #[command(subcommand)]
    Graph(Graph),
    /// Divide the counting of a program among copies of it, and show the cost of each, without running them.
    Plan(Plan),
    /// Show the hottest loops' machine code without and with counting, side by side.
    Loops(Loops),
    /// Simulate a hardware path profiler on a program, with all parameters of the model.
    Simulate(Box<Simulate>),
    /// Try the configurations of an experiment with the hardware path profiler (TOML), reading each recording once.
    Sweep(Sweep),
    /// Make a recording for `trodden simulate --from` of a trace of another simulator (CBP-5, CBP2025, ChampSim).
    Convert(Convert),
    /// Compare methods of compressing a sequence of paths and calls: bytes, items, depth, time.
    Grammar(Grammar),
    /// Count paths of a recorded sequence in published ways; compare counted segments with it.
    #[command(subcommand)]
    Sequence(Sequence),
    /// Compare the schemes that find untested paths and segments: all builds, tests and field of one program.
    Schemes(Schemes),
    /// Show whether the hottest paths of the tests are hot in the field.
    HotPaths(HotPaths),
    /// Run a command of trodden with a published method in the place of its own, or with other parameters.
    With(With),
    /// Measure real programs: what counting, recording and analysis cost and bring. Takes a checkout of the sources.
    #[command(subcommand)]
    Experiment(Experiment),
    /// Run a command and append what it used to a file, as a line of JSON.
    #[command(hide = true)]
    Measure {
        /// The file.
        file: PathBuf,
        /// The command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Write the manual pages of trodden and trodden-lab into a folder.
    Man {
        /// The folder, made if it is not there.
        folder: PathBuf,
    },
}

/// `trodden-lab with`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab with --strategy p3 -- record --copies 4 -- ./prog
  trodden-lab with --scheme pspp -- instrument ./prog -o ./other --interesting run.trodden
  trodden-lab with --table-slots 4096 -- build -- make
  trodden-lab with --collector uprobes -- trace record --runs 1 -- ./prog

A heading names the commands that the options below it concern. The exit status is that of the command.")]
pub struct With {
    /// A command of trodden with its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// The choices.
    #[command(flatten)]
    pub given: GivenChoices,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
