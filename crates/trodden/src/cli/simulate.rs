//! The syntax of `trodden simulate`.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// `trodden simulate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden simulate -- /usr/bin/bzip2 -9 file       hot paths of an unmodified program, with disassembly
  trodden simulate --record b.trodrec -- bzip2 -9 file
  trodden simulate --from b.trodrec --table 512x4 --table 128x2,start,lru --table 512x4,fold,rap
  trodden simulate --from b.trodrec --preset extended-loops --extensions 2 --json

Programs run under QEMU's user mode (Debian: qemu-user 7.2 or later, built with plugins). What they write to standard output goes to standard
error, unless -o names a file for the report. A recording is read in the same way as a run, as often as you like.

A table is ENTRIESxASSOCIATIVITY, with an index (start, xor, fold, mix) and a replacement policy (lfu, lru, random, space-saving, rap, decay) behind
commas. Published is 512x4,xor,lfu.

Exit status: the program's own (128+N if signal N ended it); of recordings 0; 2 if trodden itself failed.")]
pub struct Simulate {
    /// Read branches from this file instead of running a program.
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub from: Option<PathBuf>,
    /// The format of that file; by default its beginning says.
    #[arg(long, value_enum, default_value_t = SourceFormat::Auto)]
    pub format: SourceFormat,
    /// Keep what was read before a damaged or missing part.
    #[arg(long)]
    pub partial: bool,
    /// Write the branches to this file, for later runs with --from.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Which paths are detected.
    #[arg(long, value_enum, default_value_t = PathKind::BallLarus)]
    pub preset: PathKind,
    /// Backward branches or calls that extended paths go across, at most.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub extensions: u16,
    /// A file (TOML) that says what each class of branches does, instead of a preset.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "extensions"])]
    pub mapping: Option<PathBuf>,
    /// A hot path table. May be given several times; the first one's profile is shown. By default 512x4,xor,lfu.
    #[arg(long, value_name = "TABLE")]
    pub table: Vec<String>,
    /// Branches of a path, at most.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub path_limit: u8,
    /// Entries of the path stack.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub path_stack: usize,
    /// What happens when the path stack is full.
    #[arg(long, value_enum, default_value_t = StackOverflow::Drop)]
    pub stack_overflow: StackOverflow,
    /// Do not repair the path stack after longjmp and exceptions.
    #[arg(long)]
    pub no_repair: bool,
    /// Instructions of a window of the dynamic overlap.
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    pub window: u64,
    /// At most this many paths (text: 10, JSON: all).
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// At most this many instructions of each path; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub steps: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Write the report to this file.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The program to run, and its arguments.
    #[arg(last = true, required_unless_present = "from")]
    pub command: Vec<OsString>,
}

/// The format of a file of branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceFormat {
    /// What its beginning says.
    Auto,
    /// A recording of `trodden simulate --record`.
    Recorded,
}

/// Which paths are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathKind {
    /// Acyclic paths of procedures.
    BallLarus,
    /// Acyclic paths that end at calls and returns.
    WholeProgram,
    /// Paths of procedures across backward branches.
    ExtendedLoops,
    /// Paths across calls.
    ExtendedCalls,
}

/// What happens when the path stack is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StackOverflow {
    /// The oldest path is lost.
    Drop,
    /// The oldest path goes to memory.
    Spill,
}
