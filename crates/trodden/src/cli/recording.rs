//! The syntax of commands that make profiles of what ran: `trodden record`, `sample`, `import`.

use super::branches::Branches;
use super::copies::Copies;
use super::stream::RecordStream;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trodden_console::arguments::times::duration;
use trodden_recording::RecordedCommand;

/// Where the profile of a run goes.
#[derive(Debug, Args)]
pub struct Destination {
    /// Count the run to a suite of runs.
    #[arg(long, value_name = "SUITE")]
    pub suite: Option<String>,
    /// Write the profile to this file as well.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Do not enter the run in the run store (needs --output).
    #[arg(long, requires = "output")]
    pub no_store: bool,
}

impl Destination {
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
  trodden record --burst 1ms --every 100ms -- ./sampled-prog
  trodden record --branches -- ./prog                      built with --addresses
  trodden record --copies 4 --weights last -- ./prog args  four copies of the program count a part each

Programs built with --sample are counted in bursts (see `trodden sample`). All processes of the command are counted, those it starts \
too. The exit status is the command's; 128+N if signal N ended it.

With --suite, each program that the command runs is a run of its own, with its own command, status and duration; a script names its \
tests by the variable TRODDEN_TEST. That follows
the processes by ptrace, as a debugger does.")]
pub struct Record {
    /// Where its profile goes.
    #[command(flatten)]
    pub destination: Destination,
    /// With --suite: make one run of all processes, without following them. So it is also with --sample, --branches and --no-store.
    #[arg(long, requires = "suite")]
    pub together: bool,
    /// Only in bursts: fail if nothing that runs was built with --sample.
    #[arg(long)]
    pub sample: bool,
    /// When to count programs of the sample tier.
    #[command(flatten)]
    pub bursts: Bursts,
    /// Branches instead of counts.
    #[command(flatten)]
    pub branches: Branches,
    /// Streams besides counts.
    #[command(flatten)]
    pub stream: RecordStream,
    /// Several copies that share the counting.
    #[command(flatten)]
    pub copies: Copies,
    /// The command to run.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
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
    /// How long a burst is: 100us, 1ms, 2s.
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = duration)]
    pub burst: Duration,
    /// From one burst to the next, on average.
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration)]
    pub every: Duration,
}

impl Bursts {
    /// For the library.
    pub fn value(&self) -> trodden_recording::Bursts {
        trodden_recording::Bursts { burst: self.burst, every: self.every }
    }
}

/// `trodden sample`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  TRODDEN_OUTPUT=/var/tmp/counts/%m.raw ./server &     a program built with --sample: costs next to nothing
  trodden sample /var/tmp/counts --for 30s             half a minute of it, as a profile
  trodden sample 4711 --burst 1ms --every 100ms        the process of that number, until Ctrl-C

Switches the counting of programs on and off that run already; they are neither stopped nor changed. The profile has what was counted \
while this
command ran. Such programs must have been started with TRODDEN_OUTPUT.")]
pub struct Sample {
    /// Raw files, folders of them, or numbers of processes.
    #[arg(required = true, value_name = "RAW|FOLDER|PID")]
    pub subjects: Vec<PathBuf>,
    /// How long; by default until Ctrl-C, or until all processes given by number have ended.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub time: Option<Duration>,
    /// When to count.
    #[command(flatten)]
    pub bursts: Bursts,
    /// Where the profile goes.
    #[command(flatten)]
    pub destination: Destination,
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
