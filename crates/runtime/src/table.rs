//! Records which thread of the process uses which region of counters.
//!
//! The runtime is not notified when a thread ends (TLS destructors would need libc). When regions run short, a sweep therefore frees the
//! regions of threads that no longer exist. A sweep requires twice as many regions as survived the last sweep, so its amortised cost per
//! new region is constant. Invariant: at most one living thread owns an entry.

use crate::region::Region;
use crate::system;

/// An owner that counts as always living: a thread whose ID is unknown, because its child of `vfork` entered the runtime with the thread's
/// TLS, or all threads together.
pub const PINNED_REGION_OWNER: u32 = u32::MAX;
const NO_REGION_OWNER: u32 = 0;
const MAX_INLINE_REGION_ENTRIES: usize = 8;

#[derive(Clone, Copy)]
struct RegionEntry {
    region: Region,
    owner: u32,
}

/// Returns true if no thread uses a region with this owner any more.
pub fn is_without_owner(process: u32, owner: u32) -> bool {
    // The kernel has no thread with the ID that means "no owner", but does not say so.
    owner == NO_REGION_OWNER || (owner != PINNED_REGION_OWNER && system::thread_is_gone(process, owner))
}

const EMPTY_ENTRY: RegionEntry = RegionEntry { region: Region { address: 0, index: None, event: 0 }, owner: NO_REGION_OWNER };

/// The regions of this image in this process, with their owners.
pub struct RegionTable {
    /// The entries, while there are at most [`MAX_INLINE_REGION_ENTRIES`] of them.
    inline: [RegionEntry; MAX_INLINE_REGION_ENTRIES],
    /// Address of a mapping that contains the entries; 0 while they are in `inline`.
    mapped: usize,
    /// Number of entries that fit into the mapping.
    capacity: usize,
    length: usize,
    /// Number of entries that the last sweep found to have a living owner, or that the last call of [`RegionTable::remove`] kept.
    survivors: usize,
}

impl RegionTable {
    pub const fn new() -> RegionTable {
        RegionTable { inline: [EMPTY_ENTRY; MAX_INLINE_REGION_ENTRIES], mapped: 0, capacity: 0, length: 0, survivors: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn has_entry(&mut self, matches: impl Fn(usize, u32) -> bool) -> bool {
        self.entries().iter().any(|entry| matches(entry.region.address, entry.owner))
    }

    pub fn find_any_file_region(&mut self) -> Option<Region> {
        self.entries().iter().map(|entry| entry.region).find(|region| region.index.is_some())
    }

    pub fn file_region_at(&mut self, address: usize) -> Option<Region> {
        self.entries().iter().map(|entry| entry.region).find(|region| region.index.is_some() && region.address == address)
    }

    /// Assigns to `owner` a region that has no living owner. Returns `None` if there is none.
    pub fn assign_region(&mut self, process: u32, owner: u32) -> Option<Region> {
        // The kernel reuses thread IDs, so an entry with this ID belongs to a thread that has ended, or to this thread if its bias was
        // reset.
        let found = match self.reassign_region(owner, owner) {
            None => self.reassign_region(NO_REGION_OWNER, owner),
            found => found,
        };
        if found.is_some() || self.length < 2 * self.survivors + MAX_INLINE_REGION_ENTRIES {
            return found;
        }
        let mut living = 0;
        for entry in self.entries() {
            match is_without_owner(process, entry.owner) {
                true => entry.owner = NO_REGION_OWNER,
                false => living += 1,
            }
        }
        self.survivors = living;
        self.reassign_region(NO_REGION_OWNER, owner)
    }

    fn reassign_region(&mut self, before: u32, owner: u32) -> Option<Region> {
        let entry = self.entries().iter_mut().find(|entry| entry.owner == before && before != PINNED_REGION_OWNER)?;
        entry.owner = owner;
        Some(entry.region)
    }

    /// Adds a region. If there is no memory for another entry, the region stays with its owner forever.
    pub fn add(&mut self, region: Region, owner: u32) {
        if self.length == self.capacity.max(MAX_INLINE_REGION_ENTRIES) && !self.enlarge_table() {
            return;
        }
        self.length += 1;
        if let Some(entry) = self.entries().last_mut() {
            *entry = RegionEntry { region, owner };
        }
    }

    pub fn set_event(&mut self, address: usize, event: u64) {
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.region.address == address) {
            entry.region.event = event;
        }
    }

    /// Removes the regions for whose address and owner `is_removed` returns true. Passes each of them to `dispose`.
    pub fn remove(&mut self, is_removed: impl Fn(usize, u32) -> bool, mut dispose: impl FnMut(Region)) {
        let mut kept = 0;
        let entries = self.entries();
        for index in 0..entries.len() {
            let Some(&entry) = entries.get(index) else { break };
            if is_removed(entry.region.address, entry.owner) {
                dispose(entry.region);
            } else if let Some(place) = entries.get_mut(kept) {
                *place = entry;
                kept += 1;
            }
        }
        self.length = kept;
        self.survivors = kept;
        if kept == 0 && self.mapped != 0 {
            system::unmap(self.mapped, self.capacity * size_of::<RegionEntry>());
            *self = RegionTable::new();
        }
    }

    fn enlarge_table(&mut self) -> bool {
        let capacity = 4 * self.capacity.max(4 * MAX_INLINE_REGION_ENTRIES);
        let Ok(address) = system::map_zeroed_memory(capacity * size_of::<RegionEntry>(), None) else { return false };
        // SAFETY: the memory is new, has room for that many entries, and consists of zeros, which are valid entries. No other reference to
        // it exists.
        let fresh = unsafe { core::slice::from_raw_parts_mut(address as *mut RegionEntry, capacity) };
        fresh.iter_mut().zip(self.entries()).for_each(|(to, from)| *to = *from);
        if self.mapped != 0 {
            system::unmap(self.mapped, self.capacity * size_of::<RegionEntry>());
        }
        (self.mapped, self.capacity) = (address, capacity);
        true
    }

    fn entries(&mut self) -> &mut [RegionEntry] {
        if self.mapped == 0 {
            return self.inline.get_mut(..self.length).unwrap_or(&mut []);
        }
        // SAFETY: the mapping contains `capacity` entries and belongs to this table, and `length` never exceeds `capacity`.
        unsafe { core::slice::from_raw_parts_mut(self.mapped as *mut RegionEntry, self.length) }
    }
}
