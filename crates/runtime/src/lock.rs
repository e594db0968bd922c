//! The image's lock. Its holder cannot be interrupted by a signal handler, no thread waits for a holder that no longer exists, and none for
//! ever (a thread that forks has the lock while it waits for libc's own, which the waiting thread might have).
//!
//! Invariant: a thread that holds it has all signals blocked, but between the fork handlers `prepare` and `parent`, where a
//! signal handler may enter: so the lock can be taken again by the thread that has it.
//!
//! `tests/interleavings` runs this source under a checker of interleavings.

use crate::atomic::{AtomicU32, Ordering::SeqCst};
use crate::system;

/// Bit of the lock word that says that a thread sleeps. Thread ids are below 2^22.
const SLEEPERS: u32 = 1 << 31;
/// After such a time without news, a waiting thread looks whether the holder exists.
const DOZE_MS: i64 = 20;
/// After so many such times it goes without the lock: some 30 s.
const DOZES: u32 = 1500;

/// Thread id of the holder, or 0.
static HOLDER: AtomicU32 = AtomicU32::new(0);

/// All signals blocked and the lock held, until dropped.
pub struct Guard {
    mask: u64,
    nested: bool,
}

impl Guard {
    /// Blocks signals, then takes the lock; None if that cannot be done. `forked` says whether this is a copy of the process that had the
    /// lock's holder in it.
    pub fn take(forked: impl Fn() -> bool) -> Option<Guard> {
        let mask = system::set_signal_mask(u64::MAX);
        match acquire(forked) {
            Acquired::Now => Some(Guard { mask, nested: false }),
            Acquired::Before => Some(Guard { mask, nested: true }),
            Acquired::Never => {
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

/// What came of an attempt to take the lock.
pub enum Acquired {
    /// The thread has it now.
    Now,
    /// The thread had it already.
    Before,
    /// The holder does not give it back.
    Never,
}

/// Takes the lock.
pub fn acquire(forked: impl Fn() -> bool) -> Acquired {
    let me = system::thread_id();
    let mut mine = me;
    let mut dozes = 0;
    while dozes < DOZES {
        let Err(seen) = HOLDER.compare_exchange(0, mine, SeqCst, SeqCst) else { return Acquired::Now };
        if seen & !SLEEPERS == me && !forked() {
            return Acquired::Before;
        }
        let marked = seen | SLEEPERS;
        if HOLDER.compare_exchange(seen, marked, SeqCst, SeqCst).is_err() {
            continue;
        }
        // others may sleep as well by now: a thread that slept keeps the mark.
        mine = me | SLEEPERS;
        if system::futex_wait(HOLDER.as_ptr(), marked, DOZE_MS) == Err(system::ETIMEDOUT) {
            dozes += 1;
            if forked() || system::task_is_gone(seen & !SLEEPERS) {
                let _ = HOLDER.compare_exchange(marked, 0, SeqCst, SeqCst);
            }
        }
    }
    Acquired::Never
}

/// Gives the lock back if this thread has it.
pub fn release() {
    if HOLDER.load(SeqCst) & !SLEEPERS == system::thread_id() {
        release_any();
    }
}

/// Gives the lock back regardless of its holder: for a child of `fork`, where the holder has another id.
pub fn release_any() {
    if HOLDER.swap(0, SeqCst) & SLEEPERS != 0 {
        system::futex_wake(HOLDER.as_ptr());
    }
}
