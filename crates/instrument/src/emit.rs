//! What the object file gets besides code: the counters, the allocated record, the frame.
//!
//! All three are made by module-level assembly, because an LLVM global in a section of its own has its zeros in the
//! file, cannot be in a section that is not loaded, and is not retained by the linker without being listed in
//! `llvm.used`. The record is retained (`R`) so that `--gc-sections` leaves it; it refers to the counters by their
//! distance, so that it needs no relocation when the program starts.

use crate::llvm::{Module, Value, attribute_kind, llvm};
use llvm_sys::LLVMVisibility;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMTypeRef;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use trodden_unit::{Identity, UnitMap};
use trodden_wire::{
    BIAS_SYMBOL, COUNT_SYMBOL, COUNTERS_SECTION, DEFAULT_OUTPUT_SYMBOL, DIRECT_BIAS_SYMBOL, DIRECT_PLACE_SYMBOL, DirectThread,
    FRAMES_SECTION, FUNCTIONS_SECTION, FunctionRecord, SHARED_BIAS_SYMBOL, SWITCH_SYMBOL, UNIT_MAGIC, UNIT_VERSION, UNITS_SECTION,
    UnitRecord,
};

/// Name of the unit's counters; local to the object file.
pub const COUNTERS_SYMBOL: &str = "__trodden_counters";
/// Number of LLVM's calling convention in which the callee preserves all registers.
const PRESERVE_ALL: u32 = 15;

/// Declares the template of the unit's counters, which [`sections`] defines.
pub fn declare_counters(module: Module) -> Value {
    module.add_hidden_global(COUNTERS_SYMBOL, module.i64())
}

/// Declares the thread-local bias.
pub fn declare_bias(module: Module) -> Value {
    module.add_thread_local(BIAS_SYMBOL)
}

/// Declares a function of the runtime that acquires a region.
pub fn declare_enter(module: Module, name: &str) -> Value {
    declare_of_runtime(module, name, llvm!(LLVMFunctionType(module.i64(), std::ptr::null_mut(), 0, 0)))
}

/// Declares the runtime's function that counts.
pub fn declare_count(module: Module) -> Value {
    let mut pointer = llvm!(LLVMPointerTypeInContext(module.context(), 0));
    declare_of_runtime(module, COUNT_SYMBOL, llvm!(LLVMFunctionType(module.void(), &raw mut pointer, 1, 0)))
}

/// Declares a function of the runtime that is called seldom.
pub fn declare_of_runtime(module: Module, name: &str, kind: LLVMTypeRef) -> Value {
    let function = declare_preserving(module, name, kind);
    add_attribute(module, function, "cold");
    function
}

/// Declares a function of the runtime.
pub fn declare_preserving(module: Module, name: &str, kind: LLVMTypeRef) -> Value {
    let function = module.add_function(name, kind);
    llvm!(LLVMSetVisibility(function.0, LLVMVisibility::LLVMHiddenVisibility));
    llvm!(LLVMSetFunctionCallConv(function.0, PRESERVE_ALL));
    add_attribute(module, function, "nounwind");
    function
}

/// Declares the bias by which code of the residual tier counts itself, if that was not done; [`define_direct_bias`] defines it.
pub fn direct_bias(module: Module) -> Value {
    module.global(DIRECT_BIAS_SYMBOL).unwrap_or_else(|| module.add_thread_local(DIRECT_BIAS_SYMBOL))
}

/// Defines that bias, and the function by which the runtime finds it. All units of the residual tier have them; linkers keep one.
pub fn define_direct_bias(module: Module) {
    thread_local_with_place(module, DIRECT_BIAS_SYMBOL, size_of::<DirectThread>(), DIRECT_PLACE_SYMBOL, DIRECT_BIAS_SYMBOL);
}

/// Defines a thread-local object of so many bytes (words), all zero, and the function `place` by which the runtime
/// finds the calling thread's, in a section group: linkers keep one of each group. The function is in machine code, for
/// the module's assembly may be in either syntax:
///
/// ```text
/// movq SYMBOL@GOTTPOFF(%rip), %rax
/// addq %fs:0, %rax
/// ret
/// ```
pub fn thread_local_with_place(module: Module, symbol: &str, size: usize, place: &str, group: &str) {
    module.append_assembly(&format!(
        ".pushsection .tbss.{symbol},\"awTG\",@nobits,{group},comdat\n.p2align 3\n{own}.zero {size}\n.popsection\n\
         .pushsection .text.{symbol},\"axG\",@progbits,{group},comdat\n.p2align 4\n{function}\
         .byte 0x48,0x8b,0x05\n.reloc ., R_X86_64_GOTTPOFF, {symbol}-4\n.long 0\n\
         .byte 0x64,0x48,0x03,0x04,0x25,0,0,0,0\n.byte 0xc3\n.popsection\n",
        own = label(symbol, "tls_object", size),
        function = label(place, "function", 17),
    ));
}

/// A hidden symbol, in the assembly that both syntaxes have.
pub fn label(name: &str, kind: &str, size: usize) -> String {
    format!(".globl {name}\n.hidden {name}\n.type {name},@{kind}\n.size {name},{size}\n{name}:\n")
}

/// Defines the pattern of the image's files, where the environment of a run has none. All units have it; linkers keep one.
pub fn default_output(module: Module, pattern: &[u8]) {
    let text: String = pattern.iter().map(|b| format!("\\{b:03o}")).collect();
    module.append_assembly(&format!(
        ".pushsection .rodata.{DEFAULT_OUTPUT_SYMBOL},\"aG\",@progbits,{DEFAULT_OUTPUT_SYMBOL},comdat\n{}.asciz \"{text}\"\n.popsection\n",
        label(DEFAULT_OUTPUT_SYMBOL, "object", pattern.len() + 1)
    ));
}

/// Declares the bias of the region that all threads share, which [`shared_bias`] defines.
pub fn declare_shared_bias(module: Module) -> Value {
    module.add_hidden_global(SHARED_BIAS_SYMBOL, module.i64())
}

/// Defines the bias of the region that all threads share. All units have it; linkers keep one.
pub fn shared_bias(module: Module) {
    zeros(module, SHARED_BIAS_SYMBOL, 3);
}

/// Defines an object of zeros, as large as it is aligned.
fn zeros(module: Module, symbol: &str, alignment_bits: u32) {
    let size = 1 << alignment_bits;
    module.append_assembly(&format!(
        ".pushsection .bss.{symbol},\"awG\",@nobits,{symbol},comdat\n.p2align {alignment_bits}\n{}.zero {size}\n.popsection\n",
        label(symbol, "object", size)
    ));
}

/// Takes declarations out that nothing refers to: the assembler would make undefined symbols without a type of them,
/// which linkers refuse where the definition has one.
pub fn forget_unused(declared: &[Value]) {
    for value in declared.iter().filter(|v| v.users().next().is_none()) {
        match value.is_function() {
            true => llvm!(LLVMDeleteFunction(value.0)),
            false => llvm!(LLVMDeleteGlobal(value.0)),
        }
    }
}

/// Gives a function an attribute.
pub fn add_attribute(module: Module, function: Value, name: &str) {
    let attribute = llvm!(LLVMCreateEnumAttribute(module.context(), attribute_kind(name), 0));
    llvm!(LLVMAddAttributeAtIndex(function.0, llvm_sys::LLVMAttributeFunctionIndex, attribute));
}

/// Declares the switch of the sample tier, which [`switch`] defines.
pub fn declare_switch(module: Module) -> Value {
    module.add_hidden_global(SWITCH_SYMBOL, module.i8())
}

/// Defines the image's switch: a page of its own, which the runtime maps again. All units have it; linkers keep one.
pub fn switch(module: Module) {
    zeros(module, SWITCH_SYMBOL, 12);
}

/// Emits the unit's counters (cells, where there are several for each; aligned so that no path's lie in two cache
/// lines), its record, and its frame from the file where that is stored.
pub fn sections(module: Module, unit: Identity, counters: u64, several: bool, frame: &Path) {
    let unit_bytes = unit.0.map(|b| format!("0x{b:02x}")).join(",");
    let path = quoted(frame);
    let align = if several { 5 } else { 3 };
    let mut assembly = String::new();
    let mut distance = "0".to_owned();
    if counters > 0 {
        // From the record's beginning, not from the field.
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

/// A path between quotes of assembly: bytes that mean something there, or are no text, in octal.
fn quoted(path: &Path) -> String {
    let is_plain = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b'"' && byte != b'\\';
    let bytes = path.as_os_str().as_bytes().iter();
    bytes.map(|&byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("\\{byte:03o}") }).collect()
}

/// Emits a record of each function, by which the runtime knows a counter's function and where its time is noted.
pub fn functions(module: Module, map: &UnitMap) {
    // The runtime does not say so: where there are none, gold would give hidden ones its own address.
    // Where no unit has such a function there is no section, and a hidden name of its bounds could not be linked.
    if map.functions.iter().all(|f| f.counters == 0) {
        return;
    }
    module.append_assembly(&format!(".hidden __start_{FUNCTIONS_SECTION}\n.hidden __stop_{FUNCTIONS_SECTION}\n"));
    let (at_name, to_times) = (offset_of!(FunctionRecord, name_delta), 8 * map.counters);
    for (number, function) in map.functions.iter().enumerate().filter(|(_, f)| f.counters > 0) {
        let name: String = function.plain_name().bytes().map(|b| format!("\\{b:03o}")).collect();
        module.append_assembly(&format!(
            ".pushsection .rodata,\"a\",@progbits\n.Ltrodden_name_{number}:\n.asciz \"{name}\"\n.popsection\n\
             .pushsection {FUNCTIONS_SECTION},\"aR\",@progbits\n.p2align 3\n.quad {COUNTERS_SYMBOL}-.+{}\n.quad {}\n.quad {to_times}\n\
             .quad .Ltrodden_name_{number}-.+{at_name}\n.popsection\n",
            8 * function.first_counter,
            function.counters
        ));
    }
}
