//! The end of a collection while the subject runs on: its threads are stopped wherever they are, what was done to them and to their memory
//! is undone, and they are let go.

use super::{Following, unless_killed};
use crate::CollectError;
use crate::breakpoints::InSlot;
use crate::followed_thread::{Role, TRAP};
use crate::ptrace::{self, PtraceStop, Resume, Tid, begin_again, unless_gone};
use crate::sink::SinkFlow;
use std::collections::{HashMap, HashSet};

/// Instructions of a slot, at most.
const MOST_STEPS: usize = 16;

impl Following<'_, '_> {
    /// Ends the collection, if it can be now: every thread is stopped, all changes are undone, threads are let go. Returns false while
    /// the subject must be followed on: a `vfork` is under way, or threads were killed meanwhile and their ends are to be seen.
    ///
    /// # Errors
    /// The subject cannot be controlled.
    pub(super) fn let_go(&mut self) -> Result<bool, CollectError> {
        // A parent in `vfork` cannot be stopped until the child has executed another program.
        if self.is_undone || !self.in_vfork.is_empty() {
            return Ok(false);
        }
        let Some(all) = self.stop_all()? else { return Ok(false) };
        let mut signals = Vec::new();
        let mut said = Vec::new();
        for (thread, what) in all {
            let signal = self.signal_of(thread, what).or_else(|error| unless_killed(error).map(|_| 0));
            let signal = self.or_unrestored("the signal of a thread", signal).unwrap_or(0);
            if signal != 0
                && let Ok(information) = ptrace::signal_information(thread)
            {
                said.push((thread, information));
            }
            signals.push((thread, signal));
        }
        self.leave(&signals);
        for (thread, information) in said {
            unless_gone(ptrace::set_signal_information(thread, &information))?;
        }
        self.is_undone = true;
        let mut is_free = false;
        for (thread, signal) in signals {
            if self.tasks.get(&thread).is_some_and(|task| task.blocks_traps) {
                unless_gone(ptrace::signal_mask(thread).and_then(|mask| ptrace::set_signal_mask(thread, mask | TRAP)))?;
            }
            if self.subject.session.detach(thread, signal)? {
                self.tasks.remove(&thread);
                is_free = true;
            }
        }
        // Where one goes on, the process does, and the end of its first thread may be far away.
        Ok(is_free || self.tasks.is_empty())
    }

    /// The signal that a thread is to get when it is let go, stopped for `what`.
    fn signal_of(&mut self, thread: Tid, what: PtraceStop) -> Result<i32, CollectError> {
        match what {
            PtraceStop::Signal(libc::SIGSEGV) if self.is_time_stamp(thread)? => Ok(0),
            PtraceStop::Signal(libc::SIGTRAP) if self.failed_at(thread) => {
                let at = ptrace::instruction_pointer(thread)?;
                // It was on its way already.
                let is_ours = self.watch.in_slot(at).is_some() || self.watch.is_copy(at);
                if is_ours { Ok(0) } else { self.watch.undo_hit(thread, libc::SIGTRAP) }
            }
            PtraceStop::Signal(signal) => self.watch.undo_hit(thread, signal),
            _ => Ok(0),
        }
    }

    /// Whether there was an error at the stop that a thread is in.
    fn failed_at(&self, thread: Tid) -> bool {
        self.unhandled.contains_key(&thread)
    }

    /// Notes that something could not be undone.
    fn or_unrestored<T>(&mut self, what: &str, result: Result<T, CollectError>) -> Option<T> {
        result.inspect_err(|error| self.followed.unrestored.push(format!("{what} ({error})"))).ok()
    }

    /// Stops all threads outside system calls, but for those that are about to end; gives nothing, and lets them go on, if one has begun a
    /// `vfork` meanwhile.
    fn stop_all(&mut self) -> Result<Option<Vec<(Tid, PtraceStop)>>, CollectError> {
        let mut all: HashMap<Tid, PtraceStop> = HashMap::new();
        let mut asked: HashSet<Tid> = HashSet::new();
        let session = self.subject.session.clone();
        loop {
            let tasks: Vec<Tid> = self.tasks.iter().filter(|(_, task)| !task.is_ending).map(|(thread, _)| *thread).collect();
            all.retain(|thread, _| tasks.contains(thread));
            let missing: Vec<Tid> = tasks.into_iter().filter(|thread| !all.contains_key(thread)).collect();
            if missing.is_empty() {
                return Ok(Some(all.into_iter().collect()));
            }
            for thread in missing.into_iter().filter(|thread| asked.insert(*thread)) {
                all.extend(self.ask_to_stop(thread)?.map(|what| (thread, what)));
            }
            if self.tasks.iter().all(|(thread, task)| task.is_ending || all.contains_key(thread)) {
                continue;
            }
            let Some((thread, what)) = session.next_event_uninterrupted()? else {
                self.tasks.clear();
                continue;
            };
            match what {
                _ if !self.tasks.contains_key(&thread) => _ = self.handle(thread, what),
                PtraceStop::Signal(_) => drop(all.insert(thread, what)),
                // It came to a breakpoint, a probe or unexecutable code just before: let go, the signal would end or stop it.
                PtraceStop::Begun | PtraceStop::GroupStopped
                    if [libc::SIGTRAP, libc::SIGSTOP, libc::SIGSEGV].iter().any(|signal| ptrace::is_pending(thread, *signal)) =>
                {
                    session.resume(thread, Resume::Continue, 0)?;
                }
                PtraceStop::Begun | PtraceStop::GroupStopped => {
                    unless_gone(begin_again(thread))?;
                    all.insert(thread, what);
                }
                PtraceStop::Ended(_) | PtraceStop::Ending => _ = self.handle(thread, what),
                // It was at something else just before, in the middle of a system call; that also took the place of the stop.
                other => {
                    // It stops again before it executes an instruction.
                    unless_gone(ptrace::interrupt(thread))?;
                    self.handle(thread, other);
                    if self.unhandled.contains_key(&thread) && session.is_stopped(thread) {
                        self.go_on(thread, 0)?;
                    }
                    if !self.in_vfork.is_empty() {
                        for (thread, what) in all {
                            self.handle(thread, what);
                        }
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Asks a thread to stop; returns what it is stopped for if it is already, since an error came before it could go on.
    fn ask_to_stop(&self, thread: Tid) -> Result<Option<PtraceStop>, CollectError> {
        if !self.subject.session.is_stopped(thread) || ptrace::instruction_pointer(thread).is_err() {
            unless_gone(ptrace::interrupt(thread))?;
            return Ok(None);
        }
        match self.unhandled.get(&thread).copied().unwrap_or(PtraceStop::Begun) {
            what @ (PtraceStop::Signal(_) | PtraceStop::Begun | PtraceStop::GroupStopped) => Ok(Some(what)),
            _ => {
                unless_gone(ptrace::interrupt(thread))?;
                self.go_on(thread, 0)?;
                Ok(None)
            }
        }
    }

    /// Lets a stopped thread stand in the image and not in a slot, so that slots can be unmapped.
    fn leave_slot(&self, thread: Tid) -> Result<(), CollectError> {
        for _ in 0..MOST_STEPS {
            match self.watch.in_slot(ptrace::instruction_pointer(thread)?) {
                Some(InSlot::Before(address) | InSlot::After(address)) => ptrace::set_instruction_pointer(thread, address)?,
                Some(InSlot::Within) if self.subject.step(thread)?.is_some() => continue,
                Some(InSlot::Within) | None => {}
            }
            break;
        }
        Ok(())
    }

    /// Undoes what was done to the subject; its threads are stopped. What cannot be undone is noted.
    fn leave(&mut self, stopped: &[(Tid, i32)]) {
        let is_gone = self.over || self.followed.status.is_some();
        let is_guest = |thread: &Tid| is_gone || self.tasks.get(thread).is_none_or(|task| task.role == Role::Guest);
        let (guests, threads): (Vec<Tid>, Vec<Tid>) = stopped.iter().map(|p| p.0).partition(is_guest);
        let quiet = stopped.iter().find(|(thread, signal)| *signal == 0 && threads.contains(thread)).map(|(thread, _)| *thread);
        for thread in &threads {
            let left = self.watch.leave_copy(self.subject, *thread, true, false).and_then(|_| self.leave_slot(*thread));
            let left = left.map(|()| SinkFlow::GoOn).or_else(unless_killed);
            self.or_unrestored(&format!("where thread {thread} stands"), left);
        }
        self.watch.end_probes();
        let unrestored = self.subject.session.undo(&threads, &guests, quiet);
        self.followed.unrestored.extend(unrestored);
    }
}
