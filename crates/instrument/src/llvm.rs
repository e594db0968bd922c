//! Thin wrappers for the parts of LLVM-C that the plugin uses.
//!
//! Handles are copies of pointers into the module that clang passed in. The module outlives the call of the plugin, and handles are
//! dropped before the call ends. Values are deleted only explicitly: deleting an instruction ([`Value::erase`]) is unsafe, and code that
//! deletes a function or a global has just created it, or has replaced all its uses, and drops the handle.

mod builder;
mod module;
#[cfg(test)]
pub mod test_module;

use crate::host::type_kind;
use llvm_sys::core::*;
use llvm_sys::debuginfo::*;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMOpcode, LLVMTypeKind};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_uint};

pub use builder::Builder;
pub use module::{Module, OwnModule};

/// Calls a function of LLVM-C, which requires of its arguments:
///
/// - *Handles are live.* They come from LLVM, for the module being compiled, and safe code deletes no value to which it keeps a handle
///   (see the module's documentation). LLVM's passes do delete values; they run only on modules to which no handle is kept (`passes.rs`).
/// - *Values have the kind that the function expects.* The caller has checked (`is`, `opcode`, `LLVMIsA...`), or has created the value
///   itself. LLVM builds with assertions abort on a violation.
///
/// Pointers to arrays come with their lengths and live until the call returns.
macro_rules! llvm {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: see the documentation of the macro.
        unsafe { $function($($argument),*) }
    };
}
pub(crate) use llvm;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block(pub LLVMBasicBlockRef);

/// A value: a function, an instruction, a constant, and so on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Value(pub LLVMValueRef);

fn text(pointer: *const c_char, length: usize) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: LLVM returned the pointer together with the length of the string.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// Copies a string that LLVM allocated for its caller, and frees it.
pub fn owned(message: *mut c_char) -> String {
    // SAFETY: LLVM returned a NUL-terminated string, which is copied before it is freed.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    llvm!(LLVMDisposeMessage(message));
    text
}

/// Converts to a C string, dropping NUL characters (which do not occur in the names used here).
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).expect("zero bytes were removed")
}

impl Block {
    pub fn instructions(self) -> impl Iterator<Item = Value> {
        let first = llvm!(LLVMGetFirstInstruction(self.0));
        std::iter::successors(Value::some(first), |i| i.next())
    }

    pub fn phis(self) -> impl Iterator<Item = Value> {
        self.instructions().take_while(|i| i.is(LLVMOpcode::LLVMPHI))
    }

    pub fn function(self) -> Value {
        Value(llvm!(LLVMGetBasicBlockParent(self.0)))
    }

    /// Returns the terminator, which every block of a verified module has.
    pub fn terminator(self) -> Value {
        Value(llvm!(LLVMGetBasicBlockTerminator(self.0)))
    }

    /// Returns the first instruction that is not an `alloca`: in an entry block, the one after the stack variables.
    pub fn after_allocas(self) -> Value {
        self.instructions().find(|i| !i.is(LLVMOpcode::LLVMAlloca)).unwrap_or_else(|| self.terminator())
    }

    pub fn landing_pad(self) -> Option<Value> {
        self.instructions().find(|i| !i.is(LLVMOpcode::LLVMPHI)).filter(|i| i.is(LLVMOpcode::LLVMLandingPad))
    }

    /// Returns the first instruction after phi nodes, landing pad and `alloca`s.
    pub fn after_head(self) -> Value {
        let head = [LLVMOpcode::LLVMPHI, LLVMOpcode::LLVMLandingPad, LLVMOpcode::LLVMAlloca];
        self.instructions().find(|i| !head.contains(&i.opcode())).expect("a block has a terminator")
    }

    /// Returns the first instruction before which code may be inserted: the one after phi nodes and landing pad.
    pub fn first_insertion_point(self) -> Value {
        let skip = |i: &Value| i.is(LLVMOpcode::LLVMPHI) || i.is(LLVMOpcode::LLVMLandingPad);
        self.instructions().find(|i| !skip(i)).expect("a block has a terminator")
    }
}

impl Value {
    /// Wraps a pointer; `None` if it is null.
    pub fn some(raw: LLVMValueRef) -> Option<Value> {
        (!raw.is_null()).then_some(Value(raw))
    }

    pub fn name(self) -> String {
        let mut length = 0;
        let pointer = llvm!(LLVMGetValueName2(self.0, &mut length));
        text(pointer, length)
    }

    pub fn entry(self) -> Block {
        Block(llvm!(LLVMGetEntryBasicBlock(self.0)))
    }

    pub fn blocks(self) -> impl Iterator<Item = Block> {
        let first = llvm!(LLVMGetFirstBasicBlock(self.0));
        std::iter::successors((!first.is_null()).then_some(Block(first)), |b| {
            let next = llvm!(LLVMGetNextBasicBlock(b.0));
            (!next.is_null()).then_some(Block(next))
        })
    }

    pub fn next(self) -> Option<Value> {
        Value::some(llvm!(LLVMGetNextInstruction(self.0)))
    }

    pub fn block(self) -> Block {
        Block(llvm!(LLVMGetInstructionParent(self.0)))
    }

    pub fn is_instruction(self) -> bool {
        !llvm!(LLVMIsAInstruction(self.0)).is_null()
    }

    pub fn opcode(self) -> LLVMOpcode {
        llvm!(LLVMGetInstructionOpcode(self.0))
    }

    pub fn is(self, opcode: LLVMOpcode) -> bool {
        self.opcode() == opcode
    }

    /// Returns true for `call`, `invoke` and `callbr`.
    pub fn is_call(self) -> bool {
        matches!(self.opcode(), LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMCallBr)
    }

    pub fn calls_intrinsic(self) -> bool {
        self.callee().is_function() && self.callee().intrinsic() != 0
    }

    pub fn callee(self) -> Value {
        Value(llvm!(LLVMGetCalledValue(self.0)))
    }

    pub fn is_function(self) -> bool {
        !llvm!(LLVMIsAFunction(self.0)).is_null()
    }

    pub fn parameters(self) -> Vec<Value> {
        (0..llvm!(LLVMCountParams(self.0))).map(|i| Value(llvm!(LLVMGetParam(self.0, i)))).collect()
    }

    pub fn is_global_variable(self) -> bool {
        !llvm!(LLVMIsAGlobalVariable(self.0)).is_null()
    }

    pub fn is_constant(self) -> bool {
        llvm!(LLVMIsConstant(self.0)) != 0
    }

    /// Returns the initial value of a global variable, if this module defines it.
    pub fn initializer(self) -> Option<Value> {
        Value::some(llvm!(LLVMGetInitializer(self.0)))
    }

    pub fn is_assembly(self) -> bool {
        !llvm!(LLVMIsAInlineAsm(self.0)).is_null()
    }

    pub fn assembly_text(self) -> String {
        let mut length = 0;
        let pointer = llvm!(LLVMGetInlineAsmAsmString(self.0, &mut length));
        text(pointer, length)
    }

    /// Returns the ID of an intrinsic; 0 for other functions.
    pub fn intrinsic(self) -> u32 {
        llvm!(LLVMGetIntrinsicID(self.0))
    }

    pub fn kind(self) -> LLVMTypeRef {
        llvm!(LLVMTypeOf(self.0))
    }

    pub fn is_void(self) -> bool {
        type_kind(self.kind()) == LLVMTypeKind::LLVMVoidTypeKind
    }

    /// Returns true for a token, which no phi node can merge.
    pub fn is_token(self) -> bool {
        type_kind(self.kind()) == LLVMTypeKind::LLVMTokenTypeKind
    }

    pub fn operand(self, index: u32) -> Value {
        Value(llvm!(LLVMGetOperand(self.0, index)))
    }

    pub fn operand_count(self) -> u32 {
        llvm!(LLVMGetNumOperands(self.0)).max(0) as u32
    }

    pub fn operands(self) -> impl Iterator<Item = Value> {
        (0..self.operand_count()).map(move |index| self.operand(index))
    }

    pub fn arguments(self) -> impl Iterator<Item = Value> {
        (0..llvm!(LLVMGetNumArgOperands(self.0))).map(move |index| self.operand(index))
    }

    /// Returns the successors of a terminator, in order and with duplicates.
    pub fn successors(self) -> Vec<Block> {
        let count = llvm!(LLVMGetNumSuccessors(self.0));
        (0..count).map(|i| Block(llvm!(LLVMGetSuccessor(self.0, i)))).collect()
    }

    pub fn set_successor(self, index: usize, to: Block) {
        llvm!(LLVMSetSuccessor(self.0, index as c_uint, to.0));
    }

    /// Replaces every occurrence of the successor `from` of a terminator by `to`.
    pub fn redirect(self, from: Block, to: Block) {
        let taken = self.successors().into_iter().enumerate().filter(|(_, successor)| *successor == from);
        taken.for_each(|(index, _)| self.set_successor(index, to));
    }

    pub fn incoming_from(self, block: Block) -> Option<Value> {
        self.incoming().into_iter().find(|(_, from)| *from == block).map(|(value, _)| value)
    }

    pub fn incoming(self) -> Vec<(Value, Block)> {
        let count = llvm!(LLVMCountIncoming(self.0));
        (0..count).map(|i| (Value(llvm!(LLVMGetIncomingValue(self.0, i))), Block(llvm!(LLVMGetIncomingBlock(self.0, i))))).collect()
    }

    pub fn add_incoming(self, incoming: &[(Value, Block)]) {
        let (mut values, mut blocks): (Vec<_>, Vec<_>) = incoming.iter().map(|(v, b)| (v.0, b.0)).unzip();
        llvm!(LLVMAddIncoming(self.0, values.as_mut_ptr(), blocks.as_mut_ptr(), incoming.len() as c_uint));
    }

    pub fn replace_uses(self, by: Value) {
        llvm!(LLVMReplaceAllUsesWith(self.0, by.0));
    }

    /// Deletes an instruction without uses.
    ///
    /// # Safety
    /// No copy of the handle may be passed to LLVM afterwards. Copies may still be compared with each other. An instruction that is
    /// created later may get the same address, so compare with it only if a false match is harmless.
    pub unsafe fn erase(self) {
        llvm!(LLVMInstructionEraseFromParent(self.0));
    }

    pub fn users(self) -> impl Iterator<Item = Value> {
        self.uses().map(|u| Value(llvm!(LLVMGetUser(u))))
    }

    /// Returns the direct calls of a function: each once, even if the call also passes the function as an argument.
    pub fn calls(self) -> impl Iterator<Item = Value> {
        // The callee is the last operand.
        let is_callee = |u: LLVMUseRef, call: Value| call.is_call() && llvm!(LLVMGetOperandUse(call.0, call.operand_count() - 1)) == u;
        self.uses()
            .map(|u| (u, Value(llvm!(LLVMGetUser(u)))))
            .filter(move |(u, user)| user.is_instruction() && is_callee(*u, *user))
            .map(|(_, call)| call)
    }

    fn uses(self) -> impl Iterator<Item = LLVMUseRef> {
        let first = llvm!(LLVMGetFirstUse(self.0));
        std::iter::successors((!first.is_null()).then_some(first), |u| {
            let next = llvm!(LLVMGetNextUse(*u));
            (!next.is_null()).then_some(next)
        })
    }

    pub fn metadata(self, kind: &str) -> Option<Value> {
        let context = llvm!(LLVMGetTypeContext(self.kind()));
        Value::some(llvm!(LLVMGetMetadata(self.0, metadata_kind(context, kind))))
    }

    /// Attaches metadata to an instruction; `None` removes it.
    pub fn set_metadata(self, context: LLVMContextRef, kind: &str, node: Option<LLVMMetadataRef>) {
        let kind = metadata_kind(context, kind);
        let value = node.map_or(std::ptr::null_mut(), |node| llvm!(LLVMMetadataAsValue(context, node)));
        llvm!(LLVMSetMetadata(self.0, kind, value));
    }

    /// Returns the operands of a metadata node, `None` for null operands.
    pub fn metadata_operands(self) -> Vec<Option<Value>> {
        let count = llvm!(LLVMGetMDNodeNumOperands(self.0)) as usize;
        let mut operands = vec![std::ptr::null_mut(); count];
        llvm!(LLVMGetMDNodeOperands(self.0, operands.as_mut_ptr()));
        operands.into_iter().map(Value::some).collect()
    }

    pub fn metadata_text(self) -> Option<String> {
        Some(String::from_utf8_lossy(&self.metadata_bytes()?).into_owned())
    }

    pub fn metadata_bytes(self) -> Option<Vec<u8>> {
        let mut length = 0;
        let pointer = llvm!(LLVMGetMDString(self.0, &mut length));
        // SAFETY: LLVM's string has that many bytes, and lives as long as the context.
        (!pointer.is_null()).then(|| unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length as usize) }.to_vec())
    }

    /// Returns the bytes of a constant array of `i8`.
    pub fn bytes(self) -> Option<Vec<u8>> {
        let is_bytes = !llvm!(LLVMIsAConstantDataSequential(self.0)).is_null() && llvm!(LLVMIsConstantString(self.0)) != 0;
        let mut length = 0;
        let pointer = if is_bytes { llvm!(LLVMGetAsString(self.0, &mut length)) } else { std::ptr::null() };
        // SAFETY: LLVM's constant has that many bytes, and lives as long as the context.
        (!pointer.is_null()).then(|| unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) }.to_vec())
    }

    /// Returns the value of a constant integer, sign-extended. `None` for other values and for integers wider than 64 bits.
    pub fn as_integer(self) -> Option<i64> {
        let constant = llvm!(LLVMIsAConstantInt(self.0));
        if constant.is_null() || llvm!(LLVMGetIntTypeWidth(llvm!(LLVMTypeOf(constant)))) > 64 {
            return None;
        }
        Some(llvm!(LLVMConstIntGetSExtValue(constant)))
    }

    /// Returns the width in bits, or `None` if the value is not an integer.
    pub fn integer_width(self) -> Option<u32> {
        let kind = self.kind();
        (type_kind(kind) == LLVMTypeKind::LLVMIntegerTypeKind).then(|| llvm!(LLVMGetIntTypeWidth(kind)))
    }

    pub fn has_attribute(self, name: &str) -> bool {
        let kind = attribute_kind(name);
        !llvm!(LLVMGetEnumAttributeAtIndex(self.0, LLVMAttributeFunctionIndex, kind)).is_null()
    }

    /// Returns true if a function has an attribute that is a string rather than one of LLVM's enumerated attributes.
    pub fn has_text_attribute(self, name: &str) -> bool {
        let (text, length) = (name.as_ptr().cast(), name.len() as c_uint);
        !llvm!(LLVMGetStringAttributeAtIndex(self.0, LLVMAttributeFunctionIndex, text, length)).is_null()
    }

    pub fn remove_attribute(self, name: &str) {
        llvm!(LLVMRemoveEnumAttributeAtIndex(self.0, LLVMAttributeFunctionIndex, attribute_kind(name)));
    }

    /// Returns true if a call, or the function it calls directly, has the attribute.
    pub fn call_has_attribute(self, name: &str) -> bool {
        let kind = attribute_kind(name);
        let here = llvm!(LLVMGetCallSiteEnumAttribute(self.0, LLVMAttributeFunctionIndex, kind));
        !here.is_null() || (self.callee().is_function() && self.callee().has_attribute(name))
    }

    pub fn location(self) -> Option<LLVMMetadataRef> {
        let location = llvm!(LLVMInstructionGetDebugLoc(self.0));
        (!location.is_null()).then_some(location)
    }

    /// Sets the debug location of an instruction; `None` removes it.
    pub fn set_location(self, location: Option<LLVMMetadataRef>) {
        llvm!(LLVMInstructionSetDebugLoc(self.0, location.unwrap_or(std::ptr::null_mut())));
    }
}

pub fn metadata_kind(context: LLVMContextRef, name: &str) -> c_uint {
    llvm!(LLVMGetMDKindIDInContext(context, name.as_ptr().cast(), name.len() as c_uint))
}

thread_local! {
    /// Cache of attribute kinds, because LLVM finds a kind by comparing the name with all others, and several are looked up per call.
    static ATTRIBUTE_KINDS: RefCell<Vec<(String, c_uint)>> = const { RefCell::new(Vec::new()) };
}

pub fn attribute_kind(name: &str) -> c_uint {
    ATTRIBUTE_KINDS.with_borrow_mut(|known| {
        if let Some((_, kind)) = known.iter().find(|(other, _)| other == name) {
            return *kind;
        }
        let kind = llvm!(LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()));
        known.push((name.to_owned(), kind));
        kind
    })
}

/// Returns the folder and the name of a debug-information file.
pub fn file_name(file: LLVMMetadataRef) -> (String, String) {
    let mut length: c_uint = 0;
    let folder = llvm!(LLVMDIFileGetDirectory(file, &mut length));
    let folder = text(folder, length as usize);
    let name = llvm!(LLVMDIFileGetFilename(file, &mut length));
    (folder, text(name, length as usize))
}

pub fn copy_fast_math(from: Value, to: Value) {
    if llvm!(LLVMCanValueUseFastMathFlags(from.0)) != 0 {
        llvm!(LLVMSetFastMathFlags(to.0, llvm!(LLVMGetFastMathFlags(from.0))));
    }
}
