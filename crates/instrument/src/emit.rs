//! Emits the sections of the object file besides code: the unit's counters, a record by which the runtime finds them, and the unit frame,
//! which contains the map of paths for later analysis.
//!
//! All three are emitted as module-level assembly. LLVM globals are unsuitable: in a custom section their zeros would be stored in the
//! file, they cannot be in a section that is not loaded, and the linker drops them unless `llvm.used` lists them. The record has the flag
//! `R` so that `--gc-sections` keeps it. It refers to the counters by distance and needs no relocation at start-up.

use crate::llvm::{Module, Type, Value};
use llvm_sys::LLVMVisibility;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use trodden_unit::{Identity, UnitMap};
use trodden_wire::{
    BIAS_SYMBOL, COUNT_SYMBOL, COUNTERS_SECTION, DEFAULT_OUTPUT_SYMBOL, DIRECT_ADDRESS_SYMBOL, DIRECT_BIAS_SYMBOL, DirectThread,
    FRAMES_SECTION, FUNCTIONS_SECTION, FunctionRecord, SHARED_BIAS_SYMBOL, SWITCH_SYMBOL, UNIT_MAGIC, UNIT_VERSION, UNITS_SECTION,
    UnitRecord,
};

/// Name of the unit's counters, local to the object file.
pub const COUNTERS_SYMBOL: &str = "__trodden_counters";
/// LLVM's calling convention in which the callee preserves all registers.
const PRESERVE_ALL_CONVENTION: u32 = 15;

/// Declares the unit's counters, which [`emit_sections`] defines. They remain zero, because each thread counts in its own copy.
pub fn declare_counters(module: Module) -> Value {
    module.add_hidden_global(COUNTERS_SYMBOL, module.i64())
}

pub fn declare_thread_bias(module: Module) -> Value {
    module.add_thread_local(BIAS_SYMBOL)
}

/// Declares a runtime function that gives the calling thread a region, its own copy of the counters in the output file.
pub fn declare_region_acquisition(module: Module, name: &str) -> Value {
    declare_runtime_function(module, name, Type::function(module.i64(), &[]))
}

pub fn declare_count_function(module: Module) -> Value {
    declare_runtime_function(module, COUNT_SYMBOL, Type::function(module.void(), &[module.pointer()]))
}

pub fn declare_runtime_function(module: Module, name: &str, kind: Type) -> Value {
    let function = declare_register_preserving(module, name, kind);
    function.add_attribute(module.context(), "cold");
    function
}

/// Declares a function of the runtime that preserves all registers.
pub fn declare_register_preserving(module: Module, name: &str, kind: Type) -> Value {
    let function = module.add_function(name, kind);
    function.set_visibility(LLVMVisibility::LLVMHiddenVisibility);
    function.set_convention(PRESERVE_ALL_CONVENTION);
    function.add_attribute(module.context(), "nounwind");
    function
}

/// Returns the thread-local variable with the distance from the image's counters to the thread's copy, which residual code (it counts only
/// paths that earlier runs have not taken) adds to count without a call. Declares the variable if necessary; [`define_direct_bias`] defines
/// it.
pub fn declare_direct_bias(module: Module) -> Value {
    module.global(DIRECT_BIAS_SYMBOL).unwrap_or_else(|| module.add_thread_local(DIRECT_BIAS_SYMBOL))
}

/// Defines the thread-local variable of [`declare_direct_bias`], and a function that returns its address to the runtime. All residual units
/// define both; linkers keep one definition.
pub fn define_direct_bias(module: Module) {
    define_thread_local(module, DIRECT_BIAS_SYMBOL, size_of::<DirectThread>(), DIRECT_ADDRESS_SYMBOL, DIRECT_BIAS_SYMBOL);
}

/// Defines a zeroed thread-local object of `size` bytes, and a function `place` that returns the address of the calling thread's instance,
/// in a section group of which linkers keep one. The function is written as machine code, because the module's assembly may use either
/// syntax:
///
/// ```text
/// movq SYMBOL@GOTTPOFF(%rip), %rax
/// addq %fs:0, %rax
/// ret
/// ```
pub fn define_thread_local(module: Module, symbol: &str, size: usize, place: &str, group: &str) {
    module.append_assembly(&format!(
        ".pushsection .tbss.{symbol},\"awTG\",@nobits,{group},comdat\n.p2align 3\n{own}.zero {size}\n.popsection\n\
         .pushsection .text.{symbol},\"axG\",@progbits,{group},comdat\n.p2align 4\n{function}\
         .byte 0x48,0x8b,0x05\n.reloc ., R_X86_64_GOTTPOFF, {symbol}-4\n.long 0\n\
         .byte 0x64,0x48,0x03,0x04,0x25,0,0,0,0\n.byte 0xc3\n.popsection\n",
        own = symbol_definition(symbol, "tls_object", size),
        function = symbol_definition(place, "function", 17),
    ));
}

/// Returns the definition of a hidden symbol, in directives that both assembly syntaxes share.
pub fn symbol_definition(name: &str, kind: &str, size: usize) -> String {
    format!(".globl {name}\n.hidden {name}\n.type {name},@{kind}\n.size {name},{size}\n{name}:\n")
}

/// Defines the string that names the image's output files by default. All units define it; linkers keep one definition.
pub fn define_default_output(module: Module, pattern: &[u8]) {
    let text: String = pattern.iter().map(|b| format!("\\{b:03o}")).collect();
    module.append_assembly(&format!(
        ".pushsection .rodata.{DEFAULT_OUTPUT_SYMBOL},\"aG\",@progbits,{DEFAULT_OUTPUT_SYMBOL},comdat\n{}.asciz \"{text}\"\n.popsection\n",
        symbol_definition(DEFAULT_OUTPUT_SYMBOL, "object", pattern.len() + 1)
    ));
}

/// Declares the variable with the distance from the image's counters to the copy that all threads share; [`define_shared_bias`] defines it.
pub fn declare_shared_bias(module: Module) -> Value {
    module.add_hidden_global(SHARED_BIAS_SYMBOL, module.i64())
}

/// Defines the variable of [`declare_shared_bias`]. All units define it; linkers keep one definition.
pub fn define_shared_bias(module: Module) {
    define_zeroed_object(module, SHARED_BIAS_SYMBOL, 3);
}

/// Defines a zeroed object whose size equals its alignment, 2^`alignment_bits` bytes.
fn define_zeroed_object(module: Module, symbol: &str, alignment_bits: u32) {
    let size = 1 << alignment_bits;
    module.append_assembly(&format!(
        ".pushsection .bss.{symbol},\"awG\",@nobits,{symbol},comdat\n.p2align {alignment_bits}\n{}.zero {size}\n.popsection\n",
        symbol_definition(symbol, "object", size)
    ));
}

/// Removes declarations without uses. The assembler would turn them into undefined symbols without a type, which linkers reject if the
/// definition has one.
pub fn remove_unused_declarations(declared: &[Value]) {
    for value in declared.iter().filter(|v| v.users().next().is_none()) {
        match value.is_function() {
            // SAFETY: nothing uses the function, and code is complete, so its handle is not used to emit more calls.
            true => unsafe { value.delete_function() },
            // SAFETY: nothing uses the variable, and code is complete, so its handle is not used to emit more accesses.
            false => unsafe { value.delete_variable() },
        }
    }
}

/// Declares the byte that switches counting in the sample tier on and off; [`define_sampling_switch`] defines it.
pub fn declare_sampling_switch(module: Module) -> Value {
    module.add_hidden_global(SWITCH_SYMBOL, module.i8())
}

/// Defines the byte of [`declare_sampling_switch`] at the start of its own page, over which the runtime maps a page of the output file so
/// that other processes can change the byte. All units define it; linkers keep one definition.
pub fn define_sampling_switch(module: Module) {
    define_zeroed_object(module, SWITCH_SYMBOL, 12);
}

/// Emits the unit's counters, its record, and its frame, which the assembler includes from the file `frame`. If each path has `several`
/// cells, the counters are aligned so that no path's cells straddle two cache lines.
pub fn emit_sections(module: Module, unit: Identity, counters: u64, several: bool, frame: &Path) {
    let unit_bytes = unit.0.map(|b| format!("0x{b:02x}")).join(",");
    let path = quote_path(frame);
    let align = if several { 5 } else { 3 };
    let mut assembly = String::new();
    let mut distance = "0".to_owned();
    if counters > 0 {
        // The distance is relative to the record's start, not to the field.
        distance = format!("{COUNTERS_SYMBOL}-.+{}", offset_of!(UnitRecord, counters_delta));
        assembly += &format!(
            ".pushsection {COUNTERS_SECTION},\"aw\",@nobits\n.p2align {align}\n{COUNTERS_SYMBOL}:\n.zero {}\n\
             .type {COUNTERS_SYMBOL},@object\n.size {COUNTERS_SYMBOL},{}\n.popsection\n",
            8 * counters,
            8 * counters
        );
    }
    // Flags: a allocated, R retained.
    assembly += &format!(
        ".pushsection {UNITS_SECTION},\"aR\",@progbits\n.p2align 3\n.long {UNIT_MAGIC},{UNIT_VERSION}\n.byte {unit_bytes}\n\
         .quad {distance}\n.quad {counters}\n.popsection\n\
         .pushsection {FRAMES_SECTION},\"\",@progbits\n.incbin \"{path}\"\n.popsection\n"
    );
    module.append_assembly(&assembly);
}

/// Quotes a path for assembly: special and non-ASCII bytes are written in octal.
fn quote_path(path: &Path) -> String {
    let is_plain = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b'"' && byte != b'\\';
    let bytes = path.as_os_str().as_bytes().iter();
    bytes.map(|&byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("\\{byte:03o}") }).collect()
}

/// Emits a record for each function, by which the runtime finds a counter's function and the place where the time of its first increment is
/// stored.
pub fn emit_function_records(module: Module, map: &UnitMap) {
    // The symbols for the section's bounds are declared hidden only in units where the section is not empty: gold gives undefined hidden
    // symbols a wrong address instead of 0, and other linkers reject them.
    if map.functions.iter().all(|f| f.counters == 0) {
        return;
    }
    module.append_assembly(&format!(".hidden __start_{FUNCTIONS_SECTION}\n.hidden __stop_{FUNCTIONS_SECTION}\n"));
    let (at_name, time_offset) = (offset_of!(FunctionRecord, name_delta), 8 * map.counters);
    for (number, function) in map.functions.iter().enumerate().filter(|(_, f)| f.counters > 0) {
        let name: String = function.plain_name().bytes().map(|b| format!("\\{b:03o}")).collect();
        module.append_assembly(&format!(
            ".pushsection .rodata,\"a\",@progbits\n.Ltrodden_name_{number}:\n.asciz \"{name}\"\n.popsection\n\
             .pushsection {FUNCTIONS_SECTION},\"aR\",@progbits\n.p2align 3\n.quad {COUNTERS_SYMBOL}-.+{}\n.quad {}\n.quad {time_offset}\n\
             .quad .Ltrodden_name_{number}-.+{at_name}\n.popsection\n",
            8 * function.first_counter,
            function.counters
        ));
    }
}
