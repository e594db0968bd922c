//! Values of all kinds, their uses and operands, and constants.

use super::classes::*;
use super::functions::*;
use super::handles::{Block, OwnedText, Type, Value, ValueUse};
use crate::host::type_kind;
use llvm_sys::{LLVMOpcode, LLVMTypeKind, LLVMValueKind};
use std::ffi::c_char;

/// Copies a string that LLVM returned; `None` for a null pointer.
///
/// # Safety
/// The pointer must be null, or point to `length` bytes.
pub(super) unsafe fn bytes_of(pointer: *const c_char, length: usize) -> Option<Vec<u8>> {
    // SAFETY: the pointer is not null, so the caller guarantees that it points to `length` bytes.
    (!pointer.is_null()).then(|| unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) }.to_vec())
}

/// Copies a string that LLVM returned; a null pointer gives an empty one.
///
/// # Safety
/// The pointer must be null, or point to `length` bytes.
pub(super) unsafe fn text_of(pointer: *const c_char, length: usize) -> String {
    // SAFETY: this function requires of its caller what `bytes_of` requires.
    unsafe { bytes_of(pointer, length) }.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Copies a string that LLVM allocated for the caller, and frees the original.
pub(super) fn take(text: OwnedText) -> String {
    let copy = text.as_terminated().to_text();
    LLVMDisposeMessage(text);
    copy
}

impl Value {
    pub fn name(self) -> String {
        let mut length = 0;
        let pointer = LLVMGetValueName2(self, &mut length);
        // SAFETY: LLVM returns the name with its length.
        unsafe { text_of(pointer, length) }
    }

    /// Returns the value in LLVM's assembly language.
    pub fn printed(self) -> String {
        take(LLVMPrintValueToString(self))
    }

    pub fn kind(self) -> Type {
        LLVMTypeOf(self)
    }

    /// Returns LLVM's name for the value's class.
    pub fn value_kind(self) -> LLVMValueKind {
        LLVMGetValueKind(self)
    }

    /// Returns true if the instruction has no result.
    pub fn is_void(self) -> bool {
        type_kind(self.kind()) == LLVMTypeKind::LLVMVoidTypeKind
    }

    /// Returns true for a token, which no phi node can merge.
    pub fn is_token(self) -> bool {
        type_kind(self.kind()) == LLVMTypeKind::LLVMTokenTypeKind
    }

    pub fn is_instruction(self) -> bool {
        LLVMIsAInstruction(self).is_some()
    }

    pub fn is_function(self) -> bool {
        LLVMIsAFunction(self).is_some()
    }

    pub fn is_global_variable(self) -> bool {
        LLVMIsAGlobalVariable(self).is_some()
    }

    /// Returns true for a function, a variable or an alias.
    pub fn is_global(self) -> bool {
        LLVMIsAGlobalValue(self).is_some()
    }

    pub fn is_assembly(self) -> bool {
        LLVMIsAInlineAsm(self).is_some()
    }

    pub fn is_block(self) -> bool {
        LLVMValueIsBasicBlock(self) != 0
    }

    pub fn is_constant(self) -> bool {
        LLVMIsConstant(self) != 0
    }

    /// Returns true for `undef` and `poison`, which may have a different value at each use.
    pub fn is_undefined(self) -> bool {
        LLVMIsUndef(self) != 0 || LLVMIsPoison(self) != 0
    }

    pub fn is_constant_array(self) -> bool {
        LLVMIsAConstantArray(self).is_some()
    }

    /// Returns true for a constant that is a number, or an array or vector of numbers.
    pub fn has_only_numbers(self) -> bool {
        LLVMIsAConstantFP(self).or(LLVMIsAConstantDataSequential(self)).or(LLVMIsAConstantInt(self)).is_some()
    }

    /// Returns the opcode of a constant expression; `None` for other values.
    pub fn constant_opcode(self) -> Option<LLVMOpcode> {
        ConstantExpression::of(self).map(|it| LLVMGetConstOpcode(it))
    }

    /// Returns the type whose size is the unit of a `getelementptr`'s first index.
    pub fn element_type(self) -> Type {
        LLVMGetGEPSourceElementType(self.expect())
    }

    /// Returns the function that a parameter belongs to; `None` for other values.
    pub fn function_of_parameter(self) -> Option<Value> {
        Argument::of(self).map(|it| LLVMGetParamParent(it))
    }

    /// Returns the function and the block of a block address; `None` for other values.
    pub fn block_address(self) -> Option<(Value, Block)> {
        let address = BlockAddress::of(self)?;
        Some((LLVMGetBlockAddressFunction(address), LLVMGetBlockAddressBasicBlock(address)))
    }

    pub fn assembly_text(self) -> String {
        let mut length = 0;
        let pointer = LLVMGetInlineAsmAsmString(self.expect(), &mut length);
        // SAFETY: LLVM returns the text with its length.
        unsafe { text_of(pointer, length) }
    }

    /// Returns the content of a constant array of `i8`; `None` for other values.
    pub fn bytes(self) -> Option<Vec<u8>> {
        let mut length = 0;
        let pointer = LLVMGetAsString(ConstantText::of(self)?, &mut length);
        // SAFETY: LLVM returns the constant's content with its length.
        unsafe { bytes_of(pointer, length) }
    }

    /// Returns the value of a constant integer, sign-extended; `None` for other values and for integers wider than 64 bits.
    pub fn as_integer(self) -> Option<i64> {
        ShortInteger::of(self).map(|it| LLVMConstIntGetSExtValue(it))
    }

    /// Returns the width in bits and the zero-extended value of a constant integer; `None` for other values and for integers wider than 64
    /// bits.
    pub fn as_unsigned(self) -> Option<(u32, u64)> {
        let integer = ShortInteger::of(self)?;
        Some((self.integer_width()?, LLVMConstIntGetZExtValue(integer)))
    }

    /// Returns true for a constant integer.
    pub fn is_constant_integer(self) -> bool {
        LLVMIsAConstantInt(self).is_some()
    }

    /// Returns the width in bits of a value of an integer type; `None` for other values.
    pub fn integer_width(self) -> Option<u32> {
        self.kind().width()
    }

    /// Returns an element of a constant structure or array; `None` if there is none.
    pub fn element(self, index: u32) -> Option<Value> {
        LLVMGetAggregateElement(Constant::of(self)?, index)
    }

    pub fn operand_count(self) -> u32 {
        UserValue::of(self).map_or(0, |user| LLVMGetNumOperands(user).max(0) as u32)
    }

    /// Returns an operand; `None` if the value has fewer operands.
    pub fn operand_if_any(self, index: u32) -> Option<Value> {
        let user = UserValue::of(self).filter(|_| index < self.operand_count())?;
        // SAFETY: the index is below the number of operands.
        unsafe { LLVMGetOperand(user, index) }
    }

    pub fn operand(self, index: u32) -> Value {
        self.operand_if_any(index).unwrap_or_else(|| panic!("`{}` has no operand {index}", self.printed().trim()))
    }

    pub fn operands(self) -> impl Iterator<Item = Value> {
        (0..self.operand_count()).map(move |index| self.operand(index))
    }

    /// Replaces an operand of an instruction with another value of the same type.
    pub fn set_operand(self, index: u32, value: Value) {
        assert!(self.operand(index).kind() == value.kind(), "an operand keeps its type");
        // SAFETY: the instruction has the operand, and the value has the operand's type.
        unsafe { LLVMSetOperand(self.expect(), index, value) }
    }

    /// Replaces all uses of an instruction's result with another value of the same type.
    pub fn replace_uses(self, by: Value) {
        assert!(self != by && self.is_instruction() && self.kind() == by.kind(), "an instruction is replaced by a value of its type");
        // SAFETY: the types are equal. No constant has an instruction as its operand, so LLVM frees none.
        unsafe { LLVMReplaceAllUsesWith(self, by) }
    }

    /// Replaces all uses of a constant with another constant of the same type.
    ///
    /// # Safety
    /// No handle to a constant that contains this one, other than a global, may be used afterwards: LLVM replaces and frees such constants.
    pub unsafe fn replace_constant(self, by: Value) {
        assert!(self != by && self.is_constant() && by.is_constant() && self.kind() == by.kind(), "constants are replaced by constants");
        // SAFETY: the types are equal, and the caller uses no handle to a constant that LLVM frees.
        unsafe { LLVMReplaceAllUsesWith(self, by) }
    }

    pub fn users(self) -> impl Iterator<Item = Value> {
        self.uses().map(|it| LLVMGetUser(it))
    }

    /// Returns true if nothing uses the value.
    pub fn is_unused(self) -> bool {
        LLVMGetFirstUse(self).is_none()
    }

    /// Returns the direct calls to a function. A call that also passes the function as an argument is returned once.
    pub fn calls(self) -> impl Iterator<Item = Value> {
        let is_callee = |at: ValueUse, call: Value| {
            let last = call.operand_count() - 1;
            // SAFETY: a call has operands, of which the callee is the last.
            unsafe { LLVMGetOperandUse(call.expect(), last) == at }
        };
        let users = self.uses().map(|at| (at, LLVMGetUser(at)));
        users.filter(move |(at, user)| user.is_call() && is_callee(*at, *user)).map(|(_, call)| call)
    }

    fn uses(self) -> impl Iterator<Item = ValueUse> {
        std::iter::successors(LLVMGetFirstUse(self), |at| LLVMGetNextUse(*at))
    }
}
