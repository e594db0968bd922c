//! Two processes for a command that traces: the *client*, which the user started, and the *tracer*, in a session of its own.
//!
//! The client forwards its signals and waits. However the client ends, its end of the socket between them is closed. The tracer notices
//! this, and undoes all changes to traced processes, so that even `kill -9` of the client leaves nothing behind. Signals from the terminal
//! reach the client and the programs, which stay in its process group, but not the tracer.

use crate::launcher::{InheritedSignals, Launcher, is_signal_ignored};
use crate::system::check_call_result;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;

/// Which of the two processes this is.
#[derive(Debug)]
pub enum TracerSplit {
    /// The client, after the tracer has ended with this status.
    Client(ExitStatus),
    /// The tracer.
    Tracer(ClientLink, Arc<Launcher>),
}

/// A message from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// The client has received a signal.
    Signal {
        /// The signal.
        signal: i32,
        /// True if the terminal sent it to the whole process group.
        from_terminal: bool,
    },
    /// All signals received before [`ClientLink::synchronise`] have been forwarded.
    Synchronised,
}

/// The tracer's end of the socket.
#[derive(Debug)]
pub struct ClientLink(UnixStream);

/// Splits this process, which must have only one thread, into client and tracer. In the client, the function returns after the tracer has
/// ended.
///
/// # Errors
/// The limit on processes or descriptors is reached.
pub fn split_into_client_and_tracer() -> io::Result<TracerSplit> {
    let signals = InheritedSignals::now();
    let set = forwarded_signals();
    // SAFETY: `set` is valid, and the pointer for the old set is null.
    check_call_result(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) })?;
    // If the parent ignored SIGCHLD, the ends of children would not be reported.
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let (client, tracer) = UnixStream::pair()?;
    // SAFETY: this process has one thread, so that the child may call any function.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(client);
            let launcher = Launcher::fork(&signals)?;
            // SAFETY: the system call takes no pointers.
            check_call_result(unsafe { libc::setsid() })?;
            signals.restore_mask();
            Ok(TracerSplit::Tracer(ClientLink(tracer), launcher))
        }
        process => {
            drop(tracer);
            Ok(TracerSplit::Client(forward_signals(process, client, &set)?))
        }
    }
}

impl ClientLink {
    /// Duplicates the handle.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Waits for a message; `None` if the client has ended.
    pub fn receive(&mut self) -> Option<ClientMessage> {
        let mut message = [0; 2];
        self.0.read_exact(&mut message).ok()?;
        Some(match message {
            [0, _] => ClientMessage::Synchronised,
            [signal, from_terminal] => ClientMessage::Signal { signal: i32::from(signal), from_terminal: from_terminal != 0 },
        })
    }

    /// Asks the client to forward all signals that it has received so far.
    ///
    /// # Errors
    /// The client has ended.
    pub fn synchronise(&mut self) -> io::Result<()> {
        self.0.write_all(&[1])
    }
}

/// Returns the signals that the client forwards because they would otherwise end it, and SIGCHLD, which reports the end of the tracer.
/// Signals ignored from the start stay ignored, and the client's own faults are not forwarded.
fn forwarded_signals() -> libc::sigset_t {
    const SIGNALS_NOT_FORWARDED: [i32; 20] = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGCONT,
        libc::SIGURG,
        libc::SIGWINCH,
        libc::SIGPIPE,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGXFSZ,
        libc::SIGCHLD,
        libc::SIGABRT,
        // Used internally by the C library.
        32,
        33,
    ];
    // SAFETY: zero is the empty set, to which valid signals are added.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let all = (1..=libc::SIGRTMAX()).filter(|signal| !SIGNALS_NOT_FORWARDED.contains(signal) && !is_signal_ignored(*signal));
        for signal in all.chain([libc::SIGCHLD]) {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Forwards signals until the tracer has ended, and returns its status.
fn forward_signals(tracer: i32, mut socket: UnixStream, set: &libc::sigset_t) -> io::Result<ExitStatus> {
    // SAFETY: the reference guarantees a valid set, and the new descriptor is owned by the `OwnedFd` alone.
    let signals = unsafe {
        let signals = libc::signalfd(-1, set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        check_call_result(signals)?;
        OwnedFd::from_raw_fd(signals)
    };
    let mut polls_socket = true;
    loop {
        let waited = |descriptor: RawFd| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // Negative descriptors are ignored.
        let mut all = [waited(signals.as_raw_fd()), waited(if polls_socket { socket.as_raw_fd() } else { -1 })];
        // SAFETY: the pointer and the length describe `all`, which outlives the call.
        match check_call_result(unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, -1) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            waited => waited?,
        }
        let has_request = all[1].revents != 0;
        while let Some(information) = next_signal(&signals)? {
            if information.ssi_signo != libc::SIGCHLD as u32 {
                // SI_KERNEL means that no process has sent the signal.
                let from_terminal = information.ssi_code == 0x80;
                // Ignore an error: the tracer may just have ended.
                let _ = socket.write_all(&[information.ssi_signo as u8, u8::from(from_terminal)]);
            } else if let Some(status) = end_status(tracer)? {
                return Ok(ExitStatus::from_raw(status));
            }
        }
        if has_request {
            // All signals received before the request have been forwarded by now.
            polls_socket = socket.read_exact(&mut [0]).is_ok() && socket.write_all(&[0, 0]).is_ok();
        }
    }
}

fn next_signal(signals: &OwnedFd) -> io::Result<Option<libc::signalfd_siginfo>> {
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut information: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and the size are those of `information`, for which all bytes are valid.
    let read = unsafe { libc::read(signals.as_raw_fd(), (&raw mut information).cast(), size_of_val(&information)) };
    match (read, io::Error::last_os_error()) {
        (1.., _) => Ok(Some(information)),
        (_, error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        (_, error) => Err(error),
    }
}

/// Returns the wait status of a child, if it has ended.
fn end_status(child: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: the pointer refers to a local variable of the type that the kernel writes.
    let found = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
    check_call_result(found)?;
    Ok((found == child).then_some(status))
}
