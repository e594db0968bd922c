//! Unrolls short loops of sampled programs, so that they check the switch once in several iterations: the checking code has several copies
//! of the body, and only the last one ends with the check.
//!
//! A check per iteration would slow a loop of a few instructions down by half. Without checks, a loop that runs for a second would be
//! counted entirely or not at all. The instrumented code is not unrolled and checks in each iteration. Invariant: the block with the check
//! stays before the loop header; only the last copy leads to it.

use crate::llvm::{Block, Builder, DebugLocation, Module, Value};
use crate::phis;
use crate::shape::new_block_after;
use crate::versions::copies::{CopiedLinePolicy, CopyMapping};
use indexmap::{IndexMap, IndexSet};

pub struct UnrolledCopies {
    body: Vec<Block>,
    copies: Vec<CopyMapping>,
}

impl UnrolledCopies {
    /// Returns the last copy of the loop's body, which leads to the check.
    pub fn last_copy(&self) -> &CopyMapping {
        self.copies.last().expect("there are several iterations")
    }

    /// Returns the copies of each value of the loop.
    pub fn copies_of_values(&self) -> IndexMap<Value, Vec<Value>> {
        let instructions = self.body.iter().flat_map(|b| b.instructions()).filter(|i| !i.is_void());
        instructions.map(|i| (i, self.copies.iter().map(|c| c.value(i)).collect())).collect()
    }
}

/// Unrolls a loop with the blocks `body`, in which a jump from `check` leads back to `head`, so that control reaches `check` once in
/// `iterations` iterations.
pub fn unroll_loop(
    module: Module,
    body: Vec<Block>,
    head: Block,
    check: Block,
    iterations: usize,
    location: Option<DebugLocation>,
) -> UnrolledCopies {
    let function = head.function();
    let latch_values: Vec<Value> = head.phis().map(|phi| phi.incoming_from(check).expect("the edge was there")).collect();
    let mut copies: Vec<CopyMapping> =
        (1..iterations).map(|_| CopyMapping::new(module, &body, function, &IndexMap::new(), CopiedLinePolicy::Keep)).collect();
    extend_exit_phis(&body, check, &copies);
    let original = CopyMapping::default();
    for at in 0..copies.len() {
        let (before, this) = copies.split_at_mut(at);
        let (before, this) = (before.last().unwrap_or(&original), &mut this[0]);
        let next = this.block(head);
        let latches: Vec<Block> = body.iter().map(|b| before.block(*b)).filter(|b| b.terminator().successors().contains(&check)).collect();
        let between = new_block_after(module, latches[0]);
        Builder::at_end(module, between, location).jump(next);
        latches.into_iter().for_each(|latch| latch.terminator().redirect(check, between));
        let mut values = latch_values.iter();
        let replaced = phis::rebuild_phis(module, next, |_| vec![(before.value(*values.next().expect("one for each")), between)]);
        this.replace(&replaced);
    }
    let last = copies.last().expect("there are several iterations");
    for (phi, value) in head.phis().zip(&latch_values) {
        let place = phi.incoming().iter().position(|(_, from)| *from == check).expect("the edge was there");
        phi.set_operand(place as u32, last.value(*value));
    }
    UnrolledCopies { body, copies }
}

/// Adds the copies' values to the phi nodes at the loop's exits.
fn extend_exit_phis(body: &[Block], check: Block, copies: &[CopyMapping]) {
    let inside: IndexSet<Block> = body.iter().copied().chain([check]).collect();
    let mut exits: Vec<Block> = body.iter().flat_map(|b| b.terminator().successors()).filter(|b| !inside.contains(b)).collect();
    let mut seen = IndexSet::new();
    exits.retain(|b| seen.insert(*b));
    for phi in exits.into_iter().flat_map(|b| b.phis().collect::<Vec<_>>()) {
        let from_inside: Vec<_> = phi.incoming().into_iter().filter(|(_, b)| inside.contains(b)).collect();
        let more: Vec<_> = copies.iter().flat_map(|c| from_inside.iter().map(|(v, b)| (c.value(*v), c.block(*b)))).collect();
        phi.add_incoming(&more);
    }
}
