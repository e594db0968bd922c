//! A digest of a function's code, which tells functions with the same graph but different code apart.
//!
//! It covers the instructions with their operands, constants and callees, but nothing that can change without an edit to the function:
//! numbers and names that the compiler assigns, source positions, and the file names and line numbers that assertions pass to their
//! handlers. A function that only moved within its file, or whose file moved, keeps its digest.

use crate::handle_map::HandleMap;
use crate::host::type_kind;
use crate::llvm::{Block, Value};
use llvm_sys::LLVMLinkage;

/// Maximum depth to which nested constants are hashed.
const MAX_CONSTANT_DEPTH: u32 = 4;

pub fn hash_function_code(blocks: &[Block]) -> u64 {
    let arguments = blocks.first().map(|first| first.function().parameters()).unwrap_or_default();
    let values = arguments.into_iter().chain(blocks.iter().flat_map(|b| b.instructions()));
    let mut code = CodeHashInput { numbers: values.enumerate().map(|(at, value)| (value, at as u64)).collect(), words: Vec::new() };
    blocks.iter().flat_map(|b| b.instructions()).for_each(|i| code.add_instruction(i));
    trodden_unit::code_hash(&code.words)
}

struct CodeHashInput {
    numbers: HandleMap<Value, u64>,
    words: Vec<u8>,
}

impl CodeHashInput {
    fn add_word(&mut self, tag: u8, word: u64) {
        self.words.push(tag);
        self.words.extend(word.to_le_bytes());
    }

    fn add_text(&mut self, tag: u8, text: &[u8]) {
        self.add_word(tag, text.len() as u64);
        self.words.extend(text);
    }

    fn add_instruction(&mut self, instruction: Value) {
        self.add_word(b'i', instruction.opcode() as u64);
        self.add_type(instruction);
        if let Some(predicate) = instruction.integer_predicate() {
            self.add_word(b'p', predicate as u64);
        } else if let Some(predicate) = instruction.float_predicate() {
            self.add_word(b'p', predicate as u64);
        }
        let line = instruction.location().map(|l| i64::from(l.line()));
        // Calls that do not return, such as those of assertion handlers, pass the source location as arguments.
        let names_place = instruction.is_call() && instruction.call_has_attribute("noreturn");
        for operand in instruction.operands() {
            let constant = operand.is_constant() && !operand.is_function();
            let is_place = constant && instruction.is_call() && (names_place || (line.is_some() && operand.as_integer() == line));
            if is_place { self.add_word(b'l', 0) } else { self.add_operand(operand, MAX_CONSTANT_DEPTH) }
        }
    }

    /// Adds the properties of the value's type that determine the operation: the kind of type, and the width of integers.
    fn add_type(&mut self, value: Value) {
        let width = value.integer_width().unwrap_or(0);
        self.add_word(b't', type_kind(value.kind()) as u64 | u64::from(width) << 8);
    }

    fn add_operand(&mut self, value: Value, depth: u32) {
        if let Some(number) = self.numbers.get(&value).copied() {
            self.add_word(b'v', number);
        } else if let Some(number) = value.as_integer() {
            self.add_type(value);
            self.add_word(b'n', number as u64);
        } else if value.is_global() {
            self.add_global(value);
        } else if value.has_only_numbers() {
            self.add_printed_value(value);
        } else if value.is_constant() {
            self.add_word(b'c', u64::from(value.operand_count()) | (value.value_kind() as u64) << 32);
            if depth > 0 {
                value.operands().for_each(|operand| self.add_operand(operand, depth - 1));
            }
        } else {
            // These operands are mostly successor blocks, which the shape of the graph already determines.
            self.add_word(b'o', value.value_kind() as u64);
        }
    }

    /// Adds a global by its name. The compiler makes up the names of private globals, so a private global is added by its contents if these
    /// are numbers. All other private globals are treated alike.
    fn add_global(&mut self, global: Value) {
        if !matches!(global.linkage(), LLVMLinkage::LLVMPrivateLinkage | LLVMLinkage::LLVMLinkerPrivateLinkage) {
            return self.add_text(b'g', global.name().as_bytes());
        }
        match global.is_global_variable().then(|| global.initializer()).flatten() {
            Some(content) if content.has_only_numbers() => self.add_printed_value(content),
            _ => self.add_word(b'h', 0),
        }
    }

    fn add_printed_value(&mut self, value: Value) {
        self.add_text(b's', value.printed().as_bytes());
    }
}
