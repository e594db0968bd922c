//! Command-line definition of `trodden-lab convert`.

use clap::Args;
use std::path::PathBuf;
use trodden_console::arguments::choices::{ArgumentChoice, parser_of_choices};
use trodden_console::arguments::places::output_path;
use trodden_trace::simulation::SourceFormat;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab convert trace.bt9.gz -o trace.trodrec      then: trodden simulate --from trace.trodrec
  trodden-lab convert 600.perlbench_s.champsimtrace.xz -o perlbench.trodrec
  trodden-lab convert --format cbp2025 int_1.gz -o int.trodrec")]
pub struct ConvertArguments {
    /// Trace to convert; may be compressed with gzip, zstd or xz.
    pub trace: PathBuf,
    /// Format of the trace.
    #[arg(long, value_parser = parser_of_choices(SOURCE_FORMAT_CHOICES), default_value = "auto")]
    pub format: SourceFormat,
    /// If a part is corrupt or missing, convert the trace up to that part instead of failing.
    #[arg(long)]
    pub partial: bool,
    /// Recording to write.
    #[arg(long, short, value_name = "FILE", value_parser = output_path())]
    pub output: PathBuf,
}

const SOURCE_FORMAT_CHOICES: [ArgumentChoice<SourceFormat>; 4] = [
    (SourceFormat::Auto, "auto", "Detect the format from the start of the trace, or from the file name (ChampSim)"),
    (SourceFormat::Bt9, "bt9", "A text trace of CBP-5"),
    (SourceFormat::Cbp2025, "cbp2025", "A trace of CBP2025"),
    (SourceFormat::Champsim, "champsim", "A trace of ChampSim"),
];
