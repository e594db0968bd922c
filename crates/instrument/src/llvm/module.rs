//! Modules.

use super::functions::*;
use super::handles::{LlvmContext, Module, OwnedText, TargetMachine, Terminated, Type, Value};
use super::values::{take, text_of};
use llvm_sys::target_machine::LLVMCodeGenFileType;
use llvm_sys::{LLVMLinkage, LLVMThreadLocalMode, LLVMVisibility};
use std::ffi::CString;

/// A module that the plugin created and frees, together with its context if it has its own.
pub struct OwnedModule {
    pub module: Module,
    context: Option<LlvmContext>,
}

impl Drop for OwnedModule {
    fn drop(&mut self) {
        // SAFETY: whoever created the value guaranteed that no handle to the module is used after this.
        unsafe { LLVMDisposeModule(self.module) };
        if let Some(context) = self.context {
            // SAFETY: the module was the only one in the context, and whoever created the value guaranteed that neither is used after this.
            unsafe { LLVMContextDispose(context) };
        }
    }
}

/// The intrinsics that the plugin calls, each with its number of overloaded types.
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

/// Parses bitcode in a context; `None` if LLVM cannot read it.
fn parse(context: LlvmContext, bitcode: &[u8]) -> Option<Module> {
    // SAFETY: pointer and length are those of `bitcode`, which LLVM copies.
    let buffer = unsafe { LLVMCreateMemoryBufferWithMemoryRangeCopy(bitcode.as_ptr().cast(), bitcode.len(), Terminated::from(c"unit")) };
    let mut module = None;
    let failed = LLVMParseBitcodeInContext2(context, buffer, &mut module) != 0;
    // SAFETY: the buffer was created above, and nothing uses it after this.
    unsafe { LLVMDisposeMemoryBuffer(buffer) };
    module.filter(|_| !failed)
}

impl OwnedModule {
    /// Parses bitcode in a new context, so that the names of types do not depend on other modules. Returns `None` if LLVM cannot read it.
    ///
    /// # Safety
    /// No handle to the module or its context may be used after the result is dropped.
    pub unsafe fn parse(bitcode: &[u8]) -> Option<OwnedModule> {
        let context = LLVMContextCreate();
        let module = parse(context, bitcode);
        if module.is_none() {
            // SAFETY: there is no other handle to the context.
            unsafe { LLVMContextDispose(context) };
        }
        Some(OwnedModule { module: module?, context: Some(context) })
    }

    /// Parses bitcode in the context of another module. Returns `None` if LLVM cannot read it.
    ///
    /// # Safety
    /// No handle to the new module may be used after the result is dropped. Handles to metadata and types stay valid.
    pub unsafe fn parse_in_context_of(module: Module, bitcode: &[u8]) -> Option<OwnedModule> {
        Some(OwnedModule { module: parse(module.context(), bitcode)?, context: None })
    }

    /// Clones a module.
    ///
    /// # Safety
    /// No handle to the clone may be used after the result is dropped. Handles to metadata and types stay valid.
    pub unsafe fn clone_of(module: Module) -> OwnedModule {
        OwnedModule { module: LLVMCloneModule(module), context: None }
    }
}

/// Methods for whole modules.
impl Module {
    /// Generates code for the module, and writes the object file.
    ///
    /// # Errors
    /// Returns LLVM's message if the target machine cannot generate objects, or if the file cannot be written.
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
        // SAFETY: LLVM created the buffer for this call, and nothing uses it after this.
        unsafe { LLVMDisposeMemoryBuffer(buffer) };
        bytes
    }

    pub fn append_assembly(self, assembly: &str) {
        // SAFETY: pointer and length are those of `assembly`, which LLVM copies.
        unsafe { LLVMAppendModuleInlineAsm(self, assembly.as_ptr().cast(), assembly.len()) }
    }
}

/// Methods for types and constants.
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

/// Methods for globals.
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

    /// Returns the resolvers of the indirect functions (ifuncs), which choose their implementations.
    pub fn ifunc_resolvers(self) -> impl Iterator<Item = Value> {
        let all = std::iter::successors(LLVMGetFirstGlobalIFunc(self), |ifunc| LLVMGetNextGlobalIFunc(ifunc.expect()));
        all.map(|ifunc| LLVMGetGlobalIFuncResolver(ifunc.expect()))
    }

    pub fn function(self, name: &str) -> Option<Value> {
        LLVMGetNamedFunction(self, (&*c_string(name)).into())
    }

    /// Returns the function `name`. If the module has none, declares it as `void ()`.
    pub fn function_without_parameters(self, name: &str) -> Value {
        self.function(name).unwrap_or_else(|| self.add_function(name, Type::function(self.void(), &[])))
    }

    pub fn global(self, name: &str) -> Option<Value> {
        LLVMGetNamedGlobal(self, (&*c_string(name)).into())
    }

    pub fn add_function(self, name: &str, kind: Type) -> Value {
        LLVMAddFunction(self, (&*c_string(name)).into(), kind.expect())
    }

    /// Adds an alias for a function.
    pub fn add_alias(self, name: &str, of: Value) -> Value {
        LLVMAddAlias2(self, of.value_type(), 0, of.expect(), (&*c_string(name)).into())
    }

    /// Returns the declaration of an intrinsic for these overloaded types.
    pub fn intrinsic(self, name: &str, kinds: &[Type]) -> Value {
        assert!(INTRINSICS.contains(&(name, kinds.len())), "{name} is overloaded for {} types", kinds.len());
        // SAFETY: pointer and length are those of `name`, which LLVM compares.
        let number = unsafe { LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len()) };
        assert!(number != 0, "LLVM has {name}");
        // SAFETY: LLVM has the intrinsic, and the array has a type for each overloaded one.
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
