//! The syntax of `trodden trace`.

use clap::builder::ArgPredicate;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trodden_console::arguments::choices::{Choice, one_of};
use trodden_console::arguments::engines::{EngineChoice, engine};
use trodden_console::arguments::laboratory::TraceChoices;
use trodden_console::arguments::places::place;
use trodden_console::arguments::times::duration;
use trodden_trace::CollectorKind;

/// `trodden trace`
#[derive(Debug, Subcommand)]
pub enum Trace {
    /// Run a program several times with few witnesses each, and merge the partial traces into its exact trace.
    Record(Box<TraceRecord>),
    /// Execute runs of `trace record` on another machine.
    #[command(hide = true)]
    Work {
        /// The collection's folder.
        folder: PathBuf,
        /// The machine's number.
        machine: usize,
    },
}

/// Ways to see that a program comes to a place.
fn collectors() -> Vec<Choice<CollectorKind>> {
    let choices = CollectorKind::ALL.into_iter().filter_map(|kind| {
        let about = match kind {
            CollectorKind::Trampolines => "Jumps, written into the program in memory, to copies of blocks that record themselves",
            CollectorKind::Compiled => "Jumps in sleds that `trodden-lab with --witnesses -- build` compiled in: no instruction is moved",
            CollectorKind::Ptrace => "Breakpoints by ptrace, with displaced instructions",
            CollectorKind::SingleStep => "Every instruction by ptrace: slow, for small inputs and as a check",
            // The laboratory's: `trodden-lab with --collector`.
            CollectorKind::Hardware | CollectorKind::Uprobes => return None,
        };
        Some((kind, kind.collector().name(), about))
    });
    choices.collect()
}

/// What is made to repeat from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RepeatPart {
    /// Addresses: no randomisation.
    Addresses,
    /// Clocks.
    Time,
    /// Random numbers.
    Randomness,
    /// Process ids.
    Processes,
    /// The core that it runs on.
    Core,
}

/// `trodden trace record`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden trace record --runs 4 --output t.trace -- bzip2 -k -c file
  trodden trace record --runs 1 -- ./server-with-threads      every block in one run
  trodden trace record --pid 1234 --for 5s --output now.trace
  trodden trace record --library libz -- ./prog               inside a shared library, too

Each run gets the same arguments, environment, folder and standard input; time, random numbers and process ids are those of the first
run. Where two runs diverge, that place is shown. The exit status is the program's (128+N if signal N ended it).")]
pub struct TraceRecord {
    /// Number of runs to distribute the recording over; 1 watches every block in one run, as programs with threads need.
    #[arg(short = 'k', long, value_name = "K", default_value_t = 4, default_value_if("pid", ArgPredicate::IsPresent, "1"))]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub runs: u32,
    /// File that the trace goes to.
    #[arg(short, long, value_name = "FILE", default_value = "out.trace", value_parser = place())]
    pub output: PathBuf,
    /// Trace a running process, in one run, until it ends or Ctrl-C.
    #[arg(long, alias = "attach", value_name = "PID", conflicts_with = "command")]
    pub pid: Option<i32>,
    /// End the trace after this time (of several runs each).
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// End the trace when a run has written this many bytes of it (suffixes k, M, G).
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<u64>,
    /// How to see that the program comes to a place (default: trampolines where they work, else ptrace).
    #[arg(long, value_parser = one_of(collectors()))]
    pub collector: Option<CollectorKind>,
    /// Trace inside this shared library, too: libz, libz.so.1, or a path, as libraries loaded later need (repeatable).
    #[arg(long, value_name = "NAME")]
    pub library: Vec<String>,
    /// Do not trace inside this function (repeatable).
    #[arg(long, value_name = "FUNCTION")]
    pub opaque: Vec<String>,
    /// Let this vary from run to run (repeatable).
    #[arg(long, value_enum, value_name = "WHAT")]
    pub no_repeat: Vec<RepeatPart>,
    /// Give each run but the first a copy of the working folder in its place, for programs that change files in it.
    #[arg(long, conflicts_with = "pid")]
    pub fresh_folder: bool,
    /// Who executes the runs after the first: local, slurm[:OPTIONS], kubernetes:IMAGE,CLAIM or template:COMMAND.
    #[arg(long, value_name = "ENGINE", default_value = "local", conflicts_with = "pid", value_parser = engine)]
    pub engine: EngineChoice,
    /// Maximum number of runs at a time (default: one for each core).
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub jobs: Option<u32>,
    /// What only the laboratory chooses.
    #[arg(skip)]
    pub choices: TraceChoices,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required_unless_present = "pid", value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// A number of bytes, with a suffix for powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        other => return Err(format!("`{other}` is no unit: use k, M or G")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no number of bytes"))?;
    number.checked_mul(factor).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!((size("12"), size("3k"), size("2M"), size("1GiB")), (Ok(12), Ok(3072), Ok(2 << 20), Ok(1 << 30)));
        assert!(size("3x").is_err() && size("").is_err() && size("99999999999G").is_err());
    }
}
