//! Syntax of `trodden show`.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::path::PathBuf;

/// `trodden show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden show                                    the newest run or flight recording
  trodden show 12 --thread 1 --from 1000000       the second thread, from event 1000000 on
  trodden show /var/tmp/server.4711.stream --core core.4711   the last steps before a crash
  trodden show t.trace --from main --to '#200'    blocks from the first call of main on
  trodden show t.trace --calls --from 'parse 3'   call tree from the third call of parse on

The last steps before a crash need a program built with --stream and --flight-recorder.

A place in a trace is a function (its call), FILE:LINE, 0xADDRESS or #NUMBER of a block. A number N
after a place selects its Nth execution.")]
pub struct ShowArguments {
    /// Run of `record --whole-program` or its logs; stream files or folders of them; a trace.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Number of the thread [default: 0 for a run, all for a trace].
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// First event of a run, by number, or first place in a trace.
    #[arg(long, value_name = "PLACE")]
    pub from: Option<String>,
    /// Traces: last place.
    #[arg(long, value_name = "PLACE")]
    pub to: Option<String>,
    /// Maximum events or blocks, 0 for all [default: 100; flight recorders: 20].
    ///
    /// With --to and with --json, the default is all.
    #[arg(long, value_name = "N", conflicts_with = "calls")]
    pub count: Option<u64>,
    /// Traces: show the blocks of all threads in their common order.
    #[arg(long, conflicts_with_all = ["calls", "to", "json"])]
    pub interleave: bool,
    /// Traces: show the call tree with counts.
    #[arg(long)]
    pub calls: bool,
    /// Traces: maximum depth of the call tree, up to 400 [default: 40].
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(..=400))]
    pub depth: Option<usize>,
    /// Flight recorders: core file of the process, to locate each thread.
    #[arg(long, value_name = "FILE")]
    pub core: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
