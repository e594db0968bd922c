//! Tasks by any command that runs a script elsewhere: `ssh`, `mpirun`, a batch system of one's own.
//!
//! Placeholders of the command line, each already a word of the shell: `{script}` (a task's script), `{index}` (its
//! number, from 0), `{folder}` (the job's folder), `{count}` (number of tasks), `{each}` (a script that runs the task
//! whose number an MPI launcher gives it). With `{script}` or `{index}` the command is run once for each task, without
//! once for all.

use crate::local::run_commands;
use crate::script::quoted_word;
use crate::{Error, JobEvent, LaunchJob, LaunchStop};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

/// A command line of the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The command line.
    pub line: String,
    /// Most tasks at a time.
    pub parallel: usize,
    /// How often a task without a result is run again.
    pub retries: u32,
}

/// Runs a job.
pub(crate) fn run(job: &LaunchJob, template: &Template, stop: &LaunchStop, report: &mut dyn FnMut(JobEvent)) -> Result<Vec<u32>, Error> {
    let one_by_one = template.line.contains("{script}") || template.line.contains("{index}");
    if !one_by_one && !template.line.contains("{each}") {
        return Err(Error::NoPlaceholder(template.line.clone()));
    }
    let start = |task: usize, _: usize| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(filled(job, &template.line, task));
        command
    };
    if one_by_one {
        return run_commands(job, template.parallel, template.retries, &start, stop, report);
    }
    run_all_at_once(job, template, &start, stop, report)
}

/// Runs a command that runs all tasks, again while results are missing. It prints to the first task's log, which is the others', too.
fn run_all_at_once(
    job: &LaunchJob,
    template: &Template,
    start: &dyn Fn(usize, usize) -> Command,
    stop: &LaunchStop,
    report: &mut dyn FnMut(JobEvent),
) -> Result<Vec<u32>, Error> {
    let mut attempts = vec![0; job.tasks.len()];
    for round in 0..=template.retries {
        let open = job.open();
        let Some(&first) = open.first() else { break };
        for &task in &open {
            attempts[task] += 1;
            if round > 0 {
                report(JobEvent::Retried(task));
            }
        }
        let one = LaunchJob { tasks: vec![job.tasks[first].clone()], ..job.clone() };
        match run_commands(&one, 1, 0, start, stop, report) {
            // It is checked again, and reported in the end.
            Ok(_) | Err(Error::Failed { .. }) => {}
            Err(error) => return Err(error),
        }
        for task in job.open().into_iter().filter(|task| *task != 0) {
            // None if it was linked in an earlier round.
            let _ = std::fs::hard_link(job.log(0), job.log(task));
        }
    }
    Ok(attempts)
}

fn filled(job: &LaunchJob, line: &str, task: usize) -> OsString {
    let word = |path: std::path::PathBuf| quoted_word(path.as_os_str()).into_vec();
    let values: [(&str, Vec<u8>); 5] = [
        ("{script}", word(job.script(task))),
        ("{index}", task.to_string().into_bytes()),
        ("{folder}", word(job.folder.clone())),
        ("{count}", job.tasks.len().to_string().into_bytes()),
        ("{each}", word(job.each())),
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
