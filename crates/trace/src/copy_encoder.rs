//! Writes the instructions of copied blocks, relocated to their new addresses.
//!
//! Most instructions do not depend on their address, so their bytes are copied. In an instruction with an IP-relative operand, the
//! displacement is replaced; branches are encoded again. A branch to a head (the code that records a site) that is not written yet gets its
//! displacement at the end. The code of lookups and order stamps, which contains labels, is encoded by iced-x86.

use crate::CollectError;
use crate::copied_place::{CopiedPlace, CopiedPlaces};
use crate::head_code::{HEAD_OFFSET, HeadCode};
use iced_x86::{BlockEncoder, BlockEncoderOptions, Encoder, IcedError, Instruction, InstructionBlock, OpKind, Register};

const SHORT_JUMP_OPCODE: u8 = 0xeb;
const JUMP_OPCODE: u8 = 0xe9;
/// Opcode of a conditional short jump, without its condition.
const SHORT_CONDITIONAL_JUMP_OPCODE: u8 = 0x70;
/// Second opcode byte of a conditional jump, without its condition. The first is [`TWO_BYTE_OPCODE`].
const CONDITIONAL_JUMP_OPCODE: u8 = 0x80;
const TWO_BYTE_OPCODE: u8 = 0x0f;
/// Length in bytes of a jump with a 32-bit displacement.
pub const JUMP_LENGTH: u64 = 5;
/// Length in bytes of a jump with an 8-bit displacement.
pub const SHORT_JUMP_LENGTH: u64 = 2;
/// Length in bytes of the displacement of a branch that is not short, and of an IP-relative operand.
const DISPLACEMENT_LENGTH: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SitePatch {
    /// A jump to this address in the copies.
    Jump(u64),
    /// A short jump to a relay.
    ShortJump {
        to: u64,
        /// The address of the relay, which is a jump to `to`.
        relay: u64,
        /// The site whose block contains the relay.
        host: u64,
    },
    /// A breakpoint, after which threads continue at this address in the copies.
    Breakpoint(u64),
}

#[derive(Debug)]
pub struct BlockCopies {
    pub code: Vec<u8>,
    /// Address and purpose of each instruction in the copies.
    pub places: CopiedPlaces,
    /// The patches to write into the image, each with its address.
    pub patches: Vec<(u64, SitePatch)>,
}

/// How a patch in the image leads to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    Jump,
    ShortJump { relay: u64, host: u64 },
    Breakpoint,
}

/// Where a branch in the copies leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyBranchTarget {
    /// To an address in the image.
    Image(u64),
    /// To the head of the site at this address.
    Head(u64),
}

/// An instruction of the image with its bytes.
#[derive(Debug)]
pub struct OriginalInstruction<'a> {
    pub instruction: Instruction,
    pub bytes: &'a [u8],
    /// The position in `bytes` of the displacement of an IP-relative operand, if there is one.
    pub displacement_offset: Option<usize>,
}

/// Why an instruction cannot be relocated.
#[derive(Debug, thiserror::Error)]
pub enum RelocationError {
    /// A distance does not fit into the instruction.
    #[error("its copy would be too far from what it refers to")]
    TooFar,
    /// The instruction only works at its own address.
    #[error("it depends on its address")]
    Immovable,
    /// The instruction cannot be encoded.
    #[error(transparent)]
    Encoder(#[from] IcedError),
}

pub struct CopyEncoder {
    /// Address of the first copy.
    start: u64,
    head: HeadCode,
    encoded: BlockCopies,
    /// The address of each site with a head, and the head's address, both ascending.
    heads: Vec<(u64, u64)>,
    /// Offset of each displacement that is still to be written, and the site to whose head it leads.
    pending: Vec<(usize, u64)>,
    encoder: Encoder,
}

impl CopyEncoder {
    /// Creates an encoder of copies that begin at address `start`.
    ///
    /// # Errors
    /// The head's code cannot be encoded.
    pub fn new(start: u64) -> Result<Self, IcedError> {
        let head = HeadCode::new()?;
        let encoded = BlockCopies { code: Vec::new(), places: CopiedPlaces::new(start, head.offsets()), patches: Vec::new() };
        Ok(Self { start, head, encoded, heads: Vec::new(), pending: Vec::new(), encoder: Encoder::new(64) })
    }

    /// Returns the address of the next instruction.
    fn address(&self) -> u64 {
        self.start + self.encoded.code.len() as u64
    }

    fn push_place(&mut self, place: Option<CopiedPlace>) {
        if let Some(place) = place {
            self.encoded.places.push(self.address(), place);
        }
    }

    /// Requests a patch of the image that leads to the next instruction.
    pub fn patch_to_next(&mut self, address: u64, kind: PatchKind) {
        self.push_patch(address, kind, self.address());
    }

    fn push_patch(&mut self, address: u64, kind: PatchKind, to: u64) {
        let patch = match kind {
            PatchKind::Jump => SitePatch::Jump(to),
            PatchKind::ShortJump { relay, host } => SitePatch::ShortJump { to, relay, host },
            PatchKind::Breakpoint => SitePatch::Breakpoint(to),
        };
        self.encoded.patches.push((address, patch));
    }

    /// Writes the code that records a site: a breakpoint for a full ring, then the head, to which a patch at the site leads. Sites must be
    /// added by ascending addresses.
    pub fn push_head(&mut self, address: u64, site: u32, patch: PatchKind) {
        self.shorten_jump_to_next_head(address);
        let at = self.address();
        self.push_patch(address, patch, at + HEAD_OFFSET);
        self.heads.push((address, at + HEAD_OFFSET));
        self.encoded.places.push_head(at + HEAD_OFFSET, site);
        self.head.write(site, &mut self.encoded.code);
    }

    /// If the last instruction is a jump to the head of a site, and this head comes next, replaces it by a short jump.
    fn shorten_jump_to_next_head(&mut self, site: u64) {
        let code = &mut self.encoded.code;
        let is_last = |offset: usize| offset + DISPLACEMENT_LENGTH == code.len() && code[offset - 1] == JUMP_OPCODE;
        if self.pending.pop_if(|(offset, to)| *to == site && is_last(*offset)).is_some() {
            code.truncate(code.len() - JUMP_LENGTH as usize);
            code.extend([SHORT_JUMP_OPCODE, HEAD_OFFSET as u8]);
        }
    }

    /// Writes an instruction that does not depend on its address, except by IP-relative operands.
    pub fn push_encoded(&mut self, instruction: &Instruction, place: Option<CopiedPlace>) -> Result<(), RelocationError> {
        self.push_place(place);
        self.encoder.encode(instruction, self.address())?;
        self.encoded.code.append(&mut self.encoder.take_buffer());
        Ok(())
    }

    /// Writes a sequence of instructions whose branches lead to labels (the addresses of other instructions) in it.
    pub fn push_sequence(&mut self, sequence: &[(Instruction, Option<CopiedPlace>)]) -> Result<(), RelocationError> {
        let at = self.address();
        let instructions: Vec<Instruction> = sequence.iter().map(|(instruction, _)| *instruction).collect();
        let block = InstructionBlock::new(&instructions, at);
        let result = BlockEncoder::encode(64, block, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)?;
        for ((_, place), offset) in sequence.iter().zip(&result.new_instruction_offsets) {
            // The encoder reports no offset (`u32::MAX`) for an instruction that it had to rewrite.
            if let Some(place) = place.filter(|_| *offset != u32::MAX) {
                self.encoded.places.push(at + u64::from(*offset), place);
            }
        }
        self.encoded.code.extend(result.code_buffer);
        Ok(())
    }

    /// Writes an instruction of the image. `target` is where it leads if it is a branch.
    pub fn push_original(
        &mut self,
        original: &OriginalInstruction,
        target: Option<CopyBranchTarget>,
        place: Option<CopiedPlace>,
    ) -> Result<(), RelocationError> {
        let (instruction, bytes) = (&original.instruction, original.bytes);
        if let Some(target) = target {
            return self.push_branch(original, target, place);
        }
        if original.displacement_offset.is_some() && instruction.memory_base() != Register::RIP {
            return Err(RelocationError::Immovable);
        }
        self.push_place(place);
        let at = self.encoded.code.len();
        self.encoded.code.extend(bytes);
        if let Some(offset) = original.displacement_offset {
            let distance = distance(self.address(), instruction.ip_rel_memory_address())?;
            self.encoded.code[at + offset..at + offset + DISPLACEMENT_LENGTH].copy_from_slice(&distance.to_le_bytes());
        }
        Ok(())
    }

    fn push_branch(
        &mut self,
        original: &OriginalInstruction,
        to: CopyBranchTarget,
        place: Option<CopiedPlace>,
    ) -> Result<(), RelocationError> {
        let instruction = &original.instruction;
        if instruction.is_jmp_short_or_near() {
            return self.push_jump(to, place);
        }
        if instruction.is_jcc_short_or_near() {
            // The enumeration starts with `None`, and has the processor's order.
            let condition = instruction.condition_code() as u8 - 1;
            let (short, near) = (SHORT_CONDITIONAL_JUMP_OPCODE | condition, CONDITIONAL_JUMP_OPCODE | condition);
            return self.push_branch_code(short, &[TWO_BYTE_OPCODE, near], to, place);
        }
        if instruction.is_jcx_short() || instruction.is_loop() || instruction.is_loopcc() {
            // Such a branch has only a short form, so it leads to a jump: the branch; a short jump over the next; a jump to the target.
            self.push_place(place);
            let [opcode @ .., _] = original.bytes else { return Err(RelocationError::Immovable) };
            self.encoded.code.extend(opcode);
            self.encoded.code.extend([SHORT_JUMP_LENGTH as u8, SHORT_JUMP_OPCODE, JUMP_LENGTH as u8]);
            return self.push_near_branch(&[JUMP_OPCODE], to);
        }
        Err(RelocationError::Immovable)
    }

    /// Writes a jump.
    pub fn push_jump(&mut self, to: CopyBranchTarget, place: Option<CopiedPlace>) -> Result<(), RelocationError> {
        self.push_branch_code(SHORT_JUMP_OPCODE, &[JUMP_OPCODE], to, place)
    }

    /// Writes a branch with these opcodes, in its short form if it leads to a head before it within reach.
    fn push_branch_code(
        &mut self,
        short: u8,
        near: &[u8],
        to: CopyBranchTarget,
        place: Option<CopiedPlace>,
    ) -> Result<(), RelocationError> {
        self.push_place(place);
        let known = if let CopyBranchTarget::Head(site) = to { self.find_head(site) } else { None };
        let distance = known.and_then(|head| i8::try_from(head.wrapping_sub(self.address() + SHORT_JUMP_LENGTH) as i64).ok());
        match distance {
            Some(distance) => {
                self.encoded.code.extend([short, distance as u8]);
                Ok(())
            }
            None => self.push_near_branch(near, to),
        }
    }

    fn push_near_branch(&mut self, opcode: &[u8], to: CopyBranchTarget) -> Result<(), RelocationError> {
        self.encoded.code.extend(opcode);
        let offset = self.encoded.code.len();
        let after = self.address() + DISPLACEMENT_LENGTH as u64;
        let target = match to {
            CopyBranchTarget::Image(address) => Some(address),
            CopyBranchTarget::Head(site) => self.find_head(site),
        };
        let displacement = match (target, to) {
            (Some(target), _) => distance(after, target)?,
            (None, CopyBranchTarget::Head(site)) => {
                self.pending.push((offset, site));
                0
            }
            (None, CopyBranchTarget::Image(_)) => unreachable!("addresses in the image are known"),
        };
        self.encoded.code.extend(displacement.to_le_bytes());
        Ok(())
    }

    /// Returns all copies.
    ///
    /// # Errors
    /// A branch leads to a site without a head, or too far.
    pub fn finish(mut self) -> Result<BlockCopies, CollectError> {
        for (offset, site) in std::mem::take(&mut self.pending) {
            let head = self.find_head(site).ok_or_else(|| cannot_encode(&format!("the copy of block {site:#x} is missing")))?;
            let after = self.start + (offset + DISPLACEMENT_LENGTH) as u64;
            let displacement = distance(after, head).map_err(|error| cannot_encode(&error.to_string()))?;
            self.encoded.code[offset..offset + DISPLACEMENT_LENGTH].copy_from_slice(&displacement.to_le_bytes());
        }
        Ok(self.encoded)
    }

    /// Returns the address of a site's head, if it is written already.
    fn find_head(&self, site: u64) -> Option<u64> {
        self.heads.last().filter(|last| site <= last.0)?;
        let found = self.heads.binary_search_by_key(&site, |head| head.0).ok()?;
        Some(self.heads[found].1)
    }
}

fn distance(from: u64, to: u64) -> Result<i32, RelocationError> {
    i32::try_from(to.wrapping_sub(from) as i64).map_err(|_| RelocationError::TooFar)
}

/// Returns true if an instruction is a branch or call whose target is part of it.
pub fn has_target(instruction: &Instruction) -> bool {
    matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}

pub fn cannot_encode(reason: &str) -> CollectError {
    CollectError::Unexpected { what: format!("copies of its blocks cannot be encoded: {reason}") }
}
