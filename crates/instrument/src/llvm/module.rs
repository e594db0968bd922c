//! Modules.

use super::functions::*;
use super::handles::{LlvmContext, Module, OwnedText, TargetMachine, Terminated, Type, Value};
use super::values::{take, text_of};
use llvm_sys::target_machine::LLVMCodeGenFileType;
use llvm_sys::{LLVMLinkage, LLVMThreadLocalMode, LLVMVisibility};
use std::ffi::CString;

/// A module that the plugin made, and frees, together with its context if that is its own.
pub struct OwnModule {
    /// The module.
    pub module: Module,
    context: Option<LlvmContext>,
}

impl Drop for OwnModule {
    fn drop(&mut self) {
        // SAFETY: whoever made the module said that no handle to it is used after this.
        unsafe { LLVMDisposeModule(self.module) };
        if let Some(context) = self.context {
            // SAFETY: the module was the only one in the context, and whoever made it spoke for both.
            unsafe { LLVMContextDispose(context) };
        }
    }
}

/// Intrinsics that the plugin calls, each with the number of types for which it is overloaded.
const INTRINSICS: [(&str, usize); 7] = [
    ("llvm.addressofreturnaddress", 1),
    ("llvm.ctlz", 1),
    ("llvm.cttz", 1),
    ("llvm.donothing", 0),
    ("llvm.pseudoprobe", 0),
    ("llvm.read_volatile_register", 1),
    ("llvm.readcyclecounter", 0),
];

/// Converts to a C string, dropping NUL characters (which do not occur in the names used here).
pub(super) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).expect("zero bytes were removed")
}

/// Parses bitcode.
fn parse(context: LlvmContext, bitcode: &[u8]) -> Option<Module> {
    // SAFETY: pointer and length are those of `bitcode`, which LLVM copies.
    let buffer = unsafe { LLVMCreateMemoryBufferWithMemoryRangeCopy(bitcode.as_ptr().cast(), bitcode.len(), Terminated::from(c"unit")) };
    let mut module = None;
    let failed = LLVMParseBitcodeInContext2(context, buffer, &mut module) != 0;
    // SAFETY: the buffer was made above, and is not used any more.
    unsafe { LLVMDisposeMemoryBuffer(buffer) };
    module.filter(|_| !failed)
}

impl OwnModule {
    /// Parses bitcode in a context of its own, so that the names of types do not depend on other modules. `None` if LLVM cannot read it.
    ///
    /// # Safety
    /// No handle to the module or its context is used after the result is dropped.
    pub unsafe fn parse(bitcode: &[u8]) -> Option<OwnModule> {
        let context = LLVMContextCreate();
        let module = parse(context, bitcode);
        if module.is_none() {
            // SAFETY: there is no other handle to the context.
            unsafe { LLVMContextDispose(context) };
        }
        Some(OwnModule { module: module?, context: Some(context) })
    }

    /// Parses bitcode in the context of another module. `None` if LLVM cannot read it.
    ///
    /// # Safety
    /// No handle to the module is used after the result is dropped. Handles to metadata and types stay valid.
    pub unsafe fn parse_beside(module: Module, bitcode: &[u8]) -> Option<OwnModule> {
        Some(OwnModule { module: parse(module.context(), bitcode)?, context: None })
    }

    /// Copies a module.
    ///
    /// # Safety
    /// No handle to the copy is used after the result is dropped. Handles to metadata and types stay valid.
    pub unsafe fn copy_of(module: Module) -> OwnModule {
        OwnModule { module: LLVMCloneModule(module), context: None }
    }
}

/// Whole modules.
impl Module {
    /// Generates code for the module, and writes the object to a file.
    ///
    /// # Errors
    /// LLVM's message if the machine cannot write objects, or the file cannot be written.
    pub fn write_object(self, machine: TargetMachine, file: &str) -> Result<(), String> {
        let (file, mut message): (CString, Option<OwnedText>) = (c_string(file), None);
        match LLVMTargetMachineEmitToFile(machine, self, (&*file).into(), LLVMCodeGenFileType::LLVMObjectFile, &mut message) {
            0 => Ok(()),
            _ => Err(message.map(take).unwrap_or_default()),
        }
    }

    pub fn context(self) -> LlvmContext {
        LLVMGetModuleContext(self)
    }

    pub fn source(self) -> String {
        let mut length = 0;
        let pointer = LLVMGetSourceFileName(self, &mut length);
        // SAFETY: LLVM returns the name with its length.
        unsafe { text_of(pointer, length) }
    }

    pub fn target(self) -> String {
        LLVMGetTarget(self).to_text()
    }

    pub fn bitcode(self) -> Vec<u8> {
        let buffer = LLVMWriteBitcodeToMemoryBuffer(self);
        // SAFETY: the buffer has that many bytes, and is freed only after they are copied.
        let bytes = unsafe { std::slice::from_raw_parts(LLVMGetBufferStart(buffer).cast::<u8>(), LLVMGetBufferSize(buffer)) }.to_vec();
        // SAFETY: LLVM made the buffer for this call, and it is not used any more.
        unsafe { LLVMDisposeMemoryBuffer(buffer) };
        bytes
    }

    pub fn append_assembly(self, assembly: &str) {
        // SAFETY: pointer and length are those of `assembly`, which LLVM copies.
        unsafe { LLVMAppendModuleInlineAsm(self, assembly.as_ptr().cast(), assembly.len()) }
    }
}

/// Types and constants.
impl Module {
    pub fn i1(self) -> Type {
        LLVMInt1TypeInContext(self.context())
    }

    pub fn i8(self) -> Type {
        LLVMInt8TypeInContext(self.context())
    }

    pub fn i32(self) -> Type {
        LLVMInt32TypeInContext(self.context())
    }

    pub fn i64(self) -> Type {
        LLVMInt64TypeInContext(self.context())
    }

    pub fn pointer(self) -> Type {
        LLVMPointerTypeInContext(self.context(), 0)
    }

    pub fn void(self) -> Type {
        LLVMVoidTypeInContext(self.context())
    }

    pub fn constant(self, value: i64) -> Value {
        self.i64().signed(value)
    }
}

/// Globals.
impl Module {
    /// Returns all functions, declared and defined.
    pub fn functions(self) -> impl Iterator<Item = Value> {
        std::iter::successors(LLVMGetFirstFunction(self), |function| LLVMGetNextFunction(function.expect()))
    }

    /// Returns all global variables, declared and defined.
    pub fn variables(self) -> impl Iterator<Item = Value> {
        std::iter::successors(LLVMGetFirstGlobal(self), |variable| LLVMGetNextGlobal(variable.expect()))
    }

    pub fn aliases(self) -> impl Iterator<Item = Value> {
        std::iter::successors(LLVMGetFirstGlobalAlias(self), |alias| LLVMGetNextGlobalAlias(alias.expect()))
    }

    /// Returns the functions that choose the implementations of indirect functions.
    pub fn resolvers(self) -> impl Iterator<Item = Value> {
        let all = std::iter::successors(LLVMGetFirstGlobalIFunc(self), |ifunc| LLVMGetNextGlobalIFunc(ifunc.expect()));
        all.map(|ifunc| LLVMGetGlobalIFuncResolver(ifunc.expect()))
    }

    pub fn function(self, name: &str) -> Option<Value> {
        LLVMGetNamedFunction(self, (&*c_string(name)).into())
    }

    /// Returns the function of that name; declares it as `void ()` if necessary.
    pub fn function_without_parameters(self, name: &str) -> Value {
        self.function(name).unwrap_or_else(|| self.add_function(name, Type::function(self.void(), &[])))
    }

    pub fn global(self, name: &str) -> Option<Value> {
        LLVMGetNamedGlobal(self, (&*c_string(name)).into())
    }

    pub fn add_function(self, name: &str, kind: Type) -> Value {
        LLVMAddFunction(self, (&*c_string(name)).into(), kind.expect())
    }

    /// Adds another name of a function.
    pub fn add_alias(self, name: &str, of: Value) -> Value {
        LLVMAddAlias2(self, of.value_type(), 0, of.expect(), (&*c_string(name)).into())
    }

    /// Returns the declaration of an intrinsic, overloaded for `kinds`.
    pub fn intrinsic(self, name: &str, kinds: &[Type]) -> Value {
        assert!(INTRINSICS.contains(&(name, kinds.len())), "{name} is overloaded for {} types", kinds.len());
        // SAFETY: pointer and length are those of `name`, which LLVM compares.
        let number = unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) };
        assert!(number != 0, "LLVM has {name}");
        // SAFETY: LLVM has the intrinsic, and the array has as many types as it is overloaded for.
        unsafe { LLVMGetIntrinsicDeclaration(self, number, kinds.as_ptr(), kinds.len()) }
    }

    pub fn add_global(self, name: &str, kind: Type) -> Value {
        LLVMAddGlobal(self, kind.expect(), (&*c_string(name)).into())
    }

    /// Declares a variable with hidden visibility.
    pub fn add_hidden_global(self, name: &str, kind: Type) -> Value {
        let global = self.add_global(name, kind);
        global.set_visibility(LLVMVisibility::LLVMHiddenVisibility);
        global
    }

    /// Declares a hidden thread-local `i64`.
    pub fn add_thread_local(self, name: &str) -> Value {
        let global = self.add_hidden_global(name, self.i64());
        global.set_thread_local_mode(LLVMThreadLocalMode::LLVMInitialExecTLSModel);
        global
    }

    /// Defines a private constant array of bytes.
    pub fn add_bytes(self, name: &str, bytes: &[u8]) -> Value {
        // SAFETY: pointer and length are those of `bytes`, which LLVM copies.
        let content = unsafe { LLVMConstStringInContext2(self.context(), bytes.as_ptr().cast(), bytes.len(), 1) };
        let global = self.add_global(name, content.kind());
        global.set_initializer(content);
        global.set_global_constant();
        global.set_linkage(LLVMLinkage::LLVMPrivateLinkage);
        global.set_address_insignificant();
        global
    }
}
