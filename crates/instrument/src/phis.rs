//! Phi nodes follow when predecessors change.
//!
//! LLVM-C can add incoming values but neither remove nor rename them, so a phi node whose incoming blocks change is built again.

use crate::llvm::{Block, Builder, Module, Value};
use indexmap::{IndexMap, IndexSet};

/// Rebuilds every phi node of a block with other incoming entries. `entries` gets the old ones and returns the new
/// ones; a phi node that is left with none was in a block that is not entered and keeps its old entries. Gives the old nodes
/// (which are no more) with the new ones.
pub fn rebuild(module: Module, block: Block, mut entries: impl FnMut(Vec<(Value, Block)>) -> Vec<(Value, Block)>) -> Vec<(Value, Value)> {
    let old: Vec<Value> = block.phis().collect();
    let mut replaced = Vec::new();
    for phi in old {
        let new = Builder::phi_like(module, phi, phi);
        new.add_incoming(&entries(phi.incoming()));
        phi.replace_uses(new);
        // SAFETY: the old node is given back only to be found by comparison, in lists of what to replace.
        unsafe { phi.erase() };
        replaced.push((phi, new));
    }
    replaced
}

/// In the phi nodes of `block`, what came from one block now comes from another. Gives the old nodes with the new ones.
pub fn rename(module: Module, block: Block, from: Block, to: Block) -> Vec<(Value, Value)> {
    rebuild(module, block, |old| old.into_iter().map(|(value, b)| (value, if b == from { to } else { b })).collect())
}

/// In the phi nodes of `block`, what came from some blocks now comes from others. Where several entries came from one
/// (a switch with several cases), they become one, as the edges did. Gives the old nodes with the new ones.
pub fn rename_all(module: Module, block: Block, renamed: &IndexMap<Block, Block>) -> Vec<(Value, Value)> {
    rebuild(module, block, |old| {
        let mut seen = IndexSet::new();
        let new = old.into_iter().filter_map(|(value, from)| match renamed.get(&from) {
            Some(to) => seen.insert(*to).then_some((value, *to)),
            None => Some((value, from)),
        });
        new.collect()
    })
}
