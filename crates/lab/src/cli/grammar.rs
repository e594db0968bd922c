//! Command-line definition of `trodden-lab grammar`.

use clap::Args;
use trodden_console::arguments::COMPRESSION_METHOD_CHOICES;
use trodden_console::arguments::choices::parser_of_choices;
use trodden_sequence::CompressionMethod;

#[derive(Debug, Args)]
pub struct GrammarArguments {
    /// Sequence to compress: a run recorded with --whole-program (12, last, last~1), its log files, or a text file of events that
    /// starts with `#trodden events 1` or was written by `trodden-lab simulate --preset whole-program --sequence`.
    pub recording: String,
    /// Number of the thread, starting at 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub thread: usize,
    /// Recompress the sequence with this method before trying the others.
    #[arg(long, value_parser = parser_of_choices(COMPRESSION_METHOD_CHOICES))]
    pub method: Option<CompressionMethod>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Maximum number of symbols and rules that a window keeps in memory.
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    pub held: u64,
}
