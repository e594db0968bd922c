//! The syntax of `trodden show`.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::path::PathBuf;

/// `trodden show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden show                                     the run or the flight recording that was recorded last
  trodden show 12 --thread 1 --from 1000000        the second thread's paths and calls, from number 1000000 on
  trodden show /var/tmp/server.4711.stream --core core.4711   its last steps, and where it crashed
  trodden show t.trace --from main --to '#200'     block by block, from the first call of main on
  trodden show t.trace --calls --from 'parse 3'    calls as a tree with counts, from the third call of parse on

A place in a trace is a function (its call), FILE:LINE, 0xADDRESS or #NUMBER of a block, with a number after it for the nth time.")]
pub struct Show {
    /// A run of `record --whole-program` or its logs; stream files of flight recorders, or folders of them; a trace.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Only this thread, by its number. [default: 0 of a run; all of others]
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// The number of the first event of a run, or the place in a trace, to begin at.
    #[arg(long, value_name = "PLACE")]
    pub from: Option<String>,
    /// Traces: the place to end at.
    #[arg(long, value_name = "PLACE")]
    pub to: Option<String>,
    /// Maximum number of events or blocks; 0 for all. [default: 100, all with --to or --json; the last 20 of flight recorders]
    #[arg(long, value_name = "N", conflicts_with = "calls")]
    pub count: Option<u64>,
    /// Traces: show calls as a tree with counts.
    #[arg(long)]
    pub calls: bool,
    /// Traces: maximum depth of calls, at most 400. [default: 40]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(..=400))]
    pub depth: Option<usize>,
    /// Flight recorders: the core file of the process, which says where in the code each thread was.
    #[arg(long, value_name = "FILE")]
    pub core: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
