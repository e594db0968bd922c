//! A lock-free hash table that assigns each handle a fixed slot, which serves as an index into tables of data about handles. Any thread may
//! use it at any time.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Handles by their hashes, with linear probing. `SLOTS` must be a power of two.
pub struct Handles<const SLOTS: usize> {
    slots: [AtomicUsize; SLOTS],
    /// Number of low bits that are the same in all handles.
    equal_bits: u32,
}

impl<const SLOTS: usize> Handles<SLOTS> {
    pub const fn new(equal_bits: u32) -> Self {
        Handles { slots: [const { AtomicUsize::new(0) }; SLOTS], equal_bits }
    }

    /// The slot of a handle; `None` if the handle is not in the table.
    pub fn find(&self, handle: usize) -> Option<usize> {
        let slot = self.probes(handle).find(|slot| [handle, 0].contains(&self.slots[*slot].load(Ordering::Acquire)))?;
        (self.slots[slot].load(Ordering::Acquire) == handle).then_some(slot)
    }

    /// The slot of a handle, which is added if necessary; `None` if the table is full.
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
