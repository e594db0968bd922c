//! The code that records a site: a breakpoint for a full ring, and the head, which appends the site's number to the thread's ring.
//! [`block_copies`](crate::block_copies) shows it.

use crate::copied_place::{HEAD_INSTRUCTION_COUNT, HeadOffsets};
use crate::ring_layout::{RING_CURSOR_OFFSET, RING_SIZE, RING_SYMBOLS_OFFSET, SAVED_REGISTERS_OFFSET};
use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};

/// Offset of the head from the breakpoint before it.
pub const HEAD_OFFSET: u64 = 1;
/// Number of the instruction that appends the site's number.
const STORE_INDEX: usize = 3;

/// The encoded code, which differs between sites only by their numbers.
pub struct HeadCode {
    code: Vec<u8>,
    /// Offset of each instruction of the head from the breakpoint.
    offsets: HeadOffsets,
    /// Offset of the site's number.
    site_offset: usize,
}

impl HeadCode {
    /// Encodes the code.
    ///
    /// # Errors
    /// iced-x86 cannot encode an instruction.
    pub fn new() -> Result<Self, IcedError> {
        let mut encoder = Encoder::new(64);
        // Addresses are relative to the breakpoint.
        let mut at = encoder.encode(&Instruction::with(Code::Int3), 0)? as u64;
        let (mut offsets, mut site_offset) = ([0; HEAD_INSTRUCTION_COUNT], 0);
        for (number, instruction) in build_head()?.iter().enumerate() {
            offsets[number] = at as u8;
            let length = encoder.encode(instruction, at)?;
            if number == STORE_INDEX {
                site_offset = at as usize + encoder.get_constant_offsets().immediate_offset();
            }
            at += length as u64;
        }
        Ok(Self { code: encoder.take_buffer(), offsets, site_offset })
    }

    /// Appends the code for a site to `to`.
    pub fn write(&self, site: u32, to: &mut Vec<u8>) {
        let number = to.len() + self.site_offset;
        to.extend(&self.code);
        to[number..number + 4].copy_from_slice(&site.to_le_bytes());
    }

    /// Returns the offset of each instruction of the head from its first one.
    pub fn offsets(&self) -> HeadOffsets {
        self.offsets.map(|offset| offset - HEAD_OFFSET as u8)
    }
}

/// Returns the instructions of the head, for site 0, if the breakpoint is at address 0.
fn build_head() -> Result<[Instruction; HEAD_INSTRUCTION_COUNT], IcedError> {
    let ring = |offset: u64| MemoryOperand::new(Register::None, Register::None, 1, offset as i64, 8, false, Register::GS);
    let next = MemoryOperand::new(Register::RCX, Register::None, 1, (RING_SYMBOLS_OFFSET + RING_SIZE) as i64, 8, false, Register::GS);
    let rcx = Register::RCX;
    Ok([
        Instruction::with2(Code::Mov_rm64_r64, ring(SAVED_REGISTERS_OFFSET), rcx)?,
        Instruction::with2(Code::Mov_r64_rm64, rcx, ring(RING_CURSOR_OFFSET))?,
        Instruction::with_branch(Code::Jrcxz_rel8_64, 0)?,
        Instruction::with2(Code::Mov_rm32_imm32, next, 0)?,
        Instruction::with2(Code::Lea_r64_m, rcx, MemoryOperand::with_base_displ(rcx, 4))?,
        Instruction::with2(Code::Mov_rm64_r64, ring(RING_CURSOR_OFFSET), rcx)?,
        Instruction::with2(Code::Mov_r64_rm64, rcx, ring(SAVED_REGISTERS_OFFSET))?,
    ])
}
