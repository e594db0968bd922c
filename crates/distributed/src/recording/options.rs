//! Options and environment of a recording.

use crate::plan::DistributionPlanOptions;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trodden_launch::Engine;
use trodden_trace::{CollectorKind, OutputStream, RepeatRecipe};

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Options of each run.
    pub run: RunOptions,
    /// The file to write the trace to.
    pub output: PathBuf,
    /// Options for distributing witnesses over the runs.
    pub plan: DistributionPlanOptions,
    /// Source of the execution frequencies that determine where witnesses are placed.
    pub weights: WeightsFrom,
    /// Names of functions that are not traced inside.
    pub opaque: Vec<String>,
    /// Maximum number of concurrent runs; by default one per core.
    pub jobs: Option<usize>,
    /// A folder for the partial traces; by default, they are removed.
    pub keep: Option<PathBuf>,
    /// If the processes that the program creates are traced as well: the path of the first trace, to which the names of all others add a
    /// process ID.
    pub family: Option<PathBuf>,
    /// Whether to plan only, without running the program.
    pub plan_only: bool,
}

impl RecordOptions {
    /// Returns true if this is the recording of a process that another traced process has created. Its notes are stored in the trace, but
    /// not printed.
    pub fn is_child(&self) -> bool {
        self.family.as_ref().is_some_and(|first| *first != self.output)
    }
}

/// Options that all runs share, including those on other machines.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunOptions {
    /// The program, as the user typed it, and its arguments; empty if a process is traced.
    pub command: Vec<OsString>,
    /// A running process to trace instead.
    pub process: Option<i32>,
    /// How executions of sites are observed; by default trampolines if they work, or else breakpoints.
    pub collector: Option<CollectorKind>,
    /// Shared libraries that are traced as well.
    pub libraries: Vec<String>,
    /// The parts of the program's environment that are kept the same in all runs.
    pub recipe: RepeatRecipe,
    /// Whether each run is pinned to a separate core.
    pub is_pinned: bool,
    /// Size in bytes at which a run stops recording.
    pub max_size: Option<u64>,
    /// Time after which a run stops recording.
    pub limit: Option<Duration>,
}

/// The environment of a recording, provided by the calling process.
pub struct RecordingHost<'a> {
    /// The program's file, found as a shell would.
    pub program: Option<PathBuf>,
    /// This process's executable, on which collectors are tested.
    pub own_program: PathBuf,
    /// The folder for temporary files.
    pub temporary: PathBuf,
    /// Receives the output of the run that the user sees, if it passes through this process.
    pub forward_output: &'a (dyn Fn(OutputStream, &[u8]) + Sync),
    /// A folder; each run except the first gets a fresh copy of it.
    pub fresh_folder: Option<PathBuf>,
    /// Other machines, which execute all runs but the first.
    pub machines: Option<OtherMachines>,
}

/// Other machines with the same configuration as this one.
#[derive(Clone, Debug)]
pub struct OtherMachines {
    /// How commands are executed on these machines.
    pub engine: Engine,
    /// The command that executes a machine's runs; the recording's folder and the machine's number are appended.
    pub worker: Vec<OsString>,
    /// The working folder, which all machines share.
    pub folder: PathBuf,
    /// The environment of the runs.
    pub environment: Vec<(OsString, OsString)>,
}

/// The source of execution frequencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsFrom {
    /// Estimates, and frequencies in the compiler's address map.
    Static,
    /// A separate run that counts executions of function entries and loop heads.
    FirstRun,
    /// An earlier trace.
    Trace(PathBuf),
}

impl From<&str> for WeightsFrom {
    fn from(text: &str) -> Self {
        match text {
            "static" => Self::Static,
            "first-run" => Self::FirstRun,
            file => Self::Trace(file.into()),
        }
    }
}
