//! The system calls: ptrace(2), wait(2). Signals are plain numbers, because real-time signals have no names.

use std::io;

/// What a process is asked to report: new processes and threads, and new programs.
const OPTIONS: i32 = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;

/// What was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessChange {
    /// It ended; the status as wait(2) has it.
    Ended(i32),
    /// It is about to get a signal.
    Signal(i32),
    /// It is another program from now on.
    Exec,
    /// It has made a process or thread.
    Fork,
    /// It has just been made, or goes on after it was stopped.
    Begun,
    /// Its whole group is stopped by a signal, until another lets it go on.
    GroupStop,
}

/// Follows a process and all that it makes, from now on; it is not stopped.
pub fn seize(process: i32) -> io::Result<()> {
    // SAFETY: the kernel reads no memory for this request.
    check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, process, 0usize, OPTIONS as usize) })
}

/// Lets a stopped process go on, with a signal or (0) without. One that is gone by now is no error.
pub fn go_on(process: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the kernel reads no memory for this request.
    present(check(unsafe { libc::ptrace(libc::PTRACE_CONT, process, 0usize, signal as usize) }))
}

/// Leaves a process stopped with its group, but waits for what happens to it.
pub fn stay_stopped(process: i32) -> io::Result<()> {
    // SAFETY: the kernel reads no memory for this request.
    present(check(unsafe { libc::ptrace(libc::PTRACE_LISTEN, process, 0usize, 0usize) }))
}

/// The number of the process or thread that was made.
pub fn made(process: i32) -> Option<i32> {
    let mut number: libc::c_ulong = 0;
    // SAFETY: the kernel writes one word to where the pointer says.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, process, 0usize, &raw mut number) };
    check(result).ok().and_then(|()| i32::try_from(number).ok())
}

/// Waits until something happens to a process that this thread follows; `None` when there is none any more.
pub fn wait() -> io::Result<Option<(i32, ProcessChange)>> {
    wait_for(-1, 0)
}

/// Whether something has happened to one process, without waiting.
pub fn poll(process: i32) -> io::Result<Option<(i32, ProcessChange)>> {
    let mut information: libc::siginfo_t = zeroed();
    // Only stops: the end of the process is awaited by its parent.
    let options = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WNOTHREAD;
    // SAFETY: the kernel fills in the structure.
    let result = unsafe { libc::waitid(libc::P_PID, process as libc::id_t, &raw mut information, options) };
    // SAFETY: a structure of zeros, or what the kernel made of it, is valid.
    if result != 0 || unsafe { information.si_pid() } == 0 {
        return Ok(None);
    }
    wait_for(process, libc::WNOHANG)
}

fn zeroed<T>() -> T {
    // SAFETY: used for `siginfo_t` and `sigaction`, plain numbers for which zeros are valid.
    unsafe { std::mem::zeroed() }
}

fn wait_for(process: i32, options: i32) -> io::Result<Option<(i32, ProcessChange)>> {
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes one number to where the pointer says.
        let found = unsafe { libc::waitpid(process, &raw mut status, libc::__WALL | libc::__WNOTHREAD | options) };
        match (found, io::Error::last_os_error().raw_os_error()) {
            (1.., _) => return Ok(Some((found, change(status)))),
            (0, _) | (_, Some(libc::ECHILD)) => return Ok(None),
            (_, Some(libc::EINTR)) => {}
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

fn change(status: i32) -> ProcessChange {
    if !libc::WIFSTOPPED(status) {
        return ProcessChange::Ended(status);
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 => ProcessChange::Signal(signal),
        libc::PTRACE_EVENT_EXEC => ProcessChange::Exec,
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => ProcessChange::Fork,
        _ if signal == libc::SIGTRAP => ProcessChange::Begun,
        _ => ProcessChange::GroupStop,
    }
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Another process may have killed it meanwhile; its end will be reported.
fn present(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|e| if e.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(e) })
}

/// Closes a descriptor that a forked child has inherited.
pub fn close(descriptor: i32) {
    // SAFETY: called in a forked child on a descriptor that nothing there owns.
    unsafe { libc::close(descriptor) };
}

/// A thread that may wait for processes.
#[derive(Clone, Copy, Debug)]
pub struct SignalWait(i32);

impl SignalWait {
    /// The calling thread. From now on SIGURG interrupts waits of this process and does nothing else, as it did nothing before.
    pub fn from_this_thread() -> Self {
        extern "C" fn nothing(_: i32) {}
        let mut action: libc::sigaction = zeroed();
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
