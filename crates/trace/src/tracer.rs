//! Two processes for a command that traces: the one that the user started, its *client*, and the *tracer*, in a session of its own.
//!
//! The client forwards its signals and waits. However it ends, its end of their socket is closed then, so that the tracer notices and can
//! undo what it has changed in the processes that it follows: `kill -9` of the client leaves nothing behind. What the terminal sends
//! reaches the client and the programs, which stay in its process group, but not the tracer.

use crate::launcher::{InheritedSignals, Launcher, is_ignored};
use crate::system::checked;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;

/// Which of the two this process is.
#[derive(Debug)]
pub enum TracerSplit {
    /// The client; the tracer has ended.
    Client(ExitStatus),
    /// The tracer.
    Tracer(ClientLink, Arc<Launcher>),
}

/// What the client has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// It got a signal.
    Signal {
        /// Which.
        signal: i32,
        /// No process sent it: the terminal did, to the whole group.
        from_terminal: bool,
    },
    /// All signals that came before [`ClientLink::synchronise`] have been forwarded.
    Synchronised,
}

/// The tracer's end of the socket.
#[derive(Debug)]
pub struct ClientLink(UnixStream);

/// Splits this process, which must have one thread; the client comes back when the tracer has ended.
///
/// # Errors
/// There can be no more processes or descriptors.
pub fn split() -> io::Result<TracerSplit> {
    let signals = InheritedSignals::now();
    let set = forwarded();
    // SAFETY: the kernel reads a set.
    checked(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) })?;
    // Where its parent ignores it, the ends of children are not reported.
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let (client, tracer) = UnixStream::pair()?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(client);
            let launcher = Launcher::fork(&signals)?;
            // SAFETY: no pointers.
            checked(unsafe { libc::setsid() })?;
            signals.restore_mask();
            Ok(TracerSplit::Tracer(ClientLink(tracer), launcher))
        }
        process => {
            drop(tracer);
            Ok(TracerSplit::Client(forward(process, client, &set)?))
        }
    }
}

impl ClientLink {
    /// Another handle of the same socket.
    ///
    /// # Errors
    /// There can be no more descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Waits for a message; nothing if the client has ended.
    pub fn receive(&mut self) -> Option<ClientMessage> {
        let mut message = [0; 2];
        self.0.read_exact(&mut message).ok()?;
        Some(match message {
            [0, _] => ClientMessage::Synchronised,
            [signal, from_terminal] => ClientMessage::Signal { signal: i32::from(signal), from_terminal: from_terminal != 0 },
        })
    }

    /// Asks the client to forward all signals that it has got so far.
    ///
    /// # Errors
    /// It has ended.
    pub fn synchronise(&mut self) -> io::Result<()> {
        self.0.write_all(&[1])
    }
}

/// Signals that would end the client, and that it forwards instead; with the one that says that the tracer has ended. Those that it
/// inherits as ignored are ignored by all. Faults of its own are not forwarded.
fn forwarded() -> libc::sigset_t {
    const OTHERS: [i32; 20] = [
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
        // The C library's own.
        32,
        33,
    ];
    // SAFETY: an empty set, to which existing signals are added.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let all = (1..=libc::SIGRTMAX()).filter(|signal| !OTHERS.contains(signal) && !is_ignored(*signal));
        for signal in all.chain([libc::SIGCHLD]) {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Forwards signals until the tracer has ended; gives its status.
fn forward(tracer: i32, mut socket: UnixStream, set: &libc::sigset_t) -> io::Result<ExitStatus> {
    // SAFETY: the kernel reads the set, and gives a descriptor that nothing else owns.
    let signals = unsafe {
        let signals = libc::signalfd(-1, set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        checked(signals)?;
        OwnedFd::from_raw_fd(signals)
    };
    let mut asks = true;
    loop {
        let waited = |descriptor: RawFd| libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // A negative descriptor is passed over.
        let mut all = [waited(signals.as_raw_fd()), waited(if asks { socket.as_raw_fd() } else { -1 })];
        // SAFETY: the kernel reads and writes the two structures.
        match checked(unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, -1) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            waited => waited?,
        }
        let is_asked = all[1].revents != 0;
        while let Some(came) = next_signal(&signals)? {
            if came.ssi_signo != libc::SIGCHLD as u32 {
                // SI_KERNEL: from no process.
                let from_terminal = came.ssi_code == 0x80;
                // It may just have ended.
                let _ = socket.write_all(&[came.ssi_signo as u8, u8::from(from_terminal)]);
            } else if let Some(status) = ended(tracer)? {
                return Ok(ExitStatus::from_raw(status));
            }
        }
        if is_asked {
            // Everything that was sent before the question has been forwarded by now.
            asks = socket.read_exact(&mut [0]).is_ok() && socket.write_all(&[0, 0]).is_ok();
        }
    }
}

fn next_signal(signals: &OwnedFd) -> io::Result<Option<libc::signalfd_siginfo>> {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut came: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one structure at most.
    let read = unsafe { libc::read(signals.as_raw_fd(), (&raw mut came).cast(), size_of_val(&came)) };
    match (read, io::Error::last_os_error()) {
        (1.., _) => Ok(Some(came)),
        (_, error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        (_, error) => Err(error),
    }
}

/// The wait status of a child, if it has ended.
fn ended(child: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: the kernel writes one number.
    let found = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
    checked(found)?;
    Ok((found == child).then_some(status))
}
