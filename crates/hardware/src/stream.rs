//! The events of a thread, as the path detector sees them: retired branches in program order, and discontinuities. In a well-formed stream,
//! code runs straight from where one record leads to the address of the next branch.

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

/// A thread of the program. The source assigns the numbers, and does not reuse them within a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// The kind of a branch instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BranchKind {
    /// Conditional, to a fixed address.
    Conditional,
    /// Unconditional, to a fixed address.
    Jump,
    /// Unconditional, to an address from a register or memory.
    IndirectJump,
    /// A call to a fixed address.
    Call,
    /// A call to an address from a register or memory.
    IndirectCall,
    /// A return.
    Return,
}

// Files contain the numbers of this order.
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
    /// Its own address.
    pub address: Address,
    /// Its target if taken.
    pub target: Address,
    /// The address after it.
    pub fall_through: Address,
    /// Its kind.
    pub kind: BranchKind,
    /// Whether it was taken; always true for unconditional branches.
    pub is_taken: bool,
    /// Instructions since the previous branch, including this one.
    pub instructions: u32,
    /// Where a call stores, or a return loads, its return address; `None` for other branches, and if the source does not tell.
    pub stack: Option<Address>,
}

impl RetiredBranch {
    /// Address of the next instruction executed.
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
    /// Before the instruction at this address, something is missing or inconsistent.
    Gap(Address),
    /// The thread ended, this many instructions after its last branch.
    End(u32),
}
