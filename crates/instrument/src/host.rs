//! The LLVM that has loaded the plugin, and everything that differs between its versions. A new version is added here.
//!
//! From LLVM 22 on, a plugin may be called just before code generation (version 2 of the plugin interface). Before that, [`redirect`]
//! intercepts clang's own calls. Functions of LLVM-C that some version lacks are looked up by name and have a substitute, since the
//! dynamic linker would otherwise refuse to load the plugin. Their names must not be referred to anywhere else.

mod redirect;

use llvm_sys::core::*;
use llvm_sys::error::LLVMErrorRef;
use llvm_sys::prelude::*;
use llvm_sys::target_machine::LLVMTargetMachineRef;
use llvm_sys::transforms::pass_builder::{LLVMPassBuilderOptionsRef, LLVMRunPasses};
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMTypeKind};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// Major versions of LLVM that the plugin works with. The driver has the same range, and explains how to get such a version.
const SUPPORTED: RangeInclusive<u32> = 19..=22;
/// The first version that calls plugins before code generation.
const FIRST_WITH_ENTRY: u32 = 22;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    /// Declared with an integer as the result, since older versions have kinds that are not in the enumeration.
    #[link_name = "LLVMGetTypeKind"]
    fn type_kind_number(kind: LLVMTypeRef) -> c_uint;
}

/// Called just before code generation. Returns true if no code is to be generated.
pub type BeforeCodeGeneration = extern "C" fn(LLVMModuleRef, *mut c_void, c_int, *mut c_void) -> bool;

/// `llvm::PassPluginLibraryInfo`.
#[repr(C)]
pub struct PassPluginLibraryInfo {
    api_version: u32,
    name: *const c_char,
    version: *const c_char,
    register_passes: Option<extern "C" fn(*mut c_void)>,
    /// Exists only in version 2 of the plugin interface. In version 1, this memory is beyond the structure.
    before_code_generation: Option<BeforeCodeGeneration>,
}

/// Describes the plugin to LLVM. By the ABI, a structure of this size is returned in memory whose address is a hidden first argument.
/// Here the argument is explicit, because the structure's size depends on the version of LLVM.
///
/// # Safety
/// Only LLVM calls it, with memory for the structure of its version.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "LLVM's name")]
pub unsafe extern "C" fn llvmGetPassPluginInfo(info: *mut PassPluginLibraryInfo) -> *mut PassPluginLibraryInfo {
    if !SUPPORTED.contains(&major()) {
        let (oldest, newest) = (SUPPORTED.start(), SUPPORTED.end());
        crate::fail(&format!("this clang is based on LLVM {}: use one from {oldest} to {newest}", version_text()));
    }
    let has_entry = major() >= FIRST_WITH_ENTRY;
    // SAFETY: the memory has the structure's fields, the last only in the second version of the interface.
    unsafe {
        (&raw mut (*info).api_version).write(if has_entry { 2 } else { 1 });
        (&raw mut (*info).name).write(c"trodden".as_ptr());
        (&raw mut (*info).version).write(concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast());
        (&raw mut (*info).register_passes).write(if has_entry { None } else { Some(redirect::register) });
        if has_entry {
            (&raw mut (*info).before_code_generation).write(Some(crate::before_code_generation));
        }
    }
    info
}

fn version() -> [c_uint; 3] {
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: LLVM writes to three integers.
    unsafe { LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    [major, minor, patch]
}

pub fn major() -> u32 {
    version()[0]
}

fn version_text() -> String {
    version().map(|part| part.to_string()).join(".")
}

/// Returns the address of a function or variable of this process; null if the process has no such symbol.
fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a null handle represents the process, and the name is terminated.
    unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) }
}

/// Returns the kind of a type. MMX registers, which have a type of their own before LLVM 20, count as the vectors that replaced it.
pub fn type_kind(kind: LLVMTypeRef) -> LLVMTypeKind {
    const MMX: c_uint = 15;
    // SAFETY: the type is that of a live value, and the result of the second call is in the enumeration.
    unsafe { if type_kind_number(kind) == MMX { LLVMTypeKind::LLVMVectorTypeKind } else { LLVMGetTypeKind(kind) } }
}

/// Returns the value that selects a successor of a switch other than the default.
pub fn case_value(switch: LLVMValueRef, successor: u32) -> LLVMValueRef {
    type CaseValueFn = unsafe extern "C" fn(LLVMValueRef, c_uint) -> LLVMValueRef;
    static FUNCTION: OnceLock<Option<CaseValueFn>> = OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        let found = symbol(c"LLVMGetSwitchCaseValue");
        // SAFETY: LLVM's function of this name has this type.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, CaseValueFn>(found) })
    });
    // SAFETY: the caller passes a switch, whose operands are the condition and the default, then value and block of each case.
    unsafe { function.map_or_else(|| LLVMGetOperand(switch, 2 * successor), |function| function(switch, successor)) }
}

/// Runs passes on a function. Returns LLVM's error, or null.
pub fn run_passes(function: LLVMValueRef, names: &CStr, machine: LLVMTargetMachineRef, options: LLVMPassBuilderOptionsRef) -> LLVMErrorRef {
    type RunPassesFn = unsafe extern "C" fn(LLVMValueRef, *const c_char, LLVMTargetMachineRef, LLVMPassBuilderOptionsRef) -> LLVMErrorRef;
    let found = symbol(c"LLVMRunPassesOnFunction");
    if found.is_null() {
        return run_passes_on_one(function, names, machine, options);
    }
    // SAFETY: LLVM's function of this name has this type, and the caller passes live handles.
    unsafe { std::mem::transmute::<*mut c_void, RunPassesFn>(found)(function, names.as_ptr(), machine, options) }
}

/// Runs passes on a function's module. Meanwhile the other functions have an attribute that makes LLVM skip them.
fn run_passes_on_one(
    function: LLVMValueRef,
    names: &CStr,
    machine: LLVMTargetMachineRef,
    options: LLVMPassBuilderOptionsRef,
) -> LLVMErrorRef {
    const SKIPPED: &str = "optnone";
    let names = CString::new(format!("function({})", names.to_string_lossy())).expect("no zero bytes");
    // SAFETY: the caller passes live handles, and passes on functions delete no function.
    unsafe {
        let module = LLVMGetGlobalParent(function);
        let kind = LLVMGetEnumAttributeKindForName(SKIPPED.as_ptr().cast(), SKIPPED.len());
        let attribute = LLVMCreateEnumAttribute(LLVMGetModuleContext(module), kind, 0);
        let next = |at: &LLVMValueRef| LLVMGetNextFunction(*at);
        let all = std::iter::successors(Some(LLVMGetFirstFunction(module)), |at| Some(next(at))).take_while(|at| !at.is_null());
        let is_changed = |other: &LLVMValueRef| {
            let has = !LLVMGetEnumAttributeAtIndex(*other, LLVMAttributeFunctionIndex, kind).is_null();
            *other != function && !has && LLVMIsDeclaration(*other) == 0
        };
        let others: Vec<LLVMValueRef> = all.filter(is_changed).collect();
        others.iter().for_each(|other| LLVMAddAttributeAtIndex(*other, LLVMAttributeFunctionIndex, attribute));
        let error = LLVMRunPasses(module, names.as_ptr(), machine, options);
        others.iter().for_each(|other| LLVMRemoveEnumAttributeAtIndex(*other, LLVMAttributeFunctionIndex, kind));
        error
    }
}
