//! The syntax of `trodden stream`, `trodden last`.

use super::StreamAnalysis;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `trodden stream`
#[derive(Debug, Subcommand)]
pub enum Stream {
    /// How long the streams of a run are, how well they are compressed, what they hold.
    Statistics(StreamStatistics),
    /// Print paths and calls of a thread from any place on.
    Show(StreamShow),
    /// Make logs and counts of stream files that a program wrote without `trodden record`, or that a killed recorder left.
    Collect(StreamCollect),
    /// Questions.
    #[command(flatten)]
    Analysis(StreamAnalysis),
}

/// `trodden stream statistics`
#[derive(Debug, Args)]
pub struct StreamStatistics {
    /// A run recorded with --whole-program (12, last, last~1), or its folder of logs.
    #[arg(default_value = "last")]
    pub run: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trodden stream show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden stream show --count 40                   the first events of the first thread
  trodden stream show --thread 1 --from 1000000    events of the second thread from number 1000000 on")]
pub struct StreamShow {
    /// A run recorded with --whole-program (12, last, last~1), or its folder of logs.
    #[arg(default_value = "last")]
    pub run: String,
    /// Which thread, as `trodden stream statistics` numbers them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub thread: usize,
    /// Number of the first event.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from: u64,
    /// So many events; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub count: u64,
}

/// `trodden stream collect`
#[derive(Debug, Args)]
pub struct StreamCollect {
    /// Stream files, or folders of them (their names end in .stream).
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// `trodden last`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden record --last 1000 -- ./server
  trodden last                          what each thread did before the end
  trodden last --paths 20 /var/tmp/server.4711.stream
  trodden last --core core.4711         and where in the code each thread was")]
pub struct Last {
    /// Stream files, or folders of them. [default: those of the newest `trodden record --last`]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// At most this many paths and calls of each thread, the newest; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub paths: usize,
    /// The core file of the process: it says where in the code each thread was.
    #[arg(long, value_name = "FILE")]
    pub core: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
