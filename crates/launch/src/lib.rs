//! Runs jobs. A job is a list of independent commands, each of which writes one result file.
//!
//! A [`LaunchJob`] is a list of [`LaunchTask`]s and a folder that all machines share. [`LaunchJob::write_scripts`] writes a [`script`] for
//! each task, and an [`LaunchEngine`] runs the scripts: as [`local`] processes, as a [`slurm`] job array, with a command [`template`], or
//! on [`kubernetes`]. Results appear atomically and never change. If a task runs twice, the first result stays; a second result that
//! differs is stored next to it and reported as [`LaunchError::Duplicate`]. Tasks without a result are retried.
//!
//! In addition, [`process`] runs programs for the user and forwards signals to them, and [`temporary`] creates folders that are removed
//! even if a signal ends this program.
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

pub use error::LaunchError;
pub use kubernetes::Kubernetes;
pub use local::Local;
pub use slurm::Slurm;
pub use template::Template;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Environment variable with the path of the file to which the command of a task writes its result.
pub const RESULT_VARIABLE: &str = "LAUNCH_RESULT";
/// Environment variable with the maximum size of a task's address space in KiB, which the task's script sets as a limit.
pub const MEMORY_VARIABLE: &str = "LAUNCH_MEMORY_KIB";

/// A list of independent commands to run.
#[derive(Clone, Debug)]
pub struct LaunchJob {
    /// The job's name in listings. It consists of letters, digits and `-`.
    pub name: String,
    /// The folder for scripts and logs. It is an absolute path that must be valid on all machines.
    pub folder: PathBuf,
    /// The tasks.
    pub tasks: Vec<LaunchTask>,
}

/// A task: a command that writes one result file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTask {
    /// The command and its arguments. It must write its result to the file that [`RESULT_VARIABLE`] names, and exit with status 0.
    pub command: Vec<OsString>,
    /// Environment variables to set for the command, in addition to those that it inherits.
    pub environment: Vec<(OsString, OsString)>,
    /// The working directory, as an absolute path.
    pub directory: PathBuf,
    /// The file that is the command's standard input; `None` for empty input.
    pub input: Option<PathBuf>,
    /// The path of the result file, which is absolute.
    pub result: PathBuf,
}

/// The way in which the tasks of a job are run.
#[derive(Clone, Debug)]
pub enum LaunchEngine {
    /// As processes on this machine.
    Local(Local),
    /// As a job array on a Slurm cluster.
    Slurm(Slurm),
    /// With a command of the user that runs a script elsewhere, such as `ssh`.
    Template(Template),
    /// On a Kubernetes cluster, with a manifest that the user applies.
    Kubernetes(Kubernetes),
}

/// A report on the progress of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// The number of tasks that have a result, and the number of all tasks.
    Done(usize, usize),
    /// A task that ended without a result and is tried again, by its index.
    Retried(usize),
    /// A message for the user.
    Note(String),
}

/// Runs a job until all results exist. Returns the number of attempts per task, or 1 for each task if the engine cannot count attempts. If
/// it fails, it ends all running tasks and keeps existing results.
pub fn run(job: &LaunchJob, engine: &LaunchEngine, stop: &StopFlag, report: &mut dyn FnMut(JobEvent)) -> Result<Vec<u32>, LaunchError> {
    job.write_scripts()?;
    let attempts = match engine {
        LaunchEngine::Local(local) => local::run_locally(job, local, stop, report),
        LaunchEngine::Slurm(slurm) => slurm::run_with_slurm(job, slurm, stop, report),
        LaunchEngine::Template(template) => template::run_with_template(job, template, stop, report),
        LaunchEngine::Kubernetes(kubernetes) => kubernetes::run_with_kubernetes(job, kubernetes, stop, report),
    }?;
    job.check_results()?;
    Ok(attempts)
}

impl LaunchJob {
    /// Returns the indices of the tasks whose results do not exist yet.
    pub fn tasks_without_result(&self) -> Vec<usize> {
        (0..self.tasks.len()).filter(|at| !self.tasks[*at].result.exists()).collect()
    }

    /// Fails if a result is missing, or if a task produced two different results.
    fn check_results(&self) -> Result<(), LaunchError> {
        for (task, known) in self.tasks.iter().enumerate() {
            let other = script::second_result_path(&known.result);
            if other.exists() {
                return Err(LaunchError::Duplicate { task, one: known.result.clone(), other });
            }
        }
        match self.tasks_without_result().first() {
            Some(&task) => Err(self.failed_task_error(task)),
            None => Ok(()),
        }
    }

    fn failed_task_error(&self, task: usize) -> LaunchError {
        let log = self.log(task);
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(3).collect();
        LaunchError::Failed { task, log, last: last.into_iter().rev().collect::<Vec<_>>().join("; ") }
    }
}

/// A flag that is set by signals. While at least one instance exists, SIGINT, SIGTERM and SIGHUP set the flag instead of ending this
/// process.
pub struct StopFlag {
    flag: Arc<AtomicBool>,
    handlers: Vec<signal_hook::SigId>,
}

static STOP_FLAG_COUNT: AtomicUsize = AtomicUsize::new(0);
/// True while no [`StopFlag`] exists. Then handlers must emulate the default action of signals, because unregistering a handler does not
/// restore it.
static USE_DEFAULT_SIGNAL_ACTION: OnceLock<Arc<AtomicBool>> = OnceLock::new();

impl StopFlag {
    /// Creates a flag. From now on, SIGINT, SIGTERM and SIGHUP set it instead of ending this process.
    pub fn new() -> Result<StopFlag, LaunchError> {
        if USE_DEFAULT_SIGNAL_ACTION.get().is_none() {
            let idle = Arc::new(AtomicBool::new(false));
            for signal in [SIGINT, SIGTERM, SIGHUP] {
                signal_hook::flag::register_conditional_default(signal, idle.clone()).map_err(LaunchError::Signals)?;
            }
            // If another thread stored its flag first, this flag is never set, and has no effect.
            let _ = USE_DEFAULT_SIGNAL_ACTION.set(idle);
        }
        STOP_FLAG_COUNT.fetch_add(1, Ordering::SeqCst);
        let mut stop = StopFlag { flag: Arc::new(AtomicBool::new(false)), handlers: Vec::new() };
        set_default_signal_action(false);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            stop.handlers.push(signal_hook::flag::register(signal, stop.flag.clone()).map_err(LaunchError::Signals)?);
        }
        Ok(stop)
    }

    /// Fails if SIGINT, SIGTERM or SIGHUP was received.
    pub fn check(&self) -> Result<(), LaunchError> {
        if self.flag.load(Ordering::Relaxed) { Err(LaunchError::Interrupted) } else { Ok(()) }
    }
}

fn set_default_signal_action(idle: bool) {
    if let Some(known) = USE_DEFAULT_SIGNAL_ACTION.get() {
        known.store(idle, Ordering::SeqCst);
    }
}

impl Drop for StopFlag {
    fn drop(&mut self) {
        self.handlers.drain(..).for_each(|id| _ = signal_hook::low_level::unregister(id));
        if STOP_FLAG_COUNT.fetch_sub(1, Ordering::SeqCst) == 1 {
            set_default_signal_action(true);
        }
    }
}
