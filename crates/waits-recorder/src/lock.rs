//! A lock for data that all threads of the process share.
//!
//! All signals are blocked while a thread holds the lock, because a signal handler of the program could jump out, cancel the thread, or
//! call this library again. A thread that finds the lock held sleeps in the kernel. If it only yielded the processor, an unrelated program
//! could run for a full time slice of milliseconds, although the lock is held for microseconds.

use crate::output::preserving_errno;
use core::cell::UnsafeCell;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use syscalls::Sysno;

const LOCK_FREE: u32 = 0;
const LOCK_HELD: u32 = 1;
/// The state of a lock that is held while other threads may sleep until it is free.
const LOCK_AWAITED: u32 = 2;
/// Number of times that a thread tries to acquire the lock before it sleeps. The attempts take about a microsecond.
const MAX_LOCK_ATTEMPTS: u32 = 32;

pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that holds the lock accesses the value.
unsafe impl<T> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock { state: AtomicU32::new(LOCK_FREE), value: UnsafeCell::new(value) }
    }

    /// Acquires the lock and calls `work` with the value that it guards. Preserves errno.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        without_signals(|| {
            self.acquire();
            // SAFETY: the lock is held, so no other thread accesses the value.
            let result = work(unsafe { &mut *self.value.get() });
            if self.state.swap(LOCK_FREE, Ordering::Release) == LOCK_AWAITED {
                futex(&self.state, libc::FUTEX_WAKE, 1);
            }
            result
        })
    }

    fn acquire(&self) {
        for _ in 0..MAX_LOCK_ATTEMPTS {
            if self.state.compare_exchange_weak(LOCK_FREE, LOCK_HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
            core::hint::spin_loop();
        }
        // The state stays `LOCK_AWAITED` while this thread holds the lock, because further threads may be asleep.
        while self.state.swap(LOCK_AWAITED, Ordering::Acquire) != LOCK_FREE {
            futex(&self.state, libc::FUTEX_WAIT, LOCK_AWAITED);
        }
    }

    /// In a forked child, replaces the value and frees the lock. The thread that held the lock in the parent does not exist in the child,
    /// and may have left the value inconsistent. Returns the old value.
    pub fn reset_in_child(&self, value: T) -> T {
        // SAFETY: a forked child has no other thread.
        let parents = core::mem::replace(unsafe { &mut *self.value.get() }, value);
        self.state.store(LOCK_FREE, Ordering::Release);
        parents
    }
}

impl<T> Lock<T> {
    /// Frees the lock in a forked child, but keeps the value. See [`Lock::reset_in_child`].
    pub fn unlock_in_child(&self) {
        self.state.store(LOCK_FREE, Ordering::Release);
    }
}

/// Performs a futex operation: FUTEX_WAIT sleeps while `word` equals `value`; FUTEX_WAKE wakes up to `value` sleeping threads.
#[cold]
fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    // A raw system call is used because this library wraps and records the C function `syscall`.
    // SAFETY: the word lives as long as the lock, and there is no timeout.
    unsafe { syscalls::raw_syscall!(Sysno::futex, word.as_ptr(), operation, value, null::<libc::timespec>(), 0, 0) };
}

/// Gives the processor to the thread that the caller waits for. After some tries, sleeps instead, because a thread with a lower priority
/// would never run while the caller is runnable.
pub fn yield_or_sleep(tries: &mut u32) {
    const MAX_YIELDS: u32 = 64;
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
    *tries += 1;
    // SAFETY: neither system call writes memory, and the second reads a valid time.
    unsafe {
        if *tries < MAX_YIELDS {
            libc::sched_yield();
        } else {
            *tries = MAX_YIELDS;
            libc::syscall(libc::SYS_nanosleep, &raw const pause, null_mut::<libc::timespec>());
        }
    }
}

/// Runs `work` with all signals blocked, including those that the C library uses. Preserves errno.
pub fn without_signals<R>(work: impl FnOnce() -> R) -> R {
    preserving_errno(|| {
        let (all, mut before) = (u64::MAX, 0u64);
        set_mask(&raw const all, &raw mut before);
        let result = work();
        set_mask(&raw const before, null_mut());
        result
    })
}

fn set_mask(new: *const u64, old: *mut u64) {
    // SAFETY: both pointers are null or refer to sets of the size that the kernel expects. The C library's own function would not block
    // the signals that it uses itself.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size_of::<u64>()) };
}
