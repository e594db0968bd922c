//! An instruction builder.

use super::{Block, Module, Value, attribute_kind, copy_fast_math, llvm};
use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMAttributeIndex, LLVMInlineAsmDialect, LLVMIntPredicate};

/// Inserts instructions at a position in a module.
pub struct Builder {
    pub module: Module,
    raw: LLVMBuilderRef,
}

macro_rules! operations {
    ($($(#[$what:meta])* $name:ident: $build:ident,)*) => {
        impl Builder {
            $($(#[$what])* pub fn $name(&self, a: Value, b: Value) -> Value {
                Value(llvm!($build(self.raw, a.0, b.0, c"".as_ptr())))
            })*
        }
    };
}

operations! {
    add: LLVMBuildAdd,
    subtract: LLVMBuildSub,
    multiply: LLVMBuildMul,
    and: LLVMBuildAnd,
    or: LLVMBuildOr,
    xor: LLVMBuildXor,
    shift_left: LLVMBuildShl,
    /// Logical `a >> b`
    shift_right: LLVMBuildLShr,
}

impl Builder {
    fn new(module: Module) -> Builder {
        Builder { module, raw: llvm!(LLVMCreateBuilderInContext(module.context())) }
    }

    /// Inserts before an instruction, with the given debug location.
    pub fn before(module: Module, instruction: Value, location: Option<LLVMMetadataRef>) -> Builder {
        let builder = Builder::new(module);
        llvm!(LLVMPositionBuilderBefore(builder.raw, instruction.0));
        builder.locate(location)
    }

    /// Inserts an empty phi node before an instruction and before the debug records attached to it, which no phi node may follow.
    pub fn phi_before(module: Module, instruction: Value, kind: LLVMTypeRef, location: Option<LLVMMetadataRef>) -> Value {
        let builder = Builder::new(module);
        llvm!(LLVMPositionBuilderBeforeInstrAndDbgRecords(builder.raw, instruction.0));
        builder.locate(location).phi(kind)
    }

    pub fn phi_at_top(module: Module, block: Block, kind: LLVMTypeRef, location: Option<LLVMMetadataRef>) -> Value {
        Builder::phi_before(module, block.instructions().next().expect("a block has a terminator"), kind, location)
    }

    /// Inserts an empty phi node with the type, location and fast-math flags of `phi`.
    pub fn phi_like(module: Module, phi: Value, before: Value) -> Value {
        let new = Builder::phi_before(module, before, phi.kind(), phi.location());
        copy_fast_math(phi, new);
        new
    }

    /// Appends to a block, with the given debug location.
    pub fn at_end(module: Module, block: Block, location: Option<LLVMMetadataRef>) -> Builder {
        let builder = Builder::new(module);
        llvm!(LLVMPositionBuilderAtEnd(builder.raw, block.0));
        builder.locate(location)
    }

    fn locate(self, location: Option<LLVMMetadataRef>) -> Builder {
        llvm!(LLVMSetCurrentDebugLocation2(self.raw, location.unwrap_or(std::ptr::null_mut())));
        self
    }

    pub fn raw(&self) -> LLVMBuilderRef {
        self.raw
    }

    pub fn constant(&self, value: u64) -> Value {
        self.module.constant(value as i64)
    }

    /// `br label %to`
    pub fn jump(&self, to: Block) {
        llvm!(LLVMBuildBr(self.raw, to.0));
    }

    /// `br i1 %condition, label %yes, label %no`
    pub fn branch(&self, condition: Value, yes: Block, no: Block) -> Value {
        Value(llvm!(LLVMBuildCondBr(self.raw, condition.0, yes.0, no.0)))
    }

    pub fn phi(&self, kind: LLVMTypeRef) -> Value {
        Value(llvm!(LLVMBuildPhi(self.raw, kind, c"".as_ptr())))
    }

    pub fn compare(&self, how: LLVMIntPredicate, a: Value, b: Value) -> Value {
        Value(llvm!(LLVMBuildICmp(self.raw, how, a.0, b.0, c"".as_ptr())))
    }

    pub fn equal(&self, a: Value, b: Value) -> Value {
        self.compare(LLVMIntPredicate::LLVMIntEQ, a, b)
    }

    pub fn select(&self, condition: Value, yes: Value, no: Value) -> Value {
        Value(llvm!(LLVMBuildSelect(self.raw, condition.0, yes.0, no.0, c"".as_ptr())))
    }

    pub fn zero_extend(&self, number: Value) -> Value {
        Value(llvm!(LLVMBuildZExt(self.raw, number.0, self.module.i64(), c"".as_ptr())))
    }

    pub fn pointer_to_int(&self, address: Value) -> Value {
        Value(llvm!(LLVMBuildPtrToInt(self.raw, address.0, self.module.i64(), c"".as_ptr())))
    }

    /// Builds `freeze`: turns poison into an arbitrary but fixed value.
    pub fn freeze(&self, value: Value) -> Value {
        Value(llvm!(LLVMBuildFreeze(self.raw, value.0, c"".as_ptr())))
    }

    pub fn call(&self, function: Value, arguments: &[Value]) -> Value {
        self.call_as(llvm!(LLVMGlobalGetValueType(function.0)), function, arguments)
    }

    /// Builds a call of `callee` as a function of type `kind`.
    pub fn call_as(&self, kind: LLVMTypeRef, callee: Value, arguments: &[Value]) -> Value {
        let mut arguments: Vec<LLVMValueRef> = arguments.iter().map(|a| a.0).collect();
        Value(llvm!(LLVMBuildCall2(self.raw, kind, callee.0, arguments.as_mut_ptr(), arguments.len() as u32, c"".as_ptr())))
    }

    /// Builds inline assembly with side effects, in AT&T syntax.
    pub fn assembly(&self, result: LLVMTypeRef, text: &str, registers: &str, operands: &[Value]) -> Value {
        self.assembly_with(true, result, text, registers, operands)
    }

    /// Builds inline assembly whose first operands are words of memory at `addresses`.
    pub fn assembly_on_memory(&self, text: &str, constraints: &str, addresses: &[Value], others: &[Value]) {
        let operands: Vec<Value> = addresses.iter().chain(others).copied().collect();
        let call = self.assembly(self.module.void(), text, constraints, &operands);
        let word = llvm!(LLVMCreateTypeAttribute(self.module.context(), attribute_kind("elementtype"), self.module.i64()));
        for number in 1..=addresses.len() {
            llvm!(LLVMAddCallSiteAttribute(call.0, number as LLVMAttributeIndex, word));
        }
    }

    /// Hides a value from code generation, so that nothing can be inferred about it.
    pub fn opaque(&self, value: Value) -> Value {
        self.assembly_with(false, value.kind(), "", "=r,0", &[value])
    }

    fn assembly_with(&self, effects: bool, result: LLVMTypeRef, text: &str, registers: &str, operands: &[Value]) -> Value {
        let mut kinds: Vec<LLVMTypeRef> = operands.iter().map(|o| o.kind()).collect();
        let kind = llvm!(LLVMFunctionType(result, kinds.as_mut_ptr(), kinds.len() as u32, 0));
        let (dialect, effects) = (LLVMInlineAsmDialect::LLVMInlineAsmDialectATT, effects.into());
        let (text_at, registers_at) = (text.as_ptr().cast(), registers.as_ptr().cast());
        let assembly = llvm!(LLVMGetInlineAsm(kind, text_at, text.len(), registers_at, registers.len(), effects, 0, dialect, 0));
        self.call_as(kind, Value(assembly), operands)
    }

    /// Counts leading or trailing zeros with the given intrinsic; the result for 0 is 64.
    pub fn count_zeros(&self, intrinsic: &str, number: Value) -> Value {
        let defined = llvm!(LLVMConstInt(llvm!(LLVMInt1TypeInContext(self.module.context())), 0, 0));
        self.call(self.module.intrinsic(intrinsic, &mut [self.module.i64()]), &[number, Value(defined)])
    }

    /// Builds the address `base + offset`, in units of `element`.
    pub fn offset(&self, element: LLVMTypeRef, base: Value, offset: Value) -> Value {
        let mut indices = [offset.0];
        Value(llvm!(LLVMBuildGEP2(self.raw, element, base.0, indices.as_mut_ptr(), 1, c"".as_ptr())))
    }

    pub fn load(&self, kind: LLVMTypeRef, from: Value) -> Value {
        Value(llvm!(LLVMBuildLoad2(self.raw, kind, from.0, c"".as_ptr())))
    }

    pub fn store(&self, value: Value, to: Value) -> Value {
        Value(llvm!(LLVMBuildStore(self.raw, value.0, to.0)))
    }

    /// Inserts an instruction that was removed from its block.
    pub fn insert(&self, instruction: Value) {
        llvm!(LLVMInsertIntoBuilder(self.raw, instruction.0));
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        llvm!(LLVMDisposeBuilder(self.raw));
    }
}
