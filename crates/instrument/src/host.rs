//! The LLVM that has loaded the plugin, and everything that differs between its versions. A new version is added here.
//!
//! From LLVM 22 on, a plugin may be called just before code generation (version 2 of the plugin interface). Before that, [`redirect`]
//! intercepts clang's own calls. Functions of LLVM-C that some version lacks are looked up by name and have a substitute, since the
//! dynamic linker would otherwise refuse to load the plugin. Their names must not be referred to anywhere else.

mod redirect;

use crate::llvm::{HandleClass, Module, OwnedPassError, PassOptions, PassOptionsHandle, Switch, TargetMachine, Terminated, Type, Value};
use llvm_sys::LLVMTypeKind;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

/// Major versions of LLVM that the plugin works with. The driver accepts the same versions, and tells users how to get one.
const SUPPORTED_LLVM_VERSIONS: RangeInclusive<u32> = 19..=22;
/// The first version that calls plugins before code generation.
const FIRST_VERSION_WITH_ENTRY: u32 = 22;

// SAFETY: `LLVMGetTypeKind` accepts every live type, and `LLVMGetVersion` writes to three integers.
unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    /// `LLVMGetTypeKind` with an integer as result, since older versions of LLVM have kinds that the enumeration lacks.
    #[link_name = "LLVMGetTypeKind"]
    safe fn type_kind_number(kind: Type) -> c_uint;
    /// May only be called if the type's kind is in the enumeration.
    #[expect(clashing_extern_declarations, reason = "the number tells whether the result is in the enumeration")]
    fn LLVMGetTypeKind(kind: Type) -> LLVMTypeKind;
    safe fn LLVMGetVersion(major: &mut c_uint, minor: &mut c_uint, patch: &mut c_uint);
}

/// A function that LLVM calls just before code generation. It returns true if no code is to be generated.
pub type BeforeCodeGeneration = extern "C" fn(Module, TargetMachine, c_int, *mut c_void) -> bool;

/// `llvm::PassPluginLibraryInfo`.
#[repr(C)]
pub struct PassPluginLibraryInfo {
    api_version: u32,
    name: *const c_char,
    version: *const c_char,
    register_passes: Option<extern "C" fn(*mut c_void)>,
    /// Missing in version 1 of the plugin interface, where this memory lies beyond the structure.
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
    if !SUPPORTED_LLVM_VERSIONS.contains(&llvm_major_version()) {
        let (oldest, newest) = (SUPPORTED_LLVM_VERSIONS.start(), SUPPORTED_LLVM_VERSIONS.end());
        crate::exit_with_error(&format!("this clang is based on LLVM {}: use one from {oldest} to {newest}", llvm_version_text()));
    }
    let has_entry = llvm_major_version() >= FIRST_VERSION_WITH_ENTRY;
    // SAFETY: LLVM passes memory for the structure, in which only version 2 of the interface has the last field.
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

fn llvm_version() -> [c_uint; 3] {
    let [mut major, mut minor, mut patch] = [0; 3];
    LLVMGetVersion(&mut major, &mut minor, &mut patch);
    [major, minor, patch]
}

pub fn llvm_major_version() -> u32 {
    llvm_version()[0]
}

fn llvm_version_text() -> String {
    llvm_version().map(|part| part.to_string()).join(".")
}

/// Returns the address of a function or variable of this process; null if the process has no such symbol.
fn find_symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a null handle represents the process, and the name is terminated.
    unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) }
}

/// Returns the kind of a type. MMX registers, which have a kind of their own before LLVM 20, are reported as vectors, as later versions do.
pub fn type_kind(kind: Type) -> LLVMTypeKind {
    const MMX: c_uint = 15;
    if type_kind_number(kind) == MMX {
        return LLVMTypeKind::LLVMVectorTypeKind;
    }
    // SAFETY: of the kinds of all supported versions, the enumeration lacks only that of MMX registers.
    unsafe { LLVMGetTypeKind(kind) }
}

/// Returns the value that selects a successor of a switch; `None` for the default, and for other instructions.
pub fn case_value(terminator: Value, successor: usize) -> Option<Value> {
    type CaseValueFn = unsafe extern "C" fn(Switch, c_uint) -> Value;
    static FUNCTION: OnceLock<Option<CaseValueFn>> = OnceLock::new();
    let switch = Switch::of(terminator).filter(|_| (1..terminator.successor_count()).contains(&successor))?;
    let function = FUNCTION.get_or_init(|| {
        let found = find_symbol(c"LLVMGetSwitchCaseValue");
        // SAFETY: LLVM's function of this name has this type.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, CaseValueFn>(found) })
    });
    Some(match function {
        // SAFETY: the switch has the successor, which is not the default.
        Some(function) => unsafe { function(switch, successor as c_uint) },
        // A switch's operands are the condition, the default destination, then the value and destination of each case.
        None => terminator.operand(2 * successor as u32),
    })
}

/// Runs LLVM passes on a function. Returns an error if LLVM rejects them, otherwise `None`.
///
/// # Safety
/// No handle to the function's code, or to a constant, may be used afterwards.
pub unsafe fn run_passes(function: Value, names: &CStr, machine: TargetMachine, options: &PassOptions) -> Option<OwnedPassError> {
    type RunPassesFn = unsafe extern "C" fn(Value, Terminated, TargetMachine, PassOptionsHandle) -> Option<OwnedPassError>;
    let found = find_symbol(c"LLVMRunPassesOnFunction");
    if found.is_null() {
        // SAFETY: the caller of this function guarantees what `run_passes_skipping_other_functions` requires.
        return unsafe { run_passes_skipping_other_functions(function, names, machine, options) };
    }
    // SAFETY: LLVM's function of this name has this type, and the caller uses no handles to what the passes delete.
    unsafe { std::mem::transmute::<*mut c_void, RunPassesFn>(found)(function, names.into(), machine, options.handle()) }
}

/// Runs passes on a function's module. Meanwhile the other functions have an attribute that makes LLVM skip them.
///
/// # Safety
/// As for [`run_passes`].
unsafe fn run_passes_skipping_other_functions(
    function: Value,
    names: &CStr,
    machine: TargetMachine,
    options: &PassOptions,
) -> Option<OwnedPassError> {
    const SKIP_ATTRIBUTE: &str = "optnone";
    let names = CString::new(format!("function({})", names.to_string_lossy())).expect("no zero bytes");
    let module = function.module();
    let is_changed = |other: &Value| *other != function && !other.has_attribute(SKIP_ATTRIBUTE) && !other.is_declaration();
    let others: Vec<Value> = module.functions().filter(is_changed).collect();
    others.iter().for_each(|other| other.add_attribute(module.context(), SKIP_ATTRIBUTE));
    // SAFETY: function passes delete no functions, and the caller uses no handles to the code that they may delete.
    let error = unsafe { module.run_passes(&names, machine, options) };
    others.iter().for_each(|other| other.remove_attribute(SKIP_ATTRIBUTE));
    error
}
