//! Counts the threads that wait for each object, so that a release of the object is recorded only if a thread waits for it.
//!
//! The counts are in a table that is indexed by a hash of the object's address. If two objects share a count, a release may be recorded
//! unnecessarily, but no release that ends a wait is missed. This works with any implementation of locks in the C library.

use crate::memory::map_shared;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

const WAITING_COUNT_SLOTS: usize = 4096;
/// True once any thread has waited. Until then, all counts are 0, and a forked child need not clear them.
static HAS_ANY_THREAD_WAITED: AtomicBool = AtomicBool::new(false);
static WAITING_COUNTS: [AtomicU32; WAITING_COUNT_SLOTS] = [const { AtomicU32::new(0) }; WAITING_COUNT_SLOTS];
/// Counts of waiting threads in all processes of a family. A process shares them with its forked children, which may wait for objects in
/// shared memory; all of them map that memory at the same address. Null before the first fork.
static SHARED_COUNTS: AtomicPtr<[AtomicU32; WAITING_COUNT_SLOTS]> = AtomicPtr::new(null_mut());

#[inline]
fn slot_index(object: usize) -> usize {
    (object >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 12)
}

#[inline]
fn shared_counts() -> Option<&'static [AtomicU32; WAITING_COUNT_SLOTS]> {
    // SAFETY: the pointer is null, or refers to memory that stays mapped.
    unsafe { SHARED_COUNTS.load(Ordering::Acquire).as_ref() }
}

/// Creates the shared counts before a fork. From then on, parent and child also count their waiting threads there.
pub fn create_shared_counts() {
    if shared_counts().is_some() {
        return;
    }
    let Some(memory) = map_shared::<[AtomicU32; WAITING_COUNT_SLOTS]>() else { return };
    // If another thread has created the table at the same time, that one is used.
    let _ = SHARED_COUNTS.compare_exchange(null_mut(), memory, Ordering::AcqRel, Ordering::Acquire);
}

/// Returns true if some thread may be waiting for the object.
#[inline]
pub fn is_awaited(object: usize) -> bool {
    WAITING_COUNTS[slot_index(object)].load(Ordering::Relaxed) != 0
        || shared_counts().is_some_and(|counts| counts[slot_index(object)].load(Ordering::Relaxed) != 0)
}

/// Counts the calling thread as waiting. Must be called before the thread tries to acquire the object again, so that a release in between
/// is recorded.
pub fn begin_wait(object: usize) {
    if !HAS_ANY_THREAD_WAITED.load(Ordering::Relaxed) {
        HAS_ANY_THREAD_WAITED.store(true, Ordering::Relaxed);
    }
    WAITING_COUNTS[slot_index(object)].fetch_add(1, Ordering::SeqCst);
    if let Some(counts) = shared_counts() {
        counts[slot_index(object)].fetch_add(1, Ordering::SeqCst);
    }
}

pub fn end_wait(object: usize) {
    WAITING_COUNTS[slot_index(object)].fetch_sub(1, Ordering::SeqCst);
    if let Some(counts) = shared_counts() {
        // The shared count may be 0, because waits that began before the first fork are not included.
        let _ = counts[slot_index(object)].fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }
}

/// Counts the calling thread as waiting for `object` during `call`, so that another thread's release of the object is recorded. Used if
/// `call` acquires `object` before it returns: a wait for a condition variable also acquires the mutex.
pub fn call_while_counted_as_waiting<R>(object: usize, call: impl FnOnce() -> R) -> R {
    begin_wait(object);
    let result = call();
    end_wait(object);
    result
}

/// Clears the process's own counts in a forked child, because the waiting threads do not exist there.
pub fn reset_in_child() {
    if HAS_ANY_THREAD_WAITED.swap(false, Ordering::Relaxed) {
        WAITING_COUNTS.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }
}
