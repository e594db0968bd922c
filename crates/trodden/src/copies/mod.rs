//! `trodden record --copies K`: copies of a program that count a part of its paths each, run on the same input, and their counts as one profile.
//!
//! 1. [`weights`]: by what to divide the counting, which may take a first run;
//! 2. [`make`]: it is divided, and the copies are made, of [`objects`] that they share;
//! 3. an engine of `trodden_launch` runs [`worker`]s, one for each copy;
//! 4. [`trodden_profile::copies`] adds their counts up; what they printed and how they ended must be the same;
//! 5. [`costs`]: what each copy cost.
//!
//! [`hand_out`] makes copies for users instead, who run them on inputs of their own; `trodden field` adds up what they report.
//!
//! `trodden doctor -- COMMAND` runs a program several times in the same way, to see whether it does the same each time.

mod chart;
mod costs;
pub mod hand_out;
mod make;
mod objects;
mod spec;
mod weights;
mod worker;

pub use objects::FOLDER as OBJECTS;
pub use worker::work;

use crate::assets;
use crate::cli::{Copies, EngineKind, Record};
use crate::notes::{note, warn};
use crate::recipe::Word;
use crate::record::{circumstances, deliver};
use crate::toolchain::on_path;
use anyhow::{Context, Result, bail, ensure};
use costs::Costs;
use make::{Division, Program};
use spec::{Outcome, Spec, Times, file};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tempfile::TempDir;
use trodden_launch::{Engine, Event, Job, Kubernetes, Local, Slurm, Task, Template};
use trodden_profile::copies::{edges, merge_copies};
use trodden_profile::{Collected, Divergence, Ending, Profile, Run};
use trodden_unit::store::STORE_VARIABLE;
use trodden_wire::OUTPUT_VARIABLE;

/// Name of the folder that is as the working folder was.
const PRISTINE: &str = "pristine";
/// How names of folders with scripts of tasks begin.
const TASKS: &str = "tasks-";

/// Records a run by several copies; gives the program's exit status, or 1 if the copies were not the same execution.
///
/// # Errors
/// The copies cannot be made or run.
pub fn run(record: &Record) -> Result<ExitCode> {
    let engine = engine(&record.copies)?;
    let program = Program::read(&program(&record.command[0])?)?;
    let work = WorkFolder::of(record)?;
    let done = run_divided(record, &engine, program, &work);
    done.map_err(|error| work.keep_what_ran(error))
}

fn run_divided(record: &Record, engine: &Engine, program: Program, work: &WorkFolder) -> Result<ExitCode> {
    let options = &record.copies;
    let mut spec = spec(&record.command, Vec::new(), work.path(), options.own_folders, options.input.as_deref())?;
    spec.ignore_output = options.ignore_output;
    let weights = weights::find(record, &program, &spec, work.path(), engine)?;
    let division = &Division::of(program, options, weights.as_ref())?;
    let mut programs: Vec<PathBuf> = division.make(work.path(), options.baseline, None)?;
    programs.extend(options.baseline.then(|| PathBuf::from(&division.program.path)));
    spec.programs = programs.iter().map(|p| Word::from(p.as_os_str())).collect();
    spec.write(work.path())?;
    let count = division.copies.len();
    let attempts = launch(work.path(), 0..count, engine)?;
    let copies = results(work.path(), 0..count)?;
    let mut differences = outcomes(&copies);
    let profiles: Vec<Profile> = copies.iter().map(|c| c.profile.clone()).collect();
    let merged = merge_copies(&division.program, run_of(record, &copies), &profiles)?;
    differences.extend(merged.divergences.iter().map(Divergence::to_string));
    let missing = merged.silent.iter().filter(|copy| division.expects_counts(**copy));
    differences.extend(missing.map(|copy| format!("copy {copy} counted nothing, unlike the run by which the counting was divided")));
    let mut costs = Costs::of(division, &merged, &copies, &attempts, options)?;
    if options.baseline {
        differences.extend(baseline(work.path(), count, &merged.profile, options.edges, &mut costs)?);
    }
    costs.diverged.clone_from(&differences);
    let mut profile = merged.profile;
    if options.edges {
        profile.images.iter_mut().take(1).for_each(edges::rename);
    }
    // First what took long to find out: what follows may fail, because nobody reads the output any more.
    deliver(&Collected { profile, problems: Vec::new() }, &record.destination)?;
    print_output(work.path())?;
    if options.own_folders {
        bring_back(&file(work.path(), "made", 0), &work.path().join(PRISTINE), &std::env::current_dir()?)?;
    }
    costs.tell();
    options.costs.iter().try_for_each(|path| costs.write(path))?;
    if !differences.is_empty() {
        tell_differences(&differences);
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::from(status(&copies[0].outcome)))
}

/// Runs the program without counting and with all of it, alone and here; gives where its profile is not the copies'.
fn baseline(folder: &Path, first: usize, merged: &Profile, of_edges: bool, costs: &mut Costs) -> Result<Vec<String>> {
    let both = first..first + 2;
    launch(folder, both.clone(), &Engine::Local(Local { parallel: 1, ..Local::new() }))?;
    let base = results(folder, both)?;
    costs.add_baseline(&base[0].times, &base[1].times);
    match of_edges {
        true => costs::different_edges(merged, &base[1].profile),
        false => Ok(costs::differences(merged, &base[1].profile)),
    }
}

/// Runs a program several times as copies would run, and says whether it did the same each time: 0 if so, else 1.
///
/// # Errors
/// It cannot be run, or is not instrumented.
pub fn determinism(command: &[OsString], runs: u32, json: bool) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("trodden-doctor-").tempdir()?;
    let program = program(&command[0])?;
    let runs = runs as usize;
    spec(command, vec![Word::from(program.as_os_str()); runs], folder.path(), false, None)?.write(folder.path())?;
    // One after the other: they share the working folder.
    launch(folder.path(), 0..runs, &Engine::Local(Local { parallel: 1, ..Local::new() }))?;
    let copies = results(folder.path(), 0..runs)?;
    ensure!(!copies[0].profile.images.is_empty(), "nothing was counted: {} was not built with trodden", program.display());
    let mut differences = outcomes(&copies);
    for (at, copy) in copies.iter().enumerate().skip(1) {
        differences.extend(costs::differences(&copies[0].profile, &copy.profile).into_iter().map(|d| format!("run {at}: {d}")));
    }
    let mut out = io::stdout().lock();
    if json {
        let answer = serde_json::json!({"schema_version": 1, "runs": runs, "same": differences.is_empty(), "differences": differences});
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    } else if differences.is_empty() {
        writeln!(out, "ok       {runs} runs did the same: paths, output, exit status")?;
    } else {
        differences.iter().try_for_each(|d| writeln!(out, "differs  {d}"))?;
    }
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The folder of copies and results: one that the user gave, or a temporary one.
enum WorkFolder {
    Given(PathBuf),
    Own(TempDir),
}

impl WorkFolder {
    fn of(record: &Record) -> Result<WorkFolder> {
        if let Some(given) = &record.copies.work {
            fs::create_dir_all(given).with_context(|| format!("cannot make the folder {}", given.display()))?;
            ensure!(fs::read_dir(given)?.next().is_none(), "{} is not empty: give a new folder (--work)", given.display());
            return Ok(WorkFolder::Given(fs::canonicalize(given)?));
        }
        Ok(WorkFolder::Own(crate::record::run_folder(record)?))
    }

    /// After an error: what copies left is kept if any of them ran, so that it can be looked at.
    fn keep_what_ran(self, error: anyhow::Error) -> anyhow::Error {
        let ran = fs::read_dir(self.path()).is_ok_and(|entries| {
            entries.filter_map(Result::ok).any(|entry| entry.file_name().as_encoded_bytes().starts_with(TASKS.as_bytes()))
        });
        match self {
            WorkFolder::Own(folder) if ran => {
                let kept = folder.keep();
                error.context(format!("the copies are not one profile; what they left is kept in {}", kept.display()))
            }
            _ => error,
        }
    }

    fn path(&self) -> &Path {
        match self {
            WorkFolder::Given(path) => path,
            WorkFolder::Own(folder) => folder.path(),
        }
    }
}

/// The file of a program, as a shell would find it.
fn program(word: &OsStr) -> Result<PathBuf> {
    let found = if word.as_encoded_bytes().contains(&b'/') { Some(PathBuf::from(word)) } else { on_path(word) };
    let path = found.filter(|p| p.is_file()).with_context(|| format!("there is no program {}", word.display()))?;
    Ok(fs::canonicalize(path)?)
}

fn spec(command: &[OsString], programs: Vec<Word>, folder: &Path, own_folders: bool, input: Option<&Path>) -> Result<Spec> {
    let here = std::env::current_dir()?;
    let own = |name: &OsStr| [OUTPUT_VARIABLE, STORE_VARIABLE].iter().any(|n| name == *n);
    let environment = std::env::vars_os().filter(|(name, _)| !own(name));
    let environment = environment.map(|(n, v)| (Word::from(n.as_os_str()), Word::from(v.as_os_str()))).collect();
    let words = command.iter().map(|w| Word::from(w.as_os_str())).collect();
    let mut spec = Spec::of(words, Word::from(here.as_os_str()), environment, programs);
    spec.input = input_file(folder, input)?.map(|file| Word::from(file.as_os_str()));
    if own_folders {
        let pristine = folder.join(PRISTINE);
        fs::create_dir(&pristine)?;
        ensure!(!folder.starts_with(&here) || copy_without(&here, &pristine, folder)?, "the working folder cannot be copied");
        if !folder.starts_with(&here) {
            worker::copy_folder(&here, &pristine)?;
        }
        spec.pristine = Some(Word::from(pristine.as_os_str()));
    }
    Ok(spec)
}

/// Copies a folder without what lies on the way to another in it.
fn copy_without(from: &Path, to: &Path, without: &Path) -> Result<bool> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if !without.starts_with(&path) {
            let status =
                std::process::Command::new("cp").args(["-a", "--reflink=auto"]).arg(&path).arg(to).status().context("cannot run cp")?;
            ensure!(status.success(), "{} cannot be copied", path.display());
        }
    }
    Ok(true)
}

/// Where the copies' standard input is: in a file that the user gave, or in one that has what came by a pipe.
fn input_file(folder: &Path, given: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(path) = given {
        return Ok(Some(fs::canonicalize(path).with_context(|| format!("cannot read {}", path.display()))?));
    }
    let mut input = io::stdin().lock();
    if input.is_terminal() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).context("cannot read standard input")?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let path = folder.join("input");
    fs::write(&path, bytes)?;
    Ok(Some(path))
}

fn engine(options: &Copies) -> Result<Engine> {
    ensure!(
        options.memory.is_none() || options.engine == EngineKind::Local,
        "--memory is for --engine local: others have bounds of their own"
    );
    let parallel = options.parallel.map_or(Local::new().parallel, |n| n as usize);
    Ok(match options.engine {
        EngineKind::Local => Engine::Local(Local { parallel, memory: options.memory.map(|mib| mib << 20), retries: options.retries }),
        EngineKind::Slurm => {
            ensure!(options.work.is_some(), "give a folder that all machines of the cluster see: --work FOLDER");
            Engine::Slurm(Slurm { options: options.slurm_option.clone(), retries: options.retries, ..Slurm::default() })
        }
        EngineKind::Template => {
            let line = options.template.clone().context("give the command of --engine template: --template 'COMMAND'")?;
            Engine::Template(Template { line, parallel, retries: options.retries })
        }
        EngineKind::Kubernetes => {
            let (Some(image), Some(claim), Some(work)) = (&options.image, &options.claim, &options.work) else {
                bail!("--engine kubernetes needs --image, --claim and --work FOLDER, on the volume of the claim")
            };
            let mount = fs::canonicalize(work)?;
            Engine::Kubernetes(Kubernetes { image: image.clone(), claim: claim.clone(), mount, retries: options.retries })
        }
    })
}

/// Runs some copies of a job; gives how often each was started.
fn launch(folder: &Path, copies: std::ops::Range<usize>, engine: &Engine) -> Result<Vec<u32>> {
    let trodden = std::env::current_exe()?;
    let store = assets::store()?.root().as_os_str().to_owned();
    let task = |copy: usize| Task {
        command: vec![trodden.clone().into(), "copy".into(), folder.into(), copy.to_string().into()],
        environment: vec![(STORE_VARIABLE.into(), store.clone())],
        directory: folder.to_owned(),
        input: None,
        result: file(folder, "result", copy),
    };
    let name = format!("{TASKS}{}-{}", copies.start, copies.end);
    let job = Job { name: "trodden-copies".into(), folder: folder.join(name), tasks: copies.map(task).collect() };
    let mut known = 0;
    let mut tell = |event: Event| match event {
        Event::Done(done, all) if done != known && done < all => {
            known = done;
            note(format_args!("{done} of {all} runs are done"));
        }
        Event::Done(..) => {}
        Event::Retried(task) => {
            warn(format_args!("copy {task} ended without a result, and is run again (see {})", job.log(task).display()))
        }
        Event::Note(text) => note(text),
    };
    Ok(trodden_launch::run(&job, engine, &mut tell)?)
}

/// What a copy left behind.
pub struct CopyRun {
    outcome: Outcome,
    profile: Profile,
    times: Times,
}

fn results(folder: &Path, copies: std::ops::Range<usize>) -> Result<Vec<CopyRun>> {
    let read = |copy: usize| {
        let (outcome, profile) = spec::read_result(&file(folder, "result", copy))?;
        let times = fs::read(file(folder, "times", copy).with_extension("json"))?;
        Ok(CopyRun { outcome, profile, times: serde_json::from_slice(&times)? })
    };
    copies.map(read).collect()
}

/// How copies ended and what they printed, where that is not as in the first.
fn outcomes(copies: &[CopyRun]) -> Vec<String> {
    let mut out = Vec::new();
    let first = &copies[0].outcome;
    for (at, copy) in copies.iter().enumerate().skip(1) {
        let own = &copy.outcome;
        if own.ending != first.ending {
            out.push(format!("copy {at} ended with {}, copy 0 with {}", ending(own.ending), ending(first.ending)));
        }
        if own.output != first.output {
            out.push(format!("copy {at} printed something else than copy 0"));
        }
        if own.error_output != first.error_output {
            out.push(format!("copy {at} printed something else to standard error than copy 0"));
        }
    }
    out
}

fn ending(ending: Ending) -> String {
    match ending {
        Ending::Exit(code) => format!("status {code}"),
        Ending::Signal(signal) => format!("signal {signal}"),
    }
}

fn status(outcome: &Outcome) -> u8 {
    match outcome.ending {
        Ending::Exit(code) => code as u8,
        Ending::Signal(signal) => (128 + signal) as u8,
    }
}

fn run_of(record: &Record, copies: &[CopyRun]) -> Run {
    let started = copies.iter().map(|c| c.times.started_ns).min().unwrap_or(0);
    let run = circumstances(&record.command, Duration::from_nanos(started), copies[0].outcome.ending);
    let slowest = copies.iter().map(|c| c.times.wall_ns).max().unwrap_or(0);
    Run { duration_ns: slowest, suite: record.destination.suite.clone(), ..run }
}

/// Prints what the first copy printed. That nobody reads it to its end is no error.
fn print_output(folder: &Path) -> Result<()> {
    let print = |name: &str, to: &mut dyn Write| -> Result<()> {
        let text = fs::read(file(folder, name, 0))?;
        match to.write_all(&text).and_then(|()| to.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    };
    print("out", &mut io::stdout().lock())?;
    print("err", &mut io::stderr().lock())
}

/// Brings back what a copy made or changed in its folder, which was like another before.
fn bring_back(made: &Path, before: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(made)? {
        let entry = entry?;
        let (old, target) = (before.join(entry.file_name()), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() && old.is_dir() && target.is_dir() {
            bring_back(&entry.path(), &old, &target)?;
        } else if !is_same(&entry.path(), &old)? {
            let mut copy = std::process::Command::new("cp");
            copy.args(["-a", "--remove-destination", "--no-target-directory"]).arg(entry.path()).arg(&target);
            ensure!(copy.status().context("cannot run cp")?.success(), "what the program made cannot be copied to {}", target.display());
        }
    }
    Ok(())
}

/// Whether two places hold the same; false if there is nothing at the second.
fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let Ok(there) = other.symlink_metadata() else { return Ok(false) };
    let here = one.symlink_metadata()?;
    if here.file_type() != there.file_type() || here.permissions() != there.permissions() {
        return Ok(false);
    }
    if here.is_symlink() {
        return Ok(fs::read_link(one)? == fs::read_link(other)?);
    }
    // Times do not tell: a program may set them.
    Ok(!here.is_file() || here.len() == there.len() && fs::read(one)? == fs::read(other)?)
}

fn tell_differences(differences: &[String]) {
    const SHOWN: usize = 10;
    warn("the copies were not the same execution, so the profile is not exact:");
    differences.iter().take(SHOWN).for_each(warn);
    if differences.len() > SHOWN {
        warn(format_args!("and {} more differences", differences.len() - SHOWN));
    }
    warn("`trodden doctor -- COMMAND` says whether the program does the same each time");
}
