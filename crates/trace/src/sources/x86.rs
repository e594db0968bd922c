//! The properties of x86-64 instructions that the processor model needs: the functional unit, and the registers that are read and written.
//!
//! The mnemonic and operands determine the unit: division and square root, multiplication, other vector or x87 operations, and everything
//! else. A partial register counts as the full register (`al` is `rax`), and the flags count as one register. The model has room for four
//! sources and two destinations; further ones are dropped.

use iced_x86::{InstructionInfoFactory, Mnemonic, OpAccess, Register};
use trodden_hardware::{Address, Instruction, InstructionClass};

/// The number of the flags register.
const FLAGS_REGISTER: u8 = 255;

/// Describes an instruction, without its data addresses.
pub(crate) fn describe_x86_instruction(instruction: &iced_x86::Instruction) -> Instruction {
    let mut description = Instruction { address: Address(instruction.ip()), ..Instruction::default() };
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let mut factory = InstructionInfoFactory::new();
    let mut uses_vectors = false;
    for used in factory.info(instruction).used_registers() {
        let register = used.register().full_register();
        if register == Register::RIP || register.is_segment_register() {
            continue;
        }
        uses_vectors |= register.is_vector_register() || register.is_st() || register.is_mm();
        let number = (register as u32).min(254) as u8;
        let access = used.access();
        if matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite) {
            reads.push(number);
        }
        if matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite) {
            writes.push(number);
        }
    }
    reads.extend((instruction.rflags_read() != 0).then_some(FLAGS_REGISTER));
    // The flags come first, since branches depend on them, and nearly all additions write them.
    writes.splice(0..0, (instruction.rflags_modified() != 0).then_some(FLAGS_REGISTER));
    description.sources.iter_mut().zip(reads).for_each(|(place, register)| *place = register);
    description.destinations.iter_mut().zip(writes).for_each(|(place, register)| *place = register);
    description.class = classify(instruction.mnemonic(), uses_vectors);
    description
}

fn classify(mnemonic: Mnemonic, uses_vectors: bool) -> InstructionClass {
    match mnemonic {
        Mnemonic::Div | Mnemonic::Idiv => return InstructionClass::Divide,
        Mnemonic::Mul | Mnemonic::Imul | Mnemonic::Mulx => return InstructionClass::Multiply,
        _ if !uses_vectors => return InstructionClass::Integer,
        _ => {}
    }
    let name = format!("{mnemonic:?}").to_lowercase();
    match name.trim_start_matches('v') {
        name if name.contains("div") || name.contains("sqrt") => InstructionClass::FloatDivide,
        name if name.contains("mul") || name.starts_with("fm") || name.starts_with("pmadd") => InstructionClass::FloatMultiply,
        name if name.starts_with("mov") || name.starts_with("lddqu") => InstructionClass::Integer,
        _ => InstructionClass::Float,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_binary::instruction::decode_instruction;

    fn described(code: &[u8]) -> Instruction {
        describe_x86_instruction(&decode_instruction(code, 0x1000).unwrap())
    }

    #[test]
    fn units_and_registers_of_instructions() {
        let add = described(&[0x01, 0xd8]);
        assert_eq!((add.class, add.destinations[0]), (InstructionClass::Integer, FLAGS_REGISTER));
        let jump = described(&[0x74, 0x10]);
        assert_eq!((jump.sources[0], jump.destinations), (FLAGS_REGISTER, [0, 0]));
        assert_eq!(described(&[0x48, 0xf7, 0xf1]).class, InstructionClass::Divide);
        assert_eq!(described(&[0x0f, 0xaf, 0xc3]).class, InstructionClass::Multiply);
        assert_eq!(described(&[0xf2, 0x0f, 0x58, 0xc1]).class, InstructionClass::Float);
        assert_eq!(described(&[0xf2, 0x0f, 0x59, 0xc1]).class, InstructionClass::FloatMultiply);
        assert_eq!(described(&[0xf2, 0x0f, 0x5e, 0xc1]).class, InstructionClass::FloatDivide);
        assert_eq!(described(&[0x0f, 0x28, 0xc1]).class, InstructionClass::Integer);
        // A partial register counts as the full register.
        assert_eq!(described(&[0x88, 0xc3]).destinations[0], described(&[0x48, 0x89, 0xc3]).destinations[0]);
    }
}
