//! The tracer's side of a command that traces: what its client's signals mean, and when it may end.
//!
//! | what is traced | a signal |
//! |---|---|
//! | nothing (planning, merging) | ends the command |
//! | a process that ran before | ends the trace, which is kept; a second one ends the command |
//! | one run of a program | is passed to the program, unless the terminal has |
//! | several runs | is passed to the programs likewise, and ends the command |
//!
//! The end of the client ends the command, too. The command always ends after the processes have been let go as they were, and leaves no
//! temporary file. A program whose output goes through the tracer has it until it ends.

use crate::launcher::{InheritedSignals, Launcher};
use crate::system::send_signal;
use crate::tracer::{ClientLink, ClientMessage, TracerSplit, split};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use trodden_launch::temporary;

/// Exit status of a command whose client is gone, or whose tracer ended without one.
const FAILED: u8 = 2;

/// Why a command cannot trace.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There can be no tracer.
    #[error("cannot start a process for the tracer: lift the limit on processes, or end some")]
    Tracer(#[source] io::Error),
    /// There can be no launcher.
    #[error("cannot start a process that starts programs")]
    Launcher(#[source] io::Error),
    /// The tracer cannot listen to its client.
    #[error(transparent)]
    Link(io::Error),
}

static TRACER: OnceLock<Tracer> = OnceLock::new();

struct Tracer {
    launcher: Arc<Launcher>,
    /// Ends all collections when it is set.
    stop: AtomicBool,
    state: Mutex<State>,
    synchronised: Condvar,
    /// Nothing if this process is the user's own.
    client: Option<Mutex<ClientLink>>,
}

#[derive(Default)]
struct State {
    runs: Vec<Run>,
    next: u64,
    /// The status with which the command is to end as soon as it can.
    ending: Option<i32>,
    /// How often the client said that it has forwarded everything.
    answers: u64,
}

/// What a run is to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunRole {
    /// The program that the command runs.
    Program,
    /// One of several runs of it.
    Repetition,
    /// A process that ran before.
    Process,
}

struct Run {
    number: u64,
    role: RunRole,
    /// Gets the process when it runs.
    begun: Receiver<u32>,
    process: Option<u32>,
    /// Signals that came before it ran.
    early: Vec<i32>,
    /// Whether the process is changed.
    is_changed: bool,
    /// Whether its output goes through this process.
    has_pipes: bool,
}

/// Carries out a command in a tracer that is a process of its own. The client comes back when that has ended, with its status.
///
/// Call it before there is any thread.
///
/// # Errors
/// There can be no more processes, or the work fails.
pub fn in_tracer<E: From<CommandError>>(work: impl FnOnce() -> Result<ExitCode, E>) -> Result<ExitCode, E> {
    match split().map_err(CommandError::Tracer)? {
        TracerSplit::Client(status) => {
            if let Some(signal) = status.signal() {
                log::warn!(
                    "signal {signal} ended the tracer (a child process of this command): a process that it traced may have been ended with \
                     it, or be changed"
                );
            }
            let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(i32::from(FAILED));
            Ok(ExitCode::from(status as u8))
        }
        TracerSplit::Tracer(client, launcher) => {
            let messages = client.try_clone().map_err(CommandError::Link)?;
            set_up(launcher, Some(client));
            std::thread::spawn(move || listen(messages));
            temporary::remove_on_signals();
            work()
        }
    }
}

/// Lets this process start programs that it traces, without a tracer of its own: for trials, and runs for other machines.
///
/// Call it before there is any thread.
///
/// # Errors
/// There can be no more processes.
pub fn in_this_process() -> Result<(), CommandError> {
    set_up(Launcher::fork(&InheritedSignals::now()).map_err(CommandError::Launcher)?, None);
    Ok(())
}

fn set_up(launcher: Arc<Launcher>, client: Option<ClientLink>) {
    let client = client.map(Mutex::new);
    let tracer = Tracer { launcher, stop: AtomicBool::new(false), state: Mutex::default(), synchronised: Condvar::new(), client };
    let is_first = TRACER.set(tracer).is_ok();
    assert!(is_first, "a command splits once");
    temporary::offer_signals(signal);
}

fn tracer() -> &'static Tracer {
    TRACER.get().expect("commands that trace call `in_tracer` or `in_this_process` first")
}

/// Who starts programs that are traced.
pub fn launcher() -> &'static Arc<Launcher> {
    &tracer().launcher
}

/// Ends collections when it is set.
pub fn stop() -> &'static AtomicBool {
    &tracer().stop
}

/// A run that is under way.
pub struct ActiveRun {
    number: u64,
    role: RunRole,
}

impl ActiveRun {
    /// Begins a run; it sends the number of its process. `changes`: the process is not as it would be until [`ActiveRun::let_go`].
    pub fn begin(role: RunRole, changes: bool, has_pipes: bool) -> (ActiveRun, Sender<u32>) {
        let mut state = tracer().state();
        while state.ending.is_some() {
            // This process ends when the other runs have come to their ends.
            drop(state);
            std::thread::park();
            state = tracer().state();
        }
        let (sender, begun) = channel();
        let number = state.next;
        state.next += 1;
        state.runs.push(Run { number, role, begun, process: None, early: Vec::new(), is_changed: changes, has_pipes });
        (ActiveRun { number, role }, sender)
    }

    /// Its process, if that has begun.
    pub fn process(&self) -> Option<u32> {
        let mut state = tracer().state();
        state.runs.iter_mut().find(|run| run.number == self.number).and_then(Run::process)
    }

    /// Its process has ended, or is as it would be without a trace.
    pub fn let_go(&self) {
        let mut state = tracer().state();
        if let Some(run) = state.runs.iter_mut().find(|run| run.number == self.number) {
            run.is_changed = false;
            let process = run.process();
            run.early.drain(..).for_each(|signal| pass(process, signal));
        }
        state.end_if_free();
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        if self.role == RunRole::Program {
            // What the terminal sent to the program and the client before the program's end is the program's.
            tracer().synchronise();
        }
        let mut state = tracer().state();
        state.runs.retain(|run| run.number != self.number);
        state.end_if_free();
    }
}

impl Tracer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn synchronise(&self) {
        let Some(client) = &self.client else { return };
        let before = self.state().answers;
        let asked = client.lock().unwrap_or_else(PoisonError::into_inner).synchronise();
        let mut state = self.state();
        while asked.is_ok() && state.answers == before {
            state = self.synchronised.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn signal(&self, signal: i32, from_terminal: bool) {
        let mut state = self.state();
        if state.runs.iter().any(|run| run.role == RunRole::Process) {
            if self.stop.swap(true, Ordering::SeqCst) {
                state.ending.get_or_insert(128 + signal);
            }
            state.end_if_free();
            return;
        }
        for run in state.runs.iter_mut().filter(|_| !from_terminal) {
            match run.process() {
                Some(process) => pass(Some(process), signal),
                None => run.early.push(signal),
            }
        }
        if state.runs.iter_mut().any(|run| run.role == RunRole::Program && run.process().is_some()) {
            return;
        }
        self.stop.store(true, Ordering::SeqCst);
        if state.ending.replace(128 + signal).is_some() {
            // Who is asked twice does not wait for output.
            state.runs.iter_mut().for_each(|run| run.has_pipes = false);
        }
        state.end_if_free();
    }

    /// The client has ended.
    fn abandon(&self) {
        let mut state = self.state();
        self.stop.store(true, Ordering::SeqCst);
        state.ending.get_or_insert(i32::from(FAILED));
        state.end_if_free();
    }
}

impl Run {
    fn process(&mut self) -> Option<u32> {
        self.process = self.process.or_else(|| self.begun.try_recv().ok());
        self.process
    }
}

/// Passes a signal to a process, which may just have ended.
fn pass(process: Option<u32>, signal: i32) {
    process.into_iter().for_each(|process| _ = send_signal(process as i32, signal));
}

impl State {
    /// Ends the process if it is to end, and nothing is changed any more.
    fn end_if_free(&self) {
        if let Some(status) = self.ending
            && self.runs.iter().all(|run| !run.is_changed && !run.has_pipes)
        {
            let _removed = temporary::remove_all();
            std::process::exit(status);
        }
    }
}

/// A signal came to this very process; whether it is a tracer.
fn signal(signal: i32) -> bool {
    let tracer = TRACER.get().filter(|tracer| tracer.client.is_some());
    tracer.inspect(|tracer| tracer.signal(signal, false)).is_some()
}

/// Listens to the client until it ends.
fn listen(mut client: ClientLink) {
    while let Some(message) = client.receive() {
        match message {
            ClientMessage::Synchronised => {
                tracer().state().answers += 1;
                tracer().synchronised.notify_all();
            }
            // Who has an end of its own for signals, as jobs on other machines do, gets them.
            ClientMessage::Signal { signal, .. } if temporary::signals_are_taken() => {
                pass(Some(std::process::id()), signal);
            }
            ClientMessage::Signal { signal, from_terminal } => tracer().signal(signal, from_terminal),
        }
    }
    tracer().abandon();
}
