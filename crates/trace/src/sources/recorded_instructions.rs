//! Instructions in the compact format, with all that the processor model needs, so that one recording serves experiments with caches and
//! predictors.
//!
//! A *run* is the sequence of instructions between two branches. Most runs are executed many times, so each is described once (addresses,
//! units, registers, which instructions load or store) and then referred to by number. For each execution, only the memory accesses are
//! stored, as differences from the previous accesses of the same instructions.
//!
//! ```text
//! Instructions  number of new runs | new runs | for each run executed: its number, its accesses
//! run           number of instructions | each: difference from the previous one's address | class, flags | registers
//! access        difference from the same instruction's previous access, loads first
//! ```
//! All numbers are LEB128, differences are zigzag. The chunk precedes the chunk of events that it describes. It has one run for each branch
//! event and each end event that counts instructions. Memory grows with the number of different runs.

use crate::numbers::{Cursor, push_number, zigzag_encode};
use std::collections::HashMap;
use trodden_hardware::{Address, Instruction, InstructionClass, StreamEvent, ThreadId};

/// The classes, in the order of their numbers in files.
const INSTRUCTION_CLASSES_BY_CODE: [InstructionClass; 6] = [
    InstructionClass::Integer,
    InstructionClass::Multiply,
    InstructionClass::Divide,
    InstructionClass::Float,
    InstructionClass::FloatMultiply,
    InstructionClass::FloatDivide,
];
const INSTRUCTION_CLASS_MASK: u8 = 7;
const LOADS_FLAG: u8 = 8;
const STORES_FLAG: u8 = 16;

pub(super) fn counted_instructions(event: &StreamEvent) -> usize {
    match event {
        StreamEvent::Branch(branch) => branch.instructions as usize,
        StreamEvent::End(instructions) => *instructions as usize,
        _ => 0,
    }
}

/// The last accessed address, by instruction address and kind of access (true for a store).
type LastAccesses = HashMap<(u64, bool), u64>;

#[derive(Default)]
pub(super) struct InstructionEncoder {
    numbers: HashMap<Vec<u8>, u64>,
    last: LastAccesses,
    definitions: (u64, Vec<u8>),
    executed: Vec<u8>,
    /// Instructions whose event has not been added yet.
    carried: Vec<Instruction>,
    description: Vec<u8>,
}

impl InstructionEncoder {
    pub fn add(&mut self, events: &[(ThreadId, StreamEvent)], instructions: &[Instruction]) {
        self.carried.extend_from_slice(instructions);
        let carried = std::mem::take(&mut self.carried);
        let mut used = 0;
        for number in events.iter().map(|(_, event)| counted_instructions(event)).filter(|number| *number > 0) {
            let end = (used + number).min(carried.len());
            self.encode_run(&carried[used..end]);
            used = end;
        }
        self.carried.extend_from_slice(&carried[used..]);
    }

    fn encode_run(&mut self, run: &[Instruction]) {
        self.description.clear();
        describe(run, &mut self.description);
        let next = self.numbers.len() as u64;
        let number = match self.numbers.get(&self.description) {
            Some(number) => *number,
            None => {
                self.definitions.0 += 1;
                self.definitions.1.extend_from_slice(&self.description);
                self.numbers.insert(self.description.clone(), next);
                next
            }
        };
        push_number(number, &mut self.executed);
        for instruction in run {
            for (address, stores) in [(instruction.load, false), (instruction.store, true)] {
                let Some(address) = address else { continue };
                let last = self.last.entry((instruction.address.0, stores)).or_default();
                push_number(zigzag_encode(address.0.wrapping_sub(*last)), &mut self.executed);
                *last = address.0;
            }
        }
    }

    /// Returns a chunk with everything that was added since the last call.
    pub fn take_encoded_content(&mut self) -> Vec<u8> {
        let mut content = Vec::new();
        push_number(self.definitions.0, &mut content);
        content.append(&mut self.definitions.1);
        content.append(&mut self.executed);
        self.definitions.0 = 0;
        content
    }
}

fn describe(run: &[Instruction], into: &mut Vec<u8>) {
    push_number(run.len() as u64, into);
    let mut before = 0;
    for instruction in run {
        push_number(zigzag_encode(instruction.address.0.wrapping_sub(before)), into);
        before = instruction.address.0;
        let class = INSTRUCTION_CLASSES_BY_CODE.iter().position(|c| *c == instruction.class).unwrap_or(0) as u8;
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        into.push(class | flag(instruction.load.is_some(), LOADS_FLAG) | flag(instruction.store.is_some(), STORES_FLAG));
        into.extend(instruction.sources);
        into.extend(instruction.destinations);
    }
}

#[derive(Default)]
pub(super) struct InstructionDecoder {
    /// The known runs of instructions, with placeholders for the accessed addresses.
    runs: Vec<Vec<Instruction>>,
    last: LastAccesses,
}

impl InstructionDecoder {
    /// Decodes the instructions of a chunk; `None` if it is malformed.
    pub fn take(&mut self, content: &[u8], into: &mut Vec<Instruction>) -> Option<()> {
        let mut at = Cursor(content);
        for _ in 0..at.number()? {
            let run = decode_run(&mut at)?;
            self.runs.push(run);
        }
        while !at.0.is_empty() {
            let run = self.runs.get(usize::try_from(at.number()?).ok()?)?;
            for instruction in run {
                let mut instruction = *instruction;
                for (stores, place) in [(false, &mut instruction.load), (true, &mut instruction.store)] {
                    let Some(address) = place else { continue };
                    let last = self.last.entry((instruction.address.0, stores)).or_default();
                    *last = last.wrapping_add(at.difference()?);
                    *address = Address(*last);
                }
                into.push(instruction);
            }
        }
        Some(())
    }
}

fn decode_run(at: &mut Cursor) -> Option<Vec<Instruction>> {
    let number = usize::try_from(at.number()?).ok().filter(|n| *n <= at.0.len())?;
    let mut run = Vec::with_capacity(number);
    let mut address = 0u64;
    for _ in 0..number {
        address = address.wrapping_add(at.difference()?);
        let flags = at.byte()?;
        let accessed = |flag: u8| (flags & flag != 0).then_some(Address(0));
        let class = *INSTRUCTION_CLASSES_BY_CODE.get(usize::from(flags & INSTRUCTION_CLASS_MASK))?;
        let (load, store) = (accessed(LOADS_FLAG), accessed(STORES_FLAG));
        let sources = [at.byte()?, at.byte()?, at.byte()?, at.byte()?];
        let destinations = [at.byte()?, at.byte()?];
        run.push(Instruction { address: Address(address), class, sources, destinations, load, store });
    }
    Some(run)
}
