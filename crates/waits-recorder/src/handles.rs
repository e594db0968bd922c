//! A lock-free hash table that assigns each handle (an integer that identifies a thread or an MPI object) a slot number, which stays the
//! same. Callers use the number as an index into tables of data about handles. All threads may use the table concurrently.

use core::sync::atomic::{AtomicUsize, Ordering};

/// A hash table of handles with linear probing. `SLOTS` must be a power of two. 0 marks an empty slot.
pub struct HandleTable<const SLOTS: usize> {
    slots: [AtomicUsize; SLOTS],
    /// Number of low-order bits that are the same in all handles, and are therefore not hashed.
    equal_bits: u32,
}

impl<const SLOTS: usize> HandleTable<SLOTS> {
    pub const fn new(equal_bits: u32) -> Self {
        HandleTable { slots: [const { AtomicUsize::new(0) }; SLOTS], equal_bits }
    }

    /// Returns the slot of a handle; `None` if the handle is not in the table.
    pub fn find(&self, handle: usize) -> Option<usize> {
        let slot = self.probe_sequence(handle).find(|slot| [handle, 0].contains(&self.slots[*slot].load(Ordering::Acquire)))?;
        (self.slots[slot].load(Ordering::Acquire) == handle).then_some(slot)
    }

    /// Returns the slot of a handle, and adds the handle if necessary. Returns `None` if the table is full.
    pub fn find_or_add(&self, handle: usize) -> Option<usize> {
        self.probe_sequence(handle).find(|slot| {
            let found = self.slots[*slot].load(Ordering::Acquire);
            found == handle || found == 0 && self.slots[*slot].compare_exchange(0, handle, Ordering::AcqRel, Ordering::Acquire).is_ok()
        })
    }

    fn probe_sequence(&self, handle: usize) -> impl Iterator<Item = usize> + use<SLOTS> {
        let first = (handle >> self.equal_bits).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - SLOTS.trailing_zeros());
        (first..first + SLOTS).map(|slot| slot % SLOTS)
    }
}
