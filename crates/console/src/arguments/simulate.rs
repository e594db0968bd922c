//! Options of `trodden simulate`, and additional options of `trodden-lab simulate`.

use super::choices::{ArgumentChoice, parser_of_choices};
use clap::{Args, Parser};
use std::ffi::OsString;
use std::path::PathBuf;
use trodden_hardware::processor::{ProcessorEvent, ProcessorModel};
use trodden_hardware::{MappingPreset, StackOverflowPolicy};
use trodden_trace::simulation::{ProfileKind, SourceFormat};

/// Options for the input and the report.
#[derive(Clone, Debug, Args)]
pub struct SimulateOptions {
    /// Read branches from this file instead of running a program.
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub from: Option<PathBuf>,
    /// Use the input up to the first corrupt or missing part.
    #[arg(long)]
    pub partial: bool,
    /// Executable or library in which perf recorded branches (repeatable).
    #[arg(long, value_name = "FILE", requires = "from")]
    pub program: Vec<PathBuf>,
    /// Write branches (with --event: instructions) to this file, for --from.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Hot path table, such as 512x4,xor,lfu (repeatable).
    ///
    /// ENTRIESxASSOCIATIVITY[,INDEX][,REPLACEMENT]; the default is 512x4,xor,lfu.
    #[arg(long, value_name = "TABLE")]
    pub table: Vec<String>,
    /// Count an event along paths, in a separate table (repeatable).
    #[arg(long, value_name = "EVENT", value_parser = parser_of_choices(PROCESSOR_EVENT_CHOICES))]
    pub event: Vec<ProcessorEvent>,
    /// Write the first table as a profile of a program built with --addresses.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Maximum number of paths [default: 10; JSON: all].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// File for the report [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Program to run, and its arguments.
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// Options of the path detector and the processor model.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct SimulateModel {
    /// Format of the file given by --from.
    #[arg(long, value_parser = parser_of_choices(accepted_formats()), default_value = "auto")]
    pub format: SourceFormat,
    /// Kind of paths to detect.
    #[arg(long, value_parser = parser_of_choices(PRESET_CHOICES), default_value = "ball-larus")]
    pub preset: MappingPreset,
    /// Maximum number of backward branches or calls in an extended path [default: 1].
    #[arg(long, value_name = "N")]
    pub extensions: Option<u16>,
    /// TOML file that maps branch classes to operations, instead of a preset.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "extensions"])]
    pub mapping: Option<PathBuf>,
    /// Maximum number of branches in a path.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub path_limit: u8,
    /// Number of entries in the path stack.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub path_stack: usize,
    /// Behaviour when the path stack is full.
    #[arg(long, value_parser = parser_of_choices(OVERFLOW_CHOICES), default_value = "drop")]
    pub stack_overflow: StackOverflowPolicy,
    /// Do not repair the path stack after longjmp and exceptions.
    #[arg(long)]
    pub no_repair: bool,
    /// Width of a path's event counter, in bits.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub counter_bits: u8,
    /// TOML file with processor parameters that differ from Vaswani's thesis, table 5.3.
    #[arg(long, value_name = "FILE")]
    pub processor: Option<PathBuf>,
    /// Processor model that computes events and cycles.
    #[arg(long, value_parser = parser_of_choices(PROCESSOR_MODEL_CHOICES), default_value = "fast")]
    pub model: ProcessorModel,
    /// Number of entries in the queue between processor and profiler; a full queue stalls the processor.
    #[arg(long, value_name = "N")]
    pub branch_queue: Option<usize>,
    /// Write one line per path to this file: thread, start, outcomes, reason for the end.
    #[arg(long, value_name = "FILE")]
    pub sequence: Option<PathBuf>,
    /// Source of the profile that --profile writes [default: table].
    #[arg(long, value_name = "WHICH", value_parser = parser_of_choices(PROFILE_KIND_CHOICES))]
    pub profile_of: Option<ProfileKind>,
    /// Number of instructions in a window of the dynamic overlap.
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    pub window: u64,
    /// Maximum number of instructions shown per path, 0 for all.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub steps: usize,
}

impl Default for SimulateModel {
    fn default() -> SimulateModel {
        #[derive(Parser)]
        #[command(no_binary_name = true)]
        struct ModelLine {
            #[command(flatten)]
            model: SimulateModel,
        }
        ModelLine::parse_from([""; 0]).model
    }
}

const PROFILE_KIND_CHOICES: [ArgumentChoice<ProfileKind>; 2] =
    [(ProfileKind::Table, "table", "Paths in the first table"), (ProfileKind::Complete, "complete", "All paths that the detector found")];

fn accepted_formats() -> Vec<ArgumentChoice<SourceFormat>> {
    let choices = SourceFormat::NAMED.into_iter().filter_map(|(format, name)| {
        let about = match format {
            SourceFormat::Auto => "Detect the format from the start of the file",
            SourceFormat::Recorded => "A recording of `trodden simulate --record`",
            // Not offered, because only `trodden-lab convert` can read these formats.
            SourceFormat::Bt9 | SourceFormat::Cbp2025 | SourceFormat::Champsim => return None,
            SourceFormat::PerfScript => "Text of `perf script` with branch stacks or Intel PT branches",
        };
        Some((format, name, about))
    });
    choices.collect()
}

const PROCESSOR_EVENT_CHOICES: [ArgumentChoice<ProcessorEvent>; 7] = [
    (ProcessorEvent::Instructions, "instructions", "Instructions"),
    (ProcessorEvent::L1Misses, "l1-misses", "First-level cache misses"),
    (ProcessorEvent::L2Misses, "l2-misses", "Second-level cache misses"),
    (ProcessorEvent::Mispredictions, "mispredictions", "Mispredicted branches"),
    (ProcessorEvent::StallCycles, "stall-cycles", "Cycles in which nothing is committed"),
    (ProcessorEvent::AnalyticalPower, "power-analytical", "Cache power, from relative costs of accesses"),
    (ProcessorEvent::CyclePower, "power-cycle", "Cache power, by cycle (needs --model reference)"),
];

const PROCESSOR_MODEL_CHOICES: [ArgumentChoice<ProcessorModel>; 2] =
    [(ProcessorModel::Fast, "fast", "One pass over the instructions"), (ProcessorModel::Reference, "reference", "Simulate cycle by cycle")];

const PRESET_CHOICES: [ArgumentChoice<MappingPreset>; 4] = [
    (MappingPreset::BallLarus, "ball-larus", "Acyclic paths of procedures"),
    (MappingPreset::WholeProgram, "whole-program", "Acyclic paths that end at calls and returns"),
    (MappingPreset::ExtendedLoops, "extended-loops", "Paths of procedures that extend across backward branches"),
    (MappingPreset::ExtendedCalls, "extended-calls", "Paths that extend across calls"),
];

const OVERFLOW_CHOICES: [ArgumentChoice<StackOverflowPolicy>; 2] =
    [(StackOverflowPolicy::Drop, "drop", "Drop the oldest path"), (StackOverflowPolicy::Spill, "spill", "Move the oldest path to memory")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_model_has_the_parameters_of_the_thesis() {
        let model = SimulateModel::default();
        assert_eq!((model.preset, model.path_limit, model.path_stack, model.counter_bits), (MappingPreset::BallLarus, 32, 32, 8));
    }
}
