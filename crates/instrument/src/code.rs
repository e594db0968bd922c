//! A digest of a function's code: whether two functions with the same graph do the same.
//!
//! It has the instructions with their operands and constants, and what they call; not what differs where nothing was
//! changed: numbers and names that the compiler gives, source positions, and the line numbers and places that
//! assertions and messages pass on. So a function that only moved within its file, or whose file moved, is the same.

use crate::handle_map::HandleMap;
use crate::llvm::{Block, Value, llvm, owned};
use llvm_sys::LLVMLinkage;
use llvm_sys::LLVMTypeKind;
use llvm_sys::core::*;
use llvm_sys::debuginfo::LLVMDILocationGetLine;

/// Constants are looked into so deep.
const DEPTH: u32 = 4;

/// The digest of prepared blocks.
pub fn digest(blocks: &[Block]) -> u64 {
    let arguments = blocks.first().map(|first| first.function().parameters()).unwrap_or_default();
    let values = arguments.into_iter().chain(blocks.iter().flat_map(|b| b.instructions()));
    let mut code = Code { numbers: values.enumerate().map(|(at, value)| (value, at as u64)).collect(), words: Vec::new() };
    blocks.iter().flat_map(|b| b.instructions()).for_each(|i| code.instruction(i));
    trodden_unit::digest(&code.words)
}

/// What is digested.
struct Code {
    numbers: HandleMap<Value, u64>,
    words: Vec<u8>,
}

impl Code {
    fn word(&mut self, tag: u8, word: u64) {
        self.words.push(tag);
        self.words.extend(word.to_le_bytes());
    }

    fn text(&mut self, tag: u8, text: &[u8]) {
        self.word(tag, text.len() as u64);
        self.words.extend(text);
    }

    fn instruction(&mut self, instruction: Value) {
        self.word(b'i', instruction.opcode() as u64);
        self.kind(instruction);
        if !llvm!(LLVMIsAICmpInst(instruction.0)).is_null() {
            self.word(b'p', llvm!(LLVMGetICmpPredicate(instruction.0)) as u64);
        } else if !llvm!(LLVMIsAFCmpInst(instruction.0)).is_null() {
            self.word(b'p', llvm!(LLVMGetFCmpPredicate(instruction.0)) as u64);
        }
        let line = instruction.location().map(|l| i64::from(llvm!(LLVMDILocationGetLine(l))));
        // What does not come back says where it was called.
        let names_place = instruction.is_call() && instruction.call_has_attribute("noreturn");
        for operand in instruction.operands() {
            let constant = !llvm!(LLVMIsAConstant(operand.0)).is_null() && !operand.is_function();
            let is_place = constant && instruction.is_call() && (names_place || (line.is_some() && operand.as_integer() == line));
            if is_place { self.word(b'l', 0) } else { self.operand(operand, DEPTH) }
        }
    }

    /// Its type, as far as it says how much is worked on.
    fn kind(&mut self, value: Value) {
        let kind = llvm!(LLVMGetTypeKind(value.kind()));
        let width = if kind == LLVMTypeKind::LLVMIntegerTypeKind { llvm!(LLVMGetIntTypeWidth(value.kind())) } else { 0 };
        self.word(b't', kind as u64 | u64::from(width) << 8);
    }

    fn operand(&mut self, value: Value, depth: u32) {
        if let Some(number) = self.numbers.get(&value).copied() {
            self.word(b'v', number);
        } else if let Some(number) = value.as_integer() {
            self.kind(value);
            self.word(b'n', number as u64);
        } else if !llvm!(LLVMIsAGlobalValue(value.0)).is_null() {
            self.global(value);
        } else if has_only_numbers(value) {
            self.printed(value);
        } else if !llvm!(LLVMIsAConstant(value.0)).is_null() {
            self.word(b'c', u64::from(value.operand_count()) | (llvm!(LLVMGetValueKind(value.0)) as u64) << 32);
            if depth > 0 {
                value.operands().for_each(|operand| self.operand(operand, depth - 1));
            }
        } else {
            // Blocks are the graph's.
            self.word(b'o', llvm!(LLVMGetValueKind(value.0)) as u64);
        }
    }

    /// By its name, unless the compiler gave it one: then by what it holds.
    fn global(&mut self, global: Value) {
        if !matches!(llvm!(LLVMGetLinkage(global.0)), LLVMLinkage::LLVMPrivateLinkage | LLVMLinkage::LLVMLinkerPrivateLinkage) {
            return self.text(b'g', global.name().as_bytes());
        }
        match global.is_global_variable().then(|| global.initializer()).flatten() {
            Some(content) if has_only_numbers(content) => self.printed(content),
            _ => self.word(b'h', 0),
        }
    }

    fn printed(&mut self, value: Value) {
        self.text(b's', owned(llvm!(LLVMPrintValueToString(value.0))).as_bytes());
    }
}

/// Whether a constant is of numbers alone, so that what is printed of it has no names.
fn has_only_numbers(value: Value) -> bool {
    let raw = value.0;
    !llvm!(LLVMIsAConstantFP(raw)).is_null()
        || !llvm!(LLVMIsAConstantDataSequential(raw)).is_null()
        || !llvm!(LLVMIsAConstantInt(raw)).is_null()
}
