//! The module being compiled, and what is added to it.

use super::{Value, c_string, llvm, text};
use llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMLinkage, LLVMThreadLocalMode, LLVMUnnamedAddr, LLVMVisibility};
use std::ffi::CStr;

/// The module being compiled.
#[derive(Clone, Copy)]
pub struct Module {
    /// LLVM's handle.
    pub raw: LLVMModuleRef,
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
    /// `void`
    pub fn void(self) -> LLVMTypeRef {
        llvm!(LLVMVoidTypeInContext(self.context()))
    }

    /// The function of a name, if it is there.
    pub fn function(self, name: &str) -> Option<Value> {
        Value::some(llvm!(LLVMGetNamedFunction(self.raw, c_string(name).as_ptr())))
    }

    /// The function of a name; it is declared, without parameters and a result, if it is not there.
    pub fn function_without_parameters(self, name: &str) -> Value {
        let kind = || llvm!(LLVMFunctionType(self.void(), std::ptr::null_mut(), 0, 0));
        self.function(name).unwrap_or_else(|| self.add_function(name, kind()))
    }

    /// The variable of a name, if it is there.
    pub fn global(self, name: &str) -> Option<Value> {
        Value::some(llvm!(LLVMGetNamedGlobal(self.raw, c_string(name).as_ptr())))
    }

    /// Declares a function.
    pub fn add_function(self, name: &str, kind: LLVMTypeRef) -> Value {
        Value(llvm!(LLVMAddFunction(self.raw, c_string(name).as_ptr(), kind)))
    }

    /// An intrinsic function for those types.
    pub fn intrinsic(self, name: &str, kinds: &mut [LLVMTypeRef]) -> Value {
        let id = llvm!(LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()));
        Value(llvm!(LLVMGetIntrinsicDeclaration(self.raw, id, kinds.as_mut_ptr(), kinds.len())))
    }

    /// Declares a variable.
    pub fn add_global(self, name: &str, kind: LLVMTypeRef) -> Value {
        Value(llvm!(LLVMAddGlobal(self.raw, kind, c_string(name).as_ptr())))
    }

    /// Declares a variable that no other image sees.
    pub fn add_hidden_global(self, name: &str, kind: LLVMTypeRef) -> Value {
        let global = self.add_global(name, kind);
        llvm!(LLVMSetVisibility(global.0, LLVMVisibility::LLVMHiddenVisibility));
        global
    }

    /// Declares such a variable of which each thread has its own.
    pub fn add_thread_local(self, name: &str) -> Value {
        let global = self.add_hidden_global(name, self.i64());
        llvm!(LLVMSetThreadLocalMode(global.0, LLVMThreadLocalMode::LLVMInitialExecTLSModel));
        global
    }

    /// Defines a constant array of bytes of the module's own.
    pub fn add_bytes(self, name: &str, bytes: &[u8]) -> Value {
        let content = Value(llvm!(LLVMConstStringInContext2(self.context(), bytes.as_ptr().cast(), bytes.len(), 1)));
        let global = self.add_global(name, content.kind());
        llvm!(LLVMSetInitializer(global.0, content.0));
        llvm!(LLVMSetGlobalConstant(global.0, 1));
        llvm!(LLVMSetLinkage(global.0, LLVMLinkage::LLVMPrivateLinkage));
        llvm!(LLVMSetUnnamedAddress(global.0, LLVMUnnamedAddr::LLVMGlobalUnnamedAddr));
        global
    }
}
