//! `trodden trace record`: from a program to its trace.
//!
//! Phases: recover the graphs of its code, and name the functions that stay opaque; a first run without witnesses,
//! whose input, answers and output are recorded; place and distribute witnesses, and check the pairwise condition; a
//! run for each profile, compared with the first one; merge the partial traces. If they contradict what was assumed,
//! more is assumed possible, and all from placing on is repeated.
// Length: the order of one recording, from the first run to the file.

use super::code::Code;
use super::collectors::collector;
use super::explain::{MissingStep, first_missing};
use super::files::Files;
use super::imports::{Assumption, ImportingImage};
use super::jumps::{has_edge, is_uncertain_jump, observed_jumps, replaceable, switching, uncertain_jumps};
use super::merge::{Hits, MergeError, Merged, merge, place};
use super::model::{Model, ObservedCalls, Unwinding, model};
use super::plan::{self, Plan, Planner, Refused};
use super::repeated::{cut_runs, equal, repeatable};
use super::replay::ReplayedCode;
use super::returns::{cut, unwatched};
use super::runs::{FirstRun, RepeatedProgram, RunResult};
use super::weights::{self, Executions};
use crate::cli::{CollectorKind, Condition, TraceEngine, TraceRecord, WeightsFrom};
use crate::notes::{note, warn};
use crate::running::temporary;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use trodden_binary::graph::{BlockEnd, Doubt, GraphObservation, ProgramGraph};
use trodden_binary::instruction::LONGEST_INSTRUCTION;
use trodden_binary::linked::in_file;
use trodden_flow::witness::{DistributionStrategy, ReconstructError, Weights};
use trodden_report::words::plural;
use trodden_trace::{
    Collector, FollowEnding, Followed, PartialTrace, PtraceBreakpoints, RESUMED, RunAbout, RunLog, TRANSFER, ThreadNumber, TraceAbout,
    TraceEnd, TraceWriter, Trampolines, check_traceable,
};

/// Assumptions, in the order in which they are tried.
const ASSUMPTIONS: [Assumption; 3] = [Assumption::Usual, Assumption::CallBack, Assumption::Anything];
/// How often a first run is repeated to observe more jumps.
const OBSERVING: usize = 12;
/// Functions that are named in a list.
const LISTED: usize = 8;
/// What the C library does not find under trodden.
const HIDDEN_VDSO: &str = "the kernel's vDSO was hidden from the program, so that its clock can repeat: code that looks for it took another \
     path than without trodden (`--no-repeat time` leaves the vDSO there)";

/// Records a trace.
///
/// # Errors
/// The program cannot be traced, its runs part, or the trace cannot be written.
pub fn run(job: &TraceRecord) -> Result<ExitCode> {
    check_files(job)?;
    let temporary = temporary::folder("trodden-trace-")?;
    let folder = job.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let subject = RepeatedProgram::new(job, folder)?;
    let kind = job.collector.unwrap_or_else(|| usual_collector(job));
    collector(kind).suits(&subject.executable, &subject.libraries)?;
    let libraries = subject.libraries.iter().map(|l| &l.executable);
    let files = Files::read([&subject.executable].into_iter().chain(libraries).map(|e| e.path.as_path()))?;
    let image = files.image()?;
    let (observed, further) = (BTreeSet::new(), BTreeSet::new());
    let (graphs, pieces) = graphs(&files, &image, &observed, &further)?;
    let mut recording = Recording { job, subject, image, files, graphs, pieces, observed, further };
    match job.runs == 1 || kind == CollectorKind::SingleStep {
        true => {
            for_several_runs(job)?;
            recording.in_one_run(collector(kind), true)
        }
        false => {
            // That of the first run.
            PtraceBreakpoints.suits(&recording.subject.executable, &recording.subject.libraries)?;
            recording.in_several_runs(collector(kind))
        }
    }
}

/// Refuses what has a meaning for several runs only.
fn for_several_runs(job: &TraceRecord) -> Result<()> {
    let asked = [
        ("--limit", job.limit.is_some()),
        ("--machines", job.machines.is_some()),
        ("--jobs", job.jobs.is_some()),
        ("--distribution", job.distribution.is_some()),
        ("--strategy", job.strategy != DistributionStrategy::Fine),
        ("--weights", job.weights != WeightsFrom::Static),
        ("--check", job.check != Condition::Pairwise),
        ("--engine slurm", job.engine == TraceEngine::Slurm),
    ];
    match asked.iter().find(|(_, is_asked)| *is_asked) {
        Some((option, _)) => bail!("{option} is for several runs, and this is one: leave it out, or take more --runs"),
        None => Ok(()),
    }
}

/// Looks for the files that are named before anything runs, since what a program does cannot be undone.
fn check_files(job: &TraceRecord) -> Result<()> {
    ensure!(job.pid.is_none() || job.runs == 1, "--pid traces a process in the one run that it has: leave --runs out");
    job.pid.map_or(Ok(()), check_traceable)?;
    let folder = job.output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|_| !job.plan) {
        ensure!(folder.is_dir(), "there is no folder {} for the trace (--output)", folder.display());
    }
    ensure!(!job.output.is_dir(), "{} is a folder: --output takes the file that the trace goes to", job.output.display());
    let weights = if let WeightsFrom::Trace(file) = &job.weights { Some(("--weights", file)) } else { None };
    for (option, file) in weights.into_iter().chain(job.distribution.iter().map(|file| ("--distribution", file))) {
        ensure!(file.is_file(), "there is no file {} ({option})", file.display());
    }
    Ok(())
}

/// Trampolines where they work. A process that runs already gets breakpoints, which change one byte at each place.
fn usual_collector(job: &TraceRecord) -> CollectorKind {
    if job.pid.is_some() {
        return CollectorKind::Ptrace;
    }
    match super::doctor::works(&Trampolines) {
        Ok(()) => CollectorKind::Trampolines,
        Err(error) => {
            note(format_args!("trampolines do not work here, breakpoints do their work: {}", crate::notes::reasons(&error)));
            CollectorKind::Ptrace
        }
    }
}

struct Recording<'a> {
    job: &'a TraceRecord,
    subject: RepeatedProgram<'a>,
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

impl Recording<'_> {
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
        let model = model(&self.graphs, &self.image, &self.job.opaque, assumption, observed)?;
        let traced: std::collections::HashSet<usize> = model.functions.iter().flatten().copied().collect();
        let code = Code::new(self.graphs.clone(), |f| traced.contains(&f));
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

    /// `shows`: what the program writes is the user's.
    fn in_one_run(&mut self, collector: &dyn Collector, shows: bool) -> Result<ExitCode> {
        if self.job.plan {
            self.find_replaceable(&is_uncertain_jump);
            let (model, code) = self.model(Assumption::Usual, Some(&ObservedCalls::default()))?;
            let weights = self.weights(&model, None)?;
            plan::print(&self.planner(&model, &code, collector, &weights), &Plan::from_all(&model, &code, &weights))?;
            return Ok(ExitCode::SUCCESS);
        }
        self.one_run(collector, shows)
    }

    /// One run of all blocks. What a program does is done once, so code that the graphs do not have is not looked for by another run:
    /// where instructions are recorded, it is known afterwards; else its blocks are missing, and the trace says so.
    fn one_run(&mut self, collector: &dyn Collector, shows: bool) -> Result<ExitCode> {
        let mut notes = Vec::new();
        let steps = collector.name() == "single-step";
        let (mut model, mut code) = self.model(Assumption::Usual, Some(&ObservedCalls::default()))?;
        let jumps = if steps { Vec::new() } else { uncertain_jumps(&self.graphs) };
        let other_stack: HashSet<usize> = switching(&code, &self.files).into_iter().map(|block| code.function_of(block)).collect();
        // A handler may skip an instruction that traps, and go on in the middle of a block.
        let traps = |block| code.graph_of(block).0.blocks.iter().any(|b| b.end == BlockEnd::Stop);
        let returns = |entry| code.block_at(entry).is_some_and(|b| !other_stack.contains(&code.function_of(b)) && !traps(b));
        let unwatched = unwatched(&self.graphs, &self.image, &self.pieces, &returns);
        let mut sites = code.addresses();
        sites.retain(|site| !unwatched.contains(site));
        let blocks = sites.len();
        let others: Vec<u64> = jumps.iter().copied().filter(|jump| sites.binary_search(jump).is_err()).collect();
        sites.extend(others);
        let (name, most) = (collector.name(), collector.most_sites().unwrap_or(usize::MAX));
        ensure!(
            sites.len() <= most,
            "{} blocks are more than the collector `{name}` can watch in one run: take `--collector ptrace`",
            sites.len()
        );
        list_opaque(&model);
        self.find_replaceable(&is_uncertain_jump);
        let watched = &sites[..blocks];
        let (result, mut has_learned, mut written);
        if steps {
            result = self.subject.single_run(collector, &sites, &jumps, shows)?;
            has_learned = self.cut_where_blocks_were_left(&result.outcome.followed);
            written = None;
        } else {
            let mut writer = self.writer(&model, &code, collector, 1)?;
            let known = self.replayed_code(&code, Some(watched), None);
            let hits = Hits { code: &known, sites: &sites, jumps: &jumps, steps };
            let replay;
            (result, replay) = self.subject.live_run(collector, (&sites, &jumps), shows, |live| hits.replay_live(live, &mut writer))?;
            let followed = &result.outcome.followed;
            has_learned = self.cut_where_blocks_were_left(followed);
            // Where signals interrupted blocks, and what code was changed, is known only now: the hits are replayed once more with that.
            let is_whole = !has_learned && followed.handled.is_empty() && followed.changed_code.is_empty();
            let replayed = if is_whole { Some(replay.finish(&followed.stacks, &mut writer)?) } else { None };
            written = replayed.map(|replayed| (writer, replayed));
        }
        let followed = &result.outcome.followed;
        let partial = PartialTrace::open(&result.partial)?;
        let mut unplaced = BTreeSet::new();
        while steps && self.learn(&partial, &mut notes, &mut unplaced)? {
            has_learned = true;
        }
        if has_learned {
            (model, code) = self.model(Assumption::Usual, Some(&ObservedCalls::default()))?;
        }
        if written.is_none() {
            let mut writer = self.writer(&model, &code, collector, 1)?;
            let known = self.replayed_code(&code, (!steps).then_some(watched), Some(followed));
            let hits = Hits { code: &known, sites: &sites, jumps: &jumps, steps };
            let replayed = hits.replay(&partial, &followed.stacks, &mut writer)?;
            written = Some((writer, replayed));
        }
        let (writer, replayed) = written.expect("it is written live or afterwards");
        // A block that nothing was known to lead to may be recorded all the same.
        let is_missing = |target: &(u64, u64)| !has_edge(&self.graphs, *target) && code.block_at(target.1).is_none();
        let unknown: Vec<(u64, u64)> = replayed.targets.into_iter().filter(is_missing).collect();
        notes.extend((!unknown.is_empty()).then(|| missing_blocks(&code, &unknown)));
        notes.extend((!unplaced.is_empty()).then(|| unplaced_code(&unplaced)));
        notes.extend((replayed.switches > 0).then(|| other_stacks(replayed.switches)));
        let cut = !matches!(followed.ending, FollowEnding::Exited(_));
        let runs = vec![about_run(watched, &result)];
        let merged = Merged { cut, open: Vec::new() };
        self.finish(writer, merged, followed, runs, notes)
    }

    /// What threads are followed by in a run that watched the blocks at some addresses, or stepped. `followed`: what is known of it when it
    /// has ended.
    fn replayed_code<'c>(&self, code: &'c Code, watched: Option<&[u64]>, followed: Option<&Followed>) -> ReplayedCode<'c> {
        let is_unwatched = |piece: &u64| watched.is_some_and(|watched| watched.binary_search(piece).is_err());
        let unwatched = self.pieces.iter().copied().filter(is_unwatched).filter_map(|piece| code.block_at(piece)).collect();
        let interrupted = followed.map_or_else(Vec::new, |followed| followed.handled.clone());
        let changed = followed.map_or_else(Vec::new, |followed| followed.changed_code.clone());
        ReplayedCode { code, unwatched, switching: switching(code, &self.files), interrupted, changed }
    }

    /// Cuts blocks where a fault ended the program, or where signals interrupted them whose handlers may not have come back.
    fn cut_where_blocks_were_left(&mut self, followed: &Followed) -> bool {
        let is_killed = matches!(followed.ending, FollowEnding::Killed(_));
        let mut faults: BTreeSet<u64> = if is_killed { followed.stack.first().copied().into_iter().collect() } else { BTreeSet::new() };
        let mut places = BTreeSet::new();
        if self.image.jumps {
            faults.extend(&followed.faults);
            places.extend(&followed.interruptions);
        }
        places.extend(faults.into_iter().filter_map(|fault| self.files.next_instruction(fault)));
        let pieces = cut(&mut self.graphs, &places, &|at| self.files.next_instruction(at));
        let has_cut = !pieces.is_empty();
        self.pieces.extend(pieces);
        self.further.extend(places);
        has_cut
    }

    /// Adds to the graphs what the instructions show that a run executed: targets of jumps, calls and returns at which no block starts, and
    /// where uncertain jumps led. Gives whether there was anything; what no block has becomes `unplaced`.
    fn learn(&mut self, steps: &PartialTrace, notes: &mut Vec<String>, unplaced: &mut BTreeSet<u64>) -> Result<bool> {
        let jumps = uncertain_jumps(&self.graphs);
        let known = KnownCode::new(&self.graphs);
        // Behind a jump to a library comes what that returns to.
        let returns: HashSet<u64> = self.graphs.functions.iter().flat_map(|f| &f.calls).filter_map(|call| call.return_address).collect();
        let before = self.observed.clone();
        let (mut new, mut cuts) = (0, 0);
        for thread in 0..steps.threads() {
            let mut last: Option<u64> = None;
            for symbol in steps.stream(ThreadNumber(thread)) {
                let symbol = symbol?;
                let address = symbol & !(TRANSFER | RESUMED);
                let leads = symbol & RESUMED == 0 && last.is_none_or(|last| last & TRANSFER != 0);
                let from = last.map_or(address, |last| last & !(TRANSFER | RESUMED));
                last = Some(symbol);
                if known.starts.contains(&address) {
                    let is_edge = |from: u64| returns.contains(&address) || has_edge(&self.graphs, (from, address));
                    if jumps.binary_search(&from).is_ok() && !is_edge(from) {
                        new += usize::from(self.observed.insert(GraphObservation { from, to: address }));
                    }
                    continue;
                }
                let is_inside = known.has(address);
                let follows = !leads && from < address && address - from <= LONGEST_INSTRUCTION;
                if follows || (!leads && is_inside) || self.graphs.is_stub(address) {
                    continue;
                }
                let seen = GraphObservation { from, to: address };
                if !before.contains(&seen) {
                    new += usize::from(self.observed.insert(seen));
                } else if is_inside {
                    cuts += usize::from(self.further.insert(address));
                } else {
                    unplaced.insert(address);
                }
            }
        }
        if new + cuts > 0 {
            self.amend()?;
            notes.extend((new > 0).then(|| new_targets(new)));
        }
        Ok(new + cuts > 0)
    }

    fn in_several_runs(&mut self, collector: &dyn Collector) -> Result<ExitCode> {
        let mut notes = Vec::new();
        if self.job.plan {
            return self.print_plan(collector);
        }
        let first = self.first_run(&mut notes)?;
        repeatable(&first)?;
        let observed = self.observed_in(&first);
        let (mut model, mut code) = self.model(ASSUMPTIONS[0], Some(&observed))?;
        list_opaque(&model);
        let log = Arc::new(first.outcome.log.clone());
        // The first run has shown where uncertain jumps lead.
        let leads_elsewhere = |doubt: &Doubt| *doubt == Doubt::UnresolvedJump;
        self.find_replaceable(&leads_elsewhere);
        for (number, assumption) in ASSUMPTIONS.into_iter().enumerate() {
            if number > 0 {
                (model, code) = self.model(assumption, Some(&observed))?;
            }
            let plan = match self.plan(&model, &code, collector, Some(&log)) {
                Ok((plan, _)) => plan,
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
            self.job.distribution.is_none() && self.job.limit.is_none() && collector.most_sites().is_none(),
            "no assumption explains the runs: take `--runs 1`, which needs none, or leave the function out with `--opaque`"
        );
        self.in_one_run_instead("no assumption explains the runs", collector)
    }

    /// The runs of a plan, on this machine or others.
    fn runs(&self, plan: &Plan, collector: &dyn Collector, first: &Arc<RunLog>) -> Result<Vec<RunResult>> {
        let machines = plan.machines(self.job.machines.is_some());
        match self.job.engine {
            TraceEngine::Local => self.subject.runs(collector, &plan.sites, &machines, first),
            TraceEngine::Slurm => super::distribute::runs(&self.subject, self.job, collector, &plan.sites, machines, first),
        }
    }

    /// Shows which run would watch what, without running the program.
    fn print_plan(&mut self, collector: &dyn Collector) -> Result<ExitCode> {
        self.find_replaceable(&is_uncertain_jump);
        let (model, code) = self.model(ASSUMPTIONS[0], None)?;
        let (plan, weights) = self.plan(&model, &code, collector, None)?;
        plan::print(&self.planner(&model, &code, collector, &weights), &plan)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Several runs cannot give the execution back; one that watches every block does.
    fn in_one_run_instead(&mut self, why: &str, collector: &dyn Collector) -> Result<ExitCode> {
        warn(format_args!("{why}: the trace is of one run instead, which watches every block (as with `--runs 1`)"));
        self.in_one_run(collector, false)
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

    /// Places and distributes witnesses, or takes those of the user's file.
    fn plan(&self, model: &Model, code: &Code, collector: &dyn Collector, log: Option<&Arc<RunLog>>) -> Result<(Plan, Weights)> {
        let weights = self.weights(model, log)?;
        let plan = self.planner(model, code, collector, &weights).plan()?;
        Ok((plan, weights))
    }

    fn planner<'b>(&'b self, model: &'b Model, code: &'b Code, collector: &dyn Collector, weights: &'b Weights) -> Planner<'b> {
        Planner { job: self.job, model, code, weights, most_sites: collector.most_sites(), hash: self.files.hash() }
    }

    /// How often blocks are executed: estimated, measured by a run of its own, or those of a trace.
    fn weights(&self, model: &Model, log: Option<&Arc<RunLog>>) -> Result<Weights> {
        let estimated = weights::estimated(model, &self.graphs);
        match &self.job.weights {
            WeightsFrom::Static => Ok(estimated),
            WeightsFrom::Trace(path) => Ok(Executions::from_trace(path, self.files.hash())?.weights(model, &self.graphs)),
            WeightsFrom::FirstRun => {
                let watched = weights::watched_first(model);
                let sites: Vec<u64> = watched.iter().map(|w| w.0).collect();
                let counts = self.subject.counting_run(collector(usual_collector(self.job)), &sites, log.cloned())?;
                let measured = watched.iter().zip(counts).map(|((_, witness), n)| (*witness, n as f64)).collect();
                Ok(estimated.corrected(&model.program, &measured))
            }
        }
    }

    fn writer(&self, model: &Model, code: &Code, collector: &dyn Collector, runs: u32) -> Result<TraceWriter> {
        let (blocks, files) = code.blocks_about(&self.files)?;
        let about = TraceAbout {
            command: self.job.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            image: self.subject.executable.path.display().to_string(),
            libraries: self.subject.libraries.iter().map(|l| l.executable.path.display().to_string()).collect(),
            hash: self.files.hash(),
            collector: collector.name().to_owned(),
            runs,
            functions: code.functions_about(&self.files),
            blocks,
            edges: code.edges_about(),
            files,
            opaque: model.opaque.clone(),
        };
        Ok(TraceWriter::create(&self.job.output, &about)?)
    }

    /// Writes the trace's end, and says what was recorded.
    fn finish(
        &self,
        writer: TraceWriter,
        merged: Merged,
        followed: &Followed,
        runs: Vec<RunAbout>,
        mut notes: Vec<String>,
    ) -> Result<ExitCode> {
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
        notes.iter().for_each(note);
        note(format_args!(
            "{blocks} blocks in {}, from {hits} hits of witnesses in {}",
            self.job.output.display(),
            runs_in_words(end.runs.len())
        ));
        Ok(match ending {
            FollowEnding::Exited(code) => ExitCode::from(code as u8),
            FollowEnding::Killed(signal) => ExitCode::from(128 + signal as u8),
            FollowEnding::Executed | FollowEnding::Detached => ExitCode::from(status(followed.status)),
        })
    }
}

/// Code that was not watched to the end.
fn changed_code(ranges: &[Range<u64>], files: &Files) -> String {
    let shown = |range: &Range<u64>| {
        let ((file, start), (_, end)) = (in_file(range.start), in_file(range.end - 1));
        format!("{start:#x} to {end:#x} in {}", files.name(file))
    };
    let named: Vec<String> = ranges.iter().take(LISTED).map(shown).collect();
    let more = ranges.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("the program changed its own code, or made it writable: from then on blocks are missing there ({}{more})", named.join(", "))
}

/// What the graphs have of the code.
struct KnownCode {
    /// Where blocks start.
    starts: HashSet<u64>,
    /// All blocks, ascending and joined.
    covered: Vec<Range<u64>>,
}

impl KnownCode {
    fn new(graphs: &ProgramGraph) -> Self {
        let blocks = || graphs.functions.iter().flat_map(|f| &f.blocks);
        let mut all: Vec<Range<u64>> = blocks().map(|b| b.start..b.end_address()).collect();
        all.sort_by_key(|range| range.start);
        let mut covered: Vec<Range<u64>> = Vec::new();
        for range in all {
            match covered.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => covered.push(range),
            }
        }
        Self { starts: blocks().map(|b| b.start).collect(), covered }
    }

    fn has(&self, address: u64) -> bool {
        let behind = self.covered.partition_point(|range| range.start <= address);
        self.covered[..behind].last().is_some_and(|range| range.contains(&address))
    }
}

/// Code that was executed and is in no block.
fn unplaced_code(places: &BTreeSet<u64>) -> String {
    let named: Vec<String> = places.iter().take(LISTED).map(|at| format!("{:#x}", in_file(*at).1)).collect();
    let more = places.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("code was executed that the graphs do not have, and is missing: what follows {}{more}", named.join(", "))
}

/// Calls that are shown in more than one place.
fn other_stacks(switches: u64) -> String {
    let times = plural(switches.into(), "time", "times");
    format!(
        "{times} a thread went on with the calls of another stack, as coroutines and goroutines do: the callers there are not known, and a \
         function that goes on is shown as called again"
    )
}

/// What a single run could not record.
fn missing_blocks(code: &Code, unknown: &[(u64, u64)]) -> String {
    let name = |address: u64| code.function_containing(address).map_or_else(String::new, |name| format!(" in {name}"));
    let shown = |(from, to): &(u64, u64)| format!("{:#x}{} to {:#x}", in_file(*from).1, name(*from), in_file(*to).1);
    let named: Vec<String> = unknown.iter().take(LISTED).map(shown).collect();
    let more = unknown.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!(
        "blocks are missing after {}, which led to code that the graphs did not have ({}{more}): `--collector single-step` records them",
        plural(unknown.len() as u128, "indirect jump", "indirect jumps"),
        named.join(", ")
    )
}

fn new_targets(count: usize) -> String {
    let targets = plural(count as u128, "target of an indirect jump", "targets of indirect jumps");
    format!("an execution showed {targets} that the graphs did not have")
}

fn runs_in_words(runs: usize) -> String {
    if runs == 1 { "one run".to_owned() } else { format!("{runs} runs") }
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

/// Names what is not traced inside, before anything runs.
fn list_opaque(model: &Model) {
    if model.opaque.is_empty() {
        return;
    }
    let named: Vec<String> = model.opaque.iter().take(LISTED).map(|(name, why)| format!("{name} ({why})")).collect();
    let more = model.opaque.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more (`trodden trace show --json` has them all)") } else { String::new() };
    note(format_args!(
        "{} of {} functions stay opaque: {}{more}",
        model.opaque.len(),
        model.opaque.len() + model.functions.len() - 1,
        named.join(", ")
    ));
}

/// What a contradiction is, with names.
fn contradiction(model: &Model, code: &Code, error: &ReconstructError) -> String {
    let at = |w| place(model, code, w);
    match error {
        ReconstructError::Unexpected { profile, found, expected, .. } => {
            let found = found.map_or_else(|| "its end".to_owned(), at);
            format!("run {} came to {found} where {} is next", profile + 1, at(*expected))
        }
        ReconstructError::GoesOn { profile, found, .. } => {
            format!("run {} came to {} where the program should have ended", profile + 1, at(*found))
        }
        ReconstructError::NoSuccessor { branch, next, blocks } => {
            let next: Vec<String> = next.iter().map(|w| w.map_or_else(|| "its end".to_owned(), at)).collect();
            let branch = plan::branch_in_words(model, code, *branch);
            format!("after {blocks} blocks, from {branch}: the runs come to {} next", next.join(", "))
        }
        other => other.to_string(),
    }
}

fn warn_of_contradiction(what: &str, is_repeated: bool) {
    let then = if is_repeated { ": the runs are repeated with more assumed possible" } else { "" };
    warn(format_args!("the execution contradicts what was assumed ({what}){then}"));
}
