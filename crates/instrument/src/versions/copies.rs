//! Copies blocks, for another version of a function's code.
//!
//! LLVM-C clones single instructions. Here, references between copied instructions are redirected, and phi nodes are rebuilt because their
//! incoming blocks cannot be changed. Copies keep metadata; debug records of variables stay with the originals, which run nearly all the
//! time.
//!
//! Invariant: a copy refers to the copy of each value or block that was copied, and otherwise to the same ones as the original (arguments,
//! constants, blocks of indirect branches).

use crate::llvm::{Block, Builder, Module, Value};
use indexmap::IndexMap;
use llvm_sys::LLVMOpcode;

#[derive(Default)]
pub struct CopyMapping {
    blocks: IndexMap<Block, Block>,
    values: IndexMap<Value, Value>,
    originals: IndexMap<Value, Value>,
}

/// Whether copies keep their source lines. Copies in a different function must drop them, because that function has a different
/// `DISubprogram`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CopiedLinePolicy {
    Keep,
    Drop,
}

impl CopyMapping {
    /// Appends copies of blocks to a function. `known` maps further values (arguments, callees) to the values that replace them in the
    /// copies.
    pub fn new(module: Module, blocks: &[Block], function: Value, known: &IndexMap<Value, Value>, lines: CopiedLinePolicy) -> CopyMapping {
        let mut copies = CopyMapping { values: known.clone(), ..CopyMapping::default() };
        for &block in blocks {
            let copy = Block::append(module, function);
            copies.blocks.insert(block, copy);
        }
        for &block in blocks {
            copies.copy_instructions(module, block, lines);
        }
        for &block in blocks {
            for instruction in block.instructions() {
                copies.redirect_operands(instruction);
            }
        }
        copies
    }

    /// Returns the copy of a block, or the block itself if it was not copied.
    pub fn block(&self, block: Block) -> Block {
        self.blocks.get(&block).copied().unwrap_or(block)
    }

    /// Returns the copy of a value, or the value itself if it was not copied.
    pub fn value(&self, value: Value) -> Value {
        self.values.get(&value).copied().unwrap_or(value)
    }

    /// Returns the original of a copied value, or the value itself if it is not a copy.
    pub fn original(&self, value: Value) -> Value {
        self.originals.get(&value).copied().unwrap_or(value)
    }

    /// Returns the instructions of the given blocks that were copied, each with its copy.
    pub fn pairs(&self, blocks: &[Block]) -> Vec<(Value, Value)> {
        blocks.iter().flat_map(|b| b.instructions()).filter_map(|i| self.values.get(&i).map(|copy| (i, *copy))).collect()
    }

    /// Updates the mapping: each copy in the list was replaced by the value next to it.
    pub fn replace(&mut self, replaced: &[(Value, Value)]) {
        for (old, new) in replaced {
            if let Some(original) = self.originals.swap_remove(old) {
                self.originals.insert(*new, original);
                self.values.insert(original, *new);
            }
        }
    }

    /// Updates the mapping: each original in the list was replaced by the value next to it.
    pub fn replace_originals(&mut self, replaced: &[(Value, Value)]) {
        for (old, new) in replaced {
            if let Some(copy) = self.values.swap_remove(old) {
                self.values.insert(*new, copy);
                self.originals.insert(copy, *new);
            }
        }
    }

    fn copy_instructions(&mut self, module: Module, block: Block, lines: CopiedLinePolicy) {
        let builder = Builder::at_end(module, self.blocks[&block], None);
        for instruction in block.instructions() {
            let copy = if instruction.is(LLVMOpcode::LLVMPHI) {
                let phi = builder.phi(instruction.kind());
                phi.copy_fast_math(instruction);
                phi
            } else {
                let copy = instruction.duplicate();
                builder.insert(copy);
                copy
            };
            // If the copy kept this metadata, the originals' debug records of variables would also refer to it.
            copy.set_metadata(module, "DIAssignID", None);
            copy.set_location(if lines == CopiedLinePolicy::Keep { instruction.location() } else { None });
            self.values.insert(instruction, copy);
            self.originals.insert(copy, instruction);
        }
    }

    /// Makes the copy of an instruction refer to the copies of its operands, incoming blocks and successors.
    fn redirect_operands(&self, instruction: Value) {
        let copy = self.values[&instruction];
        if instruction.is(LLVMOpcode::LLVMPHI) {
            let incoming: Vec<_> = instruction.incoming().into_iter().map(|(v, b)| (self.value(v), self.block(b))).collect();
            copy.add_incoming(&incoming);
            return;
        }
        for index in 0..copy.operand_count() {
            let Some(operand) = copy.operand_if_any(index) else { continue };
            if !operand.is_block()
                && let Some(new) = self.values.get(&operand)
            {
                copy.set_operand(index, *new);
            }
        }
        if !copy.is_terminator() {
            return;
        }
        for (index, to) in copy.successors().into_iter().enumerate() {
            if let Some(new) = self.blocks.get(&to) {
                copy.set_successor(index, *new);
            }
        }
    }
}
