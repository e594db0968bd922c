//! Gates: blocks in front of loops of the checking code, through which comes whatever does not iterate the loop.
//!
//! Where the instrumented code comes back to a loop's head, it is one more back edge, whose values are others: code
//! generation sees a loop of two versions, whose counters are no counters any more and whose bounds may change. With a
//! gate in front of the head the loop has the back edges that it had, and what comes back enters it again:
//!
//! ```text
//!   before ---> gate ---> head ---> ... ---> latch --(back edge)--> head
//!                ^                   `--> instrumented code --'
//! ```

use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::phis;
use crate::shape::{new_block_behind, predecessors};
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;

/// Puts gates in front of the loops of the checking code that `counted` blocks, those of the other, lead back to.
/// `nests` are the heads of loops that contained others before there were two versions.
pub fn insert(module: Module, function: Value, heads: &[Block], counted: &IndexSet<Block>, nests: &IndexSet<Block>) {
    let flow = ControlFlow::new(function, heads, counted);
    for &head in heads {
        if let Some(outer) = flow.outer_predecessors(head) {
            gate(module, head, &outer);
            if nests.contains(&head) {
                keep_counters(module, head);
            }
        }
    }
}

/// Keeps the counters of a loop as they are. Code generation reshapes those of innermost loops (loop strength
/// reduction), mostly to good effect. A loop whose inner ones are outside now would become one of these, and be worse
/// off than before.
fn keep_counters(module: Module, head: Block) {
    let heads: Vec<Value> = head.phis().collect();
    let mut frozen = IndexMap::new();
    for &phi in &heads {
        for (value, _) in phi.incoming() {
            if value != phi && !frozen.contains_key(&value) && is_step_of(value, phi) {
                let behind = value.next().expect("arithmetic ends no block");
                let builder = Builder::before(module, behind, value.location());
                frozen.insert(value, builder.freeze(value));
            }
        }
    }
    if !frozen.is_empty() {
        phis::rebuild(module, head, |entries| entries.into_iter().map(|(v, b)| (frozen.get(&v).copied().unwrap_or(v), b)).collect());
    }
}

/// Whether a value is made of a phi node by one addition.
fn is_step_of(value: Value, phi: Value) -> bool {
    let is_sum = || matches!(value.opcode(), LLVMOpcode::LLVMAdd | LLVMOpcode::LLVMSub | LLVMOpcode::LLVMGetElementPtr);
    value.is_instruction() && is_sum() && value.operands().any(|operand| operand == phi)
}

/// The edges between a function's blocks.
struct ControlFlow {
    number: IndexMap<Block, usize>,
    behind: Vec<Vec<usize>>,
    /// Blocks of the instrumented code, and what comes behind them before the first one.
    counted: Vec<bool>,
    /// Where control comes to the checking code: the entry, and the heads to which the other comes back.
    starts: Vec<usize>,
}

impl ControlFlow {
    /// `first` are the blocks of the checking code, `counted` those of the other; what probes have made belongs to what it comes behind.
    fn new(function: Value, first: &[Block], counted: &IndexSet<Block>) -> ControlFlow {
        let blocks: Vec<Block> = function.blocks().collect();
        let number: IndexMap<Block, usize> = blocks.iter().enumerate().map(|(i, b)| (*b, i)).collect();
        let behind = blocks.iter().map(|b| b.terminator().successors().iter().map(|s| number[s]).collect()).collect();
        let mut flow = ControlFlow { number, behind, counted: vec![false; blocks.len()], starts: vec![0] };
        let mut is_first = vec![false; blocks.len()];
        first.iter().for_each(|b| is_first[flow.number[b]] = true);
        let mut stack: Vec<usize> = (0..blocks.len()).filter(|i| counted.contains(&blocks[*i])).collect();
        while let Some(at) = stack.pop() {
            match is_first[at] {
                true => flow.starts.push(at),
                false if !std::mem::replace(&mut flow.counted[at], true) => stack.extend(&flow.behind[at]),
                false => {}
            }
        }
        flow
    }

    /// Blocks to which control comes without the instrumented code and without this block.
    fn reached_without(&self, block: usize) -> Vec<bool> {
        let mut reached = vec![false; self.behind.len()];
        let mut stack = self.starts.clone();
        while let Some(at) = stack.pop() {
            if !self.counted[at] && at != block && !std::mem::replace(&mut reached[at], true) {
                stack.extend(&self.behind[at]);
            }
        }
        reached
    }

    /// The blocks that lead to a loop's head and are not in the loop; `None` if the instrumented code is not among them,
    /// if there is no loop, or if one of them cannot be led elsewhere.
    fn outer_predecessors(&self, head: Block) -> Option<IndexSet<Block>> {
        let at = self.number[&head];
        if head.landing_pad().is_some() || !self.starts.contains(&at) {
            return None;
        }
        let outside = self.reached_without(at);
        let is_outside = |b: &&Block| self.counted[self.number[*b]] || outside[self.number[*b]];
        let before = predecessors(head);
        let (outer, inner): (IndexSet<Block>, IndexSet<Block>) = before.iter().partition(is_outside);
        let fixed = |b: &Block| matches!(b.terminator().opcode(), LLVMOpcode::LLVMIndirectBr | LLVMOpcode::LLVMCallBr);
        (!inner.is_empty() && !outer.is_empty() && !outer.iter().any(fixed)).then_some(outer)
    }
}

/// Leads the given blocks to a new one in front of the head.
fn gate(module: Module, head: Block, outer: &IndexSet<Block>) {
    let gate = new_block_behind(module, head);
    llvm!(LLVMMoveBasicBlockBefore(gate.0, head.0));
    let location = head.instructions().next().and_then(Value::location);
    Builder::at_end(module, gate, location).jump(head);
    phis::rebuild(module, head, |entries| {
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
    leave_out_trivial(head);
}

/// Phi nodes that have one value beside themselves are that value.
fn leave_out_trivial(head: Block) {
    loop {
        let trivial = head.phis().find_map(|phi| {
            let mut others = phi.incoming().into_iter().map(|(v, _)| v).filter(|v| *v != phi);
            let one = others.next()?;
            others.all(|v| v == one).then_some((phi, one))
        });
        let Some((phi, value)) = trivial else { return };
        phi.replace_uses(value);
        // SAFETY: the search begins again, with the nodes that are left.
        unsafe { phi.erase() };
    }
}
