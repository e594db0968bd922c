//! Finds the names of functions, which come from symbols or are deduced from the program's startup code.
//!
//! A stripped program keeps only dynamic symbols. By convention, the entry point is `_start`. It passes the address of `main` to the C
//! library in `rdi` (System V ABI, AMD64 supplement, "Process Initialization"; glibc's `start.S`).

use super::code::FileCode;
use crate::instruction::decode_instruction;
use iced_x86::{FlowControl, Mnemonic, Register};
use std::collections::BTreeMap;

/// Maximum number of instructions of `_start` among which its first call is searched.
const MAX_SEARCHED_START_INSTRUCTIONS: usize = 24;

/// Returns the names of functions by address: those of symbols, and `_start` and `main` if they can be deduced.
pub fn find_function_names(code: &FileCode) -> BTreeMap<u64, String> {
    let mut names = read_symbol_names(code);
    let entry = code.binary.entry();
    if code.startup_functions.contains(&entry) && code.calls_main {
        names.entry(entry).or_insert_with(|| "_start".into());
        if let Some(main) = find_main(code, entry) {
            names.entry(main).or_insert_with(|| "main".into());
        }
    }
    names
}

/// Returns the names of function symbols by address. Of several symbols at the same address, uses the first one in
/// [`Binary::functions`](crate::Binary::functions).
pub fn read_symbol_names(code: &FileCode) -> BTreeMap<u64, String> {
    let mut symbols = BTreeMap::new();
    for symbol in code.binary.functions().iter().filter(|s| code.is_code(s.address) && !code.is_stub(s.address)) {
        symbols.entry(symbol.address).or_insert_with(|| symbol.name.clone());
    }
    symbols
}

/// Returns the address that the entry point passes in `rdi` to its first call.
fn find_main(code: &FileCode, entry: u64) -> Option<u64> {
    let mut at = entry;
    let mut main = None;
    for _ in 0..MAX_SEARCHED_START_INSTRUCTIONS {
        let instruction = decode_instruction(code.binary.code_at(at)?, at)?;
        let sets = instruction.op_count() == 2 && instruction.op0_register().full_register() == Register::RDI;
        match instruction.mnemonic() {
            Mnemonic::Lea if sets && instruction.is_ip_rel_memory_operand() => main = Some(instruction.memory_displacement64()),
            Mnemonic::Mov if sets => main = instruction.try_immediate(1).ok(),
            _ => {}
        }
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => return main.filter(|main| code.is_code(*main)),
            FlowControl::Next => at = instruction.next_ip(),
            _ => return None,
        }
    }
    None
}
