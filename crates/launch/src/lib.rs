//! Runs jobs: lists of independent commands, each of which makes one result file. What a command does is not known here.
//!
//! 1. A [`LaunchJob`] is a folder that all machines see, and its [`LaunchTask`]s: a command with environment, working folder,
//!    standard input, and the name of its result.
//! 2. [`LaunchJob::write`] makes a script of each task ([`script`]); the engines run scripts and nothing else.
//! 3. An [`Engine`] runs them: [`local`] processes, a [`slurm`] job array, a command [`template`], or Kubernetes by a
//!    generated manifest ([`kubernetes`]).
//!
//! Invariants: a result is there whole or not at all, and never changes once it is there. A task may run twice (a node
//! was thought to be lost): the first result stays, and a second one that differs is kept beside it and reported
//! ([`Error::Duplicate`]). A task without a result is run again, a few times.
//!
//! Beside jobs: [`process`]es that are started for the user and get the signals that come to the command, and [`temporary`] folders, which
//! go when a signal ends it.
#![forbid(unsafe_code)]

pub mod alive;
mod error;
pub mod kubernetes;
pub mod local;
pub mod process;
pub mod script;
pub mod signals;
pub mod slurm;
pub mod template;
pub mod temporary;

pub use error::Error;
pub use kubernetes::Kubernetes;
pub use local::Local;
pub use slurm::Slurm;
pub use template::Template;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Variable that says to a task's command under which name to write its result.
pub const RESULT_VARIABLE: &str = "LAUNCH_RESULT";
/// Variable with a bound on a task's memory, in KiB of address space; the scripts heed it.
pub const MEMORY_VARIABLE: &str = "LAUNCH_MEMORY_KIB";

/// Commands to be run, each once.
#[derive(Clone, Debug)]
pub struct LaunchJob {
    /// What it is called where jobs are listed: letters, digits, `-`.
    pub name: String,
    /// Where its scripts and logs are; absolute, and on all machines the same.
    pub folder: PathBuf,
    /// Its tasks.
    pub tasks: Vec<LaunchTask>,
}

/// A command and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTask {
    /// The command; it writes its result to the file that [`RESULT_VARIABLE`] names, and ends with status 0.
    pub command: Vec<OsString>,
    /// Variables besides those that it inherits.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; absolute.
    pub directory: PathBuf,
    /// Its standard input; none: nothing.
    pub input: Option<PathBuf>,
    /// The result's name; absolute.
    pub result: PathBuf,
}

/// Who runs a job.
#[derive(Clone, Debug)]
pub enum Engine {
    /// Processes of this machine.
    Local(Local),
    /// A Slurm cluster.
    Slurm(Slurm),
    /// Any command that runs scripts elsewhere.
    Template(Template),
    /// A Kubernetes cluster, by a manifest that the user applies.
    Kubernetes(Kubernetes),
}

/// How a job goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// So many of so many results are there.
    Done(usize, usize),
    /// A task ended without a result, and is run again.
    Retried(usize),
    /// Something to report.
    Note(String),
}

/// Runs a job until all results are there; gives for each task how often it was started, as far as that is known (else 1).
///
/// # Errors
/// See [`Error`]. What ran is ended then; results that are there stay.
pub fn run(job: &LaunchJob, engine: &Engine, stop: &LaunchStop, report: &mut dyn FnMut(JobEvent)) -> Result<Vec<u32>, Error> {
    job.write()?;
    let attempts = match engine {
        Engine::Local(local) => local::run(job, local, stop, report),
        Engine::Slurm(slurm) => slurm::run(job, slurm, stop, report),
        Engine::Template(template) => template::run(job, template, stop, report),
        Engine::Kubernetes(kubernetes) => kubernetes::run(job, kubernetes, stop, report),
    }?;
    job.check()?;
    Ok(attempts)
}

impl LaunchJob {
    /// Tasks without a result.
    pub fn open(&self) -> Vec<usize> {
        (0..self.tasks.len()).filter(|at| !self.tasks[*at].result.exists()).collect()
    }

    /// Whether all results are there, and no task made two that differ.
    fn check(&self) -> Result<(), Error> {
        for (task, known) in self.tasks.iter().enumerate() {
            let other = script::second(&known.result);
            if other.exists() {
                return Err(Error::Duplicate { task, one: known.result.clone(), other });
            }
        }
        match self.open().first() {
            Some(&task) => Err(self.failed(task)),
            None => Ok(()),
        }
    }

    fn failed(&self, task: usize) -> Error {
        let log = self.log(task);
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        Error::Failed { task, log, last: last.into_iter().rev().collect::<Vec<_>>().join("; ") }
    }
}

/// Whether a signal asked this process to end: while one of these is there, such signals are noted, and do nothing else.
pub struct LaunchStop {
    flag: Arc<AtomicBool>,
    handlers: Vec<signal_hook::SigId>,
}

/// How many [`LaunchStop`]s there are.
static WATCHED: AtomicUsize = AtomicUsize::new(0);
/// Set while there is none: then signals do what they do by default. Taking a handler away does not bring that back.
static IDLE: OnceLock<Arc<AtomicBool>> = OnceLock::new();

impl LaunchStop {
    /// Begins to note the signals.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn new() -> Result<LaunchStop, Error> {
        if IDLE.get().is_none() {
            let idle = Arc::new(AtomicBool::new(false));
            for signal in [SIGINT, SIGTERM, SIGHUP] {
                signal_hook::flag::register_conditional_default(signal, idle.clone()).map_err(Error::Signals)?;
            }
            // Where another thread was faster, ours stays unset, and does nothing.
            let _ = IDLE.set(idle);
        }
        WATCHED.fetch_add(1, Ordering::SeqCst);
        let mut stop = LaunchStop { flag: Arc::new(AtomicBool::new(false)), handlers: Vec::new() };
        set_idle(false);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            stop.handlers.push(signal_hook::flag::register(signal, stop.flag.clone()).map_err(Error::Signals)?);
        }
        Ok(stop)
    }

    /// Whether none did.
    ///
    /// # Errors
    /// [`Error::Interrupted`]: one did.
    pub fn check(&self) -> Result<(), Error> {
        if self.flag.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

fn set_idle(idle: bool) {
    if let Some(known) = IDLE.get() {
        known.store(idle, Ordering::SeqCst);
    }
}

impl Drop for LaunchStop {
    fn drop(&mut self) {
        self.handlers.drain(..).for_each(|id| _ = signal_hook::low_level::unregister(id));
        if WATCHED.fetch_sub(1, Ordering::SeqCst) == 1 {
            set_idle(true);
        }
    }
}
