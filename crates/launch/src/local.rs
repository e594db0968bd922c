//! Runs tasks as processes on this machine, each in its own process group. If there are enough cores, each task is pinned to a core.

use crate::alive::{AliveLock, LAUNCHER_ALIVE_VARIABLE};
use crate::{JobEvent, LaunchError, LaunchJob, MEMORY_VARIABLE, StopFlag};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time between SIGTERM and SIGKILL, in which tasks can exit by themselves.
const TERMINATION_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Options of the local engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Maximum number of tasks that run at the same time. Tasks are pinned to cores if there are at least as many cores and `taskset` is
    /// installed.
    pub parallel: usize,
    /// Maximum size of the address space of each process, in bytes; `None` for no limit.
    pub memory: Option<u64>,
    /// Maximum number of times that a task without a result is tried again.
    pub retries: u32,
}

impl Default for Local {
    /// Returns options for one task per core, without a memory limit, and with two retries.
    fn default() -> Local {
        Local { parallel: std::thread::available_parallelism().map_or(1, usize::from), memory: None, retries: 2 }
    }
}

pub(crate) fn run_locally(
    job: &LaunchJob,
    local: &Local,
    stop: &StopFlag,
    report: &mut dyn FnMut(JobEvent),
) -> Result<Vec<u32>, LaunchError> {
    let alive = AliveLock::hold_alive_lock(job)?;
    let allowed_cores = read_allowed_cores();
    let pinned = local.parallel <= allowed_cores.len() && is_installed("taskset");
    if !pinned {
        report(JobEvent::Note(
            "tasks are not pinned to cores: more run at a time than there are cores, or taskset (package util-linux) is missing".into(),
        ));
    }
    let start = |task: usize, slot: usize| {
        let mut command = match pinned {
            true => Command::new("taskset"),
            false => Command::new("sh"),
        };
        if pinned {
            command.arg("-c").arg(allowed_cores[slot].to_string()).arg("sh");
        }
        command.arg(job.script(task)).env(LAUNCHER_ALIVE_VARIABLE, alive.path());
        if let Some(bytes) = local.memory {
            command.env(MEMORY_VARIABLE, (bytes / 1024).to_string());
        }
        command
    };
    run_commands(job, local.parallel, local.retries, &start, stop, report)
}

fn read_allowed_cores() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let range = |text: &str| {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        Some(from.trim().parse::<usize>().ok()?..=to.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

struct RunningTask {
    task: usize,
    slot: usize,
    child: Child,
}

/// The tasks that are running. Dropping this value ends them.
struct RunningTasks(Vec<RunningTask>);

impl Drop for RunningTasks {
    fn drop(&mut self) {
        let group = |running: &RunningTask| Pid::from_raw(running.child.id() as i32);
        self.0.iter().for_each(|r| _ = killpg(group(r), Signal::SIGTERM));
        let begun = Instant::now();
        while begun.elapsed() < TERMINATION_GRACE_PERIOD && self.0.iter_mut().any(|r| matches!(r.child.try_wait(), Ok(None))) {
            sleep(POLL_INTERVAL);
        }
        for running in &mut self.0 {
            // Other processes of the group may still run, even if its leader has exited.
            let _ = killpg(group(running), Signal::SIGKILL);
            let _ = running.child.wait();
        }
    }
}

/// Runs every task that has no result, with the command that `start` returns for the task and a slot (a number below `parallel` that no
/// other running task has). At most `parallel` tasks run at the same time. A task that ends without a result is tried again, up to
/// `retries` times.
pub(crate) fn run_commands(
    job: &LaunchJob,
    parallel: usize,
    retries: u32,
    start: &dyn Fn(usize, usize) -> Command,
    stop: &StopFlag,
    report: &mut dyn FnMut(JobEvent),
) -> Result<Vec<u32>, LaunchError> {
    let mut attempts = vec![0; job.tasks.len()];
    let mut waiting: VecDeque<usize> = job.tasks_without_result().into();
    let mut free: Vec<usize> = (0..parallel.max(1)).rev().collect();
    let mut running = RunningTasks(Vec::new());
    while !waiting.is_empty() || !running.0.is_empty() {
        stop.check()?;
        while let (Some(&task), Some(&slot)) = (waiting.front(), free.last()) {
            let child = spawn_task(job, task, start(task, slot))?;
            waiting.pop_front();
            free.pop();
            attempts[task] += 1;
            running.0.push(RunningTask { task, slot, child });
        }
        sleep(POLL_INTERVAL);
        for done in remove_ended_tasks(job, &mut running)? {
            free.push(done.slot);
            if job.tasks[done.task].result.exists() {
                report(JobEvent::Done(job.tasks.len() - job.tasks_without_result().len(), job.tasks.len()));
            } else if attempts[done.task] <= retries {
                report(JobEvent::Retried(done.task));
                waiting.push_back(done.task);
            } else {
                return Err(job.failed_task_error(done.task));
            }
        }
    }
    Ok(attempts)
}

fn spawn_task(job: &LaunchJob, task: usize, mut command: Command) -> Result<Child, LaunchError> {
    let path = job.log(task);
    let log =
        OpenOptions::new().create(true).append(true).open(&path).map_err(|source| LaunchError::File { path: path.clone(), source })?;
    let copy = log.try_clone().map_err(|source| LaunchError::File { path, source })?;
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(log).stderr(copy).process_group(0);
    command.spawn().map_err(|source| LaunchError::Tool { program, source, advice: "Install it" })
}

/// Removes ended tasks from `running` and returns them. If a task left no result, kills its remaining processes, so that they do not run at
/// the same time as the next attempt.
fn remove_ended_tasks(job: &LaunchJob, running: &mut RunningTasks) -> Result<Vec<RunningTask>, LaunchError> {
    let failed = |source| LaunchError::Tool { program: "sh".into(), source, advice: "Run the job again" };
    let mut done = Vec::new();
    let mut at = 0;
    while at < running.0.len() {
        let RunningTask { task, child, .. } = &mut running.0[at];
        // The state is queried without reaping the process, because after that, the process ID and the group ID could be reused.
        let process = Pid::from_raw(child.id() as i32);
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        if waitid(Id::Pid(process), flags).map_err(|e| failed(e.into()))? == WaitStatus::StillAlive {
            at += 1;
            continue;
        }
        if !job.tasks[*task].result.exists() {
            let _ = killpg(process, Signal::SIGKILL);
        }
        child.wait().map_err(failed)?;
        done.push(running.0.swap_remove(at));
    }
    Ok(done)
}
