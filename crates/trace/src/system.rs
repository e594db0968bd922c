//! System calls used by several collectors, apart from ptrace(2).

use std::io;

/// Turns the result -1 of a system call into its error.
pub fn check_call_result(result: impl Into<libc::c_long>) -> io::Result<()> {
    if result.into() == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends a signal, which may be a real-time signal, to a process.
///
/// # Errors
/// The process has ended, or this process may not signal it.
pub fn send_signal(process: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the system call takes no pointers.
    check_call_result(unsafe { libc::kill(process, signal) })
}

/// A thread whose waits for processes can be interrupted.
#[derive(Clone, Copy, Debug)]
pub struct SignalWait(i32);

impl SignalWait {
    /// Refers to the calling thread. From now on SIGURG, which had no effect before, interrupts waits of this process.
    pub fn from_this_thread() -> Self {
        extern "C" fn nothing(_: i32) {}
        // SAFETY: the structure consists of integers and null pointers, for which zero is valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        // SAFETY: the structure is fully initialised, and the handler is async-signal-safe since it does nothing. Without SA_RESTART,
        // waits are interrupted.
        unsafe { libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()) };
        // SAFETY: the system call takes no pointers.
        Self(unsafe { libc::gettid() })
    }

    /// Interrupts the thread if it is waiting.
    pub fn interrupt(self) {
        // SAFETY: the system call takes no pointers.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGURG) };
    }
}

/// Binds the calling thread to one core.
pub fn pin_thread_to_core(core: usize) -> io::Result<()> {
    // SAFETY: zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid; cores beyond its size are ignored.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the pointer and the size are those of `set`.
    check_call_result(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) })
}

/// Lets a thread run on all cores that this program was started on. A thread that is gone is ignored.
pub fn unpin_thread(thread: i32) {
    // SAFETY: zero is the empty set, which the kernel fills.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // The calling thread is pinned itself; the program's first thread is not.
    // SAFETY: the pointers and sizes are those of `set`.
    unsafe {
        libc::sched_getaffinity(libc::getpid(), size_of_val(&set), &raw mut set);
        libc::sched_setaffinity(thread, size_of_val(&set), &raw const set);
    }
}

/// Returns the cores that the calling thread may run on.
pub fn cores() -> Vec<usize> {
    // SAFETY: zero is the empty set, which the kernel fills.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and the size are those of `set`.
    unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    // SAFETY: cores below CPU_SETSIZE lie within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}
