//! Reads and writes branch weights in LLVM's metadata, which tell code generation how often edges are taken.

use crate::llvm::{Block, Metadata, Module, Value};
use indexmap::IndexMap;
use llvm_sys::LLVMOpcode;
use std::collections::BTreeSet;

const BRANCH_PROFILE_METADATA: &str = "prof";
const BRANCH_WEIGHTS: &str = "branch_weights";

/// Reads the weights of a branch from the metadata `!{!"branch_weights", [!"expected",] i32 ...}`. Returns `None` if there are none, or all
/// are 0.
pub fn read_branch_weights(terminator: Value) -> Option<Vec<f64>> {
    let operands = terminator.metadata(BRANCH_PROFILE_METADATA)?.metadata_operands();
    let mut operands = operands.into_iter().flatten();
    if operands.next()?.metadata_text()? != BRANCH_WEIGHTS {
        return None;
    }
    let weights: Vec<f64> = operands.filter_map(Value::as_integer).map(|w| w as u32 as f64).collect();
    (!weights.is_empty() && weights.iter().any(|w| *w > 0.0)).then_some(weights)
}

/// Sets the weight of a block relative to the other headers of an irreducible loop. It has no effect on blocks that are not such headers.
pub fn set_header_weight(module: Module, block: Block, weight: i64) {
    let node = metadata_list(module, "loop_header_weight", [module.constant(weight)]);
    block.terminator().set_metadata(module, "irr_loop", Some(node));
}

pub fn mark_branch_unlikely(module: Module, branch: Value) {
    mark_edges_unlikely(module, branch, &BTreeSet::from([0]));
}

/// Marks the given successors of a terminator as unlikely, unless it has no others.
pub fn mark_edges_unlikely(module: Module, terminator: Value, successors: &BTreeSet<usize>) {
    let all = terminator.successors().len();
    if successors.len() == all || !can_have_weights(terminator) {
        return;
    }
    let weight = |at| if successors.contains(&at) { 1 } else { (1 << 20) - 1 };
    set_branch_weights(module, terminator, (0..all).map(weight));
}

/// Sets the weights of a terminator's successors from their execution counts, unless all counts are 0.
pub fn set_edge_weights(module: Module, terminator: Value, executions: &[u64]) {
    // LLVM's weights have 32 bits. A maximum of 2^10 makes no difference for three programs (docs/benchmarks/constants.md).
    const MAX_WEIGHT: u64 = 1 << 30;
    let max = executions.iter().copied().max().unwrap_or_default();
    if max == 0 || executions.len() < 2 || !can_have_weights(terminator) {
        return;
    }
    // An edge that was never taken is still possible, so its weight is 1 rather than 0.
    let weight = |n: &u64| (u128::from(*n) * u128::from(MAX_WEIGHT) / u128::from(max)) as u64 / executions.len() as u64 + 1;
    set_branch_weights(module, terminator, executions.iter().map(weight));
}

/// Sets the weights of a terminator's successors from the execution counts of the targets, if all are known. If several cases of a `switch`
/// lead to one target, they share its count in proportion to their old weights.
pub fn set_target_weights(module: Module, terminator: Value, executions: impl Fn(Block) -> Option<u64>) {
    let targets = terminator.successors();
    let Some(counts) = targets.iter().map(|to| executions(*to)).collect::<Option<Vec<u64>>>() else { return };
    let before = read_branch_weights(terminator).filter(|w| w.len() == targets.len()).unwrap_or_else(|| vec![0.0; targets.len()]);
    let mut same: IndexMap<Block, (f64, f64)> = IndexMap::new();
    for (to, weight) in targets.iter().zip(&before) {
        let (successors, sum) = same.entry(*to).or_default();
        (*successors, *sum) = (*successors + 1.0, *sum + weight);
    }
    let share = |(successor, to): (usize, &Block)| {
        let (successors, sum) = same[to];
        let part = if sum > 0.0 { before[successor] / sum } else { 1.0 / successors };
        (counts[successor] as f64 * part) as u64
    };
    set_edge_weights(module, terminator, &targets.iter().enumerate().map(share).collect::<Vec<_>>());
}

pub fn set_entry_count(module: Module, function: Value, entries: u64) {
    let node = metadata_list(module, "function_entry_count", [module.constant(entries.min(i64::MAX as u64) as i64)]);
    function.set_global_metadata(module.context(), BRANCH_PROFILE_METADATA, node);
}

/// Returns true if the module was compiled with a profile. Functions without a count in it are either new or were never executed.
pub fn has_profile_summary(module: Module) -> bool {
    const SUMMARY_FLAG: &str = "ProfileSummary";
    module.has_flag(SUMMARY_FLAG)
}

pub fn has_entry_count(module: Module, function: Value) -> bool {
    function.has_global_metadata(module.context(), BRANCH_PROFILE_METADATA)
}

fn can_have_weights(terminator: Value) -> bool {
    terminator.is(LLVMOpcode::LLVMBr) || terminator.is(LLVMOpcode::LLVMSwitch)
}

fn set_branch_weights(module: Module, terminator: Value, weights: impl Iterator<Item = u64>) {
    let node = metadata_list(module, BRANCH_WEIGHTS, weights.map(|weight| module.i32().unsigned(weight)));
    terminator.set_metadata(module, BRANCH_PROFILE_METADATA, Some(node));
}

/// Creates a metadata node that consists of a name and numbers.
fn metadata_list(module: Module, name: &str, numbers: impl IntoIterator<Item = Value>) -> Metadata {
    let context = module.context();
    let mut content = vec![context.metadata_string(name.as_bytes())];
    content.extend(numbers.into_iter().map(Value::as_metadata));
    context.metadata_node(&content)
}
