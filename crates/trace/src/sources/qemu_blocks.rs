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
use trodden_binary::instruction::{Branch, branch, decode};
use trodden_hardware::{Address, BranchKind, Instruction};

/// A translated block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where each of its instructions begins, counted from its start.
    pub offsets: Vec<u16>,
    /// What its last instruction does to control flow.
    pub branch: Option<Branch>,
    /// Its last instruction is a string instruction with a REP prefix.
    pub repeats: bool,
    /// Its instructions for the processor model, without addresses of data; empty unless they are asked for.
    pub details: Vec<Instruction>,
}

/// What lies between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
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

impl Block {
    /// Makes a block of its address, the sizes of its instructions, and their bytes. `None` if the bytes do not
    /// suffice, or none can be decoded.
    pub fn new(start: u64, sizes: &[u8], code: &[u8], with_details: bool) -> Option<Block> {
        let mut block = Block { start, end: start, ..Block::default() };
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
    pub fn transition(&self, next: u64) -> Transition {
        let explained = match self.branch {
            None | Some(Branch::System) if next == self.end => Transition::Straight,
            None if self.repeats && next == self.last() => Transition::Iteration,
            Some(Branch::Conditional(target)) if next == self.end => Transition::Branch(BranchKind::Conditional, Address(target), false),
            Some(Branch::Conditional(target)) if next == target => Transition::Branch(BranchKind::Conditional, Address(target), true),
            Some(Branch::Jump(target)) if next == target => Transition::Branch(BranchKind::Jump, Address(target), true),
            Some(Branch::Call(target)) if next == target => Transition::Branch(BranchKind::Call, Address(target), true),
            Some(Branch::IndirectJump) => Transition::Branch(BranchKind::IndirectJump, Address(next), true),
            Some(Branch::IndirectCall) => Transition::Branch(BranchKind::IndirectCall, Address(next), true),
            Some(Branch::Return) => Transition::Branch(BranchKind::Return, Address(next), true),
            _ => Transition::Unexplained,
        };
        if explained != Transition::Unexplained {
            return explained;
        }
        let inside = next.checked_sub(self.start).and_then(|o| u16::try_from(o).ok());
        match inside.and_then(|offset| self.offsets.binary_search(&offset).ok()) {
            Some(instructions) => Transition::Restart(instructions),
            None => Transition::Unexplained,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64, instructions: &[&[u8]]) -> Block {
        let sizes: Vec<u8> = instructions.iter().map(|i| i.len() as u8).collect();
        Block::new(start, &sizes, &instructions.concat(), true).unwrap()
    }

    #[test]
    fn what_the_last_instruction_did() {
        let conditional = block(0x1000, &[&[0x90], &[0x74, 0x10]]);
        assert_eq!((conditional.instructions(), conditional.end, conditional.last()), (2, 0x1003, 0x1001));
        assert_eq!(conditional.transition(0x1003), Transition::Branch(BranchKind::Conditional, Address(0x1013), false));
        assert_eq!(conditional.transition(0x1013), Transition::Branch(BranchKind::Conditional, Address(0x1013), true));
        assert_eq!(conditional.transition(0x5000), Transition::Unexplained);
        let back = block(0x1000, &[&[0xc3]]);
        assert_eq!(back.transition(0x77), Transition::Branch(BranchKind::Return, Address(0x77), true));
        let system = block(0x1000, &[&[0x0f, 0x05]]);
        assert_eq!(system.transition(0x1002), Transition::Straight);
        assert_eq!(system.transition(0x2000), Transition::Unexplained);
    }

    #[test]
    fn string_instructions_iterate() {
        let repeated = block(0x1000, &[&[0x90], &[0xf3, 0xa4]]);
        assert_eq!(repeated.transition(0x1001), Transition::Iteration);
        assert_eq!(repeated.transition(0x1003), Transition::Straight);
        assert_eq!(block(0x1001, &[&[0xf3, 0xa4]]).transition(0x1001), Transition::Iteration);
        // The same prefix before other instructions means something else.
        assert_eq!(block(0x1001, &[&[0xf3, 0x90]]).transition(0x1001), Transition::Restart(0));
    }

    #[test]
    fn an_instruction_that_crosses_a_page_is_not_executed() {
        let cut = block(0x1ffc, &[&[0x90], &[0x90], &[0xe8, 0x01]]);
        assert_eq!((cut.instructions(), cut.end, cut.branch), (2, 0x1ffe, None));
        assert_eq!(cut.transition(0x1ffe), Transition::Straight);
        assert!(Block::new(0x1fff, &[1], &[0xe8], false).is_none());
    }

    #[test]
    fn blocks_may_be_left_in_their_middle() {
        let left = block(0x1000, &[&[0x90], &[0x90], &[0xc3]]);
        // Everything may follow a return, so only the others are known.
        assert_eq!(left.transition(0x1001), Transition::Branch(BranchKind::Return, Address(0x1001), true));
        let left = block(0x1000, &[&[0x90], &[0x90], &[0x74, 0x10]]);
        assert_eq!(left.transition(0x1001), Transition::Restart(1));
        assert_eq!(left.transition(0x1000), Transition::Restart(0));
    }
}
