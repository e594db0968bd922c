//! Metadata: nodes, strings, and debug information.

use super::classes::{AttachedNode, HandleClass, MetadataNode, Subprogram};
use super::functions::*;
use super::handles::{DebugFile, DebugLocation, LlvmContext, LocalScope, Metadata, MetadataKind, Module, TemporaryNode, Value};
use super::values::{bytes_of, text_of};
use llvm_sys::debuginfo::LLVMMetadataKind;

impl LlvmContext {
    /// Returns LLVM's number for a metadata kind.
    pub(super) fn metadata_kind(self, name: &str) -> MetadataKind {
        // SAFETY: pointer and length are those of `name`, which LLVM copies.
        unsafe { LLVMGetMDKindIDInContext(self, name.as_ptr().cast(), name.len() as u32) }
    }

    /// Wraps metadata as a value, so that it can be an operand of an instruction.
    pub fn as_value(self, node: Metadata) -> Value {
        LLVMMetadataAsValue(self, node)
    }

    pub fn metadata_string(self, text: &[u8]) -> Metadata {
        // SAFETY: pointer and length are those of `text`, which LLVM copies.
        unsafe { LLVMMDStringInContext2(self, text.as_ptr().cast(), text.len()) }
    }

    pub fn metadata_node(self, operands: &[Metadata]) -> Metadata {
        // SAFETY: the array has that many elements, which LLVM copies.
        unsafe { LLVMMDNodeInContext2(self, operands.as_ptr(), operands.len()) }
    }

    /// Creates a node whose first operand is the node itself, so that it differs from all nodes with the same other operands.
    pub fn distinct_node(self, others: &[Metadata]) -> Metadata {
        // SAFETY: the node has no operands.
        let own: TemporaryNode = unsafe { LLVMTemporaryMDNode(self, std::ptr::null(), 0) };
        let node = self.metadata_node(&[&[own.as_operand()], others].concat());
        LLVMMetadataReplaceAllUsesWith(own, node);
        node
    }

    /// Creates a debug location with line 0 in a function, for code that belongs to no source line.
    pub fn location_without_line(self, scope: Subprogram) -> DebugLocation {
        LLVMDIBuilderCreateDebugLocation(self, 0, 0, scope, None)
    }
}

impl Value {
    /// Converts a value to metadata, so that it can be an operand of a node. A value that wraps metadata is unwrapped.
    pub fn as_metadata(self) -> Metadata {
        LLVMValueAsMetadata(self)
    }

    /// Returns the operands of a metadata node, `None` for null operands.
    pub fn metadata_operands(self) -> Vec<Option<Value>> {
        let node: MetadataNode = self.expect();
        let mut operands = vec![None; LLVMGetMDNodeNumOperands(node) as usize];
        // SAFETY: the array has as many elements as the node has operands.
        unsafe { LLVMGetMDNodeOperands(node, operands.as_mut_ptr()) };
        operands
    }

    pub fn metadata_text(self) -> Option<String> {
        Some(String::from_utf8_lossy(&self.metadata_bytes()?).into_owned())
    }

    /// Returns the content of a metadata string; `None` for other values.
    pub fn metadata_bytes(self) -> Option<Vec<u8>> {
        let mut length = 0;
        let pointer = LLVMGetMDString(self, &mut length);
        // SAFETY: LLVM returns the string with its length, or null.
        unsafe { bytes_of(pointer, length as usize) }
    }

    /// Attaches metadata to a function or variable.
    pub fn set_global_metadata(self, context: LlvmContext, kind: &str, node: Metadata) {
        LLVMGlobalSetMetadata(self.expect(), context.metadata_kind(kind), node.expect());
    }
}

impl Metadata {
    pub fn metadata_kind(self) -> LLVMMetadataKind {
        LLVMGetMetadataKind(self)
    }

    /// Returns the metadata as a function's debug information, if it is that.
    pub fn as_subprogram(self) -> Option<Subprogram> {
        Subprogram::of(self)
    }
}

impl Subprogram {
    pub fn line(self) -> u32 {
        LLVMDISubprogramGetLine(self)
    }

    pub fn file(self) -> Option<DebugFile> {
        file_of_subprogram(self)
    }
}

impl LocalScope {
    pub fn file(self) -> Option<DebugFile> {
        LLVMDIScopeGetFile(self)
    }
}

impl DebugLocation {
    pub fn line(self) -> u32 {
        LLVMDILocationGetLine(self)
    }

    pub fn column(self) -> u32 {
        LLVMDILocationGetColumn(self)
    }

    pub fn scope(self) -> LocalScope {
        LLVMDILocationGetScope(self)
    }

    /// Returns the location of the call that was replaced by inlining; `None` if the code was not inlined.
    pub fn inlined_at(self) -> Option<DebugLocation> {
        LLVMDILocationGetInlinedAt(self)
    }
}

impl DebugFile {
    /// Returns the file's folder and name.
    pub fn folder_and_name(self) -> (String, String) {
        let (mut folder_length, mut name_length) = (0, 0);
        let (folder, name) = (LLVMDIFileGetDirectory(self, &mut folder_length), LLVMDIFileGetFilename(self, &mut name_length));
        // SAFETY: LLVM returns both strings with their lengths.
        unsafe { (text_of(folder, folder_length as usize), text_of(name, name_length as usize)) }
    }
}

impl Module {
    /// Returns the operands of the module's named metadata.
    pub fn named_metadata(self, name: &str) -> Vec<Value> {
        let name = super::module::c_string(name);
        let mut nodes = vec![None; LLVMGetNamedMetadataNumOperands(self, (&*name).into()) as usize];
        // SAFETY: the array has as many elements as there are nodes.
        unsafe { LLVMGetNamedMetadataOperands(self, (&*name).into(), nodes.as_mut_ptr()) };
        nodes.into_iter().flatten().collect()
    }

    /// Adds an operand to the module's named metadata, which is created if necessary.
    pub fn add_named_metadata(self, name: &str, node: Metadata) {
        let name = super::module::c_string(name);
        let value = self.context().as_value(node.expect::<AttachedNode>().into()).expect();
        // SAFETY: the value wraps a node of a kind that may be attached.
        unsafe { LLVMAddNamedMetadataOperand(self, (&*name).into(), value) }
    }

    /// Returns true if the module has named metadata of that name, even without operands.
    pub fn has_named_metadata(self, name: &str) -> bool {
        // SAFETY: pointer and length are those of `name`, which LLVM compares.
        unsafe { LLVMGetNamedMetadata(self, name.as_ptr().cast(), name.len()) }.is_some()
    }

    /// Creates named metadata without operands, unless it exists.
    pub fn declare_named_metadata(self, name: &str) {
        // SAFETY: pointer and length are those of `name`, which LLVM copies.
        unsafe { LLVMGetOrInsertNamedMetadata(self, name.as_ptr().cast(), name.len()) };
    }

    /// Returns true if the module has a flag of that name.
    pub fn has_flag(self, name: &str) -> bool {
        // SAFETY: pointer and length are those of `name`, which LLVM compares.
        unsafe { LLVMGetModuleFlag(self, name.as_ptr().cast(), name.len()) }.is_some()
    }

    /// Removes all debug information.
    ///
    /// # Safety
    /// No handle to a call to a debug intrinsic may be used afterwards.
    pub unsafe fn strip_debug_info(self) {
        // SAFETY: LLVM deletes only debug metadata of the module and calls to debug intrinsics, to which the caller uses no handle.
        unsafe { LLVMStripModuleDebugInfo(self) };
    }
}
