//! Interpreters that are one `switch` in a loop: where the interpreted program goes on to what follows, the loop comes
//! iteration without a check of the tier.
//!
//! The block that ends an iteration is made twice in each version: one for what brings the program counter of the
//! interpreted program elsewhere, with the check, and one for what brings it a constant further on
//! ([`super::steps::going_on`]), without. Whatever an interpreted program does for long, it jumps. Both versions are
//! split alike, and so an instruction's chance to be counted does not depend on what the one before was.
//!
//! Invariant: the copy does what the block does, the probes at its end included. Paths and their numbers are not concerned.

use super::copies::{Copies, Lines};
use super::steps;
use crate::llvm::{Block, Module, Value};
use crate::phis;
use indexmap::{IndexMap, IndexSet};

/// Parts the end of a loop, if it is that of an interpreter. Gives the phi nodes of the one that keeps its check, which
/// are no more, with those in their place.
pub fn part(module: Module, function: Value, latch: Block, head: Block) -> Vec<(Value, Value)> {
    if latch == head || latch.terminator().successors() != [head] {
        return Vec::new();
    }
    let on: IndexSet<Block> = steps::going_on(latch, head).into_iter().collect();
    if on.is_empty() {
        return Vec::new();
    }
    let copies = Copies::make(module, &[latch], function, &IndexMap::new(), Lines::Keep);
    let without_check = copies.block(latch);
    for phi in head.phis() {
        let more: Vec<_> = phi.incoming().into_iter().filter(|(_, b)| *b == latch).map(|(v, _)| (copies.value(v), without_check)).collect();
        phi.add_incoming(&more);
    }
    on.iter().for_each(|block| block.terminator().redirect(latch, without_check));
    phis::rebuild(module, without_check, |old| old.into_iter().filter(|(_, from)| on.contains(from)).collect());
    phis::rebuild(module, latch, |old| old.into_iter().filter(|(_, from)| !on.contains(from)).collect())
}
