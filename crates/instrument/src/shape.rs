//! Changes to a function's blocks that must come before its graph is read.
//!
//! 1. A call that returns twice must end its block, for control enters the program again behind it.
//! 2. A block that indirect branches and other edges lead to is split: the jumps arrive in an empty block of their own,
//!    which keeps the address the program took. (Edges of indirect branches cannot carry code: their targets are addresses
//!    in data.)

use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::no_return::returns_twice;
use crate::phis;
use indexmap::IndexSet;
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use trodden_unit::BlockKind;

/// A function's blocks in the order of its map, each with what it is.
pub fn prepare(module: Module, function: Value) -> Vec<(Block, BlockKind)> {
    let original: Vec<Block> = function.blocks().collect();
    let mut nodes = Vec::new();
    for block in original {
        nodes.push((block, BlockKind::Code));
        let mut rest = block;
        while let Some(call) = rest.instructions().find(|i| comes_back_twice(*i)) {
            rest = split_behind(module, call);
            nodes.push((rest, BlockKind::Continuation));
        }
    }
    let mut landings = Vec::new();
    for node in &mut nodes {
        if let Some(body) = part_from_computed_jumps(module, node.0) {
            landings.push((node.0, BlockKind::Landing));
            node.0 = body;
        }
    }
    nodes.extend(landings);
    nodes
}

/// A call that returns twice; one that must be a tail call leaves nothing to come back to.
fn comes_back_twice(instruction: Value) -> bool {
    instruction.is(LLVMOpcode::LLVMCall) && returns_twice(instruction) && !crate::describe::is_must_tail(instruction)
}

/// Moves everything behind an instruction to a new block and jumps there.
fn split_behind(module: Module, instruction: Value) -> Block {
    let block = instruction.block();
    let rest = split_off_behind(module, instruction);
    Builder::at_end(module, block, instruction.location()).jump(rest);
    rest
}

/// Moves everything behind a block's phi nodes to a new block, which is returned; the block is left without an end.
pub fn move_to_new_block(module: Module, block: Block) -> Block {
    move_from(module, block, Some(block.first_insertion_point()))
}

/// Moves everything behind an instruction to a new block, which is returned; the instruction's block is left without an end.
pub fn split_off_behind(module: Module, instruction: Value) -> Block {
    move_from(module, instruction.block(), instruction.next())
}

/// Moves an instruction of a block and all behind it to a new block.
fn move_from(module: Module, block: Block, mut instruction: Option<Value>) -> Block {
    let rest = new_block_behind(module, block);
    let builder = Builder::at_end(module, rest, None);
    while let Some(this) = instruction {
        instruction = this.next();
        let location = this.location();
        llvm!(LLVMInstructionRemoveFromParent(this.0));
        builder.insert(this);
        this.set_location(location);
    }
    // Phi nodes name the block from which control comes now.
    let successors: IndexSet<Block> = rest.terminator().successors().into_iter().collect();
    for to in successors {
        phis::rename(module, to, block, rest);
    }
    rest
}

/// An empty block behind another.
pub fn new_block_behind(module: Module, block: Block) -> Block {
    let new = Block(llvm!(LLVMAppendBasicBlockInContext(module.context(), block.function().0, c"".as_ptr())));
    llvm!(LLVMMoveBasicBlockAfter(new.0, block.0));
    new
}

/// The blocks that lead to a block, each as often as it does.
pub fn predecessors(block: Block) -> Vec<Block> {
    let value = Value(llvm!(LLVMBasicBlockAsValue(block.0)));
    let terminators = value.users().filter(|u| u.is_instruction());
    terminators.map(|t| t.block()).collect()
}

/// If both indirect branches and other edges lead to a block, gives its content to a new block, which is returned; the old
/// one stays as the jumps' target.
fn part_from_computed_jumps(module: Module, landing: Block) -> Option<Block> {
    let (jumps, direct) = sources(landing);
    if jumps.is_empty() || direct.is_empty() {
        return None;
    }
    let body = move_to_new_block(module, landing);
    // A block that was its own predecessor has its body as one now.
    let (jumps, direct) = sources(landing);
    for phi in landing.phis().collect::<Vec<_>>() {
        part_phi(module, phi, landing, body, &jumps);
    }
    direct.into_iter().for_each(|block| block.terminator().redirect(landing, body));
    Builder::at_end(module, landing, None).jump(body);
    Some(body)
}

/// Predecessors that jump to a computed address, and the others.
fn sources(block: Block) -> (IndexSet<Block>, IndexSet<Block>) {
    predecessors(block).into_iter().partition(|b| b.terminator().is(LLVMOpcode::LLVMIndirectBr))
}

/// Leaves in `landing` what indirect branches bring; a new phi node in `body` merges it with what the other edges bring.
fn part_phi(module: Module, phi: Value, landing: Block, body: Block, jumps: &IndexSet<Block>) {
    let (arriving, mut all): (Vec<_>, Vec<_>) = phi.incoming().into_iter().partition(|(_, b)| jumps.contains(b));
    let first = body.instructions().next().expect("it has a terminator");
    let both = Builder::phi_like(module, phi, first);
    let here = Builder::phi_like(module, phi, phi);
    phi.replace_uses(both);
    // A value that iterated a loop may be the phi node itself.
    let own = |(v, b): (Value, Block)| (if v == phi { both } else { v }, b);
    here.add_incoming(&arriving.into_iter().map(own).collect::<Vec<_>>());
    all = all.into_iter().map(own).collect();
    all.push((here, landing));
    both.add_incoming(&all);
    // SAFETY: callers collected the nodes before, and take each once.
    unsafe { phi.erase() };
}
