//! The steps by which a replay explains recorded blocks, and a cache of them. A step depends only on its key ([`StepKey`]), so it can be
//! cached.

use crate::imports::{UntracedCodeAssumption, assumed_behaviour};
use std::cell::Cell;
use trodden_binary::graph::{CallSite, CodeCallee, FunctionGraph};
use trodden_trace::TraceBlock;

/// What determines a step: the frame in which it starts, the block to which it leads, the functions that calls may enter, and whether a
/// call of the frame has just returned.
pub type StepKey = (ReplayFrame, TraceBlock, EnterableFunctions, bool);

const STEP_CACHE_SIZE: usize = 1 << 13;
/// Marks an unused entry of the cache. No packed key has this value, because its bits for [`EnterableFunctions`] would be invalid.
const UNUSED_CACHE_KEY: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReplayFrame {
    pub block: TraceBlock,
    /// Number of calls in the block that have been entered so far.
    pub calls: u32,
}

#[derive(Clone, Copy)]
pub enum ReplayStep {
    /// `number` is the number of the call in its block. `repeats` is true if the call may enter several functions in turn, so that the same
    /// call can be the next step again.
    Call {
        number: u32,
        repeats: bool,
        outside: bool,
        tail: bool,
    },
    Next,
    Return,
    /// Execution first falls through into an unwatched block, from which another step follows.
    Unwatched(TraceBlock),
    None,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EnterableFunctions {
    Nothing,
    /// The functions that the call is known to enter, according to the graphs.
    Usual,
    /// All functions that the call might enter.
    Any,
}

/// A direct-mapped cache of steps. It is effective because programs execute the same steps again and again.
pub struct StepCache(Vec<Cell<(u64, ReplayStep)>>);

impl StepCache {
    pub fn new() -> Self {
        Self(vec![Cell::new((UNUSED_CACHE_KEY, ReplayStep::None)); STEP_CACHE_SIZE])
    }

    /// Returns the cached step for a key. If there is none, calls `compute` and caches its result.
    #[inline]
    pub fn get_or_compute(&self, key: StepKey, compute: impl FnOnce() -> ReplayStep) -> ReplayStep {
        let Some(packed) = pack_key(key) else { return compute() };
        // Multiplying by 2^64 / φ spreads the lower bits of the key over the upper bits, which select the entry.
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

/// Packs a key into one word, which is fast to hash and to compare. Returns `None` if the program is so large that the key does not fit.
#[inline]
fn pack_key((frame, block, enters, has_returned): StepKey) -> Option<u64> {
    const PACKED_BLOCK_BITS: u32 = 25;
    const PACKED_CALL_BITS: u32 = 11;
    const { assert!(2 * PACKED_BLOCK_BITS + PACKED_CALL_BITS + 3 == u64::BITS) };
    let fits = (frame.block.0 | block.0) >> PACKED_BLOCK_BITS == 0 && frame.calls >> PACKED_CALL_BITS == 0;
    let flags = (enters as u64) << 1 | u64::from(has_returned);
    let place = u64::from(frame.block.0) << PACKED_CALL_BITS | u64::from(frame.calls);
    fits.then_some((place << PACKED_BLOCK_BITS | u64::from(block.0)) << 3 | flags)
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
        CodeCallee::Import(name) => function.is_address_taken && assumed_behaviour(name, UntracedCodeAssumption::Usual).calls_back,
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
