//! Instructions of the processor models.

use crate::stream::Address;

/// The kind of functional unit that executes an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InstructionClass {
    /// An integer ALU. Branches, loads and stores have this class, too, but loads and stores occupy a memory port instead of an ALU.
    #[default]
    Integer,
    /// The integer multiplier.
    Multiply,
    /// The integer divider.
    Divide,
    /// A floating-point adder. Vector arithmetic has this class, too.
    Float,
    /// The floating-point multiplier.
    FloatMultiply,
    /// The floating-point divider.
    FloatDivide,
}

/// Register number that means "no register".
pub const NO_REGISTER: u8 = 0;

/// A retired instruction. The source may number registers in any way, but from 1: the models only compare the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Address of the instruction.
    pub address: Address,
    /// The kind of functional unit that executes the instruction.
    pub class: InstructionClass,
    /// Registers read; unused elements are [`NO_REGISTER`].
    pub sources: [u8; 4],
    /// Registers written; unused elements are [`NO_REGISTER`].
    pub destinations: [u8; 2],
    /// Memory address read; `None` if the instruction loads nothing.
    pub load: Option<Address>,
    /// Memory address written; `None` if the instruction stores nothing.
    pub store: Option<Address>,
}
