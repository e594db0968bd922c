//! The syntax of `trodden stream`, `trodden last`, and of recording streams.

use super::StreamAnalysis;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use trodden_console::arguments::METHODS;
use trodden_console::arguments::choices::one_of;
use trodden_recording::streams::record::StreamOptions;
use trodden_sequence::CompressionMethod;
use trodden_wire::stream::{DEFAULT_PATIENCE_MS, DEFAULT_REGIONS, MOST_LAST, MOST_PATIENCE_MS, MOST_REGIONS};

/// What `trodden record` keeps besides counts, of programs built with --stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct RecordStream {
    /// Keep the whole sequence of paths and calls of each thread, compressed; of programs built with --stream. Counts are made from it.
    /// With --suite, each program's run has its own.
    #[arg(long, conflicts_with_all = ["last", "sample", "kind", "copies"])]
    pub whole_program: bool,
    /// Keep the last N paths and calls of each thread, for `trodden last`; of programs built with --stream. Nothing is counted.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_LAST),
        conflicts_with_all = ["sample", "kind", "copies", "suite", "output", "no_store"])]
    pub last: Option<u64>,
    /// With --whole-program: how the sequence is compressed while the program runs.
    #[arg(long, value_parser = one_of(METHODS), requires = "whole_program", default_value = "phrases")]
    pub method: CompressionMethod,
    /// With --whole-program: MiB of disk of each thread that the recorder may be behind; then the thread waits for it.
    #[arg(long, value_name = "MIB", requires = "whole_program", default_value_t = DEFAULT_REGIONS,
        value_parser = clap::value_parser!(u64).range(1..=MOST_REGIONS))]
    pub backlog: u64,
    /// With --whole-program: milliseconds that a thread waits at most before it gives events up, which are counted; 0: it never waits.
    #[arg(long, value_name = "MS", requires = "whole_program", default_value_t = DEFAULT_PATIENCE_MS,
        value_parser = clap::value_parser!(u64).range(0..=MOST_PATIENCE_MS))]
    pub patience: u64,
}

impl RecordStream {
    /// How whole streams are recorded, for the library.
    pub fn options(&self) -> StreamOptions {
        StreamOptions { method: self.method, backlog: self.backlog, patience: self.patience }
    }
}

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
