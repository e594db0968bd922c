//! Instructions as the processor model sees them.

use crate::stream::Address;

/// Which functional unit executes an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InstructionClass {
    /// An integer ALU; branches, loads and stores use one for nothing but their address.
    #[default]
    Integer,
    /// The integer multiplier.
    Multiply,
    /// The integer divider.
    Divide,
    /// A floating-point adder; vector arithmetic as well.
    Float,
    /// The floating-point multiplier.
    FloatMultiply,
    /// The floating-point divider.
    FloatDivide,
}

/// No register.
pub const NO_REGISTER: u8 = 0;

/// An instruction that retired. Registers are numbered from 1 by the source; the model asks only which are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// Its address.
    pub address: Address,
    /// What executes it.
    pub class: InstructionClass,
    /// Registers that it reads.
    pub sources: [u8; 4],
    /// Registers that it writes.
    pub destinations: [u8; 2],
    /// The address that it loads from.
    pub load: Option<Address>,
    /// The address that it stores to.
    pub store: Option<Address>,
}
