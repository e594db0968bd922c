//! Translated blocks of QEMU, and what lies between the execution of one and of the next.
//!
//! A block is executed from its start. Where the next one starts says what the last instruction did, with these exceptions:
//! - an instruction that crosses a page is listed at a block's end, cut off, but is not executed with it;
//! - a REP string instruction enters a block of its own for each iteration, which is no branch;
//! - blocks are split without a branch;
//! - a block is left in its middle where an instruction faults, or has to be executed by itself (an atomic one of 16
//!   bytes): what follows starts again there;
//! - a signal's handler begins between any two blocks.

use super::x86;
use trodden_binary::instruction::{BranchInstruction, branch, decode};
use trodden_hardware::{Address, BranchKind, Instruction};

/// A translated block.
#[derive(Clone, Debug, Default)]
pub struct TranslatedBlock {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where each of its instructions begins, counted from its start.
    pub offsets: Vec<u16>,
    /// What its last instruction does to control flow.
    pub branch: Option<BranchInstruction>,
    /// Its last instruction is a string instruction with a REP prefix.
    pub repeats: bool,
    /// Its instructions for the processor model, without addresses of data; empty unless they are asked for.
    pub details: Vec<Instruction>,
}

/// What lies between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockTransition {
    /// Straight on.
    Straight,
    /// A branch: kind, target, taken.
    Branch(BranchKind, Address, bool),
    /// The next iteration of the string instruction that ends the block.
    Iteration,
    /// The block was left after so many of its instructions, and goes on there.
    Restart(usize),
    /// None of this.
    Unexplained,
}

impl TranslatedBlock {
    /// Makes a block of its address, the sizes of its instructions, and their bytes. `None` if the bytes do not
    /// suffice, or none can be decoded.
    pub fn new(start: u64, sizes: &[u8], code: &[u8], with_details: bool) -> Option<TranslatedBlock> {
        let mut block = TranslatedBlock { start, end: start, ..TranslatedBlock::default() };
        let mut at = 0;
        for size in sizes.iter().map(|s| usize::from(*s)) {
            let address = start + at as u64;
            let Some(instruction) = decode(code.get(at..at + size)?, address).filter(|i| i.len() == size) else {
                // Cut off by the end of its page: it is executed by a block of its own.
                break;
            };
            block.offsets.push(u16::try_from(at).ok()?);
            if with_details {
                block.details.push(x86::describe(&instruction));
            }
            at += size;
            block.branch = branch(&instruction);
            let has_prefix = instruction.has_rep_prefix() || instruction.has_repne_prefix();
            block.repeats = has_prefix && instruction.is_string_instruction();
        }
        block.end = start + at as u64;
        (!block.offsets.is_empty()).then_some(block)
    }

    /// Number of instructions.
    pub fn instructions(&self) -> usize {
        self.offsets.len()
    }

    /// Where its last instruction begins.
    pub fn last(&self) -> u64 {
        self.start + self.offsets.last().map_or(0, |o| u64::from(*o))
    }

    /// What lies between this block and the execution of what starts at `next`.
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
    fn what_the_last_instruction_did() {
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
    fn string_instructions_iterate() {
        let repeated = block(0x1000, &[&[0x90], &[0xf3, 0xa4]]);
        assert_eq!(repeated.transition(0x1001), BlockTransition::Iteration);
        assert_eq!(repeated.transition(0x1003), BlockTransition::Straight);
        assert_eq!(block(0x1001, &[&[0xf3, 0xa4]]).transition(0x1001), BlockTransition::Iteration);
        // The same prefix before other instructions means something else.
        assert_eq!(block(0x1001, &[&[0xf3, 0x90]]).transition(0x1001), BlockTransition::Restart(0));
    }

    #[test]
    fn an_instruction_that_crosses_a_page_is_not_executed() {
        let cut = block(0x1ffc, &[&[0x90], &[0x90], &[0xe8, 0x01]]);
        assert_eq!((cut.instructions(), cut.end, cut.branch), (2, 0x1ffe, None));
        assert_eq!(cut.transition(0x1ffe), BlockTransition::Straight);
        assert!(TranslatedBlock::new(0x1fff, &[1], &[0xe8], false).is_none());
    }

    #[test]
    fn blocks_may_be_left_in_their_middle() {
        let left = block(0x1000, &[&[0x90], &[0x90], &[0xc3]]);
        // Everything may follow a return, so only the others are known.
        assert_eq!(left.transition(0x1001), BlockTransition::Branch(BranchKind::Return, Address(0x1001), true));
        let left = block(0x1000, &[&[0x90], &[0x90], &[0x74, 0x10]]);
        assert_eq!(left.transition(0x1001), BlockTransition::Restart(1));
        assert_eq!(left.transition(0x1000), BlockTransition::Restart(0));
    }
}
