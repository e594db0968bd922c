//! Follows a traced program in a loop that waits for stops of its threads, records hits, and resumes the threads.
//!
//! One thread follows one process with all its threads. It acts on stops as follows:
//!
//! | stop | action |
//! |---|---|
//! | trap because a ring is full | the ring is drained |
//! | trap at a breakpoint | the hit is recorded, and the thread resumes in the slot, with one stop per hit |
//! | any other signal | delivered; if it was caused in a slot, the thread is first moved to the original instruction |
//! | system call | answered from a first run or compared with it by [`repeat`](crate::repeat) |
//! | new thread, `vfork` child | shares the breakpoints, and is recorded separately |
//! | `fork` child | breakpoints are removed from its copy of the memory; it runs as if it were not traced |
//! | `exec` | the trace ends; the new program runs as if it were not traced |
//!
//! If the run has a receiver for other processes, `fork` children and processes that have executed a different program are parked for it
//! instead.
//!
//! Invariant: a hit is recorded exactly once, even if a signal arrives between the trap and the displaced instruction. The thread resumes
//! after the trap when the handler returns; if the handler never returns, the hit still counts.

mod calls;
mod copied_input;
mod detach;
mod own_code;
mod own_reads;
mod processes;
mod restrictions;
mod signals;

pub use calls::watch_library;

use self::copied_input::{InputBuffers, RedirectedInputCall};
use self::own_code::MemoryChange;
use self::own_reads::DeferredCall;
use self::restrictions::restore_limit;
use crate::CollectError;
use crate::followed_thread::{FollowedTask, ThreadRole};
use crate::journal::AddressLimit;
use crate::ptrace::{PtraceStop, ResumeMode, TaskKind, Tid, ignore_ended_thread, restart_interrupted_call};
use crate::repeat::Repeater;
use crate::sink::{FallibleSink, Sink, SinkFlow, ThreadNumber};
use crate::subject::TracedProcess;
use crate::watch::Watch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a trace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FollowEnding {
    /// The process exited with this code.
    Exited(i32),
    /// A signal killed the process.
    Killed(i32),
    /// The process executed a different program.
    Executed,
    /// The collection was ended by a limit or on request, and the program continued.
    Detached,
}

/// The outcome of following a traced program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowOutcome {
    /// How the trace ended.
    pub ending: FollowEnding,
    /// Wait status of the process, if it ended while it was followed.
    pub status: Option<i32>,
    /// Number of threads that were recorded.
    pub threads: u32,
    /// Number of child processes that were not traced.
    pub untraced_children: u32,
    /// Number of times a process was passed on to be traced by another run: a `fork` child, or a process that has executed a different
    /// program.
    #[serde(default)]
    pub passed_on: u32,
    /// True if the process was released (no longer traced) when it executed a file whose privileges a traced program would lack.
    #[serde(default)]
    pub is_released: bool,
    /// Number of signals, other than those of faults and traps, that were delivered while code of a watched image ran. A different run
    /// receives them at different points.
    pub asynchronous_signals: u32,
    /// Number of times a handler ran for SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGTRAP, the signals of faults and traps.
    pub handled_faults: u32,
    /// The call stack at the end of the trace: instruction pointer and return addresses, innermost first, as file addresses. It is the
    /// stack of the main thread at its end, or of the last call of `execve`; before either, the stack of the first thread that ended.
    /// Addresses outside watched images are left out.
    pub stack: Vec<u64>,
    /// File addresses of code that the program changed, and that was not watched from then on.
    #[serde(default)]
    pub changed_code: Vec<Range<u64>>,
    /// File addresses of code that the program alternately read and executed so often that it was no longer watched.
    #[serde(default)]
    pub read_code: Vec<Range<u64>>,
    /// File addresses of code in which the program saw the collector's changes, because it reads data there.
    #[serde(default)]
    pub visible_code: Vec<Range<u64>>,
    /// True if the collector's changes to code were visible to the program at times, since they could not be hidden without disturbing it.
    #[serde(default)]
    pub shows_changes: bool,
    /// Each thread's call stack at the time it ended, by thread number, with addresses as in `stack`. A thread whose stack could not be
    /// read is missing.
    #[serde(default)]
    pub stacks: BTreeMap<u32, Vec<u64>>,
    /// File addresses of instructions whose faults the program handled.
    #[serde(default)]
    pub faults: BTreeSet<u64>,
    /// For each handled signal, the thread number and the address noted in `faults` or `interruptions`, in the order of occurrence. Only
    /// the first 4096 signals are noted.
    #[serde(default)]
    pub handled_signals: Vec<(u32, u64)>,
    /// File addresses of instructions before which a handler ran for a signal that was not a fault.
    #[serde(default)]
    pub interruptions: BTreeSet<u64>,
    /// Changes to the process that could not be undone before it was detached.
    #[serde(default)]
    pub unrestored: Vec<String>,
}

/// Follows a traced program until it ends or the collection is over, and then closes its session, even after an error, so that the program
/// continues. `stop` ends the collection on request. `note` receives messages for the user.
///
/// # Errors
/// The program can no longer be followed, or hits cannot be stored.
pub fn follow(
    subject: &TracedProcess,
    threads: &[Tid],
    watch: &mut Watch<'_>,
    calls: &mut Repeater,
    sink: &mut dyn Sink,
    stop: &AtomicBool,
    note: fn(&str),
) -> Result<FollowOutcome, CollectError> {
    calls.begin(subject.process);
    let sink = &mut FallibleSink { sink, error: None };
    let mut state = Following::new(subject, watch, calls, sink, note);
    state.begin(threads);
    let mut is_finished = state.failure.is_some();
    loop {
        if (is_finished || stop.load(Ordering::Relaxed)) && state.detach_all()? {
            break;
        }
        match subject.session.next_event() {
            Ok(Some((thread, what))) => is_finished |= state.handle(thread, what) == SinkFlow::Stop,
            Ok(None) => break,
            // A signal has interrupted the wait, perhaps because `stop` was set.
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        if (state.followed.status.is_some() || state.followed.is_released) && state.tasks.is_empty() {
            break;
        }
    }
    subject.session.set_closed();
    let stored = state.watch.end_all(state.sink);
    let is_read = |range: &Range<u64>| state.followed.read_code.contains(range);
    state.followed.changed_code = state.watch.released_code(|range| !is_read(range));
    (state.followed.visible_code, state.followed.shows_changes) = state.watch.visible_code();
    let Following { followed, failure, .. } = state;
    match failure.or_else(|| stored.err().or(sink.error.take()).map(CollectError::Store)) {
        Some(error) => Err(error.with_unrestored(subject.process, followed.unrestored)),
        None => Ok(followed),
    }
}

impl FollowOutcome {
    /// Returns the file addresses of code that was not watched to the end.
    pub fn released_code(&self) -> impl Iterator<Item = Range<u64>> {
        self.changed_code.iter().chain(&self.read_code).cloned()
    }
}

/// Ignores the error of a request that failed because the thread was killed after its stop. The thread's end is reported next.
fn ignore_killed_thread(error: CollectError) -> Result<SinkFlow, CollectError> {
    match error {
        CollectError::System(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(SinkFlow::Continue),
        other => Err(other),
    }
}

struct Following<'a, 'w> {
    subject: &'a TracedProcess,
    watch: &'a mut Watch<'w>,
    calls: &'a mut Repeater,
    sink: &'a mut dyn Sink,
    note: fn(&str),
    tasks: HashMap<Tid, FollowedTask>,
    /// First stops of new tasks that were reported before the event of the parent that created them.
    early_stops: HashMap<Tid, PtraceStop>,
    /// Threads whose `vfork` child has neither executed a different program nor ended yet.
    in_vfork: HashSet<Tid>,
    /// Deferred system calls that install a filter, by thread.
    deferred_filters: HashMap<Tid, (u64, [u64; 6])>,
    /// For each thread in a system call that limits the address space, the address of the limit and the program's own value.
    pending_limits: HashMap<Tid, (u64, AddressLimit)>,
    /// The effects on memory of system calls under way, by thread.
    pending_changes: HashMap<Tid, Vec<MemoryChange>>,
    /// For each thread in `clone3`, the address of the call's flags and the program's own value of them.
    pending_clone_flags: HashMap<Tid, (u64, u64)>,
    /// System calls that are skipped and made again later, by thread.
    deferred_calls: HashMap<Tid, (u64, DeferredCall)>,
    /// System calls under way that read copies of code, by thread.
    redirected_calls: HashMap<Tid, RedirectedInputCall>,
    buffers: InputBuffers,
    /// Threads in a system call during which code is not guarded.
    lifting: HashSet<Tid>,
    followed: FollowOutcome,
    /// The counter that supplies the results of `rdtsc`.
    cycles: u64,
    /// True once the process has ended or executed a different program, so that the image is gone.
    is_image_gone: bool,
    /// The first error, which ends the collection.
    failure: Option<CollectError>,
    /// Threads that remain stopped because handling their stop failed.
    unhandled: HashMap<Tid, PtraceStop>,
    /// True once all changes are undone. The remaining threads are being killed.
    is_undone: bool,
}

impl<'a, 'w> Following<'a, 'w> {
    fn new(subject: &'a TracedProcess, watch: &'a mut Watch<'w>, calls: &'a mut Repeater, sink: &'a mut dyn Sink, note: fn(&str)) -> Self {
        let followed = FollowOutcome {
            ending: FollowEnding::Detached,
            status: None,
            threads: 0,
            untraced_children: 0,
            passed_on: 0,
            is_released: false,
            asynchronous_signals: 0,
            handled_faults: 0,
            stack: Vec::new(),
            changed_code: Vec::new(),
            read_code: Vec::new(),
            visible_code: Vec::new(),
            shows_changes: false,
            stacks: BTreeMap::new(),
            faults: BTreeSet::new(),
            interruptions: BTreeSet::new(),
            handled_signals: Vec::new(),
            unrestored: Vec::new(),
        };
        Following {
            subject,
            watch,
            calls,
            sink,
            note,
            tasks: HashMap::new(),
            early_stops: HashMap::new(),
            in_vfork: HashSet::new(),
            deferred_filters: HashMap::new(),
            pending_limits: HashMap::new(),
            pending_changes: HashMap::new(),
            pending_clone_flags: HashMap::new(),
            deferred_calls: HashMap::new(),
            redirected_calls: HashMap::new(),
            buffers: InputBuffers::default(),
            lifting: HashSet::new(),
            followed,
            cycles: 0,
            is_image_gone: false,
            failure: None,
            unhandled: HashMap::new(),
            is_undone: false,
        }
    }
}

impl Following<'_, '_> {
    fn begin(&mut self, threads: &[Tid]) {
        let mut numbers = Vec::new();
        for thread in threads {
            let (task, number) = self.number_new_thread();
            self.tasks.insert(*thread, task);
            numbers.push((*thread, number));
        }
        for (thread, number) in numbers {
            let session = &self.subject.session;
            let begun = session.note_signal_mask(thread).map_err(CollectError::from);
            let begun = begun.and_then(|()| self.watch.begin_thread(self.subject, thread, number, self.sink));
            let begun = begun.and_then(|()| session.restore_injected_trap(thread));
            if let Err(error) = begun.map(|()| SinkFlow::Continue).or_else(ignore_killed_thread) {
                self.failure = Some(error);
                // All threads are still stopped, so they can be detached.
                return;
            }
        }
        // Resume the threads only now, because whether a thread is single-stepped depends on the others.
        for thread in threads {
            if let Err(error) = self.resume(*thread, 0) {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Handles an event. An error is kept until the program has been detached.
    fn handle(&mut self, thread: Tid, what: PtraceStop) -> SinkFlow {
        match self.handle_stop(thread, what).or_else(ignore_killed_thread) {
            Ok(flow) => flow,
            Err(error) => {
                self.failure.get_or_insert(error);
                self.unhandled.insert(thread, what);
                SinkFlow::Stop
            }
        }
    }

    fn number_new_thread(&mut self) -> (FollowedTask, ThreadNumber) {
        self.followed.threads += 1;
        let number = ThreadNumber(self.followed.threads - 1);
        (FollowedTask::new(ThreadRole::Recorded(number)), number)
    }

    fn handle_stop(&mut self, thread: Tid, what: PtraceStop) -> Result<SinkFlow, CollectError> {
        let Some(task) = self.tasks.get(&thread) else {
            if !matches!(what, PtraceStop::Ended(_)) {
                self.early_stops.insert(thread, what);
            }
            return Ok(SinkFlow::Continue);
        };
        let role = task.role;
        match (what, role) {
            (PtraceStop::Ended(status), _) => self.handle_end(thread, status)?,
            // If the thread was killed while it was being detached, its end follows; otherwise it can be detached now.
            _ if self.is_undone && what != PtraceStop::Ending => {
                if self.subject.session.detach(thread, 0)? {
                    self.tasks.remove(&thread);
                }
            }
            (PtraceStop::GroupStopped, role) => self.handle_stop_by_signal(thread, role)?,
            (PtraceStop::Created { child, kind }, _) => {
                if kind == TaskKind::Vfork {
                    self.in_vfork.insert(thread);
                }
                self.handle_new_task(thread, child, kind)?;
                self.resume(thread, 0)?;
            }
            // The thread stops for an earlier request, which no longer matters.
            (PtraceStop::Interrupted, _) => {
                ignore_ended_thread(restart_interrupted_call(thread))?;
                self.resume(thread, 0)?;
            }
            (PtraceStop::VforkDone, _) => {
                self.in_vfork.remove(&thread);
                self.resume(thread, 0)?;
            }
            (PtraceStop::Exec, ThreadRole::Unrecorded) => {
                restore_limit(&self.subject.session, thread);
                if !self.release_unprivileged(thread)? {
                    self.resume(thread, 0)?;
                }
            }
            (PtraceStop::Exec, ThreadRole::Recorded(_)) => self.handle_exec(thread)?,
            (PtraceStop::Ending, role) => self.record_stack_before_exit(thread, role)?,
            (PtraceStop::SystemCall, ThreadRole::Recorded(number)) => return self.handle_system_call(thread, number),
            (PtraceStop::Signal(libc::SIGSEGV), ThreadRole::Recorded(number)) => return self.handle_fault(thread, number),
            (PtraceStop::Signal(libc::SIGSEGV), _) if self.emulate_rdtsc(thread)? => self.resume(thread, 0)?,
            (PtraceStop::Signal(signal), ThreadRole::Recorded(number)) => return self.handle_signal(thread, number, signal),
            (PtraceStop::Signal(signal), ThreadRole::Unrecorded) => self.resume(thread, signal)?,
            _ => self.resume(thread, 0)?,
        }
        Ok(SinkFlow::Continue)
    }

    fn resume(&self, thread: Tid, signal: i32) -> Result<(), CollectError> {
        let recorded = self.tasks.get(&thread).is_some_and(|t| matches!(t.role, ThreadRole::Recorded(_)));
        let how = if recorded { self.watch.resume(thread) } else { ResumeMode::Continue };
        Ok(self.subject.session.resume(thread, how, signal)?)
    }

    fn handle_end(&mut self, thread: Tid, status: i32) -> io::Result<()> {
        self.tasks.remove(&thread);
        self.in_vfork.remove(&thread);
        self.forget_pending_calls(thread);
        self.subject.session.signals.borrow_mut().forget(thread);
        self.watch.end_thread(thread, self.sink)?;
        if thread != self.subject.process {
            return Ok(());
        }
        self.followed.status = Some(status);
        if !self.is_image_gone {
            self.followed.ending = match libc::WIFSIGNALED(status) {
                true => FollowEnding::Killed(libc::WTERMSIG(status)),
                false => FollowEnding::Exited(libc::WEXITSTATUS(status)),
            };
        }
        // The collection does not wait for the end of unrecorded threads.
        self.tasks.retain(|_, task| matches!(task.role, ThreadRole::Recorded(_)));
        Ok(())
    }

    /// Handles a stop of the process by a signal.
    fn handle_stop_by_signal(&mut self, thread: Tid, role: ThreadRole) -> io::Result<()> {
        let process = self.subject.process;
        if thread == process && role != ThreadRole::Unrecorded {
            (self.note)(&format!("process {process} is stopped by a signal. Nothing is recorded until you run `kill -CONT {process}`"));
        }
        self.subject.session.listen(thread)
    }

    /// Records the call stack of a thread that is about to end, while its memory still exists.
    fn record_stack_before_exit(&mut self, thread: Tid, role: ThreadRole) -> Result<(), CollectError> {
        self.tasks.entry(thread).and_modify(|task| task.is_ending = true);
        if let ThreadRole::Recorded(number) = role {
            let stack = self.watch.stack(self.subject, thread);
            if thread == self.subject.process || self.followed.stack.is_empty() {
                self.followed.stack = stack.clone().unwrap_or_default();
            }
            self.followed.stacks.extend(stack.map(|stack| (number.0, stack)));
        }
        self.resume(thread, 0)
    }
}
