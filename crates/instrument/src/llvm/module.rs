//! The module being compiled.

use super::{Value, c_string, llvm, owned, text};
use llvm_sys::bit_reader::LLVMParseBitcodeInContext2;
use llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::target_machine::{LLVMCodeGenFileType, LLVMTargetMachineEmitToFile, LLVMTargetMachineRef};
use llvm_sys::{LLVMLinkage, LLVMThreadLocalMode, LLVMUnnamedAddr, LLVMVisibility};
use std::ffi::CStr;

/// A module that was parsed, and is freed together with its context.
pub struct OwnModule {
    pub module: Module,
    context: LLVMContextRef,
}

impl Drop for OwnModule {
    fn drop(&mut self) {
        llvm!(LLVMDisposeModule(self.module.raw));
        llvm!(LLVMContextDispose(self.context));
    }
}

#[derive(Clone, Copy)]
pub struct Module {
    pub raw: LLVMModuleRef,
}

impl Module {
    pub fn new(raw: LLVMModuleRef) -> Module {
        Module { raw }
    }

    /// Parses bitcode in a context of its own, so that the names of types do not depend on other modules.
    ///
    /// # Errors
    /// The bytes are not bitcode that LLVM can read.
    pub fn parse(bitcode: &[u8]) -> Result<OwnModule, String> {
        let context = llvm!(LLVMContextCreate());
        let buffer = llvm!(LLVMCreateMemoryBufferWithMemoryRangeCopy(bitcode.as_ptr().cast(), bitcode.len(), c"unit".as_ptr()));
        let mut raw = std::ptr::null_mut();
        let failed = llvm!(LLVMParseBitcodeInContext2(context, buffer, &mut raw));
        llvm!(LLVMDisposeMemoryBuffer(buffer));
        if failed != 0 {
            llvm!(LLVMContextDispose(context));
            return Err("LLVM cannot read its bitcode".to_owned());
        }
        Ok(OwnModule { module: Module::new(raw), context })
    }

    /// Generates code for the module, and writes the object to a file.
    ///
    /// # Errors
    /// LLVM's message if the machine cannot write objects, or the file cannot be written.
    pub fn write_object(self, machine: LLVMTargetMachineRef, file: &str) -> Result<(), String> {
        let mut message = std::ptr::null_mut();
        let kind = LLVMCodeGenFileType::LLVMObjectFile;
        match llvm!(LLVMTargetMachineEmitToFile(machine, self.raw, c_string(file).as_ptr(), kind, &mut message)) {
            0 => Ok(()),
            _ => Err(owned(message)),
        }
    }

    pub fn context(self) -> LLVMContextRef {
        llvm!(LLVMGetModuleContext(self.raw))
    }

    /// Returns all functions, declared and defined.
    pub fn functions(self) -> impl Iterator<Item = Value> {
        let first = llvm!(LLVMGetFirstFunction(self.raw));
        std::iter::successors(Value::some(first), |f| Value::some(llvm!(LLVMGetNextFunction(f.0))))
    }

    pub fn source(self) -> String {
        let mut length = 0;
        let pointer = llvm!(LLVMGetSourceFileName(self.raw, &mut length));
        text(pointer, length)
    }

    pub fn target(self) -> String {
        // SAFETY: LLVM returns a NUL-terminated string that lives as long as the module.
        unsafe { CStr::from_ptr(LLVMGetTarget(self.raw)) }.to_string_lossy().into_owned()
    }

    pub fn bitcode(self) -> Vec<u8> {
        let buffer = llvm!(LLVMWriteBitcodeToMemoryBuffer(self.raw));
        let (start, size) = (llvm!(LLVMGetBufferStart(buffer)), llvm!(LLVMGetBufferSize(buffer)));
        // SAFETY: the buffer has `size` bytes and is freed only after they are copied.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size) }.to_vec();
        llvm!(LLVMDisposeMemoryBuffer(buffer));
        bytes
    }

    pub fn append_assembly(self, assembly: &str) {
        llvm!(LLVMAppendModuleInlineAsm(self.raw, assembly.as_ptr().cast(), assembly.len()));
    }

    pub fn i64(self) -> LLVMTypeRef {
        llvm!(LLVMInt64TypeInContext(self.context()))
    }

    pub fn i8(self) -> LLVMTypeRef {
        llvm!(LLVMInt8TypeInContext(self.context()))
    }

    pub fn constant(self, value: i64) -> Value {
        Value(llvm!(LLVMConstInt(self.i64(), value as u64, 1)))
    }
    pub fn void(self) -> LLVMTypeRef {
        llvm!(LLVMVoidTypeInContext(self.context()))
    }

    pub fn function(self, name: &str) -> Option<Value> {
        Value::some(llvm!(LLVMGetNamedFunction(self.raw, c_string(name).as_ptr())))
    }

    /// Returns the function of that name; declares it as `void ()` if necessary.
    pub fn function_without_parameters(self, name: &str) -> Value {
        let kind = || llvm!(LLVMFunctionType(self.void(), std::ptr::null_mut(), 0, 0));
        self.function(name).unwrap_or_else(|| self.add_function(name, kind()))
    }

    pub fn global(self, name: &str) -> Option<Value> {
        Value::some(llvm!(LLVMGetNamedGlobal(self.raw, c_string(name).as_ptr())))
    }

    pub fn add_function(self, name: &str, kind: LLVMTypeRef) -> Value {
        Value(llvm!(LLVMAddFunction(self.raw, c_string(name).as_ptr(), kind)))
    }

    /// Returns the declaration of an intrinsic, overloaded for `kinds`.
    pub fn intrinsic(self, name: &str, kinds: &mut [LLVMTypeRef]) -> Value {
        let id = llvm!(LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()));
        Value(llvm!(LLVMGetIntrinsicDeclaration(self.raw, id, kinds.as_mut_ptr(), kinds.len())))
    }

    pub fn add_global(self, name: &str, kind: LLVMTypeRef) -> Value {
        Value(llvm!(LLVMAddGlobal(self.raw, kind, c_string(name).as_ptr())))
    }

    pub fn add_hidden_global(self, name: &str, kind: LLVMTypeRef) -> Value {
        let global = self.add_global(name, kind);
        llvm!(LLVMSetVisibility(global.0, LLVMVisibility::LLVMHiddenVisibility));
        global
    }

    /// Declares a hidden thread-local `i64`.
    pub fn add_thread_local(self, name: &str) -> Value {
        let global = self.add_hidden_global(name, self.i64());
        llvm!(LLVMSetThreadLocalMode(global.0, LLVMThreadLocalMode::LLVMInitialExecTLSModel));
        global
    }

    /// Defines a private constant array of bytes.
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
