//! What traces of instructions have in common that do not record a branch's static target: those of CBP2025 and ChampSim.
//!
//! A record says whether a branch was taken, and where it led if it was. A conditional branch that is not taken has a
//! static target all the same, which decides whether it is a forward or a backward one: the target that it was seen to
//! lead to before. Until then it counts as a forward branch.

use super::Batch;
use std::collections::HashMap;
use trodden_hardware::{Address, BranchKind, Instruction, RetiredBranch, StreamEvent, ThreadId};

/// The one thread of such traces.
const THREAD: ThreadId = ThreadId(0);

/// Branches of a trace of instructions.
#[derive(Debug, Default)]
pub(crate) struct Records {
    targets: HashMap<u64, u64>,
    pending: u32,
    /// Where the last instruction led, if that is known.
    expected: Option<u64>,
    /// Instructions so far.
    pub instructions: u64,
    /// Places where an instruction does not follow the one before it.
    gaps: u64,
}

/// What a record says of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BranchRecord {
    pub kind: BranchKind,
    pub is_taken: bool,
    /// Where it led if taken.
    pub target: u64,
    pub fall_through: u64,
}

impl Records {
    /// Takes an instruction; `behind` is the address of the next one in memory, if it is known.
    pub fn take(&mut self, instruction: &Instruction, branch: Option<BranchRecord>, behind: Option<u64>, batch: &mut Batch) {
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
        self.expected = behind;
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
        self.expected = behind.map(|_| retired.next().0);
        batch.events.push((THREAD, StreamEvent::Branch(retired)));
    }

    /// What is not as one would expect.
    pub fn notes(&self) -> Vec<String> {
        let note = || format!("{} instructions do not follow the one before them: a gap is there", self.gaps);
        (self.gaps > 0).then(note).into_iter().collect()
    }

    /// The trace ended.
    pub fn end(&mut self, batch: &mut Batch) {
        if self.instructions > 0 {
            batch.events.push((THREAD, StreamEvent::End(std::mem::take(&mut self.pending))));
        }
    }
}
