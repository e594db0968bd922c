//! The syntax of `trodden simulate`.

use clap::Args;
use trodden_console::arguments::simulate::SimulateOptions;

/// `trodden simulate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden simulate -- /usr/bin/bzip2 -k -9 file    hot paths of an unmodified program, with disassembly
  trodden simulate --record b.trodrec -- bzip2 -k -9 file
  trodden simulate --from b.trodrec --table 512x4 --table 128x2,start,lru
  trodden simulate --profile hot.trodden -- ./prog    for report and diff
  trodden simulate --event l2-misses --event mispredictions -- bzip2 -k -9 file

Programs run under QEMU's user mode; their standard output goes to standard error unless -o names a file for the report.
A table has an index (start, xor, fold, mix) and a replacement policy (lfu, lru, random, space-saving, rap, decay). `trodden-lab simulate`
has more options. Exit status: the program's (128+N if signal N ended it); of recordings 0; 2 if trodden itself failed.")]
pub struct Simulate {
    /// The options.
    #[command(flatten)]
    pub options: SimulateOptions,
}
