//! Emits counts in unoptimised code as calls of helper functions, to save compile time.
//!
//! LLVM selects the instructions of such code one at a time (FastISel). Inline assembly, thread-local variables and calls that preserve all
//! registers fall back to the instruction selection of optimised code, which is slow; ordinary calls do not. So a unit defines functions
//! that add to a word, and a function that returns the address of the thread's counters, and unoptimised code calls them. An addition is
//! one instruction, so no count is lost if a signal handler counts the same path.

use crate::emit::COUNTERS_SYMBOL;
use crate::flags::code_generation_flags;
use crate::llvm::{Builder, DebugLocation, Module, Type, Value};
use crate::module_context::ModuleContext;
use crate::options::ThreadCounters;
use llvm_sys::LLVMOpcode;
use llvm_sys::LLVMVisibility;
use std::sync::OnceLock;
use trodden_wire::{BIAS_SYMBOL, ENTER_SHARED_SYMBOL, ENTER_SYMBOL, SHARED_BIAS_SYMBOL};

/// Symbol of the helper function that returns the address of the thread's copy of the unit's counters.
const THREAD_COUNTERS_SYMBOL: &str = "__trodden_counters_of_thread";

/// The helper functions that add. They are written as machine code, because the module's assembly may use AT&T or Intel syntax.
const ADDITION_HELPERS: [AdditionHelper; 4] = [
    // incq (%rdi)
    AdditionHelper { name: "__trodden_increment", is_atomic: false, is_one: true, code: "0x48,0xff,0x07" },
    // addq %rsi, (%rdi)
    AdditionHelper { name: "__trodden_add", is_atomic: false, is_one: false, code: "0x48,0x01,0x37" },
    AdditionHelper { name: "__trodden_increment_atomically", is_atomic: true, is_one: true, code: "0xf0,0x48,0xff,0x07" },
    AdditionHelper { name: "__trodden_add_atomically", is_atomic: true, is_one: false, code: "0xf0,0x48,0x01,0x37" },
];

/// A helper function that adds to the word at the address in its first argument.
struct AdditionHelper {
    name: &'static str,
    /// True if other threads may add to the word at the same time.
    is_atomic: bool,
    /// True if the function adds one; otherwise, it adds its second argument.
    is_one: bool,
    /// Machine code, without the return instruction.
    code: &'static str,
}

/// Returns true if a function is compiled without optimisation. In such code, LLVM does not combine a load, an addition and a store into
/// one instruction.
pub fn is_unoptimised(function: Value) -> bool {
    static IS_OPTIMISATION_OFF: OnceLock<bool> = OnceLock::new();
    *IS_OPTIMISATION_OFF.get_or_init(|| code_generation_flags().iter().any(|flag| flag == "-O0")) || function.has_attribute("optnone")
}

/// Emits a call that adds to the word at an address.
pub fn add_to_word(builder: &Builder, address: Value, by: Value, is_atomic: bool) {
    let is_one = by.as_integer() == Some(1);
    let addition = ADDITION_HELPERS.iter().find(|a| (a.is_atomic, a.is_one) == (is_atomic, is_one)).expect("there is one for each case");
    let arguments = if is_one { vec![address] } else { vec![address, by] };
    let function = builder.module.function(addition.name).unwrap_or_else(|| {
        let kinds: Vec<_> = arguments.iter().map(|a| a.kind()).collect();
        declare_helper(builder.module, addition.name, builder.module.void(), &kinds)
    });
    builder.call(function, &arguments);
}

/// Emits, at function entry, a call that returns the address of the thread's copy of the unit's counters. The call comes after the
/// parameters are stored, so that they need not be preserved across it.
pub fn emit_thread_counters(module: Module, function: Value, location: Option<DebugLocation>) -> Value {
    let parameters = function.parameters();
    let precedes = |i: &Value| i.is(LLVMOpcode::LLVMAlloca) || (i.is(LLVMOpcode::LLVMStore) && parameters.contains(&i.operand(0)));
    let at = function.entry().instructions().find(|i| !precedes(i)).expect("a block has a terminator");
    let pointer = module.pointer();
    let called = module.function(THREAD_COUNTERS_SYMBOL).unwrap_or_else(|| declare_helper(module, THREAD_COUNTERS_SYMBOL, pointer, &[]));
    Builder::before(module, at, location).call(called, &[])
}

fn declare_helper(module: Module, name: &str, result: Type, parameters: &[Type]) -> Value {
    let function = module.add_function(name, Type::function(result, parameters));
    function.set_visibility(LLVMVisibility::LLVMHiddenVisibility);
    function.add_attribute(module.context(), "nounwind");
    function
}

/// Defines the helper functions that are called, local to the object file and in the section `.text`, so that most calls need no
/// relocation.
pub fn define_helpers(context: ModuleContext, threads: ThreadCounters) {
    let module = context.module;
    for addition in ADDITION_HELPERS.iter().filter(|a| module.function(a.name).is_some()) {
        define_machine_code_function(module, addition.name, &format!(".byte {},0xc3\n", addition.code));
    }
    if module.function(THREAD_COUNTERS_SYMBOL).is_some() {
        define_machine_code_function(module, THREAD_COUNTERS_SYMBOL, &counter_address_code(threads));
    }
}

fn define_machine_code_function(module: Module, name: &str, code: &str) {
    module.append_assembly(&format!(
        ".pushsection .text\n.p2align 4\n.type {name},@function\n{name}:\n.cfi_startproc\n{code}.cfi_endproc\n.size {name},.-{name}\n\
         .popsection\n"
    ));
}

/// Returns the code of the helper function that computes the address of the thread's counters: the address of the image's counters plus
/// their distance to the thread's copy. The distance is loaded by an instruction that linkers can relax; if it is 0, the runtime first
/// creates the copy:
///
/// ```text
/// movq __trodden_bias@GOTTPOFF(%rip), %rax; movq %fs:(%rax), %rax      or      movq __trodden_shared_bias(%rip), %rax
/// testq %rax, %rax
/// je 1f
/// 0: leaq __trodden_counters(%rip), %rcx
/// addq %rcx, %rax
/// ret
/// 1: pushq %rax; call __trodden_enter; popq %rcx
/// jmp 0b
/// ```
fn counter_address_code(threads: ThreadCounters) -> String {
    let (bias, enter) = match threads {
        ThreadCounters::Own => (
            format!(
                ".hidden {BIAS_SYMBOL}\n.type {BIAS_SYMBOL},@tls_object\n.byte 0x48,0x8b,0x05\n\
                 .reloc ., R_X86_64_GOTTPOFF, {BIAS_SYMBOL}-4\n.long 0\n.byte 0x64,0x48,0x8b,0x00\n"
            ),
            ENTER_SYMBOL,
        ),
        ThreadCounters::Atomic => (
            format!(".hidden {SHARED_BIAS_SYMBOL}\n.byte 0x48,0x8b,0x05\n.reloc ., R_X86_64_PC32, {SHARED_BIAS_SYMBOL}-4\n.long 0\n"),
            ENTER_SHARED_SYMBOL,
        ),
    };
    format!(
        "{bias}.byte 0x48,0x85,0xc0,0x74,0x0b\n\
         .byte 0x48,0x8d,0x0d\n.reloc ., R_X86_64_PC32, {COUNTERS_SYMBOL}-4\n.long 0\n.byte 0x48,0x01,0xc8,0xc3\n\
         .hidden {enter}\n.byte 0x50\n.cfi_adjust_cfa_offset 8\n.byte 0xe8\n.reloc ., R_X86_64_PLT32, {enter}-4\n.long 0\n\
         .byte 0x59\n.cfi_adjust_cfa_offset -8\n.byte 0xeb,0xec\n"
    )
}
