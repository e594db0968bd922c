//! From a program to its trace.
//!
//! Phases: recover the graphs of its code, and name the functions that stay opaque; a first run without witnesses,
//! whose input, answers and output are recorded; place and distribute witnesses, and check the pairwise condition; a
//! run for each profile, compared with the first one; merge the partial traces. If they contradict what was assumed,
//! more is assumed possible, and all from placing on is repeated.
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | what is asked, and what is given |
//! | `runs.rs`, `repeated.rs` | running the program with witnesses; whether runs repeat the first |
//! | `one_run.rs` | one run of all blocks |
//! | `machines.rs` | runs on other machines |
//! | `words.rs` | what is said of a recording |
//!
//! The process has called [`trodden_trace::command::in_tracer`] before.

mod machines;
mod one_run;
mod options;
mod repeated;
mod runs;
mod words;

pub use machines::work;
pub use options::{OtherMachines, RecordOptions, RecordingHost, RunOptions, WeightsFrom};

use crate::code::Code;
use crate::explain::{MissingStep, first_missing};
use crate::files::Files;
use crate::imports::{Assumption, ImportingImage};
use crate::jumps::{has_edge, is_uncertain_jump, observed_jumps, replaceable};
use crate::merge::{MergeError, Merged, merge};
use crate::model::{Model, ObservedCalls, Unwinding, model};
use crate::place::of_calls;
use crate::plan::{Plan, Planner, Refused};
use crate::returns::cut;
use crate::weights::{self, Executions};
use anyhow::{Context, Result, bail, ensure};
use repeated::{cut_runs, equal, repeatable};
use runs::{FirstRun, RepeatedProgram, RunResult};
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use trodden_binary::graph::{Doubt, GraphObservation, ProgramGraph};
use trodden_binary::linked::in_file;
use trodden_launch::temporary::{TemporaryFolder, folder_in};
use trodden_text::words::{plural, reasons, shell_word};
use trodden_trace::{
    Collector, CollectorKind, FollowEnding, Followed, PartialTrace, PtraceBreakpoints, RunAbout, RunLog, ThreadNumber, TraceAbout,
    TraceEnd, TraceWriter, check_traceable, try_collector,
};
use trodden_witness::{DistributionStrategy, Weights};
use words::{changed_code, contradiction, list_opaque, new_targets, runs_in_words, warn_of_contradiction};

/// Assumptions, in the order in which they are tried.
const ASSUMPTIONS: [Assumption; 3] = [Assumption::Usual, Assumption::CallBack, Assumption::Anything];
/// How often a first run is repeated to observe more jumps.
const OBSERVING: usize = 12;
/// Functions that are named in a list.
const LISTED: usize = 8;
/// What the C library does not find under trodden.
const HIDDEN_VDSO: &str = "the kernel's vDSO was hidden from the program, so that its clock can repeat: code that looks for it took \
     another path than without trodden (`--no-repeat time` leaves the vDSO there)";

/// What a reader of a trace of calls should know.
const ONLY_CALLS: &str = "the trace has calls and returns only: blocks with calls, where functions begin and end, and nothing between";

/// Refuses what has a meaning for several runs only.
fn for_several_runs(options: &RecordOptions, host: &RecordingHost) -> Result<()> {
    let plan = &options.plan;
    let asked = [
        ("--limit", plan.limit.is_some()),
        ("--machines", plan.machines.is_some()),
        ("--jobs", options.jobs.is_some()),
        ("--distribution", plan.distribution.is_some()),
        ("--witness-strategy", plan.strategy != DistributionStrategy::Fine),
        ("--witness-weights", options.weights != WeightsFrom::Static),
        ("--check", plan.paper),
        ("--calls", plan.calls),
        ("--engine", host.machines.is_some()),
    ];
    match asked.iter().find(|(_, is_asked)| *is_asked) {
        Some((option, _)) => bail!("{option} is for several runs, and this is one: leave it out, or take more --runs"),
        None => Ok(()),
    }
}

/// Looks for the files that are named before anything runs, since what a program does cannot be undone.
fn check_files(options: &RecordOptions) -> Result<()> {
    let process = options.run.process;
    ensure!(process.is_none() || options.plan.runs == 1, "--pid traces a process in the one run that it has: leave --runs out");
    process.map_or(Ok(()), check_traceable)?;
    let output = &options.output;
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|_| !options.plan_only) {
        ensure!(folder.is_dir(), "there is no folder {} for the trace (--output)", folder.display());
    }
    ensure!(!output.is_dir(), "{} is a folder: --output takes the file that the trace goes to", output.display());
    let weights = if let WeightsFrom::Trace(file) = &options.weights { Some(("--witness-weights", file)) } else { None };
    for (option, file) in weights.into_iter().chain(options.plan.distribution.iter().map(|file| ("--distribution", file))) {
        ensure!(file.is_file(), "there is no file {} ({option})", file.display());
    }
    Ok(())
}

/// Trampolines where they work. A process that runs already gets breakpoints, which change one byte at each place.
fn usual_collector(options: &RunOptions, host: &RecordingHost) -> CollectorKind {
    if options.process.is_some() {
        return CollectorKind::Ptrace;
    }
    match try_collector(CollectorKind::Trampolines, &host.own_program) {
        Ok(()) => CollectorKind::Trampolines,
        Err(error) => {
            let why = reasons(error.chain().map(ToString::to_string));
            log::info!("trampolines do not work here, breakpoints do their work: {why}");
            CollectorKind::Ptrace
        }
    }
}

/// A recording that is about to be made.
pub struct Recording<'a> {
    options: &'a RecordOptions,
    host: &'a RecordingHost<'a>,
    subject: RepeatedProgram<'a>,
    kind: CollectorKind,
    /// One run watches all blocks.
    is_single: bool,
    files: Files,
    image: ImportingImage,
    /// The graphs of the files, whose blocks end at calls.
    graphs: ProgramGraph,
    /// Where blocks start that are pieces of longer ones.
    pieces: HashSet<u64>,
    /// What executions showed of jumps.
    observed: BTreeSet<GraphObservation>,
    /// Where blocks are cut besides calls.
    further: BTreeSet<u64>,
    /// For partial traces, unless they are kept.
    _temporary: TemporaryFolder,
}

/// The graphs of files with what executions have shown, cut at calls; and where the pieces start.
fn graphs(
    files: &Files,
    image: &ImportingImage,
    observed: &BTreeSet<GraphObservation>,
    further: &BTreeSet<u64>,
) -> Result<(ProgramGraph, HashSet<u64>)> {
    let observed: Vec<GraphObservation> = observed.iter().copied().collect();
    let mut graphs = files.graphs(image, &observed)?;
    let further = further.union(&files.behind_calls_of_next(&graphs)).copied().collect();
    let pieces = cut(&mut graphs, &further, &|at| files.next_instruction(at));
    Ok((graphs, pieces))
}

impl<'a> Recording<'a> {
    /// Looks at the program, and keeps its input; nothing runs but what tries the collector.
    ///
    /// # Errors
    /// The program cannot be traced so, or a file that is named is not there.
    pub fn new(options: &'a RecordOptions, host: &'a RecordingHost<'a>) -> Result<Self> {
        check_files(options)?;
        let temporary = folder_in(&host.temporary, "trodden-trace-")?;
        let folder = options.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
        trodden_profile::temporary::create_folders(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let has_one_run = options.plan.runs == 1 || options.run.collector == Some(CollectorKind::SingleStep);
        let subject = RepeatedProgram::new(&options.run, host, has_one_run, folder)?;
        let kind = options.run.collector.unwrap_or_else(|| usual_collector(&options.run, host));
        kind.collector().suits(&subject.executable, &subject.libraries)?;
        let libraries = subject.libraries.iter().map(|l| &l.executable);
        let files = Files::read([&subject.executable].into_iter().chain(libraries).map(|e| e.path.as_path()))?;
        let image = files.image()?;
        let (observed, further) = (BTreeSet::new(), BTreeSet::new());
        let (graphs, pieces) = graphs(&files, &image, &observed, &further)?;
        match has_one_run {
            true => for_several_runs(options, host)?,
            // The collector of the first run.
            false => PtraceBreakpoints.suits(&subject.executable, &subject.libraries)?,
        }
        let _temporary = temporary;
        let is_single = has_one_run;
        Ok(Self { options, host, subject, kind, is_single, files, image, graphs, pieces, observed, further, _temporary })
    }

    /// Records the trace; gives the exit status of the program, as a shell names it.
    ///
    /// # Errors
    /// The program's runs part, or the trace cannot be written.
    pub fn run(mut self) -> Result<u8> {
        let collector = self.kind.collector();
        if self.is_single { self.one_run(collector, true) } else { self.in_several_runs(collector) }
    }

    /// Plans which run would watch what, without running the program, and hands the plan on.
    ///
    /// # Errors
    /// No distribution can give the execution back, or `show` fails.
    pub fn plan<T>(mut self, show: impl FnOnce(&Planner, &Plan) -> Result<T>) -> Result<T> {
        self.find_replaceable(&is_uncertain_jump);
        let observed = self.is_single.then(ObservedCalls::default);
        let (model, code) = self.planned_model(ASSUMPTIONS[0], observed.as_ref())?;
        let weights = self.weights(&model, None)?;
        let planner = self.planner(&model, &code, self.kind.collector(), &weights);
        let plan = if self.is_single { Plan::from_all(&model, &code, &weights) } else { planner.plan()? };
        show(&planner, &plan)
    }

    /// Adds to the graphs what executions have shown.
    fn amend(&mut self) -> Result<()> {
        (self.graphs, self.pieces) = graphs(&self.files, &self.image, &self.observed, &self.further)?;
        Ok(())
    }

    /// Says where code can be replaced.
    fn find_replaceable(&mut self, leads_elsewhere: &dyn Fn(&Doubt) -> bool) {
        (self.subject.blocks, self.subject.guarded) = replaceable(&self.graphs, &self.pieces, leads_elsewhere);
    }

    fn model(&self, assumption: Assumption, observed: Option<&ObservedCalls>) -> Result<(Model, Code)> {
        let model = model(&self.graphs, &self.image, &self.options.opaque, assumption, observed)?;
        let traced: std::collections::HashSet<usize> = model.functions.iter().flatten().copied().collect();
        let code = Code::new(self.graphs.clone(), |f| traced.contains(&f));
        Ok((model, code))
    }

    /// What several runs are planned and merged by: with `--calls`, calls and returns alone.
    fn planned_model(&self, assumption: Assumption, observed: Option<&ObservedCalls>) -> Result<(Model, Code)> {
        let (model, code) = self.model(assumption, observed)?;
        if !self.options.plan.calls {
            return Ok((model, code));
        }
        let model = model.of_calls()?;
        let code = code.with_blocks(|address| model.witnesses.contains_key(&address));
        Ok((model, code))
    }

    /// The first run, again and again while it shows targets of jumps that the graphs do not have.
    fn first_run(&mut self, notes: &mut Vec<String>) -> Result<FirstRun> {
        let mut first = self.subject.first_run(&observed_jumps(&self.graphs), &Unwinding::from_graphs(&self.graphs), None, true)?;
        for _ in 0..OBSERVING {
            let new: Vec<GraphObservation> = first
                .targets
                .iter()
                .filter(|t| !has_edge(&self.graphs, **t))
                .map(|(from, to)| GraphObservation { from: *from, to: *to })
                .collect();
            if new.is_empty() {
                return Ok(first);
            }
            self.observed.extend(&new);
            let before = observed_jumps(&self.graphs);
            self.amend()?;
            notes.push(new_targets(new.len()));
            if observed_jumps(&self.graphs).iter().all(|jump| before.binary_search(jump).is_ok()) {
                return Ok(first);
            }
            let log = Some(Arc::new(first.outcome.log.clone()));
            let again = self.subject.first_run(&observed_jumps(&self.graphs), &Unwinding::from_graphs(&self.graphs), log, false)?;
            first = FirstRun { outcome: first.outcome, ..again };
        }
        bail!("indirect jumps show new targets in each run: take `--collector single-step`")
    }

    /// What the first run has shown, for the runs that repeat it.
    fn observed_in(&self, first: &FirstRun) -> ObservedCalls {
        let (targets, throws, landed) = (first.targets.clone(), first.throws.clone(), first.landed.clone());
        let behind = landed.first().copied().filter(|_| landed.len() == 1);
        let twice = Unwinding::from_graphs(&self.graphs).twice;
        let once = |place: &u64| twice.get(place).is_some_and(|(_, entry)| first.entered_once.contains(entry));
        let ended_before = first.outcome.followed.stack.first().copied();
        ObservedCalls { only_landing: behind.filter(once), targets, throws, landed, ended_before }
    }

    fn in_several_runs(&mut self, collector: &dyn Collector) -> Result<u8> {
        let mut notes = Vec::new();
        let first = self.first_run(&mut notes)?;
        repeatable(&first)?;
        let observed = self.observed_in(&first);
        let (mut model, mut code) = self.planned_model(ASSUMPTIONS[0], Some(&observed))?;
        list_opaque(&model);
        let log = Arc::new(first.outcome.log.clone());
        // The first run has shown where uncertain jumps lead.
        let leads_elsewhere = |doubt: &Doubt| *doubt == Doubt::UnresolvedJump;
        self.find_replaceable(&leads_elsewhere);
        for (number, assumption) in ASSUMPTIONS.into_iter().enumerate() {
            if number > 0 {
                (model, code) = self.planned_model(assumption, Some(&observed))?;
            }
            let weights = self.weights(&model, Some(&log))?;
            let plan = match self.planner(&model, &code, collector, &weights).plan() {
                Ok(plan) => plan,
                Err(error) => match error.downcast::<Refused>() {
                    Ok(Refused { what, replaceable: true, .. }) => return self.in_one_run_instead(&what, collector),
                    Ok(refused) => return Err(refused.into()),
                    Err(error) => return Err(error),
                },
            };
            let results = self.runs(&plan, collector, &log)?;
            equal(&results, first.outcome.followed.ending)?;
            notes.extend(cut_runs(&results, first.outcome.followed.ending));
            let partials: Vec<PathBuf> = results.iter().map(|r| r.partial.clone()).collect();
            let mut writer = self.writer(&model, &code, collector, results.len() as u32)?;
            match merge(&model, &code, &plan.distribution, &partials, &plan.sites, &mut writer) {
                Ok(merged) => {
                    notes.extend(model.reduced_from.is_some().then(|| ONLY_CALLS.to_owned()));
                    let runs = plan.sites.iter().zip(&results).map(|(s, r)| about_run(s, r)).collect();
                    return self.finish(writer, merged, &first.outcome.followed, runs, notes);
                }
                Err(MergeError::File(error)) => return Err(error),
                Err(MergeError::Contradiction(error)) => {
                    let what = contradiction(&model, &code, &error);
                    let what = self.explained(&model, &code, collector, what)?;
                    warn_of_contradiction(&what, number + 1 < ASSUMPTIONS.len());
                    notes.push(format!("an execution contradicted the graph: {what}"));
                }
            }
        }
        ensure!(
            self.options.plan.distribution.is_none() && self.options.plan.limit.is_none() && collector.most_sites().is_none(),
            "no assumption explains the runs: take `--runs 1`, which needs none, or leave the function out with `--opaque`"
        );
        self.in_one_run_instead("no assumption explains the runs", collector)
    }

    /// The runs of a plan, on this machine or others.
    fn runs(&self, plan: &Plan, collector: &dyn Collector, first: &Arc<RunLog>) -> Result<Vec<RunResult>> {
        let machines = plan.machines(self.options.plan.machines.is_some());
        match &self.host.machines {
            None => self.subject.runs(collector, &plan.sites, &machines, first, self.options.jobs),
            Some(others) => {
                ensure!(self.host.fresh_folder.is_none(), "--fresh-folder is for runs on this machine: leave it or --engine out");
                machines::runs(&self.subject, others, self.kind, &plan.sites, machines, first)
            }
        }
    }

    /// Several runs cannot give the execution back; one that watches every block does.
    fn in_one_run_instead(&mut self, why: &str, collector: &dyn Collector) -> Result<u8> {
        log::warn!("{why}: the trace is of one run instead, which watches every block (as with `--runs 1`)");
        self.one_run(collector, false)
    }

    /// What the graph lacks, by a run that watches every block.
    fn explained(&self, model: &Model, code: &Code, collector: &dyn Collector, otherwise: String) -> Result<String> {
        let sites = code.addresses();
        let collector = if collector.most_sites().is_none() { collector } else { &PtraceBreakpoints };
        let result = self.subject.single_run(collector, &sites, &[], false)?;
        let partial = PartialTrace::open(&result.partial)?;
        let addresses = partial.stream(ThreadNumber(0)).map_while(Result::ok).map(|site| sites[site as usize]);
        let name = |address: u64| code.block_at(address).map_or("", |block| code.name(code.function_of(block)));
        Ok(match first_missing(model, addresses) {
            Some(MissingStep { position, from: Some(from), to }) => {
                let shown = |address: u64| format!("{:#x} in {}", in_file(address).1, name(address));
                format!("block {position}, {}, comes behind {}", shown(to), shown(from))
            }
            Some(MissingStep { to, .. }) => format!("it begins with {:#x} in {}", in_file(to).1, name(to)),
            None => otherwise,
        })
    }

    fn planner<'b>(&'b self, model: &'b Model, code: &'b Code, collector: &dyn Collector, weights: &'b Weights) -> Planner<'b> {
        Planner { options: &self.options.plan, model, code, weights, most_sites: collector.most_sites(), hash: self.files.hash() }
    }

    /// How often blocks are executed: estimated, measured by a run of its own, or those of a trace.
    fn weights(&self, model: &Model, log: Option<&Arc<RunLog>>) -> Result<Weights> {
        if let Some((whole, calls)) = model.reduced_from.as_deref() {
            return Ok(calls.weights(&self.weights(whole, log)?));
        }
        let estimated = weights::estimated(model, &self.graphs);
        match &self.options.weights {
            WeightsFrom::Static => Ok(estimated),
            WeightsFrom::Trace(path) => Ok(Executions::from_trace(path, self.files.hash())?.weights(model, &self.graphs)),
            WeightsFrom::FirstRun => {
                let watched = weights::watched_first(model);
                let sites: Vec<u64> = watched.iter().map(|w| w.0).collect();
                let usual = usual_collector(&self.options.run, self.host).collector();
                let counts = self.subject.counting_run(usual, &sites, log.cloned())?;
                let measured = watched.iter().zip(counts).map(|((_, witness), n)| (*witness, n as f64)).collect();
                Ok(estimated.corrected(&model.program, &measured))
            }
        }
    }

    fn writer(&self, model: &Model, code: &Code, collector: &dyn Collector, runs: u32) -> Result<TraceWriter> {
        let (blocks, files) = code.blocks_about(&self.files)?;
        let about = TraceAbout {
            command: self.options.run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            image: self.subject.executable.path.display().to_string(),
            libraries: self.subject.libraries.iter().map(|l| l.executable.path.display().to_string()).collect(),
            hash: self.files.hash(),
            collector: match model.reduced_from {
                Some(_) => of_calls(collector.name()),
                None => collector.name().to_owned(),
            },
            runs,
            functions: code.functions_about(&self.files),
            blocks,
            edges: code.edges_about(),
            files,
            opaque: model.opaque.clone(),
        };
        Ok(TraceWriter::create(&self.options.output, &about)?)
    }

    /// Writes the trace's end, and says what was recorded.
    fn finish(&self, writer: TraceWriter, merged: Merged, followed: &Followed, runs: Vec<RunAbout>, mut notes: Vec<String>) -> Result<u8> {
        let ending = followed.ending;
        notes.extend(merged.ending_note(ending));
        if !followed.changed_code.is_empty() {
            notes.push(changed_code(&followed.changed_code, &self.files));
        }
        if let Some(at) = self.subject.executable.writable_code {
            notes.push(format!(
                "the program can change its code at {at:#x} at any time: where it did, blocks of the file are shown instead"
            ));
        }
        if followed.untraced_children > 0 {
            let children = plural(followed.untraced_children.into(), "process", "processes");
            notes.push(format!("not traced: {children} that the program started"));
        }
        if self.subject.hides_vdso() && self.files.look_for_vdso() {
            notes.push(HIDDEN_VDSO.to_owned());
        }
        let blocks = writer.blocks();
        let hits: u64 = runs.iter().map(|r| r.hits).sum();
        let end = TraceEnd { ending: Some(ending), cut: merged.cut, notes: notes.clone(), runs };
        writer.finish(&end)?;
        notes.iter().for_each(|note| log::info!("{note}"));
        log::info!(
            "{blocks} blocks in {}, from {hits} hits of witnesses in {}; `trodden report {}` shows the calls",
            self.options.output.display(),
            runs_in_words(end.runs.len()),
            shell_word(&self.options.output.to_string_lossy())
        );
        Ok(match ending {
            FollowEnding::Exited(code) => code as u8,
            FollowEnding::Killed(signal) => 128 + signal as u8,
            FollowEnding::Executed | FollowEnding::Detached => status(followed.status),
        })
    }
}

/// The exit status of a process that ended after its trace.
fn status(status: Option<i32>) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let status = status.map(std::process::ExitStatus::from_raw);
    status.and_then(|s| s.code().or_else(|| s.signal().map(|signal| 128 + signal))).unwrap_or(0) as u8
}

fn about_run(sites: &[u64], result: &RunResult) -> RunAbout {
    RunAbout { sites: sites.len() as u64, hits: result.hits, seconds: result.time.as_secs_f64() }
}
