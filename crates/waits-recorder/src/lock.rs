//! A lock for what all threads of the process share.
//!
//! All signals are blocked while it is held: a handler of the program could leave by a jump, be a cancellation, or come back here.
//!
//! A thread that finds it held sleeps until it is released. One that yielded its processor instead would lose it to other programs for
//! a whole time slice where these want it, milliseconds for a lock that is held for microseconds.

use crate::output::keeping_errno;
use core::cell::UnsafeCell;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use syscalls::Sysno;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep until it is free.
const AWAITED: u32 = 2;
/// Attempts before a thread sleeps: about a microsecond.
const ATTEMPTS: u32 = 32;

/// A value, and the lock that guards it.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time uses the value.
unsafe impl<T> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Does `work` with the value. Leaves errno alone.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        without_signals(|| {
            self.acquire();
            // SAFETY: the lock is held.
            let result = work(unsafe { &mut *self.value.get() });
            if self.state.swap(FREE, Ordering::Release) == AWAITED {
                futex(&self.state, libc::FUTEX_WAKE, 1);
            }
            result
        })
    }

    fn acquire(&self) {
        for _ in 0..ATTEMPTS {
            if self.state.compare_exchange_weak(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
            core::hint::spin_loop();
        }
        // Others may sleep, too: it stays awaited until it is free.
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            futex(&self.state, libc::FUTEX_WAIT, AWAITED);
        }
    }

    /// Replaces the value in a forked child, which has no other thread: a holder in the parent does not exist here, and its change may
    /// be half done.
    pub fn begin_child(&self, value: T) -> T {
        // SAFETY: no other thread uses the value.
        let parents = core::mem::replace(unsafe { &mut *self.value.get() }, value);
        self.state.store(FREE, Ordering::Release);
        parents
    }
}

impl<T> Lock<T> {
    /// Keeps the value in a forked child: see [`Lock::begin_child`].
    pub fn keep_in_child(&self) {
        self.state.store(FREE, Ordering::Release);
    }
}

/// Sleeps while a word has this value, or wakes so many threads that sleep.
#[cold]
fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // Not by the C library's `syscall`, which this library records.
    // SAFETY: the word lives as long as the lock, and no time is given.
    unsafe { syscalls::raw_syscall!(Sysno::futex, word.as_ptr(), operation, value, null::<libc::timespec>(), 0, 0) };
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
