//! System calls that several collectors make, beside ptrace(2).

use std::io;

/// What a system call says that gives -1 if it failed.
pub fn checked(result: impl Into<libc::c_long>) -> io::Result<()> {
    if result.into() == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends a signal, also one without a name, to a process.
///
/// # Errors
/// It has ended, or is not ours.
pub fn send_signal(process: i32, signal: i32) -> io::Result<()> {
    // SAFETY: a system call without pointers.
    checked(unsafe { libc::kill(process, signal) })
}

/// A thread that may wait for processes.
#[derive(Clone, Copy, Debug)]
pub struct SignalWait(i32);

impl SignalWait {
    /// The calling thread. From now on SIGURG interrupts waits of this process and does nothing else, as it did nothing before.
    pub fn from_this_thread() -> Self {
        extern "C" fn nothing(_: i32) {}
        // SAFETY: plain numbers, for which zeros are valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        // SAFETY: the handler does nothing, and the structure is whole; no SA_RESTART, so that waits end.
        unsafe { libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()) };
        // SAFETY: a system call without pointers.
        Self(unsafe { libc::gettid() })
    }

    /// Ends its wait, if it waits.
    pub fn interrupt(self) {
        // SAFETY: a system call without pointers.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGURG) };
    }
}

/// Binds the calling thread to one core.
///
/// # Errors
/// There is no such core for this process.
pub fn pin(core: usize) -> io::Result<()> {
    // SAFETY: a set of zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes within the set; cores above its size are ignored.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the kernel reads the set.
    checked(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) })
}

/// Lets a thread run on all cores that this program was started on. One that is gone is none any more.
pub fn unpin(thread: i32) {
    // SAFETY: a set of zeros is an empty set, which the kernel fills in.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // The thread that follows is pinned itself; the program's first one is not.
    // SAFETY: the kernel writes the set, and reads it.
    unsafe {
        libc::sched_getaffinity(libc::getpid(), size_of_val(&set), &raw mut set);
        libc::sched_setaffinity(thread, size_of_val(&set), &raw const set);
    }
}

/// The cores that the calling thread may run on.
pub fn cores() -> Vec<usize> {
    // SAFETY: a set of zeros is an empty set, which the kernel fills in.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the set.
    unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    // SAFETY: reads within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}
