//! What a thread retires, as the path detector sees it: branches in program order, and where their order breaks.
//!
//! Invariant of a well-formed stream: code runs in a straight line from where one record leads to the address of the next branch.

use crate::names::names;
use std::fmt;

/// An address in the memory of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A thread of the program. Numbers are the source's and are not used again for another thread of the same stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// What a branch instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BranchKind {
    /// Taken or not, to a fixed address.
    Conditional,
    /// Always taken, to a fixed address.
    Jump,
    /// Always taken, to an address from a register or memory.
    IndirectJump,
    /// A call of a fixed address.
    Call,
    /// A call of an address from a register or memory.
    IndirectCall,
    /// A return.
    Return,
}

// The order is that of the numbers in files.
names! {
    BranchKind {
        Conditional "conditional", Jump "jump", IndirectJump "indirect-jump", Call "call", IndirectCall "indirect-call", Return "return"
    }
}

impl BranchKind {
    /// Whether it is a call, of a fixed address or not.
    pub fn is_call(self) -> bool {
        matches!(self, BranchKind::Call | BranchKind::IndirectCall)
    }
}

/// A branch that retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetiredBranch {
    /// Its own address.
    pub address: Address,
    /// Where it leads if taken.
    pub target: Address,
    /// The instruction behind it.
    pub fall_through: Address,
    /// What it is.
    pub kind: BranchKind,
    /// Whether it was taken; only a conditional branch may not be.
    pub is_taken: bool,
    /// Instructions since the branch before it, itself among them.
    pub instructions: u32,
    /// Where a call stores its return address, or a return loads it; `None` of other branches, and if the source does not say.
    pub stack: Option<Address>,
}

impl RetiredBranch {
    /// The instruction executed after it.
    pub fn next(&self) -> Address {
        if self.is_taken { self.target } else { self.fall_through }
    }
}

/// What a thread's stream consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamEvent {
    /// The thread begins here.
    Begin(Address),
    /// A branch retired.
    Branch(RetiredBranch),
    /// A signal's handler begins; what it interrupts goes on at the matching [`StreamEvent::Resume`].
    Interrupt(Address),
    /// The handler returned to what it had interrupted.
    Resume(Address),
    /// Something is missing, or cannot be explained, before the instruction at this address.
    Gap(Address),
    /// The thread ended, after so many instructions since its last branch.
    End(u32),
}
