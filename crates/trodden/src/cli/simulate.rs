//! Syntax of `trodden simulate`.

use clap::Args;
use trodden_console::arguments::simulate::SimulateOptions;

/// `trodden simulate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden simulate -- /usr/bin/bzip2 -k -9 file       hot paths, with disassembly
  trodden simulate --record b.trodrec -- bzip2 -k -9 file
  trodden simulate --from b.trodrec --table 512x4 --table 128x2,start,lru
  trodden simulate --profile hot.trodden -- ./prog    a profile for report and diff
  trodden simulate --event l2-misses --event mispredictions -- bzip2 -k -9 file

Programs run under QEMU's user mode; their standard output goes to standard error unless -o names a
file for the report. A table is ENTRIESxASSOCIATIVITY[,INDEX][,REPLACEMENT]: the index is start,
xor, fold or mix, the replacement lfu, lru, random, space-saving, rap or decay; the default is
512x4,xor,lfu. The laboratory program has more options: `trodden-lab simulate`.
Exit status: the program's (128+N if signal N ended it), 0 for recordings, 2 if trodden failed.")]
pub struct SimulateArguments {
    /// Options that `trodden-lab simulate` has, too.
    #[command(flatten)]
    pub options: SimulateOptions,
}
