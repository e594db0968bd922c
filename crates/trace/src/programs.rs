//! Every program that a command runs, by ptrace(2): nothing else says how a process ended that another one started.
//!
//! A *program* begins where a process executes a file and has that process and those it forks which execute nothing. It
//! ends as its first process does. Processes stop for the moment in which they fork, execute a file, or get a signal;
//! nothing else of them is touched.
//!
//! A child's first stop may be reported before its parent's fork or after it. If before, the parent is still stopped, and
//! the child's parent in `/proc` is the one that made it; if after, the fork has said so. Either way every process is
//! known with its program before it runs.

use crate::launcher::{ProgramStart, StartConditions};
use crate::process_status::{forbidden_by_yama, may_trace_all};
use crate::ptrace::{self, PtraceStop, Resume, unless_gone};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

/// A program's number, in the order in which they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(pub u64);

/// A program that ran.
#[derive(Clone, Debug)]
pub struct StartedProgram {
    /// Its number.
    pub id: ProgramId,
    /// Its arguments, the program's name first.
    pub command: Vec<String>,
    /// The folder it began in; empty if unknown.
    pub directory: String,
    /// Value of the variable that was asked for, if its environment has it.
    pub variable: Option<String>,
    /// When it began.
    pub started: SystemTime,
    /// How long its first process ran.
    pub duration: Duration,
    /// How its first process ended; `None` if it executed another program, or went on when the command ended.
    pub ending: Option<ExitStatus>,
}

/// What happens.
#[derive(Debug)]
pub enum ProcessEvent {
    /// The process has left its program: it has ended, or executes another. Its memory is unmapped (unless the
    /// command's end left it behind).
    Left {
        /// The program.
        program: ProgramId,
        /// The process.
        process: u32,
    },
    /// All processes of a program have left it, or the command has ended.
    Ended(StartedProgram),
}

/// Why processes cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The command cannot be started.
    #[error("it cannot be started: {0}")]
    Start(io::Error),
    /// The system forbids following it.
    #[error("its processes cannot be followed: {0} (a sandbox without ptrace?)")]
    Forbidden(io::Error),
    /// So does Yama, for all processes.
    #[error("its processes cannot be followed: {0}")]
    Yama(String),
    /// A traced program would lack what its file gives it.
    #[error("{} has {what}, which the kernel gives no program that is traced by this user: run it as root", path.display())]
    Privileged {
        /// The program.
        path: PathBuf,
        /// What it has.
        what: &'static str,
    },
    /// A process cannot be waited for any more.
    #[error("its processes cannot be followed any more: {0}")]
    Lost(io::Error),
}

/// What to run, and to whom events go.
pub struct Follow<'a> {
    /// The command.
    pub command: ProgramStart,
    /// The environment's variable that [`StartedProgram::variable`] has.
    pub variable: &'a str,
    /// Gets the number of the command's process as soon as it runs.
    pub begun: &'a mut dyn FnMut(u32),
    /// Gets what happens.
    pub report: &'a mut dyn FnMut(ProcessEvent),
}

/// Runs a command to its end. Programs that go on then are not followed any longer; they end when this thread does not
/// hold them, so call it in a thread of its own.
///
/// # Errors
/// The command cannot be started, or the system forbids following it.
pub fn follow(follow: Follow) -> Result<ExitStatus, TraceError> {
    let Follow { command, variable, begun, report } = follow;
    let root = start(command, StartConditions::default())?;
    begun(root as u32);
    let mut followed = Followed { variable, report, next: 0, of: HashMap::new(), made_by: HashMap::new(), running: HashMap::new() };
    followed.begin(root);
    go_on(root, 0)?;
    while let Some((process, change)) = ptrace::wait(-1).map_err(TraceError::Lost)? {
        match change {
            PtraceStop::Ended(status) => {
                let status = ExitStatus::from_raw(status);
                followed.leave(process, Some(status));
                if process == root {
                    followed.finish();
                    return Ok(status);
                }
                continue;
            }
            PtraceStop::Exec => {
                followed.leave(process, None);
                followed.begin(process);
            }
            PtraceStop::Made { child, .. } => followed.fork(process, child),
            PtraceStop::Begun => followed.join(process),
            _ => {}
        }
        match change {
            PtraceStop::GroupStopped => unless_gone(ptrace::listen(process)).map_err(TraceError::Lost)?,
            PtraceStop::Signal(signal) => go_on(process, signal)?,
            _ => go_on(process, 0)?,
        }
    }
    Err(TraceError::Lost(io::Error::from_raw_os_error(libc::ECHILD)))
}

/// Starts a program; gives its process, stopped where it begins. The calling thread follows it.
///
/// The process waits at its gate until it is followed, so that nothing of the program has run.
pub(crate) fn start(program: ProgramStart, conditions: StartConditions) -> Result<i32, TraceError> {
    if let Some(why) = forbidden_by_yama() {
        return Err(TraceError::Yama(why));
    }
    check_unprivileged(&program)?;
    let started = program.start(conditions).map_err(TraceError::Start)?;
    let process = started.process;
    if let Err(error) = ptrace::seize(process, ptrace::NEW_TASKS) {
        // A gate that is gone ends it.
        drop(started);
        let _ = ptrace::wait_child(process);
        return Err(TraceError::Forbidden(error));
    }
    let errors = started.open();
    loop {
        match ptrace::wait(process).map_err(TraceError::Lost)? {
            Some((_, PtraceStop::Exec)) => return Ok(process),
            Some((_, PtraceStop::Signal(signal))) => go_on(process, signal)?,
            Some((_, PtraceStop::GroupStopped)) => unless_gone(ptrace::listen(process)).map_err(TraceError::Lost)?,
            Some((_, PtraceStop::Ended(status))) => return Err(TraceError::Start(errors.read().unwrap_or_else(|| killed(status)))),
            Some(_) => go_on(process, 0)?,
            None => return Err(TraceError::Lost(io::Error::from_raw_os_error(libc::ECHILD))),
        }
    }
}

/// Refuses a program whose file gives it another user, group or capabilities, where being traced would keep them from it.
fn check_unprivileged(program: &ProgramStart) -> Result<(), TraceError> {
    if may_trace_all() {
        return Ok(());
    }
    match privileged_file(&program.program, program.directory.as_deref()) {
        Some((path, what)) => Err(TraceError::Privileged { path, what }),
        None => Ok(()),
    }
}

/// Finds the file of a command, if it gives its program another user, group or capabilities than this process has, and what it gives.
/// `directory`: the one that the program is to begin in, if another.
pub fn privileged_file(program: &OsStr, directory: Option<&OsStr>) -> Option<(PathBuf, &'static str)> {
    let path = find(program, directory)?;
    privilege(&path).map(|what| (path, what))
}

/// The file that is executed: as execvp(3) finds it.
fn find(program: &OsStr, directory: Option<&OsStr>) -> Option<PathBuf> {
    let name = Path::new(program);
    if program.as_bytes().contains(&b'/') {
        return Some(Path::new(directory.unwrap_or(OsStr::new(""))).join(name));
    }
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// What a file gives its program that this process does not have.
fn privilege(path: &Path) -> Option<&'static str> {
    let file = std::fs::metadata(path).ok()?;
    // SAFETY: system calls without pointers.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let executable_by_group = libc::S_ISGID | libc::S_IXGRP;
    let mut name = path.as_os_str().as_bytes().to_vec();
    name.push(0);
    // SAFETY: both are strings that end with a zero; nothing is written to a buffer of no bytes.
    let has_capabilities = || unsafe { libc::getxattr(name.as_ptr().cast(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 };
    // SAFETY: plain data, and a string that ends with a zero.
    let ignores = unsafe {
        let mut system: libc::statvfs = std::mem::zeroed();
        let is_known = libc::statvfs(name.as_ptr().cast(), &raw mut system) == 0;
        is_known && system.f_flag & libc::ST_NOSUID != 0 || libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1
    };
    match file.mode() {
        _ if ignores => None,
        mode if mode & libc::S_ISUID != 0 && file.uid() != user => Some("the setuid bit"),
        mode if mode & executable_by_group == executable_by_group && file.gid() != group => Some("the setgid bit"),
        // Root has them.
        _ if user != 0 && has_capabilities() => Some("capabilities (setcap)"),
        _ => None,
    }
}

/// A process was ended before it began its program.
fn killed(status: i32) -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, format!("signal {} ended it before it began", libc::WTERMSIG(status)))
}

/// Lets a stopped process go on, with a signal or (0) without. One that is gone by now is no error.
fn go_on(process: i32, signal: i32) -> Result<(), TraceError> {
    unless_gone(ptrace::resume(process, Resume::Continue, signal)).map_err(TraceError::Lost)
}

/// A program with processes.
struct Running {
    program: StartedProgram,
    first: i32,
    processes: u64,
    clock: Instant,
}

struct Followed<'a> {
    variable: &'a str,
    report: &'a mut dyn FnMut(ProcessEvent),
    next: u64,
    /// The program of each process.
    of: HashMap<i32, ProgramId>,
    /// Processes and threads that were made, but have not begun, with the program that made them.
    made_by: HashMap<i32, ProgramId>,
    running: HashMap<ProgramId, Running>,
}

impl Followed<'_> {
    /// A process executes a program.
    fn begin(&mut self, process: i32) {
        let id = ProgramId(self.next);
        self.next += 1;
        let program = StartedProgram {
            id,
            command: words(process, "cmdline"),
            directory: std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default().display().to_string(),
            variable: value(&words(process, "environ"), self.variable),
            started: SystemTime::now(),
            duration: Duration::ZERO,
            ending: None,
        };
        self.running.insert(id, Running { program, first: process, processes: 1, clock: Instant::now() });
        self.of.insert(process, id);
    }

    /// A process is about to go on after it made another.
    fn fork(&mut self, process: i32, made: i32) {
        let maker = self.of.get(&process).copied().or_else(|| self.of.get(&leader(process)?.0).copied());
        if let Some(program) = maker.filter(|_| !self.of.contains_key(&made)) {
            self.made_by.insert(made, program);
        }
    }

    /// A process or thread stands before its first instruction, or goes on after a stop.
    fn join(&mut self, process: i32) {
        let maker = self.made_by.remove(&process);
        if self.of.contains_key(&process) {
            return;
        }
        match leader(process) {
            // Of a thread.
            Some((leader, _)) if leader != process => {}
            Some((_, parent)) => match maker.or_else(|| self.of.get(&parent).copied()) {
                Some(program) => {
                    self.of.insert(process, program);
                    self.running.entry(program).and_modify(|r| r.processes += 1);
                }
                None => self.begin(process),
            },
            None => {}
        }
    }

    fn leave(&mut self, process: i32, ending: Option<ExitStatus>) {
        self.made_by.remove(&process);
        let Some(id) = self.of.remove(&process) else { return };
        (self.report)(ProcessEvent::Left { program: id, process: process as u32 });
        let Some(running) = self.running.get_mut(&id) else { return };
        running.processes -= 1;
        if running.first == process {
            running.program.ending = ending;
            running.program.duration = running.clock.elapsed();
            // Its number may be given to another.
            running.first = 0;
        }
        if running.processes == 0
            && let Some(running) = self.running.remove(&id)
        {
            (self.report)(ProcessEvent::Ended(running.program));
        }
    }

    /// The command has ended: what still runs is left alone.
    fn finish(&mut self) {
        let mut left: Vec<i32> = self.of.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().for_each(|process| self.leave(process, None));
    }
}

/// What `/proc` has of a process as words, each with a zero behind it.
fn words(process: i32, file: &str) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
    let words = bytes.strip_suffix(&[0]).unwrap_or(&bytes).split(|b| *b == 0);
    words.map(|w| String::from_utf8_lossy(w).into_owned()).collect()
}

fn value(environment: &[String], variable: &str) -> Option<String> {
    environment.iter().find_map(|entry| entry.strip_prefix(variable)?.strip_prefix('=')).map(str::to_owned)
}

/// The process that a thread belongs to, and that one's parent.
fn leader(thread: i32) -> Option<(i32, i32)> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let number = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).and_then(|n| n.trim().parse().ok());
    Some((number("Tgid:")?, number("PPid:")?))
}
