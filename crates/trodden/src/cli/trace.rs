//! Syntax of `trodden trace`.

use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trodden_console::arguments::choices::{ArgumentChoice, parser_of_choices};
use trodden_console::arguments::engines::{EngineChoice, parse_engine};
use trodden_console::arguments::laboratory::TraceChoices;
use trodden_console::arguments::places::output_path;
use trodden_console::arguments::times::parse_duration;
use trodden_trace::CollectorKind;

/// `trodden trace`
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record the exact trace of a program or of a running process.
    Record(Box<TraceRecordArguments>),
    /// Execute some of the runs of `trace record` on another machine.
    #[command(hide = true)]
    Work {
        /// Folder of the recording.
        folder: PathBuf,
        /// Number of the machine.
        machine: usize,
    },
}

/// Returns the collectors that `--collector` can select, with descriptions.
fn collector_choices() -> Vec<ArgumentChoice<CollectorKind>> {
    let choices = CollectorKind::ALL.into_iter().filter_map(|kind| {
        let about = match kind {
            CollectorKind::Trampolines => "Patch jumps to recording copies of blocks into the program's memory",
            CollectorKind::Compiled => "Patch jumps into the sleds of `trodden-lab with --witnesses -- build`; move no instruction",
            CollectorKind::Ptrace => "Set breakpoints with ptrace; single-step displaced instructions",
            CollectorKind::SingleStep => "Single-step every instruction with ptrace: slow, for small inputs and as a check",
            // Only `trodden-lab with --collector` offers these.
            CollectorKind::Hardware | CollectorKind::Uprobes => return None,
        };
        Some((kind, kind.collector().name(), about))
    });
    choices.collect()
}

/// A property of the environment that is the same in all runs of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RepeatedRunProperty {
    /// Addresses (no randomisation).
    Addresses,
    /// Clocks.
    Time,
    /// Random numbers.
    Randomness,
    /// Process IDs.
    Processes,
    /// The core that the program runs on.
    Core,
}

/// `trodden trace record`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden trace record --output t.trace -- ./server 8080
  trodden trace record --runs 4 -- bzip2 -k -c file           a part of the blocks in each run
  trodden trace record --pid 1234 --for 5s --output now.trace
  trodden trace record --library libz -- ./prog               trace a shared library, too
  trodden trace record --follow -- make test                  trace every process

By default, the program runs once, as it would without trodden. With --runs, all runs get the same
arguments, environment, folder and standard input; time, random numbers and process IDs are replayed
from an extra first run. If two runs diverge, trodden shows where.
Exit status: the program's (128+N if signal N ended it).")]
pub struct TraceRecordArguments {
    /// Number of runs; if there are several, each observes a part of the blocks.
    #[arg(short = 'k', long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub runs: u32,
    /// File for the trace.
    #[arg(short, long, value_name = "FILE", default_value = "out.trace", value_parser = output_path())]
    pub output: PathBuf,
    /// Trace a running process until it ends or Ctrl-C is pressed.
    #[arg(long, alias = "attach", value_name = "PID", conflicts_with = "command")]
    pub pid: Option<i32>,
    /// Trace child processes and programs that the program executes, into OUTPUT.PID.
    #[arg(long, conflicts_with_all = ["no_repeat", "fresh_folder"])]
    pub follow: bool,
    /// End the trace after this time, in each run.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// End the trace after this many bytes in a run (suffixes k, M, G).
    #[arg(long, value_name = "SIZE", value_parser = parse_byte_size)]
    pub max_size: Option<u64>,
    /// How to observe blocks [default: trampolines if possible].
    #[arg(long, value_parser = parser_of_choices(collector_choices()))]
    pub collector: Option<CollectorKind>,
    /// Also trace this library: libz, libz.so.1 or a path (repeatable).
    ///
    /// Libraries that are loaded later need a path.
    #[arg(long, value_name = "NAME")]
    pub library: Vec<String>,
    /// Do not trace the inside of this function (repeatable).
    #[arg(long, value_name = "FUNCTION")]
    pub opaque: Vec<String>,
    /// Let this property vary between runs (repeatable).
    #[arg(long, value_enum, value_name = "WHAT")]
    pub no_repeat: Vec<RepeatedRunProperty>,
    /// Give each run after the first a fresh copy of the working folder.
    #[arg(long, conflicts_with = "pid")]
    pub fresh_folder: bool,
    /// Engine: local, slurm, kubernetes or template:COMMAND.
    ///
    /// Forms with options: slurm[:OPTIONS], kubernetes:IMAGE,CLAIM, template:COMMAND.
    #[arg(long, value_name = "ENGINE", default_value = "local", conflicts_with = "pid", value_parser = parse_engine)]
    pub engine: EngineChoice,
    /// Maximum number of runs at a time [default: number of cores].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub jobs: Option<u32>,
    /// Options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: TraceChoices,
    /// Program and its arguments.
    #[arg(trailing_var_arg = true, required_unless_present = "pid", value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Parses a number of bytes, with an optional suffix for a power of 1024.
fn parse_byte_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        other => return Err(format!("`{other}` is not a unit: use k, M or G")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("`{text}` is not a number of bytes: use a whole number with an optional suffix, such as 512M"))?;
    number.checked_mul(factor).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_suffixes_are_powers_of_1024() {
        let sizes = ["12", "3k", "2M", "1GiB"].map(parse_byte_size);
        assert_eq!(sizes, [Ok(12), Ok(3072), Ok(2 << 20), Ok(1 << 30)]);
        assert!(parse_byte_size("3x").is_err() && parse_byte_size("").is_err() && parse_byte_size("99999999999G").is_err());
    }
}
