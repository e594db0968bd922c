//! Functions of LLVM-C, declared with the types that they require. LLVM-C has a single type for values, and one for types; its functions
//! cast arguments to C++ classes, unchecked unless LLVM was built with assertions. Here each parameter has the class that it is cast to
//! (`llvm/lib/IR/Core.cpp`, LLVM 19 to 22). A function that requires only live handles of these classes is declared `safe`. Every other one
//! is called in a single wrapper, which checks or justifies the rest. A handle is passed as the pointer that it contains, `None` as null.
//!
//! A function that returns an enumeration always returns one of its values, since LLVM-C maps LLVM's own numbers to its stable ones; type
//! kinds are the exception (`host.rs`).

mod building;

use super::classes::*;
use super::handles::*;
use llvm_sys::analysis::LLVMVerifierFailureAction;
use llvm_sys::debuginfo::LLVMMetadataKind;
use llvm_sys::target_machine::LLVMCodeGenFileType;
use llvm_sys::{
    LLVMAtomicOrdering, LLVMAtomicRMWBinOp, LLVMIntPredicate, LLVMLinkage, LLVMOpcode, LLVMRealPredicate, LLVMTailCallKind,
    LLVMThreadLocalMode, LLVMUnnamedAddr, LLVMValueKind, LLVMVisibility,
};
use std::ffi::{c_char, c_int, c_uint};

pub use building::*;

// SAFETY: these accept every live value. They test its class (`dyn_cast`), or use what all values have: a type, a name, uses.
unsafe extern "C" {
    pub safe fn LLVMIsAInstruction(value: Value) -> Option<Value>;
    pub safe fn LLVMIsATerminatorInst(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAArgument(value: Value) -> Option<Value>;
    pub safe fn LLVMIsABlockAddress(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAConstant(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAConstantArray(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAConstantDataSequential(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAConstantExpr(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAConstantFP(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAConstantInt(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAFunction(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAGlobalAlias(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAGlobalIFunc(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAGlobalObject(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAGlobalValue(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAGlobalVariable(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAInlineAsm(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAMDNode(value: Value) -> Option<Value>;
    pub safe fn LLVMIsAUser(value: Value) -> Option<Value>;
    pub safe fn LLVMCanValueUseFastMathFlags(value: Value) -> c_int;
    pub safe fn LLVMGetFirstUse(value: Value) -> Option<ValueUse>;
    pub safe fn LLVMGetIntrinsicID(value: Value) -> c_uint;
    pub safe fn LLVMGetMDString(value: Value, length: &mut c_uint) -> *const c_char;
    pub safe fn LLVMGetValueKind(value: Value) -> LLVMValueKind;
    pub safe fn LLVMGetValueName2(value: Value, length: &mut usize) -> *const c_char;
    pub safe fn LLVMIsConstant(value: Value) -> c_int;
    pub safe fn LLVMIsPoison(value: Value) -> c_int;
    pub safe fn LLVMIsUndef(value: Value) -> c_int;
    pub safe fn LLVMPrintValueToString(value: Value) -> OwnedText;
    pub safe fn LLVMTypeOf(value: Value) -> Type;
    pub safe fn LLVMValueAsMetadata(value: Value) -> Metadata;
    pub safe fn LLVMValueIsBasicBlock(value: Value) -> c_int;
    /// The new value must have the old one's type. LLVM may free constants that contain a replaced constant, so handles to them dangle.
    pub fn LLVMReplaceAllUsesWith(old: Value, new: Value);
}

// SAFETY: a use is a part of its user, and lives as long. LLVM ends the list of a value's uses with null.
unsafe extern "C" {
    pub safe fn LLVMGetNextUse(at: ValueUse) -> Option<ValueUse>;
    pub safe fn LLVMGetUser(at: ValueUse) -> Value;
}

// SAFETY: every value with operands is a C++ `User`. The class does not say how many operands there are, so functions that take an index
// are unsafe.
unsafe extern "C" {
    pub safe fn LLVMGetNumOperands(user: UserValue) -> c_int;
    /// The index must be below the number of operands.
    pub fn LLVMGetOperand(user: UserValue, index: c_uint) -> Option<Value>;
    /// The index must be below the number of operands.
    pub fn LLVMGetOperandUse(user: UserValue, index: c_uint) -> ValueUse;
    /// The index must be below the number of operands, and the value must have the operand's type.
    pub fn LLVMSetOperand(user: AnyInstruction, index: c_uint, value: Value);
}

// SAFETY: a parameter's type guarantees a live object of the class to which LLVM casts the argument. Each function reads or writes one
// property.
unsafe extern "C" {
    pub safe fn LLVMConstIntGetSExtValue(constant: ShortInteger) -> i64;
    pub safe fn LLVMConstIntGetZExtValue(constant: ShortInteger) -> u64;
    pub safe fn LLVMGetAggregateElement(constant: Constant, index: c_uint) -> Option<Value>;
    pub safe fn LLVMGetAsString(constant: ConstantText, length: &mut usize) -> *const c_char;
    pub safe fn LLVMIsConstantString(constant: DataSequence) -> c_int;
    pub safe fn LLVMGetBlockAddressBasicBlock(address: BlockAddress) -> Block;
    pub safe fn LLVMGetBlockAddressFunction(address: BlockAddress) -> Value;
    pub safe fn LLVMGetConstOpcode(expression: ConstantExpression) -> LLVMOpcode;
    pub safe fn LLVMGetGEPSourceElementType(address: ElementAddress) -> Type;
    pub safe fn LLVMGetInlineAsmAsmString(assembly: InlineAssembly, length: &mut usize) -> *const c_char;
    pub safe fn LLVMGetParamParent(argument: Argument) -> Value;
    /// The function must be the one that contains the block.
    pub fn LLVMBlockAddress(function: FunctionValue, block: Block) -> Value;
}

// SAFETY: a block belongs to a function for as long as it exists, because no function declared here removes one.
unsafe extern "C" {
    pub safe fn LLVMBasicBlockAsValue(block: Block) -> Value;
    #[cfg(test)]
    pub safe fn LLVMGetBasicBlockName(block: Block) -> Terminated<'static>;
    pub safe fn LLVMGetBasicBlockParent(block: Block) -> Value;
    pub safe fn LLVMGetBasicBlockTerminator(block: Block) -> Option<Value>;
    pub safe fn LLVMGetFirstInstruction(block: Block) -> Option<Value>;
    pub safe fn LLVMGetNextBasicBlock(block: Block) -> Option<Block>;
    pub safe fn LLVMInsertBasicBlockInContext(context: LlvmContext, before: Block, name: Terminated) -> Block;
    pub safe fn LLVMMoveBasicBlockAfter(block: Block, after: Block);
    pub safe fn LLVMMoveBasicBlockBefore(block: Block, before: Block);
}

// SAFETY: these accept every live instruction, whether it is in a block or not.
unsafe extern "C" {
    pub safe fn LLVMGetInstructionOpcode(instruction: AnyInstruction) -> LLVMOpcode;
    pub safe fn LLVMGetInstructionParent(instruction: AnyInstruction) -> Option<Block>;
    pub safe fn LLVMGetMetadata(instruction: AnyInstruction, kind: MetadataKind) -> Option<Value>;
    pub safe fn LLVMInstructionClone(instruction: AnyInstruction) -> Value;
    pub safe fn LLVMInstructionGetDebugLoc(instruction: AnyInstruction) -> Option<DebugLocation>;
    pub safe fn LLVMInstructionSetDebugLoc(instruction: AnyInstruction, location: Option<DebugLocation>);
    /// The node must be of a kind that may be attached to instructions.
    pub fn LLVMSetMetadata(instruction: AnyInstruction, kind: MetadataKind, node: Option<MetadataNode>);
}

// SAFETY: the parameter's type guarantees that the instruction is in a block. These functions follow or change the links of that block's
// list.
unsafe extern "C" {
    pub safe fn LLVMGetNextInstruction(instruction: PlacedInstruction) -> Option<Value>;
    pub safe fn LLVMInstructionRemoveFromParent(instruction: PlacedInstruction);
    /// No value may use the instruction, and no handle to it may be used afterwards.
    pub fn LLVMInstructionEraseFromParent(instruction: PlacedInstruction);
}

// SAFETY: a parameter's type guarantees a live instruction of the class to which LLVM casts the argument.
unsafe extern "C" {
    pub safe fn LLVMCountIncoming(phi: PhiNode) -> c_uint;
    pub safe fn LLVMGetNumSuccessors(terminator: Terminator) -> c_uint;
    pub safe fn LLVMIsConditional(branch: Branch) -> c_int;
    pub safe fn LLVMGetCondition(branch: ConditionalBranch) -> Value;
    pub safe fn LLVMGetNormalDest(invoke: Invoke) -> Block;
    pub safe fn LLVMGetUnwindDest(invoke: Invoke) -> Block;
    pub safe fn LLVMSetNormalDest(invoke: Invoke, block: Block);
    pub safe fn LLVMGetCalledFunctionType(call: CallInstruction) -> FunctionType;
    pub safe fn LLVMGetCalledValue(call: CallInstruction) -> Value;
    pub safe fn LLVMGetInstructionCallConv(call: CallInstruction) -> c_uint;
    pub safe fn LLVMGetNumArgOperands(call: CallInstruction) -> c_uint;
    pub safe fn LLVMGetNumOperandBundles(call: CallInstruction) -> c_uint;
    pub safe fn LLVMSetInstructionCallConv(call: CallInstruction, convention: c_uint);
    pub safe fn LLVMGetTailCallKind(call: PlainCall) -> LLVMTailCallKind;
    pub safe fn LLVMIsTailCall(call: PlainCall) -> c_int;
    pub safe fn LLVMSetTailCallKind(call: PlainCall, kind: LLVMTailCallKind);
    pub safe fn LLVMGetNumClauses(pad: LandingPad) -> c_uint;
    pub safe fn LLVMGetICmpPredicate(comparison: IntegerComparison) -> LLVMIntPredicate;
    pub safe fn LLVMGetFCmpPredicate(comparison: FloatComparison) -> LLVMRealPredicate;
    pub safe fn LLVMGetAtomicRMWBinOp(update: AtomicUpdate) -> LLVMAtomicRMWBinOp;
    pub safe fn LLVMGetOrdering(access: OrderedAccess) -> LLVMAtomicOrdering;
    pub safe fn LLVMGetVolatile(access: AccessInstruction) -> c_int;
    pub safe fn LLVMSetVolatile(access: AccessInstruction, is_volatile: c_int);
    pub safe fn LLVMGetFastMathFlags(operation: FloatOperation) -> c_uint;
    pub safe fn LLVMSetFastMathFlags(operation: FloatOperation, flags: c_uint);
    pub safe fn LLVMGetNumIndices(extract: ValueExtract) -> c_uint;
    pub safe fn LLVMGetIndices(extract: ValueExtract) -> *const c_uint;
    /// The arrays must have `count` elements, values of the phi node's type.
    pub fn LLVMAddIncoming(phi: PhiNode, values: *const Value, blocks: *const Block, count: c_uint);
    /// The index must be below the number of entries.
    pub fn LLVMGetIncomingBlock(phi: PhiNode, index: c_uint) -> Block;
    /// The index must be below the number of entries.
    pub fn LLVMGetIncomingValue(phi: PhiNode, index: c_uint) -> Value;
    /// The index must be below the number of successors.
    pub fn LLVMGetSuccessor(terminator: Terminator, index: c_uint) -> Block;
    /// The index must be below the number of successors.
    pub fn LLVMSetSuccessor(terminator: Terminator, index: c_uint, block: Block);
}

// SAFETY: a parameter's type guarantees a live global of the class to which LLVM casts the argument. A module owns its globals, and its
// lists of them end with null.
unsafe extern "C" {
    pub safe fn LLVMGetLinkage(global: GlobalValue) -> LLVMLinkage;
    pub safe fn LLVMGlobalGetValueType(global: GlobalValue) -> Type;
    pub safe fn LLVMGetGlobalParent(global: GlobalValue) -> Module;
    pub safe fn LLVMIsDeclaration(global: GlobalValue) -> c_int;
    pub safe fn LLVMSetLinkage(global: GlobalValue, linkage: LLVMLinkage);
    pub safe fn LLVMSetUnnamedAddress(global: GlobalValue, kind: LLVMUnnamedAddr);
    pub safe fn LLVMSetVisibility(global: GlobalValue, visibility: LLVMVisibility);
    pub safe fn LLVMGetComdat(object: GlobalObject) -> Option<Comdat>;
    pub safe fn LLVMGetSection(object: GlobalObject) -> Option<Terminated<'static>>;
    pub safe fn LLVMGlobalSetMetadata(object: GlobalObject, kind: MetadataKind, node: AttachedNode);
    pub safe fn LLVMSetComdat(object: GlobalObject, comdat: Comdat);
    pub safe fn LLVMSetSection(object: GlobalObject, name: Terminated);
    pub safe fn LLVMGetAlignment(aligned: AlignedValue) -> c_uint;
    pub safe fn LLVMGetInitializer(variable: GlobalVariable) -> Option<Value>;
    pub safe fn LLVMGetNextGlobal(variable: GlobalVariable) -> Option<Value>;
    pub safe fn LLVMIsGlobalConstant(variable: GlobalVariable) -> c_int;
    pub safe fn LLVMSetGlobalConstant(variable: GlobalVariable, is_constant: c_int);
    pub safe fn LLVMSetThreadLocalMode(variable: GlobalVariable, mode: LLVMThreadLocalMode);
    pub safe fn LLVMAliasGetAliasee(alias: AliasValue) -> Value;
    pub safe fn LLVMGetNextGlobalAlias(alias: AliasValue) -> Option<Value>;
    pub safe fn LLVMGetGlobalIFuncResolver(ifunc: IndirectFunction) -> Value;
    pub safe fn LLVMGetNextGlobalIFunc(ifunc: IndirectFunction) -> Option<Value>;
    /// The number of bytes must be a power of two, or 0 for a global.
    pub fn LLVMSetAlignment(aligned: AlignedValue, bytes: c_uint);
    /// The initial value must have the variable's type.
    pub fn LLVMSetInitializer(variable: GlobalVariable, value: Constant);
    /// Nothing may use the variable, and no handle to it may be used afterwards.
    pub fn LLVMDeleteGlobal(variable: GlobalVariable);
    pub safe fn LLVMGlobalCopyAllMetadata(object: GlobalObject, count: &mut usize) -> MetadataEntries;
    /// The index must be below the number of entries.
    pub fn LLVMValueMetadataEntriesGetKind(entries: MetadataEntries, index: c_uint) -> MetadataKind;
    /// The entries must have been returned by `LLVMGlobalCopyAllMetadata`, and not be used afterwards.
    pub fn LLVMDisposeValueMetadataEntries(entries: MetadataEntries);
}

// SAFETY: the parameter's type guarantees that LLVM may cast the argument to `Function`. Lists of functions, blocks and parameters end with
// null.
unsafe extern "C" {
    pub safe fn LLVMAppendBasicBlockInContext(context: LlvmContext, function: FunctionValue, name: Terminated) -> Block;
    pub safe fn LLVMCountParams(function: FunctionValue) -> c_uint;
    pub safe fn LLVMGetFirstBasicBlock(function: FunctionValue) -> Option<Block>;
    pub safe fn LLVMGetFunctionCallConv(function: FunctionValue) -> c_uint;
    pub safe fn LLVMGetGC(function: FunctionValue) -> Option<Terminated<'static>>;
    pub safe fn LLVMGetLastParam(function: FunctionValue) -> Option<Value>;
    pub safe fn LLVMGetNextFunction(function: FunctionValue) -> Option<Value>;
    pub safe fn LLVMGetPersonalityFn(function: FunctionWithPersonality) -> Value;
    pub safe fn LLVMGetSubprogram(function: FunctionValue) -> Option<Subprogram>;
    pub safe fn LLVMHasPersonalityFn(function: FunctionValue) -> c_int;
    pub safe fn LLVMSetFunctionCallConv(function: FunctionValue, convention: c_uint);
    pub safe fn LLVMSetGC(function: FunctionValue, name: Option<Terminated>);
    pub safe fn LLVMSetPersonalityFn(function: FunctionValue, personality: Constant);
    pub safe fn LLVMVerifyFunction(function: FunctionValue, action: LLVMVerifierFailureAction) -> c_int;
    /// The index must be below the number of parameters.
    pub fn LLVMGetParam(function: FunctionValue, index: c_uint) -> Value;
    /// Nothing may use the function, and no handle to it, its parameters or its code may be used afterwards.
    pub fn LLVMDeleteFunction(function: FunctionValue);
}

// SAFETY: attribute lists accept every index, and have no attributes where nothing was added. An attribute kind is the number LLVM gave a
// name.
unsafe extern "C" {
    pub safe fn LLVMAddAttributeAtIndex(function: FunctionValue, index: c_uint, attribute: CodeAttribute);
    pub safe fn LLVMAddCallSiteAttribute(call: CallInstruction, index: c_uint, attribute: CodeAttribute);
    pub safe fn LLVMCreateEnumAttribute(context: LlvmContext, kind: KnownAttributeKind, value: u64) -> CodeAttribute;
    pub safe fn LLVMCreateTypeAttribute(context: LlvmContext, kind: KnownAttributeKind, value: Type) -> CodeAttribute;
    pub safe fn LLVMGetAttributeCountAtIndex(function: FunctionValue, index: c_uint) -> c_uint;
    pub safe fn LLVMGetCallSiteAttributeCount(call: CallInstruction, index: c_uint) -> c_uint;
    pub safe fn LLVMGetCallSiteEnumAttribute(call: CallInstruction, index: c_uint, kind: AttributeKind) -> Option<CodeAttribute>;
    pub safe fn LLVMGetEnumAttributeAtIndex(function: FunctionValue, index: c_uint, kind: AttributeKind) -> Option<CodeAttribute>;
    pub safe fn LLVMGetEnumAttributeValue(attribute: NumberAttribute) -> u64;
    pub safe fn LLVMGetStringAttributeValue(attribute: TextAttribute, length: &mut c_uint) -> *const c_char;
    pub safe fn LLVMGetTypeAttributeValue(attribute: TypeAttribute) -> Type;
    pub safe fn LLVMIsEnumAttribute(attribute: CodeAttribute) -> c_int;
    pub safe fn LLVMIsStringAttribute(attribute: CodeAttribute) -> c_int;
    pub safe fn LLVMIsTypeAttribute(attribute: CodeAttribute) -> c_int;
    pub safe fn LLVMRemoveCallSiteEnumAttribute(call: CallInstruction, index: c_uint, kind: AttributeKind);
    pub safe fn LLVMRemoveEnumAttributeAtIndex(function: FunctionValue, index: c_uint, kind: AttributeKind);
    /// The array must have as many elements as the index has attributes.
    pub fn LLVMGetAttributesAtIndex(function: FunctionValue, index: c_uint, attributes: *mut Option<CodeAttribute>);
    /// The array must have as many elements as the index has attributes.
    pub fn LLVMGetCallSiteAttributes(call: CallInstruction, index: c_uint, attributes: *mut Option<CodeAttribute>);
    /// Pointers and lengths must describe strings.
    pub fn LLVMCreateStringAttribute(
        context: LlvmContext,
        name: *const c_char,
        name_length: c_uint,
        value: *const c_char,
        value_length: c_uint,
    ) -> CodeAttribute;
    /// Pointer and length must describe a string.
    pub fn LLVMGetEnumAttributeKindForName(name: *const c_char, length: usize) -> AttributeKind;
    /// Pointer and length must describe a string.
    pub fn LLVMGetStringAttributeAtIndex(
        function: FunctionValue,
        index: c_uint,
        name: *const c_char,
        length: c_uint,
    ) -> Option<CodeAttribute>;
}

// SAFETY: a context owns its types and its constants and never frees them. Each function casts to the class of its parameter.
unsafe extern "C" {
    pub safe fn LLVMArrayType2(element: SizedType, count: u64) -> Type;
    pub safe fn LLVMConstInt(kind: IntegerType, value: u64, is_signed: c_int) -> Value;
    pub safe fn LLVMConstNull(kind: SizedType) -> Value;
    pub safe fn LLVMCountStructElementTypes(structure: StructType) -> c_uint;
    pub safe fn LLVMGetArrayLength2(array: ArrayType) -> u64;
    pub safe fn LLVMGetElementType(array: ArrayType) -> Type;
    pub safe fn LLVMGetIntTypeWidth(kind: IntegerType) -> c_uint;
    pub safe fn LLVMGetPoison(kind: Type) -> Value;
    pub safe fn LLVMGetReturnType(function: FunctionType) -> Type;
    pub safe fn LLVMCountParamTypes(function: FunctionType) -> c_uint;
    pub safe fn LLVMGetTypeContext(kind: Type) -> LlvmContext;
    pub safe fn LLVMInt1TypeInContext(context: LlvmContext) -> Type;
    pub safe fn LLVMInt32TypeInContext(context: LlvmContext) -> Type;
    pub safe fn LLVMInt64TypeInContext(context: LlvmContext) -> Type;
    pub safe fn LLVMInt8TypeInContext(context: LlvmContext) -> Type;
    pub safe fn LLVMIsFunctionVarArg(function: FunctionType) -> c_int;
    pub safe fn LLVMPointerTypeInContext(context: LlvmContext, address_space: c_uint) -> Type;
    pub safe fn LLVMPrintTypeToString(kind: Type) -> OwnedText;
    pub safe fn LLVMTypeIsSized(kind: Type) -> c_int;
    pub safe fn LLVMVoidTypeInContext(context: LlvmContext) -> Type;
    pub safe fn LLVMABIAlignmentOfType(layout: DataLayout, kind: SizedType) -> c_uint;
    pub safe fn LLVMABISizeOfType(layout: DataLayout, kind: SizedType) -> u64;
    pub safe fn LLVMStoreSizeOfType(layout: DataLayout, kind: SizedType) -> u64;
    /// The address must be a pointer constant.
    pub fn LLVMConstGEP2(element: SizedType, address: Constant, indices: *const Value, count: c_uint) -> Value;
    /// The array must have `count` constants of the element's type.
    pub fn LLVMConstArray2(element: SizedType, values: *const Value, count: u64) -> Value;
    /// The constant must be an integer, and the type a pointer.
    pub fn LLVMConstIntToPtr(constant: Constant, kind: Type) -> Value;
    /// Pointer and length must describe a string.
    pub fn LLVMConstStringInContext2(context: LlvmContext, text: *const c_char, length: usize, is_unterminated: c_int) -> Value;
    /// The array must have `count` types that parameters may have, and the result must be a type that functions may return.
    pub fn LLVMFunctionType(result: Type, parameters: *const Type, count: c_uint, is_variadic: c_int) -> Type;
    /// The array must have as many elements as the function has parameters.
    pub fn LLVMGetParamTypes(function: FunctionType, types: *mut Option<Type>);
    /// The number of bits must be from 1 to 2^23.
    pub fn LLVMIntTypeInContext(context: LlvmContext, bits: c_uint) -> Type;
    /// The index must be below the number of elements.
    pub fn LLVMStructGetTypeAtIndex(structure: StructType, index: c_uint) -> Type;
}

// SAFETY: a context owns its metadata, and frees no node except temporary ones. Each function casts its argument to the class of the
// parameter.
unsafe extern "C" {
    pub safe fn LLVMDIBuilderCreateDebugLocation(
        context: LlvmContext,
        line: c_uint,
        column: c_uint,
        scope: Subprogram,
        inlined_at: Option<DebugLocation>,
    ) -> DebugLocation;
    pub safe fn LLVMDIFileGetDirectory(file: DebugFile, length: &mut c_uint) -> *const c_char;
    pub safe fn LLVMDIFileGetFilename(file: DebugFile, length: &mut c_uint) -> *const c_char;
    pub safe fn LLVMDILocationGetColumn(location: DebugLocation) -> c_uint;
    pub safe fn LLVMDILocationGetInlinedAt(location: DebugLocation) -> Option<DebugLocation>;
    pub safe fn LLVMDILocationGetLine(location: DebugLocation) -> c_uint;
    pub safe fn LLVMDILocationGetScope(location: DebugLocation) -> LocalScope;
    pub safe fn LLVMDIScopeGetFile(scope: LocalScope) -> Option<DebugFile>;
    /// `LLVMDIScopeGetFile` for a function, since `DISubprogram` is a subclass of `DIScope`.
    #[link_name = "LLVMDIScopeGetFile"]
    pub safe fn file_of_subprogram(subprogram: Subprogram) -> Option<DebugFile>;
    pub safe fn LLVMDISubprogramGetLine(subprogram: Subprogram) -> c_uint;
    pub safe fn LLVMGetMDNodeNumOperands(node: MetadataNode) -> c_uint;
    pub safe fn LLVMGetMetadataKind(node: Metadata) -> LLVMMetadataKind;
    pub safe fn LLVMMetadataAsValue(context: LlvmContext, node: Metadata) -> Value;
    /// Frees the temporary node, which is therefore passed by value.
    pub safe fn LLVMMetadataReplaceAllUsesWith(node: TemporaryNode, by: Metadata);
    /// The array must have as many elements as the node has operands.
    pub fn LLVMGetMDNodeOperands(node: MetadataNode, operands: *mut Option<Value>);
    /// Pointer and length must describe a string.
    pub fn LLVMGetMDKindIDInContext(context: LlvmContext, name: *const c_char, length: c_uint) -> MetadataKind;
    /// The array must have `count` elements.
    pub fn LLVMMDNodeInContext2(context: LlvmContext, operands: *const Metadata, count: usize) -> Metadata;
    /// Pointer and length must describe a string.
    pub fn LLVMMDStringInContext2(context: LlvmContext, text: *const c_char, length: usize) -> Metadata;
    /// The array must have `count` elements.
    pub fn LLVMTemporaryMDNode(context: LlvmContext, operands: *const Metadata, count: usize) -> TemporaryNode;
}

// SAFETY: these accept every live module and copy the names they get. Lists of globals end with null.
unsafe extern "C" {
    pub safe fn LLVMAddFunction(module: Module, name: Terminated, kind: FunctionType) -> Value;
    pub safe fn LLVMAddGlobal(module: Module, kind: SizedType, name: Terminated) -> Value;
    pub safe fn LLVMAddAlias2(module: Module, kind: Type, address_space: c_uint, of: Constant, name: Terminated) -> Value;
    pub safe fn LLVMCloneModule(module: Module) -> Module;
    pub safe fn LLVMGetFirstFunction(module: Module) -> Option<Value>;
    pub safe fn LLVMGetFirstGlobal(module: Module) -> Option<Value>;
    pub safe fn LLVMGetFirstGlobalAlias(module: Module) -> Option<Value>;
    pub safe fn LLVMGetFirstGlobalIFunc(module: Module) -> Option<Value>;
    pub safe fn LLVMGetModuleContext(module: Module) -> LlvmContext;
    pub safe fn LLVMGetModuleDataLayout(module: Module) -> DataLayout;
    pub safe fn LLVMGetNamedFunction(module: Module, name: Terminated) -> Option<Value>;
    pub safe fn LLVMGetNamedGlobal(module: Module, name: Terminated) -> Option<Value>;
    pub safe fn LLVMGetNamedMetadataNumOperands(module: Module, name: Terminated) -> c_uint;
    pub safe fn LLVMGetSourceFileName(module: Module, length: &mut usize) -> *const c_char;
    pub safe fn LLVMGetTarget(module: Module) -> Terminated<'static>;
    pub safe fn LLVMTargetMachineEmitToFile(
        machine: TargetMachine,
        module: Module,
        file: Terminated,
        kind: LLVMCodeGenFileType,
        message: &mut Option<OwnedText>,
    ) -> c_int;
    pub safe fn LLVMWriteBitcodeToMemoryBuffer(module: Module) -> MemoryBuffer;
    /// The node must be of a kind that may be attached.
    pub fn LLVMAddNamedMetadataOperand(module: Module, name: Terminated, node: MetadataNode);
    /// Pointer and length must describe a string.
    pub fn LLVMAppendModuleInlineAsm(module: Module, text: *const c_char, length: usize);
    /// The module and everything in it must not be used afterwards.
    pub fn LLVMDisposeModule(module: Module);
    /// The number must be that of an intrinsic, and the array must have `count` types, one for each overloaded type of the intrinsic.
    pub fn LLVMGetIntrinsicDeclaration(module: Module, number: c_uint, types: *const Type, count: usize) -> Value;
    /// Pointer and length must describe a string.
    pub fn LLVMGetModuleFlag(module: Module, name: *const c_char, length: usize) -> Option<Metadata>;
    /// Pointer and length must describe a string.
    pub fn LLVMGetNamedMetadata(module: Module, name: *const c_char, length: usize) -> Option<NamedMetadata>;
    /// The array must have as many elements as the named metadata has operands.
    pub fn LLVMGetNamedMetadataOperands(module: Module, name: Terminated, operands: *mut Option<Value>);
    /// Pointer and length must describe a string.
    pub fn LLVMGetOrInsertNamedMetadata(module: Module, name: *const c_char, length: usize) -> NamedMetadata;
    /// Pointer and length must describe a string.
    pub fn LLVMLookupIntrinsicID(name: *const c_char, length: usize) -> c_uint;
    /// No handle to a call to a debug intrinsic may be used afterwards.
    pub fn LLVMStripModuleDebugInfo(module: Module) -> c_int;
}

// SAFETY: the caller owns a message that LLVM allocated, and passes it back by value to free it. Parsing reads the buffer and keeps no
// pointer to it.
unsafe extern "C" {
    pub safe fn LLVMContextCreate() -> LlvmContext;
    pub safe fn LLVMDisposeMessage(text: OwnedText);
    pub safe fn LLVMGetBufferSize(buffer: MemoryBuffer) -> usize;
    pub safe fn LLVMGetBufferStart(buffer: MemoryBuffer) -> *const c_char;
    /// The context and everything in it must not be used afterwards.
    pub fn LLVMContextDispose(context: LlvmContext);
    /// The buffer must not be used afterwards.
    pub fn LLVMDisposeMemoryBuffer(buffer: MemoryBuffer);
    /// Pointer and length must describe a string.
    pub fn LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes: *const c_char, length: usize, name: Terminated) -> MemoryBuffer;
    pub safe fn LLVMParseBitcodeInContext2(context: LlvmContext, buffer: MemoryBuffer, module: &mut Option<Module>) -> c_int;
}

// SAFETY: the caller owns an error, and passes it back by value, which frees it.
unsafe extern "C" {
    pub safe fn LLVMCreatePassBuilderOptions() -> PassOptionsHandle;
    pub safe fn LLVMGetErrorMessage(error: OwnedPassError) -> Terminated<'static>;
    /// The options must not be used afterwards.
    pub fn LLVMDisposePassBuilderOptions(options: PassOptionsHandle);
    /// No handle to what the passes delete may be used afterwards.
    pub fn LLVMRunPasses(module: Module, passes: Terminated, machine: TargetMachine, options: PassOptionsHandle) -> Option<OwnedPassError>;
}
