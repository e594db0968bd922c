//! Converts partial traces to a complete trace: merges those of several runs, or replays that of a single run that watched every block.

use crate::code::TracedCode;
use crate::live::{HitChunk, LiveHits};
use crate::model::WitnessModel;
use crate::ordinary_steps::OrdinarySteps;
use crate::replay::{NO_BLOCK_AT_SITE, ReplayedCode, ThreadReplay};
use anyhow::Result;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use trodden_binary::linked::split_address;
use trodden_trace::block_file::TraceFileError;
use trodden_trace::{
    FollowEnding, NO_ADDRESS, PartialTrace, RESUMED_FLAG, Symbols, TRANSFER_FLAG, ThreadNumber, TraceBlock, TraceEvent, TraceFile,
    TraceWriter, TracedBlockInfo,
};
use trodden_witness::{Distribution, WitnessSite};
use trodden_witness::{ExecutionEvent, ReconstructError, Reconstruction, TraceEnding, Witness, WitnessFunctionId, WitnessKind};

/// The reason why partial traces could not be merged.
#[derive(Debug)]
pub enum MergeError {
    /// The partial traces show an execution that the model does not permit.
    Contradiction(ReconstructError),
    /// A file cannot be read or written.
    File(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for MergeError {
    fn from(error: E) -> Self {
        Self::File(error.into())
    }
}

/// What is known about a merged trace besides its events.
pub struct MergedTrace {
    /// Whether the execution continued after the end of the trace.
    pub truncated: bool,
    /// Names of the functions that had not returned at the end, outermost first.
    pub open: Vec<String>,
}

impl MergedTrace {
    /// Describes how the trace ended; `None` if the program exited.
    pub fn describe_incomplete_ending(&self, ending: FollowEnding) -> Option<String> {
        // The function of the last step that the partial traces determine. The program may have ended much later.
        let place = self.open.last().map(|f| format!(", in {f}")).unwrap_or_default();
        match ending {
            FollowEnding::Exited(_) => None,
            FollowEnding::Killed(signal) => {
                Some(format!("signal {signal} ended the program; the trace is exact up to the last witness before that{place}"))
            }
            FollowEnding::Executed => Some(format!("the program executed a different program, where the trace ends{place}")),
            FollowEnding::Detached => Some("a limit or a request ended the trace; the program continued to run".to_owned()),
        }
    }
}

/// Merges the partial traces of several runs. `sites` contains, for each run, the addresses that it watched.
pub fn merge(
    model: &WitnessModel,
    code: &TracedCode,
    distribution: &Distribution,
    partials: &[PathBuf],
    sites: &[Vec<u64>],
    writer: &mut TraceWriter,
) -> Result<MergedTrace, MergeError> {
    let traces = partials.iter().map(|p| PartialTrace::open(p)).collect::<Result<Vec<_>, _>>()?;
    // If the program executes another program, the trace is complete too, because the model knows that the call ends the run.
    let ends = |e: FollowEnding| matches!(e, FollowEnding::Exited(_) | FollowEnding::Executed);
    let whole = traces.iter().all(|t| t.end().is_some_and(|e| ends(e.ending)));
    let ending = if whole { TraceEnding::Complete } else { TraceEnding::Truncated };
    let read_error: RefCell<Option<TraceFileError>> = RefCell::new(None);
    let streams: Vec<_> = traces.iter().zip(sites).map(|(t, s)| recorded_witnesses(t, s, model, &read_error)).collect();
    let reconstruction = Reconstruction::new(&model.program, distribution);
    let mut walk = reconstruction.start(streams, ending).map_err(MergeError::Contradiction)?;
    let mut events = MergedEvents { model, code, tail: false };
    loop {
        let event = walk.next_event();
        if let Some(error) = read_error.borrow_mut().take() {
            return Err(error.into());
        }
        let Some(event) = event.map_err(MergeError::Contradiction)? else { break };
        if let Some(event) = events.convert_event(event) {
            writer.push(ThreadNumber(0), event)?;
        }
    }
    let open = walk.frames().iter().filter_map(|(f, _)| model.functions[f.index()]).map(|f| code.name(f).to_owned()).collect();
    Ok(MergedTrace { truncated: !whole, open })
}

/// Returns the witnesses that a run recorded. A read error ends the iterator and is stored in `read_error`.
fn recorded_witnesses<'a>(
    trace: &'a PartialTrace,
    sites: &'a [u64],
    model: &'a WitnessModel,
    read_error: &'a RefCell<Option<TraceFileError>>,
) -> impl Iterator<Item = Witness> + 'a {
    trace.stream(ThreadNumber(0)).map_while(move |site| match site {
        Ok(site) => Some(model.witnesses[&sites[site as usize]]),
        Err(error) => {
            *read_error.borrow_mut() = Some(error);
            None
        }
    })
}

/// Converts events of the model to events of the trace. Calls and returns of the dispatcher, which exists only in the model, are left out.
struct MergedEvents<'a> {
    model: &'a WitnessModel,
    code: &'a TracedCode,
    /// True if the dispatcher was entered by a tail call.
    tail: bool,
}

impl MergedEvents<'_> {
    fn convert_event(&mut self, event: ExecutionEvent) -> Option<TraceEvent> {
        let is_dispatcher = |f: WitnessFunctionId| self.model.functions[f.index()].is_none();
        match event {
            ExecutionEvent::Block(function, node) => {
                let witness = self.model.program.node_witness(function, node);
                let address = self.model.addresses[witness.index()].expect("a block has an address");
                Some(TraceEvent::Block(self.code.block_at(address).expect("blocks of the model are blocks of the trace")))
            }
            ExecutionEvent::Call { callee, tail, .. } if is_dispatcher(callee) => {
                self.tail = tail;
                None
            }
            ExecutionEvent::Call { caller: Some((caller, _)), .. } if is_dispatcher(caller) => {
                Some(TraceEvent::Call { outside: false, tail: self.tail })
            }
            ExecutionEvent::Call { caller, tail, .. } => Some(TraceEvent::Call { outside: caller.is_none(), tail }),
            ExecutionEvent::Return(f) | ExecutionEvent::Unwind(f) if is_dispatcher(f) => None,
            ExecutionEvent::Return(_) => Some(TraceEvent::Return),
            ExecutionEvent::Unwind(_) => Some(TraceEvent::Unwind),
        }
    }
}

/// Describes a watched block for messages.
pub fn describe_witness(model: &WitnessModel, code: &TracedCode, witness: Witness) -> String {
    match model.program.site(WitnessKind::Nodes, witness) {
        WitnessSite::Node(function, _) => {
            let name = model.functions[function.index()].map_or("an indirect call", |f| code.name(f));
            model.addresses[witness.index()].map_or_else(|| name.to_owned(), |address| format!("{:#x} in {name}", split_address(address).1))
        }
        WitnessSite::Edge(..) => String::new(),
    }
}

/// What a single run recorded: every block of every thread, or every instruction if it was single-stepped.
pub struct ReplayInput<'a> {
    /// The replayed code.
    pub code: &'a ReplayedCode<'a>,
    /// The sites of the run.
    pub sites: &'a [u64],
    /// Number of sites that are blocks. The other sites are jumps; each of their hits is followed by the target of the jump.
    pub blocks: usize,
    /// Whether the run was single-stepped, so that it recorded instruction addresses instead of sites.
    pub steps: bool,
}

/// What a replay finds out besides the trace.
pub struct ReplayFindings {
    /// Pairs of a jump and a target that it took.
    pub targets: BTreeSet<(u64, u64)>,
    /// Number of times that threads switched to another stack.
    pub switches: u64,
}

impl<'a> ReplayInput<'a> {
    /// Writes the trace. `stacks` contains the call stack of each thread when it ended, as far as it is known.
    pub fn replay(&self, partial: &PartialTrace, stacks: &BTreeMap<u32, Vec<u64>>, writer: &mut TraceWriter) -> Result<ReplayFindings> {
        let mut replay = self.begin_hit_replay();
        for thread in (0..partial.threads()).map(ThreadNumber) {
            for symbol in partial.stream(thread) {
                replay.process_hits(thread, [symbol?], writer)?;
            }
        }
        replay.finish(stacks, writer)
    }

    /// Replays the run once more. Its input is `first`, the trace that was written during the recording, and the jumps that were recorded
    /// then.
    pub fn replay_again(
        &self,
        first: &TraceFile,
        jumps: UnwatchedTargetJumps,
        stacks: &BTreeMap<u32, Vec<u64>>,
        writer: &mut TraceWriter,
    ) -> Result<ReplayFindings> {
        let mut replay = self.begin_hit_replay();
        replay.targets = jumps.targets;
        // Other blocks of the first trace were not recorded but inferred, so they are inferred again.
        let watched = &self.sites[..self.blocks];
        let is_recorded = |block: &TracedBlockInfo| watched.binary_search(&block.address).is_ok();
        let recorded = |block: &TracedBlockInfo| if is_recorded(block) { self.code.code.block_at(block.address) } else { None };
        let blocks: Vec<Option<TraceBlock>> = first.description().blocks.iter().map(recorded).collect();
        let none = Vec::new();
        for thread in (0..first.threads()).map(ThreadNumber) {
            let mut jumps = jumps.by_thread.get(thread.0 as usize).unwrap_or(&none).iter().peekable();
            let mut stamps = first.stamps(thread)?.into_iter().peekable();
            let mut block_count = 0;
            for event in first.stream(thread) {
                while let Some(stamp) = stamps.next_if(|stamp| stamp.blocks <= block_count) {
                    writer.thread(thread).push_stamp(stamp.into())?;
                }
                let TraceEvent::Block(block) = event? else { continue };
                while let Some(jump) = jumps.next_if(|jump| jump.blocks <= block_count) {
                    replay.process_hits(thread, [(self.blocks + jump.site) as u64, jump.target], writer)?;
                }
                block_count += 1;
                if let Some(block) = blocks[block.0 as usize] {
                    replay.replay_block(thread, block, writer)?;
                }
            }
            stamps.try_for_each(|stamp| writer.thread(thread).push_stamp(stamp.into()))?;
            for jump in jumps {
                replay.process_hits(thread, [(self.blocks + jump.site) as u64, jump.target], writer)?;
            }
        }
        replay.finish(stacks, writer)
    }

    /// Writes the trace while it is recorded. Its end is left out, because it depends on the final call stacks.
    pub fn replay_live(&self, hits: LiveHits, writer: &mut TraceWriter) -> Result<HitReplay<'a>> {
        let mut replay = self.begin_hit_replay();
        hits.try_for_each(|thread, chunk| replay.process_chunk(thread, chunk, writer))?;
        Ok(replay)
    }

    fn begin_hit_replay(&self) -> HitReplay<'a> {
        let (blocks, jumps) = if self.steps { (&[][..], &[][..]) } else { self.sites.split_at(self.blocks) };
        let block_at = |at: &u64| self.code.code.block_at(*at).map_or(NO_BLOCK_AT_SITE, |block| block.0);
        let block_of_site = blocks.iter().map(block_at).chain(jumps.iter().map(|_| NO_BLOCK_AT_SITE)).collect();
        let jumps =
            jumps.iter().map(|at| JumpSite { address: *at, last_target: NO_ADDRESS, target_block: None, is_watched: false }).collect();
        let ReplayInput { code, blocks, steps, sites } = *self;
        let watched = &sites[..blocks];
        let (ordinary, threads, targets) = (OrdinarySteps::new(), Vec::new(), BTreeSet::new());
        HitReplay { code, watched, steps, block_of_site, jumps, ordinary, threads, targets }
    }
}

/// The jumps in a replay whose targets are not watched blocks.
pub struct UnwatchedTargetJumps {
    targets: BTreeSet<(u64, u64)>,
    by_thread: Vec<Vec<RecordedJump>>,
}

struct RecordedJump {
    /// Number of the thread's blocks before the jump.
    blocks: u64,
    /// The index of the jump among the sites that are jumps.
    site: usize,
    target: u64,
}

struct JumpSite {
    address: u64,
    last_target: u64,
    /// The block at `last_target`, if it is a piece after a call that is not watched. Only the jump's target shows that this block was
    /// entered.
    target_block: Option<TraceBlock>,
    /// Whether the last target is a watched block, whose own hit follows.
    is_watched: bool,
}

/// A replay in progress.
pub struct HitReplay<'a> {
    code: &'a ReplayedCode<'a>,
    /// Addresses of the sites that are blocks, in ascending order.
    watched: &'a [u64],
    steps: bool,
    /// For each site, the number of its block, or [`NO_BLOCK_AT_SITE`].
    block_of_site: Vec<u32>,
    jumps: Vec<JumpSite>,
    ordinary: OrdinarySteps,
    threads: Vec<ThreadHits<'a>>,
    targets: BTreeSet<(u64, u64)>,
}

/// The replay of one thread.
struct ThreadHits<'a> {
    replay: ThreadReplay<'a>,
    /// After the hit of a jump: the index of the jump, whose target is the next hit.
    jump: Option<usize>,
    recorded: Vec<RecordedJump>,
}

impl HitReplay<'_> {
    /// Processes a chunk of hits, and writes its order stamps.
    fn process_chunk(&mut self, thread: ThreadNumber, chunk: &HitChunk, writer: &mut TraceWriter) -> Result<()> {
        let mut done = 0;
        for (index, stamp) in &chunk.stamps {
            self.process_part_of_chunk(thread, &chunk.symbols, done..*index, writer)?;
            writer.thread(thread).push_stamp(*stamp)?;
            done = *index;
        }
        self.process_part_of_chunk(thread, &chunk.symbols, done..chunk.symbols.len(), writer)
    }

    /// Processes some hits of a chunk. Runs of hits at known blocks are processed together, which is fastest.
    fn process_part_of_chunk(
        &mut self,
        thread: ThreadNumber,
        symbols: &Symbols,
        part: Range<usize>,
        writer: &mut TraceWriter,
    ) -> Result<()> {
        let Some(words) = symbols.as_words() else {
            return self.process_hits(thread, symbols.iter().take(part.end).skip(part.start), writer);
        };
        let mut words = &words[part];
        self.begin_thread(thread);
        while !words.is_empty() {
            let ThreadHits { replay, jump, .. } = &mut self.threads[thread.0 as usize];
            let seen = match jump {
                None => replay.replay_sites(words, &self.block_of_site, &mut self.ordinary, &mut writer.thread(thread))?,
                Some(_) => 0,
            };
            // If the next hit is a jump, its target must be processed with it.
            let others = words[seen..].len().min(if jump.is_none() { 2 } else { 1 });
            let (now, rest) = words[seen..].split_at(others);
            self.process_hits(thread, now.iter().map(|word| u64::from(*word)), writer)?;
            words = rest;
        }
        Ok(())
    }

    fn begin_thread(&mut self, thread: ThreadNumber) {
        while self.threads.len() <= thread.0 as usize {
            let replay = ThreadReplay::new(self.code, ThreadNumber(self.threads.len() as u32));
            self.threads.push(ThreadHits { replay, jump: None, recorded: Vec::new() });
        }
    }

    fn process_hits(&mut self, thread: ThreadNumber, hits: impl IntoIterator<Item = u64>, writer: &mut TraceWriter) -> Result<()> {
        self.begin_thread(thread);
        let ThreadHits { replay, jump, recorded } = &mut self.threads[thread.0 as usize];
        let mut writer = writer.thread(thread);
        for symbol in hits {
            if self.steps {
                if let Some(block) = self.code.code.block_at(symbol & !(TRANSFER_FLAG | RESUMED_FLAG)) {
                    replay.replay_block(block, &mut writer)?;
                }
                continue;
            }
            if let Some(number) = jump.take() {
                let site = &mut self.jumps[number];
                if symbol != site.last_target {
                    site.last_target = symbol;
                    site.target_block = self.code.code.block_at(symbol).filter(|to| self.code.unwatched.contains(to));
                    site.is_watched = self.watched.binary_search(&symbol).is_ok();
                    self.targets.extend((symbol != NO_ADDRESS).then_some((site.address, symbol)));
                }
                if !site.is_watched {
                    recorded.push(RecordedJump { blocks: writer.blocks(), site: number, target: symbol });
                }
                if let Some(block) = site.target_block {
                    replay.replay_block(block, &mut writer)?;
                }
            } else if symbol as usize >= self.watched.len() {
                *jump = Some(symbol as usize - self.watched.len());
            } else if let Some(block) = Some(self.block_of_site[symbol as usize]).filter(|block| *block != NO_BLOCK_AT_SITE) {
                replay.replay_block(TraceBlock(block), &mut writer)?;
            }
        }
        Ok(())
    }

    fn replay_block(&mut self, thread: ThreadNumber, block: TraceBlock, writer: &mut TraceWriter) -> Result<()> {
        self.begin_thread(thread);
        self.threads[thread.0 as usize].replay.replay_block(block, &mut writer.thread(thread))
    }

    /// Returns the recorded jumps and drops the rest of the replay, because the trace will be written again.
    pub fn into_jumps(self) -> UnwatchedTargetJumps {
        UnwatchedTargetJumps { targets: self.targets, by_thread: self.threads.into_iter().map(|thread| thread.recorded).collect() }
    }

    /// Writes the end of each thread, and returns the other results of the replay.
    pub fn finish(self, stacks: &BTreeMap<u32, Vec<u64>>, writer: &mut TraceWriter) -> Result<ReplayFindings> {
        let mut switches = 0;
        for (number, ThreadHits { mut replay, .. }) in (0..).zip(self.threads) {
            let mut writer = writer.thread(ThreadNumber(number));
            let mut push = |event| writer.push(event);
            if let Some(stack) = stacks.get(&number).filter(|_| !self.steps) {
                replay.end_thread(stack, &mut push)?;
            }
            switches += replay.switches;
        }
        Ok(ReplayFindings { targets: self.targets, switches })
    }
}
