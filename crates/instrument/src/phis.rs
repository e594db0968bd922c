//! Phi nodes follow when predecessors change.
//!
//! LLVM-C can add incoming values but neither remove nor rename them, so a phi node whose incoming blocks change is built anew.

use crate::llvm::{Block, Builder, Module, Value};

/// Rebuilds every phi node of a block with other incoming entries. `entries` gets the old ones and returns the new ones; a phi node that is left
/// with none was in a block nobody enters and keeps its old entries.
pub fn rebuild(module: Module, block: Block, mut entries: impl FnMut(Vec<(Value, Block)>) -> Vec<(Value, Block)>) {
    let old: Vec<Value> = block.phis().collect();
    for phi in old {
        let new = Builder::phi_before(module, phi, phi.kind(), phi.location());
        crate::probes::copy_fast_math(phi, new);
        new.add_incoming(&entries(phi.incoming()));
        phi.replace_uses(new);
        phi.erase();
    }
}

/// In the phi nodes of `block`, what came from one block now comes from another. Where several entries came from it (a switch with several cases),
/// they become one if the edges became one.
pub fn rename(module: Module, block: Block, from: Block, to: Block, merge: bool) {
    rebuild(module, block, |old| {
        let mut new: Vec<(Value, Block)> = Vec::with_capacity(old.len());
        for (value, came_from) in old {
            if came_from != from {
                new.push((value, came_from));
            } else if !merge || !new.iter().any(|(_, b)| *b == to) {
                new.push((value, to));
            }
        }
        new
    });
}
