//! The syntax of `trodden-lab grammar`.

use clap::Args;
use trodden_console::arguments::METHODS;
use trodden_console::arguments::choices::one_of;
use trodden_sequence::CompressionMethod;

/// `trodden-lab grammar`
#[derive(Debug, Args)]
pub struct Grammar {
    /// A run recorded with --whole-program (12, last, last~1), or its logs; or a sequence as text: a file that begins with
    /// `#trodden events 1`, or what `trodden-lab simulate --preset whole-program --sequence` writes.
    pub recording: String,
    /// Which thread, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub thread: usize,
    /// Compress the sequence again by this method before the others are tried.
    #[arg(long, value_parser = one_of(METHODS))]
    pub method: Option<CompressionMethod>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The most things (places of rules, terminals) that a window holds in memory.
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    pub held: u64,
}
