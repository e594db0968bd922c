//! The image's lock. Signal handlers cannot interrupt its holder. No thread waits for a holder that no longer exists, and no thread waits
//! forever: a thread that forks holds this lock while it waits for libc's own lock, which a thread waiting for this lock may hold.
//!
//! Invariant: the holder has all signals blocked, except between the fork handlers `prepare` and `parent`. A signal handler may enter the
//! runtime there, so the lock is reentrant. `tests/interleavings` runs this source under a model checker.

use crate::atomic::{AtomicU32, Ordering::SeqCst};
use crate::system;

/// Bit of the lock word that is set while a thread waits. Thread IDs are below 2^22.
const SLEEPERS: u32 = 1 << 31;
/// Time after which a waiting thread checks whether the holder still exists.
const WAIT_MS: i64 = 20;
/// Maximum number of waits before giving up, about 30 s.
const MAX_WAITS: u32 = 1500;

/// Thread id of the holder, or 0.
static HOLDER: AtomicU32 = AtomicU32::new(0);

/// Holds the lock and blocks all signals until dropped.
pub struct Guard {
    mask: u64,
    nested: bool,
}

impl Guard {
    /// Blocks signals and takes the lock; `None` if the holder does not release it in time. `forked` returns true in a forked copy of the
    /// holder's process.
    pub fn take(forked: impl Fn() -> bool) -> Option<Guard> {
        let mask = system::set_signal_mask(u64::MAX);
        match acquire(forked) {
            Acquired::Newly => Some(Guard { mask, nested: false }),
            Acquired::Already => Some(Guard { mask, nested: true }),
            Acquired::TimedOut => {
                system::set_signal_mask(mask);
                None
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.nested {
            release();
        }
        system::set_signal_mask(self.mask);
    }
}

/// The result of an attempt to take the lock.
pub enum Acquired {
    /// The thread has acquired the lock.
    Newly,
    /// The thread already held the lock.
    Already,
    /// The holder did not release the lock in time.
    TimedOut,
}

pub fn acquire(forked: impl Fn() -> bool) -> Acquired {
    let me = system::thread_id();
    let mut mine = me;
    let mut waits = 0;
    while waits < MAX_WAITS {
        let Err(seen) = HOLDER.compare_exchange(0, mine, SeqCst, SeqCst) else { return Acquired::Newly };
        if seen & !SLEEPERS == me && !forked() {
            return Acquired::Already;
        }
        let marked = seen | SLEEPERS;
        if HOLDER.compare_exchange(seen, marked, SeqCst, SeqCst).is_err() {
            continue;
        }
        // Other threads may be waiting too, so a thread that has waited takes the lock with the mark set.
        mine = me | SLEEPERS;
        if system::futex_wait(HOLDER.as_ptr(), marked, WAIT_MS) == Err(system::ETIMEDOUT) {
            waits += 1;
            if forked() || system::task_is_gone(seen & !SLEEPERS) {
                let _ = HOLDER.compare_exchange(marked, 0, SeqCst, SeqCst);
            }
        }
    }
    Acquired::TimedOut
}

/// Releases the lock if this thread holds it.
pub fn release() {
    if HOLDER.load(SeqCst) & !SLEEPERS == system::thread_id() {
        release_any();
    }
}

/// Releases the lock, whichever thread holds it. A child of `fork` needs this, because the holder has a different thread ID there.
pub fn release_any() {
    if HOLDER.swap(0, SeqCst) & SLEEPERS != 0 {
        system::futex_wake(HOLDER.as_ptr());
    }
}
