//! The end of a collection while the subject runs on: its threads are stopped wherever they are, what was done to them and to their memory
//! is undone, and they are let go.

use super::{Following, unless_killed};
use crate::CollectError;
use crate::attach::begin_again;
use crate::breakpoints::InSlot;
use crate::followed_thread::{Role, TRAP};
use crate::ptrace::{self, PtraceStop, Resume, Tid, unless_gone};
use crate::subject::unpin;
use std::collections::HashSet;

/// Instructions of a slot, at most.
const MOST_STEPS: usize = 16;

impl Following<'_, '_> {
    /// Ends the collection, if it can be now: every thread is stopped, breakpoints are taken out, threads are let go. `stopped` is a
    /// thread that is stopped (0: none).
    ///
    /// # Errors
    /// The subject cannot be controlled.
    pub(super) fn let_go(&mut self, stopped: Tid) -> Result<bool, CollectError> {
        // A parent in `vfork` cannot be stopped until the child has executed another program.
        if !self.in_vfork.is_empty() {
            return Ok(false);
        }
        let Some(all) = self.stop_all(stopped)? else { return Ok(false) };
        let mut signals = Vec::new();
        let mut said = Vec::new();
        for (thread, what) in all {
            let signal = match what {
                PtraceStop::Signal(libc::SIGSEGV) if self.is_time_stamp(thread)? => 0,
                PtraceStop::Signal(signal) => self.watch.undo_hit(thread, signal)?,
                _ => 0,
            };
            if signal != 0 {
                said.push((thread, ptrace::signal_information(thread)?));
            }
            signals.push((thread, signal));
        }
        self.leave(&signals)?;
        for (thread, information) in said {
            unless_gone(ptrace::set_signal_information(thread, &information))?;
        }
        for (thread, signal) in signals {
            if self.tasks.get(&thread).is_some_and(|task| task.blocks_traps) {
                unless_gone(ptrace::signal_mask(thread).and_then(|mask| ptrace::set_signal_mask(thread, mask | TRAP)))?;
            }
            if self.subject.fresh {
                unpin(thread);
            }
            unless_gone(ptrace::detach(thread, signal))?;
        }
        self.watch.end_all(self.sink)?;
        Ok(true)
    }

    /// Stops all threads outside system calls; gives nothing, and lets them go on, if one has begun a `vfork` meanwhile.
    fn stop_all(&mut self, stopped: Tid) -> Result<Option<Vec<(Tid, PtraceStop)>>, CollectError> {
        let mut waiting: Vec<Tid> = self.tasks.keys().copied().collect();
        for thread in waiting.iter().filter(|t| **t != stopped) {
            unless_gone(ptrace::interrupt(*thread))?;
        }
        // The one that was stopped has been let go on by now.
        if stopped != 0 && self.tasks.contains_key(&stopped) {
            unless_gone(ptrace::interrupt(stopped))?;
        }
        let mut all = Vec::new();
        while let Some(thread) = waiting.pop() {
            match ptrace::wait(thread)? {
                Some((_, PtraceStop::Ended(status))) => self.ended(thread, status)?,
                Some((_, what @ PtraceStop::Signal(_))) => all.push((thread, what)),
                // It came to a breakpoint, a probe or unexecutable code just before: let go, the signal would end or stop it.
                Some((_, PtraceStop::Begun | PtraceStop::GroupStopped))
                    if [libc::SIGTRAP, libc::SIGSTOP, libc::SIGSEGV].iter().any(|signal| ptrace::is_pending(thread, *signal)) =>
                {
                    unless_gone(ptrace::resume(thread, Resume::Continue, 0))?;
                    waiting.push(thread);
                }
                Some((_, what @ (PtraceStop::Begun | PtraceStop::GroupStopped))) => {
                    unless_gone(begin_again(thread))?;
                    all.push((thread, what));
                }
                // It was at something else just before, in the middle of a system call; that also took the place of the stop.
                Some((_, other)) => {
                    let known: HashSet<Tid> = self.tasks.keys().copied().collect();
                    // It stops again before it executes an instruction.
                    unless_gone(ptrace::interrupt(thread))?;
                    self.stopped(thread, other).or_else(unless_killed)?;
                    if !self.in_vfork.is_empty() {
                        for (thread, what) in all {
                            self.stopped(thread, what).or_else(unless_killed)?;
                        }
                        return Ok(None);
                    }
                    waiting.extend(self.tasks.contains_key(&thread).then_some(thread));
                    for made in self.tasks.keys().copied().filter(|task| !known.contains(task)) {
                        unless_gone(ptrace::interrupt(made))?;
                        waiting.push(made);
                    }
                }
                None => {}
            }
        }
        Ok(Some(all))
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

    /// Undoes what was done to the subject; its threads are stopped.
    fn leave(&mut self, stopped: &[(Tid, i32)]) -> Result<(), CollectError> {
        if self.over || self.followed.status.is_some() {
            return Ok(());
        }
        let is_guest = |thread: &Tid| self.tasks.get(thread).is_none_or(|task| task.role == Role::Guest);
        let threads: Vec<Tid> = stopped.iter().map(|p| p.0).filter(|thread| !is_guest(thread)).collect();
        for thread in &threads {
            self.watch.leave_copy(self.subject, *thread, true, false)?;
            self.leave_slot(*thread)?;
        }
        self.watch.clean(&self.subject.memory)?;
        self.watch.leave(self.subject, threads.first().copied())?;
        threads.iter().try_for_each(|thread| self.subject.free_clock(*thread))?;
        if let Some((thread, _)) = stopped.iter().find(|(thread, signal)| *signal == 0 && !is_guest(thread)) {
            self.watch.restore_trap_action(self.subject, *thread)?;
        }
        self.subject.unmap(&threads, self.watch.mapped().into_iter())
    }
}
