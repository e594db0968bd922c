//! Runs copies as the tasks of a `trodden_launch` job.

use super::preparation::CopyInput;
use super::spec::{self, CopyJobSpec, CopyOutcome, SCHEMA_VERSION, copy_file};
use super::{CopyContext, folders};
use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use trodden_driver::other_programs::find_program;
use trodden_driver::recipe::OsText;
use trodden_launch::{JobEvent, LaunchEngine, LaunchJob, LaunchTask, Local, StopFlag};
use trodden_profile::copies::CopyTimes;
use trodden_profile::{ProcessEnding, Profile};
use trodden_text::words::plural;
use trodden_unit::Identity;
use trodden_unit::cache::CACHE_VARIABLE;
use trodden_wire::OUTPUT_ENVIRONMENT_VARIABLE;

pub const PRISTINE_FOLDER: &str = "pristine";

pub struct CopyRunner<'a> {
    pub engine: LaunchEngine,
    pub stop: &'a StopFlag,
    pub context: CopyContext<'a>,
}

pub struct CopyRun {
    pub outcome: CopyOutcome,
    pub profile: Profile,
    pub times: CopyTimes,
}

pub fn read_results(folder: &Path, copies: &[usize], context: CopyContext) -> Result<Vec<CopyRun>> {
    let read = |&copy: &usize| {
        let (outcome, profile) = spec::read_result(&copy_file(folder, "result", copy), &context.recording.temporary)?;
        let times = fs::read(copy_file(folder, "times", copy).with_extension("json"))?;
        Ok(CopyRun { outcome, profile, times: serde_json::from_slice(&times)? })
    };
    copies.iter().map(read).collect()
}

/// Runs all copies. If a signal ended only some of them, runs those once more. Returns each copy's result and number of attempts.
pub fn run_all_copies(count: usize, work: &Path, runner: &CopyRunner) -> Result<(Vec<CopyRun>, Vec<u32>)> {
    let all: Vec<usize> = (0..count).collect();
    let mut attempts = launch_copies(work, &all, runner)?;
    let copies = read_results(work, &all, runner.context)?;
    let interrupted = find_interrupted_copies(&copies);
    if interrupted.is_empty() {
        return Ok((copies, attempts));
    }
    log::info!(
        "a signal ended only {} of {} of the program. The copies that it ended run again",
        interrupted.len(),
        plural(count as u128, "copy", "copies")
    );
    run_interrupted_copies_again(work, &interrupted, runner)?.into_iter().zip(&interrupted).for_each(|(more, at)| attempts[*at] += more);
    Ok((read_results(work, &all, runner.context)?, attempts))
}

/// Creates a local engine that runs one task at a time. `memory` limits the task's address space, in bytes.
pub fn sequential_engine(memory: Option<u64>) -> LaunchEngine {
    LaunchEngine::Local(Local { parallel: 1, memory, ..Local::default() })
}

/// Finds a program's file as a shell would.
pub fn resolve_program(word: &OsStr, context: CopyContext) -> Result<PathBuf> {
    let path =
        find_program(context.driver, word).filter(|p| p.is_file()).with_context(|| format!("cannot find program {}", word.display()))?;
    Ok(fs::canonicalize(path)?)
}

/// Describes everything that all copies of a command share. With `own_folders`, also clones the working folder.
pub fn build_job_spec(
    command: &[OsString],
    programs: Vec<OsText>,
    folder: &Path,
    own_folders: bool,
    input: CopyInput,
    context: CopyContext,
) -> Result<CopyJobSpec> {
    let working = context.driver.directory()?;
    let is_replaced = |name: &OsStr| [OUTPUT_ENVIRONMENT_VARIABLE, CACHE_VARIABLE].iter().any(|n| name == *n);
    let mut environment: Vec<_> = context.driver.variables.iter().filter(|(name, _)| !is_replaced(name)).collect();
    environment.sort();
    let environment = environment.into_iter().map(|(n, v)| (OsText::from(n.as_os_str()), OsText::from(v.as_os_str()))).collect();
    let arguments = command.iter().map(|w| OsText::from(w.as_os_str())).collect();
    let (schema_version, directory) = (SCHEMA_VERSION, OsText::from(working.as_os_str()));
    let mut spec = CopyJobSpec { schema_version, command: arguments, directory, environment, programs, ..CopyJobSpec::default() };
    spec.input = input.into_file(folder)?.map(|file| OsText::from(file.as_os_str()));
    if own_folders {
        let pristine = folder.join(PRISTINE_FOLDER);
        folders::make_pristine_clone(working, &pristine, folder)?;
        spec.pristine = Some(OsText::from(pristine.as_os_str()));
    }
    Ok(spec)
}

/// Runs some copies of a job. Returns the number of attempts for each of them.
pub fn launch_copies(folder: &Path, copies: &[usize], runner: &CopyRunner) -> Result<Vec<u32>> {
    let (first, last) = (copies.first().copied().unwrap_or(0), copies.last().copied().unwrap_or(0));
    launch_copies_in_folder(folder, copies, &folder.join(format!("tasks-{first}-{}", last + 1)), runner)
}

/// Runs those copies again that a signal ended, and overwrites their results.
fn run_interrupted_copies_again(folder: &Path, copies: &[usize], runner: &CopyRunner) -> Result<Vec<u32>> {
    for &copy in copies {
        fs::remove_file(copy_file(folder, "result", copy))?;
        let made = copy_file(folder, "made", copy);
        if made.exists() {
            fs::remove_dir_all(&made).with_context(|| format!("cannot remove {}", made.display()))?;
        }
    }
    launch_copies_in_folder(folder, copies, &folder.join("tasks-again"), runner)
}

/// Runs some copies of a job. The engine's scripts go to the folder `scripts`.
fn launch_copies_in_folder(folder: &Path, copies: &[usize], scripts: &Path, runner: &CopyRunner) -> Result<Vec<u32>> {
    let trodden = runner.context.driver.executable()?;
    let store = runner.context.driver.store()?.root().as_os_str().to_owned();
    let task = |copy: &usize| LaunchTask {
        command: vec![trodden.into(), "copy".into(), folder.into(), copy.to_string().into()],
        environment: vec![(CACHE_VARIABLE.into(), store.clone())],
        directory: folder.to_owned(),
        input: None,
        result: copy_file(folder, "result", *copy),
    };
    // Clusters identify a job by its name even after its end, so every job needs a new name.
    let unique = Identity::from_content(format!("{} {:?}", scripts.display(), SystemTime::now()).as_bytes()).to_string();
    let job = LaunchJob {
        name: format!("trodden-copies-{}", &unique[..8]),
        folder: scripts.to_owned(),
        tasks: copies.iter().map(task).collect(),
    };
    let mut last_reported = 0;
    let mut report = |event: JobEvent| match event {
        JobEvent::Done(done, all) if done != last_reported && done < all => {
            last_reported = done;
            log::info!("{done} of {} done", plural(all as u128, "run is", "runs are"));
        }
        JobEvent::Done(..) => {}
        JobEvent::Retried(task) => {
            log::warn!(
                "copy {} of the program ended without a result, and runs again (see the log {})",
                copies[task],
                job.log(task).display()
            )
        }
        JobEvent::Note(text) => log::info!("{}", text),
    };
    Ok(trodden_launch::run(&job, &runner.engine, runner.stop, &mut report)?)
}

/// Returns the copies that a signal ended, or none if signals ended all copies.
fn find_interrupted_copies(copies: &[CopyRun]) -> Vec<usize> {
    let is_interrupted = |at: &usize| matches!(copies[*at].outcome.ending, ProcessEnding::Signal(_));
    let interrupted: Vec<usize> = (0..copies.len()).filter(is_interrupted).collect();
    if interrupted.len() < copies.len() { interrupted } else { Vec::new() }
}
