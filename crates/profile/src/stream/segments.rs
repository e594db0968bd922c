//! Counts interprocedural segments in a stream: chains of calls, each with the caller's path up to the call, and the last callee's first
//! path ([`trodden_unit::segments`]).
//!
//! When a function begins, the stream shows which path of its caller reached the call. If, according to the map, this path's last block
//! cannot have called the function ([`trodden_unit::BlockCall`]), uninstrumented code did, and the call is not part of a segment. After a
//! tail call, the caller's path is the one that ended with the tail call.

use super::counters::{CounterLookup, FunctionIndex, PathRole};
use super::nesting::{Nesting, NestingStep};
use super::symbol::Symbol;
use crate::paths::PathStart;
use crate::segments::{CountsBySegment, FunctionPath, calling_block, ends_with_tail_call};
use std::collections::HashMap;

/// A chain of callers' paths, given by its index in `SegmentReader::chains`.
type ChainId = u32;
const NO_CALLERS: ChainId = 0;

/// Counts the segments of one thread.
pub struct SegmentReader<'p, 'a> {
    lookup: &'p CounterLookup<'a>,
    nesting: Nesting<'p, 'a>,
    depth: usize,
    frames: Vec<FrameChain>,
    /// If the previous event was a tail call: the chain of callers that led to it, and the path that ended with it.
    tail: Option<(ChainId, u32)>,
    chains: Vec<Vec<u32>>,
    numbers: HashMap<Vec<u32>, ChainId>,
    /// Cache of `extend`: the chain that results from a chain and an additional path.
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
    /// Whether the frame is still on its first path: it has not taken a back edge.
    is_first: bool,
    /// The chain that the frame's own calls extend: `callers` during the first path, otherwise empty.
    call_chain: ChainId,
}

impl<'p, 'a> SegmentReader<'p, 'a> {
    /// Creates a reader without counts. Chains have at most `depth` calls.
    pub fn new(lookup: &'p CounterLookup<'a>, depth: usize) -> SegmentReader<'p, 'a> {
        SegmentReader {
            lookup,
            nesting: Nesting::new(lookup),
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
                let by_call = || Some((self.frames.last().map_or(NO_CALLERS, |f| f.call_chain), frame.call?));
                let callers = match by_tail.or_else(by_call).filter(|(_, path)| self.may_call(*path, function)) {
                    Some((callers, path)) => self.extend(callers, path),
                    None => NO_CALLERS,
                };
                // A frame inherited through a fork may have taken back edges before the fork. If its path is known, the path's start shows
                // that.
                let inherited = matches!(symbol, Symbol::Inherited(_));
                let is_first = !inherited || frame.at.is_some_and(|path| self.begins_at_entry(path));
                self.frames.push(FrameChain { callers, is_first, call_chain: if is_first { callers } else { NO_CALLERS } });
            }
            NestingStep::Path { counter, role, depth } => self.feed_path(counter, role, depth),
            NestingStep::Unwound(_) => self.frames.truncate(self.nesting.frames().len()),
            NestingStep::Unknown => {}
        }
    }

    fn feed_path(&mut self, counter: u32, role: PathRole, depth: usize) {
        self.frames.resize(depth, FrameChain { callers: NO_CALLERS, is_first: false, call_chain: NO_CALLERS });
        let Some(frame) = self.frames.last_mut() else { return };
        frame.call_chain = if frame.is_first { frame.callers } else { NO_CALLERS };
        let FrameChain { callers, is_first, call_chain } = *frame;
        frame.is_first &= role == PathRole::Call;
        if is_first && callers != NO_CALLERS {
            *self.counts.entry((callers, counter)).or_default() += 1;
        }
        if role == PathRole::Leaves {
            self.frames.pop();
            self.tail = self.ends_with_tail_call(counter).then_some((call_chain, counter));
        }
    }

    /// Returns the executions of each segment.
    pub fn finish(self) -> CountsBySegment {
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

    /// Appends a path to a chain, and drops the outermost paths beyond the maximum depth.
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

    /// Returns whether the call at the end of a path may call a function.
    fn may_call(&mut self, path: u32, callee: FunctionIndex) -> bool {
        let lookup = self.lookup;
        *self.calls.entry((path, callee)).or_insert_with(|| {
            let Some((index, walk)) = lookup.decode(path) else { return false };
            let (caller, name) = (lookup.function(index), &lookup.function(callee).name);
            let aliases = &lookup.unit(callee).aliases;
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
