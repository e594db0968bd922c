//! Counts interprocedural segments in a stream: each call with the caller's path up to it and the callee's first path
//! ([`trodden_unit::segments`]).
//!
//! An *enter* event says which path of the caller reached the call. The map says whether that path's last block may have called the
//! function ([`trodden_unit::BlockCall`]); otherwise an uninstrumented function did, and the call is on no segment. After a tail call, the
//! path that was left is the caller's.

use super::nesting::{Nesting, NestingStep};
use super::places::{CounterLookup, FunctionIndex, PathRole};
use super::symbol::Symbol;
use crate::paths::PathStart;
use crate::segments::{FunctionPath, SegmentCounts, calling_block, ends_with_tail_call};
use std::collections::HashMap;

/// Index of a chain of callers' paths in `chains`; the first chain is empty.
type ChainId = u32;
const NO_CALLERS: ChainId = 0;

/// Reads the events of one thread.
pub struct SegmentReader<'p, 'a> {
    places: &'p CounterLookup<'a>,
    nesting: Nesting<'p, 'a>,
    depth: usize,
    frames: Vec<FrameChain>,
    /// The frame that was just left by a tail call: the chain that led to the call, and its path.
    tail: Option<(ChainId, u32)>,
    chains: Vec<Vec<u32>>,
    numbers: HashMap<Vec<u32>, ChainId>,
    /// Memo of `extend`: the chain that results from a chain and one more call.
    extended: HashMap<(ChainId, u32), ChainId>,
    counts: HashMap<(ChainId, u32), u64>,
    calls: HashMap<(u32, FunctionIndex), bool>,
    tails: HashMap<u32, bool>,
}

/// The calls that led to a frame.
#[derive(Clone, Copy)]
struct FrameChain {
    callers: ChainId,
    /// Whether it is still on its first path, so that no back edge was taken.
    is_first: bool,
    /// The chain for the frame's own calls: `callers` during the first path, else empty.
    leads: ChainId,
}

impl<'p, 'a> SegmentReader<'p, 'a> {
    /// Starts with an empty count; chains have at most `depth` calls.
    pub fn new(places: &'p CounterLookup<'a>, depth: usize) -> SegmentReader<'p, 'a> {
        SegmentReader {
            places,
            nesting: Nesting::new(places),
            depth,
            frames: Vec::new(),
            tail: None,
            chains: vec![Vec::new()],
            numbers: HashMap::from([(Vec::new(), NO_CALLERS)]),
            extended: HashMap::new(),
            counts: HashMap::new(),
            calls: HashMap::new(),
            tails: HashMap::new(),
        }
    }

    /// Processes the next symbol.
    pub fn feed(&mut self, symbol: Symbol) {
        let tail = self.tail.take();
        match self.nesting.feed(symbol) {
            NestingStep::Entered(frame) => {
                let function = frame.function;
                let by_tail = tail.filter(|(_, path)| self.may_call(*path, function));
                let by_call = || Some((self.frames.last().map_or(NO_CALLERS, |f| f.leads), frame.call?));
                let callers = match by_tail.or_else(by_call).filter(|(_, path)| self.may_call(*path, function)) {
                    Some((callers, path)) => self.extend(callers, path),
                    None => NO_CALLERS,
                };
                // A frame that was inherited by fork may have taken back edges already; its path says so, if known.
                let inherited = matches!(symbol, Symbol::Inherited(_));
                let is_first = !inherited || frame.at.is_some_and(|path| self.begins_at_entry(path));
                self.frames.push(FrameChain { callers, is_first, leads: if is_first { callers } else { NO_CALLERS } });
            }
            NestingStep::Path { counter, role, depth } => self.path(counter, role, depth),
            NestingStep::Unwound(_) => self.frames.truncate(self.nesting.frames().len()),
            NestingStep::Unknown => {}
        }
    }

    fn path(&mut self, counter: u32, role: PathRole, depth: usize) {
        self.frames.resize(depth, FrameChain { callers: NO_CALLERS, is_first: false, leads: NO_CALLERS });
        let Some(frame) = self.frames.last_mut() else { return };
        frame.leads = if frame.is_first { frame.callers } else { NO_CALLERS };
        let FrameChain { callers, is_first, leads } = *frame;
        frame.is_first &= role == PathRole::Call;
        if is_first && callers != NO_CALLERS {
            *self.counts.entry((callers, counter)).or_default() += 1;
        }
        if role == PathRole::Leaves {
            self.frames.pop();
            self.tail = self.ends_with_tail_call(counter).then_some((leads, counter));
        }
    }

    /// Returns the counts, by the paths of the image's functions.
    pub fn finish(self) -> SegmentCounts {
        let path = |counter: &u32| self.places.path(*counter).map(|(function, path)| FunctionPath { function, path });
        let mut counts = SegmentCounts::new();
        for ((callers, last), count) in &self.counts {
            let chain: Option<Vec<FunctionPath>> = self.chains[*callers as usize].iter().chain([last]).map(path).collect();
            if let Some(chain) = chain {
                *counts.entry(chain).or_default() += count;
            }
        }
        counts
    }

    /// Appends a call to a chain and drops the outermost ones beyond the maximum depth.
    fn extend(&mut self, callers: ChainId, path: u32) -> ChainId {
        if let Some(known) = self.extended.get(&(callers, path)) {
            return *known;
        }
        let mut chain = self.chains[callers as usize].clone();
        chain.push(path);
        chain.drain(..chain.len().saturating_sub(self.depth));
        let number = *self.numbers.entry(chain).or_insert_with_key(|chain| {
            self.chains.push(chain.clone());
            self.chains.len() as ChainId - 1
        });
        self.extended.insert((callers, path), number);
        number
    }

    /// Returns whether the last block of a path may call a function.
    fn may_call(&mut self, path: u32, callee: FunctionIndex) -> bool {
        let places = self.places;
        *self.calls.entry((path, callee)).or_insert_with(|| {
            let Some((place, walk)) = places.decode(path) else { return false };
            let (caller, name) = (places.function(place), &places.function(callee).name);
            let aliases = &places.unit(callee).aliases;
            let is_callee = |called: &String| called == name || aliases.iter().any(|a| a.of == *name && a.name == *called);
            let block = calling_block(caller, &walk);
            let mut here = caller.calls.iter().filter(|call| Some(call.block) == block);
            here.any(|call| call.callee.as_ref().is_none_or(&is_callee))
        })
    }

    fn begins_at_entry(&self, path: u32) -> bool {
        self.places.decode(path).is_some_and(|(_, walk)| walk.beginning == PathStart::Entry)
    }

    fn ends_with_tail_call(&mut self, path: u32) -> bool {
        let places = self.places;
        let is_left = || places.decode(path).is_some_and(|(place, walk)| ends_with_tail_call(places.function(place), &walk));
        *self.tails.entry(path).or_insert_with(is_left)
    }
}
