//! The syntax of `trodden segments`.

use clap::Args;
use std::path::PathBuf;
use trodden_stored::named::LAST;

/// `trodden segments`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden segments                          of the last run, recorded by `record --whole-program`, or by a program made by
                                            `trodden instrument --segments`
  trodden segments 12 --function parse      those that end in a function
  trodden segments 12 --thread 1            call segments of one thread's stream
  trodden segments field --known tests --sarif new.sarif

A segment is a caller's path up to a call and the callee's path after it; of depth K, through K calls.")]
pub struct Segments {
    /// A run (12, last, last~1), suite or profile; logs of a stream; a sequence of events as text.
    #[arg(default_value = LAST)]
    pub file: PathBuf,
    /// Calls that a segment runs through.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: u32,
    /// Only segments that end in functions of this name.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Only segments that no test executed: neither those that the program was built to know, nor those of --known.
    #[arg(long)]
    pub untested: bool,
    /// Only segments that are not in this profile, run or suite. May be given several times.
    #[arg(long, value_name = "PROFILE")]
    pub known: Vec<String>,
    /// Count call segments of this thread's stream, which include what the caller does after the call.
    #[arg(long, value_name = "N")]
    pub thread: Option<usize>,
    /// Maximum number of segments; 0 for all. [default: 10, of JSON and SARIF all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Exit with status 1 if a segment is found.
    #[arg(long)]
    pub fail: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "sarif")]
    pub json: bool,
    /// Write the segments to a file in SARIF 2.1.0 instead.
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
}
