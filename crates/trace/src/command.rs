//! The tracer process of a command that traces: the effect of signals that its client (the process that the user started) receives, and
//! when the tracer may end.
//!
//! | traced | effect of a signal |
//! |---|---|
//! | nothing (planning, merging) | ends the command |
//! | a running process | ends the trace, which is kept; a second signal ends the command |
//! | one run of a program | is passed to the program, unless the terminal has sent it there |
//! | several runs | is passed to the programs in the same way, and ends the command |
//! | children of a program that has ended | ends the traces, which are kept; a second signal ends the command |
//!
//! The end of the client also ends the command. Before the command ends, all processes are detached and restored, and temporary files
//! are removed. If a program's output passes through the tracer, the tracer waits for the program's end.

use crate::launcher::{InheritedSignals, Launcher};
use crate::system::send_signal;
use crate::tracer::{ClientLink, ClientMessage, TracerSplit, split_into_client_and_tracer};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use trodden_launch::temporary;

/// Exit status of a command whose client is gone, or whose tracer ended with neither an exit status nor a signal.
const FAILURE_EXIT_STATUS: u8 = 2;

/// Why a command cannot trace.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The tracer cannot be forked.
    #[error("cannot start the tracer process. Raise the limit on processes (`ulimit -u`), or end some processes")]
    Tracer(#[source] io::Error),
    /// The launcher cannot be forked.
    #[error("cannot start the launcher process. Raise the limit on processes (`ulimit -u`), or end some processes")]
    Launcher(#[source] io::Error),
    /// The connection to the client process cannot be duplicated.
    #[error(transparent)]
    Link(io::Error),
}

static TRACER_STATE: OnceLock<Tracer> = OnceLock::new();

struct Tracer {
    launcher: Arc<Launcher>,
    /// True once all collections must end.
    stop: AtomicBool,
    state: Mutex<CommandState>,
    synchronised: Condvar,
    /// The connection to the client; `None` if there is no separate tracer.
    client: Option<Mutex<ClientLink>>,
}

#[derive(Default)]
struct CommandState {
    runs: Vec<CommandRun>,
    next: u64,
    /// The status with which the command is to end as soon as possible.
    ending: Option<i32>,
    /// Number of times the client has reported that all its signals are forwarded.
    synchronisations: u64,
}

/// What the traced process is for the user, which decides how signals are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// The program that the command runs.
    Program,
    /// One of several runs of the program.
    Repetition,
    /// A process that was already running.
    Process,
    /// A process that another traced process has created.
    Child,
}

struct CommandRun {
    number: u64,
    role: RunKind,
    /// Receives the process id once the process has been started.
    process_receiver: Receiver<u32>,
    process: Option<u32>,
    early_signals: Vec<i32>,
    /// True if the process contains changes, such as breakpoints, that must be undone.
    is_changed: bool,
    /// True if the program's output passes through this process.
    has_pipes: bool,
}

/// Forks a tracer process that carries out `work`. The original process, its client, returns the tracer's exit status after the tracer has
/// ended. Must be called before any thread is created.
///
/// # Errors
/// The limit on processes is reached, or the work fails.
pub fn run_in_tracer_process<E: From<CommandError>>(work: impl FnOnce() -> Result<ExitCode, E>) -> Result<ExitCode, E> {
    match split_into_client_and_tracer().map_err(CommandError::Tracer)? {
        TracerSplit::Client(status) => {
            if let Some(signal) = status.signal() {
                log::warn!(
                    "signal {signal} killed the tracer (a child process of this command), so the traced process was killed as well or may \
                     still contain breakpoints. End or restart it"
                );
            }
            let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(i32::from(FAILURE_EXIT_STATUS));
            Ok(ExitCode::from(status as u8))
        }
        TracerSplit::Tracer(client, launcher) => {
            let messages = client.try_clone().map_err(CommandError::Link)?;
            set_up_tracer(launcher, Some(client));
            std::thread::spawn(move || handle_client_messages(messages));
            temporary::remove_folders_on_signals();
            work()
        }
    }
}

/// Allows this process to start and trace programs without a separate tracer, for trials and for runs on behalf of other machines. Must
/// be called before any thread is created.
///
/// # Errors
/// The limit on processes is reached.
pub fn trace_in_this_process() -> Result<(), CommandError> {
    set_up_tracer(Launcher::fork(&InheritedSignals::now()).map_err(CommandError::Launcher)?, None);
    Ok(())
}

fn set_up_tracer(launcher: Arc<Launcher>, client: Option<ClientLink>) {
    let client = client.map(Mutex::new);
    let tracer = Tracer { launcher, stop: AtomicBool::new(false), state: Mutex::default(), synchronised: Condvar::new(), client };
    let is_first = TRACER_STATE.set(tracer).is_ok();
    assert!(is_first, "a command splits once");
    temporary::set_signal_handler(handle_signal);
}

fn tracer() -> &'static Tracer {
    TRACER_STATE.get().expect("commands that trace call `run_in_tracer_process` or `trace_in_this_process` first")
}

/// Returns the launcher, which starts the programs to be traced.
pub fn launcher() -> &'static Arc<Launcher> {
    &tracer().launcher
}

/// Returns the flag that ends all collections once it is true.
pub fn stop() -> &'static AtomicBool {
    &tracer().stop
}

/// A run in progress.
#[derive(Debug)]
pub struct ActiveRun {
    number: u64,
    role: RunKind,
}

impl ActiveRun {
    /// Registers a run, and returns the channel for its process id. `changes` means that the process is modified until
    /// [`ActiveRun::mark_process_restored`].
    pub fn begin(role: RunKind, changes: bool, has_pipes: bool) -> (ActiveRun, Sender<u32>) {
        let mut state = tracer().state();
        while state.ending.is_some() {
            // The process exits once the other runs have ended, so no new run begins.
            drop(state);
            std::thread::park();
            state = tracer().state();
        }
        state.register_run(role, changes, has_pipes)
    }

    /// Registers a run of a process that an earlier run traces or has created. Returns `None` if the command is ending.
    pub fn begin_successor_run(process: u32) -> Option<ActiveRun> {
        let mut state = tracer().state();
        let is_program = state.runs.iter_mut().any(|run| run.role == RunKind::Program && run.process() == Some(process));
        let role = if is_program { RunKind::Program } else { RunKind::Child };
        let (run, sender) = state.ending.is_none().then(|| state.register_run(role, true, false))?;
        // The receiver is in the state that was just changed.
        let _ = sender.send(process);
        Some(run)
    }

    /// Returns true if the process is the program that the command has started.
    pub fn is_program(&self) -> bool {
        self.role == RunKind::Program
    }

    /// Returns the process id once the process runs.
    pub fn process(&self) -> Option<u32> {
        let mut state = tracer().state();
        state.runs.iter_mut().find(|run| run.number == self.number).and_then(CommandRun::process)
    }

    /// Notes that the process has ended, or has been detached and restored.
    pub fn mark_process_restored(&self) {
        let mut state = tracer().state();
        if let Some(run) = state.runs.iter_mut().find(|run| run.number == self.number) {
            run.is_changed = false;
            let process = run.process();
            run.early_signals.drain(..).for_each(|signal| forward_signal(process, signal));
        }
        state.exit_if_nothing_is_pending();
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        if self.role == RunKind::Program {
            // A signal that the terminal sent to both the program and the client before the program ended was meant for the program.
            // Receive it while this run is still registered.
            tracer().synchronise();
        }
        let mut state = tracer().state();
        state.runs.retain(|run| run.number != self.number);
        state.exit_if_nothing_is_pending();
    }
}

impl Tracer {
    fn state(&self) -> MutexGuard<'_, CommandState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn synchronise(&self) {
        let Some(client) = &self.client else { return };
        let before = self.state().synchronisations;
        let asked = client.lock().unwrap_or_else(PoisonError::into_inner).synchronise();
        let mut state = self.state();
        while asked.is_ok() && state.synchronisations == before {
            state = self.synchronised.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn handle_signal(&self, signal: i32, from_terminal: bool) {
        let mut state = self.state();
        let has = |role| state.runs.iter().any(|run| run.role == role);
        // Children that outlive the program get no signal from this command.
        if has(RunKind::Process) || has(RunKind::Child) && !has(RunKind::Program) {
            if self.stop.swap(true, Ordering::SeqCst) {
                state.ending.get_or_insert(128 + signal);
            }
            state.exit_if_nothing_is_pending();
            return;
        }
        for run in state.runs.iter_mut().filter(|run| !from_terminal && run.role != RunKind::Child) {
            match run.process() {
                Some(process) => forward_signal(Some(process), signal),
                None => run.early_signals.push(signal),
            }
        }
        if state.runs.iter_mut().any(|run| run.role == RunKind::Program && run.process().is_some()) {
            return;
        }
        self.stop.store(true, Ordering::SeqCst);
        if state.ending.replace(128 + signal).is_some() {
            // After a second signal, do not wait for output.
            state.runs.iter_mut().for_each(|run| run.has_pipes = false);
        }
        state.exit_if_nothing_is_pending();
    }

    fn handle_end_of_client(&self) {
        let mut state = self.state();
        self.stop.store(true, Ordering::SeqCst);
        state.ending.get_or_insert(i32::from(FAILURE_EXIT_STATUS));
        state.exit_if_nothing_is_pending();
    }
}

impl CommandRun {
    fn process(&mut self) -> Option<u32> {
        self.process = self.process.or_else(|| self.process_receiver.try_recv().ok());
        self.process
    }
}

/// Sends a signal to a process. Errors are ignored, since the process may just have ended.
fn forward_signal(process: Option<u32>, signal: i32) {
    process.into_iter().for_each(|process| _ = send_signal(process as i32, signal));
}

impl CommandState {
    fn register_run(&mut self, role: RunKind, is_changed: bool, has_pipes: bool) -> (ActiveRun, Sender<u32>) {
        let (sender, process_receiver) = channel();
        let number = self.next;
        self.next += 1;
        self.runs.push(CommandRun { number, role, process_receiver, process: None, early_signals: Vec::new(), is_changed, has_pipes });
        (ActiveRun { number, role }, sender)
    }

    /// Exits if an exit is requested and no process has changes to undo or output to pass on.
    fn exit_if_nothing_is_pending(&self) {
        if let Some(status) = self.ending
            && self.runs.iter().all(|run| !run.is_changed && !run.has_pipes)
        {
            let _removed = temporary::remove_all_temporary_folders();
            std::process::exit(status);
        }
    }
}

/// Handles a signal sent to this process. Returns false if this process is not a tracer.
fn handle_signal(signal: i32) -> bool {
    let tracer = TRACER_STATE.get().filter(|tracer| tracer.client.is_some());
    tracer.inspect(|tracer| tracer.handle_signal(signal, false)).is_some()
}

fn handle_client_messages(mut client: ClientLink) {
    while let Some(message) = client.receive() {
        match message {
            ClientMessage::Synchronised => {
                tracer().state().synchronisations += 1;
                tracer().synchronised.notify_all();
            }
            // Commands that handle signals themselves, such as jobs for other machines, receive the signal.
            ClientMessage::Signal { signal, .. } if temporary::is_removal_disabled() => {
                forward_signal(Some(std::process::id()), signal);
            }
            ClientMessage::Signal { signal, from_terminal } => tracer().handle_signal(signal, from_terminal),
        }
    }
    tracer().handle_end_of_client();
}
