//! `trodden trace record`, and the hidden `trodden trace work`, which executes runs on a different machine.

use crate::cli::{RepeatedRunProperty, TraceRecordArguments};
use crate::context::driver_context;
use crate::output;
use anyhow::{Context, Result};
use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_console::arguments::engines::{EngineChoice, EngineParameters};
use trodden_console::arguments::laboratory::{PlanForm, WitnessCondition};
use trodden_distributed::graph_folder::GraphFolder;
use trodden_distributed::plan::DistributionPlanOptions;
use trodden_distributed::recording::{
    ExecutionWeightSource, GraphCache, PreparedRecording, RecordOptions, RecordingHost, RemoteMachines, RunOptions, record,
    run_machine as execute_runs,
};
use trodden_driver::other_programs::find_program;
use trodden_launch::{RESULT_VARIABLE, Slurm, alive};
use trodden_report::trace::plan;
use trodden_trace::{FixedRunConditions, OutputStream};
use trodden_witness::DistributionStrategy;

/// Records a trace or prints a plan for recording it. Returns the program's exit status.
pub fn run(job: &TraceRecordArguments) -> Result<ExitCode> {
    let (options, host) = (build_record_options(job), build_recording_host(job)?);
    let Some(form) = job.choices.plan else { return Ok(ExitCode::from(record(&options, &host)?)) };
    let recording = PreparedRecording::new(&options, &host)?;
    recording.plan(|planner, found| match form {
        PlanForm::Json => output::print_json(&plan::json(planner, found)),
        PlanForm::Text => Ok(plan::write(&mut output::text_writer(), planner, found)?),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Executes the runs that are assigned to this machine.
pub fn run_worker(folder: &Path, machine: usize) -> Result<ExitCode> {
    let result = env::var_os(RESULT_VARIABLE)
        .with_context(|| format!("this command is internal ({RESULT_VARIABLE} is not set). Run `trodden trace record --engine` instead"))?;
    if let Some(launcher) = std::env::var_os(alive::LAUNCHER_ALIVE_VARIABLE) {
        alive::end_with_launcher(Path::new(&launcher));
    }
    execute_runs(folder, machine, result.as_ref())?;
    Ok(ExitCode::SUCCESS)
}

fn build_record_options(job: &TraceRecordArguments) -> RecordOptions {
    let choices = &job.choices;
    let repeats = |part| !job.no_repeat.contains(&part);
    let recipe = FixedRunConditions {
        addresses: repeats(RepeatedRunProperty::Addresses),
        time: repeats(RepeatedRunProperty::Time),
        randomness: repeats(RepeatedRunProperty::Randomness),
        processes: repeats(RepeatedRunProperty::Processes),
        core: None,
    };
    let run = RunOptions {
        command: job.command.clone(),
        process: job.pid,
        collector: job.collector,
        libraries: job.library.clone(),
        recipe,
        is_pinned: repeats(RepeatedRunProperty::Core),
        max_size: job.max_size,
        limit: job.duration,
    };
    let plan = DistributionPlanOptions {
        runs: job.runs as usize,
        limit: choices.limit.map(|l| l as usize),
        machines: choices.machines.map(|m| m as usize),
        strategy: choices.witness_strategy.unwrap_or(DistributionStrategy::Fine),
        distribution: choices.distribution.clone(),
        calls: choices.calls,
        checks_paper_conditions: choices.check == Some(WitnessCondition::Paper),
    };
    RecordOptions {
        run,
        output: job.output.clone(),
        plan,
        weights: choices.witness_weights.as_ref().map_or(ExecutionWeightSource::Static, |from| ExecutionWeightSource::from(from.as_str())),
        opaque: job.opaque.clone(),
        jobs: job.jobs.map(|jobs| jobs as usize),
        keep: choices.keep_runs.clone(),
        family: job.follow.then(|| job.output.clone()),
        plan_only: choices.plan.is_some(),
    }
}

fn build_recording_host(job: &TraceRecordArguments) -> Result<RecordingHost<'static>> {
    let here = || env::current_dir().context("cannot determine the working folder");
    let own_program = env::current_exe().context("cannot find trodden's own executable file")?;
    let other_machines = || {
        let folder = here()?;
        let parameters = EngineParameters { jobs: None, memory: None, retries: Slurm::default().retries, shared: Some(&folder) };
        Ok::<_, anyhow::Error>(RemoteMachines {
            engine: job.engine.create_engine(&parameters)?,
            worker: vec![own_program.clone().into(), "trace".into(), "work".into()],
            folder,
            environment: env::vars_os().collect(),
        })
    };
    Ok(RecordingHost {
        program: job.command.first().and_then(|name| find_program(driver_context(), name)),
        machines: (job.engine != EngineChoice::Local).then(other_machines).transpose()?,
        graph_folder: cache_folder().and_then(|cache| GraphFolder::new(cache.join("graphs"), &own_program).ok()),
        own_program,
        temporary: env::temp_dir(),
        forward_output: &forward_output,
        graphs: GraphCache::default(),
        fresh_folder: job.fresh_folder.then(here).transpose()?,
    })
}

/// Returns the folder for files that trodden can make again, by the XDG Base Directory Specification; `None` if the user has none.
fn cache_folder() -> Option<PathBuf> {
    // The specification says that relative paths are ignored.
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(base?.join("trodden"))
}

/// Forwards the traced program's output. Errors are ignored, because a closed pipe must not stop the run.
fn forward_output(stream: OutputStream, bytes: &[u8]) {
    let _ = match stream {
        OutputStream::Out => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
        OutputStream::Error => io::stderr().write_all(bytes),
    };
}
