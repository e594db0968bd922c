//! The steps of a replay that nearly all blocks take, and a table of them. Programs repeat themselves, so most steps are in the table.
//! A few comparisons with the call stack decide whether a step from the table applies.

use crate::frames::FrameStack;
use crate::steps::{ReplayFrame, ReplayStep};
use trodden_trace::block_file::TraceFileError;
use trodden_trace::{BlockLead, BlockSymbol, ThreadWriter, TraceBlock};

/// A step to a successor, to a called function, or to either after a return; and the frames from which it is possible.
#[derive(Clone, Copy)]
pub struct OrdinaryStep {
    symbol: BlockSymbol,
    /// The block of the innermost frame, none of whose calls has been entered.
    last: TraceBlock,
    /// The next recorded block. It is not that of the step if the step leads to an unwatched block.
    recorded: TraceBlock,
    /// Whether the step leads to the recorded block.
    is_last: bool,
    /// If there is a return: the block of the caller's frame, and how many of its calls have been entered.
    caller: TraceBlock,
    caller_calls: u8,
    /// If there is a call: how many calls of the calling block have been entered after it.
    calls: u8,
}

impl OrdinaryStep {
    /// Returns `step` on the way to the block `recorded`, from the frame `top`, or from `caller` if `lead` is a return. Returns `None` if
    /// it is another kind of step.
    pub fn new(lead: BlockLead, step: &ReplayStep, recorded: TraceBlock, top: ReplayFrame, caller: ReplayFrame) -> Option<Self> {
        let (lead, block, calls) = match *step {
            ReplayStep::Next => (lead, recorded, 0),
            ReplayStep::Unwatched(piece) => (lead, piece, 0),
            ReplayStep::Call { number, repeats, outside: false, tail } => {
                let call = if tail { BlockLead::TAIL_CALL } else { BlockLead::CALL };
                (lead.followed_by(call)?, recorded, number - u32::from(repeats))
            }
            _ => return None,
        };
        let symbol = BlockSymbol::new(lead, block)?;
        let (caller_calls, calls) = (u8::try_from(caller.calls).ok()?, u8::try_from(calls).ok()?);
        let is_last = block == recorded;
        (top.calls == 0).then_some(Self { symbol, last: top.block, recorded, is_last, caller: caller.block, caller_calls, calls })
    }

    /// Returns true if the step leads to the recorded block.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// The block to which the step leads, with the calls and returns before it.
    pub fn symbol(&self) -> BlockSymbol {
        self.symbol
    }

    /// If there is a call: the frame of the calling function after it.
    #[inline]
    pub fn calling_frame(&self) -> ReplayFrame {
        ReplayFrame { block: if self.symbol.lead().returns() { self.caller } else { self.last }, calls: self.calls.into() }
    }
}

const TABLE_INDEX_BITS: u32 = 13;

/// A table of ordinary steps, found by the block in which they start and the next recorded block.
pub struct OrdinarySteps(Vec<OrdinaryStep>);

impl OrdinarySteps {
    pub fn new() -> Self {
        let no_block = TraceBlock(u32::MAX);
        let symbol = BlockSymbol::default();
        Self(vec![
            OrdinaryStep { symbol, last: no_block, recorded: no_block, is_last: true, caller: no_block, caller_calls: 0, calls: 0 };
            1 << TABLE_INDEX_BITS
        ])
    }

    /// Adds a step. It replaces another one if their places are the same.
    pub fn add(&mut self, step: OrdinaryStep) {
        self.0[table_index(step.last, step.recorded)] = step;
    }

    /// Takes and writes steps as long as they are in the table. Returns the number of hits to which they lead. `sites` are the hits, and
    /// `block_of_site` has the block of each site. Stops before a call if the stack has fewer than `outermost` frames, because the replay
    /// must first discard this depth.
    pub fn follow(
        &self,
        sites: &[u32],
        block_of_site: &[u32],
        frames: &mut FrameStack,
        outermost: usize,
        writer: &mut ThreadWriter,
    ) -> Result<usize, TraceFileError> {
        let Some(&ReplayFrame { block: mut last, calls: 0 }) = frames.last() else { return Ok(0) };
        let mut top = frames.len() - 1;
        let slots = frames.slots_with_room();
        let mut done = 0;
        writer.push_blocks_while(|| {
            let recorded = TraceBlock(block_of_site[*sites.get(done)? as usize]);
            let step = &self.0[table_index(last, recorded)];
            if (step.recorded != recorded) | (step.last != last) {
                return None;
            }
            let lead = step.symbol.lead();
            if lead != BlockLead::NONE {
                let calling = top.wrapping_sub(usize::from(lead.returns()));
                let frame = slots.get(calling)?;
                let is_caller = frame.block == step.caller && frame.calls == u32::from(step.caller_calls);
                if (lead.returns() && !is_caller) || (lead.calls() && (calling + 1 < outermost || calling + 1 >= slots.len())) {
                    return None;
                }
                if lead.calls() {
                    slots[calling] = step.calling_frame();
                }
                top = calling + usize::from(lead.calls());
            }
            if step.is_last {
                last = recorded;
                done += 1;
            } else {
                last = unwatched_block(step.symbol);
            }
            Some(step.symbol)
        })?;
        slots[top] = ReplayFrame { block: last, calls: 0 };
        frames.set_depth(top + 1);
        Ok(done)
    }
}

/// Returns the block of a symbol. This is a function that is not inlined, so that the other case remains a branch: with a conditional move,
/// each step would wait until the one before it is loaded.
#[cold]
#[inline(never)]
fn unwatched_block(symbol: BlockSymbol) -> TraceBlock {
    symbol.block()
}

#[inline]
fn table_index(from: TraceBlock, to: TraceBlock) -> usize {
    // 2^32 / φ, which mixes the lower bits into the upper ones.
    const MULTIPLIER: u32 = 0x9e37_79b1;
    // The rotation moves these bits back, so that the same bits of `to` are mixed with them.
    let mixed = (from.0.wrapping_mul(MULTIPLIER).rotate_left(u32::BITS / 2) ^ to.0).wrapping_mul(MULTIPLIER);
    (mixed >> (u32::BITS - TABLE_INDEX_BITS)) as usize
}
