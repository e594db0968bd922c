//! Blocks translated by QEMU, and the transition from one executed block to the next.
//!
//! The start of the next block determines what the last instruction of a block did, with these exceptions:
//! - An instruction that crosses a page boundary is listed, truncated, at the end of a block, but not executed with it.
//! - A REP string instruction enters a block of its own for each iteration, which is not a branch.
//! - Blocks are split without a branch.
//! - A block is left in the middle, and continued there, if an instruction faults or must be executed separately (16-byte atomics).
//! - A signal handler may start between any two blocks.

use super::x86;
use trodden_binary::instruction::{BranchInstruction, classify_branch, decode_instruction};
use trodden_hardware::{Address, BranchKind, Instruction};

#[derive(Clone, Debug, Default)]
pub struct TranslatedBlock {
    pub start: u64,
    /// End address (exclusive).
    pub end: u64,
    pub offsets: Vec<u16>,
    /// The effect of the block's last instruction on control flow.
    pub branch: Option<BranchInstruction>,
    /// True if the block's last instruction is a string instruction with a REP prefix.
    pub repeats: bool,
    /// The block's instructions for the processor model, without data addresses; empty unless they are recorded.
    pub details: Vec<Instruction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockTransition {
    Straight,
    /// A branch, with its target and whether it was taken.
    Branch(BranchKind, Address, bool),
    /// The next iteration of the string instruction at the end of the block.
    Iteration,
    /// The block was left after this number of instructions, and is continued there.
    Restart(usize),
    /// The code does not allow the transition.
    Unexplained,
}

impl TranslatedBlock {
    /// Decodes a block from its address, the sizes of its instructions, and their bytes. Returns `None` if bytes are missing, or no
    /// instruction can be decoded.
    pub fn new(start: u64, sizes: &[u8], code: &[u8], with_details: bool) -> Option<TranslatedBlock> {
        let mut block = TranslatedBlock { start, end: start, ..TranslatedBlock::default() };
        let mut at = 0;
        for size in sizes.iter().map(|s| usize::from(*s)) {
            let address = start + at as u64;
            let Some(instruction) = decode_instruction(code.get(at..at + size)?, address).filter(|i| i.len() == size) else {
                // The instruction is truncated at a page boundary, and a different block executes it.
                break;
            };
            block.offsets.push(u16::try_from(at).ok()?);
            if with_details {
                block.details.push(x86::describe_x86_instruction(&instruction));
            }
            at += size;
            block.branch = classify_branch(&instruction);
            let has_prefix = instruction.has_rep_prefix() || instruction.has_repne_prefix();
            block.repeats = has_prefix && instruction.is_string_instruction();
        }
        block.end = start + at as u64;
        (!block.offsets.is_empty()).then_some(block)
    }

    pub fn instructions(&self) -> usize {
        self.offsets.len()
    }

    pub fn last(&self) -> u64 {
        self.start + self.offsets.last().map_or(0, |o| u64::from(*o))
    }

    pub fn transition(&self, next: u64) -> BlockTransition {
        let explained = match self.branch {
            None | Some(BranchInstruction::System) if next == self.end => BlockTransition::Straight,
            None if self.repeats && next == self.last() => BlockTransition::Iteration,
            Some(BranchInstruction::Conditional(target)) if next == self.end => {
                BlockTransition::Branch(BranchKind::Conditional, Address(target), false)
            }
            Some(BranchInstruction::Conditional(target)) if next == target => {
                BlockTransition::Branch(BranchKind::Conditional, Address(target), true)
            }
            Some(BranchInstruction::Jump(target)) if next == target => BlockTransition::Branch(BranchKind::Jump, Address(target), true),
            Some(BranchInstruction::Call(target)) if next == target => BlockTransition::Branch(BranchKind::Call, Address(target), true),
            Some(BranchInstruction::IndirectJump) => BlockTransition::Branch(BranchKind::IndirectJump, Address(next), true),
            Some(BranchInstruction::IndirectCall) => BlockTransition::Branch(BranchKind::IndirectCall, Address(next), true),
            Some(BranchInstruction::Return) => BlockTransition::Branch(BranchKind::Return, Address(next), true),
            _ => BlockTransition::Unexplained,
        };
        if explained != BlockTransition::Unexplained {
            return explained;
        }
        let inside = next.checked_sub(self.start).and_then(|o| u16::try_from(o).ok());
        match inside.and_then(|offset| self.offsets.binary_search(&offset).ok()) {
            Some(instructions) => BlockTransition::Restart(instructions),
            None => BlockTransition::Unexplained,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64, instructions: &[&[u8]]) -> TranslatedBlock {
        let sizes: Vec<u8> = instructions.iter().map(|i| i.len() as u8).collect();
        TranslatedBlock::new(start, &sizes, &instructions.concat(), true).unwrap()
    }

    #[test]
    fn transitions_follow_from_the_last_instruction() {
        let conditional = block(0x1000, &[&[0x90], &[0x74, 0x10]]);
        assert_eq!((conditional.instructions(), conditional.end, conditional.last()), (2, 0x1003, 0x1001));
        assert_eq!(conditional.transition(0x1003), BlockTransition::Branch(BranchKind::Conditional, Address(0x1013), false));
        assert_eq!(conditional.transition(0x1013), BlockTransition::Branch(BranchKind::Conditional, Address(0x1013), true));
        assert_eq!(conditional.transition(0x5000), BlockTransition::Unexplained);
        let back = block(0x1000, &[&[0xc3]]);
        assert_eq!(back.transition(0x77), BlockTransition::Branch(BranchKind::Return, Address(0x77), true));
        let system = block(0x1000, &[&[0x0f, 0x05]]);
        assert_eq!(system.transition(0x1002), BlockTransition::Straight);
        assert_eq!(system.transition(0x2000), BlockTransition::Unexplained);
    }

    #[test]
    fn repeated_string_instructions_are_iterations() {
        let repeated = block(0x1000, &[&[0x90], &[0xf3, 0xa4]]);
        assert_eq!(repeated.transition(0x1001), BlockTransition::Iteration);
        assert_eq!(repeated.transition(0x1003), BlockTransition::Straight);
        assert_eq!(block(0x1001, &[&[0xf3, 0xa4]]).transition(0x1001), BlockTransition::Iteration);
        // Before other instructions, the REP prefix has a different meaning.
        assert_eq!(block(0x1001, &[&[0xf3, 0x90]]).transition(0x1001), BlockTransition::Restart(0));
    }

    #[test]
    fn instruction_across_a_page_boundary_is_not_part_of_the_block() {
        let truncated = block(0x1ffc, &[&[0x90], &[0x90], &[0xe8, 0x01]]);
        assert_eq!((truncated.instructions(), truncated.end, truncated.branch), (2, 0x1ffe, None));
        assert_eq!(truncated.transition(0x1ffe), BlockTransition::Straight);
        assert!(TranslatedBlock::new(0x1fff, &[1], &[0xe8], false).is_none());
    }

    #[test]
    fn blocks_can_be_left_in_the_middle() {
        let left = block(0x1000, &[&[0x90], &[0x90], &[0xc3]]);
        // Anything may follow a return, so leaving the block early is not recognised.
        assert_eq!(left.transition(0x1001), BlockTransition::Branch(BranchKind::Return, Address(0x1001), true));
        let left = block(0x1000, &[&[0x90], &[0x90], &[0x74, 0x10]]);
        assert_eq!(left.transition(0x1001), BlockTransition::Restart(1));
        assert_eq!(left.transition(0x1000), BlockTransition::Restart(0));
    }
}
