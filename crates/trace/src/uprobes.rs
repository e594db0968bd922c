//! Uprobes: the kernel's own breakpoints in a file as a process has mapped it, attached by the hundreds in one call, each running a BPF
//! program that records the thread and the site ([`bpf`](crate::bpf)). The subject is not stopped for a hit; only a thread that has filled
//! half of the ring is, by a SIGSTOP that it never sees.
//!
//! A probe costs 0.8 us on an instruction that the kernel emulates (a jump, a call, `push`, `nop`) and 13 us on others, so that of a
//! block one of its emulated instructions is probed, if it has one before anything can leave the block. Never is that the `nop` of five
//! bytes: kernels from 6.18 make a call of it, which overwrites what the program keeps below its stack pointer.

use crate::CollectError;
use crate::bpf::KernelProbes;
use crate::ptrace::{self, Tid};
use iced_x86::{Instruction, Mnemonic, OpKind};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use trodden_binary::Binary;
use trodden_binary::instruction::{BranchInstruction, branch, decode};

/// `si_code` of a signal that the kernel sent: SI_KERNEL.
const BY_KERNEL: i32 = 0x80;
/// Prefixes of instructions: `lock`, then segments without a meaning, which the kernel refuses to probe, then others.
const REFUSED: [u8; 5] = [0xf0, 0x26, 0x2e, 0x36, 0x3e];
const OTHERS: [u8; 6] = [0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3];

/// Probes in a process.
#[derive(Debug)]
pub struct Uprobes {
    probes: KernelProbes,
    slots: Option<Range<u64>>,
    /// The numbers of threads.
    threads: HashMap<Tid, u32>,
}

impl Uprobes {
    /// Sets probes in a process at places of its image, each recorded by the number beside it. `slots` is the page that the kernel has
    /// mapped into it.
    ///
    /// # Errors
    /// A place is no code; or this process may not set probes, or the kernel has none.
    pub fn set(binary: &Binary, process: Tid, places: &[(u64, u32)], slots: Option<Range<u64>>) -> Result<Self, CollectError> {
        let no_code = |address: u64| CollectError::NoCode { address, path: binary.path().to_owned() };
        let offsets: Result<Vec<u64>, CollectError> =
            places.iter().map(|(place, _)| offset(binary, *place).ok_or_else(|| no_code(*place))).collect();
        let numbers: Vec<u64> = places.iter().map(|(_, number)| u64::from(*number)).collect();
        let probes = KernelProbes::attach(binary.path(), &offsets?, &numbers, process).map_err(CollectError::Uprobes)?;
        Ok(Self { probes, slots, threads: HashMap::new() })
    }

    /// The page that the kernel has mapped into the subject for displaced instructions.
    pub fn mapped(&self) -> Option<Range<u64>> {
        self.slots.clone()
    }

    /// A thread begins to be recorded.
    pub fn begin_thread(&mut self, thread: Tid, number: u32) {
        self.threads.insert(thread, number);
    }

    /// A thread is gone, and what it has recorded was seen; its number may be another's soon.
    pub fn end_thread(&mut self, thread: Tid) {
        self.threads.remove(&thread);
    }

    /// Takes the probes out, before the subject goes on without them or is another program.
    pub fn end(&mut self) {
        self.probes.end();
        // The page is the kernel's, and stays.
        self.slots = None;
    }

    /// Calls `see` with the number of the thread and the site of each hit that was not seen before.
    ///
    /// # Errors
    /// Those of `see`.
    pub fn take(&self, mut see: impl FnMut(u32, u64) -> io::Result<()>) -> io::Result<()> {
        self.probes.take(|hit| {
            let unknown = || io::Error::other(format!("a probe was hit by thread {}, which is not known", hit.thread));
            see(*self.threads.get(&hit.thread).ok_or_else(unknown)?, hit.cookie)
        })
    }

    /// Whether a signal is the one that the probes stop a thread with.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn is_own(thread: Tid, signal: i32) -> io::Result<bool> {
        Ok(signal == libc::SIGSTOP && ptrace::signal_code(thread)? == BY_KERNEL)
    }
}

/// The place that is probed for a site; none where there is no instruction that can be.
pub fn place(binary: &Binary, blocks: &[Range<u64>], site: u64) -> Option<u64> {
    probed(binary, block_of(blocks, site))
}

/// What of the blocks, ascending, lies behind a site.
fn block_of(blocks: &[Range<u64>], site: u64) -> Range<u64> {
    let behind = blocks.partition_point(|b| b.start <= site);
    match blocks[..behind].last() {
        Some(block) if block.contains(&site) => site..block.end,
        _ => site..site + 1,
    }
}

/// The instruction that is probed for a block: the first that the kernel emulates, else the first that it can probe. None behind one
/// that may leave the block.
fn probed(binary: &Binary, block: Range<u64>) -> Option<u64> {
    let (mut at, mut usual) = (block.start, None);
    while at < block.end {
        let code = binary.code_at(at)?;
        let instruction = decode(code, at)?;
        let prefixed = has_refused_prefix(code);
        if !prefixed && is_emulated(&instruction) {
            return Some(at);
        }
        // The kernel refuses those that trap, too, and those that programs may not use.
        let traps = matches!(branch(&instruction), Some(BranchInstruction::Stop | BranchInstruction::System));
        // They trap where the time is fixed, and the tracer answers them where they stand.
        let reads_time = matches!(instruction.mnemonic(), Mnemonic::Rdtsc | Mnemonic::Rdtscp);
        let refused = prefixed || traps || reads_time || instruction.is_privileged();
        if usual.is_none() && !refused && !is_long_nop(&instruction) {
            usual = Some(at);
        }
        if branch(&instruction).is_some() {
            break;
        }
        at = instruction.next_ip();
    }
    usual
}

fn has_refused_prefix(code: &[u8]) -> bool {
    code.iter().take_while(|byte| REFUSED.contains(byte) || OTHERS.contains(byte)).any(|byte| REFUSED.contains(byte))
}

/// Whether the kernel executes an instruction itself, instead of a copy of it step by step.
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

/// Where in the file an address is.
pub fn offset(binary: &Binary, address: u64) -> Option<u64> {
    let segment = binary.segments().iter().find(|s| s.executable && (s.address..s.address + s.file_size).contains(&address))?;
    Some(segment.file_offset + (address - segment.address))
}
