//! Options of a recording, and what it needs to know about the process that asks for it.

use crate::plan::PlanOptions;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trodden_launch::Engine;
use trodden_trace::{CollectorKind, OutputStream, RepeatRecipe};

/// What to record, and how.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Options of each run.
    pub run: RunOptions,
    /// The file to write the trace to.
    pub output: PathBuf,
    /// How witnesses are distributed over the runs.
    pub plan: PlanOptions,
    /// Source of the execution frequencies that witnesses are placed by.
    pub weights: WeightsFrom,
    /// Names of functions that are not traced inside.
    pub opaque: Vec<String>,
    /// Maximum number of runs at a time; by default one per core.
    pub jobs: Option<usize>,
    /// A folder that keeps the partial traces.
    pub keep: Option<PathBuf>,
    /// Whether only a plan is made, and nothing is run.
    pub plan_only: bool,
}

/// Options that all runs share, also on other machines.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunOptions {
    /// The program as the user wrote it, and its arguments; empty if a process is traced.
    pub command: Vec<OsString>,
    /// A running process to trace instead.
    pub process: Option<i32>,
    /// How executions of sites are observed; by default trampolines if they work, or else breakpoints.
    pub collector: Option<CollectorKind>,
    /// Shared libraries that are traced as well.
    pub libraries: Vec<String>,
    /// What is kept the same in all runs.
    pub recipe: RepeatRecipe,
    /// Whether each run is pinned to a core of its own.
    pub is_pinned: bool,
    /// Size in bytes at which a run stops recording.
    pub max_size: Option<u64>,
    /// Time after which a run stops recording.
    pub limit: Option<Duration>,
}

/// What a recording needs to know about the process that asks for it.
pub struct RecordingHost<'a> {
    /// The program's file, found as a shell would.
    pub program: Option<PathBuf>,
    /// The executable of this process, on which collectors are tried.
    pub own_program: PathBuf,
    /// The folder for temporary files.
    pub temporary: PathBuf,
    /// Receives the output of the run that the user sees, if it passes through this process.
    pub pass_on: &'a (dyn Fn(OutputStream, &[u8]) + Sync),
    /// A folder that each run but the first sees a fresh copy of.
    pub fresh_folder: Option<PathBuf>,
    /// Other machines, which execute all runs but the first.
    pub machines: Option<OtherMachines>,
}

/// A set of machines set up like this one.
#[derive(Clone, Debug)]
pub struct OtherMachines {
    /// How commands are executed there.
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
