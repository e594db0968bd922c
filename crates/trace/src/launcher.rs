//! Starts programs in the session, process group and terminal of the user, though the tracer has a session of its own.
//!
//! The launcher is a process that the tracer forks before it has threads and leaves the session. It starts a program on request, by
//! clone(2) with `CLONE_PARENT`: the program stays where the launcher is, and its parent is the tracer, which Yama's `ptrace_scope` 1 asks
//! for. The program waits at a gate until it is followed. The launcher ends with the tracer.

use crate::folder::{FolderBinding, bind};
use crate::system::{checked, pin};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// Descriptors of a request: the gate, the pipe for errors, and three streams.
const MAX_DESCRIPTORS: usize = 5;

/// A program that is to be started. It inherits what is not named here from the process that the user started.
#[derive(Debug)]
pub struct ProgramStart {
    /// Who starts it.
    pub launcher: Arc<Launcher>,
    /// Its file, or a name that is searched for in `PATH`.
    pub program: OsString,
    /// Its arguments, the name that it is called by first.
    pub arguments: Vec<OsString>,
    /// The whole environment, if it does not inherit one.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// Variables that are set, or removed, in the environment.
    pub variables: Vec<(OsString, Option<OsString>)>,
    /// Its working folder.
    pub directory: Option<OsString>,
    /// Standard input, output and error.
    pub streams: [Option<OwnedFd>; 3],
    /// A copy of a folder that it sees in the folder's place.
    pub folder: Option<FolderBinding>,
}

impl ProgramStart {
    /// The program of a command with its arguments, working folder, and changes of the environment. The command's streams are not known
    /// here.
    pub fn new(launcher: &Arc<Launcher>, command: &Command) -> Self {
        let program = command.get_program().to_owned();
        let arguments = [program.clone()].into_iter().chain(command.get_args().map(ToOwned::to_owned)).collect();
        let variables = command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        let directory = command.get_current_dir().map(|folder| folder.as_os_str().to_owned());
        let launcher = launcher.clone();
        Self { launcher, program, arguments, environment: None, variables, directory, streams: [None, None, None], folder: None }
    }

    /// Starts it; it waits at its gate.
    pub(crate) fn start(self, conditions: StartConditions) -> io::Result<Started> {
        let (gate, opener) = io::pipe()?;
        let (errors, error) = io::pipe()?;
        let streams = self.streams.each_ref().map(Option::is_some);
        let Self { launcher, program, arguments, environment, variables, directory, folder, .. } = self;
        let request = Request { program, arguments, environment, variables, directory, streams, folder, conditions };
        let given = self.streams.iter().flatten().map(AsRawFd::as_raw_fd);
        let descriptors: Vec<RawFd> = [gate.as_raw_fd(), error.as_raw_fd()].into_iter().chain(given).collect();
        let process = launcher.launch(&request, &descriptors)?;
        Ok(Started { process, opener, errors })
    }
}

/// What is set in the new process before it executes its program.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StartConditions {
    /// No address is random.
    pub fixed_addresses: bool,
    /// Reading the time stamp counter traps.
    pub fixed_clock: bool,
    /// The core that it runs on.
    pub core: Option<usize>,
}

/// A process that waits at its gate.
#[derive(Debug)]
pub struct Started {
    /// Its number.
    pub process: i32,
    opener: PipeWriter,
    errors: PipeReader,
}

impl Started {
    /// Lets it execute its program; gives the pipe that has the error if it cannot.
    pub fn open(mut self) -> StartErrors {
        // It may have been killed.
        let _ = self.opener.write_all(&[1]);
        StartErrors(self.errors)
    }
}

/// Why a program could not be executed.
#[derive(Debug)]
pub struct StartErrors(PipeReader);

impl StartErrors {
    /// The error; nothing if the process was killed, or executes its program.
    pub fn read(mut self) -> Option<io::Error> {
        let mut number = [0; 4];
        self.0.read_exact(&mut number).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
    }
}

/// What the user's shell has set of signals, which programs get.
#[derive(Clone, Copy)]
pub struct InheritedSignals {
    mask: libc::sigset_t,
    ignores_children: bool,
}

impl InheritedSignals {
    /// Those of this process.
    pub fn now() -> Self {
        // SAFETY: an empty set, which the kernel fills in.
        let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: no set is given, and one is written.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask) };
        Self { mask, ignores_children: is_ignored(libc::SIGCHLD) }
    }

    /// Lets the calling process have this mask.
    pub fn restore_mask(&self) {
        // SAFETY: the kernel reads a set.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, std::ptr::null_mut()) };
    }

    /// The same with what becomes of SIGCHLD; in a process that is about to execute a program.
    fn restore(&self) {
        if self.ignores_children {
            // SAFETY: no handler is set.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        }
        self.restore_mask();
    }
}

/// Whether this process ignores a signal.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no action is set; the kernel writes the structure.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
    known && action.sa_sigaction == libc::SIG_IGN
}

/// A process that starts programs.
#[derive(Debug)]
pub struct Launcher {
    socket: Mutex<UnixStream>,
    process: i32,
}

impl Launcher {
    /// Forks the launcher. It allocates memory: where this process has threads already, that is glibc's promise, not that of POSIX.
    ///
    /// # Errors
    /// There can be no more processes or descriptors.
    pub fn fork(signals: &InheritedSignals) -> io::Result<Arc<Self>> {
        let (own, other) = UnixStream::pair()?;
        // SAFETY: the child goes on in a function that never returns, and touches nothing of other threads.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(own);
                serve(&other, signals)
            }
            process => Ok(Arc::new(Self { socket: Mutex::new(own), process })),
        }
    }

    fn launch(&self, request: &Request, descriptors: &[RawFd]) -> io::Result<i32> {
        let socket = self.socket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let bytes = postcard::to_allocvec(request).map_err(io::Error::other)?;
        let mut answer = [0; 4];
        let asked = send(&socket, &bytes, descriptors).and_then(|()| (&*socket).read_exact(&mut answer));
        asked.map_err(|_| io::Error::other(format!("the process {} that starts programs has been killed", self.process)))?;
        match i32::from_ne_bytes(answer) {
            process @ 1.. => Ok(process),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let socket = self.socket.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        // It ends when there is no one left to ask it.
        let _ = socket.shutdown(std::net::Shutdown::Both);
        let _ = crate::ptrace::wait_child(self.process);
    }
}

#[derive(Serialize, Deserialize)]
struct Request {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Option<Vec<(OsString, OsString)>>,
    variables: Vec<(OsString, Option<OsString>)>,
    directory: Option<OsString>,
    /// Which of the three come with the request.
    streams: [bool; 3],
    folder: Option<FolderBinding>,
    conditions: StartConditions,
}

/// The launcher's life.
fn serve(socket: &UnixStream, signals: &InheritedSignals) -> ! {
    // It outlives what the terminal sends to its group; dispositions stay as they are, for the programs.
    // SAFETY: an empty set, which is then filled.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
    while let Ok((request, descriptors)) = receive(socket) {
        let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
        // SAFETY: as fork(2): no memory is shared, and the stack is a copy. This process has one thread.
        let answer = match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
            0 => execute(request, descriptors, *signals),
            -1 => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN),
            process => process as i32,
        };
        if (&*socket).write_all(&answer.to_ne_bytes()).is_err() {
            break;
        }
    }
    // SAFETY: ends this process, which has nothing to flush.
    unsafe { libc::_exit(0) }
}

/// Waits at the gate and executes the program; ends the process if it cannot.
fn execute(request: Request, descriptors: Vec<OwnedFd>, signals: InheritedSignals) -> ! {
    let mut descriptors = descriptors.into_iter();
    let (gate, error) = (descriptors.next(), descriptors.next());
    let failed = match gate {
        Some(gate) => request.execute(descriptors, gate.into(), signals),
        None => io::Error::from_raw_os_error(libc::EBADF),
    };
    let number = failed.raw_os_error().unwrap_or(libc::EINVAL);
    if let Some(error) = error {
        let _ = PipeWriter::from(error).write_all(&number.to_ne_bytes());
    }
    // SAFETY: ends this process, which has nothing to flush.
    unsafe { libc::_exit(127) }
}

impl Request {
    fn execute(self, mut given: impl Iterator<Item = OwnedFd>, mut gate: PipeReader, signals: InheritedSignals) -> io::Error {
        let Self { program, arguments, environment, variables, directory, streams, folder, conditions } = self;
        let mut command = Command::new(program);
        let mut arguments = arguments.into_iter();
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        command.args(arguments);
        if let Some(environment) = environment {
            command.env_clear().envs(environment);
        }
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = directory {
            command.current_dir(directory);
        }
        let mut stream = |is_given: bool| if is_given { given.next().map_or_else(Stdio::null, Stdio::from) } else { Stdio::inherit() };
        let [input, output, error] = streams.map(&mut stream);
        command.stdin(input).stdout(output).stderr(error);
        let prepare = move || {
            folder.iter().try_for_each(bind)?;
            conditions.set()?;
            gate.read_exact(&mut [0])?;
            signals.restore();
            Ok(())
        };
        // SAFETY: this process has one thread, and no other process shares its memory: it may do anything.
        unsafe { command.pre_exec(prepare) };
        command.exec()
    }
}

impl StartConditions {
    fn set(self) -> io::Result<()> {
        if self.fixed_addresses {
            // SAFETY: a system call without pointers.
            checked(unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) })?;
        }
        if self.fixed_clock {
            // SAFETY: a system call without pointers.
            checked(unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) })?;
        }
        self.core.map_or(Ok(()), pin)
    }
}

/// Room for the descriptors of a message, aligned as their header must be.
type Control = [u64; 8];

/// A message of four bytes with room for descriptors.
fn message(vector: &mut libc::iovec, control: &mut Control, length: usize) -> libc::msghdr {
    // SAFETY: plain numbers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = length;
    message
}

/// Sends a message with descriptors, which the receiver gets copies of (unix(7)).
fn send(mut socket: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let mut length = (bytes.len() as u64).to_ne_bytes();
    let mut vector = libc::iovec { iov_base: length.as_mut_ptr().cast(), iov_len: length.len() };
    let mut control = Control::default();
    let size = size_of_val(descriptors) as u32;
    assert!(descriptors.len() <= MAX_DESCRIPTORS, "a request has a gate, a pipe for errors and three streams");
    // SAFETY: arithmetic only.
    let space = unsafe { libc::CMSG_SPACE(size) } as usize;
    let message = message(&mut vector, &mut control, space);
    // SAFETY: the room holds a header and MAX_DESCRIPTORS descriptors.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size) as usize;
        std::ptr::copy_nonoverlapping(descriptors.as_ptr(), libc::CMSG_DATA(header).cast(), descriptors.len());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent != length.len() as isize {
        return Err(io::Error::last_os_error());
    }
    socket.write_all(bytes)
}

/// Receives a request with its descriptors.
fn receive(mut socket: &UnixStream) -> io::Result<(Request, Vec<OwnedFd>)> {
    let mut length = [0; 8];
    let mut vector = libc::iovec { iov_base: length.as_mut_ptr().cast(), iov_len: length.len() };
    let mut control = Control::default();
    let room = size_of_val(&control);
    let mut message = message(&mut vector, &mut control, room);
    let mut descriptors = Vec::new();
    // SAFETY: the kernel writes the message and the descriptors, which this process then owns.
    let received = unsafe {
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_WAITALL;
        let received = libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if received > 0 && !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let size = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
            let first: *const RawFd = libc::CMSG_DATA(header).cast();
            descriptors.extend((0..size / size_of::<RawFd>()).map(|n| OwnedFd::from_raw_fd(first.add(n).read_unaligned())));
        }
        received
    };
    if received != length.len() as isize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0; u64::from_ne_bytes(length) as usize];
    socket.read_exact(&mut bytes)?;
    Ok((postcard::from_bytes(&bytes).map_err(io::Error::other)?, descriptors))
}
