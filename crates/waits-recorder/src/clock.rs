//! Time in *ticks*. A tick is one count of the time-stamp counter if its rate is constant, or else one nanosecond of the monotonic clock.
//!
//! The counter is preferred because each recorded call is timed twice: reading the counter takes about 8 ns, reading the clock 25 ns.

use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN_TICK_SOURCE: u8 = 0;
const CYCLE_COUNTER_SOURCE: u8 = 1;
const KERNEL_CLOCK_SOURCE: u8 = 2;
static TICK_SOURCE: AtomicU8 = AtomicU8::new(UNKNOWN_TICK_SOURCE);

#[inline]
pub fn now_in_ticks() -> u64 {
    match TICK_SOURCE.load(Ordering::Relaxed) {
        // SAFETY: every x86-64 processor supports the instruction.
        #[cfg(target_arch = "x86_64")]
        CYCLE_COUNTER_SOURCE => unsafe { core::arch::x86_64::_rdtsc() },
        KERNEL_CLOCK_SOURCE => monotonic_ns(),
        _ => {
            TICK_SOURCE.store(if has_constant_counter() { CYCLE_COUNTER_SOURCE } else { KERNEL_CLOCK_SOURCE }, Ordering::Relaxed);
            now_in_ticks()
        }
    }
}

/// Returns true if ticks are counts of the time-stamp counter, and false if they are nanoseconds.
pub fn uses_cycle_counter() -> bool {
    now_in_ticks();
    TICK_SOURCE.load(Ordering::Relaxed) == CYCLE_COUNTER_SOURCE
}

pub fn monotonic_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Returns the time in nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    read_clock(libc::CLOCK_REALTIME)
}

/// Returns the processor time in ns that the calling thread has used.
pub fn thread_cpu_ns() -> u64 {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the calling thread's number of voluntary context switches.
pub fn voluntary_switches() -> i64 {
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer refers to the local variable `usage`.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw
}

/// Returns the current time both in ticks and in ns of the monotonic clock. Of three pairs of readings, returns the pair that was read
/// fastest.
pub fn read_clock_anchor() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..3 {
        let (before, ns, after) = (now_in_ticks(), monotonic_ns(), now_in_ticks());
        let spread = after.wrapping_sub(before);
        if spread < best.0 {
            best = (spread, before + spread / 2, ns);
        }
    }
    (best.1, best.2)
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer refers to the local variable `time`.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(target_arch = "x86_64")]
fn has_constant_counter() -> bool {
    use core::arch::x86_64::__cpuid;
    // Bit 8 of edx in CPUID leaf 0x80000007 means that the counter's rate is the same in all power states.
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_constant_counter() -> bool {
    false
}
