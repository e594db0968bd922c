//! Displaced instructions: the instruction that a breakpoint replaces is executed in a slot near the image. The slot then jumps back.
//!
//! Removing a breakpoint, stepping over it and inserting it again would cost two stops, and other threads could slip through meanwhile.
//! A slot costs one stop, and the breakpoint stays. The block encoder of iced-x86 relocates the instruction. A call becomes `push [return
//! address]; jmp target`, since a return address in the slot would mislead unwinders.
//!
//! Invariant: after the slot, registers, flags and memory are as the original instruction would have left them.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionBlock, OpKind, Register,
};

/// Size of a slot in bytes. A displaced call with its constant is the longest.
pub const SLOT_SIZE: u64 = 64;

/// Why an instruction cannot be moved.
#[derive(Debug, thiserror::Error)]
pub enum DisplaceError {
    /// The bytes are not an instruction.
    #[error(
        "the control-flow graph of a function is wrong: the bytes at {0:#x} are not an instruction. Exclude the function with `--opaque`"
    )]
    Undecodable(u64),
    /// The instruction only works at its own address.
    #[error(
        "cannot move the instruction at {address:#x} ({instruction:?}), which depends on its address. Exclude its function with `--opaque`"
    )]
    Immovable {
        /// The instruction's address.
        address: u64,
        /// The instruction's encoding.
        instruction: Code,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisplacedInstruction {
    pub code: Vec<u8>,
    /// Length of the original instruction in bytes.
    pub length: u64,
}

/// Builds the slot at address `slot` for the instruction at `address`. `code` starts with the instruction's bytes.
///
/// # Errors
/// The bytes are not an instruction, or the instruction cannot be moved.
pub fn displace(code: &[u8], address: u64, slot: u64) -> Result<DisplacedInstruction, DisplaceError> {
    let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return Err(DisplaceError::Undecodable(address));
    }
    let immovable = || DisplaceError::Immovable { address, instruction: instruction.code() };
    let encode = |instructions: &[Instruction], at: u64| {
        let block = InstructionBlock::new(instructions, at);
        BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).map(|r| r.code_buffer).map_err(|_| immovable())
    };
    let length = instruction.len() as u64;
    let code = match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall if !is_software_interrupt(&instruction) => {
            let jump = convert_call_to_jump(&instruction).ok_or_else(immovable)?;
            // push qword [rip + length of the jump]; the jump; the constant.
            let jump = encode(&[jump], slot + 6)?;
            let mut code = vec![0xff, 0x35];
            code.extend((jump.len() as u32).to_le_bytes());
            code.extend(jump);
            code.extend(instruction.next_ip().to_le_bytes());
            code
        }
        FlowControl::XbeginXabortXend => return Err(immovable()),
        _ => {
            let back = Instruction::with_branch(Code::Jmp_rel32_64, instruction.next_ip()).map_err(|_| immovable())?;
            encode(&[instruction, back], slot)?
        }
    };
    if code.len() as u64 > SLOT_SIZE { Err(immovable()) } else { Ok(DisplacedInstruction { code, length }) }
}

/// Returns true for system calls and software interrupts. iced-x86 counts `syscall` and `sysenter` among calls.
pub fn is_software_interrupt(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Syscall | Code::Sysenter | Code::Int_imm8 | Code::Into | Code::Int1 | Code::Int3)
}

/// Returns the jump to a call's target, for use after its return address was pushed; `None` if there is no such jump.
pub fn convert_call_to_jump(call: &Instruction) -> Option<Instruction> {
    match call.code() {
        Code::Call_rel32_64 => Instruction::with_branch(Code::Jmp_rel32_64, call.near_branch_target()).ok(),
        Code::Call_rm64 => {
            let mut jump = *call;
            jump.set_code(Code::Jmp_rm64);
            match call.op0_kind() {
                OpKind::Register if call.op0_register() == Register::RSP => return None,
                OpKind::Memory if call.memory_base() == Register::RSP => {
                    jump.set_memory_displacement64(call.memory_displacement64().wrapping_add(8));
                    jump.set_memory_displ_size(8);
                }
                _ => {}
            }
            Some(jump)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(code: &[u8], at: u64) -> Vec<Instruction> {
        Decoder::with_ip(64, code, at, DecoderOptions::NONE).into_iter().collect()
    }

    #[test]
    fn relative_addresses_are_corrected() {
        // lea rax, [rip+0x10]
        let moved = displace(&[0x48, 0x8d, 0x05, 0x10, 0, 0, 0], 0x1000, 0x9000).unwrap();
        let instructions = decoded(&moved.code, 0x9000);
        assert_eq!((instructions[0].ip_rel_memory_address(), moved.length), (0x1017, 7));
        assert_eq!(instructions[1].near_branch_target(), 0x1007);
    }

    #[test]
    fn short_branches_reach_their_targets() {
        // jne +2
        let moved = displace(&[0x75, 2], 0x1000, 0x90_0000).unwrap();
        let instructions = decoded(&moved.code, 0x90_0000);
        assert_eq!((instructions[0].near_branch_target(), instructions[1].near_branch_target()), (0x1004, 0x1002));
    }

    #[test]
    fn calls_push_their_own_return_address() {
        // call +0x100
        let moved = displace(&[0xe8, 0, 1, 0, 0], 0x1000, 0x9000).unwrap();
        let instructions = decoded(&moved.code, 0x9000);
        let constant = (instructions[0].ip_rel_memory_address() - 0x9000) as usize;
        assert_eq!(instructions[0].code(), Code::Push_rm64);
        assert_eq!(moved.code[constant..constant + 8], 0x1005u64.to_le_bytes());
        assert_eq!(instructions[1].near_branch_target(), 0x1105);
        // call [rsp+8]: the push has changed the stack pointer.
        let moved = displace(&[0xff, 0x54, 0x24, 8], 0x1000, 0x9000).unwrap();
        assert_eq!(decoded(&moved.code, 0x9000)[1].memory_displacement64(), 16);
    }

    #[test]
    fn invalid_instructions_are_rejected() {
        assert!(matches!(displace(&[0x06], 0x1000, 0x9000), Err(DisplaceError::Undecodable(0x1000))));
    }
}
