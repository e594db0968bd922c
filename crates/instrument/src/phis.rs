//! Updates phi nodes when predecessors change.
//!
//! LLVM-C can add incoming values, but cannot remove them or change their blocks, so affected phi nodes are rebuilt.

use crate::llvm::{Block, Builder, Module, Value};
use indexmap::{IndexMap, IndexSet};

/// Rebuilds each phi node of a block. `entries` maps its old pairs of incoming value and block to the new ones. Returns each deleted node
/// with its replacement.
pub fn rebuild_phis(
    module: Module,
    block: Block,
    mut entries: impl FnMut(Vec<(Value, Block)>) -> Vec<(Value, Block)>,
) -> Vec<(Value, Value)> {
    let old: Vec<Value> = block.phis().collect();
    let mut replaced = Vec::new();
    for phi in old {
        let new = Builder::insert_phi_like(module, phi, phi);
        new.add_incoming(&entries(phi.incoming()));
        phi.replace_uses(new);
        // SAFETY: the old handle is returned only for comparison, to look up replacements.
        unsafe { phi.erase() };
        replaced.push((phi, new));
    }
    replaced
}

/// Replaces the predecessor `from` with `to` in the phi nodes of `block`. Returns each deleted node with its replacement.
pub fn rename_phi_predecessor(module: Module, block: Block, from: Block, to: Block) -> Vec<(Value, Value)> {
    rebuild_phis(module, block, |old| old.into_iter().map(|(value, b)| (value, if b == from { to } else { b })).collect())
}

/// Replaces predecessors in the phi nodes of `block` according to the map `renamed`. Several entries from one predecessor (a `switch` with
/// several cases) become one, because their edges have been merged. Returns each deleted node with its replacement.
pub fn rename_phi_predecessors(module: Module, block: Block, renamed: &IndexMap<Block, Block>) -> Vec<(Value, Value)> {
    rebuild_phis(module, block, |old| {
        let mut seen = IndexSet::new();
        let new = old.into_iter().filter_map(|(value, from)| match renamed.get(&from) {
            Some(to) => seen.insert(*to).then_some((value, *to)),
            None => Some((value, from)),
        });
        new.collect()
    })
}
