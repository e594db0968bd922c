//! Hides the signal of the sampler from the program.
//!
//! The sampler uses a real-time signal that the program does not use, and hides it as the C library hides its own signals: if the program
//! blocks all signals or waits for all of them, the sampler's signal is left out. If the program still installs a handler for this signal,
//! that handler is called for each occurrence that the sampler did not cause.

use crate::real::{RealFunction, real};
use core::ffi::{c_int, c_void};
use core::mem::{transmute, zeroed};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use libc::{siginfo_t, sigset_t};

type LibcSignalAction = libc::sigaction;
type SignalHandler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// The sampler's signal; 0 until it is chosen.
static SAMPLER_SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The handler that the program has installed for the sampler's signal, its flags, and the signals that are blocked while it runs.
static PROGRAM_SIGNAL_HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static PROGRAM_SIGNAL_FLAGS: AtomicI32 = AtomicI32::new(0);
static PROGRAM_SIGNAL_MASK: AtomicU64 = AtomicU64::new(0);
static SAMPLER_HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Returns a value that the sampler's timers pass with their signals. It distinguishes them from signals that the program sends.
fn timer_signal_value() -> *mut c_void {
    (&raw const SAMPLER_SIGNAL).cast_mut().cast()
}

/// Chooses the highest real-time signal with the default action, and installs `sampler` as its handler. Returns the signal's number and the
/// value that timers must pass with it; `None` if no signal is free.
pub fn install_sampler_handler(sampler: SignalHandler) -> Option<(c_int, *mut c_void)> {
    let is_free = |signal: &c_int| query_action(*signal).is_some_and(|action| action.sa_sigaction == libc::SIG_DFL);
    let signal = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(is_free)?;
    SAMPLER_HANDLER.store(sampler as usize, Ordering::Release);
    if !install_own_handler(signal, libc::SA_RESTART) {
        return None;
    }
    SAMPLER_SIGNAL.store(signal, Ordering::Release);
    Some((signal, timer_signal_value()))
}

/// Unblocks the sampler's signal in the calling thread if the thread blocks all real-time signals.
pub fn unblock_sampler_signal() {
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut blocked: sigset_t = unsafe { zeroed() };
    change_signal_mask(libc::SIG_BLOCK, null(), &raw mut blocked);
    if let Some(others) = remove_sampler_signal(&blocked) {
        change_signal_mask(libc::SIG_SETMASK, &raw const others, null_mut());
    }
}

fn query_action(signal: c_int) -> Option<LibcSignalAction> {
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut action: LibcSignalAction = unsafe { zeroed() };
    (call_real_sigaction(signal, null(), &raw mut action) == 0).then_some(action)
}

fn install_own_handler(signal: c_int, flags: c_int) -> bool {
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut action: LibcSignalAction = unsafe { zeroed() };
    action.sa_sigaction = handle_signal as *const () as usize;
    // The handler does not use the thread's alternate signal stack, because that may be too small for unwinding (8 KiB in Rust's threads).
    action.sa_flags = libc::SA_SIGINFO | flags & libc::SA_RESTART;
    call_real_sigaction(signal, &raw const action, null_mut()) == 0
}

fn call_real_sigaction(signal: c_int, new: *const LibcSignalAction, old: *mut LibcSignalAction) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"sigaction");
    real!(REAL_FUNCTION, fn(c_int, *const LibcSignalAction, *mut LibcSignalAction) -> c_int, signal, new, old)
}

fn change_signal_mask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"pthread_sigmask");
    real!(REAL_FUNCTION, fn(c_int, *const sigset_t, *mut sigset_t) -> c_int, how, new, old)
}

extern "C" fn handle_signal(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a pointer to valid information about the signal.
    let (code, value) = unsafe { ((*information).si_code, (*information).si_value().sival_ptr) };
    if code == libc::SI_TIMER && value == timer_signal_value() {
        // SAFETY: `install_sampler_handler` stored a handler before any timer was created.
        let sampler = unsafe { transmute::<usize, SignalHandler>(SAMPLER_HANDLER.load(Ordering::Acquire)) };
        return sampler(signal, information, context);
    }
    forward_signal_to_program(signal, information, context);
}

/// Handles an instance of the sampler's signal that was not sent by one of the sampler's timers. Does what the program has requested for
/// this signal: ignores it, takes the default action, or calls the program's handler.
#[cold]
fn forward_signal_to_program(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    let (handler, flags) = (PROGRAM_SIGNAL_HANDLER.load(Ordering::Acquire), PROGRAM_SIGNAL_FLAGS.load(Ordering::Acquire));
    if handler == libc::SIG_IGN {
        return;
    }
    if handler == libc::SIG_DFL {
        // SAFETY: zero is a valid value for every field of this C structure.
        let default: LibcSignalAction = unsafe { zeroed() };
        call_real_sigaction(signal, &raw const default, null_mut());
        // The signal is delivered when this handler returns.
        // SAFETY: the calling thread exists.
        unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
        return;
    }
    if flags & libc::SA_RESETHAND != 0 {
        PROGRAM_SIGNAL_HANDLER.store(libc::SIG_DFL, Ordering::Release);
    }
    // SAFETY: zero is a valid value for every field of this C structure.
    let (mut blocked, mut before): (sigset_t, sigset_t) = unsafe { (zeroed(), zeroed()) };
    // SAFETY: the kernel's set is the first word of the C library's set.
    unsafe { (&raw mut blocked).cast::<u64>().write(PROGRAM_SIGNAL_MASK.load(Ordering::Acquire)) };
    change_signal_mask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
    // SAFETY: the program itself installed this handler. A handler that takes only the number ignores the other arguments.
    unsafe { transmute::<usize, SignalHandler>(handler)(signal, information, context) };
    change_signal_mask(libc::SIG_SETMASK, &raw const before, null_mut());
}

/// If the set contains all real-time signals, returns it without the sampler's signal. Otherwise returns `None`: if the set contains the
/// sampler's signal, the program has added it explicitly.
fn remove_sampler_signal(signals: &sigset_t) -> Option<sigset_t> {
    let signal = SAMPLER_SIGNAL.load(Ordering::Acquire);
    // SAFETY: the reference guarantees a valid set.
    let has = |signal: c_int| unsafe { libc::sigismember(signals, signal) } == 1;
    if signal == 0 || !(libc::SIGRTMIN()..=libc::SIGRTMAX()).all(has) {
        return None;
    }
    let mut others = *signals;
    // SAFETY: the set and the signal are valid.
    unsafe { libc::sigdelset(&raw mut others, signal) };
    Some(others)
}

/// Passes a set of signals to `call`. If the set contains all real-time signals, the sampler's signal is left out.
pub fn call_without_sampler_signal<R>(signals: Option<&sigset_t>, call: impl FnOnce(*const sigset_t) -> R) -> R {
    match signals.and_then(remove_sampler_signal) {
        Some(others) => call(&raw const others),
        None => call(signals.map_or(null(), core::ptr::from_ref)),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const LibcSignalAction, old: *mut LibcSignalAction) -> c_int {
    if signal == 0 || signal != SAMPLER_SIGNAL.load(Ordering::Acquire) {
        return call_real_sigaction(signal, new, old);
    }
    // SAFETY: by the caller's contract, the pointer is null or refers to an action, which is copied because `old` may be the same pointer.
    let new = unsafe { new.as_ref() }.copied();
    // SAFETY: by the caller's contract, the pointer is null or writable.
    if let Some(old) = unsafe { old.as_mut() } {
        // SAFETY: zero is a valid value for every field of this C structure.
        *old = unsafe { zeroed() };
        old.sa_sigaction = PROGRAM_SIGNAL_HANDLER.load(Ordering::Acquire);
        old.sa_flags = PROGRAM_SIGNAL_FLAGS.load(Ordering::Acquire);
        // SAFETY: the kernel's set is the first word of the C library's set.
        unsafe { (&raw mut old.sa_mask).cast::<u64>().write(PROGRAM_SIGNAL_MASK.load(Ordering::Acquire)) };
    }
    if let Some(new) = new {
        PROGRAM_SIGNAL_FLAGS.store(new.sa_flags, Ordering::Release);
        // SAFETY: as above.
        PROGRAM_SIGNAL_MASK.store(unsafe { (&raw const new.sa_mask).cast::<u64>().read() }, Ordering::Release);
        PROGRAM_SIGNAL_HANDLER.store(new.sa_sigaction, Ordering::Release);
        let is_handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&new.sa_sigaction);
        install_own_handler(signal, if is_handled { new.sa_flags } else { libc::SA_RESTART });
    }
    0
}

/// Defines wrappers of older functions that install a handler. `$flags` are the flags of `sigaction` that such a function implies.
macro_rules! handlers {
    ($($name:ident $flags:expr;)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($name));
            if signal == 0 || signal != SAMPLER_SIGNAL.load(Ordering::Acquire) {
                return real!(REAL_FUNCTION, fn(c_int, libc::sighandler_t) -> libc::sighandler_t, signal, handler);
            }
            // SAFETY: zero is a valid value for every field of this C structure.
            let (mut new, mut old): (LibcSignalAction, LibcSignalAction) = unsafe { (zeroed(), zeroed()) };
            new.sa_sigaction = handler;
            new.sa_flags = $flags;
            // SAFETY: both actions are local variables.
            unsafe { sigaction(signal, &raw const new, &raw mut old) };
            old.sa_sigaction
        }
    )* };
}
handlers! {
    signal libc::SA_RESTART;
    bsd_signal libc::SA_RESTART;
    ssignal libc::SA_RESTART;
    sysv_signal libc::SA_RESETHAND | libc::SA_NODEFER;
    __sysv_signal libc::SA_RESETHAND | libc::SA_NODEFER;
}

macro_rules! masks {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
            static REAL_FUNCTION: RealFunction = RealFunction::new(crate::real::name!($name));
            let call = |new| real!(REAL_FUNCTION, fn(c_int, *const sigset_t, *mut sigset_t) -> c_int, how, new, old);
            if how == libc::SIG_UNBLOCK {
                return call(new);
            }
            // SAFETY: by the caller's contract, the pointer is null or refers to a set.
            call_without_sampler_signal(unsafe { new.as_ref() }, call)
        }
    )* };
}
masks! { pthread_sigmask sigprocmask }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn signalfd(file: c_int, signals: *const sigset_t, flags: c_int) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"signalfd");
    // SAFETY: by the caller's contract, the pointer refers to a set.
    let signals = unsafe { signals.as_ref() };
    call_without_sampler_signal(signals, |signals| real!(REAL_FUNCTION, fn(c_int, *const sigset_t, c_int) -> c_int, file, signals, flags))
}
