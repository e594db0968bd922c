//! Who waits for which object: counts by the hash of its address, so that the release of a lock without waiters records nothing.
//!
//! A count may be that of another object with the same hash: then a release is recorded in vain, and no wait is lost. Independent of
//! how the C library lays locks out.

use core::sync::atomic::{AtomicU32, Ordering};

const SLOTS: usize = 4096;
static WAITING: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

#[inline]
fn slot(object: usize) -> &'static AtomicU32 {
    &WAITING[(object >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 12)]
}

/// Whether a thread may be waiting for the object.
#[inline]
pub fn is_awaited(object: usize) -> bool {
    slot(object).load(Ordering::Relaxed) != 0
}

/// A thread begins to wait. Ordered before its next attempt to take the object.
pub fn begin(object: usize) {
    slot(object).fetch_add(1, Ordering::SeqCst);
}

/// It has ended.
pub fn end(object: usize) {
    slot(object).fetch_sub(1, Ordering::SeqCst);
}

/// Waits inside a call that takes the object before it returns, as a wait for a condition takes its mutex: when that becomes free is
/// known from its release only.
pub fn during<R>(object: usize, call: impl FnOnce() -> R) -> R {
    begin(object);
    let result = call();
    end(object);
    result
}

/// After a fork no other thread waits.
pub fn begin_child() {
    WAITING.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
}
