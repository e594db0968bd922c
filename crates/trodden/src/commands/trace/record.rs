//! `trodden trace record`, and the runs of it on another machine.

use crate::cli::{Condition, RepeatPart, TraceEngine, TraceRecord};
use crate::context::context;
use crate::output;
use anyhow::{Context, Result};
use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use trodden_distributed::plan::PlanOptions;
use trodden_distributed::recording::{OtherMachines, RecordOptions, Recording, RecordingHost, RunOptions, work as execute_runs};
use trodden_driver::other_programs::named;
use trodden_launch::{Engine, RESULT_VARIABLE, Slurm, alive};
use trodden_report::trace::plan;
use trodden_trace::{OutputStream, RepeatRecipe};

/// Records a trace, or shows which run would watch what; gives the program's exit status.
///
/// # Errors
/// The program cannot be traced, its runs part, or the trace cannot be written.
pub fn run(job: &TraceRecord) -> Result<ExitCode> {
    let (options, host) = (options(job), host(job)?);
    let recording = Recording::new(&options, &host)?;
    if !job.plan {
        return Ok(ExitCode::from(recording.run()?));
    }
    recording.plan(|planner, found| match job.json {
        true => output::print_json(&plan::json(planner, found)),
        false => Ok(plan::write(&mut output::text(), planner, found)?),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Executes the runs of a machine.
///
/// # Errors
/// One cannot be executed.
pub fn work(folder: &Path, machine: usize) -> Result<ExitCode> {
    let result =
        env::var_os(RESULT_VARIABLE).with_context(|| format!("{RESULT_VARIABLE} is not set: `trodden trace record --engine` runs this"))?;
    alive::end_with_launcher();
    execute_runs(folder, machine, result.as_ref())?;
    Ok(ExitCode::SUCCESS)
}

fn options(job: &TraceRecord) -> RecordOptions {
    let fixes = |part| !job.no_repeat.contains(&part);
    let recipe = RepeatRecipe {
        addresses: fixes(RepeatPart::Addresses),
        time: fixes(RepeatPart::Time),
        randomness: fixes(RepeatPart::Randomness),
        processes: fixes(RepeatPart::Processes),
        core: None,
    };
    let run = RunOptions {
        command: job.command.clone(),
        process: job.pid,
        collector: job.collector,
        libraries: job.library.clone(),
        recipe,
        is_pinned: fixes(RepeatPart::Core),
        max_size: job.max_size,
        limit: job.duration,
    };
    let plan = PlanOptions {
        runs: job.runs as usize,
        limit: job.limit.map(|l| l as usize),
        machines: job.machines.map(|m| m as usize),
        strategy: job.strategy,
        distribution: job.distribution.clone(),
        paper: job.check == Condition::Paper,
    };
    RecordOptions {
        run,
        output: job.output.clone(),
        plan,
        weights: job.weights.clone(),
        opaque: job.opaque.clone(),
        jobs: job.jobs.map(|jobs| jobs as usize),
        keep: job.keep.clone(),
        plan_only: job.plan,
    }
}

fn host(job: &TraceRecord) -> Result<RecordingHost<'static>> {
    let here = || env::current_dir().context("there is no working folder");
    let own_program = env::current_exe().context("this program cannot be found")?;
    let other_machines = || {
        Ok::<_, anyhow::Error>(OtherMachines {
            engine: Engine::Slurm(Slurm { options: job.slurm_option.clone(), ..Slurm::default() }),
            worker: vec![own_program.clone().into(), "trace".into(), "work".into()],
            folder: here()?,
            environment: env::vars_os().collect(),
        })
    };
    Ok(RecordingHost {
        program: job.command.first().and_then(|name| named(context(), name)),
        machines: (job.engine == TraceEngine::Slurm).then(other_machines).transpose()?,
        own_program,
        temporary: env::temp_dir(),
        pass_on: &pass_on,
        fresh_folder: job.fresh_folder.then(here).transpose()?,
    })
}

/// What the traced program writes is its own, and passes by. A reader that is gone is none of the run's business.
fn pass_on(stream: OutputStream, bytes: &[u8]) {
    let _ = match stream {
        OutputStream::Out => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
        OutputStream::Error => io::stderr().write_all(bytes),
    };
}
