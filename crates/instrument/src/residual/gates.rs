//! Inserts gates: new blocks before the headers of loops in the checking code, through which control enters the loop from outside.
//!
//! If the instrumented code returned to a loop header directly, it would add a back edge with different values: LLVM would see one loop
//! that contains both versions, without recognisable induction variables or invariant bounds. With a gate, the loop keeps its back edges,
//! and the instrumented code re-enters it from outside: `before -> gate -> head -> ... -> latch -> head`, and `head -> ... -> instrumented
//! code -> gate`.

use crate::llvm::{Block, Builder, Module, Value};
use crate::phis;
use crate::shape::{new_block_after, predecessors};
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;

/// Inserts gates before the loops of the checking code to which the instrumented code (`counted`) returns. `outer_headers` are the headers
/// of loops that contained other loops in the original function.
pub fn insert_gates(module: Module, function: Value, heads: &[Block], counted: &IndexSet<Block>, outer_headers: &IndexSet<Block>) {
    let flow = ControlFlow::new(function, heads, counted);
    for &head in heads {
        if let Some(outer) = flow.outer_predecessors(head) {
            insert_gate(module, head, &outer);
            if outer_headers.contains(&head) {
                freeze_induction_variables(module, head);
            }
        }
    }
}

/// Freezes the induction variables of a loop, so that loop strength reduction, which only optimises innermost loops, does not rewrite them.
/// A loop becomes innermost if its inner loops have moved out, and rewriting it would make it slower.
fn freeze_induction_variables(module: Module, head: Block) {
    let heads: Vec<Value> = head.phis().collect();
    let mut frozen = IndexMap::new();
    for &phi in &heads {
        for (value, _) in phi.incoming() {
            if value != phi && !frozen.contains_key(&value) && is_step_of(value, phi) {
                let after = value.next().expect("an addition is no terminator");
                let builder = Builder::before(module, after, value.location());
                frozen.insert(value, builder.freeze(value));
            }
        }
    }
    if !frozen.is_empty() {
        phis::rebuild_phis(module, head, |entries| entries.into_iter().map(|(v, b)| (frozen.get(&v).copied().unwrap_or(v), b)).collect());
    }
}

/// Returns true if a value is the result of one addition, subtraction or address computation on a phi node.
fn is_step_of(value: Value, phi: Value) -> bool {
    let is_addition = || matches!(value.opcode(), LLVMOpcode::LLVMAdd | LLVMOpcode::LLVMSub | LLVMOpcode::LLVMGetElementPtr);
    value.is_instruction() && is_addition() && value.operands().any(|operand| operand == phi)
}

struct ControlFlow {
    number: IndexMap<Block, usize>,
    successors: Vec<Vec<usize>>,
    /// For each block, whether control may be there between leaving the checking code and returning to it.
    counted: Vec<bool>,
    /// The blocks where control enters the checking code: the function's entry, and those to which the instrumented code returns.
    starts: Vec<usize>,
}

impl ControlFlow {
    /// Reads a function's control flow. `first` are the blocks of the checking code, `counted` those of the instrumented code. Blocks that
    /// were inserted for probes belong to the version of their predecessors.
    fn new(function: Value, first: &[Block], counted: &IndexSet<Block>) -> ControlFlow {
        let blocks: Vec<Block> = function.blocks().collect();
        let number: IndexMap<Block, usize> = blocks.iter().enumerate().map(|(i, b)| (*b, i)).collect();
        let successors = blocks.iter().map(|b| b.terminator().successors().iter().map(|s| number[s]).collect()).collect();
        let mut flow = ControlFlow { number, successors, counted: vec![false; blocks.len()], starts: vec![0] };
        let mut is_first = vec![false; blocks.len()];
        first.iter().for_each(|b| is_first[flow.number[b]] = true);
        let mut stack: Vec<usize> = (0..blocks.len()).filter(|i| counted.contains(&blocks[*i])).collect();
        while let Some(at) = stack.pop() {
            match is_first[at] {
                true => flow.starts.push(at),
                false if !std::mem::replace(&mut flow.counted[at], true) => stack.extend(&flow.successors[at]),
                false => {}
            }
        }
        flow
    }

    /// Returns, for each block, whether it can be reached without passing through the instrumented code or through `block`.
    fn reachable_without(&self, block: usize) -> Vec<bool> {
        let mut reached = vec![false; self.successors.len()];
        let mut stack = self.starts.clone();
        while let Some(at) = stack.pop() {
            if !self.counted[at] && at != block && !std::mem::replace(&mut reached[at], true) {
                stack.extend(&self.successors[at]);
            }
        }
        reached
    }

    /// Returns the predecessors of a loop header that are outside the loop. `None` if the instrumented code does not return to the header,
    /// if the block is not the header of a loop, or if a predecessor cannot be redirected.
    fn outer_predecessors(&self, head: Block) -> Option<IndexSet<Block>> {
        let at = self.number[&head];
        if head.landing_pad().is_some() || !self.starts.contains(&at) {
            return None;
        }
        let outside = self.reachable_without(at);
        let is_outside = |b: &&Block| self.counted[self.number[*b]] || outside[self.number[*b]];
        let before = predecessors(head);
        let (outer, inner): (IndexSet<Block>, IndexSet<Block>) = before.iter().partition(is_outside);
        let fixed = |b: &Block| matches!(b.terminator().opcode(), LLVMOpcode::LLVMIndirectBr | LLVMOpcode::LLVMCallBr);
        (!inner.is_empty() && !outer.is_empty() && !outer.iter().any(fixed)).then_some(outer)
    }
}

/// Inserts a new block before the header, and redirects the predecessors `outer` to it.
fn insert_gate(module: Module, head: Block, outer: &IndexSet<Block>) {
    let gate = new_block_after(module, head);
    gate.move_before(head);
    let location = head.instructions().next().and_then(Value::location);
    Builder::at_end(module, gate, location).jump(head);
    phis::rebuild_phis(module, head, |entries| {
        let (outside, mut others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(_, b)| outer.contains(b));
        let kind = outside[0].0.kind();
        let arriving = match outside.iter().all(|(v, _)| *v == outside[0].0) {
            true => outside[0].0,
            false => {
                let phi = Builder::phi_before(module, gate.terminator(), kind, None);
                phi.add_incoming(&outside);
                phi
            }
        };
        others.push((arriving, gate));
        others
    });
    outer.iter().for_each(|block| block.terminator().redirect(head, gate));
    remove_trivial_phis(head);
}

/// Removes phi nodes whose incoming values are all the same, apart from the phi node itself.
fn remove_trivial_phis(head: Block) {
    loop {
        let trivial = head.phis().find_map(|phi| {
            let mut others = phi.incoming().into_iter().map(|(v, _)| v).filter(|v| *v != phi);
            let one = others.next()?;
            others.all(|v| v == one).then_some((phi, one))
        });
        let Some((phi, value)) = trivial else { return };
        phi.replace_uses(value);
        // SAFETY: the phi node has no uses left. The search looks up the remaining nodes again, so no handle to this one is used.
        unsafe { phi.erase() };
    }
}
