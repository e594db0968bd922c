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
//! - Calls are made by the call instruction in the image, so that return addresses, and their prediction, are the program's own. A call
//!   that a patch has overwritten becomes a push and a jump. If five bytes after the call can be replaced, a jump there leads to a copy of
//!   the rest of the block.
//! - A witness sled has a jump to a head, which jumps back to the image: there is nothing to copy.
//! - In copies, indirect jumps are [lookups](crate::lookups), which lead to the copy of the target.
//! - A copy takes an [order stamp](crate::order_stamps) before a system call or a call that leaves the image, and after such a call has
//!   returned to the copy.
//! - An indirect jump or call whose target is uncertain has a breakpoint in the image that leads to a lookup, since the target may lie
//!   within replaced bytes. The few that no lookup can replace stop the program in the copy as well, and are single-stepped.
//!
//! [`CopyEncoder`] relocates the instructions. This module works on bytes and addresses only, in time linear in the code's size apart from
//! sorting.

use crate::CollectError;
use crate::copied_place::CopiedPlace;
use crate::copy_encoder::{
    BlockCopies, CopyBranchTarget, CopyEncoder, JUMP_LENGTH, OriginalInstruction, PatchKind, RelocationError, SHORT_JUMP_LENGTH,
    cannot_encode, has_target,
};
use crate::displaced::{DisplaceError, convert_call_to_jump, is_software_interrupt};
use crate::lookups::{self, build_constant_push};
use crate::order_stamps::build_order_stamp;
use crate::sink::StampPosition;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use trodden_binary::instruction::MAX_INSTRUCTION_LENGTH;
use trodden_wire::WITNESS_SLED_INSTRUCTION;

/// Maximum number of relays in one block.
const MAX_RELAYS_PER_BLOCK: u64 = 4;

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
    let mut sites: Vec<(u64, u32)> = request.sites.iter().map(|(address, site)| (*address, *site)).collect();
    sites.sort_unstable();
    let mut copier = BlockCopier::new(request, at)?;
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
    let mut copier = BlockCopier::new(&request, at)?;
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
    fn new(request: &'a CopyRequest<'a>, at: u64) -> Result<Self, CollectError> {
        let encoder = CopyEncoder::new(at).map_err(|error| cannot_encode(&error.to_string()))?;
        let starts = request.blocks.iter().map(|b| b.start).chain(request.sites.keys().copied()).chain(request.jumps.iter().copied());
        let (relays, hosts, outside_returns) = (HashMap::new(), HashMap::new(), HashSet::new());
        Ok(Self { request, starts: starts.collect(), relays, hosts, outside_returns, encoder })
    }

    /// Copies a site's block. The code after each call in the block is copied, too, if a jump to its copy fits there.
    fn copy_site(&mut self, address: u64, site: u32) -> Result<(), CollectError> {
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
        self.encoder.push_head(address, site, entry);
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
        self.encoder.push_head(address, site, PatchKind::Jump);
        let after = address + WITNESS_SLED_INSTRUCTION.len() as u64;
        self.emit_jump(after, CopiedPlace::Recorded { site, saved: false }).map_err(|_| self.immovable_instruction_error(address))?;
        Ok(())
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

    /// Emits an order stamp before an instruction.
    fn emit_stamp(&mut self, position: StampPosition, original: u64) -> Result<(), CollectError> {
        let stamp = build_order_stamp(position, original).map_err(RelocationError::from);
        let pushed = stamp.and_then(|stamp| self.encoder.push_sequence(&stamp));
        Ok(pushed.map_err(|_| self.immovable_instruction_error(original))?)
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
                self.emit_jump(at, place).map_err(|_| self.immovable_instruction_error(at))?;
                return Ok(call);
            }
            if !is_movable(&instruction) {
                return Err(self.immovable_instruction_error(at).into());
            }
            if is_call(&instruction) {
                self.emit_call(&instruction, place).map_err(|_| self.immovable_instruction_error(at))?;
                return Ok(call);
            }
            self.emit_original(&instruction, place)?;
            at = instruction.next_ip();
            if never_falls_through(&instruction) {
                return Ok(None);
            }
        }
        self.emit_jump(at, CopiedPlace::Body { original: at, intact: true }).map_err(|_| self.immovable_instruction_error(at))?;
        Ok(None)
    }

    /// Emits a jump to `to`, or to the copy of `to` if there is one.
    fn emit_jump(&mut self, to: u64, place: CopiedPlace) -> Result<(), RelocationError> {
        self.encoder.push_jump(self.branch_target(to), Some(place))
    }

    /// Emits a call that a patch has overwritten in the image: as a push of its return address, then a jump. Neither changes flags.
    fn emit_call(&mut self, call: &Instruction, place: CopiedPlace) -> Result<(), RelocationError> {
        let jump = convert_call_to_jump(call).unwrap_or_default();
        let [push, upper] = build_constant_push(call.next_ip(), Register::RSP)?;
        self.encoder.push_encoded(&push, Some(place))?;
        self.encoder.push_encoded(&upper, None)?;
        match has_target(&jump) {
            true => self.encoder.push_jump(self.branch_target(jump.near_branch_target()), None),
            false => self.encoder.push_encoded(&jump, None),
        }
    }

    /// Emits an indirect jump or call as a lookup, which finds the copy of its target at run time. A jump that no lookup can replace is
    /// emitted after a breakpoint, and is single-stepped.
    fn emit_jump_to_unknown_target(&mut self, jump: &Instruction, place: CopiedPlace) -> Result<(), DisplaceError> {
        let address = jump.ip();
        let immovable = self.immovable_instruction_error(address);
        if lookups::is_replaceable(jump) {
            let lookup = lookups::build_lookup(jump, self.request.table, place).map_err(RelocationError::from);
            return lookup.and_then(|lookup| self.encoder.push_sequence(&lookup)).map_err(|_| immovable);
        }
        if !is_movable(jump) {
            return Err(immovable);
        }
        self.encoder.push_encoded(&Instruction::with(Code::Int3), Some(place)).map_err(|_| immovable)?;
        let stepped = CopiedPlace::Stepped { jump: address, is_recorded: matches!(place, CopiedPlace::Recorded { .. }) };
        match is_call(jump) {
            true => self.emit_call(jump, stepped).map_err(|_| self.immovable_instruction_error(address)),
            false => self.emit_original(jump, stepped),
        }
    }

    /// Emits an instruction of the image. A branch to a site is redirected to the site's copy.
    fn emit_original(&mut self, instruction: &Instruction, place: CopiedPlace) -> Result<(), DisplaceError> {
        let target = has_target(instruction).then(|| self.branch_target(instruction.near_branch_target()));
        let address = instruction.ip();
        let bytes = self.bytes_at(address).ok_or(DisplaceError::Undecodable(address))?;
        // The decoder knows the positions of constants only in the instruction that it decoded last.
        let displacement_offset = instruction.is_ip_rel_memory_operand().then(|| {
            let mut decoder = decoder_at(bytes, address);
            let decoded = decoder.decode();
            decoder.get_constant_offsets(&decoded).displacement_offset()
        });
        let original = OriginalInstruction { instruction: *instruction, bytes: &bytes[..instruction.len()], displacement_offset };
        self.encoder.push_original(&original, target, Some(place)).map_err(|_| self.immovable_instruction_error(address))
    }

    fn branch_target(&self, address: u64) -> CopyBranchTarget {
        if self.request.sites.contains_key(&address) { CopyBranchTarget::Head(address) } else { CopyBranchTarget::Image(address) }
    }

    /// Returns the image's code from an address on, up to the maximum length of an instruction.
    fn bytes_at(&self, address: u64) -> Option<&'a [u8]> {
        let (start, bytes) = self.request.code.iter().find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&address))?;
        let bytes = &bytes[(address - start) as usize..];
        Some(&bytes[..bytes.len().min(MAX_INSTRUCTION_LENGTH as usize)])
    }

    fn decode_instruction_at(&self, address: u64) -> Option<Instruction> {
        let instruction = decoder_at(self.bytes_at(address)?, address).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    fn immovable_instruction_error(&self, address: u64) -> DisplaceError {
        DisplaceError::Immovable { address, instruction: self.decode_instruction_at(address).map_or(Code::INVALID, |i| i.code()) }
    }
}

fn decoder_at(bytes: &[u8], address: u64) -> Decoder<'_> {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE)
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
