//! `trodden record --copies K`: copies of a program that count a part of its paths each, run on the same input, and
//! their counts as one profile.
//!
//! 1. [`weights`]: by what to divide the counting, which may take a first run;
//! 2. [`make`]: it is divided, and the copies are made, of [`objects`] that they share, with their [`heap`] at one address;
//! 3. an engine of `trodden_launch` runs [`worker`]s, one for each copy;
//! 4. [`trodden_profile::copies`] adds their counts up; what they printed and how they ended must be the same;
//! 5. `trodden_analysis::copies`: what each copy cost.
//!
//! [`shared`] does the same for what whole functions share: [`segments`] across calls, and paths across [`iterations`].
//!
//! [`distribute`] makes copies for users instead, who run them on inputs of their own; `trodden field` adds up what they report.
//!
//! `trodden doctor -- COMMAND` runs a program several times in the same way, to see whether it does the same each time.

mod before;
pub mod distribute;
mod folders;
mod heap;
mod iterations;
pub mod make;
mod objects;
pub mod procedures;
mod segments;
mod shared;
mod spec;
mod weights;
mod worker;

pub use worker::work;

use crate::cli::{COPY_STRATEGIES, Copies, EngineKind, HITS, Record, word, word_for};
use crate::context::context;
use crate::notes::{note, warn};
use crate::output;
use crate::surroundings::surroundings;
use crate::temporary;
use anyhow::{Context, Result, bail, ensure};
use before::{CopyInput, Failed, WorkFolder};
use make::{CopiedProgram, PathPartition};
use spec::{CopyOutcome, SCHEMA_VERSION, Spec, file};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use trodden_analysis::copies::{CopyChoices, Costs};
use trodden_driver::other_programs::named;
use trodden_driver::recipe::SystemText;
use trodden_launch::{Engine, JobEvent, Kubernetes, LaunchJob, LaunchStop, LaunchTask, Local, Slurm, Template};
use trodden_profile::copies::{
    CopiesError, CopyMeasurements, CopyTimes, MergedCopies, counted_hits, differences, different_edges, edges, merge_copies,
};
use trodden_profile::{Collected, CopyDivergence, ProcessEnding, Profile, Run, private};
use trodden_recording::{circumstances, deliver};
use trodden_report::copies::{self as report, CostLine};
use trodden_report::words::plural;
use trodden_unit::Identity;
use trodden_unit::store::STORE_VARIABLE;
use trodden_wire::OUTPUT_VARIABLE;

/// Name of the folder that is as the working folder was.
const PRISTINE: &str = "pristine";
/// What it may mean that copies took other paths than each other or the program itself.
const WHY: &str = "`trodden doctor -- COMMAND` says whether the program does the same each time, and whether its paths go by addresses \
    (tables of pointers): static data and code of copies are at other addresses";

/// Records a run by several copies; gives the program's exit status, or 1 if the copies were not the same execution.
///
/// # Errors
/// The copies cannot be made or run.
pub fn run(record: &Record) -> Result<ExitCode> {
    if let Some(wanted) = &record.copies.segments {
        return segments::run(record, wanted);
    }
    if record.copies.iterations {
        return iterations::run(record);
    }
    let engine = engine(&record.copies)?;
    let program = CopiedProgram::read(&program(&record.command[0])?)?;
    before::check_destinations(record)?;
    let input = CopyInput::read(record.copies.input.as_deref())?;
    // Only now: reading and printing are what signals have to end, everything between ends itself.
    trodden_launch::temporary::take_signals();
    let stop = LaunchStop::new()?;
    let mut work = WorkFolder::from_record(record)?;
    let spec = spec(&record.command, Vec::new(), work.path(), record.copies.own_folders, input);
    let counted = spec.and_then(|spec| count(record, &Runner { engine, stop: &stop }, program, spec, work.path()));
    let counted = counted.map_err(|error| work.end_with(error, &stop))?;
    drop(stop);
    deliver_all(record, counted, work.path())
}

/// Who runs copies, as long as no signal asks us to end.
struct Runner<'a> {
    engine: Engine,
    stop: &'a LaunchStop,
}

/// What all copies together did.
struct Counted {
    profile: Profile,
    measurements: CopyMeasurements,
    /// Where they differ.
    differences: Vec<String>,
    /// How the first of them ended.
    outcome: CopyOutcome,
}

/// Makes the copies, and runs them.
fn count(record: &Record, runner: &Runner, program: CopiedProgram, mut spec: Spec, work: &Path) -> Result<Counted> {
    let options = &record.copies;
    spec.ignore_output = options.ignore_output;
    let weights = weights::find(record, &program, &spec, work, runner)?;
    let partition = &PathPartition::new(program, options, weights.as_ref())?;
    let mut programs: Vec<PathBuf> = partition.make(work, options.baseline, None, runner.stop)?;
    heap::align(&programs, Path::new(&partition.program.path))?;
    programs.extend(options.baseline.then(|| PathBuf::from(&partition.program.path)));
    spec.programs = programs.iter().map(|p| SystemText::from(p.as_os_str())).collect();
    let _job = spec.write(work)?;
    run_copies(record, runner, partition, work).context(Failed)
}

fn run_copies(record: &Record, runner: &Runner, partition: &PathPartition, work: &Path) -> Result<Counted> {
    let options = &record.copies;
    let (copies, attempts) = run_to_ends(partition.copies.len(), work, runner)?;
    let mut differences = outcomes(&copies);
    let profiles: Vec<Profile> = copies.iter().map(|c| c.profile.clone()).collect();
    let merged = merge_copies(&partition.program, run_of(record, &copies), &profiles).map_err(|error| explain(error, &copies[0], work))?;
    differences.extend(merged.divergences.iter().map(CopyDivergence::to_string));
    report_interrupted(&merged, copies[0].outcome.ending);
    if merged.profile.run.interrupted == 0 {
        let missing = merged.silent.iter().filter(|copy| partition.expects_counts(**copy));
        differences.extend(missing.map(|copy| format!("copy {copy} counted nothing, unlike the run by which the counting was divided")));
    } else {
        // What copies print until a signal comes is another matter each time, too; they ended alike.
        differences.clear();
    }
    let mut measurements = measure(partition, &merged.profile, &copies, attempts, options)?;
    measurements.confirmed = merged.confirmed;
    let is_interrupted = !merged.interrupted.is_empty();
    let mut profile = merged.into_profile();
    if options.baseline {
        let found = baseline(work, options, &profile, runner.stop, &mut measurements)?;
        // What is known of the paths that a signal interrupted may differ.
        if matches!(copies[0].outcome.ending, ProcessEnding::Signal(_)) || is_interrupted {
            found.iter().for_each(|at| note(format_args!("{at} in one program that counts all, which ended like that as well")));
        } else {
            differences.extend(found.into_iter().map(|at| format!("{at} in one program that counts all")));
        }
    }
    profile.run.diverged = differences.len() as u64;
    if options.edges {
        profile.images.iter_mut().take(1).for_each(edges::rename);
    }
    Ok(Counted { profile, measurements, differences, outcome: copies[0].outcome.clone() })
}

/// What copies took, and executed by what all of them counted.
fn measure(
    partition: &PathPartition,
    counted: &Profile,
    copies: &[CopyRun],
    attempts: Vec<u32>,
    options: &Copies,
) -> Result<CopyMeasurements> {
    if copies.iter().any(|c| !c.times.fixed_addresses) {
        note("addresses of memory are random here (a container may forbid to change that): programs that go by addresses may differ");
    }
    let is_residual = partition.is_residual();
    Ok(CopyMeasurements {
        program: partition.program.path.clone(),
        edges: partition.program.edges,
        is_residual,
        plans: partition.copies.clone(),
        procedures: if is_residual { Vec::new() } else { partition.measured(counted)? },
        confirmed: 0,
        times: copies.iter().map(|copy| copy.times.clone()).collect(),
        attempts,
        counted_hits: options.count_hits.then(|| copies.iter().map(|copy| counted_hits(&copy.profile)).collect()),
        baseline: None,
    })
}

/// Runs all copies, and those once more that a signal ended where it did not end all; gives what they left and how often each was started.
fn run_to_ends(count: usize, work: &Path, runner: &Runner) -> Result<(Vec<CopyRun>, Vec<u32>)> {
    let all: Vec<usize> = (0..count).collect();
    let mut attempts = launch(work, &all, runner)?;
    let copies = results(work, &all)?;
    let cut = cut_off(&copies);
    if cut.is_empty() {
        return Ok((copies, attempts));
    }
    let again = if cut.len() == 1 { "it runs" } else { "they run" };
    note(format_args!(
        "a signal ended {} of {}, and not the others: {again} once more",
        cut.len(),
        plural(count as u128, "copy", "copies")
    ));
    run_again(work, &cut, runner)?.into_iter().zip(&cut).for_each(|(more, at)| attempts[*at] += more);
    Ok((results(work, &all)?, attempts))
}

/// Adds to an error what the first copy may say about it.
fn explain(error: CopiesError, first: &CopyRun, work: &Path) -> anyhow::Error {
    const LINES: usize = 3;
    if !matches!(error, CopiesError::Nothing) {
        return error.into();
    }
    let text = fs::read(file(work, "err", 0)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
    let said = if last.is_empty() { "nothing to standard error".to_owned() } else { format!("to standard error: {last}") };
    anyhow::anyhow!("{error} (copy 0 ended with {} and printed {said})", ending(first.outcome.ending))
}

/// Stores, prints and reports what copies did; gives the exit status.
fn deliver_all(record: &Record, counted: Counted, work: &Path) -> Result<ExitCode> {
    let Counted { profile, measurements, differences, outcome } = counted;
    // First what took long to find out: what follows may fail, because the output has no reader any more.
    deliver(&Collected { profile, problems: Vec::new() }, &record.destination.value(), &surroundings())?;
    print_output(work)?;
    bring_back(record, work)?;
    let choices = CopyChoices {
        strategy: word_for(&COPY_STRATEGIES, &record.copies.strategy),
        engine: word(record.copies.engine),
        measure: record.copies.hits,
        hits: word_for(&HITS, &record.copies.hits),
    };
    let mut costs = Costs::new(&measurements, &choices);
    costs.diverged.clone_from(&differences);
    for line in report::lines(&costs) {
        match line {
            CostLine::Note(text) => note(text),
            CostLine::Warning(text) => warn(text),
        }
    }
    record.copies.costs.iter().try_for_each(|path| write_costs(&costs, path))?;
    Ok(exit_code(&differences, &outcome))
}

/// Writes costs to a file: a page, or JSON.
fn write_costs(costs: &Costs, path: &Path) -> Result<()> {
    let text = match path.extension().is_some_and(|e| e == "html") {
        true => report::page(costs),
        false => serde_json::to_string_pretty(costs)? + "\n",
    };
    output::write_file(path, text.as_bytes())
}

/// Puts here what the first copy made in a folder of its own.
fn bring_back(record: &Record, work: &Path) -> Result<()> {
    match record.copies.own_folders {
        true => folders::bring_back(&file(work, "made", 0), &std::env::current_dir()?, &work.join(PRISTINE)),
        false => Ok(()),
    }
}

/// The program's exit status, or 1 and what is said of where copies differ.
fn exit_code(differences: &[String], outcome: &CopyOutcome) -> ExitCode {
    if differences.is_empty() {
        return ExitCode::from(status(outcome));
    }
    report_differences(differences);
    ExitCode::FAILURE
}

/// Runs the program without counting and with all of it, alone and here; gives where its profile is not the copies'.
fn baseline(
    folder: &Path,
    copies: &Copies,
    merged: &Profile,
    stop: &LaunchStop,
    measurements: &mut CopyMeasurements,
) -> Result<Vec<String>> {
    let (first, memory) = (copies.copies.unwrap_or(1), copies.memory);
    let both = [first, first + 1];
    launch(folder, &both, &Runner { engine: one_by_one(memory), stop })?;
    let base = results(folder, &both)?;
    measurements.baseline = Some([base[0].times.clone(), base[1].times.clone()]);
    Ok(match measurements.edges {
        true => different_edges(merged, &base[1].profile)?,
        false => differences(merged, &base[1].profile),
    })
}

/// Here, and one after the other.
fn one_by_one(memory: Option<u64>) -> Engine {
    Engine::Local(Local { parallel: 1, memory: memory.map(|mib| mib << 20), ..Local::default() })
}

/// Runs a program several times as copies would run, and once more with memory at random addresses; says whether it did
/// the same each time: 0 if so, else 1.
///
/// # Errors
/// It cannot be run, or is not instrumented.
pub fn determinism(command: &[OsString], runs: u32, json: bool) -> Result<ExitCode> {
    let program = program(&command[0])?;
    let input = CopyInput::read(None)?;
    trodden_launch::temporary::take_signals();
    let stop = LaunchStop::new()?;
    let folder = temporary::folder("trodden-doctor-")?;
    let runs = runs as usize;
    let mut spec = spec(command, vec![SystemText::from(program.as_os_str()); runs + 1], folder.path(), false, input)?;
    spec.random_addresses = Some(runs);
    let _job = spec.write(folder.path())?;
    // They share the working folder.
    let all: Vec<usize> = (0..=runs).collect();
    launch(folder.path(), &all, &Runner { engine: one_by_one(None), stop: &stop })?;
    drop(stop);
    let mut copies = results(folder.path(), &all)?;
    let moved = copies.pop().context("there is no run")?;
    ensure!(!copies[0].profile.images.is_empty(), "nothing was counted: {} was not built with trodden", program.display());
    let mut found = outcomes(&copies);
    for (at, copy) in copies.iter().enumerate().skip(1) {
        found.extend(differences(&copies[0].profile, &copy.profile).into_iter().map(|d| format!("run {at}: {d}")));
    }
    // Of a program that differs anyhow, this would say nothing.
    let by_addresses = if found.is_empty() { by_addresses(&copies[0], &moved) } else { Vec::new() };
    let same = found.is_empty() && by_addresses.is_empty();
    let mut out = output::text();
    if json {
        output::print_json(&serde_json::json!(
            {"schema_version": 1, "runs": runs, "same": same, "differences": found, "by_addresses": by_addresses}))?;
    } else if same {
        writeln!(out, "ok       {runs} runs did the same, and one more with memory at other addresses: paths, output, exit status")?;
    } else {
        found.iter().try_for_each(|d| writeln!(out, "differs  {d}"))?;
        by_addresses.iter().try_for_each(|d| writeln!(out, "differs  with memory at other addresses: {d}"))?;
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The file of a program, as a shell would find it.
fn program(word: &OsStr) -> Result<PathBuf> {
    let path = named(context(), word).filter(|p| p.is_file()).with_context(|| format!("there is no program {}", word.display()))?;
    Ok(fs::canonicalize(path)?)
}

fn spec(command: &[OsString], programs: Vec<SystemText>, folder: &Path, own_folders: bool, input: CopyInput) -> Result<Spec> {
    let here = std::env::current_dir()?;
    let own = |name: &OsStr| [OUTPUT_VARIABLE, STORE_VARIABLE].iter().any(|n| name == *n);
    let environment = std::env::vars_os().filter(|(name, _)| !own(name));
    let environment = environment.map(|(n, v)| (SystemText::from(n.as_os_str()), SystemText::from(v.as_os_str()))).collect();
    let arguments = command.iter().map(|w| SystemText::from(w.as_os_str())).collect();
    let (schema_version, directory) = (SCHEMA_VERSION, SystemText::from(here.as_os_str()));
    let mut spec = Spec { schema_version, command: arguments, directory, environment, programs, ..Spec::default() };
    spec.input = input.file(folder)?.map(|file| SystemText::from(file.as_os_str()));
    if own_folders {
        let pristine = folder.join(PRISTINE);
        folders::keep(&here, &pristine, folder)?;
        spec.pristine = Some(SystemText::from(pristine.as_os_str()));
    }
    Ok(spec)
}

fn engine(options: &Copies) -> Result<Engine> {
    let parallel = options.parallel.map_or(Local::default().parallel, |n| n as usize);
    let others = [
        (options.memory.is_some(), EngineKind::Local, "--memory"),
        (options.template.is_some(), EngineKind::Template, "--template"),
        (!options.slurm_option.is_empty(), EngineKind::Slurm, "--slurm-option"),
        (options.image.is_some(), EngineKind::Kubernetes, "--image"),
        (options.claim.is_some(), EngineKind::Kubernetes, "--claim"),
    ];
    for (is_given, kind, option) in others {
        ensure!(!is_given || options.engine == kind, "{option} is for --engine {}: give that as well, or leave {option} out", word(kind));
    }
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
            private::create_folder(work).with_context(|| format!("cannot make the folder {}", work.display()))?;
            let mount = fs::canonicalize(work).with_context(|| format!("cannot read {}", work.display()))?;
            Engine::Kubernetes(Kubernetes { image: image.clone(), claim: claim.clone(), mount, retries: options.retries })
        }
    })
}

/// Runs some copies of a job; gives how often each was started.
fn launch(folder: &Path, copies: &[usize], runner: &Runner) -> Result<Vec<u32>> {
    let (first, last) = (copies.first().copied().unwrap_or(0), copies.last().copied().unwrap_or(0));
    launch_in(folder, copies, &folder.join(format!("tasks-{first}-{}", last + 1)), runner)
}

/// Runs copies that a signal ended once more, in the place of what they left.
fn run_again(folder: &Path, copies: &[usize], runner: &Runner) -> Result<Vec<u32>> {
    for &copy in copies {
        fs::remove_file(file(folder, "result", copy))?;
        let made = file(folder, "made", copy);
        if made.exists() {
            fs::remove_dir_all(&made).with_context(|| format!("cannot remove {}", made.display()))?;
        }
    }
    launch_in(folder, copies, &folder.join("tasks-again"), runner)
}

/// The same with scripts in a folder of their own.
fn launch_in(folder: &Path, copies: &[usize], scripts: &Path, runner: &Runner) -> Result<Vec<u32>> {
    let trodden = std::env::current_exe()?;
    let store = context().store()?.root().as_os_str().to_owned();
    let task = |copy: &usize| LaunchTask {
        command: vec![trodden.clone().into(), "copy".into(), folder.into(), copy.to_string().into()],
        environment: vec![(STORE_VARIABLE.into(), store.clone())],
        directory: folder.to_owned(),
        input: None,
        result: file(folder, "result", *copy),
    };
    // Clusters keep jobs apart by their names, also those that have ended: each has its own.
    let own = Identity::from_content(format!("{} {:?}", scripts.display(), SystemTime::now()).as_bytes()).to_string();
    let job =
        LaunchJob { name: format!("trodden-copies-{}", &own[..8]), folder: scripts.to_owned(), tasks: copies.iter().map(task).collect() };
    let mut known = 0;
    let mut report = |event: JobEvent| match event {
        JobEvent::Done(done, all) if done != known && done < all => {
            known = done;
            note(format_args!("{done} of {} done", plural(all as u128, "run is", "runs are")));
        }
        JobEvent::Done(..) => {}
        JobEvent::Retried(task) => {
            warn(format_args!("copy {} ended without a result, and is run again (see {})", copies[task], job.log(task).display()))
        }
        JobEvent::Note(text) => note(text),
    };
    Ok(trodden_launch::run(&job, &runner.engine, runner.stop, &mut report)?)
}

/// What a run with memory at other addresses did otherwise. Copies have code of different sizes, so that not all of
/// their addresses are the same.
fn by_addresses(fixed: &CopyRun, moved: &CopyRun) -> Vec<String> {
    let mut differences = differences(&fixed.profile, &moved.profile);
    if fixed.outcome != moved.outcome {
        differences.push("it prints something else, or ends otherwise".into());
    }
    differences
}

/// What a copy left behind.
pub struct CopyRun {
    outcome: CopyOutcome,
    profile: Profile,
    times: CopyTimes,
}

fn results(folder: &Path, copies: &[usize]) -> Result<Vec<CopyRun>> {
    let read = |&copy: &usize| {
        let (outcome, profile) = spec::read_result(&file(folder, "result", copy))?;
        let times = fs::read(file(folder, "times", copy).with_extension("json"))?;
        Ok(CopyRun { outcome, profile, times: serde_json::from_slice(&times)? })
    };
    copies.iter().map(read).collect()
}

/// How copies ended and what they printed, where that is not as in the first.
/// Copies that a signal ended, where not all copies are.
fn cut_off(copies: &[CopyRun]) -> Vec<usize> {
    let is_cut = |at: &usize| matches!(copies[*at].outcome.ending, ProcessEnding::Signal(_));
    let cut: Vec<usize> = (0..copies.len()).filter(is_cut).collect();
    if cut.len() < copies.len() { cut } else { Vec::new() }
}

/// Says where counts do not fit together because a signal ended all copies.
fn report_interrupted(merged: &MergedCopies, end: ProcessEnding) {
    const SHOWN: usize = 5;
    if merged.profile.run.interrupted > 0 {
        warn(format_args!(
            "{} ended all copies, which came to each at another place: counts of different functions do not fit together, and the \
                profile says so",
            ending(end)
        ));
    } else if matches!(end, ProcessEnding::Signal(_)) {
        note(format_args!(
            "{} ended the program: a path that was under way then may be counted, and is not said to be unfinished",
            ending(end)
        ));
    }
    merged.interrupted.iter().take(SHOWN).for_each(|at| note(format_args!("{} ended the program within a path: {at}", ending(end))));
    if merged.interrupted.len() > SHOWN {
        note(format_args!("and at {} more places", merged.interrupted.len() - SHOWN));
    }
}

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

fn ending(ending: ProcessEnding) -> String {
    match ending {
        ProcessEnding::Exit(code) => format!("status {code}"),
        ProcessEnding::Signal(signal) => format!("signal {signal}"),
    }
}

fn status(outcome: &CopyOutcome) -> u8 {
    match outcome.ending {
        ProcessEnding::Exit(code) => code as u8,
        ProcessEnding::Signal(signal) => (128 + signal) as u8,
    }
}

fn run_of(record: &Record, copies: &[CopyRun]) -> Run {
    let started = copies.iter().map(|c| c.times.started_ns).min().unwrap_or(0);
    let run = circumstances(&record.command, Duration::from_nanos(started), copies[0].outcome.ending, &surroundings());
    let slowest = copies.iter().map(|c| c.times.wall_ns).max().unwrap_or(0);
    Run { duration_ns: slowest, suite: record.destination.suite.clone(), ..run }
}

/// Prints what the first copy printed. A reader that leaves before its end is no error.
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

fn report_differences(differences: &[String]) {
    const SHOWN: usize = 10;
    warn("the copies were not the same execution, so the profile is not exact:");
    differences.iter().take(SHOWN).for_each(warn);
    if differences.len() > SHOWN {
        warn(format_args!("and {}", plural((differences.len() - SHOWN) as u128, "more difference", "more differences")));
    }
    warn(WHY);
}
