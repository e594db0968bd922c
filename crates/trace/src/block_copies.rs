//! Copies of blocks that record themselves: what the collector of trampolines puts beside an image, and what it writes into it.
//!
//! Every site gets a copy of its block, with a head that appends the site's number to the thread's ring:
//!
//! ```text
//!        int3                       ring full: the tracer drains it, and the thread goes on at the head
//! head:  mov gs:[SAVED], rcx
//!        mov rcx, gs:[CURSOR]       counts up to zero
//!        jrcxz head - 1
//!        mov dword gs:[rcx + END], site
//!        lea rcx, [rcx + 4]
//!        mov gs:[CURSOR], rcx
//!        mov rcx, gs:[SAVED]
//!        the block
//! ```
//!
//! No flag is changed, no stack is touched (so nothing below the red zone either), and one register is saved, in the
//! thread's own ring, which the otherwise unused base of `gs` leads to. Branches from copy to copy are direct, so that
//! code runs in copies once it has entered one; the image only leads into them:
//!
//! - a site whose first five bytes can be replaced has a jump to its copy there: none of them is the start of another
//!   block, and no return goes to one of them;
//! - at any other site is a breakpoint; the tracer sends the thread on to the copy's head. Only indirect jumps and returns come there;
//! - calls are made in the image, by the call's own instruction, so that return addresses (and their prediction) are the
//!   program's; behind it, if five bytes can be replaced, a jump leads to the copy of the rest of the block;
//! - a site that is a witness sled has a jump to a head, behind which code goes on in the image: there is nothing to copy;
//! - indirect jumps whose targets are to be recorded keep a breakpoint, and have a copy without a head.
//!
//! The block encoder of iced-x86 moves instructions. Pure: bytes and addresses in, bytes and addresses out; linear in
//! the code's size but for sorting.

use crate::CollectError;
use crate::displaced::{DisplaceError, call_as_jump, is_software_interrupt};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, IcedError, Instruction, InstructionBlock, MemoryOperand,
    Mnemonic, Register,
};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use trodden_wire::SLED;

/// Where in a ring the cursor is: the distance to the end, negative.
pub const CURSOR: u64 = 0;
/// Where the saved register is.
pub const SAVED: u64 = 16;
/// Where symbols begin.
pub const SYMBOLS: u64 = 64;
/// Bytes of symbols in a ring.
pub const RING: u64 = 1 << 20;

/// A jump, in bytes.
const JUMP: u64 = 5;
/// Names heads to the encoder: no address of a program has this bit.
const HEAD: u64 = 1 << 62;
/// Names what stands before heads.
const FULL: u64 = 3 << 61;

/// What is to be copied. Addresses are those in memory.
#[derive(Debug)]
pub struct CopyRequest<'a> {
    /// The image's code: where it begins, and its bytes.
    pub code: &'a [(u64, Vec<u8>)],
    /// All blocks of the image, ascending.
    pub blocks: &'a [Range<u64>],
    /// Sites by address.
    pub sites: &'a HashMap<u64, u32>,
    /// Sites that are indirect jumps whose targets are recorded.
    pub jumps: &'a HashSet<u64>,
    /// Where blocks start of which one byte may be replaced, and no more.
    pub guarded: &'a HashSet<u64>,
    /// Sites that are witness sleds.
    pub sleds: &'a HashSet<u64>,
    /// Where threads stand.
    pub standing: &'a [u64],
}

/// A place in the copies at which an instruction begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiedPlace {
    /// In a head, before the site is recorded.
    Head {
        /// The site.
        site: u32,
        /// Whether a register is in the ring.
        saved: bool,
    },
    /// Behind a head: the site is recorded, its first instruction has not run.
    Recorded {
        /// The site.
        site: u32,
        /// Whether a register is in the ring.
        saved: bool,
    },
    /// In a block.
    Body {
        /// Where the instruction is in the image.
        original: u64,
        /// Whether it is still there.
        intact: bool,
    },
}

/// What to write into the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// A jump to this address.
    Jump(u64),
    /// A breakpoint; threads go on at this address.
    Breakpoint {
        /// Where they go on.
        to: u64,
        /// Whether it is an indirect jump whose target is recorded.
        jump: bool,
    },
}

/// Copies of blocks.
#[derive(Debug)]
pub struct Copies {
    /// Their code.
    pub code: Vec<u8>,
    /// Where instructions begin, ascending.
    pub places: Vec<(u64, CopiedPlace)>,
    /// What to write where.
    pub patches: Vec<(u64, Patch)>,
}

/// Copies the blocks of all sites, to be put at `at`.
///
/// # Errors
/// A site is no code, or an instruction can be moved nowhere.
pub fn copies(request: &CopyRequest, at: u64) -> Result<Copies, CollectError> {
    let mut sites: Vec<(u64, u32)> = request.sites.iter().map(|(address, site)| (*address, *site)).collect();
    sites.sort_unstable();
    let starts = request.blocks.iter().map(|b| b.start).chain(request.sites.keys().copied()).collect();
    let mut copier = Copier { request, starts, instructions: Vec::new(), places: Vec::new(), entries: Vec::new() };
    for (address, site) in sites {
        copier.site(address, site)?;
    }
    copier.encode(at)
}

struct Copier<'a> {
    request: &'a CopyRequest<'a>,
    /// Where blocks and sites begin.
    starts: HashSet<u64>,
    instructions: Vec<Instruction>,
    /// Of each instruction.
    places: Vec<Option<CopiedPlace>>,
    /// Address in the image, the instruction that it leads to, and how.
    entries: Vec<(u64, usize, Entry)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Jump,
    Breakpoint,
    IndirectJump,
}

impl Copier<'_> {
    /// The copy of a site's block, and of what follows its calls.
    fn site(&mut self, address: u64, site: u32) -> Result<(), CollectError> {
        if self.request.jumps.contains(&address) {
            self.entries.push((address, self.instructions.len(), Entry::IndirectJump));
            let jump = self.decode(address).ok_or(DisplaceError::Undecodable(address))?;
            let place = CopiedPlace::Body { original: address, intact: false };
            match is_call(&jump) {
                true => self.call(&jump, place).map_err(|_| self.immovable(address))?,
                false => self.push(&jump, Some(place)),
            }
            return Ok(());
        }
        if self.request.sleds.contains(&address) {
            return self.sled(address, site);
        }
        // A site may be behind a call, in the middle of a block.
        let before = self.request.blocks.partition_point(|b| b.start <= address);
        let block = self.request.blocks[..before].last().filter(|b| b.contains(&address));
        let end = block.map_or(address + 1, |b| b.end);
        let guarded = self.request.guarded.contains(&address);
        let fits = !guarded && block.is_some() && self.fits(address, end);
        let entry = if fits { Entry::Jump } else { Entry::Breakpoint };
        self.head(address, site).map_err(|_| self.immovable(address))?;
        self.entries.push((address, self.instructions.len() - HEAD_LENGTH, entry));
        let mut rest = self.body(address, end, if fits { JUMP } else { 1 }, Some(site))?;
        while let Some(behind) = rest {
            if guarded || behind >= end || self.starts.contains(&behind) || !self.fits(behind, end) {
                break;
            }
            self.entries.push((behind, self.instructions.len(), Entry::Jump));
            rest = self.body(behind, end, JUMP, None)?;
        }
        Ok(())
    }

    /// A head for a sled, and the way back.
    fn sled(&mut self, address: u64, site: u32) -> Result<(), CollectError> {
        let made = self.head(address, site);
        self.entries.push((address, self.instructions.len() - HEAD_LENGTH, Entry::Jump));
        let made = made.and_then(|()| self.jump(address + SLED.len() as u64, Some(CopiedPlace::Recorded { site, saved: false })));
        Ok(made.map_err(|_| self.immovable(address))?)
    }

    /// Whether a jump can be written to an address in a block that ends at `end`.
    ///
    /// A handler of signals may go on behind an instruction that traps, so what follows one is no padding. A goroutine's first frame
    /// returns behind the `nop` at the start of `runtime.goexit`, where no graph has a block.
    fn fits(&self, address: u64, end: u64) -> bool {
        let inside = address + 1..address + JUMP;
        if inside.clone().any(|a| self.starts.contains(&a)) || self.request.standing.iter().any(|a| inside.contains(a)) {
            return false;
        }
        if self.decode(address).is_some_and(|first| first.code() == Code::Nopd && first.len() == 1) {
            return false;
        }
        let mut at = address;
        while at < address + JUMP {
            let Some(instruction) = self.decode(at) else { return false };
            at = instruction.next_ip();
            let flow = instruction.flow_control();
            let traps = matches!(flow, FlowControl::Exception | FlowControl::Interrupt) || instruction.mnemonic() == Mnemonic::Hlt;
            let is_before_end = instruction.ip() < end;
            let ends = (is_call(&instruction) || (traps && is_before_end)) && at < address + JUMP;
            if ends || (!is_before_end && !is_padding(&instruction)) || flow == FlowControl::XbeginXabortXend {
                return false;
            }
        }
        true
    }

    /// What records a site: seven instructions behind the one that a full ring leads to.
    fn head(&mut self, address: u64, site: u32) -> Result<(), IcedError> {
        let ring = |offset: u64| MemoryOperand::new(Register::None, Register::None, 1, offset as i64, 8, false, Register::GS);
        let next = MemoryOperand::new(Register::RCX, Register::None, 1, (SYMBOLS + RING) as i64, 8, false, Register::GS);
        let rcx = Register::RCX;
        let mut full = Instruction::with(Code::Int3);
        full.set_ip(FULL + address);
        self.push(&full, None);
        let mut save = Instruction::with2(Code::Mov_rm64_r64, ring(SAVED), rcx)?;
        save.set_ip(HEAD | address);
        let head = [
            save,
            Instruction::with2(Code::Mov_r64_rm64, rcx, ring(CURSOR))?,
            Instruction::with_branch(Code::Jrcxz_rel8_64, FULL + address)?,
            Instruction::with2(Code::Mov_rm32_imm32, next, site)?,
            Instruction::with2(Code::Lea_r64_m, rcx, MemoryOperand::with_base_displ(rcx, 4))?,
            Instruction::with2(Code::Mov_rm64_r64, ring(CURSOR), rcx)?,
            Instruction::with2(Code::Mov_r64_rm64, rcx, ring(SAVED))?,
        ];
        for (number, instruction) in head.iter().enumerate() {
            let place = match number {
                6 => CopiedPlace::Recorded { site, saved: true },
                _ => CopiedPlace::Head { site, saved: number > 0 },
            };
            self.push_raw(*instruction, Some(place));
        }
        Ok(())
    }

    /// A block from an address up to its end, or to its next call, behind which it gives the address. `replaced` bytes
    /// of it are not in the image any more.
    fn body(&mut self, start: u64, end: u64, replaced: u64, mut site: Option<u32>) -> Result<Option<u64>, CollectError> {
        let mut at = start;
        while at < end {
            let place = match site.take() {
                Some(site) => CopiedPlace::Recorded { site, saved: false },
                None => CopiedPlace::Body { original: at, intact: at == start || at >= start + replaced },
            };
            let instruction = self.decode(at).ok_or(DisplaceError::Undecodable(at))?;
            let in_image = at >= start + replaced;
            if in_image && (is_call(&instruction) || self.request.jumps.contains(&at) || !is_movable(&instruction)) {
                self.jump(at, Some(place)).map_err(|_| self.immovable(at))?;
                return Ok(is_call(&instruction).then(|| instruction.next_ip()));
            }
            if !is_movable(&instruction) {
                return Err(self.immovable(at).into());
            }
            if is_call(&instruction) {
                self.call(&instruction, place).map_err(|_| self.immovable(at))?;
                return Ok(Some(instruction.next_ip()));
            }
            self.push(&instruction, Some(place));
            at = instruction.next_ip();
            if is_end(&instruction) {
                return Ok(None);
            }
        }
        self.jump(at, Some(CopiedPlace::Body { original: at, intact: true })).map_err(|_| self.immovable(at))?;
        Ok(None)
    }

    /// A jump to the copy of what is at an address, or else to that.
    fn jump(&mut self, to: u64, place: Option<CopiedPlace>) -> Result<(), IcedError> {
        let jump = Instruction::with_branch(Code::Jmp_rel32_64, to)?;
        self.push(&jump, place);
        Ok(())
    }

    /// A call whose own bytes are replaced: its return address, then a jump. Flags stay as they are.
    fn call(&mut self, call: &Instruction, place: CopiedPlace) -> Result<(), IcedError> {
        let behind = call.next_ip();
        let jump = call_as_jump(call).unwrap_or_default();
        self.push_raw(Instruction::with1(Code::Pushq_imm32, behind as u32 as i32)?, Some(place));
        let upper = MemoryOperand::with_base_displ(Register::RSP, 4);
        self.push_raw(Instruction::with2(Code::Mov_rm32_imm32, upper, (behind >> 32) as u32)?, None);
        self.push(&jump, None);
        Ok(())
    }

    /// An instruction of the image; a branch to a site goes to its copy.
    fn push(&mut self, instruction: &Instruction, place: Option<CopiedPlace>) {
        let mut moved = *instruction;
        if moved.ip() & FULL == 0 {
            moved.set_ip(0);
        }
        let target = moved.near_branch_target();
        if has_target(&moved) && self.request.sites.contains_key(&target) && !self.request.jumps.contains(&target) {
            moved.set_near_branch64(HEAD | target);
        }
        self.push_raw(moved, place);
    }

    fn push_raw(&mut self, instruction: Instruction, place: Option<CopiedPlace>) {
        self.instructions.push(instruction);
        self.places.push(place);
    }

    fn decode(&self, address: u64) -> Option<Instruction> {
        let (start, bytes) = self.request.code.iter().find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&address))?;
        let bytes = &bytes[(address - start) as usize..];
        let instruction = Decoder::with_ip(64, &bytes[..bytes.len().min(15)], address, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    fn immovable(&self, address: u64) -> DisplaceError {
        DisplaceError::Immovable { address, instruction: self.decode(address).map_or(Code::INVALID, |i| i.code()) }
    }

    fn encode(self, at: u64) -> Result<Copies, CollectError> {
        let block = InstructionBlock::new(&self.instructions, at);
        let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)
            .map_err(|e| CollectError::Unexpected { what: format!("copies of its blocks cannot be encoded: {e}") })?;
        let offsets = &encoded.new_instruction_offsets;
        let known = offsets.iter().zip(self.places).filter(|(offset, _)| **offset != u32::MAX);
        let places = known.filter_map(|(offset, place)| Some((at + u64::from(*offset), place?))).collect();
        let patch = |(address, instruction, entry): (u64, usize, Entry)| {
            // Of instructions that were rewritten the place is not known; heads are none of them.
            let to = at + u64::from(offsets[instruction]);
            let patch = match entry {
                Entry::Jump => Patch::Jump(to),
                _ => Patch::Breakpoint { to, jump: entry == Entry::IndirectJump },
            };
            (offsets[instruction] != u32::MAX).then_some((address, patch))
        };
        Ok(Copies { patches: self.entries.into_iter().filter_map(patch).collect(), code: encoded.code_buffer, places })
    }
}

/// Instructions of a head, from where a site leads to.
const HEAD_LENGTH: usize = 7;

fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) && !is_software_interrupt(instruction)
}

fn is_movable(instruction: &Instruction) -> bool {
    instruction.flow_control() != FlowControl::XbeginXabortXend && (!is_call(instruction) || call_as_jump(instruction).is_some())
}

/// Whether nothing is executed behind it.
fn is_end(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return)
}

fn has_target(instruction: &Instruction) -> bool {
    matches!(instruction.op0_kind(), iced_x86::OpKind::NearBranch16 | iced_x86::OpKind::NearBranch32 | iced_x86::OpKind::NearBranch64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{InstructionInfoFactory, RflagsBits};

    /// Copies of the blocks that start at these offsets of some code, whose sites they are.
    fn copied(code: &[u8], starts: &[u64]) -> Copies {
        copied_with(code, starts, &HashSet::new())
    }

    fn copied_with(code: &[u8], starts: &[u64], sleds: &HashSet<u64>) -> Copies {
        const AT: u64 = 0x40_0000;
        let ends = starts.iter().copied().skip(1).chain([code.len() as u64]);
        let blocks: Vec<Range<u64>> = starts.iter().zip(ends).map(|(start, end)| AT + start..AT + end).collect();
        let sites = blocks.iter().map(|b| b.start).zip(0..).collect();
        let code = [(AT, code.to_vec())];
        let none = HashSet::new();
        let request = CopyRequest { code: &code, blocks: &blocks, sites: &sites, jumps: &none, guarded: &none, sleds, standing: &[] };
        copies(&request, 0x100_0000).unwrap()
    }

    fn patch(copies: &Copies, offset: u64) -> Option<Patch> {
        copies.patches.iter().find(|(address, _)| *address == 0x40_0000 + offset).map(|(_, patch)| *patch)
    }

    fn instructions(copies: &Copies) -> Vec<Instruction> {
        Decoder::with_ip(64, &copies.code, 0x100_0000, DecoderOptions::NONE).into_iter().collect()
    }

    #[test]
    fn heads_change_neither_flags_nor_the_stack() {
        // mov eax, 1; ret
        let made = copied(&[0xb8, 1, 0, 0, 0, 0xc3], &[0]);
        let mut factory = InstructionInfoFactory::new();
        for instruction in instructions(&made).iter().skip(1).take(HEAD_LENGTH) {
            assert_eq!(instruction.rflags_modified(), RflagsBits::NONE, "{instruction:?}");
            let used = factory.info(instruction);
            let writes_stack = used.used_memory().iter().any(|m| m.base() == Register::RSP || m.segment() == Register::SS);
            assert!(!writes_stack, "{instruction:?}");
        }
        assert_eq!(patch(&made, 0), Some(Patch::Jump(0x100_0001)));
    }

    #[test]
    fn short_blocks_have_breakpoints_and_branches_between_copies_are_direct() {
        // test eax, eax; je 4; nop; (4:) jmp 0; (6:) nops
        let made = copied(&[0x85, 0xc0, 0x74, 1, 0x90, 0xeb, 0xf9], &[0, 4, 5]);
        assert!(matches!(patch(&made, 0), Some(Patch::Breakpoint { jump: false, .. })));
        assert!(matches!(patch(&made, 5), Some(Patch::Breakpoint { .. })));
        // No branch leaves the copies: the loop runs in them.
        let end = 0x100_0000 + made.code.len() as u64;
        for branch in instructions(&made).iter().filter(|i| has_target(i)) {
            assert!((0x100_0000..end).contains(&branch.near_branch_target()), "{branch:?}");
        }
    }

    #[test]
    fn calls_are_made_in_the_image_and_what_follows_them_in_a_copy() {
        // mov eax, 1; call 0x20; mov ebx, 1; ret
        let mut code = vec![0xb8, 1, 0, 0, 0, 0xe8, 0x16, 0, 0, 0, 0xbb, 1, 0, 0, 0, 0xc3];
        let made = copied(&code, &[0]);
        assert!(matches!(patch(&made, 10), Some(Patch::Jump(_))), "behind the call");
        assert!(instructions(&made).iter().any(|i| i.near_branch_target() == 0x40_0005), "to the call");
        // A call whose return address would be inside the jump keeps the block from it.
        code = vec![0xff, 0xd0, 0x90, 0x90, 0x90, 0xc3];
        assert!(matches!(patch(&copied(&code, &[0]), 0), Some(Patch::Breakpoint { .. })));
    }

    #[test]
    fn behind_a_sled_code_goes_on_in_the_image() {
        // The sled; call rax (too close to the block's start for any jump but one in the sled).
        let code = [&SLED[..], &[0xff, 0xd0]].concat();
        let made = copied_with(&code, &[0], &HashSet::from([0x40_0000]));
        assert_eq!(made.patches, [(0x40_0000, Patch::Jump(0x100_0001))]);
        let all = instructions(&made);
        assert_eq!((all.len(), all.last().unwrap().near_branch_target()), (HEAD_LENGTH + 2, 0x40_0008));
    }

    #[test]
    fn addresses_of_code_are_the_programs() {
        // lea rax, [rip + 0] (the second block); (7:) mov eax, 1; ret
        let made = copied(&[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0xc3], &[0, 7]);
        let lea = instructions(&made).into_iter().find(|i| i.code() == Code::Lea_r64_m && i.is_ip_rel_memory_operand()).unwrap();
        assert_eq!(lea.ip_rel_memory_address(), 0x40_0007);
    }
}
