//! Counts segments in a stream. A segment is a chain of calls: the path of each caller up to the call, and the first path of the last
//! callee ([`trodden_unit::segments`]).
//!
//! When a function begins, the stream shows on which path its caller reached the call. If, according to the map, the last block of this
//! path cannot have called the function ([`trodden_unit::BlockCall`]), uninstrumented code called it, and the call is not part of a
//! segment. After a tail call, the caller's path is the one that ended with the tail call.

use super::counters::{CounterLookup, FunctionIndex, PathRole};
use super::nesting::{CallNesting, NestingStep};
use super::symbol::StreamSymbol;
use crate::paths::PathStart;
use crate::segments::{CountsBySegment, FunctionPath, calling_block, ends_with_tail_call};
use std::collections::HashMap;

/// A chain of callers' paths, represented by its index in `SegmentReader::chains`.
type ChainId = u32;
const NO_CALLERS_CHAIN_ID: ChainId = 0;

/// Counts the segments in the stream of one thread.
pub struct SegmentReader<'p, 'a> {
    lookup: &'p CounterLookup<'a>,
    nesting: CallNesting<'p, 'a>,
    depth: usize,
    frames: Vec<FrameChain>,
    /// The chain of callers and the path that ended with a tail call, if the previous event was a tail call.
    tail: Option<(ChainId, u32)>,
    chains: Vec<Vec<u32>>,
    numbers: HashMap<Vec<u32>, ChainId>,
    /// Cache of `extend`: the chain that results from appending a path to a chain.
    extended: HashMap<(ChainId, u32), ChainId>,
    counts: HashMap<(ChainId, u32), u64>,
    /// Cache of `may_call`.
    calls: HashMap<(u32, FunctionIndex), bool>,
    /// Cache of `ends_with_tail_call`.
    tails: HashMap<u32, bool>,
}

#[derive(Clone, Copy)]
struct FrameChain {
    callers: ChainId,
    /// Whether the frame is still on its first path, which means that it has taken no back edge.
    is_first: bool,
    /// The chain to which calls of this frame append a path: `callers` during the first path, afterwards `NO_CALLERS_CHAIN_ID`.
    call_chain: ChainId,
}

impl<'p, 'a> SegmentReader<'p, 'a> {
    /// Creates a reader without counts. Segments have at most `depth` calls.
    pub fn new(lookup: &'p CounterLookup<'a>, depth: usize) -> SegmentReader<'p, 'a> {
        SegmentReader {
            lookup,
            nesting: CallNesting::new(lookup),
            depth,
            frames: Vec::new(),
            tail: None,
            chains: vec![Vec::new()],
            numbers: HashMap::from([(Vec::new(), NO_CALLERS_CHAIN_ID)]),
            extended: HashMap::new(),
            counts: HashMap::new(),
            calls: HashMap::new(),
            tails: HashMap::new(),
        }
    }

    /// Processes the next symbol of the thread's stream.
    pub fn feed_symbol(&mut self, symbol: StreamSymbol) {
        let tail = self.tail.take();
        match self.nesting.feed_symbol(symbol) {
            NestingStep::Entered(frame) => {
                let function = frame.function;
                let by_tail = tail.filter(|(_, path)| self.may_call(*path, function));
                let by_call = || Some((self.frames.last().map_or(NO_CALLERS_CHAIN_ID, |f| f.call_chain), frame.call?));
                let callers = match by_tail.or_else(by_call).filter(|(_, path)| self.may_call(*path, function)) {
                    Some((callers, path)) => self.extend(callers, path),
                    None => NO_CALLERS_CHAIN_ID,
                };
                // A frame inherited through a `fork` may have taken back edges before the fork. If its current path is known and begins at
                // the function's entry, it has not.
                let inherited = matches!(symbol, StreamSymbol::Inherited(_));
                let is_first = !inherited || frame.at.is_some_and(|path| self.begins_at_entry(path));
                self.frames.push(FrameChain { callers, is_first, call_chain: if is_first { callers } else { NO_CALLERS_CHAIN_ID } });
            }
            NestingStep::Path { counter, role, depth } => self.feed_path(counter, role, depth),
            NestingStep::Unwound(_) => self.frames.truncate(self.nesting.frames().len()),
            NestingStep::Unknown => {}
        }
    }

    fn feed_path(&mut self, counter: u32, role: PathRole, depth: usize) {
        self.frames.resize(depth, FrameChain { callers: NO_CALLERS_CHAIN_ID, is_first: false, call_chain: NO_CALLERS_CHAIN_ID });
        let Some(frame) = self.frames.last_mut() else { return };
        frame.call_chain = if frame.is_first { frame.callers } else { NO_CALLERS_CHAIN_ID };
        let FrameChain { callers, is_first, call_chain } = *frame;
        frame.is_first &= role == PathRole::Call;
        if is_first && callers != NO_CALLERS_CHAIN_ID {
            *self.counts.entry((callers, counter)).or_default() += 1;
        }
        if role == PathRole::Leaves {
            self.frames.pop();
            self.tail = self.ends_with_tail_call(counter).then_some((call_chain, counter));
        }
    }

    /// Returns the number of executions of each segment.
    pub fn into_segment_counts(self) -> CountsBySegment {
        let path = |counter: &u32| self.lookup.path(*counter).map(|(function, path)| FunctionPath { function, path });
        let mut counts = CountsBySegment::new();
        for ((callers, last), count) in &self.counts {
            let chain: Option<Vec<FunctionPath>> = self.chains[*callers as usize].iter().chain([last]).map(path).collect();
            if let Some(chain) = chain {
                *counts.entry(chain).or_default() += count;
            }
        }
        counts
    }

    /// Returns the chain with a path appended, without the outermost paths beyond the maximum depth.
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

    /// Returns whether the call at which a path ends may call the given function.
    fn may_call(&mut self, path: u32, callee: FunctionIndex) -> bool {
        let lookup = self.lookup;
        *self.calls.entry((path, callee)).or_insert_with(|| {
            let Some((index, walk)) = lookup.decode(path) else { return false };
            let (caller, name) = (lookup.function(index), &lookup.function(callee).name);
            let aliases = &lookup.unit_map(callee).aliases;
            let is_callee = |called: &String| called == name || aliases.iter().any(|a| a.of == *name && a.name == *called);
            let block = calling_block(caller, &walk);
            let mut calls = caller.calls.iter().filter(|call| Some(call.block) == block);
            calls.any(|call| call.callee.as_ref().is_none_or(&is_callee))
        })
    }

    fn begins_at_entry(&self, path: u32) -> bool {
        self.lookup.decode(path).is_some_and(|(_, walk)| walk.beginning == PathStart::Entry)
    }

    fn ends_with_tail_call(&mut self, path: u32) -> bool {
        let lookup = self.lookup;
        let is_left = || lookup.decode(path).is_some_and(|(index, walk)| ends_with_tail_call(lookup.function(index), &walk));
        *self.tails.entry(path).or_insert_with(is_left)
    }
}
