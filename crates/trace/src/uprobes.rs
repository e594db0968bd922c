//! Uprobes: kernel breakpoints in a mapped file, attached by the hundreds in one call. Each runs a BPF program that records the thread and
//! the site ([`bpf`](crate::bpf)). A hit does not stop the program; only a thread that has filled half of the ring is stopped, by a SIGSTOP
//! that is not delivered.
//!
//! On instructions that the kernel emulates (jumps, calls, `push`, `nop`), a probe costs 0.8 us, on other instructions 13 us. So an
//! emulated instruction of each block is probed, if there is one. The 5-byte `nop` is never probed: Linux 6.18 and later replace it by a
//! call, which overwrites the red zone.

use crate::CollectError;
use crate::bpf::KernelProbes;
use crate::ptrace::{self, Tid};
use iced_x86::{Instruction, Mnemonic, OpKind};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use trodden_binary::Binary;
use trodden_binary::instruction::{BranchInstruction, classify_branch, decode_instruction};

/// `si_code` of a signal sent by the kernel (SI_KERNEL).
const SI_KERNEL: i32 = 0x80;
/// Prefixes of instructions that the kernel cannot probe (`lock` and meaningless segment overrides), and all other prefixes.
const UNSUPPORTED_PREFIXES: [u8; 5] = [0xf0, 0x26, 0x2e, 0x36, 0x3e];
const SUPPORTED_PREFIXES: [u8; 6] = [0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3];

#[derive(Debug)]
pub struct Uprobes {
    probes: KernelProbes,
    slots: Option<Range<u64>>,
    threads: HashMap<Tid, u32>,
}

impl Uprobes {
    /// Sets probes at addresses of a process's image, each with the number to record. `slots` is the page that the kernel has mapped for
    /// displaced instructions.
    ///
    /// # Errors
    /// An address is not code, this process may not set probes, or the kernel does not support them.
    pub fn attach(binary: &Binary, process: Tid, places: &[(u64, u32)], slots: Option<Range<u64>>) -> Result<Self, CollectError> {
        let no_code = |address: u64| CollectError::NoCode { address, path: binary.path().to_owned() };
        let offsets: Result<Vec<u64>, CollectError> =
            places.iter().map(|(place, _)| file_offset(binary, *place).ok_or_else(|| no_code(*place))).collect();
        let numbers: Vec<u64> = places.iter().map(|(_, number)| u64::from(*number)).collect();
        let probes = KernelProbes::attach(binary.path(), &offsets?, &numbers, process).map_err(CollectError::Uprobes)?;
        Ok(Self { probes, slots, threads: HashMap::new() })
    }

    /// Returns the page that the kernel has mapped into the process for displaced instructions.
    pub fn mapped(&self) -> Option<Range<u64>> {
        self.slots.clone()
    }

    pub fn begin_thread(&mut self, thread: Tid, number: u32) {
        self.threads.insert(thread, number);
    }

    /// Forgets a thread that is gone and whose hits were read. Its id may be reused.
    pub fn end_thread(&mut self, thread: Tid) {
        self.threads.remove(&thread);
    }

    /// Removes the probes, before the process continues untraced or executes a different program.
    pub fn detach(&mut self) {
        self.probes.detach();
        // The page belongs to the kernel, and stays mapped.
        self.slots = None;
    }

    /// Calls `handle` with the thread number and the site of each unread hit.
    ///
    /// # Errors
    /// The first error of `handle`, or a hit of an unknown thread.
    pub fn read_hits(&self, mut handle: impl FnMut(u32, u64) -> io::Result<()>) -> io::Result<()> {
        self.probes.read_hits(|hit| {
            let unknown = || io::Error::other(format!("unknown thread {} has hit a probe", hit.thread));
            handle(*self.threads.get(&hit.thread).ok_or_else(unknown)?, hit.cookie)
        })
    }

    /// Returns true if the probes have caused a thread's signal.
    pub fn is_uprobe_signal(thread: Tid, signal: i32) -> io::Result<bool> {
        Ok(signal == libc::SIGSTOP && ptrace::signal_code(thread)? == SI_KERNEL)
    }
}

/// Returns the address to probe for a site, or `None` if no instruction there can be probed.
pub fn probe_address(binary: &Binary, blocks: &[Range<u64>], site: u64) -> Option<u64> {
    choose_instruction(binary, block_of(blocks, site))
}

/// Returns the part of a site's block that starts at the site.
fn block_of(blocks: &[Range<u64>], site: u64) -> Range<u64> {
    let end = blocks.partition_point(|b| b.start <= site);
    match blocks[..end].last() {
        Some(block) if block.contains(&site) => site..block.end,
        _ => site..site + 1,
    }
}

/// Returns the instruction to probe in a block: the first emulated one, else the first that can be probed. Instructions after a possible
/// exit from the block are not considered.
fn choose_instruction(binary: &Binary, block: Range<u64>) -> Option<u64> {
    let (mut at, mut fallback) = (block.start, None);
    while at < block.end {
        let code = binary.code_at(at)?;
        let instruction = decode_instruction(code, at)?;
        let prefixed = has_unsupported_prefix(code);
        if !prefixed && is_emulated(&instruction) {
            return Some(at);
        }
        // The kernel cannot probe instructions that trap or are privileged either.
        let traps = matches!(classify_branch(&instruction), Some(BranchInstruction::Stop | BranchInstruction::System));
        // If the run has a fixed clock, these instructions trap, and the tracer emulates them at their own address.
        let reads_time = matches!(instruction.mnemonic(), Mnemonic::Rdtsc | Mnemonic::Rdtscp);
        let is_unsupported = prefixed || traps || reads_time || instruction.is_privileged();
        if fallback.is_none() && !is_unsupported && !is_long_nop(&instruction) {
            fallback = Some(at);
        }
        if classify_branch(&instruction).is_some() {
            break;
        }
        at = instruction.next_ip();
    }
    fallback
}

fn has_unsupported_prefix(code: &[u8]) -> bool {
    code.iter()
        .take_while(|byte| UNSUPPORTED_PREFIXES.contains(byte) || SUPPORTED_PREFIXES.contains(byte))
        .any(|byte| UNSUPPORTED_PREFIXES.contains(byte))
}

/// Returns true if the kernel emulates the instruction instead of stepping a copy of it.
fn is_emulated(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Jmp | Mnemonic::Call => matches!(instruction.op0_kind(), OpKind::NearBranch64),
        Mnemonic::Push => instruction.op0_kind() == OpKind::Register && instruction.len() <= 2,
        Mnemonic::Nop => instruction.len() == 1,
        _ => instruction.is_jcc_short_or_near(),
    }
}

fn is_long_nop(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Nop && instruction.len() == 5
}

/// Translates a code address to a file offset.
pub fn file_offset(binary: &Binary, address: u64) -> Option<u64> {
    let segment = binary.segments().iter().find(|s| s.is_executable && (s.address..s.address + s.file_size).contains(&address))?;
    Some(segment.file_offset + (address - segment.address))
}
