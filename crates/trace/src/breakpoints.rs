//! Breakpoints at many addresses of an image: an `int3` at each, a slot in which the replaced instruction is executed, and the lookup of
//! the address after a trap.
//!
//! Breakpoints less than a page apart are written with one system call. A table over the image's code maps addresses to sites, so that a
//! trap is resolved in constant time.

use crate::CollectError;
use crate::displaced::{SLOT_SIZE, displace};
use crate::memory::{Memory, do_ranges_overlap};
use crate::ptrace::{self, Tid};
use crate::subject::{Executable, FREE_SLOT_OFFSET, TracedProcess};
use std::collections::HashMap;
use std::io;
use std::ops::Range;

const INT3: u8 = 0xcc;
/// Offset of the first slot. Before it are the system call stub and the slot for other instructions.
const FIRST_SLOT: u64 = FREE_SLOT_OFFSET + SLOT_SIZE;
/// Table entry for an address that is not a site.
const NO_SITE_INDEX: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BreakpointSite(pub u32);

#[derive(Debug)]
pub struct Breakpoints {
    sites: Vec<PlacedSite>,
    parts: Vec<BreakpointsOfFile>,
}

#[derive(Debug)]
struct BreakpointsOfFile {
    /// Start address of the file's code in memory.
    start: u64,
    /// Site indexes by offset from `start`.
    site_indexes: Vec<u32>,
    /// The address range of the file's slots.
    area: Range<u64>,
    first_site: usize,
    site_count: usize,
}

#[derive(Debug)]
struct PlacedSite {
    /// The number that is recorded.
    number: u32,
    /// If the site is a jump that is also the first instruction of a recorded block: the number of the block, which is recorded first.
    block: Option<u32>,
    address: u64,
    slot: u64,
    length: u64,
    /// The byte that the breakpoint replaces.
    original: u8,
    /// True if the instruction is one byte long. A SIGTRAP that the program sends itself after such an instruction looks like a hit of the
    /// breakpoint.
    is_one_byte: bool,
    /// True if the site is a jump whose target is recorded.
    is_jump: bool,
    /// True once the program has changed the code there, after which the site is no longer watched.
    is_released: bool,
}

/// How far a thread in a slot has executed the slot's instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotProgress {
    /// The thread has not executed the instruction, which has this address in the image.
    NotExecuted(u64),
    /// The thread has executed the instruction, and continues at this address in the image.
    Executed(u64),
    /// The thread has executed a part of the instruction, which is possible for calls.
    Partial,
}

impl Breakpoints {
    pub fn new() -> Self {
        Self { sites: Vec::new(), parts: Vec::new() }
    }

    /// Sets breakpoints at addresses in a file, each with the number that is recorded for a hit. Addresses that are also in `jumps`, which
    /// is sorted, are indirect jumps whose targets are to be recorded. If an address occurs twice, its first number is that of the block
    /// that starts there, and its second is that of the jump.
    ///
    /// # Errors
    /// An address is not code of the image, its instruction cannot be moved, or there are more sites than slots.
    pub fn add(
        &mut self,
        subject: &TracedProcess,
        executable: &Executable,
        addresses: &[(u32, u64)],
        jumps: &[u64],
    ) -> Result<(), CollectError> {
        if FIRST_SLOT + addresses.len() as u64 * SLOT_SIZE > subject.area_size {
            return Err(CollectError::TooManySites {
                sites: addresses.len(),
                max: ((subject.area_size - FIRST_SLOT) / SLOT_SIZE) as usize,
            });
        }
        let (addresses, blocks) = separate_blocks_from_jumps(addresses, jumps);
        let in_memory = |address: u64| address.wrapping_add(subject.bias);
        let start = executable.code.iter().map(|c| c.start).min().unwrap_or(0);
        let end = executable.code.iter().map(|c| c.end).max().unwrap_or(0);
        let first = self.sites.len();
        let mut site_indexes = vec![NO_SITE_INDEX; (end - start) as usize];
        let mut slots = Vec::with_capacity(addresses.len() * SLOT_SIZE as usize);
        for (place, (number, address)) in (0u32..).zip(&addresses) {
            if !executable.is_code(*address) {
                return Err(CollectError::NoCode { address: *address, path: executable.path.clone() });
            }
            let slot = subject.area + FIRST_SLOT + u64::from(place) * SLOT_SIZE;
            let code = subject.memory.read_some(in_memory(*address), 16);
            let moved = displace(&code, in_memory(*address), slot)?;
            slots.extend_from_slice(&moved.code);
            slots.resize((place as usize + 1) * SLOT_SIZE as usize, INT3);
            self.sites.push(PlacedSite {
                number: *number,
                block: blocks.get(address).copied(),
                address: in_memory(*address),
                slot,
                length: moved.length,
                original: code[0],
                is_one_byte: moved.length == 1,
                is_jump: jumps.binary_search(address).is_ok(),
                is_released: false,
            });
            site_indexes[(address - start) as usize] = first as u32 + place;
        }
        subject.memory.write(subject.area + FIRST_SLOT, &slots)?;
        let area = subject.area + FIRST_SLOT..subject.area + FIRST_SLOT + slots.len() as u64;
        let part = BreakpointsOfFile { start: in_memory(start), site_indexes, area, first_site: first, site_count: addresses.len() };
        part.write_breakpoints(&self.sites, &subject.memory)?;
        self.parts.push(part);
        Ok(())
    }

    /// Forgets the breakpoints of a file that is no longer mapped. `area` contains its slots.
    pub fn forget(&mut self, area: &Range<u64>) {
        self.parts.retain(|part| !area.contains(&part.area.start));
    }

    /// Removes the breakpoints on instructions that overlap a range which the program is about to change. All threads must be stopped;
    /// [`Breakpoints::move_out_of_released_code`] moves the threads that are in slots.
    pub fn release(&mut self, range: &Range<u64>, memory: &Memory) -> io::Result<()> {
        let mut pieces = Vec::new();
        for part in &mut self.parts {
            for site in &mut self.sites[part.first_site..part.first_site + part.site_count] {
                if !site.is_released && do_ranges_overlap(&(site.address..site.address + site.length), range) {
                    site.is_released = true;
                    part.site_indexes[(site.address - part.start) as usize] = NO_SITE_INDEX;
                    pieces.push((site.address, site.original));
                }
            }
        }
        pieces.sort_unstable();
        memory.patch(&pieces.iter().map(|(address, original)| (*address, std::slice::from_ref(original))).collect::<Vec<_>>())
    }

    /// Moves a stopped thread from the slot of a released site to the image. `step` single-steps the thread, and returns false if it
    /// cannot.
    pub fn move_out_of_released_code(&self, thread: Tid, step: &dyn Fn() -> Result<bool, CollectError>) -> Result<(), CollectError> {
        loop {
            let at = ptrace::instruction_pointer(thread)?;
            if self.site_of_slot(at).is_none_or(|site| !site.is_released) {
                return Ok(());
            }
            match self.slot_progress(at) {
                Some(SlotProgress::NotExecuted(address) | SlotProgress::Executed(address)) => {
                    return Ok(ptrace::set_instruction_pointer(thread, address)?);
                }
                Some(SlotProgress::Partial) if step()? => {}
                Some(SlotProgress::Partial) | None => return Ok(()),
            }
        }
    }

    /// Returns the site that a thread has hit, from its instruction pointer after the trap; `None` if there is no site.
    pub fn site_hit(&self, instruction_pointer: u64) -> Option<BreakpointSite> {
        self.site_at(instruction_pointer.wrapping_sub(1))
    }

    pub fn site_at(&self, address: u64) -> Option<BreakpointSite> {
        let in_part = |part: &BreakpointsOfFile| part.site_indexes.get(usize::try_from(address.wrapping_sub(part.start)).ok()?).copied();
        self.parts.iter().find_map(in_part).filter(|site| *site != NO_SITE_INDEX).map(BreakpointSite)
    }

    pub fn number(&self, site: BreakpointSite) -> u32 {
        self.sites[site.0 as usize].number
    }

    /// If the site is a jump that also starts a recorded block, returns the number of that block, which is recorded before the jump's.
    pub fn block_number(&self, site: BreakpointSite) -> Option<u32> {
        self.sites[site.0 as usize].block
    }

    /// Returns the slot at which a thread that has hit a site resumes.
    pub fn slot(&self, site: BreakpointSite) -> u64 {
        self.sites[site.0 as usize].slot
    }

    pub fn address(&self, site: BreakpointSite) -> u64 {
        self.sites[site.0 as usize].address
    }

    pub fn is_jump(&self, site: BreakpointSite) -> bool {
        self.sites[site.0 as usize].is_jump
    }

    /// Returns true if only the signal's cause distinguishes a hit of this site from a SIGTRAP with a different origin.
    pub fn is_ambiguous(&self, site: BreakpointSite) -> bool {
        self.sites[site.0 as usize].is_one_byte
    }

    /// Returns how far a thread has executed the instruction of the slot it is in; `None` if it is not in a slot.
    pub fn slot_progress(&self, instruction_pointer: u64) -> Option<SlotProgress> {
        let site = self.site_of_slot(instruction_pointer)?;
        Some(match instruction_pointer - site.slot {
            0 => SlotProgress::NotExecuted(site.address),
            // The slot of a plain instruction holds the instruction at its original length, then a jump.
            n if n == site.length => SlotProgress::Executed(site.address + site.length),
            _ => SlotProgress::Partial,
        })
    }

    fn site_of_slot(&self, address: u64) -> Option<&PlacedSite> {
        let part = self.parts.iter().find(|part| part.area.contains(&address))?;
        Some(&self.sites[part.first_site + ((address - part.area.start) / SLOT_SIZE) as usize])
    }
}

/// Reduces pairs of number and address to one per address. Also returns, for each jump that starts a recorded block, the block's number by
/// address.
fn separate_blocks_from_jumps(sites: &[(u32, u64)], jumps: &[u64]) -> (Vec<(u32, u64)>, HashMap<u64, u32>) {
    if jumps.is_empty() {
        return (sites.to_vec(), HashMap::new());
    }
    let last: HashMap<u64, u32> = sites.iter().map(|(number, address)| (*address, *number)).collect();
    let (different, blocks): (Vec<_>, Vec<_>) = sites.iter().copied().partition(|(number, address)| last[address] == *number);
    (different, blocks.into_iter().map(|(number, address)| (address, number)).collect())
}

impl BreakpointsOfFile {
    fn write_breakpoints(&self, sites: &[PlacedSite], memory: &Memory) -> io::Result<()> {
        let sites = &sites[self.first_site..self.first_site + self.site_count];
        let mut pieces: Vec<(u64, &[u8])> = sites.iter().map(|site| (site.address, std::slice::from_ref(&INT3))).collect();
        pieces.sort_unstable_by_key(|piece| piece.0);
        memory.patch(&pieces)
    }
}
