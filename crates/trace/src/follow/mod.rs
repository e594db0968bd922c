//! Following a subject: the loop that waits for stops of its threads, records what a collector watches, and lets them go on.
//!
//! One thread follows one process with all its threads. What a stop means:
//!
//! | stop | what is done |
//! |---|---|
//! | trap where a ring is full | drained |
//! | trap at a breakpoint | recorded; the thread goes on in the slot: one stop a hit |
//! | other trap, other signal | delivered; a fault in a slot is moved back to the instruction's own place before |
//! | system call | answered or compared by [`repeat`](crate::repeat) |
//! | new thread, `vfork` child | it shares the breakpoints, and gets a stream of its own |
//! | `fork` child | breakpoints are taken out of its copy of the memory; it runs as if it were not traced |
//! | `exec` | the trace ends; the new program runs as if it were not traced |
//!
//! Invariant: a hit is recorded exactly once, also when a signal arrives between the trap and the displaced instruction: then the thread
//! goes on behind the trap when the handler comes back, and if it does not, the hit has been.

mod calls;
mod let_go;
mod own_code;
mod restrictions;
mod signals;

pub use calls::map_library;

use self::own_code::MemoryChange;
use self::restrictions::restore_limit;
use crate::CollectError;
use crate::attach::shares_memory;
use crate::followed_thread::{Role, Task};
use crate::journal::AddressLimit;
use crate::memory::Memory;
use crate::ptrace::{self, NewTask, PtraceStop, Resume, Tid, begin_again, unless_gone};
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
    /// A signal ended it.
    Killed(i32),
    /// It executed another program.
    Executed,
    /// The collection was ended, by a limit or from outside; the subject ran on.
    Detached,
}

/// What became of a followed subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// How the trace ended.
    pub ending: FollowEnding,
    /// Wait status of the process, if it ended while it was followed.
    pub status: Option<i32>,
    /// Threads that were seen.
    pub threads: u32,
    /// Processes that it made, and that were not traced.
    pub untraced_children: u32,
    /// Signals delivered while code of the image ran: they come at another place in another run.
    pub asynchronous_signals: u32,
    /// Handlers that ran because of a fault of the program's own instruction, or of one in a library.
    pub handled_faults: u32,
    /// Where the program stood when it ended: the return addresses on its stack that lead to the image, innermost
    /// first, as addresses of the file.
    pub stack: Vec<u64>,
    /// Code that the program changed, as addresses of the files: from then on it was not watched.
    #[serde(default)]
    pub changed_code: Vec<Range<u64>>,
    /// Where each thread stood when it ended, as `stack`, as far as it could be found out.
    #[serde(default)]
    pub stacks: BTreeMap<u32, Vec<u64>>,
    /// Instructions of the image whose faults a handler of the program got, as addresses of the file.
    #[serde(default)]
    pub faults: BTreeSet<u64>,
    /// Those of `faults` and `interruptions` in their order, each with its thread.
    #[serde(default)]
    pub handled: Vec<(u32, u64)>,
    /// Instructions of the image in front of which another signal's handler began.
    #[serde(default)]
    pub interruptions: BTreeSet<u64>,
    /// Changes to a process that was let go which could not be undone.
    #[serde(default)]
    pub unrestored: Vec<String>,
}

/// Follows a subject until it ends or the collection is over. `stop` ends the collection from outside; `note` gets what the user should
/// know meanwhile. The session is closed then, after errors, too: the subject runs on.
///
/// # Errors
/// It cannot be followed any more, or what is seen cannot be stored.
pub fn follow(
    subject: &TracedProcess,
    threads: &[Tid],
    watch: &mut Watch<'_>,
    calls: &mut Repeater,
    sink: &mut dyn Sink,
    stop: &AtomicBool,
    note: fn(&str),
) -> Result<Followed, CollectError> {
    calls.begin(subject.process);
    let sink = &mut FallibleSink { sink, error: None };
    let mut state = Following::new(subject, watch, calls, sink, note);
    state.begin(threads);
    let mut is_enough = state.failure.is_some();
    loop {
        if (is_enough || stop.load(Ordering::Relaxed)) && state.let_go()? {
            break;
        }
        match subject.session.next_event() {
            Ok(Some((thread, what))) => is_enough |= state.handle(thread, what) == SinkFlow::Enough,
            Ok(None) => break,
            // A waker interrupts the wait.
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        if state.followed.status.is_some() && state.tasks.is_empty() {
            break;
        }
    }
    subject.session.set_closed();
    let stored = state.watch.end_all(state.sink);
    state.followed.changed_code = state.watch.changed_code();
    let Following { followed, failure, .. } = state;
    match failure.or_else(|| stored.err().or(sink.error.take()).map(CollectError::Store)) {
        Some(error) => Err(error.with_unrestored(subject.process, followed.unrestored)),
        None => Ok(followed),
    }
}

/// A thread that was killed between its stop and what was asked of it is no error: its end is reported next.
fn unless_killed(error: CollectError) -> Result<SinkFlow, CollectError> {
    match error {
        CollectError::System(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(SinkFlow::GoOn),
        other => Err(other),
    }
}

struct Following<'a, 'w> {
    subject: &'a TracedProcess,
    watch: &'a mut Watch<'w>,
    calls: &'a mut Repeater,
    sink: &'a mut dyn Sink,
    /// Gets what the user should know.
    note: fn(&str),
    tasks: HashMap<Tid, Task>,
    /// Stopped before the event that says who made them.
    early: HashMap<Tid, PtraceStop>,
    /// Threads whose `vfork` child has not executed another program yet.
    in_vfork: HashSet<Tid>,
    /// Calls that set a filter of system calls and are put off, by thread.
    filtering: HashMap<Tid, (u64, [u64; 6])>,
    /// Threads in a call that limits the address space: where the limit is in memory, and what the program has there.
    limited: HashMap<Tid, (u64, AddressLimit)>,
    /// What system calls will have done to memory, by the threads in them.
    changing: HashMap<Tid, Vec<MemoryChange>>,
    /// Threads in `clone3`, with the place of its flags in memory and what the program has there.
    cleared: HashMap<Tid, (u64, u64)>,
    followed: Followed,
    /// What `rdtsc` says.
    cycles: u64,
    /// The image is gone.
    over: bool,
    /// The first error, with which the collection ends.
    failure: Option<CollectError>,
    /// Threads at whose stops there was an error; they are stopped for this.
    unhandled: HashMap<Tid, PtraceStop>,
    /// All changes have been undone; threads that are left are being killed.
    is_undone: bool,
}

impl<'a, 'w> Following<'a, 'w> {
    fn new(subject: &'a TracedProcess, watch: &'a mut Watch<'w>, calls: &'a mut Repeater, sink: &'a mut dyn Sink, note: fn(&str)) -> Self {
        let followed = Followed {
            ending: FollowEnding::Detached,
            status: None,
            threads: 0,
            untraced_children: 0,
            asynchronous_signals: 0,
            handled_faults: 0,
            stack: Vec::new(),
            changed_code: Vec::new(),
            stacks: BTreeMap::new(),
            faults: BTreeSet::new(),
            interruptions: BTreeSet::new(),
            handled: Vec::new(),
            unrestored: Vec::new(),
        };
        Following {
            subject,
            watch,
            calls,
            sink,
            note,
            tasks: HashMap::new(),
            early: HashMap::new(),
            in_vfork: HashSet::new(),
            filtering: HashMap::new(),
            limited: HashMap::new(),
            changing: HashMap::new(),
            cleared: HashMap::new(),
            followed,
            cycles: 0,
            over: false,
            failure: None,
            unhandled: HashMap::new(),
            is_undone: false,
        }
    }
}

impl Following<'_, '_> {
    /// Begins to record threads that are all stopped.
    fn begin(&mut self, threads: &[Tid]) {
        let mut numbers = Vec::new();
        for thread in threads {
            let (mut task, number) = self.new_thread();
            task.blocks_traps = ptrace::is_blocked(*thread, libc::SIGTRAP);
            self.tasks.insert(*thread, task);
            numbers.push((*thread, number));
        }
        for (thread, number) in numbers {
            let begun = self.watch.begin_thread(self.subject, thread, number, self.sink);
            if let Err(error) = begun.map(|()| SinkFlow::GoOn).or_else(unless_killed) {
                self.failure = Some(error);
                // All are stopped still, and are let go so.
                return;
            }
        }
        // With all of them begun it is known how each goes on.
        for thread in threads {
            if let Err(error) = self.go_on(*thread, 0) {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Handles an event. An error is kept until the subject has been let go.
    fn handle(&mut self, thread: Tid, what: PtraceStop) -> SinkFlow {
        match self.stopped(thread, what).or_else(unless_killed) {
            Ok(flow) => flow,
            Err(error) => {
                self.failure.get_or_insert(error);
                self.unhandled.insert(thread, what);
                SinkFlow::Enough
            }
        }
    }

    fn new_thread(&mut self) -> (Task, ThreadNumber) {
        self.followed.threads += 1;
        let number = ThreadNumber(self.followed.threads - 1);
        (Task::new(Role::Recorded(number)), number)
    }

    fn stopped(&mut self, thread: Tid, what: PtraceStop) -> Result<SinkFlow, CollectError> {
        let Some(task) = self.tasks.get(&thread) else {
            if !matches!(what, PtraceStop::Ended(_)) {
                self.early.insert(thread, what);
            }
            return Ok(SinkFlow::GoOn);
        };
        let role = task.role;
        match (what, role) {
            (PtraceStop::Ended(status), _) => self.ended(thread, status)?,
            // It was killed while it was let go; else it can be let go now.
            _ if self.is_undone && what != PtraceStop::Ending => {
                if self.subject.session.detach(thread, 0)? {
                    self.tasks.remove(&thread);
                }
            }
            (PtraceStop::GroupStopped, role) => self.group_stopped(thread, role)?,
            (PtraceStop::Made { child, kind }, _) => {
                if kind == NewTask::Vfork {
                    self.in_vfork.insert(thread);
                }
                self.made(thread, child, kind)?;
                self.go_on(thread, 0)?;
            }
            // It was to be stopped, which was put off.
            (PtraceStop::Begun, _) => {
                unless_gone(begin_again(thread))?;
                self.go_on(thread, 0)?;
            }
            (PtraceStop::VforkDone, _) => {
                self.in_vfork.remove(&thread);
                self.go_on(thread, 0)?;
            }
            (PtraceStop::Exec, Role::Guest) => {
                restore_limit(&self.subject.session, thread);
                self.go_on(thread, 0)?;
            }
            (PtraceStop::Exec, Role::Recorded(_)) => {
                restore_limit(&self.subject.session, thread);
                self.executed(thread);
                self.begin_other(thread)?;
            }
            (PtraceStop::Ending, role) => self.ending(thread, role)?,
            (PtraceStop::SystemCall, Role::Recorded(number)) => return self.system_call(thread, number),
            (PtraceStop::Signal(libc::SIGSEGV), _) if self.is_time_stamp(thread)? => self.go_on(thread, 0)?,
            (PtraceStop::Signal(signal), Role::Recorded(number)) => return self.signal(thread, number, signal),
            (PtraceStop::Signal(signal), Role::Guest) => self.go_on(thread, signal)?,
            _ => self.go_on(thread, 0)?,
        }
        Ok(SinkFlow::GoOn)
    }

    fn go_on(&self, thread: Tid, signal: i32) -> Result<(), CollectError> {
        let recorded = self.tasks.get(&thread).is_some_and(|t| matches!(t.role, Role::Recorded(_)));
        let how = if recorded { self.watch.resume(thread) } else { Resume::Continue };
        Ok(self.subject.session.resume(thread, how, signal)?)
    }

    fn ended(&mut self, thread: Tid, status: i32) -> io::Result<()> {
        self.tasks.remove(&thread);
        self.in_vfork.remove(&thread);
        self.watch.end_thread(thread, self.sink)?;
        if thread != self.subject.process {
            return Ok(());
        }
        self.followed.status = Some(status);
        if !self.over {
            self.followed.ending = match libc::WIFSIGNALED(status) {
                true => FollowEnding::Killed(libc::WTERMSIG(status)),
                false => FollowEnding::Exited(libc::WEXITSTATUS(status)),
            };
        }
        // Guests go on by themselves.
        self.tasks.retain(|_, task| matches!(task.role, Role::Recorded(_)));
        Ok(())
    }

    /// The process has been stopped by a signal.
    fn group_stopped(&mut self, thread: Tid, role: Role) -> io::Result<()> {
        let process = self.subject.process;
        if thread == process && role != Role::Guest {
            (self.note)(&format!("process {process} is stopped by a signal: nothing is recorded until `kill -CONT {process}`"));
        }
        self.subject.session.listen(thread)
    }

    /// A thread is about to end; its memory is still there.
    fn ending(&mut self, thread: Tid, role: Role) -> Result<(), CollectError> {
        self.tasks.entry(thread).and_modify(|task| task.is_ending = true);
        if let Role::Recorded(number) = role {
            let stack = self.watch.stack(self.subject, thread);
            if thread == self.subject.process || self.followed.stack.is_empty() {
                self.followed.stack.clone_from(&stack);
            }
            self.followed.stacks.insert(number.0, stack);
        }
        self.go_on(thread, 0)
    }

    /// A recorded thread has executed another program. If that is the process, its threads are gone, and breakpoints with the image.
    fn executed(&mut self, thread: Tid) {
        if thread != self.subject.process {
            // A vfork child has left the memory that it borrowed.
            self.tasks.insert(thread, Task::new(Role::Guest));
            self.followed.untraced_children += 1;
            return;
        }
        self.over = true;
        self.watch.end_probes();
        self.subject.session.forget_program();
        self.followed.ending = FollowEnding::Executed;
        self.tasks.retain(|_, task| task.role == Role::Guest);
        self.tasks.insert(thread, Task::new(Role::Guest));
    }

    /// Lets a thread go on that has executed another program. The event comes before `execve` returns; nothing can be done in the program's
    /// name until then.
    fn begin_other(&mut self, thread: Tid) -> Result<(), CollectError> {
        if self.subject.fixed_clock {
            self.subject.session.resume(thread, Resume::ToSystemCall, 0)?;
            match self.subject.session.wait_for(thread)? {
                PtraceStop::SystemCall => self.subject.free_clock_of_other(thread)?,
                other => return self.stopped(thread, other).map(drop),
            }
        }
        self.go_on(thread, 0)
    }

    fn made(&mut self, parent: Tid, child: Tid, kind: NewTask) -> Result<(), CollectError> {
        let from_guest = self.tasks.get(&parent).is_some_and(|task| task.role == Role::Guest);
        let shares = !from_guest && shares_memory(self.subject.process, child)?;
        let mut task = match shares && !self.over {
            true => self.new_thread().0,
            false => Task::new(Role::Guest),
        };
        task.blocks_traps = self.tasks.get(&parent).is_some_and(|parent| parent.blocks_traps);
        let copied = !shares && !from_guest && !self.over;
        let recorded = if let Role::Recorded(number) = task.role { Some(number) } else { None };
        if kind != NewTask::Clone || !shares {
            self.followed.untraced_children += u32::from(recorded.is_none());
        }
        self.tasks.insert(child, task);
        if self.early.remove(&child).is_none() {
            // Its first stop comes at once, unless it has been killed: then its end is reported.
            match self.subject.session.wait_for(child) {
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                other => other?,
            };
        }
        if let (true, Some((place, flags))) = (copied, self.cleared.get(&parent)) {
            Memory::open(child)?.write(*place, &flags.to_le_bytes())?;
        }
        if copied && let Err(error) = self.clean_child(child).map(|()| SinkFlow::GoOn).or_else(unless_killed) {
            self.followed.unrestored.push(format!("the copy of the code in its child {child} ({error})"));
            self.failure.get_or_insert(error);
        }
        if let Some(number) = recorded {
            self.watch.begin_thread(self.subject, child, number, self.sink)?;
        }
        self.go_on(child, 0)
    }

    /// Undoes all changes in a child with a copy of the memory.
    fn clean_child(&mut self, child: Tid) -> Result<(), CollectError> {
        ptrace::set_options(child, false)?;
        self.watch.clean(&Memory::open(child)?)?;
        self.watch.leave_copy(self.subject, child, true, false)?;
        self.watch.leave_child(self.subject, child)?;
        self.subject.free_clock(child)
    }
}
