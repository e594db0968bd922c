//! Functions, global variables and aliases, and the attributes of functions and calls.

use super::classes::*;
use super::functions::*;
use super::handles::{AttributeKind, Block, CodeAttribute, LlvmContext, Module, Type, Value};
use super::values::bytes_of;
use llvm_sys::analysis::LLVMVerifierFailureAction;
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMLinkage, LLVMThreadLocalMode, LLVMUnnamedAddr, LLVMVisibility};
use std::cell::RefCell;

/// Methods for all kinds of globals.
impl Value {
    /// Returns the module that contains a global.
    pub fn module(self) -> Module {
        LLVMGetGlobalParent(self.expect())
    }

    pub fn linkage(self) -> LLVMLinkage {
        LLVMGetLinkage(self.expect())
    }

    pub fn set_linkage(self, linkage: LLVMLinkage) {
        LLVMSetLinkage(self.expect(), linkage);
    }

    pub fn set_visibility(self, visibility: LLVMVisibility) {
        LLVMSetVisibility(self.expect(), visibility);
    }

    /// Returns the type of the object at a global's address; for a function, its function type.
    pub fn value_type(self) -> Type {
        LLVMGlobalGetValueType(self.expect())
    }

    pub fn is_declaration(self) -> bool {
        LLVMIsDeclaration(self.expect()) != 0
    }

    /// Returns the object that an alias refers to; `None` for values other than aliases.
    pub fn aliasee(self) -> Option<Value> {
        AliasValue::of(self).map(|it| LLVMAliasGetAliasee(it))
    }

    pub fn set_section(self, name: &std::ffi::CStr) {
        LLVMSetSection(self.expect(), name.into());
    }

    /// Places a function or variable into the section of another one, if that has an explicit section.
    pub fn place_in_section_of(self, other: Value) {
        if let Some(section) = LLVMGetSection(other.expect()) {
            LLVMSetSection(self.expect(), section);
        }
    }

    /// Adds a function or variable to the section group (comdat) of another one, if that is in one.
    pub fn join_comdat_of(self, other: Value) {
        if let Some(comdat) = LLVMGetComdat(other.expect()) {
            LLVMSetComdat(self.expect(), comdat);
        }
    }

    /// Returns the alignment in bytes of a global or a memory access; 0 means the default.
    pub fn alignment(self) -> u32 {
        LLVMGetAlignment(self.expect())
    }

    pub fn set_alignment(self, bytes: u32) {
        assert!(bytes.is_power_of_two() || bytes == 0 && self.is_global(), "an alignment is a power of two");
        // SAFETY: the number is a power of two, or 0, which means the default for a global.
        unsafe { LLVMSetAlignment(self.expect(), bytes) }
    }

    /// Returns true if metadata of a kind is attached to a function or variable.
    pub fn has_global_metadata(self, context: LlvmContext, kind: &str) -> bool {
        let mut count = 0;
        let entries = LLVMGlobalCopyAllMetadata(self.expect(), &mut count);
        let kind = context.metadata_kind(kind);
        // SAFETY: LLVM returned that many entries.
        let found = (0..count as u32).any(|at| unsafe { LLVMValueMetadataEntriesGetKind(entries, at) } == kind);
        // SAFETY: LLVM created the entries for this call, and nothing uses them after this.
        unsafe { LLVMDisposeValueMetadataEntries(entries) };
        found
    }
}

/// Methods for global variables.
impl Value {
    /// Returns the initial value of a global variable; `None` if the module only declares it.
    pub fn initializer(self) -> Option<Value> {
        LLVMGetInitializer(self.expect())
    }

    /// Sets the initial value of a global variable, which must have the variable's type.
    pub fn set_initializer(self, value: Value) {
        assert!(value.kind() == self.value_type(), "a variable's initial value has its type");
        // SAFETY: the value is a constant of the variable's type.
        unsafe { LLVMSetInitializer(self.expect(), value.expect()) }
    }

    pub fn is_global_constant(self) -> bool {
        LLVMIsGlobalConstant(self.expect()) != 0
    }

    pub fn set_global_constant(self) {
        LLVMSetGlobalConstant(self.expect(), 1);
    }

    pub fn set_thread_local_mode(self, mode: LLVMThreadLocalMode) {
        LLVMSetThreadLocalMode(self.expect(), mode);
    }

    /// Declares that a variable's address does not matter, so that the linker may merge it with others of the same content.
    pub fn set_address_insignificant(self) {
        LLVMSetUnnamedAddress(self.expect(), LLVMUnnamedAddr::LLVMGlobalUnnamedAddr);
    }

    /// Deletes an unused global variable.
    ///
    /// # Safety
    /// No handle to the variable may be used afterwards.
    pub unsafe fn delete_variable(self) {
        assert!(self.is_unused(), "`{}` is used", self.name());
        // SAFETY: nothing in the module uses the variable, and the caller does not use the handle again.
        unsafe { LLVMDeleteGlobal(self.expect()) }
    }
}

/// Methods for functions.
impl Value {
    /// Returns the entry block of a function that has a body.
    pub fn entry(self) -> Block {
        LLVMGetFirstBasicBlock(self.expect()).expect("the function has a body")
    }

    pub fn blocks(self) -> impl Iterator<Item = Block> {
        std::iter::successors(LLVMGetFirstBasicBlock(self.expect()), |block| block.next())
    }

    pub fn parameters(self) -> Vec<Value> {
        let function = self.expect();
        // SAFETY: the index is below the number of parameters.
        (0..LLVMCountParams(function)).map(|i| unsafe { LLVMGetParam(function, i) }).collect()
    }

    pub fn last_parameter(self) -> Value {
        LLVMGetLastParam(self.expect()).expect("the function has parameters")
    }

    /// Returns the ID of an intrinsic; 0 for other functions.
    pub fn intrinsic_id(self) -> u32 {
        LLVMGetIntrinsicID(self)
    }

    /// Returns the calling convention of a function.
    pub fn convention(self) -> u32 {
        LLVMGetFunctionCallConv(self.expect())
    }

    pub fn set_convention(self, convention: u32) {
        LLVMSetFunctionCallConv(self.expect(), convention);
    }

    pub fn has_personality(self) -> bool {
        LLVMHasPersonalityFn(self.expect()) != 0
    }

    /// Gives a function the personality and the garbage collector of another one.
    pub fn copy_personality_and_gc(self, other: Value) {
        if let Some(other) = FunctionWithPersonality::of(other) {
            LLVMSetPersonalityFn(self.expect(), LLVMGetPersonalityFn(other).expect());
        }
        LLVMSetGC(self.expect(), LLVMGetGC(other.expect()));
    }

    /// Returns the debug information of a function; `None` if it has none.
    pub fn subprogram(self) -> Option<Subprogram> {
        LLVMGetSubprogram(self.expect())
    }

    /// Returns true if LLVM's verifier accepts a function; otherwise the verifier prints the reason.
    pub fn passes_verifier(self) -> bool {
        LLVMVerifyFunction(self.expect(), LLVMVerifierFailureAction::LLVMPrintMessageAction) == 0
    }

    /// Deletes an unused function together with its code.
    ///
    /// # Safety
    /// Nothing may use the function, and no handle to it, its parameters or its code may be used afterwards.
    pub unsafe fn delete_function(self) {
        // SAFETY: the caller guarantees that nothing uses the function or handles to its parts.
        unsafe { LLVMDeleteFunction(self.expect()) }
    }
}

/// The attributes without a value that the plugin may add.
const ADDABLE_ATTRIBUTES: [&str; 5] = ["alwaysinline", "cold", "nounwind", "optnone", "willreturn"];

/// Methods for attributes. Index 0 stands for the result, indices from 1 for parameters, and `LLVMAttributeFunctionIndex` for the function.
impl Value {
    pub fn has_attribute(self, name: &str) -> bool {
        self.attribute_at(LLVMAttributeFunctionIndex, name).is_some()
    }

    /// Returns the attribute `name` of a function at an index; `None` if it is not set.
    pub fn attribute_at(self, index: u32, name: &str) -> Option<CodeAttribute> {
        LLVMGetEnumAttributeAtIndex(self.expect(), index, attribute_kind(name))
    }

    /// Returns the attribute `name` of a call at an index; `None` if it is not set.
    pub fn call_attribute_at(self, index: u32, name: &str) -> Option<CodeAttribute> {
        LLVMGetCallSiteEnumAttribute(self.expect(), index, attribute_kind(name))
    }

    /// Returns true if a call, or the function it calls directly, has the attribute.
    pub fn call_has_attribute(self, name: &str) -> bool {
        self.call_attribute_at(LLVMAttributeFunctionIndex, name).is_some()
            || (self.callee().is_function() && self.callee().has_attribute(name))
    }

    /// Adds an attribute without a value to a function.
    pub fn add_attribute(self, context: LlvmContext, name: &str) {
        assert!(ADDABLE_ATTRIBUTES.contains(&name), "{name} is an attribute without a value");
        let kind = KnownAttributeKind::of(attribute_kind(name)).expect("LLVM has the attribute");
        self.add_attribute_at(LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(context, kind, 0));
    }

    /// Adds an attribute to a function.
    pub fn add_attribute_at(self, index: u32, attribute: CodeAttribute) {
        LLVMAddAttributeAtIndex(self.expect(), index, attribute);
    }

    /// Adds an attribute to a call.
    pub fn add_call_attribute_at(self, index: u32, attribute: CodeAttribute) {
        LLVMAddCallSiteAttribute(self.expect(), index, attribute);
    }

    pub fn remove_attribute(self, name: &str) {
        LLVMRemoveEnumAttributeAtIndex(self.expect(), LLVMAttributeFunctionIndex, attribute_kind(name));
    }

    pub fn remove_call_attribute(self, name: &str) {
        LLVMRemoveCallSiteEnumAttribute(self.expect(), LLVMAttributeFunctionIndex, attribute_kind(name));
    }

    /// Returns a function's attributes at an index.
    pub fn attributes_at(self, index: u32) -> Vec<CodeAttribute> {
        let function = self.expect();
        let mut attributes = vec![None; LLVMGetAttributeCountAtIndex(function, index) as usize];
        // SAFETY: the array has as many elements as the function has attributes at the index.
        unsafe { LLVMGetAttributesAtIndex(function, index, attributes.as_mut_ptr()) };
        attributes.into_iter().flatten().collect()
    }

    /// Returns a call's attributes at an index.
    pub fn call_attributes_at(self, index: u32) -> Vec<CodeAttribute> {
        let call = self.expect();
        let mut attributes = vec![None; LLVMGetCallSiteAttributeCount(call, index) as usize];
        // SAFETY: the array has as many elements as the call has attributes at the index.
        unsafe { LLVMGetCallSiteAttributes(call, index, attributes.as_mut_ptr()) };
        attributes.into_iter().flatten().collect()
    }

    /// Returns true if a function has a string attribute.
    pub fn has_text_attribute(self, name: &str) -> bool {
        self.text_attribute(name).is_some()
    }

    /// Returns the value of a function's string attribute; `None` if it is not set.
    pub fn text_attribute(self, name: &str) -> Option<Vec<u8>> {
        // SAFETY: pointer and length are those of `name`, which LLVM compares.
        let attribute =
            unsafe { LLVMGetStringAttributeAtIndex(self.expect(), LLVMAttributeFunctionIndex, name.as_ptr().cast(), name.len() as u32) }?;
        let mut length = 0;
        let pointer = LLVMGetStringAttributeValue(TextAttribute::of(attribute)?, &mut length);
        // SAFETY: LLVM returns the attribute's value with its length.
        Some(unsafe { bytes_of(pointer, length as usize) }.unwrap_or_default())
    }

    /// Adds a string attribute without a value to a function.
    pub fn add_text_attribute(self, context: LlvmContext, name: &str) {
        let (text, length) = (name.as_ptr().cast(), name.len() as u32);
        // SAFETY: pointer and length are those of `name`, which LLVM copies. The value is empty.
        let attribute = unsafe { LLVMCreateStringAttribute(context, text, length, c"".as_ptr(), 0) };
        self.add_attribute_at(LLVMAttributeFunctionIndex, attribute);
    }
}

impl CodeAttribute {
    /// Returns the integer of an attribute: 0 if it has no value, `None` if its value is a type or a string.
    pub fn number(self) -> Option<u64> {
        NumberAttribute::of(self).map(|it| LLVMGetEnumAttributeValue(it))
    }

    /// Returns the type of a type attribute; `None` for other attributes.
    pub fn kind(self) -> Option<Type> {
        TypeAttribute::of(self).map(|it| LLVMGetTypeAttributeValue(it))
    }

    /// Creates the attribute `elementtype`, which gives the type in memory of a pointer operand of inline assembly.
    pub(super) fn element_type(context: LlvmContext, kind: Type) -> CodeAttribute {
        let element_type = KnownAttributeKind::of(attribute_kind("elementtype")).expect("LLVM has the attribute");
        LLVMCreateTypeAttribute(context, element_type, kind)
    }
}

thread_local! {
    /// Cache of attribute kinds. LLVM finds a kind by comparing the name with all others, and several kinds are looked up per call.
    static ATTRIBUTE_KINDS: RefCell<Vec<(String, AttributeKind)>> = const { RefCell::new(Vec::new()) };
}

/// Returns LLVM's number for an attribute name.
fn attribute_kind(name: &str) -> AttributeKind {
    ATTRIBUTE_KINDS.with_borrow_mut(|known| {
        if let Some((_, kind)) = known.iter().find(|(other, _)| other == name) {
            return *kind;
        }
        // SAFETY: pointer and length are those of `name`, which LLVM compares.
        let kind = unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()) };
        known.push((name.to_owned(), kind));
        kind
    })
}
