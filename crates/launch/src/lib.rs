//! Runs jobs: lists of independent commands that each write one result file.
//!
//! A [`LaunchJob`] is a list of [`LaunchTask`]s and a folder that all machines share. [`LaunchJob::write_scripts`] writes a [`script`] for
//! each task, and an [`Engine`] runs the scripts: as [`local`] processes, as a [`slurm`] job array, with a command [`template`], or on
//! [`kubernetes`]. Results appear atomically and never change. If a task runs twice, the first result stays. A different second result is
//! stored next to the first and reported as [`LaunchError::Duplicate`]. Tasks without a result are retried.
//!
//! [`process`] runs programs for the user and forwards signals to them; [`temporary`] creates folders that are removed when a signal ends
//! the command.
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

/// Environment variable with the path to which a task's command writes its result.
pub const RESULT_VARIABLE: &str = "LAUNCH_RESULT";
/// Environment variable with a limit on the task's address space in KiB. The task's script applies the limit.
pub const MEMORY_VARIABLE: &str = "LAUNCH_MEMORY_KIB";

/// A list of independent commands to run.
#[derive(Clone, Debug)]
pub struct LaunchJob {
    /// The name in job listings, made of letters, digits and `-`.
    pub name: String,
    /// The folder for scripts and logs. The path is absolute and the same on all machines.
    pub folder: PathBuf,
    /// The tasks.
    pub tasks: Vec<LaunchTask>,
}

/// A command that writes one result file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTask {
    /// The command must write its result to the file that [`RESULT_VARIABLE`] names, and exit with status 0.
    pub command: Vec<OsString>,
    /// Environment variables to set, in addition to those of the launcher.
    pub environment: Vec<(OsString, OsString)>,
    /// The absolute path of the working directory.
    pub directory: PathBuf,
    /// The file for standard input; `None` for empty input.
    pub input: Option<PathBuf>,
    /// The absolute path of the result.
    pub result: PathBuf,
}

/// Where and how the tasks of a job run.
#[derive(Clone, Debug)]
pub enum Engine {
    /// Processes on this machine.
    Local(Local),
    /// A job array on a Slurm cluster.
    Slurm(Slurm),
    /// A command of the user that runs a script elsewhere, such as `ssh`.
    Template(Template),
    /// A Kubernetes cluster, to which the user applies a manifest.
    Kubernetes(Kubernetes),
}

/// Progress report of a running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// The number of results that exist, and the number of tasks.
    Done(usize, usize),
    /// Index of a task that ended without a result and is retried.
    Retried(usize),
    /// A message for the user.
    Note(String),
}

/// Runs a job until all results exist. Returns the number of attempts per task, or 1 for each task if the engine cannot count attempts. See
/// [`LaunchError`]. An error ends all running tasks; existing results are kept.
pub fn run(job: &LaunchJob, engine: &Engine, stop: &StopFlag, report: &mut dyn FnMut(JobEvent)) -> Result<Vec<u32>, LaunchError> {
    job.write_scripts()?;
    let attempts = match engine {
        Engine::Local(local) => local::run(job, local, stop, report),
        Engine::Slurm(slurm) => slurm::run(job, slurm, stop, report),
        Engine::Template(template) => template::run(job, template, stop, report),
        Engine::Kubernetes(kubernetes) => kubernetes::run(job, kubernetes, stop, report),
    }?;
    job.check_results()?;
    Ok(attempts)
}

impl LaunchJob {
    /// Returns the indices of the tasks whose results do not exist yet.
    pub fn tasks_without_result(&self) -> Vec<usize> {
        (0..self.tasks.len()).filter(|at| !self.tasks[*at].result.exists()).collect()
    }

    /// Checks that all results exist and that no task produced two different results.
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

/// A flag that signals set. While an instance exists, SIGINT, SIGTERM and SIGHUP set the flag instead of ending this process.
pub struct StopFlag {
    flag: Arc<AtomicBool>,
    handlers: Vec<signal_hook::SigId>,
}

static STOP_FLAG_COUNT: AtomicUsize = AtomicUsize::new(0);
/// True while no [`StopFlag`] exists: signals then have their default action, because unregistering a handler would not restore it.
static USE_DEFAULT_ACTION: OnceLock<Arc<AtomicBool>> = OnceLock::new();

impl StopFlag {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    pub fn new() -> Result<StopFlag, LaunchError> {
        if USE_DEFAULT_ACTION.get().is_none() {
            let idle = Arc::new(AtomicBool::new(false));
            for signal in [SIGINT, SIGTERM, SIGHUP] {
                signal_hook::flag::register_conditional_default(signal, idle.clone()).map_err(LaunchError::Signals)?;
            }
            // If a different thread stored its flag first, this thread's flag stays unset and has no effect.
            let _ = USE_DEFAULT_ACTION.set(idle);
        }
        STOP_FLAG_COUNT.fetch_add(1, Ordering::SeqCst);
        let mut stop = StopFlag { flag: Arc::new(AtomicBool::new(false)), handlers: Vec::new() };
        set_default_action(false);
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

fn set_default_action(idle: bool) {
    if let Some(known) = USE_DEFAULT_ACTION.get() {
        known.store(idle, Ordering::SeqCst);
    }
}

impl Drop for StopFlag {
    fn drop(&mut self) {
        self.handlers.drain(..).for_each(|id| _ = signal_hook::low_level::unregister(id));
        if STOP_FLAG_COUNT.fetch_sub(1, Ordering::SeqCst) == 1 {
            set_default_action(true);
        }
    }
}
