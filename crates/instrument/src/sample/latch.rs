//! Reduces the number of checks in interpreters whose main loop is a `switch`: an iteration skips the check if the interpreted program
//! continues with the next instruction.
//!
//! Each version gets a second copy of the latch, without the check. It is used where the interpreted program's counter only advances by a
//! constant ([`super::steps::blocks_advancing_interpreter`]), and the original latch, with the check, where the counter is set. Since a
//! long-running interpreted program must jump, checks remain frequent enough. Both versions are split alike, so the probability that an
//! instruction is counted does not depend on its predecessor. Invariant: the copy does the same as the original, including the probes, so
//! paths and their numbers do not change.

use super::steps;
use crate::llvm::{Block, Module, Value};
use crate::phis;
use crate::versions::copies::{CopiedLinePolicy, CopyMapping};
use indexmap::{IndexMap, IndexSet};

/// Splits the latch of an interpreter's loop; does nothing for other loops. Returns the phi nodes that were deleted from the latch that
/// keeps its check, each with its replacement.
pub fn split_latch(module: Module, function: Value, latch: Block, head: Block) -> Vec<(Value, Value)> {
    if latch == head || latch.terminator().successors() != [head] {
        return Vec::new();
    }
    let on: IndexSet<Block> = steps::blocks_advancing_interpreter(latch, head).into_iter().collect();
    if on.is_empty() {
        return Vec::new();
    }
    let copies = CopyMapping::new(module, &[latch], function, &IndexMap::new(), CopiedLinePolicy::Keep);
    let without_check = copies.block(latch);
    for phi in head.phis() {
        let more: Vec<_> = phi.incoming().into_iter().filter(|(_, b)| *b == latch).map(|(v, _)| (copies.value(v), without_check)).collect();
        phi.add_incoming(&more);
    }
    on.iter().for_each(|block| block.terminator().redirect(latch, without_check));
    phis::rebuild_phis(module, without_check, |old| old.into_iter().filter(|(_, from)| on.contains(from)).collect());
    phis::rebuild_phis(module, latch, |old| old.into_iter().filter(|(_, from)| !on.contains(from)).collect())
}
