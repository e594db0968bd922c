//! The lock that protects the runtime's state in one image. Signal handlers cannot interrupt its holder. No thread waits for a holder that
//! no longer exists, and every wait is limited: a forking thread holds this lock while it waits for libc's own lock, and the thread that
//! holds libc's lock may be waiting for this one.
//!
//! Invariant: the holder has all signals blocked, except between the fork handlers `prepare` and `parent`. The lock is reentrant, because
//! a signal handler may enter the runtime in between. `tests/interleavings` runs this source under a model checker.

use crate::atomic::{AtomicU32, Ordering::SeqCst};
use crate::system;

/// Bit of the lock word that tells that a thread may be waiting. Thread IDs are below 2^22, so the bit is free.
const HAS_WAITERS_BIT: u32 = 1 << 31;
/// Time after which a waiting thread checks whether the holder still exists.
const WAIT_MS: i64 = 20;
/// Maximum number of waits before a thread gives up, about 30 s in total.
const MAX_LOCK_WAITS: u32 = 1500;

static LOCK_HOLDER: AtomicU32 = AtomicU32::new(0);

/// Holds the lock until dropped, with all signals blocked.
pub struct Guard {
    mask: u64,
    is_nested: bool,
}

impl Guard {
    /// Blocks signals and takes the lock. Returns `None` if the holder does not release the lock in time. `forked` must return true in a
    /// child of `fork`, to which the holder's ID may mean nothing.
    pub fn take_lock(forked: impl Fn() -> bool) -> Option<Guard> {
        let mask = system::set_signal_mask(u64::MAX);
        match acquire_lock(forked) {
            LockAcquisition::Newly => Some(Guard { mask, is_nested: false }),
            LockAcquisition::Already => Some(Guard { mask, is_nested: true }),
            LockAcquisition::TimedOut => {
                system::set_signal_mask(mask);
                None
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_nested {
            release_lock();
        }
        system::set_signal_mask(self.mask);
    }
}

pub enum LockAcquisition {
    Newly,
    Already,
    /// The holder did not release the lock within about 30 s.
    TimedOut,
}

pub fn acquire_lock(forked: impl Fn() -> bool) -> LockAcquisition {
    let own_id = system::thread_id();
    let mut new_holder = own_id;
    let mut waits = 0;
    while waits < MAX_LOCK_WAITS {
        let Err(seen) = LOCK_HOLDER.compare_exchange(0, new_holder, SeqCst, SeqCst) else { return LockAcquisition::Newly };
        if seen & !HAS_WAITERS_BIT == own_id && !forked() {
            return LockAcquisition::Already;
        }
        let marked = seen | HAS_WAITERS_BIT;
        if LOCK_HOLDER.compare_exchange(seen, marked, SeqCst, SeqCst).is_err() {
            continue;
        }
        // Other threads may be waiting as well, so a thread that has waited takes the lock with the waiters bit set.
        new_holder = own_id | HAS_WAITERS_BIT;
        if system::futex_wait(LOCK_HOLDER.as_ptr(), marked, WAIT_MS) == Err(system::ETIMEDOUT) {
            waits += 1;
            if forked() || system::task_is_gone(seen & !HAS_WAITERS_BIT) {
                let _ = LOCK_HOLDER.compare_exchange(marked, 0, SeqCst, SeqCst);
            }
        }
    }
    LockAcquisition::TimedOut
}

pub fn release_lock() {
    if LOCK_HOLDER.load(SeqCst) & !HAS_WAITERS_BIT == system::thread_id() {
        release_lock_of_any_thread();
    }
}

/// Releases the lock, whichever thread holds it. A child of `fork` needs this, because the thread that took the lock before `fork` has a
/// different ID in the child.
pub fn release_lock_of_any_thread() {
    if LOCK_HOLDER.swap(0, SeqCst) & HAS_WAITERS_BIT != 0 {
        system::futex_wake(LOCK_HOLDER.as_ptr());
    }
}
