//! Thin names for what the plugin uses of LLVM-C.
//!
//! Handles are copies of pointers into the module that clang handed over; the module outlives the plugin's call, and
//! nothing here keeps a handle beyond it. What is deleted (instructions, blocks) is deleted by code that holds no other
//! handle to it.

use llvm_sys::LLVMInlineAsmDialect;
use llvm_sys::LLVMIntPredicate;
use llvm_sys::LLVMOpcode;
use llvm_sys::LLVMTypeKind;
use llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use llvm_sys::core::*;
use llvm_sys::debuginfo::*;
use llvm_sys::prelude::*;
use std::ffi::{CStr, CString, c_char, c_uint};

/// Calls a function of LLVM-C.
macro_rules! llvm {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the arguments are live handles of the module being compiled (see the module's documentation), of the
        // kinds the function takes.
        unsafe { $function($($argument),*) }
    };
}
pub(crate) use llvm;

/// The module being compiled.
#[derive(Clone, Copy)]
pub struct Module {
    /// LLVM's handle.
    pub raw: LLVMModuleRef,
}

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

/// A C string for LLVM; a zero byte cannot occur in the names used here.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).expect("zero bytes were removed")
}

impl Module {
    /// Names a module.
    pub fn new(raw: LLVMModuleRef) -> Module {
        Module { raw }
    }

    /// Its context.
    pub fn context(self) -> LLVMContextRef {
        llvm!(LLVMGetModuleContext(self.raw))
    }

    /// All functions, declared and defined.
    pub fn functions(self) -> impl Iterator<Item = Value> {
        let first = llvm!(LLVMGetFirstFunction(self.raw));
        std::iter::successors(Value::some(first), |f| Value::some(llvm!(LLVMGetNextFunction(f.0))))
    }

    /// Name of the source file.
    pub fn source(self) -> String {
        let mut length = 0;
        let pointer = llvm!(LLVMGetSourceFileName(self.raw, &mut length));
        text(pointer, length)
    }

    /// Target triple.
    pub fn target(self) -> String {
        // SAFETY: LLVM returns a string that lives as long as the module.
        unsafe { CStr::from_ptr(LLVMGetTarget(self.raw)) }.to_string_lossy().into_owned()
    }

    /// The module as bitcode.
    pub fn bitcode(self) -> Vec<u8> {
        let buffer = llvm!(LLVMWriteBitcodeToMemoryBuffer(self.raw));
        let (start, size) = (llvm!(LLVMGetBufferStart(buffer)), llvm!(LLVMGetBufferSize(buffer)));
        // SAFETY: the buffer has that many bytes, and is disposed of only after they were copied.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size) }.to_vec();
        llvm!(LLVMDisposeMemoryBuffer(buffer));
        bytes
    }

    /// Appends to the assembly of the module.
    pub fn append_assembly(self, assembly: &str) {
        llvm!(LLVMAppendModuleInlineAsm(self.raw, assembly.as_ptr().cast(), assembly.len()));
    }

    /// `i64`
    pub fn i64(self) -> LLVMTypeRef {
        llvm!(LLVMInt64TypeInContext(self.context()))
    }

    /// `i8`
    pub fn i8(self) -> LLVMTypeRef {
        llvm!(LLVMInt8TypeInContext(self.context()))
    }

    /// A constant of type `i64`.
    pub fn constant(self, value: i64) -> Value {
        Value(llvm!(LLVMConstInt(self.i64(), value as u64, 1)))
    }
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

    /// What a call calls.
    pub fn callee(self) -> Value {
        Value(llvm!(LLVMGetCalledValue(self.0)))
    }

    /// Whether the value is a function.
    pub fn is_function(self) -> bool {
        !llvm!(LLVMIsAFunction(self.0)).is_null()
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

    /// The blocks a terminator may go to, in order, repeated as they are.
    pub fn successors(self) -> Vec<Block> {
        let count = llvm!(LLVMGetNumSuccessors(self.0));
        (0..count).map(|i| Block(llvm!(LLVMGetSuccessor(self.0, i)))).collect()
    }

    /// Makes a terminator go elsewhere.
    pub fn set_successor(self, index: usize, to: Block) {
        llvm!(LLVMSetSuccessor(self.0, index as c_uint, to.0));
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
    pub fn erase(self) {
        llvm!(LLVMInstructionEraseFromParent(self.0));
    }

    /// The users of the value.
    pub fn users(self) -> impl Iterator<Item = Value> {
        let first = llvm!(LLVMGetFirstUse(self.0));
        std::iter::successors((!first.is_null()).then_some(first), |u| {
            let next = llvm!(LLVMGetNextUse(*u));
            (!next.is_null()).then_some(next)
        })
        .map(|u| Value(llvm!(LLVMGetUser(u))))
    }

    /// Metadata of that kind attached to an instruction.
    pub fn metadata(self, kind: &str) -> Option<Value> {
        let context = llvm!(LLVMGetTypeContext(self.kind()));
        let id = llvm!(LLVMGetMDKindIDInContext(context, kind.as_ptr().cast(), kind.len() as c_uint));
        Value::some(llvm!(LLVMGetMetadata(self.0, id)))
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
        let mut length = 0;
        let pointer = llvm!(LLVMGetMDString(self.0, &mut length));
        (!pointer.is_null()).then(|| text(pointer, length as usize))
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
        !llvm!(LLVMGetEnumAttributeAtIndex(self.0, llvm_sys::LLVMAttributeFunctionIndex, kind)).is_null()
    }

    /// Removes an attribute of a function.
    pub fn remove_attribute(self, name: &str) {
        llvm!(LLVMRemoveEnumAttributeAtIndex(self.0, llvm_sys::LLVMAttributeFunctionIndex, attribute_kind(name)));
    }

    /// Whether a call, or the function it calls directly, has an attribute.
    pub fn call_has_attribute(self, name: &str) -> bool {
        let kind = attribute_kind(name);
        let here = llvm!(LLVMGetCallSiteEnumAttribute(self.0, llvm_sys::LLVMAttributeFunctionIndex, kind));
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

fn attribute_kind(name: &str) -> c_uint {
    llvm!(LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()))
}

/// Text of a file of the debug information: its folder and name.
pub fn file_name(file: LLVMMetadataRef) -> (String, String) {
    let mut length: c_uint = 0;
    let folder = llvm!(LLVMDIFileGetDirectory(file, &mut length));
    let folder = text(folder, length as usize);
    let name = llvm!(LLVMDIFileGetFilename(file, &mut length));
    (folder, text(name, length as usize))
}

/// Builds instructions at a place.
pub struct Builder {
    raw: LLVMBuilderRef,
}

impl Builder {
    /// Inserts in front of an instruction; what is built has the given debug location.
    pub fn before(module: Module, instruction: Value, location: Option<LLVMMetadataRef>) -> Builder {
        let builder = Builder { raw: llvm!(LLVMCreateBuilderInContext(module.context())) };
        llvm!(LLVMPositionBuilderBefore(builder.raw, instruction.0));
        builder.locate(location)
    }

    /// An empty phi node in front of an instruction, and in front of what debug information holds of variables there:
    /// no phi node may come behind that.
    pub fn phi_before(module: Module, instruction: Value, kind: LLVMTypeRef, location: Option<LLVMMetadataRef>) -> Value {
        let builder = Builder { raw: llvm!(LLVMCreateBuilderInContext(module.context())) };
        llvm!(LLVMPositionBuilderBeforeInstrAndDbgRecords(builder.raw, instruction.0));
        let builder = builder.locate(location);
        Value(llvm!(LLVMBuildPhi(builder.raw, kind, c"".as_ptr())))
    }

    /// Inserts at the end of a block.
    pub fn at_end(module: Module, block: Block, location: Option<LLVMMetadataRef>) -> Builder {
        let builder = Builder { raw: llvm!(LLVMCreateBuilderInContext(module.context())) };
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

    /// `br label %to`
    pub fn jump(&self, to: Block) {
        llvm!(LLVMBuildBr(self.raw, to.0));
    }

    /// `br i1 %condition, label %yes, label %no`
    pub fn branch(&self, condition: Value, yes: Block, no: Block) -> Value {
        Value(llvm!(LLVMBuildCondBr(self.raw, condition.0, yes.0, no.0)))
    }

    /// Compares two integers.
    pub fn compare(&self, how: LLVMIntPredicate, a: Value, b: Value) -> Value {
        Value(llvm!(LLVMBuildICmp(self.raw, how, a.0, b.0, c"".as_ptr())))
    }

    /// `a + b`
    pub fn add(&self, a: Value, b: Value) -> Value {
        Value(llvm!(LLVMBuildAdd(self.raw, a.0, b.0, c"".as_ptr())))
    }

    /// `a >> by`, where what is lost is zeros.
    pub fn shift_right(&self, a: Value, by: Value) -> Value {
        Value(llvm!(LLVMBuildLShr(self.raw, a.0, by.0, c"".as_ptr())))
    }

    /// The same value, which code generation does not see through.
    pub fn opaque(&self, value: Value) -> Value {
        let mut kinds = [value.kind()];
        let kind = llvm!(LLVMFunctionType(value.kind(), kinds.as_mut_ptr(), 1, 0));
        let (nothing, same, dialect) = (c"".as_ptr(), "=r,0", LLVMInlineAsmDialect::LLVMInlineAsmDialectATT);
        let assembly = llvm!(LLVMGetInlineAsm(kind, nothing, 0, same.as_ptr().cast(), same.len(), 0, 0, dialect, 0));
        Value(llvm!(LLVMBuildCall2(self.raw, kind, assembly, [value.0].as_mut_ptr(), 1, nothing)))
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
    pub fn store(&self, value: Value, to: Value) {
        llvm!(LLVMBuildStore(self.raw, value.0, to.0));
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

/// Copies the flags of a floating-point operation.
pub fn copy_fast_math(from: Value, to: Value) {
    if llvm!(LLVMCanValueUseFastMathFlags(from.0)) != 0 {
        llvm!(LLVMSetFastMathFlags(to.0, llvm!(LLVMGetFastMathFlags(from.0))));
    }
}
