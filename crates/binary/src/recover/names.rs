//! Names of functions: from symbols, or from the part that a function without one plays when the program starts.
//!
//! A stripped program keeps no name of its own functions but of those that other files use. The entry point is `_start`
//! by convention, and it hands the address of `main` to the C library in `rdi` (System V ABI, AMD64 supplement,
//! "Process Initialization"; glibc's `start.S`).

use super::code::Code;
use crate::instruction::decode;
use iced_x86::{FlowControl, Mnemonic, Register};
use std::collections::BTreeMap;

/// Instructions of `_start` up to its call at most.
const START_LIMIT: usize = 24;

/// Functions' names, by address: symbols, and `_start` and `main` where there are none.
pub fn names(code: &Code) -> BTreeMap<u64, String> {
    let mut names = symbols(code);
    let entry = code.binary.entry();
    if code.started.contains(&entry) && code.calls_main {
        names.entry(entry).or_insert_with(|| "_start".into());
        if let Some(main) = main_of(code, entry) {
            names.entry(main).or_insert_with(|| "main".into());
        }
    }
    names
}

/// Symbols of functions, by address; of several, the one that the table of symbols prefers.
pub fn symbols(code: &Code) -> BTreeMap<u64, String> {
    let mut symbols = BTreeMap::new();
    for symbol in code.binary.functions().iter().filter(|s| code.is_code(s.address) && !code.is_stub(s.address)) {
        symbols.entry(symbol.address).or_insert_with(|| symbol.name.clone());
    }
    symbols
}

/// What the entry point leaves in `rdi` when it calls.
fn main_of(code: &Code, entry: u64) -> Option<u64> {
    let mut at = entry;
    let mut main = None;
    for _ in 0..START_LIMIT {
        let instruction = decode(code.binary.code_at(at)?, at)?;
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
