//! Tasks as a job array of a Slurm cluster, all of whose machines share the job's folder.
//!
//! Slurm requeues tasks of lost nodes (`--requeue`). A task is done only if its result exists; tasks that end without one are submitted
//! again. The queue is polled here, since `sbatch --wait` polls less and less often.

use crate::script::shell_quoted;
use crate::{JobEvent, LaunchError, LaunchJob, StopFlag};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

/// Interval between checks for signals.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Maximum delay with which results of other machines become visible.
const MAX_RESULT_DELAY: Duration = Duration::from_secs(3);
/// Number of consecutive failed queries of the queue after which waiting fails.
const MAX_FAILED_QUERIES: u32 = 60;

/// Options of the Slurm engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slurm {
    /// Additional options of `sbatch`.
    pub options: Vec<String>,
    /// Interval between queries of the queue.
    pub poll: Duration,
    /// Maximum number of times that a task without a result is submitted again.
    pub retries: u32,
}

impl Default for Slurm {
    fn default() -> Slurm {
        Slurm { options: Vec::new(), poll: Duration::from_millis(500), retries: 2 }
    }
}

/// A submitted array. Dropping this cancels the array unless it is done.
struct Submitted {
    id: String,
    done: bool,
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if !self.done {
            let _ = Command::new("scancel").arg(&self.id).output();
        }
    }
}

pub(crate) fn run(job: &LaunchJob, slurm: &Slurm, stop: &StopFlag, report: &mut dyn FnMut(JobEvent)) -> Result<Vec<u32>, LaunchError> {
    let mut attempts = vec![0; job.tasks.len()];
    for round in 0..=slurm.retries {
        let open = job.tasks_without_result();
        if open.is_empty() {
            break;
        }
        if round > 0 {
            open.iter().for_each(|task| report(JobEvent::Retried(*task)));
        }
        open.iter().for_each(|task| attempts[*task] += 1);
        let mut submitted = submit(job, slurm, &open)?;
        report(JobEvent::Note(format!("job {} of the Slurm cluster", submitted.id)));
        wait(job, slurm, &submitted, stop, report)?;
        submitted.done = true;
    }
    Ok(attempts)
}

fn submit(job: &LaunchJob, slurm: &Slurm, open: &[usize]) -> Result<Submitted, LaunchError> {
    let path: PathBuf = job.folder.join("slurm.sh");
    let mut text = b"#!/bin/sh\nexec sh ".to_vec();
    text.extend(shell_quoted(job.folder.as_os_str()));
    // `each.sh` cannot be used here: if a different job submitted this job, the environment may contain numbers from other launchers.
    text.extend(b"/task-\"$SLURM_ARRAY_TASK_ID\".sh\n");
    fs::write(&path, text).map_err(|source| LaunchError::File { path: path.clone(), source })?;
    let array: Vec<String> = open.iter().map(usize::to_string).collect();
    let mut command = Command::new("sbatch");
    command.args(["--parsable", "--requeue", "--open-mode=append"]).arg(format!("--array={}", array.join(",")));
    command.arg(format!("--job-name={}", job.name)).arg("--output").arg(log_pattern(job)).args(&slurm.options).arg(&path);
    let output = command.output().map_err(|source| LaunchError::Tool {
        program: "sbatch".into(),
        source,
        advice: "Run this where Slurm jobs can be submitted (package slurm-client)",
    })?;
    if !output.status.success() {
        return Err(tool_error("sbatch", &output));
    }
    // The output is `ID` or `ID;CLUSTER`.
    let id = String::from_utf8_lossy(&output.stdout).trim().split(';').next().unwrap_or_default().to_owned();
    Ok(Submitted { id, done: false })
}

/// The pattern for log files. Slurm expands `%`, so percent signs in the path are escaped.
fn log_pattern(job: &LaunchJob) -> OsString {
    let folder = job.folder.as_os_str().as_bytes().iter().flat_map(|b| if *b == b'%' { vec![b'%'; 2] } else { vec![*b] });
    OsString::from_vec(folder.chain(*b"/task-%a.log").collect())
}

fn tool_error(program: &str, output: &Output) -> LaunchError {
    LaunchError::ToolFailed { program: program.into(), message: String::from_utf8_lossy(&output.stderr).trim().to_owned() }
}

/// Waits until no task of the array is left in the queue.
fn wait(
    job: &LaunchJob,
    slurm: &Slurm,
    submitted: &Submitted,
    stop: &StopFlag,
    report: &mut dyn FnMut(JobEvent),
) -> Result<(), LaunchError> {
    let (mut known, mut failed_queries) = (usize::MAX, 0);
    loop {
        let mut left = slurm.poll;
        while !left.is_zero() {
            stop.check()?;
            let pause = left.min(POLL_EVERY);
            sleep(pause);
            left -= pause;
        }
        let done = job.tasks.len() - job.tasks_without_result().len();
        if done != known {
            report(JobEvent::Done(done, job.tasks.len()));
            known = done;
        }
        match is_pending_or_running(&submitted.id) {
            Ok(true) => failed_queries = 0,
            Ok(false) => return wait_for_files(job, stop),
            Err(error) => {
                failed_queries += 1;
                if failed_queries >= MAX_FAILED_QUERIES {
                    return Err(error);
                }
            }
        }
    }
}

/// Waits for results that become visible late because another machine wrote them.
fn wait_for_files(job: &LaunchJob, stop: &StopFlag) -> Result<(), LaunchError> {
    let mut left = MAX_RESULT_DELAY;
    while !job.tasks_without_result().is_empty() && !left.is_zero() {
        stop.check()?;
        sleep(POLL_EVERY);
        left = left.saturating_sub(POLL_EVERY);
    }
    Ok(())
}

/// Returns true if any task of a job is pending or running.
fn is_pending_or_running(id: &str) -> Result<bool, LaunchError> {
    let output = Command::new("squeue").args(["-h", "-r", "-o", "%i", "-j", id]).output();
    let output =
        output.map_err(|source| LaunchError::Tool { program: "squeue".into(), source, advice: "Install the package slurm-client" })?;
    let text = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(!output.stdout.trim_ascii().is_empty()),
        // The job ended long ago.
        false if text.contains("Invalid job id") => Ok(false),
        false => Err(tool_error("squeue", &output)),
    }
}
