//! Changes a function's blocks so that its graph can be built.
//!
//! 1. A call that returns twice must end its block, because control re-enters the function after the call.
//! 2. A block that is the target of both indirect branches and other edges is split: the indirect branches get an empty
//!    landing block, which keeps the address. Edges of indirect branches cannot carry code, since their targets are
//!    addresses in data.

use crate::llvm::{Block, Builder, Module, Value};
use crate::no_return::returns_twice;
use crate::phis;
use indexmap::IndexSet;
use llvm_sys::LLVMOpcode;
use trodden_unit::BlockKind;

/// Prepares a function. Returns its blocks in the order in which its map lists them, each with its kind.
pub fn prepare_function_blocks(module: Module, function: Value) -> Vec<(Block, BlockKind)> {
    let original: Vec<Block> = function.blocks().collect();
    let mut nodes = Vec::new();
    for block in original {
        nodes.push((block, BlockKind::Code));
        let mut rest = block;
        while let Some(call) = rest.instructions().find(|i| is_call_returning_twice(*i)) {
            rest = split_block_after(module, call);
            nodes.push((rest, BlockKind::Continuation));
        }
    }
    let mut landings = Vec::new();
    for node in &mut nodes {
        if let Some(body) = split_indirect_landing(module, node.0) {
            landings.push((node.0, BlockKind::Landing));
            node.0 = body;
        }
    }
    nodes.extend(landings);
    nodes
}

/// Returns true for a call that returns twice. A `musttail` call does not return to this function at all.
fn is_call_returning_twice(instruction: Value) -> bool {
    instruction.is(LLVMOpcode::LLVMCall) && returns_twice(instruction) && !crate::describe::is_must_tail(instruction)
}

/// Moves everything after an instruction to a new block, and inserts a jump to that block.
fn split_block_after(module: Module, instruction: Value) -> Block {
    let block = instruction.block();
    let rest = move_rest_to_new_block(module, instruction);
    Builder::at_end(module, block, instruction.location()).jump(rest);
    rest
}

/// Moves everything after a block's phi nodes and landing pad to a new block. Returns the new block. The old one is left without a
/// terminator.
pub fn move_to_new_block(module: Module, block: Block) -> Block {
    move_to_new_block_from(module, block, Some(block.first_insertion_point()))
}

/// Moves everything after an instruction to a new block. Returns the new block. The old one is left without a terminator.
pub fn move_rest_to_new_block(module: Module, instruction: Value) -> Block {
    move_to_new_block_from(module, instruction.block(), instruction.next())
}

/// Moves an instruction and everything after it to a new block. Returns the new block.
fn move_to_new_block_from(module: Module, block: Block, mut instruction: Option<Value>) -> Block {
    let rest = new_block_after(module, block);
    let builder = Builder::at_end(module, rest, None);
    while let Some(this) = instruction {
        instruction = this.next();
        let location = this.location();
        this.remove_from_block();
        builder.insert(this);
        this.set_location(location);
    }
    // Phi nodes of the successors must now list the new block as predecessor.
    let successors: IndexSet<Block> = rest.terminator().successors().into_iter().collect();
    for to in successors {
        phis::rename_phi_predecessor(module, to, block, rest);
    }
    rest
}

pub fn new_block_after(module: Module, block: Block) -> Block {
    let new = Block::append(module, block.function());
    new.move_after(block);
    new
}

/// Returns the predecessors of a block, with duplicates.
pub fn predecessors(block: Block) -> Vec<Block> {
    let value = block.as_value();
    let terminators = value.users().filter(|u| u.is_instruction());
    terminators.map(|t| t.block()).collect()
}

/// If a block is the target of both indirect branches and other edges, moves its content to a new block, and makes the other edges lead
/// there. Returns the new block. The old one remains as the target of the indirect branches.
fn split_indirect_landing(module: Module, landing: Block) -> Option<Block> {
    let (jumps, direct) = predecessors_by_kind(landing);
    if jumps.is_empty() || direct.is_empty() {
        return None;
    }
    let body = move_to_new_block(module, landing);
    // If the block was its own predecessor, the new block with its terminator is now the predecessor.
    let (jumps, direct) = predecessors_by_kind(landing);
    for phi in landing.phis().collect::<Vec<_>>() {
        split_phi(module, phi, landing, body, &jumps);
    }
    direct.into_iter().for_each(|block| block.terminator().redirect(landing, body));
    Builder::at_end(module, landing, None).jump(body);
    Some(body)
}

/// Returns the predecessors that end with an indirect branch, and the other predecessors.
fn predecessors_by_kind(block: Block) -> (IndexSet<Block>, IndexSet<Block>) {
    predecessors(block).into_iter().partition(|b| b.terminator().is(LLVMOpcode::LLVMIndirectBr))
}

/// Splits a phi node in two: one in `landing` merges the values from indirect branches, and one in `body` merges the result with all other
/// values.
fn split_phi(module: Module, phi: Value, landing: Block, body: Block, jumps: &IndexSet<Block>) {
    let (arriving, mut all): (Vec<_>, Vec<_>) = phi.incoming().into_iter().partition(|(_, b)| jumps.contains(b));
    let first = body.instructions().next().expect("it has a terminator");
    let both = Builder::insert_phi_like(module, phi, first);
    let here = Builder::insert_phi_like(module, phi, phi);
    phi.replace_uses(both);
    // In a loop, an incoming value may be the phi node itself.
    let own = |(v, b): (Value, Block)| (if v == phi { both } else { v }, b);
    here.add_incoming(&arriving.into_iter().map(own).collect::<Vec<_>>());
    all = all.into_iter().map(own).collect();
    all.push((here, landing));
    both.add_incoming(&all);
    // SAFETY: the caller collected the phi nodes before, passes each once, and does not use this handle again.
    unsafe { phi.erase() };
}
