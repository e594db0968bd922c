//! Records a single run that watches all blocks (`trodden trace record --runs 1`). The run is never repeated, because its effects cannot be
//! undone.
//!
//! The run may reach code that the graphs lack. If it was single-stepped, the recorded instructions show this code afterwards. Otherwise
//! the trace lacks its blocks, and contains a note about that.

use super::messages::{
    describe_missing_blocks, describe_new_targets, describe_stack_switches, describe_unplaced_code, report_opaque_functions,
};
use super::{PreparedRecording, UntracedCodeAssumption, describe_run};
use crate::code::TracedCode;
use crate::jumps::{functions_that_may_switch_stacks, has_edge, is_uncertain_jump, stack_switching_blocks, uncertain_jumps};
use crate::merge::{MergedTrace, ReplayFindings, ReplayInput};
use crate::model::{ObservedTargets, OpaqueFunctions};
use crate::replay::ReplayedCode;
use crate::returns::{cut_blocks_after_calls, find_unwatched_pieces};
use anyhow::{Result, ensure};
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use trodden_binary::graph::{BlockEnd, GraphObservation, ProgramGraph};
use trodden_binary::instruction::MAX_INSTRUCTION_LENGTH;
use trodden_trace::{Collector, FollowEnding, FollowOutcome, PartialTrace, RESUMED_FLAG, TRANSFER_FLAG, ThreadNumber};

impl PreparedRecording<'_> {
    /// Performs the run and writes its trace. If `shows` is true, the program's output is passed on to the user.
    pub(super) fn record_one_run(&mut self, collector: &dyn Collector, shows: bool) -> Result<u8> {
        // Length: one run, from its sites to its trace.
        let mut notes = Vec::new();
        let steps = collector.name() == "single-step";
        let (mut opaque, mut code) = self.build_traced_code(!self.options.is_child())?;
        let (sites, jumps, blocks) = self.sites_of_one_run(&code, steps);
        check_collector_site_limit(sites.len(), collector)?;
        // The collector determines the target of each of these jumps before it is executed, so it can handle a target in the middle of
        // replaced code.
        self.update_replaceable_blocks(&|at, doubt| is_uncertain_jump(doubt) && jumps.binary_search(&at).is_err());
        let watched = &sites[..blocks];
        self.subject.unwatched = self.pieces.iter().copied().filter(|piece| watched.binary_search(piece).is_err()).collect();
        let (result, mut has_learned, mut written);
        let mut first = None;
        if steps {
            result = self.subject.perform_single_run(collector, &sites, &jumps, shows)?;
            has_learned = self.cut_blocks_left_early(&result.outcome.followed);
            written = None;
        } else {
            let mut writer = self.create_writer((&opaque, false), &code, collector, 1)?;
            let known = self.replayed_code(&code, Some(watched), None);
            let hits = ReplayInput { code: &known, sites: &sites, blocks, steps };
            let replay;
            let keeps_hits = self.options.keep.is_some();
            let replay_live = |live| hits.replay_live(live, &mut writer);
            (result, replay) = self.subject.perform_live_run(collector, (&sites, &jumps), (shows, keeps_hits), replay_live)?;
            let followed = &result.outcome.followed;
            has_learned = self.cut_blocks_left_early(followed);
            // Which instructions signals interrupted, and which code the program changed, is known only after the run. If there were any,
            // the trace is replayed again with this knowledge.
            let is_whole = !has_learned && followed.handled_signals.is_empty() && followed.released_code().next().is_none();
            if is_whole {
                let replayed = replay.finish(&followed.stacks, &mut writer)?;
                written = Some((writer, replayed));
            } else {
                let jumps = replay.into_jumps();
                first = Some((writer.reopen_for_reading()?, jumps));
                written = None;
            }
        }
        let followed = &result.outcome.followed;
        let partial = if steps { Some(PartialTrace::open(&result.partial)?) } else { None };
        let mut unplaced = BTreeSet::new();
        if let Some(partial) = &partial {
            while self.add_stepped_code_to_graphs(partial, &mut notes, &mut unplaced)? {
                has_learned = true;
            }
        }
        if has_learned {
            (opaque, code) = self.build_traced_code(false)?;
        }
        if written.is_none() {
            let mut writer = self.create_writer((&opaque, false), &code, collector, 1)?;
            let known = self.replayed_code(&code, (!steps).then_some(watched), Some(followed));
            let hits = ReplayInput { code: &known, sites: &sites, blocks, steps };
            let replayed = match (partial, first) {
                (Some(partial), _) => hits.replay(&partial, &followed.stacks, &mut writer)?,
                (None, Some((trace, jumps))) => hits.replay_again(&trace, jumps, &followed.stacks, &mut writer)?,
                (None, None) => unreachable!("the run was stepped or replayed"),
            };
            written = Some((writer, replayed));
        }
        let (writer, replayed) = written.expect("it is written live or afterwards");
        notes.extend(self.notes_of_one_run(&code, replayed, &unplaced));
        let truncated = !matches!(followed.ending, FollowEnding::Exited(_));
        let runs = vec![describe_run(watched, &result)];
        let merged = MergedTrace { truncated, open: Vec::new() };
        self.finish(writer, merged, followed, runs, notes)
    }

    /// Builds the code to trace, and returns it with the functions that are not traced inside. If `reports` is true, it also logs these.
    /// The model, which only a merge of several runs needs, is not kept: that of a compiler takes 150 MB.
    fn build_traced_code(&self, reports: bool) -> Result<(OpaqueFunctions, TracedCode)> {
        let (model, code) = self.build_model_and_code(UntracedCodeAssumption::Usual, Some(&ObservedTargets::default()))?;
        if reports {
            report_opaque_functions(&model);
        }
        Ok((model.opaque, code))
    }

    /// Returns the addresses that the run watches (blocks, followed by jumps whose targets are recorded), the jumps among them, and the
    /// number of blocks among them.
    fn sites_of_one_run(&self, code: &TracedCode, steps: bool) -> (Vec<u64>, Vec<u64>, usize) {
        let jumps = if steps { Vec::new() } else { uncertain_jumps(&self.graphs) };
        let other_stack = functions_that_may_switch_stacks(&self.graphs, &self.image, code, &stack_switching_blocks(code, &self.files));
        // Functions with trapping instructions are excluded, because a signal handler may skip such an instruction and resume in the middle
        // of a block.
        let traps = |block| code.graph_of(block).0.blocks.iter().any(|b| b.end == BlockEnd::Stop);
        let returns = |entry| code.block_at(entry).is_some_and(|b| !other_stack.contains(&code.function_of(b)) && !traps(b));
        let unwatched = find_unwatched_pieces(&self.graphs, &self.image, &self.pieces, &returns);
        let mut sites = code.addresses();
        sites.retain(|site| !unwatched.contains(site));
        let blocks = sites.len();
        sites.extend(&jumps);
        (sites, jumps, blocks)
    }

    fn notes_of_one_run(&self, code: &TracedCode, replayed: ReplayFindings, unplaced: &BTreeSet<u64>) -> Vec<String> {
        // A target is not missing if it is a block that is watched, even if the block has no known predecessors.
        let is_missing = |target: &(u64, u64)| !has_edge(&self.graphs, *target) && code.block_at(target.1).is_none();
        let unknown: Vec<(u64, u64)> = replayed.targets.into_iter().filter(is_missing).collect();
        let missing = (!unknown.is_empty()).then(|| describe_missing_blocks(code, &unknown));
        let unplaced = (!unplaced.is_empty()).then(|| describe_unplaced_code(unplaced));
        missing.into_iter().chain(unplaced).chain((replayed.switches > 0).then(|| describe_stack_switches(replayed.switches))).collect()
    }

    /// Returns the input for replaying a run. `watched` contains the addresses of the blocks that it watched, and is `None` if it was
    /// single-stepped. `followed` is given once the run has ended.
    fn replayed_code<'c>(&self, code: &'c TracedCode, watched: Option<&[u64]>, followed: Option<&FollowOutcome>) -> ReplayedCode<'c> {
        let is_unwatched = |piece: &u64| watched.is_some_and(|watched| watched.binary_search(piece).is_err());
        let unwatched = self.pieces.iter().copied().filter(is_unwatched).filter_map(|piece| code.block_at(piece)).collect();
        let interrupted = followed.map_or_else(Vec::new, |followed| followed.handled_signals.clone());
        let changed = followed.map_or_else(Vec::new, |followed| followed.released_code().collect());
        let loads_stack_pointer = stack_switching_blocks(code, &self.files);
        let switching = code.blocks().map(|block| loads_stack_pointer.contains(&block)).collect();
        ReplayedCode { code, unwatched, switching, interrupted, changed }
    }

    /// Cuts blocks that the execution may have left in the middle, because of a fault that ended the program or a signal handler that did
    /// not return. Returns true if any block was cut.
    fn cut_blocks_left_early(&mut self, followed: &FollowOutcome) -> bool {
        let is_killed = matches!(followed.ending, FollowEnding::Killed(_));
        let mut faults: BTreeSet<u64> = if is_killed { followed.stack.first().copied().into_iter().collect() } else { BTreeSet::new() };
        let mut places = BTreeSet::new();
        if self.image.jumps {
            faults.extend(&followed.faults);
            places.extend(&followed.interruptions);
        }
        places.extend(faults.into_iter().filter_map(|fault| self.files.next_instruction(fault)));
        let pieces = cut_blocks_after_calls(&mut self.graphs, &places, &|at| self.files.next_instruction(at));
        let has_cut = !pieces.is_empty();
        self.pieces.extend(pieces);
        self.extra_cuts.extend(places);
        has_cut
    }

    /// Adds to the graphs what the executed instructions of a single-stepped run show: targets of jumps, calls and returns at which no
    /// block starts, and targets of uncertain jumps. Adds executed addresses that fit no block to `unplaced`. Returns true if the graphs
    /// have changed.
    fn add_stepped_code_to_graphs(&mut self, steps: &PartialTrace, notes: &mut Vec<String>, unplaced: &mut BTreeSet<u64>) -> Result<bool> {
        let jumps = uncertain_jumps(&self.graphs);
        let known = GraphCodeIndex::new(&self.graphs);
        // A jump to a library function is followed by the instruction at the caller's return address, because the library is not traced.
        // Such an address is not a target of the jump.
        let returns: HashSet<u64> = self.graphs.functions.iter().flat_map(|f| &f.calls).filter_map(|call| call.return_address).collect();
        let before = self.observed.clone();
        let (mut new, mut cuts) = (0, 0);
        for thread in 0..steps.threads() {
            let mut last: Option<u64> = None;
            for symbol in steps.stream(ThreadNumber(thread)) {
                let symbol = symbol?;
                let address = symbol & !(TRANSFER_FLAG | RESUMED_FLAG);
                let leads = symbol & RESUMED_FLAG == 0 && last.is_none_or(|last| last & TRANSFER_FLAG != 0);
                let from = last.map_or(address, |last| last & !(TRANSFER_FLAG | RESUMED_FLAG));
                last = Some(symbol);
                if known.block_starts.contains(&address) {
                    let is_edge = |from: u64| returns.contains(&address) || has_edge(&self.graphs, (from, address));
                    if jumps.binary_search(&from).is_ok() && !is_edge(from) {
                        new += usize::from(self.observed.insert(GraphObservation { from, to: address }));
                    }
                    continue;
                }
                let is_inside = known.contains(address);
                let follows = !leads && from < address && address - from <= MAX_INSTRUCTION_LENGTH;
                if follows || (!leads && is_inside) || self.graphs.is_stub(address) {
                    continue;
                }
                let seen = GraphObservation { from, to: address };
                if !before.contains(&seen) {
                    new += usize::from(self.observed.insert(seen));
                } else if is_inside {
                    cuts += usize::from(self.extra_cuts.insert(address));
                } else {
                    unplaced.insert(address);
                }
            }
        }
        if new + cuts > 0 {
            self.rebuild_graphs()?;
            notes.extend((new > 0).then(|| describe_new_targets(new)));
        }
        Ok(new + cuts > 0)
    }
}

fn check_collector_site_limit(sites: usize, collector: &dyn Collector) -> Result<()> {
    let (name, most) = (collector.name(), collector.max_sites().unwrap_or(usize::MAX));
    ensure!(
        sites <= most,
        "collector `{name}` can watch only {most} of the {sites} blocks that one run must watch. Pass `--collector ptrace`"
    );
    Ok(())
}

struct GraphCodeIndex {
    block_starts: HashSet<u64>,
    /// Address ranges of all blocks in ascending order. Adjacent ranges are joined.
    covered: Vec<Range<u64>>,
}

impl GraphCodeIndex {
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
        Self { block_starts: blocks().map(|b| b.start).collect(), covered }
    }

    fn contains(&self, address: u64) -> bool {
        let after = self.covered.partition_point(|range| range.start <= address);
        self.covered[..after].last().is_some_and(|range| range.contains(&address))
    }
}
