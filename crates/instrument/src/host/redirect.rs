//! The call before code generation for LLVM 19 to 21, which have no such entry.
//!
//! A dynamically linked clang calls libLLVM through slots that the dynamic linker has filled with addresses. When clang registers the
//! plugin, the slots of three functions are changed to functions of this file: `PassManager<Module>::run`, which runs the optimiser and
//! reveals the module; `createTargetTransformInfoWrapperPass`, the first call of code generation, at which the module is instrumented; and
//! `legacy::PassManager::run`, which generates the code and is skipped if no code is to be generated. The optimiser's own callbacks are
//! unsuitable: they run before sanitizers, and not at all for stored bitcode.
//!
//! This does not work with a statically linked clang, which has no slots, nor if these calls have different names, parameters or a
//! different order, or if the target machine is not the first member of both `PassBuilder` and the callback in `TargetIRAnalysis`. In all
//! of these cases the compilation ends with an error; no code is silently left uninstrumented.

use super::{find_symbol, llvm_version_text};
use crate::llvm::{Module, TargetMachine};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// A function of libLLVM whose calls are redirected.
struct FunctionRedirection {
    name: &'static CStr,
    replacement: usize,
    /// Address of the function itself.
    original: &'static AtomicUsize,
}

static ORIGINAL_OPTIMISER: AtomicUsize = AtomicUsize::new(0);
static ORIGINAL_CODE_GENERATION_START: AtomicUsize = AtomicUsize::new(0);
static ORIGINAL_CODE_GENERATOR: AtomicUsize = AtomicUsize::new(0);

static TARGET_MACHINE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// The module that was optimised last, or null once it is instrumented.
static OPTIMISED_MODULE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// True if code generation must be skipped for the current module.
static IS_CODE_GENERATION_SKIPPED: AtomicBool = AtomicBool::new(false);

/// Called by LLVM with a `PassBuilder`, before each run of the optimiser.
pub extern "C" fn register(builder: *mut c_void) {
    // SAFETY: LLVM passes a live `PassBuilder`, whose first member is a pointer to the target machine.
    TARGET_MACHINE.store(unsafe { *builder.cast::<*mut c_void>() }, Relaxed);
    static REDIRECTION_ONCE: Once = Once::new();
    REDIRECTION_ONCE.call_once(redirect_clang_functions);
}

extern "C" fn optimise(result: *mut c_void, manager: *mut c_void, module: *mut c_void, analyses: *mut c_void) -> *mut c_void {
    type OptimiserRunFn = extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_void) -> *mut c_void;
    // SAFETY: the address is that of `PassManager<Module>::run`, which has this type: it returns a structure in memory.
    let original: OptimiserRunFn = unsafe { std::mem::transmute(ORIGINAL_OPTIMISER.load(Relaxed)) };
    OPTIMISED_MODULE.store(module, Relaxed);
    original(result, manager, module, analyses)
}

extern "C" fn begin_code_generation(analysis: *mut c_void) -> *mut c_void {
    // SAFETY: the address is that of `createTargetTransformInfoWrapperPass`, which has this type: its parameter is passed by reference.
    let original: extern "C" fn(*mut c_void) -> *mut c_void = unsafe { std::mem::transmute(ORIGINAL_CODE_GENERATION_START.load(Relaxed)) };
    let (module, machine) = (OPTIMISED_MODULE.swap(std::ptr::null_mut(), Relaxed), TARGET_MACHINE.load(Relaxed));
    // SAFETY: the parameter starts with a function object, which starts with the target machine that it captures.
    let captured = unsafe { *analysis.cast::<*mut c_void>() };
    if captured != machine {
        crate::exit_with_error(&unsupported_clang_message("generates code in an unknown way"));
    }
    // SAFETY: both pointers are null, or clang passed them to LLVM's functions and keeps the objects until it has generated code.
    let (module, machine) = unsafe { (Module::from_raw(module), TargetMachine::from_raw(machine)) };
    let Some((module, machine)) = module.zip(machine) else {
        crate::exit_with_error(&unsupported_clang_message("generates code in an unknown way"));
    };
    IS_CODE_GENERATION_SKIPPED.store(crate::before_code_generation(module, machine, 0, std::ptr::null_mut()), Relaxed);
    original(analysis)
}

extern "C" fn generate_code(manager: *mut c_void, module: *mut c_void) -> bool {
    // SAFETY: the address is that of `legacy::PassManager::run`, which has this type.
    let original: extern "C" fn(*mut c_void, *mut c_void) -> bool = unsafe { std::mem::transmute(ORIGINAL_CODE_GENERATOR.load(Relaxed)) };
    if OPTIMISED_MODULE.load(Relaxed) == module {
        crate::exit_with_error(&unsupported_clang_message("generates code in an unknown way"));
    }
    !IS_CODE_GENERATION_SKIPPED.swap(false, Relaxed) && original(manager, module)
}

fn unsupported_clang_message(reason: &str) -> String {
    let clang = std::env::current_exe().map_or("clang".into(), |path| path.display().to_string());
    format!(
        "{clang} (LLVM {}) {reason}, so its code cannot be counted. Use clang as packaged by your distribution, or clang 22",
        llvm_version_text()
    )
}

fn redirect_clang_functions() {
    let all = [
        FunctionRedirection {
            name: c"_ZN4llvm11PassManagerINS_6ModuleENS_15AnalysisManagerIS1_JEEEJEE3runERS1_RS3_",
            replacement: optimise as *const () as usize,
            original: &ORIGINAL_OPTIMISER,
        },
        FunctionRedirection {
            name: c"_ZN4llvm36createTargetTransformInfoWrapperPassENS_16TargetIRAnalysisE",
            replacement: begin_code_generation as *const () as usize,
            original: &ORIGINAL_CODE_GENERATION_START,
        },
        FunctionRedirection {
            name: c"_ZN4llvm6legacy11PassManager3runERNS_6ModuleE",
            replacement: generate_code as *const () as usize,
            original: &ORIGINAL_CODE_GENERATOR,
        },
    ];
    let objects = loaded_objects();
    for redirection in &all {
        let address = find_symbol(redirection.name) as usize;
        redirection.original.store(address, Relaxed);
        // Only calls from clang are redirected, not those within libLLVM.
        let slots = objects.iter().filter(|object| !object.contains(PT_LOAD, address)).map(|object| object.redirect_slots(redirection));
        if address == 0 || slots.sum::<usize>() == 0 {
            let name = redirection.name.to_string_lossy();
            crate::exit_with_error(&unsupported_clang_message(&format!(
                "is not dynamically linked against libLLVM (it has no slot for `{name}`)"
            )));
        }
    }
}

unsafe extern "C" {
    fn dl_iterate_phdr(callback: extern "C" fn(*const ObjectInfo, usize, *mut c_void) -> c_int, data: *mut c_void) -> c_int;
    fn mprotect(address: *mut c_void, length: usize, protection: c_int) -> c_int;
}

const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
const PAGE_BYTES: usize = 4096;

/// The beginning of `struct dl_phdr_info`.
#[repr(C)]
struct ObjectInfo {
    base: usize,
    name: *const c_char,
    segments: *const ProgramHeader,
    segment_count: u16,
}

/// `Elf64_Phdr`
#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical_address: u64,
    file_size: u64,
    size: u64,
    alignment: u64,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_RELRO: u32 = 0x6474_e552;

/// `Elf64_Rela`
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// Types of relocations that fill a slot with a symbol's address: `R_X86_64_GLOB_DAT` and `R_X86_64_JUMP_SLOT`.
const SLOT_RELOCATION_TYPES: [u32; 2] = [6, 7];

/// `Elf64_Sym`
#[repr(C)]
struct SymbolEntry {
    name: u32,
    info: u8,
    visibility: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// Tags of the dynamic section.
mod tag {
    pub const PLT_RELOCATIONS_SIZE_TAG: u64 = 2;
    pub const STRING_TABLE_TAG: u64 = 5;
    pub const SYMBOL_TABLE_TAG: u64 = 6;
    pub const RELOCATIONS_TAG: u64 = 7;
    pub const RELOCATIONS_SIZE_TAG: u64 = 8;
    pub const PLT_RELOCATIONS_TAG: u64 = 23;
}

struct LoadedObject {
    base: usize,
    segments: &'static [ProgramHeader],
}

fn loaded_objects() -> Vec<LoadedObject> {
    extern "C" fn collect(info: *const ObjectInfo, _size: usize, objects: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker passes valid information, and the vector that it was given. No loaded file is unloaded.
        let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<LoadedObject>>()) };
        // SAFETY: the headers of a loaded file have that many entries, and stay mapped.
        let segments = unsafe { std::slice::from_raw_parts(info.segments, info.segment_count.into()) };
        objects.push(LoadedObject { base: info.base, segments });
        0
    }
    let mut objects = Vec::<LoadedObject>::new();
    // SAFETY: `collect` expects a pointer to this vector.
    unsafe { dl_iterate_phdr(collect, (&raw mut objects).cast()) };
    objects
}

impl LoadedObject {
    fn segments_of(&self, kind: u32) -> impl Iterator<Item = (usize, &ProgramHeader)> {
        self.segments.iter().filter(move |s| s.kind == kind).map(|s| (self.base.wrapping_add(s.address as usize), s))
    }

    fn contains(&self, kind: u32, address: usize) -> bool {
        self.segments_of(kind).any(|(start, segment)| (start..start + segment.size as usize).contains(&address))
    }

    /// Returns the value of the entry with tag `wanted` in the dynamic section, or 0 if there is none.
    fn dynamic_section_value(&self, wanted: u64) -> usize {
        let Some((start, segment)) = self.segments_of(PT_DYNAMIC).next() else { return 0 };
        // SAFETY: the dynamic section of a loaded file is an array of pairs of words.
        let entries = unsafe { std::slice::from_raw_parts(start as *const [u64; 2], segment.size as usize / 16) };
        entries.iter().take_while(|entry| entry[0] != 0).find(|entry| entry[0] == wanted).map_or(0, |entry| entry[1] as usize)
    }

    /// Returns the address in the entry with tag `wanted` of the dynamic section; `None` if there is no such entry. Some dynamic linkers
    /// leave these addresses relative to the file's base.
    fn dynamic_section_address(&self, wanted: u64) -> Option<usize> {
        let value = self.dynamic_section_value(wanted);
        let address = if value < self.base { value + self.base } else { value };
        (value != 0).then_some(address)
    }

    /// Makes the slots of a function point to its replacement. Returns the number of slots.
    fn redirect_slots(&self, redirection: &FunctionRedirection) -> usize {
        let (Some(symbols), Some(strings)) =
            (self.dynamic_section_address(tag::SYMBOL_TABLE_TAG), self.dynamic_section_address(tag::STRING_TABLE_TAG))
        else {
            return 0;
        };
        let mut slots = 0;
        for (table, size) in [(tag::PLT_RELOCATIONS_TAG, tag::PLT_RELOCATIONS_SIZE_TAG), (tag::RELOCATIONS_TAG, tag::RELOCATIONS_SIZE_TAG)]
        {
            let Some(table) = self.dynamic_section_address(table) else { continue };
            // SAFETY: the table of a loaded file has that many bytes.
            let relocations = unsafe {
                std::slice::from_raw_parts(table as *const Relocation, self.dynamic_section_value(size) / size_of::<Relocation>())
            };
            for relocation in relocations.iter().filter(|r| SLOT_RELOCATION_TYPES.contains(&(r.info as u32))) {
                // SAFETY: symbols that relocations refer to exist, and have terminated names.
                let name = unsafe {
                    let symbol = &*(symbols as *const SymbolEntry).add((relocation.info >> 32) as usize);
                    CStr::from_ptr((strings + symbol.name as usize) as *const c_char)
                };
                if name == redirection.name {
                    self.write_slot(self.base.wrapping_add(relocation.offset as usize), redirection.replacement);
                    slots += 1;
                }
            }
        }
        slots
    }

    /// Changes a slot, which may be in memory that was made read-only after relocation.
    fn write_slot(&self, slot: usize, value: usize) {
        let page = (slot & !(PAGE_BYTES - 1)) as *mut c_void;
        // SAFETY: the slot is in a mapped page of the loaded file and only read by indirect calls. An aligned word does not cross a page
        // boundary.
        unsafe {
            if mprotect(page, PAGE_BYTES, PROT_READ | PROT_WRITE) != 0 {
                crate::exit_with_error(&unsupported_clang_message(&format!("has protected slots ({})", std::io::Error::last_os_error())));
            }
            (slot as *mut usize).write(value);
        }
        if self.contains(PT_GNU_RELRO, slot) {
            // SAFETY: the page belongs to a segment that was read-only before and becomes read-only again.
            unsafe { mprotect(page, PAGE_BYTES, PROT_READ) };
        }
    }
}
