//! The syntax of `trodden find`.

use clap::Args;
use std::path::PathBuf;
use trodden_stored::named::LAST;

/// `trodden find`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden find 'main: 12 .. 34 !56'             through line 12, later 34, nowhere 56
  trodden find 'parse: head 40 .. !52 60 back'  iterations of a loop from line 40 to 60 without 52 between
  trodden find 'get(): b3 _ b7'                 block 3, any block, block 7
  trodden find 'io.c:100-120 .. exit' tests     in all functions, of all runs of a suite
  trodden find --fail 'free_all: 12 & 31'       exit status 1 if a path has both
  trodden find 'main.c:120 3' t.trace           the third time that a trace executes line 120
  trodden find --events 'enter free; leave; enter free' 12

A place is a line (12, 12-15, file.c:12), a block (b7), inlined code (name()) or any block (_). `..` lets any blocks lie between two \
places, `.. !PLACE` any but those; without it
the second follows directly. entry or head say how a path begins; exit, back or call how it ends. !PLACE behind all places: nowhere on \
the path. & and | combine. A place in a trace is FUNCTION, FILE:LINE or 0xADDRESS.")]
pub struct Find {
    /// A path expression; with --events events, separated by `;`; of a trace a place, with a number after it for the nth time.
    pub expression: String,
    /// A profile, run (12, last, last~1) or suite; a trace; with --events a run, its logs, or a sequence of events as text.
    #[arg(default_value = LAST)]
    pub file: PathBuf,
    /// Find a string of events in a recorded stream: FUNCTION:PATH, `enter FUNCTION` and `leave`, as `trodden show` prints them.
    #[arg(long)]
    pub events: bool,
    /// Only this thread. [default: all of a trace, 0 of a stream]
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// Maximum number of paths or places; 0 for all. [default: 10, of JSON all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Exit with status 1 if something is found.
    #[arg(long)]
    pub fail: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
