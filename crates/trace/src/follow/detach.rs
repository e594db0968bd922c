//! The end of a collection while the program keeps running: its threads are stopped wherever they are, all changes are undone, and the
//! threads are detached.

use super::{Following, ignore_killed_thread};
use crate::CollectError;
use crate::breakpoints::SlotProgress;
use crate::followed_thread::ThreadRole;
use crate::ptrace::{self, PtraceStop, ResumeMode, Tid, ignore_ended_thread, restart_interrupted_call};
use crate::sink::SinkFlow;
use std::collections::{HashMap, HashSet};

/// Maximum number of single steps that move a thread out of a slot.
const MAX_STEPS_OUT_OF_SLOT: usize = 16;

impl Following<'_, '_> {
    /// Ends the collection if that is possible now: stops all threads, undoes all changes and detaches. Returns false if the program must
    /// still be followed, because a `vfork` is under way or because the ends of killed threads are still to be reported.
    pub(super) fn detach_all(&mut self) -> Result<bool, CollectError> {
        // A parent in `vfork` cannot be stopped until the child has executed a different program.
        if self.is_undone || !self.in_vfork.is_empty() {
            return Ok(false);
        }
        let Some(all) = self.stop_all_threads()? else { return Ok(false) };
        let mut signals = Vec::new();
        let mut pending_information = Vec::new();
        for (thread, what) in all {
            let signal = self.signal_to_deliver(thread, what).or_else(|error| ignore_killed_thread(error).map(|_| 0));
            let signal = self.note_failed_restoration("the pending signal of a thread", signal).unwrap_or(0);
            if signal != 0
                && let Ok(information) = ptrace::signal_information(thread)
            {
                pending_information.push((thread, information));
            }
            signals.push((thread, signal));
        }
        self.undo_changes(&signals);
        for (thread, information) in pending_information {
            ignore_ended_thread(ptrace::set_signal_information(thread, &information))?;
        }
        self.is_undone = true;
        let mut is_free = false;
        for (thread, signal) in signals {
            ignore_ended_thread(self.subject.session.restore_signal_masks(thread, signal))?;
            if self.subject.session.detach(thread, signal)? {
                self.tasks.remove(&thread);
                is_free = true;
            }
        }
        // If any thread was detached, the process goes on, so do not wait for the killed threads: the end of the first thread is reported
        // last.
        Ok(is_free || self.tasks.is_empty())
    }

    /// Returns the signal to deliver when a thread that is stopped for `what` is detached.
    fn signal_to_deliver(&mut self, thread: Tid, what: PtraceStop) -> Result<i32, CollectError> {
        match what {
            PtraceStop::Signal(libc::SIGSEGV) if self.emulate_rdtsc(thread)? => Ok(0),
            PtraceStop::Signal(libc::SIGTRAP) if self.has_failed_stop(thread) => {
                let at = ptrace::instruction_pointer(thread)?;
                // If the thread is in a slot or copy already, the hit was handled.
                let is_ours = self.watch.slot_progress(at).is_some() || self.watch.is_copy(at);
                if is_ours { Ok(0) } else { self.watch.undo_recorded_hit(thread, libc::SIGTRAP) }
            }
            PtraceStop::Signal(signal) => self.watch.undo_recorded_hit(thread, signal),
            _ => Ok(0),
        }
    }

    fn has_failed_stop(&self, thread: Tid) -> bool {
        self.unhandled.contains_key(&thread)
    }

    /// Notes an error as a change that could not be undone.
    fn note_failed_restoration<T>(&mut self, what: &str, result: Result<T, CollectError>) -> Option<T> {
        result.inspect_err(|error| self.followed.unrestored.push(format!("{what} ({error})"))).ok()
    }

    /// Stops all threads outside system calls, except those about to end. Returns `None`, and resumes the threads, if one has started a
    /// `vfork` meanwhile.
    fn stop_all_threads(&mut self) -> Result<Option<Vec<(Tid, PtraceStop)>>, CollectError> {
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
                all.extend(self.request_thread_stop(thread)?.map(|what| (thread, what)));
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
                // The thread has just hit a breakpoint or a probe, or entered code that was made non-executable. If it were detached now,
                // the pending signal would kill or stop it.
                PtraceStop::Interrupted | PtraceStop::GroupStopped
                    if [libc::SIGTRAP, libc::SIGSTOP, libc::SIGSEGV].iter().any(|signal| ptrace::is_signal_pending(thread, *signal)) =>
                {
                    session.resume(thread, ResumeMode::Continue, 0)?;
                }
                PtraceStop::Interrupted | PtraceStop::GroupStopped => {
                    ignore_ended_thread(restart_interrupted_call(thread))?;
                    all.insert(thread, what);
                }
                PtraceStop::Ended(_) | PtraceStop::Ending => _ = self.handle(thread, what),
                // The thread stopped for a different reason, in the middle of a system call, and the request to stop was lost.
                other => {
                    // With a new request it stops before its next instruction.
                    ignore_ended_thread(ptrace::interrupt_thread(thread))?;
                    self.handle(thread, other);
                    if self.unhandled.contains_key(&thread) && session.is_stopped(thread) {
                        self.resume(thread, 0)?;
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

    /// Asks a thread to stop. If an error kept it from resuming, it is stopped already, and its last stop is returned.
    fn request_thread_stop(&self, thread: Tid) -> Result<Option<PtraceStop>, CollectError> {
        if !self.subject.session.is_stopped(thread) || ptrace::instruction_pointer(thread).is_err() {
            ignore_ended_thread(ptrace::interrupt_thread(thread))?;
            return Ok(None);
        }
        match self.unhandled.get(&thread).copied().unwrap_or(PtraceStop::Interrupted) {
            what @ (PtraceStop::Signal(_) | PtraceStop::Interrupted | PtraceStop::GroupStopped) => Ok(Some(what)),
            _ => {
                ignore_ended_thread(ptrace::interrupt_thread(thread))?;
                self.resume(thread, 0)?;
                Ok(None)
            }
        }
    }

    /// Moves a stopped thread from a slot to the image, so that slots can be unmapped.
    fn move_out_of_slot(&self, thread: Tid) -> Result<(), CollectError> {
        for _ in 0..MAX_STEPS_OUT_OF_SLOT {
            match self.watch.slot_progress(ptrace::instruction_pointer(thread)?) {
                Some(SlotProgress::NotExecuted(address) | SlotProgress::Executed(address)) => {
                    ptrace::set_instruction_pointer(thread, address)?
                }
                Some(SlotProgress::Partial) if self.subject.step(thread)?.is_some() => continue,
                Some(SlotProgress::Partial) | None => {}
            }
            break;
        }
        Ok(())
    }

    /// Undoes all changes to the traced program, whose threads are stopped, and notes what cannot be undone.
    fn undo_changes(&mut self, stopped: &[(Tid, i32)]) {
        let is_gone = self.is_image_gone || self.followed.status.is_some();
        let is_unrecorded = |thread: &Tid| is_gone || self.tasks.get(thread).is_none_or(|task| task.role == ThreadRole::Unrecorded);
        let (unrecorded, threads): (Vec<Tid>, Vec<Tid>) = stopped.iter().map(|p| p.0).partition(is_unrecorded);
        let is_quiet = |(thread, signal): &(Tid, i32)| (*signal == 0 && threads.contains(thread)).then_some(*thread);
        let quiet: Vec<Tid> = stopped.iter().filter_map(is_quiet).collect();
        for thread in &threads {
            let moved = self.watch.move_out_of_copy(self.subject, *thread, true, false).and_then(|_| self.move_out_of_slot(*thread));
            let moved = moved.and_then(|()| Ok(self.watch.prepare_for_end(self.subject, *thread)?));
            let moved = moved.map(|()| SinkFlow::Continue).or_else(ignore_killed_thread);
            self.note_failed_restoration(&format!("the position of thread {thread}"), moved);
        }
        self.watch.detach_probes();
        let unrestored = self.subject.session.undo(&threads, &unrecorded, &quiet);
        self.followed.unrestored.extend(unrestored);
    }
}
