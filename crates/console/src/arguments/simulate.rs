//! Options of `trodden simulate`, and additional ones of `trodden-lab simulate`.

use super::choices::{Choice, one_of};
use clap::{Args, Parser};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_hardware::processor::{ProcessorEvent, ProcessorModel};
use trodden_hardware::{Overflow, Preset};
use trodden_trace::simulation::{ProfileKind, SourceFormat};

/// What is read, and what is reported.
#[derive(Clone, Debug, Args)]
pub struct SimulateOptions {
    /// Read branches from this file instead of running a program.
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub from: Option<PathBuf>,
    /// Keep what was read before a damaged or missing part.
    #[arg(long)]
    pub partial: bool,
    /// Executable or library whose branches are in the text of `perf script` (repeatable).
    #[arg(long, value_name = "FILE", requires = "from")]
    pub program: Vec<PathBuf>,
    /// Write the branches to this file, for later runs with --from; with --event whole instructions, which other events need as well.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Hot path table, ENTRIESxASSOCIATIVITY[,INDEX][,REPLACEMENT] (repeatable; default 512x4,xor,lfu).
    #[arg(long, value_name = "TABLE")]
    pub table: Vec<String>,
    /// Count an event along paths, in tables of its own (repeatable).
    #[arg(long, value_name = "EVENT", value_parser = one_of(EVENTS))]
    pub event: Vec<ProcessorEvent>,
    /// Write the first table's profile, as paths of a program built with --addresses, for `trodden report` and `diff`.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Maximum number of paths (default: 10; JSON: all).
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
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

/// How paths are detected, and the processor.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct SimulateModel {
    /// Format of the file that --from names.
    #[arg(long, value_parser = one_of(formats()), default_value = "auto")]
    pub format: SourceFormat,
    /// Which paths are detected.
    #[arg(long, value_parser = one_of(PRESETS), default_value = "ball-larus")]
    pub preset: Preset,
    /// Maximum number of backward branches or calls that extended paths cross (default 1).
    #[arg(long, value_name = "N")]
    pub extensions: Option<u16>,
    /// File (TOML) that says what each class of branches does, instead of a preset.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "extensions"])]
    pub mapping: Option<PathBuf>,
    /// Maximum number of branches of a path.
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
    /// Bits of a path's event counter.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub counter_bits: u8,
    /// File (TOML) with numbers of the processor that differ from those of K. Vaswani's thesis, table 5.3.
    #[arg(long, value_name = "FILE")]
    pub processor: Option<PathBuf>,
    /// Which model of the processor gives events and cycles.
    #[arg(long, value_parser = one_of(MODELS), default_value = "fast")]
    pub model: ProcessorModel,
    /// Entries of the queue between processor and profiler: how much the profiler slows the processor down.
    #[arg(long, value_name = "N")]
    pub branch_queue: Option<usize>,
    /// Write the sequence of paths to this file, a line each: thread, start, outcomes, what ended it.
    #[arg(long, value_name = "FILE")]
    pub sequence: Option<PathBuf>,
    /// With --profile: which profile is written (default: table).
    #[arg(long, value_name = "WHICH", value_parser = one_of(PROFILES))]
    pub profile_of: Option<ProfileKind>,
    /// Instructions of a window of the dynamic overlap.
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    pub window: u64,
    /// Maximum number of instructions of each path that are shown; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub steps: usize,
}

/// The default values of the options.
impl Default for SimulateModel {
    fn default() -> SimulateModel {
        #[derive(Parser)]
        #[command(no_binary_name = true)]
        struct Line {
            #[command(flatten)]
            model: SimulateModel,
        }
        Line::parse_from([""; 0]).model
    }
}

/// The profiles that can be written as paths of units.
const PROFILES: [Choice<ProfileKind>; 2] =
    [(ProfileKind::Table, "table", "What the first table holds"), (ProfileKind::Complete, "complete", "All paths that the detector found")];

/// The formats of files with branches that `trodden simulate` reads.
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

/// The events of the processor model.
const EVENTS: [Choice<ProcessorEvent>; 7] = [
    (ProcessorEvent::Instructions, "instructions", "Instructions"),
    (ProcessorEvent::L1Misses, "l1-misses", "Misses of the first-level caches"),
    (ProcessorEvent::L2Misses, "l2-misses", "Misses of the second-level cache"),
    (ProcessorEvent::Mispredictions, "mispredictions", "Mispredicted branches"),
    (ProcessorEvent::StallCycles, "stall-cycles", "Cycles in which nothing is committed"),
    (ProcessorEvent::AnalyticalPower, "power-analytical", "Power in the caches, by relative costs of accesses"),
    (ProcessorEvent::CyclePower, "power-cycle", "Power in the caches, by cycle; with --model reference"),
];

/// The models of the processor.
const MODELS: [Choice<ProcessorModel>; 2] =
    [(ProcessorModel::Fast, "fast", "One pass over the instructions"), (ProcessorModel::Reference, "reference", "A step for each cycle")];

/// The presets of detected paths.
const PRESETS: [Choice<Preset>; 4] = [
    (Preset::BallLarus, "ball-larus", "Acyclic paths of procedures"),
    (Preset::WholeProgram, "whole-program", "Acyclic paths that end at calls and returns"),
    (Preset::ExtendedLoops, "extended-loops", "Paths of procedures across backward branches"),
    (Preset::ExtendedCalls, "extended-calls", "Paths across calls"),
];

/// The behaviours when the path stack is full.
const OVERFLOWS: [Choice<Overflow>; 2] =
    [(Overflow::Drop, "drop", "The oldest path is lost"), (Overflow::Spill, "spill", "The oldest path goes to memory")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_model_is_that_of_the_thesis() {
        let model = SimulateModel::default();
        assert_eq!((model.preset, model.path_limit, model.path_stack, model.counter_bits), (Preset::BallLarus, 32, 32, 8));
    }
}
