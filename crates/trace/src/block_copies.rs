//! Instrumented copies of basic blocks, which record their own execution. The collector `trampolines` maps them near an image (an
//! executable or library in memory), and patches the image so that it jumps to them.
//!
//! Each site (an address whose executions are recorded) gets a copy of its block, preceded by a head that appends the site's number to the
//! thread's ring:
//!
//! ```text
//!        int3                       ring full: the tracer drains it, and the thread resumes at `head`
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
//! The head changes no flags and does not touch the stack or the red zone. The `gs` base, which programs do not use otherwise, points to
//! the thread's ring, where the head saves one register. Copies branch directly to each other, so that a thread that has entered a copy
//! stays in copies. The image leads to the copies as follows:
//!
//! - A site whose first five bytes can be replaced has a jump to its copy. None of these bytes may start another block
//!   or be returned to.
//! - Of a shorter site, two bytes are replaced by a short jump to a *relay*: a jump to its copy, within reach, in bytes of another block
//!   that lie after the first five and that no longer execute, since they are part of that block's copy.
//! - Any other site has a breakpoint, after which the tracer moves the thread to the head. Only returns, and indirect jumps that are not
//!   executed in a copy, reach it.
//! - Calls are made by the call instruction in the image, so that return addresses, and their prediction, are the program's own.
//!   If five bytes after the call can be replaced, a jump there leads to a copy of the rest of the block.
//! - A witness sled has a jump to a head, which jumps back to the image: there is nothing to copy.
//! - In copies, indirect jumps are [lookups](crate::lookups), which lead to the copy of the target.
//! - Before a system call or a call that leaves the image, and after its return, a copy takes an [order stamp](crate::order_stamps).
//! - An indirect jump or call whose target is uncertain has a breakpoint in the image that leads to a lookup, since the target may lie
//!   within replaced bytes. The few that no lookup can replace stop the program in the copy as well, and are single-stepped.
//!
//! [`CopyEncoder`] relocates the instructions. This module works on bytes and addresses only, in time linear in the code's size apart from
//! sorting.

use crate::CollectError;
use crate::copied_place::CopiedPlace;
use crate::copy_encoder::{BlockCopies, CopyEncoder, HEAD_ADDRESS_TAG, PIECE_LENGTH, PatchKind, has_target};
use crate::displaced::{DisplaceError, convert_call_to_jump, is_software_interrupt};
use crate::lookups::{self, build_constant_push};
use crate::order_stamps::build_order_stamp;
use crate::ring_layout::{RING_CURSOR_OFFSET, RING_SIZE, RING_SYMBOLS_OFFSET, SAVED_REGISTERS_OFFSET};
use crate::sink::StampPosition;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, IcedError, Instruction, MemoryOperand, Mnemonic, OpKind, Register};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use trodden_wire::WITNESS_SLED_INSTRUCTION;

/// Length in bytes of a jump with a 32-bit displacement.
const JUMP_LENGTH: u64 = 5;
/// Length in bytes of a jump with an 8-bit displacement.
const SHORT_JUMP_LENGTH: u64 = 2;
/// Maximum number of relays in one block.
const MAX_RELAYS_PER_BLOCK: u64 = 4;
/// Tag of the address of the `int3` before a site's head. A thread stops there if its ring buffer is full.
const FULL_RING_ADDRESS_TAG: u64 = 3 << 61;

/// Input of [`copy_blocks`]: an image's code, and the sites in it. All addresses are addresses in memory, not in the file.
#[derive(Debug)]
pub struct CopyRequest<'a> {
    /// The image's code: start address and bytes of each range.
    pub code: &'a [(u64, Vec<u8>)],
    /// All blocks of the image, ascending.
    pub blocks: &'a [Range<u64>],
    /// Site numbers by address.
    pub sites: &'a HashMap<u64, u32>,
    /// Addresses of indirect jumps and calls whose targets are uncertain.
    pub jumps: &'a HashSet<u64>,
    /// Starts of blocks in which only the first byte may be replaced.
    pub guarded: &'a HashSet<u64>,
    pub sleds: &'a HashSet<u64>,
    pub thread_positions: &'a [u64],
    /// Address of the table that lookups read.
    pub table: u64,
}

/// Copies the blocks of all sites, and relocates the copies to address `at`.
///
/// # Errors
/// A site is not code, or an instruction cannot be moved.
pub fn copy_blocks(request: &CopyRequest, at: u64) -> Result<BlockCopies, CollectError> {
    copy_in_pieces(request, at, PIECE_LENGTH)
}

fn copy_in_pieces(request: &CopyRequest, at: u64, piece_length: usize) -> Result<BlockCopies, CollectError> {
    let mut sites: Vec<(u64, u32)> = request.sites.iter().map(|(address, site)| (*address, *site)).collect();
    sites.sort_unstable();
    let mut copier = BlockCopier::new(request, CopyEncoder::new(at, piece_length));
    copier.place_relays(&sites);
    for (address, site) in sites {
        copier.copy_site(address, site)?;
    }
    let mut jumps: Vec<u64> = request.jumps.iter().copied().filter(|jump| !request.sites.contains_key(jump)).collect();
    jumps.sort_unstable();
    for jump in jumps {
        copier.copy_jump(jump)?;
    }
    copier.encoder.finish()
}

/// Copies the instructions in `range`, which must contain no site, and relocates the copy to address `at`. At its end, the copy jumps back
/// to the image.
///
/// # Errors
/// The range is not code, or an instruction cannot be moved.
pub fn copy_range(code: &[(u64, Vec<u8>)], range: Range<u64>, at: u64) -> Result<BlockCopies, CollectError> {
    let (sites, none) = (HashMap::new(), HashSet::new());
    let (blocks, thread_positions) = (&[], &[]);
    let request = CopyRequest { code, blocks, sites: &sites, jumps: &none, guarded: &none, sleds: &none, thread_positions, table: 0 };
    let mut copier = BlockCopier::new(&request, CopyEncoder::new(at, PIECE_LENGTH));
    copier.emit_block_copy(range.start, range.end, u64::MAX - range.start, None)?;
    copier.encoder.finish()
}

struct BlockCopier<'a> {
    request: &'a CopyRequest<'a>,
    /// Starts of blocks, sites and uncertain jumps. No patch may extend over one of them.
    starts: HashSet<u64>,
    /// For each site with a short jump, its relay and the site whose block contains the relay.
    relays: HashMap<u64, (u64, u64)>,
    /// Number of relays in each site's block, for blocks that have any.
    hosts: HashMap<u64, u64>,
    /// Sites to which calls return that leave the image.
    outside_returns: HashSet<u64>,
    encoder: CopyEncoder,
}

/// A call within a block.
struct CallInBlock {
    return_address: u64,
    /// True if the call leads out of the image.
    leaves: bool,
}

impl<'a> BlockCopier<'a> {
    fn new(request: &'a CopyRequest<'a>, encoder: CopyEncoder) -> Self {
        let starts = request.blocks.iter().map(|b| b.start).chain(request.sites.keys().copied()).chain(request.jumps.iter().copied());
        Self { request, starts: starts.collect(), relays: HashMap::new(), hosts: HashMap::new(), outside_returns: HashSet::new(), encoder }
    }

    /// Copies a site's block. The code after each call in the block is copied, too, if a jump to its copy fits there.
    fn copy_site(&mut self, address: u64, site: u32) -> Result<(), CollectError> {
        self.encoder.end_piece_if_full()?;
        if self.request.sleds.contains(&address) {
            return self.copy_sled(address, site);
        }
        let guarded = self.request.guarded.contains(&address);
        let block_end = self.block_end(address);
        let end = block_end.unwrap_or(address + 1);
        let (entry, replaced) = match self.relays.get(&address) {
            Some(&(relay, host)) => (PatchKind::ShortJump { relay, host }, SHORT_JUMP_LENGTH),
            None if !guarded && block_end.is_some() && self.jump_fits(address, end, JUMP_LENGTH) => {
                (PatchKind::Jump, JUMP_LENGTH * (1 + self.hosts.get(&address).copied().unwrap_or(0)))
            }
            None => (PatchKind::Breakpoint, 1),
        };
        self.emit_recording_code(address, site, entry).map_err(|_| self.immovable_instruction_error(address))?;
        if self.outside_returns.contains(&address) {
            self.emit_stamp(StampPosition::BlockStart, address)?;
        }
        let mut rest = self.emit_block_copy(address, end, replaced, Some(site))?;
        while let Some(CallInBlock { return_address, leaves }) = rest {
            let is_start = self.starts.contains(&return_address);
            if leaves && is_start {
                // Sites are copied by ascending addresses, so this one follows.
                self.outside_returns.insert(return_address);
            }
            if guarded || return_address >= end || is_start || !self.jump_fits(return_address, end, JUMP_LENGTH) {
                break;
            }
            self.encoder.patch_to_next(return_address, PatchKind::Jump);
            if leaves {
                self.emit_stamp(StampPosition::InBlock, return_address)?;
            }
            rest = self.emit_block_copy(return_address, end, JUMP_LENGTH, None)?;
        }
        Ok(())
    }

    /// Copies an indirect jump whose target is uncertain and whose address is not a site.
    fn copy_jump(&mut self, address: u64) -> Result<(), CollectError> {
        self.encoder.end_piece_if_full()?;
        self.encoder.patch_to_next(address, PatchKind::Breakpoint);
        let jump = self.decode_instruction_at(address).ok_or(DisplaceError::Undecodable(address))?;
        self.emit_jump_to_unknown_target(&jump, CopiedPlace::Body { original: address, intact: true })?;
        Ok(())
    }

    /// Returns the end of the block that contains a site, or `None` if no block does. A site may lie in the middle of a block, after a
    /// call.
    fn block_end(&self, site: u64) -> Option<u64> {
        let before = self.request.blocks.partition_point(|b| b.start <= site);
        self.request.blocks[..before].last().filter(|b| b.contains(&site)).map(|b| b.end)
    }

    /// Assigns a relay (a jump in the bytes of another block), where possible, to each site that has room for a two-byte jump but not for a
    /// five-byte one. `sites` is sorted by address.
    fn place_relays(&mut self, sites: &[(u64, u32)]) {
        let request = self.request;
        let is_plain = |site: u64| !request.guarded.contains(&site) && !request.sleds.contains(&site);
        let blocks = sites.iter().filter(|(site, _)| is_plain(*site)).filter_map(|(site, _)| Some((*site, self.block_end(*site)?)));
        let blocks: Vec<(u64, u64)> = blocks.collect();
        for &(site, end) in &blocks {
            if self.jump_fits(site, end, JUMP_LENGTH) || !self.jump_fits(site, end, SHORT_JUMP_LENGTH) {
                continue;
            }
            let next = site + SHORT_JUMP_LENGTH;
            let is_in_reach = |relay: u64| i8::try_from(relay.wrapping_sub(next) as i64).is_ok();
            // Skip blocks whose last possible relay is out of reach of a short jump.
            let first = blocks.partition_point(|(host, _)| host + JUMP_LENGTH * MAX_RELAYS_PER_BLOCK + 128 < next);
            let hosts = blocks[first..].iter().take_while(|(host, _)| *host < next + 128).filter(|(host, _)| *host != site);
            let found = hosts.copied().find_map(|(host, host_end)| {
                let count = self.hosts.get(&host).copied().unwrap_or(0);
                let relay = host + JUMP_LENGTH * (count + 1);
                (count < MAX_RELAYS_PER_BLOCK && is_in_reach(relay) && self.relay_fits(host, host_end, relay)).then_some((relay, host))
            });
            if let Some((relay, host)) = found {
                *self.hosts.entry(host).or_default() += 1;
                self.relays.insert(site, (relay, host));
            }
        }
    }

    /// Returns true if a relay can be written at `relay`, in the block of `host`, after that block's jump and earlier relays. A signal
    /// handler must never see or resume at a replaced instruction, so no replaced instruction may fault, follow one that may fault, or be a
    /// call.
    fn relay_fits(&self, host: u64, end: u64, relay: u64) -> bool {
        let after = relay + JUMP_LENGTH;
        if !self.jump_fits(host, end, after - host) {
            return false;
        }
        let instructions = std::iter::successors(self.decode_instruction_at(host), |last| self.decode_instruction_at(last.next_ip()));
        let mut replaced = instructions.take_while(|i| i.ip() < after).skip_while(|i| i.next_ip() < host + JUMP_LENGTH);
        replaced.all(|i| !is_call(&i) && is_movable(&i) && !may_fault(&i))
    }

    /// Emits a sled's head and the jump back to the image.
    fn copy_sled(&mut self, address: u64, site: u32) -> Result<(), CollectError> {
        let copies = self.emit_recording_code(address, site, PatchKind::Jump);
        let copies = copies.and_then(|()| {
            self.emit_jump(address + WITNESS_SLED_INSTRUCTION.len() as u64, Some(CopiedPlace::Recorded { site, saved: false }))
        });
        Ok(copies.map_err(|_| self.immovable_instruction_error(address))?)
    }

    /// Returns true if a jump of this length can be written at `address`, in a block that ends at `end`.
    ///
    /// A signal handler may resume after a trapping instruction, so the bytes after such an instruction are not padding. Go's
    /// `runtime.goexit` starts with a `nop`, and the first frame of each goroutine returns to the address after it, where no graph has a
    /// block, so that `nop` is not replaced.
    fn jump_fits(&self, address: u64, end: u64, length: u64) -> bool {
        let inside = address + 1..address + length;
        if inside.clone().any(|a| self.starts.contains(&a)) || self.request.thread_positions.iter().any(|a| inside.contains(a)) {
            return false;
        }
        if self.decode_instruction_at(address).is_some_and(|first| first.code() == Code::Nopd && first.len() == 1) {
            return false;
        }
        let mut at = address;
        while at < address + length {
            let Some(instruction) = self.decode_instruction_at(at) else { return false };
            at = instruction.next_ip();
            let flow = instruction.flow_control();
            let traps = matches!(flow, FlowControl::Exception | FlowControl::Interrupt) || instruction.mnemonic() == Mnemonic::Hlt;
            let is_before_end = instruction.ip() < end;
            let ends = (is_call(&instruction) || (traps && is_before_end)) && at < address + length;
            if ends || (!is_before_end && !is_padding(&instruction)) || flow == FlowControl::XbeginXabortXend {
                return false;
            }
        }
        true
    }

    /// Emits the code that records a site: a breakpoint for a full ring, then the head, to which a patch at the site leads.
    fn emit_recording_code(&mut self, address: u64, site: u32, patch: PatchKind) -> Result<(), IcedError> {
        let ring = |offset: u64| MemoryOperand::new(Register::None, Register::None, 1, offset as i64, 8, false, Register::GS);
        let next = MemoryOperand::new(Register::RCX, Register::None, 1, (RING_SYMBOLS_OFFSET + RING_SIZE) as i64, 8, false, Register::GS);
        let rcx = Register::RCX;
        let mut full = Instruction::with(Code::Int3);
        full.set_ip(FULL_RING_ADDRESS_TAG + address);
        self.emit_instruction(&full, None);
        let mut save = Instruction::with2(Code::Mov_rm64_r64, ring(SAVED_REGISTERS_OFFSET), rcx)?;
        save.set_ip(HEAD_ADDRESS_TAG | address);
        let head = [
            save,
            Instruction::with2(Code::Mov_r64_rm64, rcx, ring(RING_CURSOR_OFFSET))?,
            Instruction::with_branch(Code::Jrcxz_rel8_64, FULL_RING_ADDRESS_TAG + address)?,
            Instruction::with2(Code::Mov_rm32_imm32, next, site)?,
            Instruction::with2(Code::Lea_r64_m, rcx, MemoryOperand::with_base_displ(rcx, 4))?,
            Instruction::with2(Code::Mov_rm64_r64, ring(RING_CURSOR_OFFSET), rcx)?,
            Instruction::with2(Code::Mov_r64_rm64, rcx, ring(SAVED_REGISTERS_OFFSET))?,
        ];
        self.encoder.patch_to_next(address, patch);
        for (number, instruction) in head.iter().enumerate() {
            let place = match number {
                6 => CopiedPlace::Recorded { site, saved: true },
                _ => CopiedPlace::Head { site, saved: number > 0 },
            };
            self.encoder.push(*instruction, Some(place));
        }
        Ok(())
    }

    /// Emits an order stamp before an instruction.
    fn emit_stamp(&mut self, position: StampPosition, original: u64) -> Result<(), CollectError> {
        let label = self.encoder.next_index() as u64;
        let stamp = build_order_stamp(position, original, label).map_err(|_| self.immovable_instruction_error(original))?;
        stamp.into_iter().for_each(|(instruction, place)| self.encoder.push(instruction, place));
        Ok(())
    }

    /// Returns true if an instruction is a system call, or a call or jump through which other code than the image's is usually called.
    fn leaves_image(&self, instruction: &Instruction) -> bool {
        match instruction.flow_control() {
            FlowControl::Call | FlowControl::UnconditionalBranch if has_target(instruction) => {
                let blocks = self.request.blocks;
                let target = instruction.near_branch_target();
                let before = blocks.partition_point(|block| block.start <= target);
                !blocks.is_empty() && !blocks[..before].last().is_some_and(|block| block.contains(&target))
            }
            FlowControl::IndirectCall | FlowControl::IndirectBranch => instruction.is_ip_rel_memory_operand(),
            _ => matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter) || is_software_interrupt(instruction),
        }
    }

    /// Copies a block from `start` up to `end` or to its next call, and returns that call. The first `replaced` bytes
    /// have been overwritten in the image.
    fn emit_block_copy(&mut self, start: u64, end: u64, replaced: u64, mut site: Option<u32>) -> Result<Option<CallInBlock>, CollectError> {
        let mut at = start;
        while at < end {
            let place = match site.take() {
                Some(site) => CopiedPlace::Recorded { site, saved: false },
                None => CopiedPlace::Body { original: at, intact: at == start || at >= start + replaced },
            };
            let instruction = self.decode_instruction_at(at).ok_or(DisplaceError::Undecodable(at))?;
            let leaves = self.leaves_image(&instruction);
            if leaves {
                self.emit_stamp(StampPosition::InBlock, at)?;
            }
            let call = is_call(&instruction).then(|| CallInBlock { return_address: instruction.next_ip(), leaves });
            let in_image = at >= start + replaced;
            let is_uncertain = self.request.jumps.contains(&at);
            if is_uncertain || (in_image && instruction.code() == Code::Jmp_rm64) {
                self.emit_jump_to_unknown_target(&instruction, place)?;
                return Ok(call);
            }
            if in_image && (is_call(&instruction) || !is_movable(&instruction)) {
                self.emit_jump(at, Some(place)).map_err(|_| self.immovable_instruction_error(at))?;
                return Ok(call);
            }
            if !is_movable(&instruction) {
                return Err(self.immovable_instruction_error(at).into());
            }
            if is_call(&instruction) {
                self.emit_call(&instruction, place).map_err(|_| self.immovable_instruction_error(at))?;
                return Ok(call);
            }
            self.emit_instruction(&instruction, Some(place));
            at = instruction.next_ip();
            if never_falls_through(&instruction) {
                return Ok(None);
            }
        }
        self.emit_jump(at, Some(CopiedPlace::Body { original: at, intact: true })).map_err(|_| self.immovable_instruction_error(at))?;
        Ok(None)
    }

    /// Emits a jump to `to`, or to the copy of `to` if there is one.
    fn emit_jump(&mut self, to: u64, place: Option<CopiedPlace>) -> Result<(), IcedError> {
        let jump = Instruction::with_branch(Code::Jmp_rel32_64, to)?;
        self.emit_instruction(&jump, place);
        Ok(())
    }

    /// Emits a call that a patch has overwritten in the image: as a push of its return address, then a jump. Neither changes flags.
    fn emit_call(&mut self, call: &Instruction, place: CopiedPlace) -> Result<(), IcedError> {
        let jump = convert_call_to_jump(call).unwrap_or_default();
        let [push, upper] = build_constant_push(call.next_ip(), Register::RSP)?;
        self.encoder.push(push, Some(place));
        self.encoder.push(upper, None);
        self.emit_instruction(&jump, None);
        Ok(())
    }

    /// Emits an indirect jump or call as a lookup, which finds the copy of its target at run time. A jump that no lookup can replace is
    /// emitted after a breakpoint, and is single-stepped.
    fn emit_jump_to_unknown_target(&mut self, jump: &Instruction, place: CopiedPlace) -> Result<(), DisplaceError> {
        let address = jump.ip();
        if lookups::is_replaceable(jump) {
            let label = self.encoder.next_index() as u64;
            let lookup =
                lookups::build_lookup(jump, self.request.table, label, place).map_err(|_| self.immovable_instruction_error(address))?;
            lookup.into_iter().for_each(|(instruction, place)| self.encoder.push(instruction, place));
            return Ok(());
        }
        if !is_movable(jump) {
            return Err(self.immovable_instruction_error(address));
        }
        self.encoder.push(Instruction::with(Code::Int3), Some(place));
        let stepped = CopiedPlace::Stepped { jump: address, is_recorded: matches!(place, CopiedPlace::Recorded { .. }) };
        match is_call(jump) {
            true => self.emit_call(jump, stepped).map_err(|_| self.immovable_instruction_error(address)),
            false => {
                self.emit_instruction(jump, Some(stepped));
                Ok(())
            }
        }
    }

    /// Emits an instruction of the image. A branch to a site is redirected to the site's copy.
    fn emit_instruction(&mut self, instruction: &Instruction, place: Option<CopiedPlace>) {
        let mut moved = *instruction;
        if moved.ip() & FULL_RING_ADDRESS_TAG == 0 {
            moved.set_ip(0);
        }
        let target = moved.near_branch_target();
        if has_target(&moved) && self.request.sites.contains_key(&target) {
            moved.set_near_branch64(HEAD_ADDRESS_TAG | target);
        }
        self.encoder.push(moved, place);
    }

    fn decode_instruction_at(&self, address: u64) -> Option<Instruction> {
        let (start, bytes) = self.request.code.iter().find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&address))?;
        let bytes = &bytes[(address - start) as usize..];
        let instruction = Decoder::with_ip(64, &bytes[..bytes.len().min(15)], address, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    fn immovable_instruction_error(&self, address: u64) -> DisplaceError {
        DisplaceError::Immovable { address, instruction: self.decode_instruction_at(address).map_or(Code::INVALID, |i| i.code()) }
    }
}

fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) && !is_software_interrupt(instruction)
}

fn is_movable(instruction: &Instruction) -> bool {
    instruction.flow_control() != FlowControl::XbeginXabortXend && (!is_call(instruction) || convert_call_to_jump(instruction).is_some())
}

/// Returns true if an instruction may fault: it accesses memory, divides, is privileged, or is an indirect branch, call, return or trap.
fn may_fault(instruction: &Instruction) -> bool {
    let accesses = instruction.op_kinds().any(|kind| kind == OpKind::Memory) || instruction.is_stack_instruction();
    let is_address = matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
    let is_ordinary =
        matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
    let divides = matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
    !is_ordinary || divides || (accesses && !is_address) || instruction.is_string_instruction() || instruction.is_privileged()
}

/// Returns true if execution never continues after the instruction.
fn never_falls_through(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return)
}

#[cfg(test)]
#[path = "block_copies_tests.rs"]
mod tests;
