//! Instructions.

use super::classes::*;
use super::functions::*;
use super::handles::{Block, DebugLocation, Metadata, Module, Type, Value};
use llvm_sys::{LLVMAtomicOrdering, LLVMAtomicRMWBinOp, LLVMIntPredicate, LLVMOpcode, LLVMRealPredicate, LLVMTailCallKind};

/// Methods for instructions of all kinds.
impl Value {
    pub fn opcode(self) -> LLVMOpcode {
        LLVMGetInstructionOpcode(self.expect())
    }

    /// Returns true for `call`, `invoke` and `callbr`.
    pub fn is_call(self) -> bool {
        CallInstruction::of(self).is_some()
    }

    pub fn is_terminator(self) -> bool {
        Terminator::of(self).is_some()
    }

    pub fn next(self) -> Option<Value> {
        LLVMGetNextInstruction(self.expect())
    }

    pub fn block(self) -> Block {
        LLVMGetInstructionParent(self.expect()).expect("the instruction is in a block")
    }

    /// Returns true if a block contains the instruction: it was not removed, and is not a clone that was never inserted.
    pub fn is_in_block(self) -> bool {
        LLVMGetInstructionParent(self.expect()).is_some()
    }

    /// Clones an instruction. The clone is in no block.
    pub fn duplicate(self) -> Value {
        LLVMInstructionClone(self.expect())
    }

    /// Removes an instruction from its block, so that it can be inserted elsewhere.
    pub fn remove_from_block(self) {
        LLVMInstructionRemoveFromParent(self.expect());
    }

    /// Deletes an unused instruction.
    ///
    /// # Safety
    /// No copy of the handle may be passed to LLVM afterwards. Comparing copies is allowed, but an instruction created later may get the
    /// same address, so such a comparison can be wrong.
    pub unsafe fn erase(self) {
        assert!(self.is_unused(), "`{}` is used", self.printed().trim());
        // SAFETY: nothing in the module uses the instruction, and the caller does not pass the handle to LLVM again.
        unsafe { LLVMInstructionEraseFromParent(self.expect()) }
    }

    pub fn location(self) -> Option<DebugLocation> {
        LLVMInstructionGetDebugLoc(self.expect())
    }

    /// Sets the debug location of an instruction; `None` removes it.
    pub fn set_location(self, location: Option<DebugLocation>) {
        LLVMInstructionSetDebugLoc(self.expect(), location);
    }

    /// Returns the metadata of the given kind that is attached to an instruction.
    pub fn metadata(self, kind: &str) -> Option<Value> {
        LLVMGetMetadata(self.expect(), self.kind().context().metadata_kind(kind))
    }

    /// Attaches metadata of the given kind to an instruction; `None` removes it.
    pub fn set_metadata(self, module: Module, kind: &str, node: Option<Metadata>) {
        let context = module.context();
        let value = node.map(|node| context.as_value(node.expect::<AttachedNode>().into()).expect());
        // SAFETY: the value wraps a node of a kind that may be attached.
        unsafe { LLVMSetMetadata(self.expect(), context.metadata_kind(kind), value) }
    }
}

/// Methods for phi nodes.
impl Value {
    /// Returns the value that a phi node receives from a block.
    pub fn incoming_from(self, block: Block) -> Option<Value> {
        self.incoming().into_iter().find(|(_, from)| *from == block).map(|(value, _)| value)
    }

    /// Returns the incoming values of a phi node with their blocks.
    pub fn incoming(self) -> Vec<(Value, Block)> {
        let phi = self.expect();
        // SAFETY: the index is below the number of entries.
        (0..LLVMCountIncoming(phi)).map(|i| unsafe { (LLVMGetIncomingValue(phi, i), LLVMGetIncomingBlock(phi, i)) }).collect()
    }

    /// Returns the predecessor block of a phi node's entry.
    pub fn incoming_block(self, index: u32) -> Block {
        let phi = self.expect();
        assert!(index < LLVMCountIncoming(phi), "the phi node has the entry");
        // SAFETY: the index is below the number of entries.
        unsafe { LLVMGetIncomingBlock(phi, index) }
    }

    pub fn add_incoming(self, incoming: &[(Value, Block)]) {
        let kind = self.kind();
        assert!(incoming.iter().all(|(value, _)| value.kind() == kind), "a phi node merges values of its type");
        let (values, blocks): (Vec<Value>, Vec<Block>) = incoming.iter().copied().unzip();
        // SAFETY: both arrays have that many elements, and the values have the phi node's type.
        unsafe { LLVMAddIncoming(self.expect(), values.as_ptr(), blocks.as_ptr(), values.len() as u32) }
    }
}

/// Methods for terminators.
impl Value {
    pub fn successor_count(self) -> usize {
        LLVMGetNumSuccessors(self.expect()) as usize
    }

    /// Returns the successors of a terminator, in order and with duplicates.
    pub fn successors(self) -> Vec<Block> {
        let terminator = self.expect();
        // SAFETY: the index is below the number of successors.
        (0..LLVMGetNumSuccessors(terminator)).map(|i| unsafe { LLVMGetSuccessor(terminator, i) }).collect()
    }

    pub fn set_successor(self, index: usize, to: Block) {
        let terminator = self.expect();
        assert!(index < LLVMGetNumSuccessors(terminator) as usize, "the terminator has the successor");
        // SAFETY: the index is below the number of successors.
        unsafe { LLVMSetSuccessor(terminator, index as u32, to) }
    }

    /// Replaces every occurrence of `from` among a terminator's successors with `to`.
    pub fn redirect(self, from: Block, to: Block) {
        let taken = self.successors().into_iter().enumerate().filter(|(_, successor)| *successor == from);
        taken.for_each(|(index, _)| self.set_successor(index, to));
    }

    /// Returns the condition of a conditional branch; `None` for other instructions.
    pub fn condition(self) -> Option<Value> {
        ConditionalBranch::of(self).map(|it| LLVMGetCondition(it))
    }

    /// Returns the block where an `invoke` continues if the callee returns.
    pub fn normal_destination(self) -> Block {
        LLVMGetNormalDest(self.expect())
    }

    pub fn set_normal_destination(self, block: Block) {
        LLVMSetNormalDest(self.expect(), block);
    }

    /// Returns the block where an `invoke` continues if the callee throws.
    pub fn unwind_destination(self) -> Block {
        LLVMGetUnwindDest(self.expect())
    }
}

/// Methods for calls.
impl Value {
    pub fn callee(self) -> Value {
        LLVMGetCalledValue(self.expect())
    }

    pub fn calls_intrinsic(self) -> bool {
        self.callee().is_function() && self.callee().intrinsic_id() != 0
    }

    /// Returns the function type with which a call is made.
    pub fn called_type(self) -> Type {
        LLVMGetCalledFunctionType(self.expect()).into()
    }

    pub fn arguments(self) -> impl Iterator<Item = Value> {
        (0..LLVMGetNumArgOperands(self.expect())).map(move |index| self.operand(index))
    }

    pub fn has_operand_bundles(self) -> bool {
        LLVMGetNumOperandBundles(self.expect()) > 0
    }

    /// Returns the calling convention of a call.
    pub fn call_convention(self) -> u32 {
        LLVMGetInstructionCallConv(self.expect())
    }

    pub fn set_call_convention(self, convention: u32) {
        LLVMSetInstructionCallConv(self.expect(), convention);
    }

    /// Returns true for a `call` that is marked as a tail call.
    pub fn is_tail_call(self) -> bool {
        PlainCall::of(self).is_some_and(|call| LLVMIsTailCall(call) != 0)
    }

    pub fn tail_call_kind(self) -> LLVMTailCallKind {
        LLVMGetTailCallKind(self.expect())
    }

    pub fn set_tail_call_kind(self, kind: LLVMTailCallKind) {
        LLVMSetTailCallKind(self.expect(), kind);
    }
}

/// Methods for memory accesses and arithmetic.
impl Value {
    pub fn is_volatile(self) -> bool {
        LLVMGetVolatile(self.expect()) != 0
    }

    pub fn set_volatile(self) {
        LLVMSetVolatile(self.expect(), 1);
    }

    /// Returns the memory order of a load, a store or an atomic update.
    pub fn ordering(self) -> LLVMAtomicOrdering {
        LLVMGetOrdering(self.expect())
    }

    /// Returns the operation of an `atomicrmw`; `None` for other instructions.
    pub fn atomic_operation(self) -> Option<LLVMAtomicRMWBinOp> {
        AtomicUpdate::of(self).map(|it| LLVMGetAtomicRMWBinOp(it))
    }

    /// Returns the predicate of an `icmp`; `None` for other instructions.
    pub fn integer_predicate(self) -> Option<LLVMIntPredicate> {
        IntegerComparison::of(self).map(|it| LLVMGetICmpPredicate(it))
    }

    /// Returns the predicate of an `fcmp`; `None` for other instructions.
    pub fn float_predicate(self) -> Option<LLVMRealPredicate> {
        FloatComparison::of(self).map(|it| LLVMGetFCmpPredicate(it))
    }

    /// Returns the number of clauses of a landing pad; 0 for other instructions.
    pub fn clause_count(self) -> u32 {
        LandingPad::of(self).map_or(0, |it| LLVMGetNumClauses(it))
    }

    /// Returns the indices of an `extractvalue`.
    pub fn extracted_indices(self) -> Vec<u32> {
        let extract = self.expect();
        let count = LLVMGetNumIndices(extract) as usize;
        // SAFETY: LLVM returns a pointer to `count` indices, which live as long as the instruction.
        unsafe { std::slice::from_raw_parts(LLVMGetIndices(extract), count) }.to_vec()
    }

    /// Copies the fast-math flags of `from`, if both are floating-point operations.
    pub fn copy_fast_math(self, from: Value) {
        if let (Some(own), Some(from)) = (FloatOperation::of(self), FloatOperation::of(from)) {
            LLVMSetFastMathFlags(own, LLVMGetFastMathFlags(from));
        }
    }
}
