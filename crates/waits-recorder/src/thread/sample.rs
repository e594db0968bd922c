//! Samples the code that a thread executes between its calls, because call stacks alone do not show functions that make no recorded calls.
//!
//! A timer of the thread's processor time sends a signal, which `signals.rs` handles. While a thread sleeps, the timer stands still, so it
//! does not interrupt blocking system calls. No samples are taken inside a recorded call. The kernel's own timer (often 250 Hz) limits the
//! sampling rate.

use super::{Thread, current_thread};
use crate::{clock, paths, process, signals, walk};
use core::mem::zeroed;
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use trodden_wire::waits::SampleRecord;

/// 0: not determined yet, 1: sampling is on, 2: sampling is off.
static SAMPLING_STATE: AtomicU8 = AtomicU8::new(0);
static SAMPLING_PERIOD_NS: AtomicU64 = AtomicU64::new(0);
/// The signal that the timers send, and the value that they pass with it.
static TIMER_SIGNAL: AtomicI32 = AtomicI32::new(0);
static TIMER_VALUE: AtomicUsize = AtomicUsize::new(0);
const DEFAULT_SAMPLES_PER_SECOND: u64 = 1000;

pub fn start_timer(thread: &mut Thread) {
    if SAMPLING_STATE.load(Ordering::Acquire) == 0 {
        SAMPLING_STATE.store(if prepare_sampling() { 1 } else { 2 }, Ordering::Release);
    }
    if SAMPLING_STATE.load(Ordering::Acquire) != 1 {
        return;
    }
    signals::unblock_sampler_signal();
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut event: libc::sigevent = unsafe { zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = TIMER_SIGNAL.load(Ordering::Relaxed);
    event.sigev_value.sival_ptr = TIMER_VALUE.load(Ordering::Relaxed) as *mut libc::c_void;
    event.sigev_notify_thread_id = thread.thread_id as i32;
    let mut timer: libc::timer_t = core::ptr::null_mut();
    // SAFETY: `event` and `timer` are local variables.
    if unsafe { libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut event, &raw mut timer) } != 0 {
        return;
    }
    let period = libc::timespec { tv_sec: 0, tv_nsec: SAMPLING_PERIOD_NS.load(Ordering::Relaxed) as i64 };
    let times = libc::itimerspec { it_interval: period, it_value: period };
    // SAFETY: the timer was just created.
    unsafe { libc::timer_settime(timer, 0, &raw const times, core::ptr::null_mut()) };
    thread.timer = Some(timer);
}

pub fn end_timer(thread: &mut Thread) {
    if let Some(timer) = thread.timer.take() {
        // SAFETY: the timer belongs to this thread and is deleted only once.
        unsafe { libc::timer_delete(timer) };
    }
}

fn prepare_sampling() -> bool {
    let rate = sampling_rate();
    if rate == 0 {
        process::append_note(b"sampling is off");
        return false;
    }
    SAMPLING_PERIOD_NS.store((1_000_000_000 / rate).clamp(1000, 999_999_999), Ordering::Relaxed);
    // Without this function, the unwinder acquires one of the dynamic linker's locks, which a signal handler must not do.
    // SAFETY: the name is a C string.
    if unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) }.is_null() {
        process::append_note(b"no samples: the C library is older than 2.35, so stacks cannot be unwound in signal handlers");
        return false;
    }
    // Unwinds once here, because the first use of the unwinder may load a library, which must not happen in a signal handler.
    walk::unwind_stack(0);
    paths::find_stream_function();
    let Some((signal, value)) = signals::install_sampler_handler(handle_timer) else {
        process::append_note(b"no samples: the program has a handler for every real-time signal");
        return false;
    };
    TIMER_SIGNAL.store(signal, Ordering::Relaxed);
    TIMER_VALUE.store(value as usize, Ordering::Relaxed);
    true
}

fn sampling_rate() -> u64 {
    // SAFETY: the name is a C string.
    let value = unsafe { libc::getenv(c"TRODDEN_WAITS_RATE".as_ptr()) };
    if value.is_null() {
        return DEFAULT_SAMPLES_PER_SECOND;
    }
    // SAFETY: values of environment variables are C strings.
    let text = unsafe { core::ffi::CStr::from_ptr(value) };
    text.to_str().ok().and_then(|t| t.parse().ok()).unwrap_or(DEFAULT_SAMPLES_PER_SECOND)
}

extern "C" fn handle_timer(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(thread) = current_thread() else { return };
    if thread.depth.get() != 0 {
        return;
    }
    thread.depth.set(1);
    // SAFETY: `__errno_location` points to the calling thread's errno. It is saved because the interrupted code may still need it.
    let error = unsafe { *libc::__errno_location() };
    record_sample(thread, context);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    thread.depth.set(0);
}

fn record_sample(thread: &mut Thread, context: *mut libc::c_void) {
    let time = clock::now_in_ticks();
    // SAFETY: the kernel passes the context of the interrupted thread.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let address = registers.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let address = registers.pc as usize;
    let position = paths::position_in_path_stream();
    let walk = walk::unwind_stack(address);
    let stack = thread.stacks.intern_stack(&walk.addresses[..walk.count]);
    if let Some(record) = thread.samples.next_record() {
        // SAFETY: the pointer refers to newly allocated space for one record.
        unsafe { record.write(SampleRecord { time, address: address as u64, stack, calls: thread.count, position }) };
    }
}
