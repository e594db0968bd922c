//! Who waits for which object: counts by the hash of its address, so that the release of a lock without waiters records nothing.
//!
//! A count may be that of another object with the same hash: then a release is recorded in vain, and no wait is lost. Independent of
//! how the C library lays locks out.

use crate::memory::memory_shared;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

const SLOTS: usize = 4096;
/// Whether a thread has waited: a forked child need not touch the counts if none has.
static HAS_WAITED: AtomicBool = AtomicBool::new(false);
static WAITING: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];
/// The same for a process and its children, who may wait for an object in memory that they share: by the address that it has in all of
/// them. None before the first fork.
static RELATED: AtomicPtr<[AtomicU32; SLOTS]> = AtomicPtr::new(null_mut());

#[inline]
fn place(object: usize) -> usize {
    (object >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 12)
}

#[inline]
fn related() -> Option<&'static [AtomicU32; SLOTS]> {
    // SAFETY: null, or memory that stays mapped.
    unsafe { RELATED.load(Ordering::Acquire).as_ref() }
}

/// A child is about to be made: from now on both count in memory that they share.
pub fn share() {
    if related().is_some() {
        return;
    }
    let Some(memory) = memory_shared::<[AtomicU32; SLOTS]>() else { return };
    // Another thread may be first, and its memory serves as well.
    let _ = RELATED.compare_exchange(null_mut(), memory, Ordering::AcqRel, Ordering::Acquire);
}

/// Whether a thread may be waiting for the object.
#[inline]
pub fn is_awaited(object: usize) -> bool {
    WAITING[place(object)].load(Ordering::Relaxed) != 0
        || related().is_some_and(|counts| counts[place(object)].load(Ordering::Relaxed) != 0)
}

/// A thread begins to wait. Ordered before its next attempt to take the object.
pub fn begin(object: usize) {
    if !HAS_WAITED.load(Ordering::Relaxed) {
        HAS_WAITED.store(true, Ordering::Relaxed);
    }
    WAITING[place(object)].fetch_add(1, Ordering::SeqCst);
    if let Some(counts) = related() {
        counts[place(object)].fetch_add(1, Ordering::SeqCst);
    }
}

/// It has ended.
pub fn end(object: usize) {
    WAITING[place(object)].fetch_sub(1, Ordering::SeqCst);
    if let Some(counts) = related() {
        // A wait that began before the first fork was not counted here.
        let _ = counts[place(object)].fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }
}

/// Waits inside a call that takes the object before it returns, as a wait for a condition takes its mutex: when that becomes free is
/// known from its release only.
pub fn during<R>(object: usize, call: impl FnOnce() -> R) -> R {
    begin(object);
    let result = call();
    end(object);
    result
}

/// After a fork no other thread of this process waits.
pub fn begin_child() {
    if HAS_WAITED.swap(false, Ordering::Relaxed) {
        WAITING.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }
}
