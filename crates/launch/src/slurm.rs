//! Runs tasks as a Slurm job array. All machines of the cluster must share the job's folder.
//!
//! If a node fails, Slurm requeues its tasks (`--requeue`). Tasks that end without a result are submitted again. This module polls the
//! queue itself, because `sbatch --wait` polls at increasing intervals.

use crate::script::shell_quoted;
use crate::{JobEvent, LaunchError, LaunchJob, StopFlag};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time after which a file that was written on another machine becomes visible on this one.
const MAX_RESULT_DELAY: Duration = Duration::from_secs(3);
/// Number of consecutive `squeue` failures after which the job fails.
const MAX_FAILED_QUERIES: u32 = 60;

/// Options of the Slurm engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slurm {
    /// Additional options for `sbatch`.
    pub options: Vec<String>,
    /// Interval between `squeue` calls.
    pub poll: Duration,
    /// Maximum number of times that a task without a result is submitted again.
    pub retries: u32,
}

impl Default for Slurm {
    fn default() -> Slurm {
        Slurm { options: Vec::new(), poll: Duration::from_millis(500), retries: 2 }
    }
}

/// A job array that was submitted. Dropping this value cancels the array, unless all its tasks have ended.
struct SubmittedArray {
    id: String,
    done: bool,
}

impl Drop for SubmittedArray {
    fn drop(&mut self) {
        if !self.done {
            let _ = Command::new("scancel").arg(&self.id).output();
        }
    }
}

pub(crate) fn run_with_slurm(
    job: &LaunchJob,
    slurm: &Slurm,
    stop: &StopFlag,
    report: &mut dyn FnMut(JobEvent),
) -> Result<Vec<u32>, LaunchError> {
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
        let mut submitted = submit_array(job, slurm, &open)?;
        report(JobEvent::Note(format!("job {} of the Slurm cluster", submitted.id)));
        wait_for_array(job, slurm, &submitted, stop, report)?;
        submitted.done = true;
    }
    Ok(attempts)
}

fn submit_array(job: &LaunchJob, slurm: &Slurm, open: &[usize]) -> Result<SubmittedArray, LaunchError> {
    let path: PathBuf = job.folder.join("slurm.sh");
    let mut text = b"#!/bin/sh\nexec sh ".to_vec();
    text.extend(shell_quoted(job.folder.as_os_str()));
    // The script `each.sh` cannot be used here: if this job was submitted from within another job, the environment may contain the rank of
    // another launcher.
    text.extend(b"/task-\"$SLURM_ARRAY_TASK_ID\".sh\n");
    fs::write(&path, text).map_err(|source| LaunchError::File { path: path.clone(), source })?;
    let array: Vec<String> = open.iter().map(usize::to_string).collect();
    let mut command = Command::new("sbatch");
    command.args(["--parsable", "--requeue", "--open-mode=append"]).arg(format!("--array={}", array.join(",")));
    command.arg(format!("--job-name={}", job.name)).arg("--output").arg(log_file_pattern(job)).args(&slurm.options).arg(&path);
    let output = command.output().map_err(|source| LaunchError::Tool {
        program: "sbatch".into(),
        source,
        advice: "Run this where Slurm jobs can be submitted (package slurm-client)",
    })?;
    if !output.status.success() {
        return Err(slurm_tool_error("sbatch", &output));
    }
    // `sbatch` prints `ID` or `ID;CLUSTER`.
    let id = String::from_utf8_lossy(&output.stdout).trim().split(';').next().unwrap_or_default().to_owned();
    Ok(SubmittedArray { id, done: false })
}

/// Returns the pattern for log file names. Slurm expands `%`, so percent signs in the path are escaped.
fn log_file_pattern(job: &LaunchJob) -> OsString {
    let folder = job.folder.as_os_str().as_bytes().iter().flat_map(|b| if *b == b'%' { vec![b'%'; 2] } else { vec![*b] });
    OsString::from_vec(folder.chain(*b"/task-%a.log").collect())
}

fn slurm_tool_error(program: &str, output: &Output) -> LaunchError {
    LaunchError::ToolFailed { program: program.into(), message: String::from_utf8_lossy(&output.stderr).trim().to_owned() }
}

/// Waits until no task of the array is pending or running.
fn wait_for_array(
    job: &LaunchJob,
    slurm: &Slurm,
    submitted: &SubmittedArray,
    stop: &StopFlag,
    report: &mut dyn FnMut(JobEvent),
) -> Result<(), LaunchError> {
    let (mut known, mut failed_queries) = (usize::MAX, 0);
    loop {
        let mut left = slurm.poll;
        while !left.is_zero() {
            stop.check()?;
            let pause = left.min(POLL_INTERVAL);
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
            Ok(false) => return wait_for_late_results(job, stop),
            Err(error) => {
                failed_queries += 1;
                if failed_queries >= MAX_FAILED_QUERIES {
                    return Err(error);
                }
            }
        }
    }
}

/// Waits for results that were written on other machines but are not visible on this one yet.
fn wait_for_late_results(job: &LaunchJob, stop: &StopFlag) -> Result<(), LaunchError> {
    let mut left = MAX_RESULT_DELAY;
    while !job.tasks_without_result().is_empty() && !left.is_zero() {
        stop.check()?;
        sleep(POLL_INTERVAL);
        left = left.saturating_sub(POLL_INTERVAL);
    }
    Ok(())
}

fn is_pending_or_running(id: &str) -> Result<bool, LaunchError> {
    let output = Command::new("squeue").args(["-h", "-r", "-o", "%i", "-j", id]).output();
    let output =
        output.map_err(|source| LaunchError::Tool { program: "squeue".into(), source, advice: "Install the package slurm-client" })?;
    let text = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(!output.stdout.trim_ascii().is_empty()),
        // Slurm forgets a job some time after it has ended. An unknown job is therefore not running.
        false if text.contains("Invalid job id") => Ok(false),
        false => Err(slurm_tool_error("squeue", &output)),
    }
}
