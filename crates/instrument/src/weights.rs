//! How often branches go which way, as code generation is told: weights in LLVM's metadata.

use crate::llvm::{Block, Module, Value, llvm};
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use std::collections::BTreeSet;

const BRANCH_WEIGHTS: &str = "branch_weights";

/// Weights that the compiler put on a branch: the metadata `!{!"branch_weights", [!"expected",] i32 ...}`.
pub fn read(terminator: Value) -> Option<Vec<f64>> {
    let operands = terminator.metadata("prof")?.metadata_operands();
    let mut operands = operands.into_iter().flatten();
    if operands.next()?.metadata_text()? != BRANCH_WEIGHTS {
        return None;
    }
    let weights: Vec<f64> = operands.filter_map(Value::as_integer).map(|w| w as u32 as f64).collect();
    (!weights.is_empty() && weights.iter().any(|w| *w > 0.0)).then_some(weights)
}

/// Says how often a block is entered beside the other heads of a loop that has several. It means nothing for other blocks.
pub fn weigh_head(module: Module, block: Block, weight: i64) {
    let (kind, name) = ("irr_loop", "loop_header_weight");
    let kind = llvm!(LLVMGetMDKindIDInContext(module.context(), kind.as_ptr().cast(), kind.len() as u32));
    let name = llvm!(LLVMMDStringInContext2(module.context(), name.as_ptr().cast(), name.len()));
    let mut content = [name, llvm!(LLVMValueAsMetadata(module.constant(weight).0))];
    let node = llvm!(LLVMMDNodeInContext2(module.context(), content.as_mut_ptr(), content.len()));
    llvm!(LLVMSetMetadata(block.terminator().0, kind, LLVMMetadataAsValue(module.context(), node)));
}

/// Tells code generation that a branch's first way is hardly ever taken.
pub fn mark_unlikely(module: Module, branch: Value) {
    mark_ways_unlikely(module, branch, &BTreeSet::from([0]));
}

/// Tells code generation that these ways of a terminator are hardly ever taken; says nothing of those that have no other beside them.
pub fn mark_ways_unlikely(module: Module, terminator: Value, ways: &BTreeSet<usize>) {
    let all = terminator.successors().len();
    if ways.len() == all || !has_weights(terminator) {
        return;
    }
    let weight = |way| if ways.contains(&way) { 1 } else { (1 << 20) - 1 };
    set_weights(module, terminator, (0..all).map(weight));
}

/// Tells code generation how often each way of a terminator is taken; says nothing if none is.
pub fn weigh_ways(module: Module, terminator: Value, executions: &[u64]) {
    const MOST: u64 = 1 << 30;
    let most = executions.iter().copied().max().unwrap_or_default();
    if most == 0 || executions.len() < 2 || !has_weights(terminator) {
        return;
    }
    // What was never taken is not impossible.
    let weight = |n: &u64| (u128::from(*n) * u128::from(MOST) / u128::from(most)) as u64 / executions.len() as u64 + 1;
    set_weights(module, terminator, executions.iter().map(weight));
}

/// The same with the executions of each block that it leads to, if all are known. Ways of a switch that lead to one block share in them as they did.
pub fn weigh_targets(module: Module, terminator: Value, executions: impl Fn(Block) -> Option<u64>) {
    let targets = terminator.successors();
    let Some(counts) = targets.iter().map(|to| executions(*to)).collect::<Option<Vec<u64>>>() else { return };
    let before = read(terminator).filter(|w| w.len() == targets.len()).unwrap_or_else(|| vec![0.0; targets.len()]);
    let share = |(way, to): (usize, &Block)| {
        let same = targets.iter().zip(&before).filter(|(t, _)| *t == to);
        let (ways, sum) = same.fold((0.0, 0.0), |(ways, sum), (_, weight)| (ways + 1.0, sum + weight));
        let part = if sum > 0.0 { before[way] / sum } else { 1.0 / ways };
        (counts[way] as f64 * part) as u64
    };
    weigh_ways(module, terminator, &targets.iter().enumerate().map(share).collect::<Vec<_>>());
}

/// Says how often a function was entered.
pub fn weigh_function(module: Module, function: Value, entries: u64) {
    let (context, name) = (module.context(), "function_entry_count");
    let count = llvm!(LLVMConstInt(llvm!(LLVMInt64TypeInContext(context)), entries, 0));
    let mut content = [llvm!(LLVMMDStringInContext2(context, name.as_ptr().cast(), name.len())), llvm!(LLVMValueAsMetadata(count))];
    let node = llvm!(LLVMMDNodeInContext2(context, content.as_mut_ptr(), content.len()));
    let kind = llvm!(LLVMGetMDKindIDInContext(context, c"prof".as_ptr(), 4));
    llvm!(LLVMGlobalSetMetadata(function.0, kind, node));
}

fn has_weights(terminator: Value) -> bool {
    terminator.is(LLVMOpcode::LLVMBr) || terminator.is(LLVMOpcode::LLVMSwitch)
}

fn set_weights(module: Module, terminator: Value, weights: impl Iterator<Item = u64>) {
    let context = module.context();
    let i32 = llvm!(LLVMInt32TypeInContext(context));
    let mut operands = vec![llvm!(LLVMMDStringInContext2(context, BRANCH_WEIGHTS.as_ptr().cast(), BRANCH_WEIGHTS.len()))];
    operands.extend(weights.map(|weight| llvm!(LLVMValueAsMetadata(llvm!(LLVMConstInt(i32, weight, 0))))));
    let node = llvm!(LLVMMDNodeInContext2(context, operands.as_mut_ptr(), operands.len()));
    let kind = llvm!(LLVMGetMDKindIDInContext(context, c"prof".as_ptr(), 4));
    llvm!(LLVMSetMetadata(terminator.0, kind, llvm!(LLVMMetadataAsValue(context, node))));
}
