//! A thread's events as the path detector sees them: retired branches in program order, and discontinuities. In a well-formed stream, the
//! code between the destination of one event and the next branch is executed sequentially.

use crate::names::names;
use std::fmt;

/// An address in the program's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A thread of the program. The source numbers the threads, and does not reuse a number within a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// The kind of a branch instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BranchKind {
    /// A branch that may or may not be taken, to a fixed address.
    Conditional,
    /// An unconditional jump to a fixed address.
    Jump,
    /// An unconditional jump to an address from a register or memory.
    IndirectJump,
    /// A call to a fixed address.
    Call,
    /// A call to an address from a register or memory.
    IndirectCall,
    /// A return.
    Return,
}

// Files contain the discriminants, so the order of the variants must not change.
names! {
    BranchKind {
        Conditional "conditional", Jump "jump", IndirectJump "indirect-jump", Call "call", IndirectCall "indirect-call", Return "return"
    }
}

impl BranchKind {
    /// Returns true for direct and indirect calls.
    pub fn is_call(self) -> bool {
        matches!(self, BranchKind::Call | BranchKind::IndirectCall)
    }
}

/// A retired branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetiredBranch {
    /// Address of the branch instruction.
    pub address: Address,
    /// Target address of the branch if it is taken.
    pub target: Address,
    /// Address of the instruction that follows in memory.
    pub fall_through: Address,
    /// The kind of branch.
    pub kind: BranchKind,
    /// Whether the branch was taken; true for all unconditional branches.
    pub is_taken: bool,
    /// Number of instructions since the previous branch, including this one.
    pub instructions: u32,
    /// Where on the stack a call stores its return address, or from where a return loads it. `None` for other branches, and if the source
    /// does not provide the location.
    pub stack: Option<Address>,
}

impl RetiredBranch {
    /// Returns the address of the instruction that is executed next.
    pub fn next(&self) -> Address {
        if self.is_taken { self.target } else { self.fall_through }
    }
}

/// An event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamEvent {
    /// The thread starts at this address.
    Begin(Address),

    /// A branch retired.
    Branch(RetiredBranch),
    /// A signal handler starts at this address. The interrupted code continues at the matching [`StreamEvent::Resume`].
    Interrupt(Address),
    /// The handler returned, and the interrupted code continues at this address.
    Resume(Address),
    /// Events before the instruction at this address are missing or inconsistent.
    Gap(Address),
    /// The thread ended, this many instructions after its last branch.
    End(u32),
}
