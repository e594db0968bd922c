//! Command-line definition of `trodden-lab simulate`.

use clap::Args;
use trodden_console::arguments::simulate::{SimulateModel, SimulateOptions};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab simulate --from b.trodrec --preset extended-loops --extensions 2 --json
  trodden-lab simulate --from b.trodrec --table 512x4 --table 512x4,fold,rap --sequence paths.txt
  trodden-lab simulate --event l2-misses --branch-queue 4 -- bzip2 -k -9 file

A table is written ENTRIESxASSOCIATIVITY (512x4: 512 entries, in sets of 4), followed by an index (start, xor, fold, mix) and a \
replacement policy (lfu, lru, random, space-saving, rap, decay), separated by commas. The default, 512x4,xor,lfu, is that of K. Vaswani's \
thesis. Programs are run as by `trodden simulate`.")]
pub struct LabSimulateArguments {
    /// Input and output.
    #[command(flatten)]
    pub options: SimulateOptions,
    /// Path detector and processor.
    #[command(flatten)]
    pub model: SimulateModel,
}
