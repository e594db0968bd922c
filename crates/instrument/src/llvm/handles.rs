//! Handles: pointers to live LLVM objects. Safe code only gets them from LLVM. A context keeps its types and metadata until it is freed,
//! and a constant until one that it contains is replaced or deleted; a module only frees what it is told to. Functions that free an object,
//! or make LLVM free one, are unsafe and require that no handle to it is used afterwards. The module that clang passed outlives the call of
//! the plugin, and handles, which cannot be sent to other threads, do not.
//!
//! The types do not ensure that handles of different contexts are kept apart. The plugin works on one context at a time.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Defines handle types. A handle is passed to LLVM as the pointer that it contains.
macro_rules! handles {
    ($($(#[$what:meta])* $name:ident;)*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(NonNull<c_void>);
    )*};
}

handles! {
    /// A value: a function, an instruction, a constant, and so on.
    Value;
    /// A basic block.
    Block;
    /// A type.
    Type;
    /// A metadata node or string.
    Metadata;
    /// A list of metadata nodes with a name.
    NamedMetadata;
    /// An attribute of a function, a parameter or a call.
    CodeAttribute;
    /// A module.
    Module;
    /// The context that owns types, constants and metadata of its modules.
    LlvmContext;
    /// A use: one operand of one user of a value.
    ValueUse;
    /// A section group (comdat), of which the linker keeps one copy.
    Comdat;
    /// The sizes and alignments of types on the target.
    DataLayout;
    /// The machine for which code is generated.
    TargetMachine;
    /// An instruction builder.
    BuilderHandle;
    /// Bytes that LLVM allocated.
    MemoryBuffer;
    /// A list of the metadata attached to a global.
    MetadataEntries;
    /// Options for running passes.
    PassOptionsHandle;
}

/// Defines wrappers of `Metadata` for certain kinds of nodes. Values of these types only come from LLVM functions that return this kind.
macro_rules! descriptions {
    ($($(#[$what:meta])* $name:ident;)*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(Metadata);
    )*};
}

descriptions! {
    /// The source position of an instruction (`DILocation`).
    DebugLocation;
    /// A lexical scope (`DILocalScope`).
    LocalScope;
    /// A source file (`DIFile`).
    DebugFile;
}

impl From<LocalScope> for Metadata {
    fn from(scope: LocalScope) -> Metadata {
        scope.0
    }
}

/// A metadata node that stands for another one until that exists. It cannot be copied, because replacing it frees it.
#[derive(Debug)]
#[repr(transparent)]
pub struct TemporaryNode(Metadata);

impl TemporaryNode {
    /// Returns the node as an operand of other nodes.
    pub fn as_operand(&self) -> Metadata {
        self.0
    }
}

/// A NUL-terminated string that LLVM allocated, to be freed by `LLVMDisposeMessage`.
#[derive(Debug)]
#[repr(transparent)]
pub struct OwnedText(NonNull<c_char>);

impl OwnedText {
    pub(super) fn as_terminated(&self) -> Terminated<'_> {
        Terminated(self.0, PhantomData)
    }
}

/// An error from running passes, which `LLVMGetErrorMessage` frees.
#[derive(Debug)]
#[repr(transparent)]
pub struct OwnedPassError(NonNull<c_void>);

/// A NUL-terminated string.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Terminated<'a>(NonNull<c_char>, PhantomData<&'a CStr>);

impl<'a> From<&'a CStr> for Terminated<'a> {
    fn from(text: &'a CStr) -> Terminated<'a> {
        Terminated(NonNull::from(text).cast(), PhantomData)
    }
}

impl Terminated<'_> {
    /// Copies the text.
    pub fn to_text(self) -> String {
        // SAFETY: the string is NUL-terminated: it comes from a `CStr`, or from an LLVM function that returns such a string.
        unsafe { CStr::from_ptr(self.0.as_ptr()) }.to_string_lossy().into_owned()
    }
}

/// LLVM's number for an attribute name; 0 if LLVM does not know the name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct AttributeKind(c_uint);

impl AttributeKind {
    /// Returns true if LLVM knows the attribute.
    pub fn is_known(self) -> bool {
        self.0 != 0
    }
}

/// LLVM's number for a kind of metadata, such as `!tbaa`, that can be attached to instructions or globals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct MetadataKind(c_uint);

impl Module {
    /// Wraps a pointer to a module.
    ///
    /// # Safety
    /// The pointer must be null, or point to an `llvm::Module` that outlives all handles from it.
    pub unsafe fn from_raw(pointer: *mut c_void) -> Option<Module> {
        NonNull::new(pointer).map(Module)
    }
}

impl TargetMachine {
    /// Wraps a pointer to a target machine.
    ///
    /// # Safety
    /// The pointer must be null, or point to an `llvm::TargetMachine` that outlives the handle.
    pub unsafe fn from_raw(pointer: *mut c_void) -> Option<TargetMachine> {
        NonNull::new(pointer).map(TargetMachine)
    }
}
