//! From partial traces to a trace: the reconstruction of several runs, or the hits of a single one that watched every block.

use crate::code::Code;
use crate::live::LiveHits;
use crate::model::Model;
use crate::replay::{Replay, ReplayedCode};
use anyhow::Result;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use trodden_binary::linked::in_file;
use trodden_trace::block_file::TraceFileError;
use trodden_trace::{FollowEnding, NOWHERE, PartialTrace, RESUMED, TRANSFER, ThreadNumber, TraceBlock, TraceEvent, TraceWriter};
use trodden_witness::{Distribution, WitnessSite};
use trodden_witness::{ExecutionEvent, ReconstructError, Reconstruction, TraceEnding, Witness, WitnessFunctionId, WitnessKind};

/// Why partial traces could not be merged.
#[derive(Debug)]
pub enum MergeError {
    /// They contradict the model.
    Contradiction(ReconstructError),
    /// A file cannot be read or written.
    File(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for MergeError {
    fn from(error: E) -> Self {
        Self::File(error.into())
    }
}

/// How merging ended.
pub struct Merged {
    /// Whether the execution went on behind the end.
    pub cut: bool,
    /// Functions in which it ended, outermost first.
    pub open: Vec<String>,
}

impl Merged {
    /// How the trace ended, if not with the program.
    pub fn ending_note(&self, ending: FollowEnding) -> Option<String> {
        // Where the last certain step was, which may be far before the end.
        let place = self.open.last().map(|f| format!(", in {f}")).unwrap_or_default();
        match ending {
            FollowEnding::Exited(_) => None,
            FollowEnding::Killed(signal) => {
                Some(format!("signal {signal} ended the program: the trace is exact up to the last witness before{place}"))
            }
            FollowEnding::Executed => Some(format!("the program executed another one: the trace ends there{place}")),
            FollowEnding::Detached => Some("the trace was ended by its limit or from outside; the program ran on".to_owned()),
        }
    }
}

/// Merges the runs of a distribution. `sites` are the addresses that each run watched.
///
/// # Errors
/// The partial traces contradict the model or cannot be read, or the trace cannot be written.
pub fn merge(
    model: &Model,
    code: &Code,
    distribution: &Distribution,
    partials: &[PathBuf],
    sites: &[Vec<u64>],
    writer: &mut TraceWriter,
) -> Result<Merged, MergeError> {
    let traces = partials.iter().map(|p| PartialTrace::open(p)).collect::<Result<Vec<_>, _>>()?;
    // Who executes another program calls what is known to end the run.
    let ends = |e: FollowEnding| matches!(e, FollowEnding::Exited(_) | FollowEnding::Executed);
    let whole = traces.iter().all(|t| t.end().is_some_and(|e| ends(e.ending)));
    let ending = if whole { TraceEnding::Complete } else { TraceEnding::Cut };
    let broken: RefCell<Option<TraceFileError>> = RefCell::new(None);
    let streams: Vec<_> = traces.iter().zip(sites).map(|(t, s)| symbols(t, s, model, &broken)).collect();
    let reconstruction = Reconstruction::new(&model.program, distribution);
    let mut walk = reconstruction.start(streams, ending).map_err(MergeError::Contradiction)?;
    let mut events = Events { model, code, tail: false };
    loop {
        let event = walk.next_event();
        if let Some(error) = broken.borrow_mut().take() {
            return Err(error.into());
        }
        let Some(event) = event.map_err(MergeError::Contradiction)? else { break };
        if let Some(event) = events.convert(event) {
            writer.push(ThreadNumber(0), event)?;
        }
    }
    let open = walk.frames().iter().filter_map(|(f, _)| model.functions[f.index()]).map(|f| code.name(f).to_owned()).collect();
    Ok(Merged { cut: !whole, open })
}

/// The witnesses of a run.
fn symbols<'a>(
    trace: &'a PartialTrace,
    sites: &'a [u64],
    model: &'a Model,
    broken: &'a RefCell<Option<TraceFileError>>,
) -> impl Iterator<Item = Witness> + 'a {
    trace.stream(ThreadNumber(0)).map_while(move |site| match site {
        Ok(site) => Some(model.witnesses[&sites[site as usize]]),
        Err(error) => {
            *broken.borrow_mut() = Some(error);
            None
        }
    })
}

/// Events of the model as events of the trace: the dispatcher is left out.
struct Events<'a> {
    model: &'a Model,
    code: &'a Code,
    /// Whether the dispatcher was called in tail position.
    tail: bool,
}

impl Events<'_> {
    fn convert(&mut self, event: ExecutionEvent) -> Option<TraceEvent> {
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

/// What a witness is called in messages.
pub fn place(model: &Model, code: &Code, witness: Witness) -> String {
    match model.program.site(WitnessKind::Nodes, witness) {
        WitnessSite::Node(function, _) => {
            let name = model.functions[function.index()].map_or("an indirect call", |f| code.name(f));
            model.addresses[witness.index()].map_or_else(|| name.to_owned(), |address| format!("{:#x} in {name}", in_file(address).1))
        }
        WitnessSite::Edge(..) => String::new(),
    }
}

/// What a single run saw that watched every block of every thread, or every instruction.
pub struct Hits<'a> {
    /// The code.
    pub code: &'a ReplayedCode<'a>,
    /// Sites of the run.
    pub sites: &'a [u64],
    /// Those that are jumps, ascending; each hit has the target behind it.
    pub jumps: &'a [u64],
    /// Whether instructions were recorded, by their addresses.
    pub steps: bool,
}

/// What was found out while a trace was written.
pub struct Replayed {
    /// Where jumps led.
    pub targets: BTreeSet<(u64, u64)>,
    /// How often threads went on with the calls of another stack.
    pub switches: u64,
}

impl<'a> Hits<'a> {
    /// Writes the trace. `stacks`: where threads stood when they ended, as far as that is known.
    ///
    /// # Errors
    /// The hits cannot be read, or the trace not be written.
    pub fn replay(&self, partial: &PartialTrace, stacks: &BTreeMap<u32, Vec<u64>>, writer: &mut TraceWriter) -> Result<Replayed> {
        let mut replay = self.begin();
        for thread in (0..partial.threads()).map(ThreadNumber) {
            for symbol in partial.stream(thread) {
                replay.see(thread, symbol?, writer)?;
            }
        }
        replay.finish(stacks, writer)
    }

    /// Writes the trace while it is recorded, but for its end: where threads stand then is known afterwards.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn replay_live(&self, hits: LiveHits, writer: &mut TraceWriter) -> Result<HitReplay<'a>> {
        let mut replay = self.begin();
        for (thread, symbols) in hits {
            symbols.into_iter().try_for_each(|symbol| replay.see(thread, symbol, writer))?;
        }
        Ok(replay)
    }

    fn begin(&self) -> HitReplay<'a> {
        let about = |at: &u64| SiteAbout {
            block: self.code.code.block_at(*at),
            is_jump: self.jumps.binary_search(at).is_ok(),
            led_to: NOWHERE,
            behind: None,
        };
        let sites = if self.steps { Vec::new() } else { self.sites.iter().map(about).collect() };
        let Hits { code, sites: addresses, steps, .. } = *self;
        HitReplay { code, addresses, steps, sites, threads: Vec::new(), targets: BTreeSet::new() }
    }
}

/// What is known of a site.
struct SiteAbout {
    block: Option<TraceBlock>,
    is_jump: bool,
    /// Where the jump led when it was seen last.
    led_to: u64,
    /// The block there, if it is not watched: nothing else says that a jump led behind a call.
    behind: Option<TraceBlock>,
}

/// Hits of all threads on their way to the trace.
pub struct HitReplay<'a> {
    code: &'a ReplayedCode<'a>,
    addresses: &'a [u64],
    steps: bool,
    sites: Vec<SiteAbout>,
    /// Of each thread its frames, and the jump whose target comes next.
    threads: Vec<(Replay<'a>, Option<usize>)>,
    targets: BTreeSet<(u64, u64)>,
}

impl HitReplay<'_> {
    fn see(&mut self, thread: ThreadNumber, symbol: u64, writer: &mut TraceWriter) -> Result<()> {
        let number = thread.0 as usize;
        while self.threads.len() <= number {
            self.threads.push((Replay::new(self.code, ThreadNumber(self.threads.len() as u32)), None));
        }
        let (replay, jump) = &mut self.threads[number];
        let (block, behind) = match (self.steps, jump.take()) {
            (true, _) => (self.code.code.block_at(symbol & !(TRANSFER | RESUMED)), None),
            (false, Some(site)) => {
                let about = &mut self.sites[site];
                if symbol != about.led_to {
                    about.led_to = symbol;
                    about.behind = self.code.code.block_at(symbol).filter(|to| self.code.unwatched.contains(to));
                    self.targets.extend((symbol != NOWHERE).then(|| (self.addresses[site], symbol)));
                }
                (about.block, about.behind)
            }
            (false, None) => {
                let about = &self.sites[symbol as usize];
                if about.is_jump {
                    *jump = Some(symbol as usize);
                    return Ok(());
                }
                (about.block, None)
            }
        };
        block.into_iter().chain(behind).try_for_each(|block| replay.hit(block, &mut |event| writer.push(thread, event)))
    }

    /// Writes how the threads ended; gives what was found out.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn finish(self, stacks: &BTreeMap<u32, Vec<u64>>, writer: &mut TraceWriter) -> Result<Replayed> {
        let mut switches = 0;
        for (number, (mut replay, jump)) in (0..).zip(self.threads) {
            let mut push = |event| writer.push(ThreadNumber(number), event);
            // The trace ended before the jump's target was recorded.
            if let Some(block) = jump.and_then(|site| self.sites[site].block) {
                replay.hit(block, &mut push)?;
            }
            if let Some(stack) = stacks.get(&number).filter(|_| !self.steps) {
                replay.end(stack, &mut push)?;
            }
            switches += replay.switches;
        }
        Ok(Replayed { targets: self.targets, switches })
    }
}
