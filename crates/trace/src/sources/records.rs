//! Common parts of the readers of CBP2025 and ChampSim traces, whose records of instructions lack static branch targets.
//!
//! A record says whether a branch was taken, and if so, its target. The static target of an untaken conditional branch decides whether the
//! branch is forward or backward. It is known if the branch was taken earlier; until then, the branch counts as forward.

use super::EventBatch;
use std::collections::HashMap;
use trodden_hardware::{Address, BranchKind, Instruction, RetiredBranch, StreamEvent, ThreadId};

/// The thread of all events: these formats do not record threads.
const THREAD: ThreadId = ThreadId(0);

#[derive(Debug, Default)]
pub(crate) struct InstructionRecords {
    targets: HashMap<u64, u64>,
    pending: u32,
    /// Address to which the last instruction led, if known.
    expected: Option<u64>,
    pub instructions: u64,
    /// Number of instructions that do not follow the previous instruction.
    gaps: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BranchRecord {
    pub kind: BranchKind,
    pub is_taken: bool,
    /// The branch's target, if it was taken.
    pub target: u64,
    pub fall_through: u64,
}

impl InstructionRecords {
    /// Handles an instruction. `next_address` is the address after it in memory, if known.
    pub fn add(&mut self, instruction: &Instruction, branch: Option<BranchRecord>, next_address: Option<u64>, batch: &mut EventBatch) {
        let address = instruction.address;
        match self.expected {
            Some(expected) if expected != address.0 => {
                self.gaps += 1;
                batch.events.push((THREAD, StreamEvent::Gap(address)));
            }
            None if self.instructions == 0 => batch.events.push((THREAD, StreamEvent::Begin(address))),
            _ => {}
        }
        batch.instructions.push(*instruction);
        self.instructions += 1;
        self.pending += 1;
        self.expected = next_address;
        let Some(branch) = branch else { return };
        if branch.is_taken {
            self.targets.insert(address.0, branch.target);
        }
        let known = self.targets.get(&address.0).copied();
        let retired = RetiredBranch {
            address,
            target: Address(if branch.is_taken { branch.target } else { known.unwrap_or(u64::MAX) }),
            fall_through: Address(branch.fall_through),
            kind: branch.kind,
            is_taken: branch.is_taken,
            instructions: std::mem::take(&mut self.pending),
            stack: None,
        };
        self.expected = next_address.map(|_| retired.next().0);
        batch.events.push((THREAD, StreamEvent::Branch(retired)));
    }

    /// Returns notes for the user on irregularities.
    pub fn notes(&self) -> Vec<String> {
        let note = || format!("gaps where an instruction does not follow the one before: {}", self.gaps);
        (self.gaps > 0).then(note).into_iter().collect()
    }

    pub fn end(&mut self, batch: &mut EventBatch) {
        if self.instructions > 0 {
            batch.events.push((THREAD, StreamEvent::End(std::mem::take(&mut self.pending))));
        }
    }
}
