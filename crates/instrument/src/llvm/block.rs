//! Basic blocks.

use super::functions::*;
use super::handles::{Block, Module, Terminated, Value};
use llvm_sys::LLVMOpcode;

impl Block {
    /// Appends an empty block to a function.
    pub fn append(module: Module, function: Value) -> Block {
        LLVMAppendBasicBlockInContext(module.context(), function.expect(), Terminated::from(c""))
    }

    /// Inserts an empty block before another one.
    pub fn insert_before(module: Module, before: Block) -> Block {
        LLVMInsertBasicBlockInContext(module.context(), before, Terminated::from(c""))
    }

    pub fn move_after(self, block: Block) {
        LLVMMoveBasicBlockAfter(self, block);
    }

    pub fn move_before(self, block: Block) {
        LLVMMoveBasicBlockBefore(self, block);
    }

    pub fn instructions(self) -> impl Iterator<Item = Value> {
        std::iter::successors(LLVMGetFirstInstruction(self), |i| i.next())
    }

    pub fn phis(self) -> impl Iterator<Item = Value> {
        self.instructions().take_while(|i| i.is(LLVMOpcode::LLVMPHI))
    }

    pub fn function(self) -> Value {
        LLVMGetBasicBlockParent(self)
    }

    /// Returns the block as a value, whose users include the terminators that jump to it.
    pub fn as_value(self) -> Value {
        LLVMBasicBlockAsValue(self)
    }

    /// Returns the block that follows in the function's list of blocks.
    pub fn next(self) -> Option<Block> {
        LLVMGetNextBasicBlock(self)
    }

    /// Returns true if the block has a terminator, as every block of a verified module does.
    pub fn is_terminated(self) -> bool {
        LLVMGetBasicBlockTerminator(self).is_some()
    }

    /// Returns the terminator, which every block of a verified module has.
    pub fn terminator(self) -> Value {
        LLVMGetBasicBlockTerminator(self).expect("a block has a terminator")
    }

    /// Returns the first instruction that is not an `alloca`. In an entry block that starts with them, it follows the stack variables.
    pub fn after_allocas(self) -> Value {
        self.instructions().find(|i| !i.is(LLVMOpcode::LLVMAlloca)).unwrap_or_else(|| self.terminator())
    }

    /// Returns the landing pad instruction, if the block is a landing pad.
    pub fn landing_pad(self) -> Option<Value> {
        self.instructions().find(|i| !i.is(LLVMOpcode::LLVMPHI)).filter(|i| i.is(LLVMOpcode::LLVMLandingPad))
    }

    /// Returns the first instruction after the phi nodes, the landing pad and the `alloca`s.
    pub fn first_instruction_after_allocas(self) -> Value {
        let head = [LLVMOpcode::LLVMPHI, LLVMOpcode::LLVMLandingPad, LLVMOpcode::LLVMAlloca];
        self.instructions().find(|i| !i.is_one_of(&head)).expect("a block has a terminator")
    }

    /// Returns the first instruction before which code may be inserted: the one after phi nodes and landing pad.
    pub fn first_insertion_point(self) -> Value {
        let head = [LLVMOpcode::LLVMPHI, LLVMOpcode::LLVMLandingPad];
        self.instructions().find(|i| !i.is_one_of(&head)).expect("a block has a terminator")
    }
}
