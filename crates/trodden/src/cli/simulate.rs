//! The syntax of `trodden simulate`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_console::arguments::choices::{Choice, one_of};
use trodden_hardware::processor::{ProcessorEvent, ProcessorModel};
use trodden_hardware::{Overflow, Preset};
use trodden_trace::simulation::{ProfileKind, SourceFormat};

/// `trodden simulate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden simulate -- /usr/bin/bzip2 -k -9 file    hot paths of an unmodified program, with disassembly
  trodden simulate --record b.trodrec -- bzip2 -k -9 file
  trodden simulate --from b.trodrec --table 512x4 --table 128x2,start,lru --table 512x4,fold,rap
  trodden simulate --from b.trodrec --preset extended-loops --extensions 2 --json
  trodden simulate --profile hot.trodden -- ./prog    the table's profile, of a program built with --addresses, for report and diff
  trodden simulate --event l2-misses --event mispredictions --branch-queue 4 -- bzip2 -k -9 file

Programs run under QEMU's user mode (Debian: qemu-user 7.2 or later, built with plugins). What they write to standard output goes to \
standard
error, unless -o names a file for the report. A recording is read in the same way as a run, as often as you like.

A table is ENTRIESxASSOCIATIVITY (512x4: 512 entries, in sets of 4), with an index (start, xor, fold, mix) and a replacement policy \
(lfu, lru,
random, space-saving, rap, decay) behind commas. The default, 512x4,xor,lfu, is that of K. Vaswani's thesis.

Exit status: the program's own (128+N if signal N ended it); of recordings 0; 2 if trodden itself failed.")]
pub struct Simulate {
    /// Read branches from this file instead of running a program.
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub from: Option<PathBuf>,
    /// The format of that file; by default its beginning says.
    #[arg(long, value_parser = one_of(formats()), default_value = "auto")]
    pub format: SourceFormat,
    /// Keep what was read before a damaged or missing part.
    #[arg(long)]
    pub partial: bool,
    /// An executable or library whose branches are in the text of `perf script`. May be given several times.
    #[arg(long, value_name = "FILE", requires = "from")]
    pub program: Vec<PathBuf>,
    /// Write the branches to this file, for later runs with --from; with --instructions, or an event that needs them, whole instructions.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Record whole instructions with the memory that they access: what events, caches and predictors of later runs need.
    #[arg(long, requires = "record")]
    pub instructions: bool,
    /// Which paths are detected.
    #[arg(long, value_parser = one_of(PRESETS), default_value = "ball-larus")]
    pub preset: Preset,
    /// Backward branches or calls that extended paths go across, at most (by default 1).
    #[arg(long, value_name = "N")]
    pub extensions: Option<u16>,
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
    #[arg(long, value_parser = one_of(OVERFLOWS), default_value = "drop")]
    pub stack_overflow: Overflow,
    /// Do not repair the path stack after longjmp and exceptions.
    #[arg(long)]
    pub no_repair: bool,
    /// An event that is counted along paths, in tables of its own. May be given several times; all but instructions
    /// need a source of whole instructions.
    #[arg(long, value_name = "EVENT", value_parser = one_of(EVENTS))]
    pub event: Vec<ProcessorEvent>,
    /// Bits of a path's event counter.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub counter_bits: u8,
    /// A file (TOML) with numbers of the processor that differ from the default (the processor of K. Vaswani's thesis, table 5.3).
    #[arg(long, value_name = "FILE")]
    pub processor: Option<PathBuf>,
    /// Which model of the processor gives events and cycles.
    #[arg(long, value_parser = one_of(MODELS), default_value = "fast")]
    pub model: ProcessorModel,
    /// Entries of the queue between processor and profiler: says how much the profiler slows the processor down.
    #[arg(long, value_name = "N")]
    pub branch_queue: Option<usize>,
    /// Write the sequence of paths to this file, a line each: thread, start, outcomes, what ended it.
    #[arg(long, value_name = "FILE")]
    pub sequence: Option<PathBuf>,
    /// Write the profile, as paths of the program's units, to this file, for `trodden report`, `diff` and `pgo`. The program must have been
    /// built with `--addresses`.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Which profile that is.
    #[arg(long, value_name = "WHICH", value_parser = one_of(PROFILES), default_value = "table", requires = "profile")]
    pub profile_of: ProfileKind,
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
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Which profile is written as paths of units.
const PROFILES: [Choice<ProfileKind>; 2] =
    [(ProfileKind::Table, "table", "What the first table holds"), (ProfileKind::Complete, "complete", "All paths that the detector found")];

/// The formats of a file of branches.
fn formats() -> Vec<Choice<SourceFormat>> {
    let choices = SourceFormat::NAMED.into_iter().filter_map(|(format, name)| {
        let about = match format {
            SourceFormat::Auto => "What its beginning says",
            SourceFormat::Recorded => "A recording of `trodden simulate --record`",
            // `trodden-lab convert` reads them.
            SourceFormat::Bt9 | SourceFormat::Cbp2025 | SourceFormat::Champsim => return None,
            SourceFormat::PerfScript => "The text of `perf script`: branch stacks, or branches of Intel PT",
        };
        Some((format, name, about))
    });
    choices.collect()
}

/// An event of the processor model.
const EVENTS: [Choice<ProcessorEvent>; 7] = [
    (ProcessorEvent::Instructions, "instructions", "Instructions"),
    (ProcessorEvent::L1Misses, "l1-misses", "Misses of the first-level caches"),
    (ProcessorEvent::L2Misses, "l2-misses", "Misses of the second-level cache"),
    (ProcessorEvent::Mispredictions, "mispredictions", "Mispredicted branches"),
    (ProcessorEvent::StallCycles, "stall-cycles", "Cycles in which nothing is committed"),
    (ProcessorEvent::AnalyticalPower, "power-analytical", "Power in the caches, by relative costs of accesses"),
    (ProcessorEvent::CyclePower, "power-cycle", "Power in the caches, by cycle; with --model reference"),
];

/// A model of the processor.
const MODELS: [Choice<ProcessorModel>; 2] =
    [(ProcessorModel::Fast, "fast", "One pass over the instructions"), (ProcessorModel::Reference, "reference", "A step for each cycle")];

/// Which paths are detected.
const PRESETS: [Choice<Preset>; 4] = [
    (Preset::BallLarus, "ball-larus", "Acyclic paths of procedures"),
    (Preset::WholeProgram, "whole-program", "Acyclic paths that end at calls and returns"),
    (Preset::ExtendedLoops, "extended-loops", "Paths of procedures across backward branches"),
    (Preset::ExtendedCalls, "extended-calls", "Paths across calls"),
];

/// What happens when the path stack is full.
const OVERFLOWS: [Choice<Overflow>; 2] =
    [(Overflow::Drop, "drop", "The oldest path is lost"), (Overflow::Spill, "spill", "The oldest path goes to memory")];
