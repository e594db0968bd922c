//! Encodes the instructions of copied blocks and relocates them.
//!
//! The block encoder of iced-x86 does the work. It needs several hundred bytes of memory per instruction, and a compiler has 13 million of
//! them, so it encodes one *piece* (the copies of some thousand blocks) at a time. A branch to a copy in an earlier piece goes directly
//! there. A branch to a later piece, whose addresses are not known yet, goes to a *stub* at the end of its own piece: a jump whose
//! displacement is written at the end.

use crate::CollectError;
use crate::copied_place::{CopiedPlace, CopiedPlaces};
use iced_x86::{BlockEncoder, BlockEncoderOptions, Code, IcedError, Instruction, InstructionBlock, OpKind};
use std::collections::BTreeSet;

/// Number of instructions after which a piece is encoded, at the end of the current block.
pub const PIECE_LENGTH: usize = 1 << 16;
/// Tag of a branch target that is the head (the recording code) of the site at that address. Addresses in programs have none of the upper
/// three bits.
pub const HEAD_ADDRESS_TAG: u64 = 0b010 << TAG_SHIFT;
/// Tag of the address of the stub that leads to the head of the site at that address.
const STUB_TAG: u64 = 0b001 << TAG_SHIFT;
const TAG_SHIFT: u32 = 61;
/// Distance from a piece to a provisional target of its stubs. No short jump reaches it, so that a stub has room for every displacement.
const PROVISIONAL_DISTANCE: u64 = 1 << 30;

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

#[derive(Debug)]
pub struct CopyEncoder {
    /// Address of the first copy.
    start: u64,
    piece_length: usize,
    /// The instructions of the current piece.
    instructions: Vec<Instruction>,
    /// Purpose of each element of `instructions`.
    places: Vec<Option<CopiedPlace>>,
    /// The image addresses that patches of the current piece replace, each with the index of the instruction that it leads to.
    entries: Vec<(u64, usize, PatchKind)>,
    /// The finished pieces.
    encoded: BlockCopies,
    /// The address of each site whose head is in a finished piece, and the head's address, both ascending.
    heads: Vec<(u64, u64)>,
    /// Offset of each stub in the finished pieces, and the site to which it leads.
    stubs: Vec<(usize, u64)>,
}

impl CopyEncoder {
    /// Creates an encoder of copies that begin at address `start`.
    pub fn new(start: u64, piece_length: usize) -> Self {
        let encoded = BlockCopies { code: Vec::new(), places: CopiedPlaces::new(start), patches: Vec::new() };
        let (instructions, places, entries) = (Vec::new(), Vec::new(), Vec::new());
        Self { start, piece_length, instructions, places, entries, encoded, heads: Vec::new(), stubs: Vec::new() }
    }

    /// Adds an instruction. The heads of sites must be added by ascending addresses.
    pub fn push(&mut self, instruction: Instruction, place: Option<CopiedPlace>) {
        self.instructions.push(instruction);
        self.places.push(place);
    }

    /// Returns the index of the next instruction in its piece.
    pub fn next_index(&self) -> usize {
        self.instructions.len()
    }

    /// Requests a patch of the image that leads to the next instruction.
    pub fn patch_to_next(&mut self, address: u64, kind: PatchKind) {
        self.entries.push((address, self.next_index(), kind));
    }

    /// Encodes the current piece if it has become long enough. No instruction that follows may refer to one before, except to heads.
    pub fn end_piece_if_full(&mut self) -> Result<(), CollectError> {
        if self.instructions.len() >= self.piece_length { self.end_piece() } else { Ok(()) }
    }

    /// Returns all copies.
    ///
    /// # Errors
    /// An instruction cannot be relocated.
    pub fn finish(mut self) -> Result<BlockCopies, CollectError> {
        self.end_piece()?;
        for (offset, site) in std::mem::take(&mut self.stubs) {
            let after = self.start + offset as u64 + 5;
            let head = self.find_head(site).ok_or_else(|| cannot_encode(&format!("the copy of block {site:#x} is missing")))?;
            let displacement = i32::try_from(head.wrapping_sub(after) as i64).map_err(|_| cannot_encode("they are too far apart"))?;
            self.encoded.code[offset + 1..offset + 5].copy_from_slice(&displacement.to_le_bytes());
        }
        Ok(self.encoded)
    }

    fn end_piece(&mut self) -> Result<(), CollectError> {
        let at = self.start + self.encoded.code.len() as u64;
        let first_stub = self.instructions.len();
        let stubs = self.resolve_branches();
        for site in &stubs {
            let stub = Instruction::with_branch(Code::Jmp_rel32_64, at + PROVISIONAL_DISTANCE).map_err(cannot_encode_instruction)?;
            self.push(with_ip(stub, STUB_TAG | site), None);
        }
        let piece = InstructionBlock::new(&self.instructions, at);
        let result =
            BlockEncoder::encode(64, piece, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS).map_err(cannot_encode_instruction)?;
        // The encoder reports no offset (`u32::MAX`) for an instruction that it had to rewrite. Heads and stubs are never rewritten.
        let offset_of = |index: usize| Some(result.new_instruction_offsets[index]).filter(|offset| *offset != u32::MAX);
        let address_of = |index: usize| offset_of(index).map(|offset| at + u64::from(offset));
        for (index, instruction) in self.instructions.iter().enumerate() {
            let Some(address) = address_of(index) else { continue };
            self.heads.extend(head_of(instruction.ip()).map(|site| (site, address)));
            if let Some(place) = self.places[index] {
                self.encoded.places.push(address, place);
            }
        }
        for (address, index, kind) in self.entries.drain(..) {
            let Some(to) = address_of(index) else { continue };
            let patch = match kind {
                PatchKind::Jump => SitePatch::Jump(to),
                PatchKind::ShortJump { relay, host } => SitePatch::ShortJump { to, relay, host },
                PatchKind::Breakpoint => SitePatch::Breakpoint(to),
            };
            self.encoded.patches.push((address, patch));
        }
        for (index, site) in (first_stub..).zip(stubs) {
            let offset = offset_of(index).ok_or_else(|| cannot_encode("a jump between two of them was rewritten"))?;
            self.stubs.push((self.encoded.code.len() + offset as usize, site));
        }
        self.encoded.code.extend(result.code_buffer);
        self.instructions.clear();
        self.places.clear();
        Ok(())
    }

    /// Directs branches to heads in other pieces to their addresses or, if these are not known yet, to stubs. Returns the sites for which
    /// stubs are needed.
    fn resolve_branches(&mut self) -> BTreeSet<u64> {
        let mut own = self.instructions.iter().filter_map(|instruction| head_of(instruction.ip()));
        let (first, last) = (own.next(), own.next_back());
        let is_own = |site: u64| first.is_some_and(|first| first <= site && site <= last.unwrap_or(first));
        let mut stubs = BTreeSet::new();
        for index in 0..self.instructions.len() {
            let branch = &self.instructions[index];
            let Some(site) = head_of(branch.near_branch_target()).filter(|site| has_target(branch) && !is_own(*site)) else { continue };
            let target = self.find_head(site).unwrap_or_else(|| {
                stubs.insert(site);
                STUB_TAG | site
            });
            self.instructions[index].set_near_branch64(target);
        }
        stubs
    }

    /// Returns the address of a site's head, if it is in a finished piece.
    fn find_head(&self, site: u64) -> Option<u64> {
        let found = self.heads.binary_search_by_key(&site, |head| head.0).ok()?;
        Some(self.heads[found].1)
    }
}

fn with_ip(instruction: Instruction, address: u64) -> Instruction {
    let mut placed = instruction;
    placed.set_ip(address);
    placed
}

/// Returns the site whose head is at a tagged address.
fn head_of(tagged: u64) -> Option<u64> {
    (tagged >> TAG_SHIFT == HEAD_ADDRESS_TAG >> TAG_SHIFT).then_some(tagged & !HEAD_ADDRESS_TAG)
}

/// Returns true if an instruction is a branch or call whose target is part of it.
pub fn has_target(instruction: &Instruction) -> bool {
    matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}

fn cannot_encode(reason: &str) -> CollectError {
    CollectError::Unexpected { what: format!("copies of its blocks cannot be encoded: {reason}") }
}

fn cannot_encode_instruction(error: IcedError) -> CollectError {
    cannot_encode(&error.to_string())
}
