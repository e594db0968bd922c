//! Patches: the bytes that trampolines have written into an image, and the original bytes.

use crate::memory::Memory;
use crate::ptrace::{self, Tid};
use std::io;

#[derive(Debug)]
pub struct InstalledPatch {
    pub address: u64,
    pub original_bytes: [u8; 5],
    pub new_bytes: [u8; 5],
    pub length: u8,
    /// The address in a copy that the patch leads to.
    pub target: u64,
    /// The relay, if this patch is a short jump to a relay or the relay itself.
    pub relay: Option<Box<Relay>>,
}

/// A five-byte jump in another site's block, to which the two-byte jump of a site leads.
#[derive(Clone, Copy, Debug)]
pub struct Relay {
    pub site: u64,
    pub address: u64,
    /// The site whose block contains the relay.
    pub host: u64,
}

impl InstalledPatch {
    pub fn is_relay(&self) -> bool {
        self.relay.as_ref().is_some_and(|relay| relay.address == self.address)
    }
}

impl Relay {
    pub fn move_threads_to_site<'t>(&self, threads: impl Iterator<Item = &'t Tid>) -> io::Result<()> {
        for thread in threads {
            // A thread that is gone has no registers.
            if ptrace::instruction_pointer(*thread).is_ok_and(|at| at == self.address) {
                ptrace::set_instruction_pointer(*thread, self.site)?;
            }
        }
        Ok(())
    }
}

pub fn encode_jump(at: u64, to: u64) -> [u8; 5] {
    let [a, b, c, d] = (to.wrapping_sub(at + 5) as u32).to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Encodes a two-byte jump at address `at` to `to`, which must be near.
pub fn encode_short_jump(at: u64, to: u64) -> [u8; 2] {
    [0xeb, to.wrapping_sub(at + 2) as u8]
}

/// Writes, at the address of each patch, the bytes that `bytes` selects.
pub fn write_patches(patches: &[InstalledPatch], memory: &Memory, bytes: impl Fn(&InstalledPatch) -> &[u8; 5]) -> io::Result<()> {
    let pieces: Vec<(u64, &[u8])> = patches.iter().map(|patch| (patch.address, &bytes(patch)[..usize::from(patch.length)])).collect();
    memory.patch(&pieces)
}
