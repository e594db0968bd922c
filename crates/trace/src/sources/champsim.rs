//! Traces of the simulator ChampSim: instructions of x86-64 programs, 64 bytes each.
//!
//! ```text
//! record   ip u64 | is a branch u8 | taken u8 | destination registers u8 x 2 | source registers u8 x 4 |
//!          addresses stored to u64 x 2 | addresses loaded from u64 x 4
//! ```
//! The kind of a branch follows from the registers that it reads and writes: 6 is the stack pointer, 25 the flags, 26 the instruction
//! pointer. The target of a branch is the next record's address. Since sizes of instructions are not recorded, the fall-through address
//! of a branch is unknown until it was seen not taken, and return addresses of calls are unknown. So the path stack is not repaired for
//! such traces, and gaps are not noticed.

use super::records::{BranchRecord, InstructionRecords};
use super::{BranchSource, EventBatch, SourceBytes, SourceDetail, SourceError, SourceNotes};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use trodden_hardware::{Address, BranchKind, Instruction};

const RECORD_SIZE: usize = 64;
const STACK_POINTER: u8 = 6;
const FLAGS_REGISTER: u8 = 25;
const INSTRUCTION_POINTER: u8 = 26;

/// Reads a ChampSim trace, which must not be compressed, as a source of branches.
pub struct ChampSimSource<R> {
    bytes: SourceBytes<R>,
    records: InstructionRecords,
    /// The previous record. Its branch target is the address of the next record.
    before: Option<[u8; RECORD_SIZE]>,
    /// Fall-through addresses of conditional branches that were seen not taken.
    fall_throughs: HashMap<u64, u64>,
}

impl<R: Read> ChampSimSource<R> {
    /// Creates a source. `path` identifies the trace in messages.
    pub fn new(reader: R, path: &Path) -> ChampSimSource<R> {
        ChampSimSource {
            bytes: SourceBytes::new(reader, path),
            records: InstructionRecords::default(),
            before: None,
            fall_throughs: HashMap::new(),
        }
    }

    /// Reads a record. Returns false at the end of the trace.
    fn read_record(&mut self, batch: &mut EventBatch) -> Result<bool, SourceError> {
        let offset = self.bytes.offset();
        let mut record = [0; RECORD_SIZE];
        if !self.bytes.fill(&mut record, "a record of 64 bytes")? {
            return Ok(false);
        }
        if record[8] > 1 || record[9] > 1 {
            return Err(self.bytes.corrupt(offset, "a record has flags other than 0 and 1. Is it a ChampSim trace?"));
        }
        if let Some(before) = self.before.replace(record) {
            self.handle_record(&before, Some(word(&record, 0)), batch);
        }
        Ok(true)
    }

    fn handle_record(&mut self, record: &[u8; RECORD_SIZE], next: Option<u64>, batch: &mut EventBatch) {
        let address = word(record, 0);
        let place = |at: usize| Some(word(record, at)).filter(|a| *a != 0).map(Address);
        let instruction = Instruction {
            address: Address(address),
            sources: [record[12], record[13], record[14], record[15]],
            destinations: [record[10], record[11]],
            store: place(16),
            load: place(32),
            ..Instruction::default()
        };
        let mut branch = None;
        if record[8] == 1 {
            let kind = kind_of(record);
            let is_taken = record[9] == 1 || kind != BranchKind::Conditional;
            if let Some(next) = next.filter(|_| !is_taken) {
                self.fall_throughs.insert(address, next);
            }
            let fall_through = self.fall_throughs.get(&address).copied().unwrap_or(address.wrapping_add(1));
            branch = Some(BranchRecord { kind, is_taken, target: next.unwrap_or(address), fall_through });
        }
        self.records.add(&instruction, branch, None, batch);
    }
}

impl<R: Read> BranchSource for ChampSimSource<R> {
    fn level(&self) -> SourceDetail {
        SourceDetail::Instructions
    }

    fn knows_return_addresses(&self) -> bool {
        false
    }

    fn read(&mut self, batch: &mut EventBatch) -> Result<bool, SourceError> {
        while batch.events.len() < EventBatch::EVENTS_PER_BATCH {
            if !self.read_record(batch)? {
                if let Some(last) = self.before.take() {
                    self.handle_record(&last, None, batch);
                }
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

fn kind_of(record: &[u8; RECORD_SIZE]) -> BranchKind {
    let (writes, reads) = (&record[10..12], &record[12..16]);
    let uses_stack = reads.contains(&STACK_POINTER) && writes.contains(&STACK_POINTER);
    let reads_pointer = reads.contains(&INSTRUCTION_POINTER);
    let reads_other = reads.iter().any(|r| ![0, STACK_POINTER, FLAGS_REGISTER, INSTRUCTION_POINTER].contains(r));
    match (uses_stack, reads_pointer) {
        (true, true) if reads_other => BranchKind::IndirectCall,
        (true, true) => BranchKind::Call,
        (true, false) => BranchKind::Return,
        _ if reads.contains(&FLAGS_REGISTER) => BranchKind::Conditional,
        // `jrcxz` and `loop` read the instruction pointer and a counter.
        (false, true) if reads_other => BranchKind::Conditional,
        _ if reads_other => BranchKind::IndirectJump,
        _ => BranchKind::Jump,
    }
}

fn word(record: &[u8; RECORD_SIZE], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
#[path = "champsim_tests.rs"]
mod tests;
