//! Syntax of `trodden segments`.

use clap::Args;
use std::path::PathBuf;
use trodden_stored::named::LAST_RUN_NAME;

/// `trodden segments`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden segments                       segments of the last run
  trodden segments 12 --function parse   segments that end in `parse`
  trodden segments 12 --thread 1         call segments of one thread's stream
  trodden segments field --known tests --sarif new.sarif

A segment is a caller's path up to a call, then the callee's path; a segment of depth K crosses K
calls. Record a run with `record --whole-program`, or a program made by `instrument --segments`. For
programs made by `instrument --segments tested:RUN`, `trodden untested` shows untested segments.")]
pub struct SegmentsArguments {
    /// Run (12, last, last~1), suite or profile; logs of a stream; events as text.
    #[arg(default_value = LAST_RUN_NAME)]
    pub file: PathBuf,
    /// Number of calls in a segment.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: u32,
    /// Only segments that end in functions with this name.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Only segments that are not in this profile, run or suite (repeatable).
    ///
    /// Segments that the program was built to treat as tested are left out, too.
    #[arg(long, value_name = "PROFILE")]
    pub known: Vec<String>,
    /// Count segments of this thread, with the caller's path after the call.
    #[arg(long, value_name = "N")]
    pub thread: Option<usize>,
    /// Maximum number of segments, 0 for all [default: 10; JSON, SARIF: all].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Exit with status 1 if a segment is found.
    #[arg(long)]
    pub fail: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "sarif")]
    pub json: bool,
    /// Write SARIF 2.1.0 to this file instead.
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
}
