//! The syntax of `trodden show`.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::path::PathBuf;

/// `trodden show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden show t.trace --from main --to '#200'     block by block, from the first call of main on
  trodden show t.trace --calls --from 'parse 3'    calls as a tree with counts, from the third call of parse on

A place in a trace is a function (its call), FILE:LINE, 0xADDRESS or #NUMBER of a block, with a number after it for the nth time.")]
pub struct Show {
    /// A trace.
    pub file: PathBuf,
    /// Only this thread, by its number.
    #[arg(long, value_name = "N")]
    pub thread: Option<u32>,
    /// The place to begin at.
    #[arg(long, value_name = "PLACE")]
    pub from: Option<String>,
    /// Traces: the place to end at.
    #[arg(long, value_name = "PLACE")]
    pub to: Option<String>,
    /// Maximum number of blocks of each thread; 0 for all. [default: 100, with --to and of JSON all]
    #[arg(long, value_name = "N", conflicts_with = "calls")]
    pub count: Option<u64>,
    /// Traces: show calls as a tree with counts.
    #[arg(long)]
    pub calls: bool,
    /// Traces: maximum depth of calls, at most 400. [default: 40]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(..=400))]
    pub depth: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
