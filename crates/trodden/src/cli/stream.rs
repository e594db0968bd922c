//! The syntax of recording streams.

use clap::Args;
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
    /// Keep the last N paths and calls of each thread, for `trodden show`; of programs built with --stream. Nothing is counted.
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
