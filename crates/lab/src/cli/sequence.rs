//! The syntax of `trodden-lab sequence`.

use clap::{Args, Subcommand};

/// Published ways to count paths of a sequence, and a check.
#[derive(Debug, Subcommand)]
pub enum Sequence {
    /// Count supergraph paths: across siblings, out of loops of callees, as counting in inlined code does.
    Supergraph(CountedPaths),
    /// Count the last N branches as a path (Young and Smith 1999); the events must name their blocks.
    Branches(CountedPaths),
    /// Compare the segments that a program counted with those of a stream; exit with status 1 if they differ.
    Check(Check),
}

/// `trodden-lab sequence supergraph`, `branches`
#[derive(Debug, Args)]
pub struct CountedPaths {
    /// A run recorded with --whole-program (12, last, last~1), its logs, or a sequence of events as text.
    pub recording: String,
    /// Levels of calls of the supergraph, or branches of a path.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub length: u32,
    /// Thread, by its number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub thread: usize,
    /// Maximum number of paths; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trodden-lab sequence check`
#[derive(Debug, Args)]
pub struct Check {
    /// The profile or run of a program made by `trodden instrument --segments`.
    pub counted: String,
    /// A run recorded with --whole-program, or its logs.
    pub recording: String,
    /// Only segments through this many calls. [default: all depths that the program counts]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: Option<u32>,
}
