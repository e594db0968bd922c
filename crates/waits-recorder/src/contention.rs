//! Counts waiting threads per object, so that releasing a lock need not be recorded when no thread waits for it.
//!
//! Objects are hashed by address. If two objects share a count, a release may be recorded unnecessarily, but no wait is lost. The method
//! does not depend on how the C library implements locks.

use crate::memory::map_shared;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

const SLOTS: usize = 4096;
/// True once any thread has waited. Until then, a forked child need not clear the counts.
static HAS_WAITED: AtomicBool = AtomicBool::new(false);
static WAITING_COUNTS: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];
/// Counts that a process shares with its children, because they may wait for objects in shared memory, which all of them map at the same
/// address. Null before the first fork.
static SHARED_COUNTS: AtomicPtr<[AtomicU32; SLOTS]> = AtomicPtr::new(null_mut());

#[inline]
fn slot_index(object: usize) -> usize {
    (object >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 12)
}

#[inline]
fn shared_counts() -> Option<&'static [AtomicU32; SLOTS]> {
    // SAFETY: the pointer is null, or refers to memory that stays mapped.
    unsafe { SHARED_COUNTS.load(Ordering::Acquire).as_ref() }
}

/// Prepares for a fork. From now on, parent and child also count waiting threads in shared memory.
pub fn share_counts() {
    if shared_counts().is_some() {
        return;
    }
    let Some(memory) = map_shared::<[AtomicU32; SLOTS]>() else { return };
    // If another thread was faster, its memory is used.
    let _ = SHARED_COUNTS.compare_exchange(null_mut(), memory, Ordering::AcqRel, Ordering::Acquire);
}

/// Returns true if a thread may be waiting for the object.
#[inline]
pub fn is_awaited(object: usize) -> bool {
    WAITING_COUNTS[slot_index(object)].load(Ordering::Relaxed) != 0
        || shared_counts().is_some_and(|counts| counts[slot_index(object)].load(Ordering::Relaxed) != 0)
}

/// Counts a thread that starts to wait. Must be called before the thread's next attempt to acquire the object.
pub fn begin_wait(object: usize) {
    if !HAS_WAITED.load(Ordering::Relaxed) {
        HAS_WAITED.store(true, Ordering::Relaxed);
    }
    WAITING_COUNTS[slot_index(object)].fetch_add(1, Ordering::SeqCst);
    if let Some(counts) = shared_counts() {
        counts[slot_index(object)].fetch_add(1, Ordering::SeqCst);
    }
}

pub fn end_wait(object: usize) {
    WAITING_COUNTS[slot_index(object)].fetch_sub(1, Ordering::SeqCst);
    if let Some(counts) = shared_counts() {
        // Waits that began before the first fork are not counted in shared memory.
        let _ = counts[slot_index(object)].fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }
}

/// Runs a call that acquires `object` before it returns, like a wait for a condition variable, which acquires the mutex. The thread
/// counts as waiting during the call, so that the release of the object is recorded.
pub fn call_as_waiter<R>(object: usize, call: impl FnOnce() -> R) -> R {
    begin_wait(object);
    let result = call();
    end_wait(object);
    result
}

/// Clears the counts in a forked child, which has only one thread.
pub fn begin_child() {
    if HAS_WAITED.swap(false, Ordering::Relaxed) {
        WAITING_COUNTS.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }
}
