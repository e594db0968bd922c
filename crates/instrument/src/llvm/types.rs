//! Types, and constants of given types.

use super::classes::*;
use super::functions::*;
use super::handles::{LlvmContext, Module, Type, Value};
use super::values::take;
use crate::host::type_kind;
use llvm_sys::LLVMTypeKind::{
    LLVMArrayTypeKind, LLVMFunctionTypeKind, LLVMLabelTypeKind, LLVMMetadataTypeKind, LLVMPointerTypeKind, LLVMVoidTypeKind,
};

/// Maximum width of an integer type, in bits.
const MAX_INTEGER_BITS: u32 = 1 << 23;

impl LlvmContext {
    /// Returns the integer type with that many bits.
    pub fn integer(self, bits: u32) -> Type {
        assert!((1..=MAX_INTEGER_BITS).contains(&bits), "LLVM has the type");
        // SAFETY: LLVM has integers with that many bits.
        unsafe { LLVMIntTypeInContext(self, bits) }
    }
}

impl Type {
    /// Returns a function type without variable arguments.
    pub fn function(result: Type, parameters: &[Type]) -> Type {
        let is_no_value = |kind: Type| [LLVMFunctionTypeKind, LLVMLabelTypeKind].contains(&type_kind(kind));
        assert!(!is_no_value(result) && type_kind(result) != LLVMMetadataTypeKind, "a function may return the type");
        assert!(!parameters.iter().any(|kind| is_no_value(*kind) || type_kind(*kind) == LLVMVoidTypeKind), "parameters may have the types");
        // SAFETY: the array has that many types, which parameters may have, and functions may return `result`.
        unsafe { LLVMFunctionType(result, parameters.as_ptr(), parameters.len() as u32, 0) }
    }

    /// Returns the type of an array of `count` elements of this type.
    pub fn array(self, count: u64) -> Type {
        LLVMArrayType2(self.expect(), count)
    }

    pub fn context(self) -> LlvmContext {
        LLVMGetTypeContext(self)
    }

    /// Returns the type in LLVM's assembly language.
    pub fn printed(self) -> String {
        take(LLVMPrintTypeToString(self))
    }

    /// Returns the number of bits of an integer type; `None` for other types.
    pub fn width(self) -> Option<u32> {
        IntegerType::of(self).map(|it| LLVMGetIntTypeWidth(it))
    }

    pub fn is_pointer(self) -> bool {
        type_kind(self) == LLVMPointerTypeKind
    }

    pub fn is_array(self) -> bool {
        type_kind(self) == LLVMArrayTypeKind
    }

    /// Returns the type of a function's result.
    pub fn result(self) -> Type {
        LLVMGetReturnType(self.expect())
    }

    /// Returns the types of a function's parameters.
    pub fn parameters(self) -> Vec<Type> {
        let function = self.expect();
        let mut types = vec![None; LLVMCountParamTypes(function) as usize];
        // SAFETY: the array has as many elements as the function has parameters.
        unsafe { LLVMGetParamTypes(function, types.as_mut_ptr()) };
        types.into_iter().flatten().collect()
    }

    /// Returns true for the type of a function with variable arguments.
    pub fn is_variadic(self) -> bool {
        LLVMIsFunctionVarArg(self.expect()) != 0
    }

    /// Returns the types of a structure's elements.
    pub fn structure_elements(self) -> Vec<Type> {
        let structure = self.expect();
        // SAFETY: the index is below the number of elements.
        (0..LLVMCountStructElementTypes(structure)).map(|at| unsafe { LLVMStructGetTypeAtIndex(structure, at) }).collect()
    }

    /// Returns the number and the type of an array's elements.
    pub fn array_elements(self) -> (u64, Type) {
        let array = self.expect();
        (LLVMGetArrayLength2(array), LLVMGetElementType(array))
    }

    /// Returns the number of bytes that a value of this type occupies in memory, without trailing padding.
    pub fn store_size(self, module: Module) -> u64 {
        LLVMStoreSizeOfType(LLVMGetModuleDataLayout(module), self.expect())
    }

    /// Returns the size in bytes, with trailing padding, and the alignment of an argument that is passed in memory.
    pub fn abi_size_and_alignment(self, module: Module) -> (u64, u32) {
        let layout = LLVMGetModuleDataLayout(module);
        (LLVMABISizeOfType(layout, self.expect()), LLVMABIAlignmentOfType(layout, self.expect()))
    }

    /// Returns a constant of this integer type. If the type is wider than 64 bits, the value is zero-extended.
    pub fn unsigned(self, value: u64) -> Value {
        LLVMConstInt(self.expect(), value, 0)
    }

    /// Returns a constant of this integer type. If the type is wider than 64 bits, the value is sign-extended.
    pub fn signed(self, value: i64) -> Value {
        LLVMConstInt(self.expect(), value as u64, 1)
    }

    /// Returns the zero value of this type.
    pub fn null(self) -> Value {
        LLVMConstNull(self.expect())
    }

    pub fn poison(self) -> Value {
        LLVMGetPoison(self)
    }

    /// Converts an integer constant to a pointer of this type.
    pub fn pointer_from(self, address: Value) -> Value {
        assert!(self.is_pointer() && address.is_constant_integer(), "the address is an integer");
        // SAFETY: the constant is an integer, and the type is a pointer type.
        unsafe { LLVMConstIntToPtr(address.expect(), self) }
    }

    /// Returns a constant array with elements of this type.
    pub fn constant_array(self, elements: &[Value]) -> Value {
        assert!(elements.iter().all(|element| element.is_constant() && element.kind() == self), "the elements are constants of the type");
        // SAFETY: the array has that many constants of this type.
        unsafe { LLVMConstArray2(self.expect(), elements.as_ptr(), elements.len() as u64) }
    }

    /// Returns the constant address `base + index`, where `index` counts elements of this type.
    pub fn constant_address(self, base: Value, index: Value) -> Value {
        assert!(base.kind().is_pointer() && index.is_constant_integer(), "the address of a global has a constant offset");
        // SAFETY: the base is a pointer, and the single index is an integer constant, which moves it by multiples of the type's size.
        unsafe { LLVMConstGEP2(self.expect(), base.expect(), &index, 1) }
    }
}

impl Value {
    /// Returns the address of one of the function's blocks, as a constant.
    pub fn address_of_block(self, block: super::Block) -> Value {
        assert!(block.function() == self, "the function has the block");
        // SAFETY: the block is part of the function.
        unsafe { LLVMBlockAddress(self.expect(), block) }
    }
}
