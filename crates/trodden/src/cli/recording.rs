//! Syntax of the commands that store runs: `trodden record`, `import`.

use super::branches::{PerfBranchSelection, parse_branch_selection};
use super::copies::RecordCopiesArguments;
use anyhow::{Result, ensure};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trodden_console::arguments::laboratory::StreamChoices;
use trodden_console::arguments::places::output_path;
use trodden_console::arguments::times::parse_duration;
use trodden_recording::RecordedCommand;
use trodden_recording::streams::record::StreamOptions;
use trodden_sequence::CompressionMethod;
use trodden_wire::stream::{DEFAULT_MAX_WAIT_MS, DEFAULT_REGIONS, MAX_LAST_EVENT_COUNT};

/// Destination of a run's profile.
#[derive(Debug, Args)]
pub struct ProfileDestinationArguments {
    /// Put the run into this suite.
    #[arg(long, value_name = "SUITE")]
    pub suite: Option<String>,
    /// Write the profile to this file as well.
    #[arg(short, long, value_name = "FILE", value_parser = output_path())]
    pub output: Option<PathBuf>,
    /// Do not put the run into the run store (needs --output).
    #[arg(long, requires = "output")]
    pub no_store: bool,
}

impl ProfileDestinationArguments {
    /// Checks the destination before the program runs. Fails if `--output` is a folder.
    pub fn check_output_is_no_folder(&self) -> Result<()> {
        let Some(file) = &self.output else { return Ok(()) };
        ensure!(!file.is_dir(), "--output {} is a folder. Name a file, such as {0}/run.trodden", file.display());
        Ok(())
    }

    /// Converts to the type of the crate `trodden-recording`.
    pub fn to_profile_destination(&self) -> trodden_recording::ProfileDestination {
        trodden_recording::ProfileDestination { suite: self.suite.clone(), output: self.output.clone(), no_store: self.no_store }
    }
}

/// `trodden record`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden record -- ./prog args
  trodden record --suite nightly -- make check         store one run per program that make runs
  trodden record -o one.trodden --no-store -- ./prog
  trodden record --burst 1ms --every 100ms -- ./prog   built with --sample
  trodden record --attach 4711 --for 30s               a running process, built with --sample
  trodden record --branches -- ./prog                  built with --addresses
  trodden record --copies 4 -- ./prog args < input     four copies, each counting a part

All processes of the command are counted. The exit status is the command's (128+N if signal N ended
it). --suite follows processes with ptrace; scripts name tests by the variable TRODDEN_TEST.")]
pub struct RecordArguments {
    /// Destination of the profile.
    #[command(flatten)]
    pub destination: ProfileDestinationArguments,
    /// Attach to a process, by PID, raw file or folder (repeatable).
    ///
    /// Its program must be built with --sample and started with TRODDEN_OUTPUT.
    #[arg(long, alias = "pid", value_name = "RAW|FOLDER|PID")]
    #[arg(conflicts_with_all = ["branches", "whole_program", "last", "copies", "command"])]
    pub attach: Vec<PathBuf>,
    /// With --attach: duration [default: until Ctrl-C or the processes end].
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, requires = "attach")]
    pub time: Option<Duration>,
    /// Bursts of programs built with --sample.
    #[command(flatten)]
    pub bursts: BurstScheduleArguments,
    /// Record branches with perf: records, trace or an EVENT of perf.
    ///
    /// The program must be built with --addresses. `records` (the default) are the most recent branches at each sample, `trace` are all
    /// branches, from Intel PT; EVENT takes records at another event of perf.
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "records",
        conflicts_with_all = ["burst", "every"], value_parser = parse_branch_selection)]
    pub branches: Option<PerfBranchSelection>,
    /// Recording of streams.
    #[command(flatten)]
    pub stream: StreamRecordingArguments,
    /// Command to run, with its arguments.
    #[arg(trailing_var_arg = true, required_unless_present = "attach", value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Recording by several copies.
    #[command(flatten)]
    pub copies: RecordCopiesArguments,
}

impl RecordArguments {
    /// Converts the command and its destination to the type of the crate `trodden-recording`.
    pub fn to_recorded_command(&self) -> RecordedCommand {
        RecordedCommand { command: self.command.clone(), destination: self.destination.to_profile_destination() }
    }
}

/// The bursts in which a program built with `--sample` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct BurstScheduleArguments {
    /// Length of a burst, such as 100us, 1ms or 2s [default: 500us].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub burst: Option<Duration>,
    /// Average time between the starts of bursts; a few gaps are longer [default: 10ms].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub every: Option<Duration>,
}

impl BurstScheduleArguments {
    /// Returns true if an option sets the bursts. Programs built with `--sample` count in bursts without these options, too.
    pub fn has_burst_options(&self) -> bool {
        self.burst.is_some() || self.every.is_some()
    }

    /// Converts to the type of the crate `trodden-recording`, with defaults for options that are not given.
    pub fn to_burst_schedule(self) -> trodden_recording::BurstSchedule {
        let (burst, period) = (self.burst.unwrap_or(Duration::from_micros(500)), self.every.unwrap_or(Duration::from_millis(10)));
        trodden_recording::BurstSchedule { burst, period }
    }
}

/// Options for programs built with `--stream`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct StreamRecordingArguments {
    /// Keep each thread's complete stream (built with --stream).
    #[arg(long, conflicts_with_all = ["last", "burst", "every", "branches", "copies"])]
    pub whole_program: bool,
    /// Keep the last N events of each thread (built with --stream).
    ///
    /// An event is a path or a call. Nothing is counted.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_LAST_EVENT_COUNT),
        conflicts_with_all = ["burst", "every", "branches", "copies", "suite", "output", "no_store"])]
    pub last: Option<u64>,
    /// Options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: StreamChoices,
}

impl StreamRecordingArguments {
    /// Converts to the options of the crate `trodden-recording` for complete streams, with defaults for options that are not given.
    pub fn to_stream_options(&self) -> StreamOptions {
        StreamOptions {
            method: self.choices.method.unwrap_or(CompressionMethod::Phrases),
            backlog: self.choices.backlog.unwrap_or(DEFAULT_REGIONS),
            patience: self.choices.max_wait.map_or(DEFAULT_MAX_WAIT_MS, |time| time.as_millis() as u64),
        }
    }
}

/// `trodden import`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  TRODDEN_OUTPUT=/var/tmp/counts/%m.raw ./server
  trodden import /var/tmp/counts                      the counts of the server
  trodden import .trodden/raw-*                       streams left by a killed recorder
  trodden import t.trace                              the paths of a trace
  perf record -b -e branches:u -o branches.data -- ./prog
  perf script -i branches.data -F pid,tid,ip,brstack --show-mmap-events |
      trodden import - --program ./prog

All files must be of the same kind. Branches from `perf script` need a program built with
--addresses (for others, use `trodden simulate --from`); their counts are marked as estimates.")]
pub struct ImportArguments {
    /// Raw files, stream files, or folders of them; a trace; `perf script` text (- for stdin).
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Branches: program or library that ran, built with --addresses (repeatable).
    #[arg(long, value_name = "FILE")]
    pub program: Vec<PathBuf>,
    /// Destination of the profile.
    #[command(flatten)]
    pub destination: ProfileDestinationArguments,
}
