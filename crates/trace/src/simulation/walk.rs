//! Finds the instructions of a path descriptor, which holds a start address and branch outcomes, by walking the code. Each branch that the
//! mapping records consumes an outcome.
//!
//! A descriptor does not tell how its path ended. After the last outcome, the walk ends where the mapping ends paths, or at the next branch
//! to be recorded. A path with the maximum number of branches ends after the last one. Extension counters are updated as in the detector.

use super::places::MappedMemory;
use crate::hot_paths::HotPathExit;
use trodden_binary::instruction::{BranchInstruction, classify_branch, decode_instruction, format_intel};
use trodden_hardware::{Address, BranchType, DetectorParameters, OperationMapping, PathDescriptor, PathExtension};

/// Maximum number of instructions of a walk. Paths have fewer in practice; a longer walk is cut off.
const MAX_WALKED_INSTRUCTIONS: usize = 1 << 14;

/// An instruction of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionStep {
    /// The instruction's address.
    pub address: Address,
    /// The instruction's disassembly.
    pub text: String,
    /// True if the instruction is a branch that was taken; `None` if it is not a branch that the path records.
    pub outcome: Option<bool>,
    /// True if the instruction does not directly follow the previous one in memory.
    pub is_jumped_to: bool,
}

/// The instructions of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionWalk {
    /// The instructions, as far as the code is known.
    pub steps: Vec<InstructionStep>,
    /// Why the walk could not reach the path's end.
    pub stopped: Option<&'static str>,
    /// How the path ended.
    pub exit: HotPathExit,
}

/// Walks a path of a detector that has these parameters.
pub fn walk(memory: &MappedMemory, detector: &DetectorParameters, path: &PathDescriptor) -> InstructionWalk {
    let is_split = path.length == detector.length_limit;
    let outcomes = path.outcomes().collect();
    let mut walker = Walker { outcomes, used: 0, extensions: 0, returns: Vec::new(), mapping: &detector.mapping, is_split };
    let mut walk = InstructionWalk { steps: Vec::new(), stopped: None, exit: HotPathExit::Unknown };
    let mut address = path.start.0;
    let mut is_jumped_to = false;
    while walk.steps.len() < MAX_WALKED_INSTRUCTIONS {
        let Some(instruction) = memory.code(Address(address)).and_then(|code| decode_instruction(code, address)) else {
            walk.stopped = Some("no file holds the code here");
            return walk;
        };
        let fall_through = address + instruction.len() as u64;
        let used = walker.used;
        let next = walker.next_step(classify_branch(&instruction), address, fall_through);
        if next == NextStep::EndsBefore {
            walk.exit = HotPathExit::At(address);
            return walk;
        }
        let outcome = (walker.used > used).then(|| walker.outcomes[used]);
        walk.steps.push(InstructionStep { address: Address(address), text: format_intel(&instruction), outcome, is_jumped_to });
        match next {
            NextStep::At(next) => {
                is_jumped_to = next != fall_through;
                address = next;
            }
            NextStep::Unknown(why) => {
                walk.stopped = Some(why);
                return walk;
            }
            NextStep::End(exit) => {
                walk.exit = exit;
                return walk;
            }
            NextStep::EndsBefore => return walk,
        }
    }
    walk
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    /// The path continues at this address.
    At(u64),
    /// This instruction is the path's last.
    End(HotPathExit),
    /// The previous instruction was the path's last.
    EndsBefore,
    /// The path continues, but the code does not tell where.
    Unknown(&'static str),
}

struct Walker<'a> {
    outcomes: Vec<bool>,
    used: usize,
    extensions: u16,
    returns: Vec<u64>,
    mapping: &'a OperationMapping,
    /// True if the path has the detector's maximum number of branches.
    is_split: bool,
}

impl Walker<'_> {
    fn next_step(&mut self, branch: Option<BranchInstruction>, address: u64, fall_through: u64) -> NextStep {
        match branch {
            None | Some(BranchInstruction::System) => NextStep::At(fall_through),
            Some(BranchInstruction::Stop) => NextStep::End(HotPathExit::Unknown),
            Some(BranchInstruction::Conditional(target) | BranchInstruction::Jump(target)) => {
                self.follow_jump(target, address, fall_through)
            }
            Some(BranchInstruction::IndirectJump) => match self.take_outcome(BranchType::Indirect) {
                None => NextStep::EndsBefore,
                Some(_) if self.ends_path(BranchType::Indirect) || self.is_at_limit() => NextStep::End(HotPathExit::Indirect),
                Some(_) => NextStep::Unknown("an indirect branch, whose target the path does not record"),
            },
            Some(call @ (BranchInstruction::Call(_) | BranchInstruction::IndirectCall)) => self.follow_call(call.target(), fall_through),
            Some(BranchInstruction::Return) => self.handle_return(),
        }
    }

    fn follow_jump(&mut self, target: u64, address: u64, fall_through: u64) -> NextStep {
        let is_backward = target <= address;
        let class = |is_taken| match (is_backward, is_taken) {
            (false, _) => BranchType::Forward,
            (true, true) => BranchType::Backward,
            (true, false) => BranchType::BackwardNotTaken,
        };
        let expected = self.outcomes.get(self.used).copied().unwrap_or(true);
        let Some(is_taken) = self.take_outcome(class(expected)) else { return NextStep::EndsBefore };
        let next = if is_taken { target } else { fall_through };
        if is_backward
            && let PathExtension::Loops(most) = self.mapping.extension
            && self.extensions < most
        {
            self.extensions += 1;
        } else if self.ends_path(class(is_taken)) {
            return NextStep::End(HotPathExit::At(next));
        }
        if self.is_at_limit() { NextStep::End(HotPathExit::At(next)) } else { NextStep::At(next) }
    }

    fn follow_call(&mut self, target: Option<u64>, fall_through: u64) -> NextStep {
        if let PathExtension::Calls(most) = self.mapping.extension
            && self.extensions < most
        {
            self.extensions += 1;
            self.returns.push(fall_through);
            return target.map_or(NextStep::Unknown("an indirect call, whose target the path does not record"), NextStep::At);
        }
        if self.ends_path(BranchType::Call) { NextStep::End(HotPathExit::Unknown) } else { NextStep::At(fall_through) }
    }

    fn handle_return(&mut self) -> NextStep {
        match self.returns.pop() {
            Some(fall_through) => {
                self.extensions = self.extensions.saturating_sub(1);
                NextStep::At(fall_through)
            }
            None if self.used < self.outcomes.len() => NextStep::Unknown("a return, whose target the path does not record"),
            None => NextStep::End(HotPathExit::Returned),
        }
    }

    /// Returns true if the detector has split the path after the most recent branch.
    fn is_at_limit(&self) -> bool {
        self.is_split && self.used == self.outcomes.len()
    }

    /// Consumes the next outcome; `None` if there is none left. A branch of a class that the mapping does not record counts as taken.
    fn take_outcome(&mut self, class: BranchType) -> Option<bool> {
        if !self.mapping.operations(class).update {
            return Some(true);
        }
        let outcome = self.outcomes.get(self.used).copied()?;
        self.used += 1;
        Some(outcome)
    }

    fn ends_path(&self, class: BranchType) -> bool {
        self.mapping.operations(class).pop
    }
}
