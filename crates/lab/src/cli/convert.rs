//! The syntax of `trodden-lab convert`.

use clap::Args;
use std::path::PathBuf;
use trodden_console::arguments::choices::{Choice, one_of};
use trodden_console::arguments::places::place;
use trodden_trace::simulation::SourceFormat;

/// `trodden-lab convert`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab convert trace.bt9.gz -o trace.trodrec      then: trodden simulate --from trace.trodrec
  trodden-lab convert 600.perlbench_s.champsimtrace.xz -o perlbench.trodrec
  trodden-lab convert --format cbp2025 int_1.gz -o int.trodrec")]
pub struct Convert {
    /// The trace, compressed by gzip, zstd or xz, or not.
    pub trace: PathBuf,
    /// Its format; by default its beginning says, or its name (champsim).
    #[arg(long, value_parser = one_of(FORMATS), default_value = "auto")]
    pub format: SourceFormat,
    /// Keep what was read before a damaged or missing part.
    #[arg(long)]
    pub partial: bool,
    /// The recording.
    #[arg(long, short, value_name = "FILE", value_parser = place())]
    pub output: PathBuf,
}

/// Formats of other simulators.
const FORMATS: [Choice<SourceFormat>; 4] = [
    (SourceFormat::Auto, "auto", "What its beginning or its name says"),
    (SourceFormat::Bt9, "bt9", "A text trace of CBP-5"),
    (SourceFormat::Cbp2025, "cbp2025", "A trace of CBP2025"),
    (SourceFormat::Champsim, "champsim", "A trace of ChampSim"),
];
