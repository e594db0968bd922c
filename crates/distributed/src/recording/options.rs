//! Options of a recording, and what it needs from the process that starts it.

use crate::graph_folder::GraphFolder;
use crate::plan::DistributionPlanOptions;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trodden_binary::graph::ProgramGraph;
use trodden_launch::LaunchEngine;
use trodden_trace::{CollectorKind, FixedRunConditions, OutputStream};

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Options of each run.
    pub run: RunOptions,
    /// The file to write the trace to.
    pub output: PathBuf,
    /// How many runs there are, and how witnesses are distributed over them.
    pub plan: DistributionPlanOptions,
    /// Where the execution frequencies come from that determine the placement of witnesses.
    pub weights: ExecutionWeightSource,
    /// Names of functions whose inside is not to be traced.
    pub opaque: Vec<String>,
    /// Maximum number of concurrent runs; `None` means one per core.
    pub jobs: Option<usize>,
    /// Folder in which partial traces are kept; `None` means that they are removed.
    pub keep: Option<PathBuf>,
    /// If the processes that the program creates are traced as well: the path of the first trace, to which the names of all others add a
    /// process ID.
    pub family: Option<PathBuf>,
    /// Whether to stop after planning, without a recording.
    pub plan_only: bool,
}

impl RecordOptions {
    /// Returns true if this is the recording of a process that another traced process has created. Its notes are stored in the trace, but
    /// not printed.
    pub fn is_child(&self) -> bool {
        self.family.as_ref().is_some_and(|first| *first != self.output)
    }
}

/// Options that are the same for all runs, including those on other machines.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunOptions {
    /// The program as the user typed it, followed by its arguments. Empty if a running process is traced.
    pub command: Vec<OsString>,
    /// Process ID of a running process to trace.
    pub process: Option<i32>,
    /// How executed blocks are observed; `None` means trampolines if they work, and breakpoints otherwise.
    pub collector: Option<CollectorKind>,
    /// Shared libraries that are traced as well.
    pub libraries: Vec<String>,
    /// What is kept the same in all runs, such as results of system calls.
    pub recipe: FixedRunConditions,
    /// Whether each run is pinned to a processor core of its own.
    pub is_pinned: bool,
    /// Size in bytes of the partial trace at which a run stops recording.
    pub max_size: Option<u64>,
    /// Time after which a run stops recording.
    pub limit: Option<Duration>,
}

/// What a recording needs from the process that starts it.
pub struct RecordingHost<'a> {
    /// The program's executable file, found as a shell would find it. `None` if a running process is traced.
    pub program: Option<PathBuf>,
    /// The executable of this process, which is run to test collectors.
    pub own_program: PathBuf,
    /// The folder for temporary files.
    pub temporary: PathBuf,
    /// Called with output of the program if it passes through this process and the user is to see it.
    pub forward_output: &'a (dyn Fn(OutputStream, &[u8]) + Sync),
    /// A folder that the program changes. Each run except the first gets a copy of its original state.
    pub fresh_folder: Option<PathBuf>,
    /// Graphs of the files that were traced before, for [`RecordOptions::family`].
    pub graphs: GraphCache,
    /// Graphs of files that were recovered by earlier processes; `None` if they are not to be used or stored.
    pub graph_folder: Option<GraphFolder>,
    /// Other machines that execute all runs but the first; `None` if all runs are executed on this machine.
    pub machines: Option<RemoteMachines>,
}

/// The recovered graphs of files, with the starts of the pieces into which blocks are cut, by the hash of the files.
#[derive(Default)]
pub struct GraphCache(Mutex<HashMap<u64, Arc<CutGraphs>>>);

/// Graphs whose blocks are cut at calls, and the starts of the pieces.
pub type CutGraphs = (ProgramGraph, HashSet<u64>);

impl GraphCache {
    /// Returns the graphs of files with this hash. If there are none, `recover` recovers them, and they are kept.
    ///
    /// # Errors
    /// Fails if `recover` fails.
    pub fn find_or_recover(&self, hash: u64, recover: impl FnOnce() -> Result<CutGraphs>) -> Result<CutGraphs> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&hash).cloned();
        let graphs = match known {
            Some(graphs) => graphs,
            None => {
                let graphs = Arc::new(recover()?);
                lock().insert(hash, graphs.clone());
                graphs
            }
        };
        Ok(CutGraphs::clone(&graphs))
    }
}

/// Other machines with the same configuration as this one.
#[derive(Clone, Debug)]
pub struct RemoteMachines {
    /// How commands are executed on these machines.
    pub engine: LaunchEngine,
    /// The command that executes the runs of a machine. The recording's folder and the number of the machine are appended to it.
    pub worker: Vec<OsString>,
    /// The working folder, which all machines share.
    pub folder: PathBuf,
    /// The environment variables of the runs.
    pub environment: Vec<(OsString, OsString)>,
}

/// Where execution frequencies of blocks come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutionWeightSource {
    /// Estimates from the graphs, and the compiler's frequencies if the program contains them.
    Static,
    /// A separate run, which counts executions of function entries and loop heads.
    FirstRun,
    /// An earlier trace.
    Trace(PathBuf),
}

impl From<&str> for ExecutionWeightSource {
    fn from(text: &str) -> Self {
        match text {
            "static" => Self::Static,
            "first-run" => Self::FirstRun,
            file => Self::Trace(file.into()),
        }
    }
}
