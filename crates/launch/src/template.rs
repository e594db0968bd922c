//! Runs tasks with a command line that the user supplies and that runs a script elsewhere, such as `ssh`, `mpirun`, or the command of a
//! batch system.
//!
//! The command line may contain these placeholders, each of which is replaced by a shell word: `{script}` (a task's script), `{index}` (the
//! task's index, from 0), `{folder}` (the job's folder), `{count}` (the number of tasks), and `{each}` (a script that runs the task whose
//! index an MPI launcher assigns). A command line with `{script}` or `{index}` is run once for each task, and any other command line once
//! for all tasks.

use crate::local::run_commands;
use crate::script::quote_for_shell;
use crate::{JobEvent, LaunchError, LaunchJob, StopFlag};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

/// Options of the template engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The shell command line, with placeholders.
    pub line: String,
    /// Maximum number of tasks that run at the same time.
    pub parallel: usize,
    /// Maximum number of times that a task without a result is tried again.
    pub retries: u32,
}

pub(crate) fn run_with_template(
    job: &LaunchJob,
    template: &Template,
    stop: &StopFlag,
    report: &mut dyn FnMut(JobEvent),
) -> Result<Vec<u32>, LaunchError> {
    let runs_per_task = template.line.contains("{script}") || template.line.contains("{index}");
    if !runs_per_task && !template.line.contains("{each}") {
        return Err(LaunchError::NoPlaceholder(template.line.clone()));
    }
    let start = |task: usize, _: usize| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(expand_placeholders(job, &template.line, task));
        command
    };
    if runs_per_task {
        return run_commands(job, template.parallel, template.retries, &start, stop, report);
    }
    run_one_command_for_all(job, template, &start, stop, report)
}

/// Runs the command once for all tasks, and again while results are missing. The log of the first task contains the output of all tasks.
fn run_one_command_for_all(
    job: &LaunchJob,
    template: &Template,
    start: &dyn Fn(usize, usize) -> Command,
    stop: &StopFlag,
    report: &mut dyn FnMut(JobEvent),
) -> Result<Vec<u32>, LaunchError> {
    let mut attempts = vec![0; job.tasks.len()];
    for round in 0..=template.retries {
        let open = job.tasks_without_result();
        let Some(&first) = open.first() else { break };
        for &task in &open {
            attempts[task] += 1;
            if round > 0 {
                report(JobEvent::Retried(task));
            }
        }
        let one = LaunchJob { tasks: vec![job.tasks[first].clone()], ..job.clone() };
        match run_commands(&one, 1, 0, start, stop, report) {
            // The caller, `run_with_template`, checks whether all results exist.
            Ok(_) | Err(LaunchError::Failed { .. }) => {}
            Err(error) => return Err(error),
        }
        for task in job.tasks_without_result().into_iter().filter(|task| *task != 0) {
            // This fails if the link already exists from an earlier round.
            let _ = std::fs::hard_link(job.log(0), job.log(task));
        }
    }
    Ok(attempts)
}

fn expand_placeholders(job: &LaunchJob, line: &str, task: usize) -> OsString {
    let word = |path: std::path::PathBuf| quote_for_shell(path.as_os_str()).into_vec();
    let values: [(&str, Vec<u8>); 5] = [
        ("{script}", word(job.script(task))),
        ("{index}", task.to_string().into_bytes()),
        ("{folder}", word(job.folder.clone())),
        ("{count}", job.tasks.len().to_string().into_bytes()),
        ("{each}", word(job.rank_script())),
    ];
    let (mut out, mut rest) = (Vec::new(), line);
    while let Some(at) = rest.find('{') {
        out.extend(rest[..at].bytes());
        rest = &rest[at..];
        match values.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                out.extend(value);
                rest = &rest[name.len()..];
            }
            None => {
                out.push(b'{');
                rest = &rest[1..];
            }
        }
    }
    out.extend(std::ffi::OsStr::new(rest).as_bytes());
    OsString::from_vec(out)
}
