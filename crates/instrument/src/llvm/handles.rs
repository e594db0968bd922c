//! Handles: pointers that LLVM returned, to what is live. Safe code gets them from LLVM only. A context keeps its types and metadata, and a
//! constant until one that it contains is replaced or deleted; a module frees only what it is told to. Functions that free something, or
//! make LLVM free something, are unsafe, and require that no handle to it is used afterwards. The module that clang passed outlives the
//! call of the plugin, and handles, which cannot be sent to other threads, are dropped before.
//!
//! What the types do not say is that handles of different contexts are kept apart. The plugin works on one context at a time.

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Defines types of handles. They are passed to LLVM as the pointers that they contain.
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
    /// A place where a value is an operand.
    ValueUse;
    /// A group of sections of which the linker keeps one.
    Comdat;
    /// Sizes and alignments of types.
    DataLayout;
    /// The machine for which code is generated.
    TargetMachine;
    /// An instruction builder.
    BuilderHandle;
    /// Bytes that LLVM allocated.
    MemoryBuffer;
    /// The metadata that is attached to a global.
    MetadataEntries;
    /// Options for runs of passes.
    PassOptionsHandle;
}

/// Defines types of metadata that only functions with this type of result return.
macro_rules! descriptions {
    ($($(#[$what:meta])* $name:ident;)*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(Metadata);
    )*};
}

descriptions! {
    /// The position in the source of an instruction (`DILocation`).
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

/// A metadata node that stands for another one until that exists. It is not copied, since replacing it frees it.
#[derive(Debug)]
#[repr(transparent)]
pub struct TemporaryNode(Metadata);

impl TemporaryNode {
    /// Returns the node as an operand of other nodes.
    pub fn as_operand(&self) -> Metadata {
        self.0
    }
}

/// A NUL-terminated text that LLVM allocated, to be freed by `LLVMDisposeMessage`.
#[derive(Debug)]
#[repr(transparent)]
pub struct OwnedText(NonNull<c_char>);

impl OwnedText {
    pub(super) fn as_terminated(&self) -> Terminated<'_> {
        Terminated(self.0, PhantomData)
    }
}

/// An error of a run of passes, to be freed by `LLVMGetErrorMessage`.
#[derive(Debug)]
#[repr(transparent)]
pub struct OwnedPassError(NonNull<c_void>);

/// A NUL-terminated text.
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
        // SAFETY: the text is terminated: it was made from a `CStr`, or LLVM returned it from a function whose result is one.
        unsafe { CStr::from_ptr(self.0.as_ptr()) }.to_string_lossy().into_owned()
    }
}

/// LLVM's number of a kind of attributes, 0 if LLVM does not know the kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct AttributeKind(c_uint);

impl AttributeKind {
    /// Returns true if LLVM knows the kind.
    pub fn is_known(self) -> bool {
        self.0 != 0
    }
}

/// LLVM's number of a kind of metadata that is attached to instructions and globals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct MetadataKind(c_uint);

impl Module {
    /// Wraps a pointer to a module.
    ///
    /// # Safety
    /// The pointer is null, or points to an `llvm::Module` that outlives all handles from it.
    pub unsafe fn from_raw(pointer: *mut c_void) -> Option<Module> {
        NonNull::new(pointer).map(Module)
    }
}

impl TargetMachine {
    /// Wraps a pointer to a target machine.
    ///
    /// # Safety
    /// The pointer is null, or points to an `llvm::TargetMachine` that outlives the handle.
    pub unsafe fn from_raw(pointer: *mut c_void) -> Option<TargetMachine> {
        NonNull::new(pointer).map(TargetMachine)
    }
}
