//! Thin names for what the plugin uses of LLVM-C.
//!
//! Handles are copies of pointers into the module that clang handed over; the module outlives the plugin's call, and
//! nothing here keeps a handle beyond it. Within it the module only grows, except where code says otherwise: deleting an
//! instruction ([`Value::erase`]) is unsafe, and the few places that delete a function or a global variable just made it,
//! or replaced all its uses and drop the handle.

mod builder;
mod module;

use llvm_sys::core::*;
use llvm_sys::debuginfo::*;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMOpcode, LLVMTypeKind};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_uint};

pub use builder::Builder;
pub use module::Module;

/// Calls a function of LLVM-C, which has two demands on its arguments:
///
/// - *Handles are live.* They come from LLVM itself, for the module being compiled, and nothing in safe code ends their life
///   while it keeps a copy (see the module's documentation). LLVM's own passes, which do, run on modules of which no handle
///   is kept (`passes.rs`).
/// - *Values are of the kind that the function takes.* The caller has asked for it (`is`, `opcode`, `LLVMIsA...`), or made the
///   value itself. Where it is wrong, LLVM's builds with assertions abort.
///
/// Pointers to arrays go with their lengths, and live until the call returns.
macro_rules! llvm {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: as the documentation of the macro says.
        unsafe { $function($($argument),*) }
    };
}
pub(crate) use llvm;

/// A basic block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Block(pub LLVMBasicBlockRef);

/// A value: function, instruction, constant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Value(pub LLVMValueRef);

fn text(pointer: *const c_char, length: usize) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: LLVM returned the pointer together with the length of the string behind it.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// A text that LLVM made for its caller, who disposes of it.
pub fn owned(made: *mut c_char) -> String {
    // SAFETY: LLVM returned a string that ends with a zero byte, and it is copied before it is disposed of.
    let text = unsafe { CStr::from_ptr(made) }.to_string_lossy().into_owned();
    llvm!(LLVMDisposeMessage(made));
    text
}

/// A C string for LLVM; a zero byte cannot occur in the names used here.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).expect("zero bytes were removed")
}

impl Block {
    /// Its instructions in order.
    pub fn instructions(self) -> impl Iterator<Item = Value> {
        let first = llvm!(LLVMGetFirstInstruction(self.0));
        std::iter::successors(Value::some(first), |i| i.next())
    }

    /// Its phi nodes.
    pub fn phis(self) -> impl Iterator<Item = Value> {
        self.instructions().take_while(|i| i.is(LLVMOpcode::LLVMPHI))
    }

    /// The function that it is a block of.
    pub fn function(self) -> Value {
        Value(llvm!(LLVMGetBasicBlockParent(self.0)))
    }

    /// Its last instruction. Every block of a verified module has a terminator.
    pub fn terminator(self) -> Value {
        Value(llvm!(LLVMGetBasicBlockTerminator(self.0)))
    }

    /// Its first instruction that reserves nothing on the stack: in a function's entry, the place behind its variables.
    pub fn behind_variables(self) -> Value {
        self.instructions().find(|i| !i.is(LLVMOpcode::LLVMAlloca)).unwrap_or_else(|| self.terminator())
    }

    /// The landing pad instruction it begins with, if it does.
    pub fn landing_pad(self) -> Option<Value> {
        self.instructions().find(|i| !i.is(LLVMOpcode::LLVMPHI)).filter(|i| i.is(LLVMOpcode::LLVMLandingPad))
    }

    /// Its first instruction behind phi nodes, a landing pad and what reserves room on the stack.
    pub fn behind_head(self) -> Value {
        let head = [LLVMOpcode::LLVMPHI, LLVMOpcode::LLVMLandingPad, LLVMOpcode::LLVMAlloca];
        self.instructions().find(|i| !head.contains(&i.opcode())).expect("a block has a terminator")
    }

    /// Where code may be inserted first: behind phi nodes and a landing pad.
    pub fn first_insertion_point(self) -> Value {
        let skip = |i: &Value| i.is(LLVMOpcode::LLVMPHI) || i.is(LLVMOpcode::LLVMLandingPad);
        self.instructions().find(|i| !skip(i)).expect("a block has a terminator")
    }
}

impl Value {
    /// A value unless the pointer is null.
    pub fn some(raw: LLVMValueRef) -> Option<Value> {
        (!raw.is_null()).then_some(Value(raw))
    }

    /// Name, for functions and globals.
    pub fn name(self) -> String {
        let mut length = 0;
        let pointer = llvm!(LLVMGetValueName2(self.0, &mut length));
        text(pointer, length)
    }

    /// The block in which a function begins; of definitions only.
    pub fn entry(self) -> Block {
        Block(llvm!(LLVMGetEntryBasicBlock(self.0)))
    }

    /// The blocks of a function.
    pub fn blocks(self) -> impl Iterator<Item = Block> {
        let first = llvm!(LLVMGetFirstBasicBlock(self.0));
        std::iter::successors((!first.is_null()).then_some(Block(first)), |b| {
            let next = llvm!(LLVMGetNextBasicBlock(b.0));
            (!next.is_null()).then_some(Block(next))
        })
    }

    /// The instruction behind this one.
    pub fn next(self) -> Option<Value> {
        Value::some(llvm!(LLVMGetNextInstruction(self.0)))
    }

    /// The block an instruction is in.
    pub fn block(self) -> Block {
        Block(llvm!(LLVMGetInstructionParent(self.0)))
    }

    /// Whether it is an instruction.
    pub fn is_instruction(self) -> bool {
        !llvm!(LLVMIsAInstruction(self.0)).is_null()
    }

    /// What kind of instruction it is.
    pub fn opcode(self) -> LLVMOpcode {
        llvm!(LLVMGetInstructionOpcode(self.0))
    }

    /// Whether it is that kind of instruction.
    pub fn is(self, opcode: LLVMOpcode) -> bool {
        self.opcode() == opcode
    }

    /// Whether it is a call in any form.
    pub fn is_call(self) -> bool {
        matches!(self.opcode(), LLVMOpcode::LLVMCall | LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMCallBr)
    }

    /// Whether a call is of an intrinsic function.
    pub fn calls_intrinsic(self) -> bool {
        self.callee().is_function() && self.callee().intrinsic() != 0
    }

    /// What a call calls.
    pub fn callee(self) -> Value {
        Value(llvm!(LLVMGetCalledValue(self.0)))
    }

    /// Whether the value is a function.
    pub fn is_function(self) -> bool {
        !llvm!(LLVMIsAFunction(self.0)).is_null()
    }

    /// The parameters of a function.
    pub fn parameters(self) -> Vec<Value> {
        (0..llvm!(LLVMCountParams(self.0))).map(|i| Value(llvm!(LLVMGetParam(self.0, i)))).collect()
    }

    /// Whether the value is a variable of the module.
    pub fn is_global_variable(self) -> bool {
        !llvm!(LLVMIsAGlobalVariable(self.0)).is_null()
    }

    /// Whether the value is a constant.
    pub fn is_constant(self) -> bool {
        llvm!(LLVMIsConstant(self.0)) != 0
    }

    /// What a variable begins with, if its definition is there.
    pub fn initializer(self) -> Option<Value> {
        Value::some(llvm!(LLVMGetInitializer(self.0)))
    }

    /// Whether the value is inline assembly.
    pub fn is_assembly(self) -> bool {
        !llvm!(LLVMIsAInlineAsm(self.0)).is_null()
    }

    /// The text of inline assembly.
    pub fn assembly_text(self) -> String {
        let mut length = 0;
        let pointer = llvm!(LLVMGetInlineAsmAsmString(self.0, &mut length));
        text(pointer, length)
    }

    /// Number of an intrinsic function; 0 for others.
    pub fn intrinsic(self) -> u32 {
        llvm!(LLVMGetIntrinsicID(self.0))
    }

    /// The type of the value.
    pub fn kind(self) -> LLVMTypeRef {
        llvm!(LLVMTypeOf(self.0))
    }

    /// Whether the instruction gives no value.
    pub fn is_void(self) -> bool {
        llvm!(LLVMGetTypeKind(self.kind())) == LLVMTypeKind::LLVMVoidTypeKind
    }

    /// Whether the value is a token: one that no phi node can merge.
    pub fn is_token(self) -> bool {
        llvm!(LLVMGetTypeKind(self.kind())) == LLVMTypeKind::LLVMTokenTypeKind
    }

    /// One of its operands.
    pub fn operand(self, index: u32) -> Value {
        Value(llvm!(LLVMGetOperand(self.0, index)))
    }

    /// How many operands it has.
    pub fn operand_count(self) -> u32 {
        llvm!(LLVMGetNumOperands(self.0)).max(0) as u32
    }

    /// Its operands.
    pub fn operands(self) -> impl Iterator<Item = Value> {
        (0..self.operand_count()).map(move |index| self.operand(index))
    }

    /// The arguments of a call.
    pub fn arguments(self) -> impl Iterator<Item = Value> {
        (0..llvm!(LLVMGetNumArgOperands(self.0))).map(move |index| self.operand(index))
    }

    /// The blocks a terminator may go to, in order, repeated as they are.
    pub fn successors(self) -> Vec<Block> {
        let count = llvm!(LLVMGetNumSuccessors(self.0));
        (0..count).map(|i| Block(llvm!(LLVMGetSuccessor(self.0, i)))).collect()
    }

    /// Makes a terminator go elsewhere.
    pub fn set_successor(self, index: usize, to: Block) {
        llvm!(LLVMSetSuccessor(self.0, index as c_uint, to.0));
    }

    /// Makes a terminator go to one block wherever it went to another.
    pub fn redirect(self, from: Block, to: Block) {
        let taken = self.successors().into_iter().enumerate().filter(|(_, successor)| *successor == from);
        taken.for_each(|(index, _)| self.set_successor(index, to));
    }

    /// What a phi node gets from a block.
    pub fn incoming_from(self, block: Block) -> Option<Value> {
        self.incoming().into_iter().find(|(_, from)| *from == block).map(|(value, _)| value)
    }

    /// Incoming values of a phi node with their blocks.
    pub fn incoming(self) -> Vec<(Value, Block)> {
        let count = llvm!(LLVMCountIncoming(self.0));
        (0..count).map(|i| (Value(llvm!(LLVMGetIncomingValue(self.0, i))), Block(llvm!(LLVMGetIncomingBlock(self.0, i))))).collect()
    }

    /// Adds incoming values to a phi node.
    pub fn add_incoming(self, incoming: &[(Value, Block)]) {
        let (mut values, mut blocks): (Vec<_>, Vec<_>) = incoming.iter().map(|(v, b)| (v.0, b.0)).unzip();
        llvm!(LLVMAddIncoming(self.0, values.as_mut_ptr(), blocks.as_mut_ptr(), incoming.len() as c_uint));
    }

    /// Replaces every use of this value.
    pub fn replace_uses(self, by: Value) {
        llvm!(LLVMReplaceAllUsesWith(self.0, by.0));
    }

    /// Deletes an instruction without uses.
    ///
    /// # Safety
    /// No copy of the handle is given to LLVM afterwards. Copies may still be compared with each other; with handles of
    /// instructions that are made later only if a match does no harm, since these may come to lie in the same place.
    pub unsafe fn erase(self) {
        llvm!(LLVMInstructionEraseFromParent(self.0));
    }

    /// The users of the value.
    pub fn users(self) -> impl Iterator<Item = Value> {
        self.uses().map(|u| Value(llvm!(LLVMGetUser(u))))
    }

    /// The calls of the value by name: each once, whether or not it passes the value on as an argument.
    pub fn calls(self) -> impl Iterator<Item = Value> {
        // What is called is the last operand.
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

    /// Metadata of that kind attached to an instruction.
    pub fn metadata(self, kind: &str) -> Option<Value> {
        let context = llvm!(LLVMGetTypeContext(self.kind()));
        Value::some(llvm!(LLVMGetMetadata(self.0, metadata_kind(context, kind))))
    }

    /// Attaches metadata of that kind to an instruction, or takes it away.
    pub fn set_metadata(self, context: LLVMContextRef, kind: &str, node: Option<LLVMMetadataRef>) {
        let kind = metadata_kind(context, kind);
        let value = node.map_or(std::ptr::null_mut(), |node| llvm!(LLVMMetadataAsValue(context, node)));
        llvm!(LLVMSetMetadata(self.0, kind, value));
    }

    /// Operands of a metadata node; null ones are `None`.
    pub fn metadata_operands(self) -> Vec<Option<Value>> {
        let count = llvm!(LLVMGetMDNodeNumOperands(self.0)) as usize;
        let mut operands = vec![std::ptr::null_mut(); count];
        llvm!(LLVMGetMDNodeOperands(self.0, operands.as_mut_ptr()));
        operands.into_iter().map(Value::some).collect()
    }

    /// Text of a metadata string.
    pub fn metadata_text(self) -> Option<String> {
        Some(String::from_utf8_lossy(&self.metadata_bytes()?).into_owned())
    }

    /// Bytes of a metadata string.
    pub fn metadata_bytes(self) -> Option<Vec<u8>> {
        let mut length = 0;
        let pointer = llvm!(LLVMGetMDString(self.0, &mut length));
        // SAFETY: LLVM's string has that many bytes, and lives as long as the context.
        (!pointer.is_null()).then(|| unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length as usize) }.to_vec())
    }

    /// Bytes of a constant array.
    pub fn bytes(self) -> Option<Vec<u8>> {
        let is_bytes = !llvm!(LLVMIsAConstantDataSequential(self.0)).is_null() && llvm!(LLVMIsConstantString(self.0)) != 0;
        let mut length = 0;
        let pointer = if is_bytes { llvm!(LLVMGetAsString(self.0, &mut length)) } else { std::ptr::null() };
        // SAFETY: LLVM's constant has that many bytes, and lives as long as the context.
        (!pointer.is_null()).then(|| unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), length) }.to_vec())
    }

    /// A constant integer, if it is one that fits 64 bits (wider ones are cut).
    pub fn as_integer(self) -> Option<i64> {
        let constant = llvm!(LLVMIsAConstantInt(self.0));
        if constant.is_null() || llvm!(LLVMGetIntTypeWidth(llvm!(LLVMTypeOf(constant)))) > 64 {
            return None;
        }
        Some(llvm!(LLVMConstIntGetSExtValue(constant)))
    }

    /// How many bits it has, if it is one whole number.
    pub fn integer_width(self) -> Option<u32> {
        let kind = self.kind();
        (llvm!(LLVMGetTypeKind(kind)) == LLVMTypeKind::LLVMIntegerTypeKind).then(|| llvm!(LLVMGetIntTypeWidth(kind)))
    }

    /// Whether a function has an attribute (by name) of its own.
    pub fn has_attribute(self, name: &str) -> bool {
        let kind = attribute_kind(name);
        !llvm!(LLVMGetEnumAttributeAtIndex(self.0, LLVMAttributeFunctionIndex, kind)).is_null()
    }

    /// Removes an attribute of a function.
    pub fn remove_attribute(self, name: &str) {
        llvm!(LLVMRemoveEnumAttributeAtIndex(self.0, LLVMAttributeFunctionIndex, attribute_kind(name)));
    }

    /// Whether a call, or the function it calls directly, has an attribute.
    pub fn call_has_attribute(self, name: &str) -> bool {
        let kind = attribute_kind(name);
        let here = llvm!(LLVMGetCallSiteEnumAttribute(self.0, LLVMAttributeFunctionIndex, kind));
        !here.is_null() || (self.callee().is_function() && self.callee().has_attribute(name))
    }

    /// The debug location of an instruction.
    pub fn location(self) -> Option<LLVMMetadataRef> {
        let location = llvm!(LLVMInstructionGetDebugLoc(self.0));
        (!location.is_null()).then_some(location)
    }

    /// Gives an instruction a debug location, or takes it away.
    pub fn set_location(self, location: Option<LLVMMetadataRef>) {
        llvm!(LLVMInstructionSetDebugLoc(self.0, location.unwrap_or(std::ptr::null_mut())));
    }
}

/// The number of a kind of metadata.
pub fn metadata_kind(context: LLVMContextRef, name: &str) -> c_uint {
    llvm!(LLVMGetMDKindIDInContext(context, name.as_ptr().cast(), name.len() as c_uint))
}

thread_local! {
    /// Kinds of attributes that were asked for: LLVM compares a name with those of all kinds, and calls are asked for several each.
    static ATTRIBUTE_KINDS: RefCell<Vec<(String, c_uint)>> = const { RefCell::new(Vec::new()) };
}

/// The number of a kind of attribute.
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

/// Text of a file of the debug information: its folder and name.
pub fn file_name(file: LLVMMetadataRef) -> (String, String) {
    let mut length: c_uint = 0;
    let folder = llvm!(LLVMDIFileGetDirectory(file, &mut length));
    let folder = text(folder, length as usize);
    let name = llvm!(LLVMDIFileGetFilename(file, &mut length));
    (folder, text(name, length as usize))
}

/// Copies the flags of a floating-point operation.
pub fn copy_fast_math(from: Value, to: Value) {
    if llvm!(LLVMCanValueUseFastMathFlags(from.0)) != 0 {
        llvm!(LLVMSetFastMathFlags(to.0, llvm!(LLVMGetFastMathFlags(from.0))));
    }
}
