//! Observes all programs that a command runs, by ptrace(2). No other means tells how a process ended that a different process started.
//!
//! A *program* begins when a process executes a file. It consists of that process and of the processes forked from it that execute no file
//! themselves, and its exit status is that of its first process. Processes are stopped only briefly, when they fork, execute a file or
//! receive a signal.
//!
//! A child's first stop may be reported before or after its parent's fork. If before, the parent is still stopped, and is the child's
//! parent in `/proc`; if after, the fork event has named the child. So the program of every process is known before it runs.

use crate::launcher::{ProgramStart, ProgramStartConditions};
use crate::privileged::{ProcessLackingPrivileges, privileged_file};
use crate::process_status::{explain_yama_restriction, may_trace_all_processes};
use crate::ptrace::{self, PtraceStop, ResumeMode, ignore_ended_thread};
use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

/// A program's number. Programs are numbered in the order in which they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(pub u64);

/// A program that was run.
#[derive(Clone, Debug)]
pub struct StartedProgram {
    /// The program's number.
    pub id: ProgramId,
    /// The program's arguments, starting with argument 0.
    pub command: Vec<String>,
    /// The program's initial working directory; empty if unknown.
    pub directory: String,
    /// The value of the requested environment variable, if it is set.
    pub variable: Option<String>,
    /// Time at which the program began.
    pub started: SystemTime,
    /// The run time of the program's first process.
    pub duration: Duration,
    /// The exit status of the program's first process; `None` if the process executed a different program, was released (no longer traced)
    /// because of its file's privileges, or outlived the command.
    pub ending: Option<ExitStatus>,
}

/// An event of a program.
#[derive(Debug)]
pub enum ProcessEvent {
    /// A process has left its program, because it ended, executed a different program, was released or outlived the command. In the first
    /// two cases, its memory has been unmapped.
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
    #[error("cannot start the program: {0}")]
    Start(io::Error),
    /// The system forbids tracing the program.
    #[error("cannot trace the program's processes: {0}. Check whether a sandbox or container forbids ptrace")]
    Forbidden(io::Error),
    /// Yama forbids tracing any process.
    #[error("cannot trace the program's processes: {0}")]
    Yama(String),
    /// The program would lose its privileges if it were traced.
    #[error("{} has {what}, which the kernel ignores while this user traces the program. Run trodden as root", path.display())]
    Privileged {
        /// The program's file.
        path: PathBuf,
        /// The privilege.
        what: &'static str,
    },
    /// A process can no longer be waited for.
    #[error("cannot trace the program's processes any further: {0}")]
    Lost(io::Error),
}

/// Arguments of [`follow`]: a command to run, and the receivers of its events.
pub struct FollowRequest<'a> {
    /// The command.
    pub command: ProgramStart,
    /// Name of the environment variable for [`StartedProgram::variable`].
    pub variable: &'a str,
    /// Receives the process id of the command once it runs.
    pub on_start: &'a mut dyn FnMut(u32),
    /// Receives the events.
    pub report: &'a mut dyn FnMut(ProcessEvent),
}

/// Runs a command to its end. Programs that outlive it remain traced by the calling thread, so call this in a thread of its own.
///
/// # Errors
/// The command cannot be started, or the system forbids tracing it.
pub fn follow(follow: FollowRequest) -> Result<ExitStatus, TraceError> {
    let FollowRequest { command, variable, on_start, report } = follow;
    let root = start_traced_program(command, ProgramStartConditions::default())?;
    on_start(root as u32);
    let mut tracker =
        ProgramTracker { variable, report, next: 0, program_of: HashMap::new(), created_by: HashMap::new(), running: HashMap::new() };
    tracker.begin_program(root);
    resume(root, 0)?;
    let mut is_root_released = false;
    loop {
        let waited = if is_root_released { ptrace::wait_with_child(root) } else { ptrace::wait_for_thread(-1) };
        let Some((process, change)) = waited.map_err(TraceError::Lost)? else {
            return Err(TraceError::Lost(io::Error::from_raw_os_error(libc::ECHILD)));
        };
        match change {
            PtraceStop::Ended(status) => {
                let status = ExitStatus::from_raw(status);
                tracker.record_departure(process, Some(status));
                if process == root {
                    tracker.finish_programs();
                    return Ok(status);
                }
                continue;
            }
            PtraceStop::Exec => {
                tracker.record_departure(process, None);
                tracker.begin_program(process);
                if release_unprivileged(process)? {
                    is_root_released |= process == root;
                    if process != root {
                        // Its end is not reported.
                        tracker.record_departure(process, None);
                    }
                    continue;
                }
            }
            PtraceStop::Created { child, .. } => tracker.handle_fork(process, child),
            PtraceStop::Interrupted => tracker.handle_first_stop(process),
            _ => {}
        }
        match change {
            PtraceStop::GroupStopped => ignore_ended_thread(ptrace::keep_thread_stopped(process)).map_err(TraceError::Lost)?,
            PtraceStop::Signal(signal) => resume(process, signal)?,
            _ => resume(process, 0)?,
        }
    }
}

/// Releases a process that has executed a file with privileges, which it would lack if it were traced. Returns true if it was released.
fn release_unprivileged(process: i32) -> Result<bool, TraceError> {
    let Some(unprivileged) = ProcessLackingPrivileges::find(process) else { return Ok(false) };
    match unprivileged.release() {
        Ok((is_released, message)) => {
            log::warn!("{message}");
            Ok(is_released)
        }
        Err(error) => ignore_ended_thread(Err(error)).map(|()| false).map_err(TraceError::Lost),
    }
}

/// Starts a program, and returns its process, which is stopped after `execve` and traced by the calling thread. The process waits at its
/// gate until it is traced, so that nothing of the program has run.
pub(crate) fn start_traced_program(program: ProgramStart, conditions: ProgramStartConditions) -> Result<i32, TraceError> {
    if let Some(why) = explain_yama_restriction() {
        return Err(TraceError::Yama(why));
    }
    check_needs_no_privileges(&program)?;
    let started = program.start(conditions).map_err(TraceError::Start)?;
    let process = started.process;
    if let Err(error) = ptrace::seize_thread(process, ptrace::TASK_EVENT_OPTIONS) {
        // Closing the gate ends the process.
        drop(started);
        let _ = ptrace::wait_for_child(process);
        return Err(TraceError::Forbidden(error));
    }
    let errors = started.let_program_start();
    loop {
        match ptrace::wait_for_thread(process).map_err(TraceError::Lost)? {
            Some((_, PtraceStop::Exec)) => return Ok(process),
            Some((_, PtraceStop::Signal(signal))) => resume(process, signal)?,
            Some((_, PtraceStop::GroupStopped)) => ignore_ended_thread(ptrace::keep_thread_stopped(process)).map_err(TraceError::Lost)?,
            Some((_, PtraceStop::Ended(status))) => {
                return Err(TraceError::Start(errors.read().unwrap_or_else(|| killed_by_signal_error(status))));
            }
            Some(_) => resume(process, 0)?,
            None => return Err(TraceError::Lost(io::Error::from_raw_os_error(libc::ECHILD))),
        }
    }
}

/// Checks that a program's file does not grant it a different user, group or capabilities that tracing would suppress.
fn check_needs_no_privileges(program: &ProgramStart) -> Result<(), TraceError> {
    if may_trace_all_processes() {
        return Ok(());
    }
    match privileged_file(&program.program, program.directory.as_deref()) {
        Some((path, what)) => Err(TraceError::Privileged { path, what }),
        None => Ok(()),
    }
}

/// Returns the error for a process that was killed before it executed its program.
fn killed_by_signal_error(status: i32) -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, format!("signal {} killed the process before the program began", libc::WTERMSIG(status)))
}

/// Resumes a stopped process and delivers `signal`, unless that is 0. A process that is gone is not an error.
fn resume(process: i32, signal: i32) -> Result<(), TraceError> {
    ignore_ended_thread(ptrace::resume_thread(process, ResumeMode::Continue, signal)).map_err(TraceError::Lost)
}

struct RunningProgram {
    program: StartedProgram,
    first: i32,
    processes: u64,
    clock: Instant,
}

struct ProgramTracker<'a> {
    variable: &'a str,
    report: &'a mut dyn FnMut(ProcessEvent),
    next: u64,
    program_of: HashMap<i32, ProgramId>,
    /// The parent's program of each new process or thread that has not stopped yet.
    created_by: HashMap<i32, ProgramId>,
    running: HashMap<ProgramId, RunningProgram>,
}

impl ProgramTracker<'_> {
    fn begin_program(&mut self, process: i32) {
        let id = ProgramId(self.next);
        self.next += 1;
        let program = StartedProgram {
            id,
            command: read_words(process, "cmdline"),
            directory: std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default().display().to_string(),
            variable: variable_value(&read_words(process, "environ"), self.variable),
            started: SystemTime::now(),
            duration: Duration::ZERO,
            ending: None,
        };
        self.running.insert(id, RunningProgram { program, first: process, processes: 1, clock: Instant::now() });
        self.program_of.insert(process, id);
    }

    /// Handles the stop of a process that has created a process or thread.
    fn handle_fork(&mut self, process: i32, created: i32) {
        let creator = self.program_of.get(&process).copied().or_else(|| self.program_of.get(&process_and_parent(process)?.0).copied());
        if let Some(program) = creator.filter(|_| !self.program_of.contains_key(&created)) {
            self.created_by.insert(created, program);
        }
    }

    /// Handles the stop of a process or thread before its first instruction, or after an interrupt.
    fn handle_first_stop(&mut self, process: i32) {
        let creator = self.created_by.remove(&process);
        if self.program_of.contains_key(&process) {
            return;
        }
        match process_and_parent(process) {
            // An additional thread belongs to the program of its process, which is known already.
            Some((leader, _)) if leader != process => {}
            Some((_, parent)) => match creator.or_else(|| self.program_of.get(&parent).copied()) {
                Some(program) => {
                    self.program_of.insert(process, program);
                    self.running.entry(program).and_modify(|r| r.processes += 1);
                }
                None => self.begin_program(process),
            },
            None => {}
        }
    }

    fn record_departure(&mut self, process: i32, ending: Option<ExitStatus>) {
        self.created_by.remove(&process);
        let Some(id) = self.program_of.remove(&process) else { return };
        (self.report)(ProcessEvent::Left { program: id, process: process as u32 });
        let Some(running) = self.running.get_mut(&id) else { return };
        running.processes -= 1;
        if running.first == process {
            running.program.ending = ending;
            running.program.duration = running.clock.elapsed();
            // The kernel may reuse the process id.
            running.first = 0;
        }
        if running.processes == 0
            && let Some(running) = self.running.remove(&id)
        {
            (self.report)(ProcessEvent::Ended(running.program));
        }
    }

    /// Handles the end of the command: reports that all remaining processes have left. They continue.
    fn finish_programs(&mut self) {
        let mut left: Vec<i32> = self.program_of.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().for_each(|process| self.record_departure(process, None));
    }
}

/// Reads a file in a process's `/proc` folder as zero-terminated words.
fn read_words(process: i32, file: &str) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
    let words = bytes.strip_suffix(&[0]).unwrap_or(&bytes).split(|b| *b == 0);
    words.map(|w| String::from_utf8_lossy(w).into_owned()).collect()
}

fn variable_value(environment: &[String], variable: &str) -> Option<String> {
    environment.iter().find_map(|entry| entry.strip_prefix(variable)?.strip_prefix('=')).map(str::to_owned)
}

/// Returns the process of a thread, and that process's parent.
fn process_and_parent(thread: i32) -> Option<(i32, i32)> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let number = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).and_then(|n| n.trim().parse().ok());
    Some((number("Tgid:")?, number("PPid:")?))
}
