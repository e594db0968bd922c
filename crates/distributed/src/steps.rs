//! Steps of a replay, and a cache of them. The step from one block to the next depends only on the key ([`StepKey`]), so it can be cached.

use crate::imports::{Assumption, opaque};
use std::cell::Cell;
use trodden_binary::graph::{CallSite, CodeCallee, FunctionGraph};
use trodden_trace::TraceBlock;

/// A step's frame and block, the set of functions that calls may enter, and whether a call has just returned.
pub type StepKey = (ReplayFrame, TraceBlock, EnterableFunctions, bool);

const STEP_CACHE_SIZE: usize = 1 << 13;
/// The packed key of an unused entry in the cache: no [`EnterableFunctions`] has this number.
const UNUSED: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReplayFrame {
    pub block: TraceBlock,
    /// Number of the block's calls already seen.
    pub calls: u32,
}

#[derive(Clone, Copy)]
pub enum ReplayStep {
    /// `repeats` is true if the call may enter several functions in turn, so that it stays pending.
    Call {
        number: u32,
        repeats: bool,
        outside: bool,
        tail: bool,
    },
    Next,
    Return,
    /// Control first falls through into an unwatched block.
    Unwatched(TraceBlock),
    None,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EnterableFunctions {
    Nothing,
    /// The functions that the call is known to enter.
    Usual,
    /// All functions that are not ruled out as callees.
    Any,
}

/// A direct-mapped cache of steps, since programs repeat themselves.
pub struct StepCache(Vec<Cell<(u64, ReplayStep)>>);

impl StepCache {
    pub fn new() -> Self {
        Self(vec![Cell::new((UNUSED, ReplayStep::None)); STEP_CACHE_SIZE])
    }

    /// The cached step for a key, or else the result of `compute`, which is then cached.
    #[inline]
    pub fn step(&self, key: StepKey, compute: impl FnOnce() -> ReplayStep) -> ReplayStep {
        let Some(packed) = pack_key(key) else { return compute() };
        // Multiplication by 2^64 / φ mixes the lower bits into the upper ones.
        let mixed = packed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let entry = &self.0[(mixed >> (u64::BITS - STEP_CACHE_SIZE.ilog2())) as usize];
        let (known, step) = entry.get();
        if known == packed {
            return step;
        }
        let step = compute();
        entry.set((packed, step));
        step
    }
}

/// For each block, the successors that were executed last. Most steps lead to one of these.
pub struct SuccessorCache(Vec<[TraceBlock; 4]>);

impl SuccessorCache {
    /// An empty cache for this number of blocks.
    pub fn new(blocks: usize) -> Self {
        Self(vec![[TraceBlock(u32::MAX); 4]; blocks])
    }

    #[inline]
    pub fn contains(&self, block: TraceBlock, next: TraceBlock) -> bool {
        // Without a branch between the comparisons, since which of them follows is hard to predict.
        self.0[block.0 as usize].iter().fold(false, |found, known| found | (*known == next))
    }

    pub fn add(&mut self, block: TraceBlock, next: TraceBlock) {
        let known = &mut self.0[block.0 as usize];
        *known = [next, known[0], known[1], known[2]];
    }
}

/// The key in one word, which is fast to hash and compare; `None` for programs of unusual size.
#[inline]
fn pack_key((frame, block, enters, has_returned): StepKey) -> Option<u64> {
    const BLOCK_BITS: u32 = 25;
    const CALL_BITS: u32 = 11;
    const { assert!(2 * BLOCK_BITS + CALL_BITS + 3 == u64::BITS) };
    let fits = (frame.block.0 | block.0) >> BLOCK_BITS == 0 && frame.calls >> CALL_BITS == 0;
    let flags = (enters as u64) << 1 | u64::from(has_returned);
    let place = u64::from(frame.block.0) << CALL_BITS | u64::from(frame.calls);
    fits.then_some((place << BLOCK_BITS | u64::from(block.0)) << 3 | flags)
}

impl EnterableFunctions {
    pub fn allows(self, call: &CallSite, function: &FunctionGraph) -> bool {
        match self {
            Self::Nothing => false,
            Self::Usual => usually_enters(call, function),
            Self::Any => may_enter(call, function),
        }
    }
}

fn usually_enters(call: &CallSite, function: &FunctionGraph) -> bool {
    match &call.callee {
        CodeCallee::Import(name) => function.is_address_taken && opaque(name, Assumption::Usual).calls_back,
        CodeCallee::Indirect => function.is_address_taken,
        _ => may_enter(call, function),
    }
}

fn may_enter(call: &CallSite, function: &FunctionGraph) -> bool {
    match &call.callee {
        CodeCallee::Function(callee) => *callee == function.entry,
        CodeCallee::OneOf(callees) => callees.contains(&function.entry),
        CodeCallee::Import(_) | CodeCallee::Indirect => true,
    }
}
