//! Executes runs on other machines. A file lists the addresses that each run watches, and contains a log of the first run, which the other
//! runs must repeat. A job of [`trodden_launch`] has one task per machine. The task executes the machine's runs one after another, and
//! writes their partial traces.
//!
//! The file contains the environment and the results of the first run's system calls. Only its owner can read it, and it is removed at the
//! end. All machines must have the same kernel, C library, program and folder. Otherwise runs diverge from the first run, which is
//! reported.

use super::options::{RemoteMachines, RunOptions};
use super::runs::{RepeatedProgram, RunResult};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use trodden_launch::temporary::{create_folder_in, disable_removal_on_signals};
use trodden_launch::{JobEvent, LaunchJob, LaunchTask, StopFlag};
use trodden_profile::private;
use trodden_trace::{CollectorKind, RunLog, RunOutcome};

#[derive(Serialize, Deserialize)]
struct RemoteRunsSpec {
    options: RunOptions,
    program: PathBuf,
    environment: Vec<(OsString, OsString)>,
    collector: CollectorKind,
    blocks: Vec<Range<u64>>,
    guarded: Vec<u64>,
    profiles: Vec<Vec<u64>>,
    machines: Vec<Vec<usize>>,
    first: RunLog,
    input: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct RemoteRunsReport {
    run: usize,
    outcome: RunOutcome,
    hits: u64,
}

/// Executes all runs but the first on other machines.
///
/// # Errors
/// A machine failed. The error includes the machine's output.
pub fn execute_runs_remotely(
    subject: &RepeatedProgram,
    others: &RemoteMachines,
    collector: CollectorKind,
    profiles: &[Vec<u64>],
    machines: Vec<Vec<usize>>,
    first: &Arc<RunLog>,
) -> Result<Vec<RunResult>> {
    // The working folder is used because all machines share it.
    let folder = create_folder_in(&others.folder, ".trodden-trace-")?;
    let input = subject.copy_input(&folder.path().join("input"))?;
    let spec = RemoteRunsSpec {
        options: subject.options.clone(),
        program: subject.executable.path.clone(),
        environment: others.environment.clone(),
        collector,
        blocks: subject.blocks.clone(),
        guarded: subject.guarded.iter().copied().collect(),
        profiles: profiles.to_vec(),
        machines,
        first: RunLog::clone(first),
        input,
    };
    serde_json::to_writer(std::io::BufWriter::new(private::create_file(&folder.path().join("spec"))?), &spec)?;
    launch_job(folder.path(), others, spec.machines.len())?;
    let mut results = Vec::new();
    for machine in 0..spec.machines.len() {
        let done: Vec<RemoteRunsReport> = serde_json::from_slice(&std::fs::read(result_file(folder.path(), machine))?)?;
        for RemoteRunsReport { run, outcome, hits } in done {
            let partial = subject.partial_trace_folder().join(format!("run-{}.partial", run + 1));
            std::fs::copy(partial_trace_path(folder.path(), run), &partial)?;
            let seconds = std::fs::read_to_string(partial_trace_path(folder.path(), run).with_extension("seconds"))?;
            results.push((run, RunResult { outcome, partial, hits, time: Duration::from_secs_f64(seconds.trim().parse()?) }));
        }
    }
    results.sort_by_key(|r| r.0);
    Ok(results.into_iter().map(|r| r.1).collect())
}

fn result_file(folder: &Path, machine: usize) -> PathBuf {
    folder.join(format!("machine-{machine}"))
}

fn partial_trace_path(folder: &Path, run: usize) -> PathBuf {
    folder.join(format!("run-{}.partial", run + 1))
}

fn launch_job(folder: &Path, others: &RemoteMachines, machines: usize) -> Result<()> {
    let task = |machine: usize| LaunchTask {
        command: others.worker.iter().cloned().chain([folder.into(), machine.to_string().into()]).collect(),
        environment: Vec::new(),
        directory: others.folder.clone(),
        input: None,
        result: result_file(folder, machine),
    };
    let name = folder.file_name().map_or(String::new(), |n| n.to_string_lossy().trim_start_matches('.').to_owned());
    let tasks = (0..machines).map(task).collect();
    let work = LaunchJob { name, folder: folder.join("tasks"), tasks };
    let mut report = |event: JobEvent| match event {
        JobEvent::Done(..) => {}
        JobEvent::Retried(task) => {
            log::warn!("machine {task} returned no results, so its runs are repeated (see the log {})", work.log(task).display())
        }
        JobEvent::Note(text) => log::info!("{text}"),
    };
    disable_removal_on_signals();
    let stop = StopFlag::new()?;
    if let Err(error) = trodden_launch::run(&work, &others.engine, &stop, &mut report) {
        let logs = (0..machines).filter_map(|task| std::fs::read_to_string(work.log(task)).ok());
        let said = logs.map(|text| text.trim().to_owned()).find(|text| !text.is_empty());
        let error = anyhow::Error::from(error);
        return Err(match said {
            Some(said) => error.context(format!("a machine failed, and printed: {said}")),
            None => error,
        });
    }
    Ok(())
}

/// Executes the runs of one machine in a job, and writes their results to the file `result`.
pub fn run_machine(folder: &Path, machine: usize, result: &Path) -> Result<()> {
    trodden_trace::close_descriptors_in_programs()?;
    let file =
        File::open(folder.join("spec")).with_context(|| format!("cannot read the description of the runs in {}", folder.display()))?;
    let mut spec: RemoteRunsSpec = serde_json::from_reader(std::io::BufReader::new(file))?;
    let environment = std::mem::take(&mut spec.environment);
    let mut subject = RepeatedProgram::from_worker(&spec.options, spec.program.clone(), environment, spec.input.as_deref())?;
    subject.blocks = std::mem::take(&mut spec.blocks);
    subject.guarded = spec.guarded.iter().copied().collect();
    let collector = spec.collector.collector();
    let first = Arc::new(spec.first);
    let mut done = Vec::new();
    for run in spec
        .machines
        .get(machine)
        .with_context(|| format!("cannot execute the runs of machine {machine}, because the recording has no machine with this number"))?
    {
        // If this machine was thought to be lost, its runs may also execute elsewhere. Each attempt therefore writes to files of its own,
        // and renames them when they are complete.
        let mine = partial_trace_path(folder, *run).with_extension(std::process::id().to_string());
        let ran = subject.perform_worker_run(collector, &spec.profiles[*run], &first, &mine)?;
        std::fs::write(partial_trace_path(folder, *run).with_extension("seconds"), ran.time.as_secs_f64().to_string())?;
        std::fs::rename(&mine, partial_trace_path(folder, *run))?;
        done.push(RemoteRunsReport { run: *run, outcome: ran.outcome, hits: ran.hits });
    }
    Ok(std::fs::write(result, serde_json::to_vec(&done)?)?)
}
