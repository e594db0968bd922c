//! Command-line definition of `trodden-lab sequence`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum SequenceCommand {
    /// Count supergraph paths, which cross sibling calls and leave callees' loops, as counting in inlined code would.
    Supergraph(CountedPathsArguments),
    /// Count paths of the last N branches (Young and Smith 1999); the events must name their blocks.
    Branches(CountedPathsArguments),
    /// Compare the segments that a program counted with those of a recorded sequence; exit with status 1 if they differ.
    Check(SequenceCheckArguments),
}

/// `trodden-lab sequence supergraph`, `branches`
#[derive(Debug, Args)]
pub struct CountedPathsArguments {
    /// Run recorded with --whole-program (12, last, last~1), its log files, or a sequence of events as text.
    pub recording: String,
    /// Number of call levels (supergraph), or of branches per path (branches).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub length: u32,
    /// Number of the thread, starting at 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub thread: usize,
    /// Maximum number of paths to print (0 = all).
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SequenceCheckArguments {
    /// Profile or run of a program built with `trodden instrument --segments`.
    pub counted: String,
    /// Run recorded with --whole-program, or its log files.
    pub recording: String,
    /// Compare only segments across this many calls [default: all depths that the program counts].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: Option<u32>,
}
