//! Traces of the championship in branch prediction of 2025 (CBP2025): instructions of AArch64 programs.
//!
//! ```text
//! record   pc u64 | class u8
//!          loads and stores: address u64 | size u8 | base register is updated u8 | stores: with a register offset u8
//!          branches: taken u8 | if taken: target u64
//!          inputs u8 | their registers | outputs u8 | their registers | their values: u64, of vector registers u128
//! ```
//! Registers: 0 to 31 are integer registers, 32 to 63 vector registers, 64 the flags. Numbers are little-endian. The files have no header,
//! so a file of a different format fails at the first malformed record.

use super::records::{BranchRecord, InstructionRecords};
use super::{BranchSource, EventBatch, SourceBytes, SourceDetail, SourceError, SourceNotes};
use std::io::Read;
use std::path::Path;
use trodden_hardware::{Address, BranchKind, Instruction, InstructionClass};

const LOAD_CLASS: u8 = 1;
const STORE_CLASS: u8 = 2;
const CONDITIONAL_CLASS: u8 = 3;
/// Number of the first vector register. The flags follow the last vector register.
const FIRST_VECTOR_REGISTER: u8 = 32;
const FLAGS_REGISTER: u8 = 64;
/// Size of an instruction in bytes.
const INSTRUCTION_SIZE: u64 = 4;

/// Reads a CBP2025 trace, which must not be compressed, as a source of branches.
pub struct Cbp2025Source<R> {
    bytes: SourceBytes<R>,
    records: InstructionRecords,
}

impl<R: Read> Cbp2025Source<R> {
    /// Creates a source. `path` identifies the trace in messages.
    pub fn new(reader: R, path: &Path) -> Cbp2025Source<R> {
        Cbp2025Source { bytes: SourceBytes::new(reader, path), records: InstructionRecords::default() }
    }

    /// Reads a record. Returns false at the end of the trace.
    fn read_record(&mut self, batch: &mut EventBatch) -> Result<bool, SourceError> {
        let offset = self.bytes.offset();
        let mut pc = [0; 8];
        if !self.bytes.fill(&mut pc, "a record")? {
            return Ok(false);
        }
        let address = u64::from_le_bytes(pc);
        let class = self.byte()?;
        let Some(unit) = functional_unit(class) else {
            return Err(self
                .bytes
                .corrupt(offset, format!("the instruction at {address:#x} has the unknown class {class}. Is it a CBP2025 trace?")));
        };
        let mut instruction = Instruction { address: Address(address), class: unit, ..Instruction::default() };
        self.read_memory(class, &mut instruction)?;
        let next_address = address.wrapping_add(INSTRUCTION_SIZE);
        let mut branch = None;
        if let Some(kind) = branch_kind(class) {
            let is_taken = match self.byte()? {
                0 => false,
                1 => true,
                other => return Err(self.bytes.corrupt(offset, format!("the outcome of a branch is {other} instead of 0 or 1"))),
            };
            let target = if is_taken { self.word()? } else { 0 };
            branch = Some(BranchRecord { kind, is_taken, target, fall_through: next_address });
        }
        self.read_registers(&mut instruction)?;
        self.records.add(&instruction, branch, Some(next_address), batch);
        Ok(true)
    }

    fn read_memory(&mut self, class: u8, instruction: &mut Instruction) -> Result<(), SourceError> {
        if class != LOAD_CLASS && class != STORE_CLASS {
            return Ok(());
        }
        let place = Some(Address(self.word()?));
        let [_size, _base_is_updated] = [self.byte()?, self.byte()?];
        if class == LOAD_CLASS {
            instruction.load = place;
        } else {
            instruction.store = place;
            self.byte()?;
        }
        Ok(())
    }

    fn read_registers(&mut self, instruction: &mut Instruction) -> Result<(), SourceError> {
        for at in 0..self.byte()? {
            let register = self.byte()?;
            if let Some(source) = instruction.sources.get_mut(usize::from(at)) {
                *source = register.wrapping_add(1);
            }
        }
        let outputs = self.byte()?;
        let mut words = u32::from(outputs);
        for at in 0..outputs {
            let register = self.byte()?;
            words += u32::from((FIRST_VECTOR_REGISTER..FLAGS_REGISTER).contains(&register));
            if let Some(destination) = instruction.destinations.get_mut(usize::from(at)) {
                *destination = register.wrapping_add(1);
            }
        }
        (0..words).try_for_each(|_| self.word().map(|_| ()))
    }

    fn byte(&mut self) -> Result<u8, SourceError> {
        let mut byte = [0];
        self.bytes.read_exact(&mut byte, "the rest of a record")?;
        Ok(byte[0])
    }

    fn word(&mut self) -> Result<u64, SourceError> {
        let mut word = [0; 8];
        self.bytes.read_exact(&mut word, "the rest of a record")?;
        Ok(u64::from_le_bytes(word))
    }
}

impl<R: Read> BranchSource for Cbp2025Source<R> {
    fn level(&self) -> SourceDetail {
        SourceDetail::Instructions
    }

    fn read(&mut self, batch: &mut EventBatch) -> Result<bool, SourceError> {
        while batch.events.len() < EventBatch::EVENTS_PER_BATCH {
            if !self.read_record(batch)? {
                self.records.end(batch);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn notes(&self) -> SourceNotes {
        SourceNotes { notes: self.records.notes(), instructions: self.records.instructions, ..SourceNotes::default() }
    }
}

fn branch_kind(class: u8) -> Option<BranchKind> {
    Some(match class {
        CONDITIONAL_CLASS => BranchKind::Conditional,
        4 => BranchKind::Jump,
        5 => BranchKind::IndirectJump,
        9 => BranchKind::Call,
        10 => BranchKind::IndirectCall,
        11 => BranchKind::Return,
        _ => return None,
    })
}

/// Returns the functional unit of a class; `None` if there is no such class.
fn functional_unit(class: u8) -> Option<InstructionClass> {
    match class {
        6 => Some(InstructionClass::Float),
        7 => Some(InstructionClass::Multiply),
        0..=11 => Some(InstructionClass::Integer),
        _ => None,
    }
}

#[cfg(test)]
#[path = "cbp2025_tests.rs"]
mod tests;
