//! Declarations of the LLVM-C functions that build instructions.

use crate::llvm::classes::*;
use crate::llvm::handles::*;
use llvm_sys::{LLVMAtomicOrdering, LLVMAtomicRMWBinOp, LLVMInlineAsmDialect, LLVMIntPredicate};
use std::ffi::{c_char, c_int, c_uint};

// SAFETY: a builder handle is live until its owner is dropped. A builder always has a position, at the end of a block or before an
// instruction in one, where it inserts.
unsafe extern "C" {
    pub safe fn LLVMBuildAlloca(builder: BuilderHandle, kind: SizedType, name: Terminated) -> Value;
    pub safe fn LLVMBuildBr(builder: BuilderHandle, to: Block) -> Value;
    pub safe fn LLVMBuildCondBr(builder: BuilderHandle, condition: ConditionValue, yes: Block, no: Block) -> Value;
    pub safe fn LLVMBuildFreeze(builder: BuilderHandle, value: Value, name: Terminated) -> Value;
    pub safe fn LLVMBuildLoad2(builder: BuilderHandle, kind: SizedType, address: Pointer, name: Terminated) -> Value;
    pub safe fn LLVMBuildNot(builder: BuilderHandle, number: NumberValue, name: Terminated) -> Value;
    pub safe fn LLVMBuildPhi(builder: BuilderHandle, kind: Type, name: Terminated) -> Value;
    pub safe fn LLVMBuildPtrToInt(builder: BuilderHandle, address: Pointer, kind: IntegerType, name: Terminated) -> Value;
    pub safe fn LLVMBuildRetVoid(builder: BuilderHandle) -> Value;
    pub safe fn LLVMBuildStore(builder: BuilderHandle, value: Value, address: Pointer) -> Value;
    pub safe fn LLVMBuildUnreachable(builder: BuilderHandle) -> Value;
    pub safe fn LLVMCreateBuilderInContext(context: LlvmContext) -> BuilderHandle;
    pub safe fn LLVMGetInsertBlock(builder: BuilderHandle) -> Option<Block>;
    pub safe fn LLVMPositionBuilderAtEnd(builder: BuilderHandle, block: Block);
    pub safe fn LLVMPositionBuilderBefore(builder: BuilderHandle, instruction: PlacedInstruction);
    pub safe fn LLVMPositionBuilderBeforeInstrAndDbgRecords(builder: BuilderHandle, instruction: PlacedInstruction);
    pub safe fn LLVMSetCurrentDebugLocation2(builder: BuilderHandle, location: Option<DebugLocation>);
}

// SAFETY: each builds an instruction. The comment of each function says what must hold for its operands.
unsafe extern "C" {
    /// The numbers must have the same type. This also applies to the next seven functions.
    pub fn LLVMBuildAdd(builder: BuilderHandle, a: NumberValue, b: NumberValue, name: Terminated) -> Value;
    pub fn LLVMBuildAnd(builder: BuilderHandle, a: NumberValue, b: NumberValue, name: Terminated) -> Value;
    pub fn LLVMBuildLShr(builder: BuilderHandle, a: NumberValue, b: NumberValue, name: Terminated) -> Value;
    pub fn LLVMBuildMul(builder: BuilderHandle, a: NumberValue, b: NumberValue, name: Terminated) -> Value;
    pub fn LLVMBuildOr(builder: BuilderHandle, a: NumberValue, b: NumberValue, name: Terminated) -> Value;
    pub fn LLVMBuildShl(builder: BuilderHandle, a: NumberValue, b: NumberValue, name: Terminated) -> Value;
    pub fn LLVMBuildSub(builder: BuilderHandle, a: NumberValue, b: NumberValue, name: Terminated) -> Value;
    pub fn LLVMBuildXor(builder: BuilderHandle, a: NumberValue, b: NumberValue, name: Terminated) -> Value;
    /// Both must be numbers or pointers of the same type.
    pub fn LLVMBuildICmp(builder: BuilderHandle, predicate: LLVMIntPredicate, a: Value, b: Value, name: Terminated) -> Value;
    /// Both values must have the same type.
    pub fn LLVMBuildSelect(builder: BuilderHandle, condition: ConditionValue, yes: Value, no: Value, name: Terminated) -> Value;
    /// The type must be at least as wide as the number's.
    pub fn LLVMBuildSExt(builder: BuilderHandle, number: NumberValue, kind: IntegerType, name: Terminated) -> Value;
    /// The type must be at least as wide as the number's.
    pub fn LLVMBuildZExt(builder: BuilderHandle, number: NumberValue, kind: IntegerType, name: Terminated) -> Value;
    /// The type must be at most as wide as the number's.
    pub fn LLVMBuildTrunc(builder: BuilderHandle, number: NumberValue, kind: IntegerType, name: Terminated) -> Value;
    /// The value must be a structure, and the index must be below the number of its elements.
    pub fn LLVMBuildExtractValue(builder: BuilderHandle, structure: Value, index: c_uint, name: Terminated) -> Value;
    /// The array must have `count` numbers that are valid indices for the type.
    pub fn LLVMBuildGEP2(
        builder: BuilderHandle,
        kind: SizedType,
        address: Pointer,
        indices: *const NumberValue,
        count: c_uint,
        name: Terminated,
    ) -> Value;
    /// The value must have the function's return type.
    pub fn LLVMBuildRet(builder: BuilderHandle, value: Value) -> Value;
    /// The array must have `count` arguments, of the types of the function's parameters.
    pub fn LLVMBuildCall2(
        builder: BuilderHandle,
        kind: FunctionType,
        callee: Pointer,
        arguments: *const Value,
        count: c_uint,
        name: Terminated,
    ) -> Value;
    /// The array must have `count` arguments, of the types of the function's parameters.
    pub fn LLVMBuildInvoke2(
        builder: BuilderHandle,
        kind: FunctionType,
        callee: Pointer,
        arguments: *const Value,
        count: c_uint,
        normal: Block,
        unwind: Block,
        name: Terminated,
    ) -> Value;
    /// The memory order must be one that an atomic update may have.
    pub fn LLVMBuildAtomicRMW(
        builder: BuilderHandle,
        operation: LLVMAtomicRMWBinOp,
        address: Pointer,
        number: NumberValue,
        order: LLVMAtomicOrdering,
        is_single_threaded: c_int,
    ) -> Value;
    /// The numbers must have the same type, and the memory orders must be ones that a compare-and-exchange may have.
    pub fn LLVMBuildAtomicCmpXchg(
        builder: BuilderHandle,
        address: Pointer,
        expected: NumberValue,
        new: NumberValue,
        success: LLVMAtomicOrdering,
        failure: LLVMAtomicOrdering,
        is_single_threaded: c_int,
    ) -> Value;
    /// The instruction must not be in a block.
    pub fn LLVMInsertIntoBuilder(builder: BuilderHandle, instruction: AnyInstruction);
    /// The builder must not be used afterwards.
    pub fn LLVMDisposeBuilder(builder: BuilderHandle);
    /// Pointers and lengths must describe strings.
    pub fn LLVMGetInlineAsm(
        kind: FunctionType,
        text: *const c_char,
        length: usize,
        constraints: *const c_char,
        constraints_length: usize,
        has_side_effects: c_int,
        aligns_stack: c_int,
        dialect: LLVMInlineAsmDialect,
        can_throw: c_int,
    ) -> Value;
}
