//! Builds instructions at a place.

use super::{Block, Module, Value, attribute_kind, copy_fast_math, llvm};
use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMAttributeIndex, LLVMInlineAsmDialect, LLVMIntPredicate};

/// Builds instructions at a place of a module.
pub struct Builder {
    /// The module.
    pub module: Module,
    raw: LLVMBuilderRef,
}

/// Names operations on two numbers.
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
    /// `a + b`
    add: LLVMBuildAdd,
    /// `a - b`
    subtract: LLVMBuildSub,
    /// `a * b`
    multiply: LLVMBuildMul,
    /// `a & b`
    and: LLVMBuildAnd,
    /// `a | b`
    or: LLVMBuildOr,
    /// `a ^ b`
    xor: LLVMBuildXor,
    /// `a << b`
    shift_left: LLVMBuildShl,
    /// `a >> b`, where what is lost is zeros.
    shift_right: LLVMBuildLShr,
}

impl Builder {
    fn new(module: Module) -> Builder {
        Builder { module, raw: llvm!(LLVMCreateBuilderInContext(module.context())) }
    }

    /// Inserts in front of an instruction; what is built has the given debug location.
    pub fn before(module: Module, instruction: Value, location: Option<LLVMMetadataRef>) -> Builder {
        let builder = Builder::new(module);
        llvm!(LLVMPositionBuilderBefore(builder.raw, instruction.0));
        builder.locate(location)
    }

    /// An empty phi node in front of an instruction, and in front of what debug information holds of variables there:
    /// no phi node may come behind that.
    pub fn phi_before(module: Module, instruction: Value, kind: LLVMTypeRef, location: Option<LLVMMetadataRef>) -> Value {
        let builder = Builder::new(module);
        llvm!(LLVMPositionBuilderBeforeInstrAndDbgRecords(builder.raw, instruction.0));
        builder.locate(location).phi(kind)
    }

    /// The same at the beginning of a block.
    pub fn phi_at_top(module: Module, block: Block, kind: LLVMTypeRef, location: Option<LLVMMetadataRef>) -> Value {
        Builder::phi_before(module, block.instructions().next().expect("a block has a terminator"), kind, location)
    }

    /// The same that merges what another does.
    pub fn phi_like(module: Module, phi: Value, before: Value) -> Value {
        let new = Builder::phi_before(module, before, phi.kind(), phi.location());
        copy_fast_math(phi, new);
        new
    }

    /// Inserts at the end of a block.
    pub fn at_end(module: Module, block: Block, location: Option<LLVMMetadataRef>) -> Builder {
        let builder = Builder::new(module);
        llvm!(LLVMPositionBuilderAtEnd(builder.raw, block.0));
        builder.locate(location)
    }

    fn locate(self, location: Option<LLVMMetadataRef>) -> Builder {
        llvm!(LLVMSetCurrentDebugLocation2(self.raw, location.unwrap_or(std::ptr::null_mut())));
        self
    }

    /// LLVM's handle.
    pub fn raw(&self) -> LLVMBuilderRef {
        self.raw
    }

    /// A constant of type `i64`.
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

    /// An empty phi node.
    pub fn phi(&self, kind: LLVMTypeRef) -> Value {
        Value(llvm!(LLVMBuildPhi(self.raw, kind, c"".as_ptr())))
    }

    /// Compares two integers.
    pub fn compare(&self, how: LLVMIntPredicate, a: Value, b: Value) -> Value {
        Value(llvm!(LLVMBuildICmp(self.raw, how, a.0, b.0, c"".as_ptr())))
    }

    /// Whether two integers are equal.
    pub fn equal(&self, a: Value, b: Value) -> Value {
        self.compare(LLVMIntPredicate::LLVMIntEQ, a, b)
    }

    /// One of two values.
    pub fn select(&self, condition: Value, yes: Value, no: Value) -> Value {
        Value(llvm!(LLVMBuildSelect(self.raw, condition.0, yes.0, no.0, c"".as_ptr())))
    }

    /// A number of fewer bits as one of 64.
    pub fn widen(&self, number: Value) -> Value {
        Value(llvm!(LLVMBuildZExt(self.raw, number.0, self.module.i64(), c"".as_ptr())))
    }

    /// An address as a number.
    pub fn number_of(&self, address: Value) -> Value {
        Value(llvm!(LLVMBuildPtrToInt(self.raw, address.0, self.module.i64(), c"".as_ptr())))
    }

    /// The same value, and some value where it is poison.
    pub fn freeze(&self, value: Value) -> Value {
        Value(llvm!(LLVMBuildFreeze(self.raw, value.0, c"".as_ptr())))
    }

    /// Calls a function.
    pub fn call(&self, function: Value, arguments: &[Value]) -> Value {
        self.call_as(llvm!(LLVMGlobalGetValueType(function.0)), function, arguments)
    }

    /// Calls something as a function of that type.
    pub fn call_as(&self, kind: LLVMTypeRef, callee: Value, arguments: &[Value]) -> Value {
        let mut arguments: Vec<LLVMValueRef> = arguments.iter().map(|a| a.0).collect();
        Value(llvm!(LLVMBuildCall2(self.raw, kind, callee.0, arguments.as_mut_ptr(), arguments.len() as u32, c"".as_ptr())))
    }

    /// Inline assembly that has effects, in AT&T syntax.
    pub fn assembly(&self, result: LLVMTypeRef, text: &str, registers: &str, operands: &[Value]) -> Value {
        self.assembly_with(true, result, text, registers, operands)
    }

    /// The same with operands that are words of memory, at the given addresses.
    pub fn assembly_on_memory(&self, text: &str, constraints: &str, addresses: &[Value], others: &[Value]) {
        let operands: Vec<Value> = addresses.iter().chain(others).copied().collect();
        let call = self.assembly(self.module.void(), text, constraints, &operands);
        let word = llvm!(LLVMCreateTypeAttribute(self.module.context(), attribute_kind("elementtype"), self.module.i64()));
        for number in 1..=addresses.len() {
            llvm!(LLVMAddCallSiteAttribute(call.0, number as LLVMAttributeIndex, word));
        }
    }

    /// The same value, which code generation does not see through.
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

    /// The zeros at one end of a number, by the intrinsic function that counts these: 64 of the number 0.
    pub fn count_zeros(&self, intrinsic: &str, number: Value) -> Value {
        let defined = llvm!(LLVMConstInt(llvm!(LLVMInt1TypeInContext(self.module.context())), 0, 0));
        self.call(self.module.intrinsic(intrinsic, &mut [self.module.i64()]), &[number, Value(defined)])
    }

    /// Address `offset` elements of type `element` behind `base`.
    pub fn offset(&self, element: LLVMTypeRef, base: Value, offset: Value) -> Value {
        let mut indices = [offset.0];
        Value(llvm!(LLVMBuildGEP2(self.raw, element, base.0, indices.as_mut_ptr(), 1, c"".as_ptr())))
    }

    /// Loads a value.
    pub fn load(&self, kind: LLVMTypeRef, from: Value) -> Value {
        Value(llvm!(LLVMBuildLoad2(self.raw, kind, from.0, c"".as_ptr())))
    }

    /// Stores a value.
    pub fn store(&self, value: Value, to: Value) -> Value {
        Value(llvm!(LLVMBuildStore(self.raw, value.0, to.0)))
    }

    /// Moves an instruction that was taken out of its block to the builder's place.
    pub fn insert(&self, instruction: Value) {
        llvm!(LLVMInsertIntoBuilder(self.raw, instruction.0));
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        llvm!(LLVMDisposeBuilder(self.raw));
    }
}
