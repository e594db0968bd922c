//! The syntax of commands that make profiles of what ran: `trodden record`, `import`.

use super::branches::{Branches, branches};
use super::copies::Copies;
use anyhow::{Result, ensure};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trodden_console::arguments::laboratory::StreamChoices;
use trodden_console::arguments::places::place;
use trodden_console::arguments::times::duration;
use trodden_recording::RecordedCommand;
use trodden_recording::streams::record::StreamOptions;
use trodden_sequence::CompressionMethod;
use trodden_wire::stream::{DEFAULT_PATIENCE_MS, DEFAULT_REGIONS, MOST_LAST};

/// Where the profile of a run goes.
#[derive(Debug, Args)]
pub struct Destination {
    /// Put the run into this suite.
    #[arg(long, value_name = "SUITE")]
    pub suite: Option<String>,
    /// Write the profile to this file as well.
    #[arg(short, long, value_name = "FILE", value_parser = place())]
    pub output: Option<PathBuf>,
    /// Do not put the run into the run store (needs --output).
    #[arg(long, requires = "output")]
    pub no_store: bool,
}

impl Destination {
    /// Finds out what would fail only after the program has run.
    ///
    /// # Errors
    /// The profile's file is a folder, or lies in none.
    pub fn check(&self) -> Result<()> {
        let Some(file) = &self.output else { return Ok(()) };
        ensure!(!file.is_dir(), "--output {} is a folder: name a file, such as {0}/run.trodden", file.display());
        Ok(())
    }

    /// For the library.
    pub fn value(&self) -> trodden_recording::Destination {
        trodden_recording::Destination { suite: self.suite.clone(), output: self.output.clone(), no_store: self.no_store }
    }
}

/// `trodden record`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden record -- ./prog args
  trodden record --suite nightly -- make check             a run for each program it runs
  trodden record -o one.trodden --no-store -- ./prog
  trodden record --burst 1ms --every 100ms -- ./prog       built with --sample
  trodden record --attach 4711 --for 30s                   the same of a process that runs
  trodden record --branches -- ./prog                      built with --addresses
  trodden record --copies 4 -- ./prog args < input         four copies of the program count a part each

All processes of the command are counted. The exit status is the command's (128+N if signal N ended it). With --suite, processes are
followed by ptrace; a script names its tests by the variable TRODDEN_TEST.")]
pub struct Record {
    /// Where its profile goes.
    #[command(flatten)]
    pub destination: Destination,
    /// Attach to a running program, built with --sample and started with TRODDEN_OUTPUT: its raw file, their folder, or its
    /// process number (repeatable).
    #[arg(long, alias = "pid", value_name = "RAW|FOLDER|PID")]
    #[arg(conflicts_with_all = ["branches", "whole_program", "last", "copies", "command"])]
    pub attach: Vec<PathBuf>,
    /// With --attach: how long (default: until Ctrl-C, or until the processes have ended).
    #[arg(long = "for", value_name = "TIME", value_parser = duration, requires = "attach")]
    pub time: Option<Duration>,
    /// When to count programs built with --sample.
    #[command(flatten)]
    pub bursts: Bursts,
    /// Record branches with perf, of programs built with --addresses: records (the most recent at each sample), trace (all, by Intel
    /// PT), or records at another event of perf.
    #[arg(long, value_name = "records|trace|EVENT", num_args = 0..=1, require_equals = true, default_missing_value = "records",
        conflicts_with_all = ["burst", "every"], value_parser = branches)]
    pub branches: Option<Branches>,
    /// Streams besides counts.
    #[command(flatten)]
    pub stream: RecordStream,
    /// The command to run.
    #[arg(trailing_var_arg = true, required_unless_present = "attach", value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Several copies that share the counting.
    #[command(flatten)]
    pub copies: Copies,
}

impl Record {
    /// What is recorded, for the library.
    pub fn what(&self) -> RecordedCommand {
        RecordedCommand { command: self.command.clone(), destination: self.destination.value() }
    }
}

/// When a sampled program counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub struct Bursts {
    /// Count in bursts of this length, such as 100us, 1ms or 2s (default 500us).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub burst: Option<Duration>,
    /// Count in bursts, one after this time on average (default 10ms).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub every: Option<Duration>,
}

impl Bursts {
    /// Whether bursts are asked for. Programs built with --sample are counted in bursts in any case.
    pub fn are_given(&self) -> bool {
        self.burst.is_some() || self.every.is_some()
    }

    /// For the library.
    pub fn value(&self) -> trodden_recording::Bursts {
        let (burst, every) = (self.burst.unwrap_or(Duration::from_micros(500)), self.every.unwrap_or(Duration::from_millis(10)));
        trodden_recording::Bursts { burst, every }
    }
}

/// What `trodden record` keeps besides counts, of programs built with --stream.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct RecordStream {
    /// Keep the whole sequence of paths and calls of each thread, compressed (programs built with --stream).
    #[arg(long, conflicts_with_all = ["last", "burst", "every", "branches", "copies"])]
    pub whole_program: bool,
    /// Keep the last N paths and calls of each thread and count nothing (programs built with --stream).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_LAST),
        conflicts_with_all = ["burst", "every", "branches", "copies", "suite", "output", "no_store"])]
    pub last: Option<u64>,
    /// What only the laboratory chooses.
    #[arg(skip)]
    pub choices: StreamChoices,
}

impl RecordStream {
    /// How whole streams are recorded, for the library.
    pub fn options(&self) -> StreamOptions {
        StreamOptions {
            method: self.choices.method.unwrap_or(CompressionMethod::Phrases),
            backlog: self.choices.backlog.unwrap_or(DEFAULT_REGIONS),
            patience: self.choices.max_wait.map_or(DEFAULT_PATIENCE_MS, |time| time.as_millis() as u64),
        }
    }
}

/// `trodden import`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  TRODDEN_OUTPUT=/var/tmp/counts/%m.raw ./server
  trodden import /var/tmp/counts                      what the server counted
  trodden import .trodden/raw-*                       streams that a killed recorder left
  trodden import t.trace                              paths of a trace
  perf record -b -e branches:u -o branches.data -- ./prog
  perf script -i branches.data -F pid,tid,ip,brstack --show-mmap-events | trodden import - --program ./prog

Counts of branch stacks are estimates, and reports say so. Files of one call are all of the same kind.")]
pub struct Import {
    /// Raw files of counts, stream files, or folders of them; a trace; text of `perf script` with branches (`-` for standard input).
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Branches: an executable or shared library, built with `--addresses`, as it was when it ran. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub program: Vec<PathBuf>,
    /// Where the profile goes.
    #[command(flatten)]
    pub destination: Destination,
}
