//! Starts programs in the session, process group and terminal of the user, although the tracer has a session of its own.
//!
//! The launcher is a process that the tracer forks before it has threads and leaves the session. On request it starts a program by
//! clone(2) with `CLONE_PARENT`: the program stays in the launcher's session, but its parent is the tracer, as Yama's `ptrace_scope` 1
//! requires. The program waits at a gate, a pipe, until it is traced. The launcher ends with the tracer.

use crate::folder::{FolderBinding, bind_folder_copy};
use crate::system::{check_call_result, pin_thread_to_core};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// Maximum number of descriptors in a request: the gate, the pipe for errors, and three streams.
const MAX_PASSED_DESCRIPTORS: usize = 5;

/// A program to be started. Any property that is not specified here is inherited from the process that the user started.
#[derive(Debug)]
pub struct ProgramStart {
    /// The launcher that starts the program.
    pub launcher: Arc<Launcher>,
    /// The program's file, or a name to be looked up in `PATH`.
    pub program: OsString,
    /// The arguments, starting with argument 0.
    pub arguments: Vec<OsString>,
    /// The complete environment; `None` if the program inherits one.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// Environment variables to be set or (`None`) removed.
    pub variables: Vec<(OsString, Option<OsString>)>,
    /// The working directory.
    pub directory: Option<OsString>,
    /// Standard input, output and error, if they are not inherited.
    pub streams: [Option<OwnedFd>; 3],
    /// A copy of a folder that the program sees in place of the original.
    pub folder: Option<FolderBinding>,
}

impl ProgramStart {
    /// Takes the program, arguments, working directory and environment changes from a command, but not its streams, which cannot be
    /// queried.
    pub fn new(launcher: &Arc<Launcher>, command: &Command) -> Self {
        let program = command.get_program().to_owned();
        let arguments = [program.clone()].into_iter().chain(command.get_args().map(ToOwned::to_owned)).collect();
        let variables = command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        let directory = command.get_current_dir().map(|folder| folder.as_os_str().to_owned());
        let launcher = launcher.clone();
        Self { launcher, program, arguments, environment: None, variables, directory, streams: [None, None, None], folder: None }
    }

    /// Starts the process, which waits at its gate (a pipe) until it is traced.
    pub(crate) fn start(self, conditions: ProgramStartConditions) -> io::Result<ProcessAtStartGate> {
        let (gate, opener) = io::pipe()?;
        let (errors, error) = io::pipe()?;
        let streams = self.streams.each_ref().map(Option::is_some);
        let Self { launcher, program, arguments, environment, variables, directory, folder, .. } = self;
        let request = Request { program, arguments, environment, variables, directory, streams, folder, conditions };
        let descriptors_of_streams = self.streams.iter().flatten().map(AsRawFd::as_raw_fd);
        let descriptors: Vec<RawFd> = [gate.as_raw_fd(), error.as_raw_fd()].into_iter().chain(descriptors_of_streams).collect();
        let process = launcher.launch(&request, &descriptors)?;
        Ok(ProcessAtStartGate { process, opener, errors })
    }
}

/// Properties of the new process that are set before it executes its program.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ProgramStartConditions {
    /// True if addresses are not randomised.
    pub fixed_addresses: bool,
    /// True if reading the time-stamp counter traps.
    pub fixed_clock: bool,
    /// The core that the process is bound to.
    pub core: Option<usize>,
}

/// A new process that waits at its gate (a pipe) before it executes its program.
#[derive(Debug)]
pub struct ProcessAtStartGate {
    pub process: i32,
    opener: PipeWriter,
    errors: PipeReader,
}

impl ProcessAtStartGate {
    /// Lets the process execute its program. Returns the pipe that carries the error if that fails.
    pub fn let_program_start(mut self) -> ErrorPipe {
        // Ignore an error: the process may have been killed.
        let _ = self.opener.write_all(&[1]);
        ErrorPipe(self.errors)
    }
}

/// The pipe for the error of a program that could not be executed.
#[derive(Debug)]
pub struct ErrorPipe(PipeReader);

impl ErrorPipe {
    /// Waits for the error. Returns `None` if the program was executed or the process was killed.
    pub fn read(mut self) -> Option<io::Error> {
        let mut number = [0; 4];
        self.0.read_exact(&mut number).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
    }
}

/// The signal state inherited from the user's shell, which programs are to inherit as well.
#[derive(Clone, Copy)]
pub struct InheritedSignals {
    mask: libc::sigset_t,
    ignores_children: bool,
}

impl InheritedSignals {
    /// Reads this process's signal state.
    pub fn now() -> Self {
        // SAFETY: zero is a valid set, which the kernel overwrites.
        let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer to a new set is null, and the kernel writes the old one to a valid set.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask) };
        Self { mask, ignores_children: is_signal_ignored(libc::SIGCHLD) }
    }

    /// Sets the calling process's signal mask.
    pub fn restore_mask(&self) {
        // SAFETY: `mask` is a valid set, and the pointer for the old set is null.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, std::ptr::null_mut()) };
    }

    /// Restores mask and disposition of SIGCHLD, in a process that is about to execute a program.
    fn restore(&self) {
        if self.ignores_children {
            // SAFETY: SIG_IGN installs no handler.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        }
        self.restore_mask();
    }
}

/// Returns true if this process ignores a signal.
pub fn is_signal_ignored(signal: i32) -> bool {
    // SAFETY: the structure consists of integers and null pointers, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer to a new action is null, and the kernel writes the old one to a valid structure.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
    known && action.sa_sigaction == libc::SIG_IGN
}

/// A connection to the process that starts programs.
#[derive(Debug)]
pub struct Launcher {
    socket: Mutex<UnixStream>,
    process: i32,
}

impl Launcher {
    /// Forks the launcher. The child allocates memory; if this process has several threads already, only glibc guarantees that this
    /// works, not POSIX.
    ///
    /// # Errors
    /// The limit on processes or descriptors is reached.
    pub fn fork(signals: &InheritedSignals) -> io::Result<Arc<Self>> {
        let (own, other) = UnixStream::pair()?;
        // SAFETY: the child continues in a function that never returns and does not touch other threads' state.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(own);
                serve_requests(&other, signals)
            }
            process => Ok(Arc::new(Self { socket: Mutex::new(own), process })),
        }
    }

    fn launch(&self, request: &Request, descriptors: &[RawFd]) -> io::Result<i32> {
        let socket = self.socket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let bytes = postcard::to_allocvec(request).map_err(io::Error::other)?;
        let mut answer = [0; 4];
        let asked = send_request(&socket, &bytes, descriptors).and_then(|()| (&*socket).read_exact(&mut answer));
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
        // The launcher ends when its socket is closed.
        let _ = socket.shutdown(std::net::Shutdown::Both);
        let _ = crate::ptrace::wait_for_child(self.process);
    }
}

#[derive(Serialize, Deserialize)]
struct Request {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Option<Vec<(OsString, OsString)>>,
    variables: Vec<(OsString, Option<OsString>)>,
    directory: Option<OsString>,
    /// For standard input, output and error: true if the descriptors contain the stream.
    streams: [bool; 3],
    folder: Option<FolderBinding>,
    conditions: ProgramStartConditions,
}

fn serve_requests(socket: &UnixStream, signals: &InheritedSignals) -> ! {
    // The launcher must survive signals that the terminal sends to its group. Dispositions stay unchanged, since programs inherit them.
    // SAFETY: zero is a valid set, which is then filled.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
    while let Ok((request, descriptors)) = receive_request(socket) {
        let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
        // SAFETY: like fork(2), this shares no memory and copies the stack. This process has one thread.
        let answer = match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
            0 => execute(request, descriptors, *signals),
            -1 => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN),
            process => process as i32,
        };
        if (&*socket).write_all(&answer.to_ne_bytes()).is_err() {
            break;
        }
    }
    // SAFETY: ending the process without cleanup is sound, and there is nothing to flush.
    unsafe { libc::_exit(0) }
}

/// Waits at the gate and executes the program. If that fails, reports the error and ends the process.
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
    // SAFETY: ending the process without cleanup is sound, and there is nothing to flush.
    unsafe { libc::_exit(127) }
}

impl Request {
    fn execute(
        self,
        mut descriptors_of_streams: impl Iterator<Item = OwnedFd>,
        mut gate: PipeReader,
        signals: InheritedSignals,
    ) -> io::Error {
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
        let mut stream = |has_descriptor: bool| {
            if has_descriptor { descriptors_of_streams.next().map_or_else(Stdio::null, Stdio::from) } else { Stdio::inherit() }
        };
        let [input, output, error] = streams.map(&mut stream);
        command.stdin(input).stdout(output).stderr(error);
        let prepare = move || {
            folder.iter().try_for_each(bind_folder_copy)?;
            conditions.set()?;
            gate.read_exact(&mut [0])?;
            signals.restore();
            Ok(())
        };
        // SAFETY: this process has one thread and shares no memory, so that the closure may do anything.
        unsafe { command.pre_exec(prepare) };
        command.exec()
    }
}

impl ProgramStartConditions {
    fn set(self) -> io::Result<()> {
        if self.fixed_addresses {
            // SAFETY: the system call takes no pointers.
            check_call_result(unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) })?;
        }
        if self.fixed_clock {
            // SAFETY: the system call takes no pointers.
            check_call_result(unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) })?;
        }
        self.core.map_or(Ok(()), pin_thread_to_core)
    }
}

/// Buffer for a message's descriptors, aligned for their header.
type ControlMessageBuffer = [u64; 8];

/// Builds the header of a message with one buffer and room for descriptors.
fn message_header(vector: &mut libc::iovec, control: &mut ControlMessageBuffer, length: usize) -> libc::msghdr {
    // SAFETY: the structure consists of integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = length;
    message
}

/// Sends a length-prefixed message with descriptors, which are duplicated for the receiver (unix(7)).
fn send_request(mut socket: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let mut length = (bytes.len() as u64).to_ne_bytes();
    let mut vector = libc::iovec { iov_base: length.as_mut_ptr().cast(), iov_len: length.len() };
    let mut control = ControlMessageBuffer::default();
    let size = size_of_val(descriptors) as u32;
    assert!(descriptors.len() <= MAX_PASSED_DESCRIPTORS, "a request has a gate, a pipe for errors and three streams");
    // SAFETY: the function only computes a size from its argument.
    let space = unsafe { libc::CMSG_SPACE(size) } as usize;
    let message = message_header(&mut vector, &mut control, space);
    // SAFETY: `control` holds a header and MAX_PASSED_DESCRIPTORS descriptors, and all pointers in `message` are valid.
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

fn receive_request(mut socket: &UnixStream) -> io::Result<(Request, Vec<OwnedFd>)> {
    let mut length = [0; 8];
    let mut vector = libc::iovec { iov_base: length.as_mut_ptr().cast(), iov_len: length.len() };
    let mut control = ControlMessageBuffer::default();
    let room = size_of_val(&control);
    let mut message = message_header(&mut vector, &mut control, room);
    let mut descriptors = Vec::new();
    // SAFETY: all pointers in `message` are valid, and the kernel fills in the descriptors, which this process then owns.
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
