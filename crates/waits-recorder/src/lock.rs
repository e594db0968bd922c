//! A lock for what all threads of the process share.
//!
//! All signals are blocked while it is held: a handler of the program could leave by a jump, be a cancellation, or come back here.

use crate::output::keeping_errno;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

/// A value, and the lock that guards it.
pub struct Lock<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time uses the value.
unsafe impl<T> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock { is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Does `work` with the value. Leaves errno alone.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        without_signals(|| {
            let mut tries = 0;
            while self.is_held.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
                give_way(&mut tries);
            }
            // SAFETY: the lock is held.
            let result = work(unsafe { &mut *self.value.get() });
            self.is_held.store(false, Ordering::Release);
            result
        })
    }

    /// Replaces the value in a forked child, which has no other thread: a holder in the parent does not exist here, and its change may
    /// be half done.
    pub fn begin_child(&self, value: T) -> T {
        // SAFETY: no other thread uses the value.
        let parents = core::mem::replace(unsafe { &mut *self.value.get() }, value);
        self.is_held.store(false, Ordering::Release);
        parents
    }
}

impl<T> Lock<T> {
    /// Keeps the value in a forked child: see [`Lock::begin_child`].
    pub fn keep_in_child(&self) {
        self.is_held.store(false, Ordering::Release);
    }
}

/// Gives the processor to another thread, for which this one waits. After some tries by sleeping: the other one may have a lower priority,
/// so that it does not run while this one is ready to.
pub fn give_way(tries: &mut u32) {
    const MAX_YIELDS: u32 = 64;
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
    *tries += 1;
    // SAFETY: system calls without effects on memory, the second one with a time to read.
    unsafe {
        if *tries < MAX_YIELDS {
            libc::sched_yield();
        } else {
            *tries = MAX_YIELDS;
            libc::syscall(libc::SYS_nanosleep, &raw const pause, null_mut::<libc::timespec>());
        }
    }
}

/// Runs `work` with all signals blocked, the C library's own included. Leaves errno alone.
pub fn without_signals<R>(work: impl FnOnce() -> R) -> R {
    keeping_errno(|| {
        let (all, mut before) = (u64::MAX, 0u64);
        set_mask(&raw const all, &raw mut before);
        let result = work();
        set_mask(&raw const before, null_mut());
        result
    })
}

fn set_mask(new: *const u64, old: *mut u64) {
    // SAFETY: sets of the kernel's size, which the C library's function would change.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size_of::<u64>()) };
}
