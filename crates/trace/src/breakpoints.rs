//! Breakpoints: `int3` at many addresses of an image at once, a slot for each, and the way from a trap to the site.
//!
//! All breakpoints of a page run are written by one system call. The table from address to site is an array over the
//! image's code, so that a trap is resolved in constant time.

use crate::CollectError;
use crate::displaced::{SLOT, displace};
use crate::memory::{Memory, overlap};
use crate::ptrace::{self, Tid};
use crate::subject::{AREA, Executable, TracedProcess};
use std::io;
use std::ops::Range;

const INT3: u8 = 0xcc;
/// Slots begin behind the stub for system calls.
const FIRST: u64 = SLOT;
/// No site here.
const NONE: u32 = u32::MAX;

/// A site by its number: its place among those that were set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BreakpointSite(pub u32);

/// Breakpoints in a process.
#[derive(Debug)]
pub struct Breakpoints {
    sites: Vec<Placed>,
    parts: Vec<Part>,
}

/// Those of a file.
#[derive(Debug)]
struct Part {
    /// First address of the file's code in memory.
    start: u64,
    /// Of each address from there, its site.
    at: Vec<u32>,
    /// Its slots.
    area: Range<u64>,
    /// Its first site.
    first: usize,
    /// Its sites.
    count: usize,
}

#[derive(Debug)]
struct Placed {
    /// What is recorded.
    number: u32,
    address: u64,
    slot: u64,
    length: u64,
    /// The byte that the breakpoint replaces.
    original: u8,
    /// Whether a signal that the program sends itself could be taken for a hit: the instruction has one byte.
    short: bool,
    /// Whether it is a jump whose target is recorded.
    jump: bool,
    /// Whether the program changes the code there, which is not watched any more.
    released: bool,
}

/// What of a thread that stopped in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InSlot {
    /// The instruction has not run.
    Before(u64),
    /// It has run; this is where it goes on.
    After(u64),
    /// In between, as calls can be.
    Within,
}

impl Breakpoints {
    /// None yet.
    pub fn new() -> Self {
        Self { sites: Vec::new(), parts: Vec::new() }
    }

    /// Sets breakpoints at addresses of a file, each with the number that is recorded. Those that are in `jumps`, too (ascending), are
    /// indirect jumps whose targets are to be recorded.
    ///
    /// # Errors
    /// An address is no code of the image, its instruction cannot be moved, or there are more than fit.
    pub fn add(
        &mut self,
        subject: &TracedProcess,
        executable: &Executable,
        addresses: &[(u32, u64)],
        jumps: &[u64],
    ) -> Result<(), CollectError> {
        if FIRST + addresses.len() as u64 * SLOT > AREA {
            return Err(CollectError::TooManySites { sites: addresses.len(), most: ((AREA - FIRST) / SLOT) as usize });
        }
        let in_memory = |address: u64| address.wrapping_add(subject.bias);
        let start = executable.code.iter().map(|c| c.start).min().unwrap_or(0);
        let end = executable.code.iter().map(|c| c.end).max().unwrap_or(0);
        let first = self.sites.len();
        let mut at = vec![NONE; (end - start) as usize];
        let mut slots = Vec::with_capacity(addresses.len() * SLOT as usize);
        for (place, (number, address)) in (0u32..).zip(addresses) {
            if !executable.is_code(*address) {
                return Err(CollectError::NoCode { address: *address, path: executable.path.clone() });
            }
            let slot = subject.area + FIRST + u64::from(place) * SLOT;
            let code = subject.memory.read_some(in_memory(*address), 16);
            let moved = displace(&code, in_memory(*address), slot)?;
            slots.extend_from_slice(&moved.code);
            slots.resize((place as usize + 1) * SLOT as usize, INT3);
            self.sites.push(Placed {
                number: *number,
                address: in_memory(*address),
                slot,
                length: moved.length,
                original: code[0],
                short: moved.length == 1,
                jump: jumps.binary_search(address).is_ok(),
                released: false,
            });
            at[(address - start) as usize] = first as u32 + place;
        }
        subject.memory.write(subject.area + FIRST, &slots)?;
        let area = subject.area + FIRST..subject.area + FIRST + slots.len() as u64;
        let part = Part { start: in_memory(start), at, area, first, count: addresses.len() };
        part.write(&self.sites, &subject.memory)?;
        self.parts.push(part);
        Ok(())
    }

    /// Forgets those of a file that is not in memory any more, by the memory of its slots.
    pub fn forget(&mut self, area: &Range<u64>) {
        self.parts.retain(|part| !area.contains(&part.area.start));
    }

    /// Takes those out whose instruction lies in a range that the program is about to change. All threads are stopped; those in slots are
    /// moved by [`Breakpoints::leave_released`].
    ///
    /// # Errors
    /// The process is gone.
    pub fn release(&mut self, range: &Range<u64>, memory: &Memory) -> io::Result<()> {
        let mut pieces = Vec::new();
        for part in &mut self.parts {
            for site in &mut self.sites[part.first..part.first + part.count] {
                if !site.released && overlap(&(site.address..site.address + site.length), range) {
                    site.released = true;
                    part.at[(site.address - part.start) as usize] = NONE;
                    pieces.push((site.address, site.original));
                }
            }
        }
        pieces.sort_unstable();
        memory.patch(&pieces.iter().map(|(address, original)| (*address, std::slice::from_ref(original))).collect::<Vec<_>>())
    }

    /// Lets a stopped thread that stands in the slot of a released site stand in the image. `step`, which gives whether it did, executes an
    /// instruction of the thread.
    ///
    /// # Errors
    /// The thread cannot be followed.
    pub fn leave_released(&self, thread: Tid, step: &dyn Fn() -> Result<bool, CollectError>) -> Result<(), CollectError> {
        loop {
            let at = ptrace::instruction_pointer(thread)?;
            if self.site_of_slot(at).is_none_or(|site| !site.released) {
                return Ok(());
            }
            match self.in_slot(at) {
                Some(InSlot::Before(address) | InSlot::After(address)) => return Ok(ptrace::set_instruction_pointer(thread, address)?),
                Some(InSlot::Within) if step()? => {}
                Some(InSlot::Within) | None => return Ok(()),
            }
        }
    }

    /// The site that a thread has trapped at, whose instruction pointer is given.
    pub fn hit(&self, instruction_pointer: u64) -> Option<BreakpointSite> {
        self.at(instruction_pointer.wrapping_sub(1))
    }

    /// The site at an address.
    pub fn at(&self, address: u64) -> Option<BreakpointSite> {
        let in_part = |part: &Part| part.at.get(usize::try_from(address.wrapping_sub(part.start)).ok()?).copied();
        self.parts.iter().find_map(in_part).filter(|site| *site != NONE).map(BreakpointSite)
    }

    /// What is recorded of a site.
    pub fn number(&self, site: BreakpointSite) -> u32 {
        self.sites[site.0 as usize].number
    }

    /// Where a thread goes on that has hit a site.
    pub fn slot(&self, site: BreakpointSite) -> u64 {
        self.sites[site.0 as usize].slot
    }

    /// The address of a site in memory.
    pub fn address(&self, site: BreakpointSite) -> u64 {
        self.sites[site.0 as usize].address
    }

    /// Whether a site is a jump whose target is recorded.
    pub fn is_jump(&self, site: BreakpointSite) -> bool {
        self.sites[site.0 as usize].jump
    }

    /// Whether the signal's cause must be asked for to know a hit from a signal that the program got otherwise.
    pub fn is_ambiguous(&self, site: BreakpointSite) -> bool {
        self.sites[site.0 as usize].short
    }

    /// What a thread in a slot has done of its instruction; `None` if it is in no slot.
    pub fn in_slot(&self, instruction_pointer: u64) -> Option<InSlot> {
        let site = self.site_of_slot(instruction_pointer)?;
        Some(match instruction_pointer - site.slot {
            0 => InSlot::Before(site.address),
            // Slots of plain instructions have the instruction as long as it was, then the jump.
            n if n == site.length => InSlot::After(site.address + site.length),
            _ => InSlot::Within,
        })
    }

    fn site_of_slot(&self, address: u64) -> Option<&Placed> {
        let part = self.parts.iter().find(|part| part.area.contains(&address))?;
        Some(&self.sites[part.first + ((address - part.area.start) / SLOT) as usize])
    }
}

impl Part {
    /// Sets a breakpoint at each of its sites; the journal undoes them. Slots stay, threads in them find back.
    fn write(&self, sites: &[Placed], memory: &Memory) -> io::Result<()> {
        let sites = &sites[self.first..self.first + self.count];
        let mut pieces: Vec<(u64, &[u8])> = sites.iter().map(|site| (site.address, std::slice::from_ref(&INT3))).collect();
        pieces.sort_unstable_by_key(|piece| piece.0);
        memory.patch(&pieces)
    }
}
