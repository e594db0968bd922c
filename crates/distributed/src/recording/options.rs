//! What is asked of a recording, and what it is given of the process that asks.

use crate::plan::PlanOptions;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use trodden_launch::Engine;
use trodden_trace::{CollectorKind, OutputStream, RepeatRecipe};

/// What is recorded, and how.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Each of the runs.
    pub run: RunOptions,
    /// The file that the trace goes to.
    pub output: PathBuf,
    /// How witnesses are distributed over the runs.
    pub plan: PlanOptions,
    /// Where weights come from.
    pub weights: WeightsFrom,
    /// Functions that are not traced inside.
    pub opaque: Vec<String>,
    /// Maximum number of runs at a time; by default one for each core.
    pub jobs: Option<usize>,
    /// Keeps the partial traces.
    pub keep: Option<PathBuf>,
    /// Nothing is run: only the plan is asked for.
    pub plan_only: bool,
}

/// What all runs have in common; machines get it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunOptions {
    /// The program as its user called it, and its arguments; empty of a process.
    pub command: Vec<OsString>,
    /// A process that runs already.
    pub process: Option<i32>,
    /// How to see that the program comes to a place; by default trampolines where they work, else breakpoints.
    pub collector: Option<CollectorKind>,
    /// Shared libraries that are traced, too.
    pub libraries: Vec<String>,
    /// What is made to repeat from run to run.
    pub recipe: RepeatRecipe,
    /// Each run has a core of its own.
    pub is_pinned: bool,
    /// The trace ends when a run has written this many bytes of it.
    pub max_size: Option<u64>,
    /// The trace ends after this time.
    pub limit: Option<Duration>,
}

/// What a recording is given of the process that asks for it.
pub struct RecordingHost<'a> {
    /// The file of the program, found as a shell finds it.
    pub program: Option<PathBuf>,
    /// The file of this program, which collectors are tried on.
    pub own_program: PathBuf,
    /// Where temporary files go.
    pub temporary: PathBuf,
    /// Gets what the run writes whose output is its user's, if that goes through this process.
    pub pass_on: &'a (dyn Fn(OutputStream, &[u8]) + Sync),
    /// A folder of which each run but the first gets a copy in its place.
    pub fresh_folder: Option<PathBuf>,
    /// Other machines, which execute the runs behind the first one.
    pub machines: Option<OtherMachines>,
}

/// Machines that are like this one.
#[derive(Clone, Debug)]
pub struct OtherMachines {
    /// Who executes commands there.
    pub engine: Engine,
    /// The command that executes the runs of a machine; the collection's folder and the machine's number come behind it.
    pub worker: Vec<OsString>,
    /// The working folder, which all machines see.
    pub folder: PathBuf,
    /// The environment of the runs.
    pub environment: Vec<(OsString, OsString)>,
}

/// Where weights come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsFrom {
    /// Estimates, and the frequencies of the compiler's map.
    Static,
    /// A first run that watches entries and loop heads.
    FirstRun,
    /// A trace.
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
