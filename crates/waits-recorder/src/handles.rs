//! A lock-free hash table that gives each handle a fixed slot, to be used as an index into tables of data about handles. All threads may
//! use the table at the same time.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The table uses linear probing. `SLOTS` must be a power of two.
pub struct Handles<const SLOTS: usize> {
    slots: [AtomicUsize; SLOTS],
    /// Number of low bits that are equal in all handles.
    equal_bits: u32,
}

impl<const SLOTS: usize> Handles<SLOTS> {
    pub const fn new(equal_bits: u32) -> Self {
        Handles { slots: [const { AtomicUsize::new(0) }; SLOTS], equal_bits }
    }

    /// Returns the slot of a handle; `None` if the handle is not in the table.
    pub fn find(&self, handle: usize) -> Option<usize> {
        let slot = self.probes(handle).find(|slot| [handle, 0].contains(&self.slots[*slot].load(Ordering::Acquire)))?;
        (self.slots[slot].load(Ordering::Acquire) == handle).then_some(slot)
    }

    /// Returns the slot of a handle, and adds the handle if necessary. Returns `None` if the table is full.
    pub fn find_or_add(&self, handle: usize) -> Option<usize> {
        self.probes(handle).find(|slot| {
            let found = self.slots[*slot].load(Ordering::Acquire);
            found == handle || found == 0 && self.slots[*slot].compare_exchange(0, handle, Ordering::AcqRel, Ordering::Acquire).is_ok()
        })
    }

    fn probes(&self, handle: usize) -> impl Iterator<Item = usize> + use<SLOTS> {
        let first = (handle >> self.equal_bits).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - SLOTS.trailing_zeros());
        (first..first + SLOTS).map(|slot| slot % SLOTS)
    }
}
