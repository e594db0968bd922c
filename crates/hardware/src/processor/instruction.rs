//! Instructions of the processor models.

use crate::stream::Address;

/// The functional unit that executes an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InstructionClass {
    /// An integer ALU; also the class of branches, and of loads and stores, which occupy a memory port instead.
    #[default]
    Integer,
    /// The integer multiplier.
    Multiply,
    /// The integer divider.
    Divide,
    /// A floating-point adder; also for vector arithmetic.
    Float,
    /// The floating-point multiplier.
    FloatMultiply,
    /// The floating-point divider.
    FloatDivide,
}

/// Stands for the absence of a register.
pub const NO_REGISTER: u8 = 0;

/// A retired instruction. The source numbers registers from 1; the models only compare these numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Its address.
    pub address: Address,
    /// Functional unit that executes it.
    pub class: InstructionClass,
    /// Registers that it reads, or [`NO_REGISTER`].
    pub sources: [u8; 4],
    /// Registers that it writes, or [`NO_REGISTER`].
    pub destinations: [u8; 2],
    /// Address that it loads from.
    pub load: Option<Address>,
    /// Address that it stores to.
    pub store: Option<Address>,
}
