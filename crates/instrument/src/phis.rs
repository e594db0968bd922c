//! Updates phi nodes when predecessors change.
//!
//! LLVM-C can add incoming values, but cannot remove them or change their blocks, so affected phi nodes are rebuilt.

use crate::llvm::{Block, Builder, Module, Value};
use indexmap::{IndexMap, IndexSet};

/// Rebuilds each phi node of a block. `entries` maps its incoming values and blocks to the new ones. Returns pairs of the deleted and the
/// new node.
pub fn rebuild(module: Module, block: Block, mut entries: impl FnMut(Vec<(Value, Block)>) -> Vec<(Value, Block)>) -> Vec<(Value, Value)> {
    let old: Vec<Value> = block.phis().collect();
    let mut replaced = Vec::new();
    for phi in old {
        let new = Builder::phi_like(module, phi, phi);
        new.add_incoming(&entries(phi.incoming()));
        phi.replace_uses(new);
        // SAFETY: the old handle is returned only for comparison, to look up replacements.
        unsafe { phi.erase() };
        replaced.push((phi, new));
    }
    replaced
}

/// Replaces the predecessor `from` by `to` in the phi nodes of `block`. Returns pairs of the deleted and the new node.
pub fn rename(module: Module, block: Block, from: Block, to: Block) -> Vec<(Value, Value)> {
    rebuild(module, block, |old| old.into_iter().map(|(value, b)| (value, if b == from { to } else { b })).collect())
}

/// Replaces several predecessors in the phi nodes of `block`. Several entries from one predecessor (a switch with several cases) become one
/// entry, because their edges were merged. Returns pairs of the deleted and the new node.
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
