//! Syntax of `trodden find`.

use clap::Args;
use std::path::PathBuf;
use trodden_stored::named::LAST_RUN_NAME;

/// `trodden find`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden find 'main: 12 .. 34 !56'             through line 12, later line 34, never line 56
  trodden find 'parse: head 40 .. !52 60 back'  iterations through 40 and 60, but not 52 between
  trodden find 'get(): b3 _ b7'                 block 3, any block, block 7
  trodden find 'io.c:100-120 .. exit' tests     in all functions, in all runs of a suite
  trodden find --fail 'free_all: 12 & 31'       exit with status 1 if a path contains both
  trodden find 'main.c:120 3' t.trace           the third execution of line 120 in a trace
  trodden find --events 'enter free; leave; enter free' 12

A place is a line (12, 12-15, file.c:12), a block (b7), inlined code (name()) or any block (_).
Adjacent places follow directly; `..` allows any blocks between them, `.. !PLACE` any but PLACE.
`entry` or `head` says how the path starts; `exit`, `back` or `call` how it ends. !PLACE after all
other places excludes PLACE from the whole path. & and | combine expressions. In a trace, a place is
FUNCTION, FILE:LINE or 0xADDRESS.")]
pub struct FindArguments {
    /// Path expression; with --events: events separated by `;`; for a trace: PLACE [N].
    ///
    /// N selects the Nth execution of the place.
    pub expression: String,
    /// Profile, run, suite or trace; with --events: run, logs or text.
    #[arg(default_value = LAST_RUN_NAME)]
    pub file: PathBuf,
    /// Find events in a stream: FUNCTION:PATH, `enter FUNCTION`, `leave`.
    #[arg(long)]
    pub events: bool,
    /// Only this thread [default: all for a trace, 0 for a stream].
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// Maximum number of paths or places, 0 for all [default: 10; JSON: all].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Exit with status 1 if there is a match.
    #[arg(long)]
    pub fail: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
