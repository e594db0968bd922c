//! Records a program's execution as a trace.
//!
//! A recording with several runs has these phases: Recover the graphs of the code, and list the functions whose inside cannot be traced.
//! Run the program once, and record its input, system call results and output. Decide which blocks each run watches, and check that this
//! determines the execution. Repeat the first run once for each set of blocks, and check that nothing differs. Merge the partial traces. If
//! they contradict the assumptions about untraced functions, the last three phases are repeated with weaker assumptions.
//!
//! The process must have called [`trodden_trace::command::run_in_tracer_process`] before.
// Length: the phases of one recording.

mod children;
mod machines;
mod messages;
mod one_run;
mod options;
mod repeated;
mod runs;

pub use children::record;
pub use machines::run_machine;
pub use options::{CutGraphs, ExecutionWeightSource, GraphCache, RecordOptions, RecordingHost, RemoteMachines, RunOptions};

use crate::code::TracedCode;
use crate::explain::{MissingStep, find_first_missing_step};
use crate::files::TracedFiles;
use crate::graph_folder::GraphFolder;
use crate::imports::{ImportingImage, UntracedCodeAssumption};
use crate::jumps::{has_edge, is_uncertain_jump, observed_jumps, replaceable_blocks};
use crate::merge::{MergeError, MergedTrace, merge};
use crate::model::{ObservedTargets, OpaqueFunctions, UnwindingSites, WitnessModel, build_model};
use crate::place::add_calls_only_suffix;
use crate::plan::{DistributionPlan, Planner, UnrealizablePlan};
use crate::returns::cut_blocks_after_calls;
use crate::weights::{self, BlockExecutionCounts};
use anyhow::{Context, Result, bail, ensure};
use messages::{
    describe_changed_code, describe_contradiction, describe_new_targets, describe_own_reads, format_runs, report_opaque_functions,
    warn_of_contradiction,
};
use repeated::{check_first_run_is_repeatable, check_runs_ended_alike, describe_truncated_runs};
use runs::{FirstRun, RepeatedProgram, RunResult};
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use trodden_binary::graph::{GraphDoubt, GraphObservation, ProgramGraph};
use trodden_binary::linked::split_address;
use trodden_launch::temporary::{TemporaryFolder, create_folder_in};
use trodden_text::words::{plural, quote_for_shell, reasons};
use trodden_trace::{
    Collector, CollectorKind, FixedRunConditions, FollowEnding, FollowOutcome, PartialTrace, PtraceBreakpoints, RunLog, ThreadNumber,
    TraceDescription, TraceEndRecord, TraceWriter, TracedRunInfo, check_traceable, try_collector,
};
use trodden_witness::{DistributionStrategy, Weights};

/// The assumptions about untraced functions, in the order in which they are tried.
const OPAQUE_FUNCTION_ASSUMPTIONS: [UntracedCodeAssumption; 3] =
    [UntracedCodeAssumption::Usual, UntracedCodeAssumption::CallBack, UntracedCodeAssumption::Anything];
const MAX_OBSERVING_RUNS: usize = 12;
const MAX_LISTED_NAMES: usize = 8;
/// Note for traces of a program that uses the vDSO, which several runs hide from it.
const HIDDEN_VDSO_NOTE: &str = "the kernel's vDSO was hidden from the program so that its clock can be replayed: code that looks for it \
     took another path than it does without trodden. Pass `--no-repeat time` to leave the vDSO visible";

const CALLS_ONLY_NOTE: &str = "the trace contains only calls and returns: blocks with calls, and blocks where functions begin or end";

/// Returns an error if options are given that make sense only for several runs. Called before any file is read.
fn reject_multi_run_options(options: &RecordOptions, host: &RecordingHost) -> Result<()> {
    let plan = &options.plan;
    let asked = [
        ("--limit", plan.limit.is_some()),
        ("--machines", plan.machines.is_some()),
        ("--jobs", options.jobs.is_some()),
        ("--distribution", plan.distribution.is_some()),
        ("--witness-strategy", plan.strategy != DistributionStrategy::Fine),
        ("--witness-weights", options.weights != ExecutionWeightSource::Static),
        ("--check", plan.checks_paper_conditions),
        ("--calls", plan.calls),
        ("--engine", host.machines.is_some()),
        ("--no-repeat", !options.run.is_pinned || options.run.recipe != FixedRunConditions::ALL),
        ("--fresh-folder", host.fresh_folder.is_some()),
    ];
    match asked.iter().find(|(_, is_asked)| *is_asked) {
        Some((option, _)) => bail!("{option} needs several runs. Omit {option}, or pass --runs 2 or more"),
        None => Ok(()),
    }
}

/// Checks the files that options name. This is done before the program runs, because the effects of a run cannot be undone.
fn check_files(options: &RecordOptions) -> Result<()> {
    let process = options.run.process;
    ensure!(process.is_none() || options.plan.runs == 1, "--pid traces a running process, which cannot be run again. Omit --runs");
    process.map_or(Ok(()), check_traceable)?;
    let output = &options.output;
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|_| !options.plan_only) {
        ensure!(folder.is_dir(), "cannot write the trace (--output): folder {} does not exist. Create this folder", folder.display());
    }
    ensure!(!output.is_dir(), "cannot write the trace to {}, which is a folder. Pass a file name to --output", output.display());
    let weights = if let ExecutionWeightSource::Trace(file) = &options.weights { Some(("--witness-weights", file)) } else { None };
    for (option, file) in weights.into_iter().chain(options.plan.distribution.iter().map(|file| ("--distribution", file))) {
        ensure!(file.is_file(), "file {} ({option}) does not exist", file.display());
    }
    Ok(())
}

/// Returns the default collector: trampolines if they work here, and breakpoints otherwise. In a running process, breakpoints are always
/// used, because each of them changes only one byte of code.
fn default_collector(options: &RunOptions, host: &RecordingHost) -> CollectorKind {
    if options.process.is_some() {
        return CollectorKind::Ptrace;
    }
    match try_collector(CollectorKind::Trampolines, &host.own_program) {
        Ok(()) => CollectorKind::Trampolines,
        Err(error) => {
            let why = reasons(error.chain().map(ToString::to_string));
            log::info!("trampolines (jumps to code that records) do not work on this machine: {why}. Falling back to breakpoints");
            CollectorKind::Ptrace
        }
    }
}

/// A prepared recording.
pub struct PreparedRecording<'a> {
    options: &'a RecordOptions,
    host: &'a RecordingHost<'a>,
    subject: RepeatedProgram<'a>,
    kind: CollectorKind,
    is_single: bool,
    files: TracedFiles,
    image: ImportingImage,
    /// The graphs of the files. Blocks are cut after calls.
    graphs: ProgramGraph,
    /// Start addresses of the blocks that are parts of a longer block, after a cut.
    pieces: HashSet<u64>,
    /// Jumps and their targets that runs have shown, and that the graphs would otherwise lack.
    observed: BTreeSet<GraphObservation>,
    /// Addresses at which blocks are cut, other than those after calls.
    extra_cuts: BTreeSet<u64>,
    /// Contains the partial traces unless `--keep` specifies a folder for them.
    _temporary: TemporaryFolder,
}

/// Builds the graphs of the files with the observed jumps, and cuts their blocks after calls. Also returns the start addresses of the
/// pieces after cuts.
fn cut_graphs(
    (files, image): (&TracedFiles, &ImportingImage),
    observed: &BTreeSet<GraphObservation>,
    extra_cuts: &BTreeSet<u64>,
    known: Option<&GraphFolder>,
) -> Result<(ProgramGraph, HashSet<u64>)> {
    let observed: Vec<GraphObservation> = observed.iter().copied().collect();
    let mut graphs = files.graphs(image, &observed, known)?;
    let extra_cuts = extra_cuts.union(&files.return_addresses_of_get_pc_calls(&graphs)).copied().collect();
    let pieces = cut_blocks_after_calls(&mut graphs, &extra_cuts, &|at| files.next_instruction(at));
    Ok((graphs, pieces))
}

impl<'a> PreparedRecording<'a> {
    /// Reads the program's files and saves its input. Does not run the program, but may run a test program to find out whether the
    /// collector works.
    ///
    /// # Errors
    /// The program cannot be traced with these options, or a file that they name does not exist.
    pub fn new(options: &'a RecordOptions, host: &'a RecordingHost<'a>) -> Result<Self> {
        let is_single = options.plan.runs == 1 || options.run.collector == Some(CollectorKind::SingleStep);
        if is_single {
            reject_multi_run_options(options, host)?;
        }
        ensure!(is_single || options.family.is_none(), "--follow works only with a single run of the program. Omit --follow or --runs");
        check_files(options)?;
        let temporary = create_folder_in(&host.temporary, "trodden-trace-")?;
        let folder = options.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
        trodden_profile::temporary::create_folders(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
        let subject = RepeatedProgram::new(&options.run, host, is_single, folder)?;
        let kind = options.run.collector.unwrap_or_else(|| default_collector(&options.run, host));
        kind.collector().check_files(&subject.executable, &subject.libraries)?;
        let libraries = subject.libraries.iter().map(|l| &l.executable);
        let files = TracedFiles::read([&subject.executable].into_iter().chain(libraries).map(|e| e.path.as_path()))?;
        let image = files.image()?;
        let (observed, extra_cuts) = (BTreeSet::new(), BTreeSet::new());
        let recover = || cut_graphs((&files, &image), &observed, &extra_cuts, host.graph_folder.as_ref());
        let (graphs, pieces) = match options.family {
            Some(_) => host.graphs.find_or_recover(files.hash(), recover)?,
            None => recover()?,
        };
        if !is_single {
            // The first of several runs always uses breakpoints.
            PtraceBreakpoints.check_files(&subject.executable, &subject.libraries)?;
        }
        let _temporary = temporary;
        Ok(Self { options, host, subject, kind, is_single, files, image, graphs, pieces, observed, extra_cuts, _temporary })
    }

    /// Records the trace. Returns the exit status of the program, as a shell reports it.
    ///
    /// # Errors
    /// The runs diverge, or the trace cannot be written.
    pub fn run(mut self) -> Result<u8> {
        let collector = self.kind.collector();
        if self.is_single { self.record_one_run(collector, true) } else { self.record_several_runs(collector) }
    }

    /// Decides which blocks each run watches, and passes this plan to `show`. The program is run only if execution frequencies are to be
    /// measured ([`ExecutionWeightSource::FirstRun`]).
    ///
    /// # Errors
    /// No distribution determines the execution, or `show` returns an error.
    pub fn plan<T>(mut self, show: impl FnOnce(&Planner, &DistributionPlan) -> Result<T>) -> Result<T> {
        self.update_replaceable_blocks(&|_, doubt| is_uncertain_jump(doubt));
        let observed = self.is_single.then(ObservedTargets::default);
        let (model, code) = self.build_planning_model(OPAQUE_FUNCTION_ASSUMPTIONS[0], observed.as_ref())?;
        let weights = self.compute_execution_weights(&model, None)?;
        let planner = self.create_planner(&model, &code, self.kind.collector(), &weights);
        let plan = if self.is_single { DistributionPlan::plan_to_watch_all_blocks(&model, &code, &weights) } else { planner.plan()? };
        show(&planner, &plan)
    }

    fn rebuild_graphs(&mut self) -> Result<()> {
        (self.graphs, self.pieces) =
            cut_graphs((&self.files, &self.image), &self.observed, &self.extra_cuts, self.host.graph_folder.as_ref())?;
        Ok(())
    }

    fn update_replaceable_blocks(&mut self, leads_elsewhere: &dyn Fn(u64, &GraphDoubt) -> bool) {
        (self.subject.blocks, self.subject.guarded) = replaceable_blocks(&self.graphs, &self.pieces, leads_elsewhere);
    }

    fn build_model_and_code(
        &self,
        assumption: UntracedCodeAssumption,
        observed: Option<&ObservedTargets>,
    ) -> Result<(WitnessModel, TracedCode)> {
        let model = build_model(&self.graphs, &self.image, &self.options.opaque, assumption, observed)?;
        let traced: std::collections::HashSet<usize> = model.functions.iter().flatten().copied().collect();
        let code = TracedCode::new(self.graphs.clone(), |f| traced.contains(&f));
        Ok((model, code))
    }

    /// Builds the model that is used to plan and merge several runs. With `--calls`, it contains only calls and returns.
    fn build_planning_model(
        &self,
        assumption: UntracedCodeAssumption,
        observed: Option<&ObservedTargets>,
    ) -> Result<(WitnessModel, TracedCode)> {
        let (model, code) = self.build_model_and_code(assumption, observed)?;
        if !self.options.plan.calls {
            return Ok((model, code));
        }
        let model = model.reduce_to_calls()?;
        let code = code.retain_blocks(|address| model.witnesses.contains_key(&address));
        Ok((model, code))
    }

    /// Performs the first run. Repeats it with corrected graphs as long as it jumps to targets that the graphs lack.
    fn perform_first_run(&mut self, notes: &mut Vec<String>) -> Result<FirstRun> {
        let mut first =
            self.subject.perform_first_run(&observed_jumps(&self.graphs), &UnwindingSites::from_graphs(&self.graphs), None, true)?;
        for _ in 0..MAX_OBSERVING_RUNS {
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
            self.rebuild_graphs()?;
            notes.push(describe_new_targets(new.len()));
            if observed_jumps(&self.graphs).iter().all(|jump| before.binary_search(jump).is_ok()) {
                return Ok(first);
            }
            let log = Some(Arc::new(first.outcome.log.clone()));
            let again =
                self.subject.perform_first_run(&observed_jumps(&self.graphs), &UnwindingSites::from_graphs(&self.graphs), log, false)?;
            first = FirstRun { outcome: first.outcome, ..again };
        }
        bail!("the program's indirect jumps reach different targets in each run, so runs cannot be merged. Pass `--collector single-step`")
    }

    fn collect_observed_calls(&self, first: &FirstRun) -> ObservedTargets {
        let (targets, throws, landed) = (first.targets.clone(), first.throws.clone(), first.landed.clone());
        let after = landed.first().copied().filter(|_| landed.len() == 1);
        let twice = UnwindingSites::from_graphs(&self.graphs).twice;
        let once = |place: &u64| twice.get(place).is_some_and(|(_, entry)| first.entered_once.contains(entry));
        let ended_before = first.outcome.followed.stack.first().copied();
        ObservedTargets { only_landing: after.filter(once), targets, throws, landed, ended_before }
    }

    fn record_several_runs(&mut self, collector: &dyn Collector) -> Result<u8> {
        let mut notes = Vec::new();
        let first = self.perform_first_run(&mut notes)?;
        check_first_run_is_repeatable(&first)?;
        let observed = self.collect_observed_calls(&first);
        let (mut model, mut code) = self.build_planning_model(OPAQUE_FUNCTION_ASSUMPTIONS[0], Some(&observed))?;
        report_opaque_functions(&model);
        let log = Arc::new(first.outcome.log.clone());
        // The first run has shown where the other uncertain jumps lead.
        let leads_elsewhere = |_, doubt: &GraphDoubt| *doubt == GraphDoubt::UnresolvedJump;
        self.update_replaceable_blocks(&leads_elsewhere);
        for (number, assumption) in OPAQUE_FUNCTION_ASSUMPTIONS.into_iter().enumerate() {
            if number > 0 {
                (model, code) = self.build_planning_model(assumption, Some(&observed))?;
            }
            let weights = self.compute_execution_weights(&model, Some(&log))?;
            let plan = match self.create_planner(&model, &code, collector, &weights).plan() {
                Ok(plan) => plan,
                Err(error) => match error.downcast::<UnrealizablePlan>() {
                    Ok(UnrealizablePlan { what, replaceable: true, .. }) => return self.fall_back_to_one_run(&what, collector),
                    Ok(refused) => return Err(refused.into()),
                    Err(error) => return Err(error),
                },
            };
            let results = self.execute_plan(&plan, collector, &log)?;
            check_runs_ended_alike(&results, first.outcome.followed.ending)?;
            notes.extend(describe_truncated_runs(&results, first.outcome.followed.ending));
            let partials: Vec<PathBuf> = results.iter().map(|r| r.partial.clone()).collect();
            let mut writer = self.create_writer((&model.opaque, model.reduced_from.is_some()), &code, collector, results.len() as u32)?;
            match merge(&model, &code, &plan.distribution, &partials, &plan.sites, &mut writer) {
                Ok(merged) => {
                    notes.extend(model.reduced_from.is_some().then(|| CALLS_ONLY_NOTE.to_owned()));
                    let runs = plan.sites.iter().zip(&results).map(|(s, r)| describe_run(s, r)).collect();
                    return self.finish(writer, merged, &first.outcome.followed, runs, notes);
                }
                Err(MergeError::File(error)) => return Err(error),
                Err(MergeError::Contradiction(error)) => {
                    let what = describe_contradiction(&model, &code, &error);
                    let what = self.explain_contradiction(&model, &code, collector, what)?;
                    warn_of_contradiction(&what, number + 1 < OPAQUE_FUNCTION_ASSUMPTIONS.len());
                    notes.push(format!("an execution contradicted the graph: {what}"));
                }
            }
        }
        ensure!(
            self.options.plan.distribution.is_none() && self.options.plan.limit.is_none() && collector.max_sites().is_none(),
            "cannot merge the runs, because they contradict each other under every assumption about opaque functions (functions whose \
             inside is not traced). Pass `--runs 1`, or make another function opaque with `--opaque`"
        );
        self.fall_back_to_one_run("no assumption about opaque functions explains the runs", collector)
    }

    fn execute_plan(&self, plan: &DistributionPlan, collector: &dyn Collector, first: &Arc<RunLog>) -> Result<Vec<RunResult>> {
        let machines = plan.runs_by_machine(self.options.plan.machines.is_some());
        match &self.host.machines {
            None => self.subject.perform_runs(collector, &plan.sites, &machines, first, self.options.jobs),
            Some(others) => {
                ensure!(self.host.fresh_folder.is_none(), "--fresh-folder works on this machine only. Omit --fresh-folder or --engine");
                machines::execute_runs_remotely(&self.subject, others, self.kind, &plan.sites, machines, first)
            }
        }
    }

    fn fall_back_to_one_run(&mut self, why: &str, collector: &dyn Collector) -> Result<u8> {
        log::warn!("falling back to one run that watches every block: {why}");
        self.record_one_run(collector, false)
    }

    /// Runs the program once more, watching every block, to find a step that is missing from the graphs, and describes it. Returns
    /// `otherwise` if no step is missing.
    fn explain_contradiction(
        &self,
        model: &WitnessModel,
        code: &TracedCode,
        collector: &dyn Collector,
        otherwise: String,
    ) -> Result<String> {
        let sites = code.addresses();
        let collector = if collector.max_sites().is_none() { collector } else { &PtraceBreakpoints };
        let result = self.subject.perform_single_run(collector, &sites, &[], false)?;
        let partial = PartialTrace::open(&result.partial)?;
        let addresses = partial.stream(ThreadNumber(0)).map_while(Result::ok).map(|site| sites[site as usize]);
        let name = |address: u64| code.block_at(address).map_or("", |block| code.name(code.function_of(block)));
        Ok(match find_first_missing_step(model, addresses) {
            Some(MissingStep { position, from: Some(from), to }) => {
                let shown = |address: u64| format!("{:#x} in {}", split_address(address).1, name(address));
                format!("block {position}, {}, follows {}", shown(to), shown(from))
            }
            Some(MissingStep { to, .. }) => format!("the execution begins with {:#x} in {}", split_address(to).1, name(to)),
            None => otherwise,
        })
    }

    fn create_planner<'b>(
        &'b self,
        model: &'b WitnessModel,
        code: &'b TracedCode,
        collector: &dyn Collector,
        weights: &'b Weights,
    ) -> Planner<'b> {
        Planner { options: &self.options.plan, model, code, weights, max_sites: collector.max_sites(), hash: self.files.hash() }
    }

    /// Returns the execution frequencies of blocks from the source that the user has chosen: estimates, a separate run, or a trace.
    fn compute_execution_weights(&self, model: &WitnessModel, log: Option<&Arc<RunLog>>) -> Result<Weights> {
        if let Some((whole, calls)) = model.reduced_from.as_deref() {
            return Ok(calls.weights(&self.compute_execution_weights(whole, log)?));
        }
        let estimate = weights::estimate_weights(model, &self.graphs);
        match &self.options.weights {
            ExecutionWeightSource::Static => Ok(estimate),
            ExecutionWeightSource::Trace(path) => {
                Ok(BlockExecutionCounts::from_trace(path, self.files.hash())?.weights(model, &self.graphs))
            }
            ExecutionWeightSource::FirstRun => {
                let watched = weights::sites_counted_for_weights(model);
                let sites: Vec<u64> = watched.iter().map(|w| w.0).collect();
                let usual = default_collector(&self.options.run, self.host).collector();
                let counts = self.subject.perform_counting_run(usual, &sites, log.cloned())?;
                let measured = watched.iter().zip(counts).map(|((_, witness), n)| (*witness, n as f64)).collect();
                Ok(estimate.corrected(&model.program, &measured))
            }
        }
    }

    /// Creates the writer of the trace. `opaque` lists the functions that are not traced inside, each with the reason. If `calls_only` is
    /// true, the trace contains only calls and returns.
    fn create_writer(
        &self,
        (opaque, calls_only): (&OpaqueFunctions, bool),
        code: &TracedCode,
        collector: &dyn Collector,
        runs: u32,
    ) -> Result<TraceWriter> {
        let (blocks, files) = code.describe_blocks(&self.files)?;
        let about = TraceDescription {
            command: self.options.run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            image: self.subject.executable.path.display().to_string(),
            libraries: self.subject.libraries.iter().map(|l| l.executable.path.display().to_string()).collect(),
            hash: self.files.hash(),
            collector: match calls_only {
                true => add_calls_only_suffix(collector.name()),
                false => collector.name().to_owned(),
            },
            runs,
            functions: code.describe_functions(&self.files),
            blocks,
            edges: code.collect_edges(),
            files,
            opaque: opaque.clone(),
        };
        Ok(TraceWriter::create(&self.options.output, &about)?)
    }

    /// Writes the end of the trace, and reports what was recorded.
    fn finish(
        &self,
        writer: TraceWriter,
        merged: MergedTrace,
        followed: &FollowOutcome,
        runs: Vec<TracedRunInfo>,
        mut notes: Vec<String>,
    ) -> Result<u8> {
        let ending = followed.ending;
        notes.extend(merged.describe_incomplete_ending(ending));
        if !followed.changed_code.is_empty() {
            notes.push(describe_changed_code(&followed.changed_code, &self.files));
        }
        notes.extend(describe_own_reads(followed, &self.files));
        if let Some(at) = self.subject.executable.writable_code {
            notes.push(format!(
                "the program can change its code at {at:#x} at any time. Where it did so, the trace shows the blocks of the file instead"
            ));
        }
        if followed.untraced_children > 0 {
            let children = plural(followed.untraced_children.into(), "process", "processes");
            notes.push(format!("{children} that the program started were not traced"));
        }
        if let Some(first) = self.options.family.as_ref().filter(|_| followed.passed_on > 0) {
            let (first, count) = (first.display(), plural(followed.passed_on.into(), "file", "files"));
            notes.push(format!("the traces of its child processes, and of programs that it executed, are in {count} `{first}.PID`"));
        }
        if self.subject.hides_vdso() && self.files.may_call_vdso() {
            notes.push(HIDDEN_VDSO_NOTE.to_owned());
        }
        let blocks = writer.blocks();
        let hits: u64 = runs.iter().map(|r| r.hits).sum();
        let end = TraceEndRecord { ending: Some(ending), is_truncated: merged.truncated, notes: notes.clone(), runs };
        writer.finish(&end)?;
        if self.options.is_child() {
            let (blocks, command) = (plural(blocks.into(), "block", "blocks"), children::shorten_command(&self.options.run.command));
            log::info!("recorded {blocks} of `{command}` in {}", self.options.output.display());
            return Ok(exit_status(followed));
        }
        notes.iter().for_each(|note| log::info!("{note}"));
        log::info!(
            "recorded {} in {}, reconstructed from {} in {}; `trodden report {}` shows the calls",
            plural(blocks.into(), "block", "blocks"),
            self.options.output.display(),
            plural(hits.into(), "witness hit", "witness hits"),
            format_runs(end.runs.len()),
            quote_for_shell(&self.options.output.to_string_lossy())
        );
        Ok(exit_status(followed))
    }
}

/// The exit status of a traced program, as a shell reports it.
fn exit_status(followed: &FollowOutcome) -> u8 {
    match followed.ending {
        FollowEnding::Exited(code) => code as u8,
        FollowEnding::Killed(signal) => 128 + signal as u8,
        FollowEnding::Executed | FollowEnding::Detached => shell_status(followed.status),
    }
}

/// Returns the exit status of a process, as a shell reports it. The process ran on after its trace had ended.
fn shell_status(status: Option<i32>) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let status = status.map(std::process::ExitStatus::from_raw);
    status.and_then(|s| s.code().or_else(|| s.signal().map(|signal| 128 + signal))).unwrap_or(0) as u8
}

fn describe_run(sites: &[u64], result: &RunResult) -> TracedRunInfo {
    TracedRunInfo { sites: sites.len() as u64, hits: result.hits, seconds: result.time.as_secs_f64() }
}
