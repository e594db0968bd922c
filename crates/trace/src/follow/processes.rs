//! New threads and processes of a subject, and programs that it executes: which are recorded, and which are passed on to other runs.

use super::restrictions::restore_limit;
use super::{Following, ignore_killed_thread};
use crate::CollectError;
use crate::attach::shares_memory;
use crate::follow::FollowEnding;
use crate::followed_thread::{FollowedTask, ThreadRole};
use crate::memory::Memory;
use crate::parked::ParkedProcess;
use crate::privileged::ProcessLackingPrivileges;
use crate::ptrace::{self, PtraceStop, ResumeMode, TaskKind, Tid, ignore_ended_thread};

impl Following<'_, '_> {
    /// Handles `execve` of a recorded thread. After an `execve` in the process itself, all other threads and the image are gone.
    pub(super) fn handle_exec(&mut self, thread: Tid) -> Result<(), CollectError> {
        restore_limit(&self.subject.session, thread);
        self.forget_replaced_image(thread);
        self.handle_end_of_exec(thread)
    }

    fn forget_replaced_image(&mut self, thread: Tid) {
        self.forget_pending_calls(thread);
        self.subject.session.signals.borrow_mut().forget(thread);
        if thread != self.subject.process {
            // A `vfork` child has stopped sharing the memory.
            self.tasks.insert(thread, FollowedTask::new(ThreadRole::Unrecorded));
            return;
        }
        self.is_image_gone = true;
        self.watch.detach_probes();
        self.subject.session.forget_program();
        self.followed.ending = FollowEnding::Executed;
        self.tasks.retain(|_, task| task.role == ThreadRole::Unrecorded);
        self.tasks.insert(thread, FollowedTask::new(ThreadRole::Unrecorded));
    }

    /// Resumes a thread that has executed a different program, or passes its process on. The stop precedes the return from `execve`,
    /// before which no system call can be injected.
    fn handle_end_of_exec(&mut self, thread: Tid) -> Result<(), CollectError> {
        if self.subject.fixed_clock || self.watch.children().is_some() {
            self.subject.session.resume(thread, ResumeMode::ToSystemCall, 0)?;
            match self.subject.session.wait_for(thread)? {
                PtraceStop::SystemCall => self.subject.enable_rdtsc_after_exec(thread)?,
                other => return self.handle_stop(thread, other).map(drop),
            }
        }
        let is_released = self.release_unprivileged(thread)?;
        if !is_released && self.pass_on_process(thread, false)? {
            return Ok(());
        }
        self.followed.untraced_children += u32::from(thread != self.subject.process);
        if is_released { Ok(()) } else { self.resume(thread, 0) }
    }

    /// Releases a process that has executed a file with privileges, which it would lack if it were traced. Returns false if the file has
    /// none, or if the process cannot be released.
    pub(super) fn release_unprivileged(&mut self, process: Tid) -> Result<bool, CollectError> {
        let Some(unprivileged) = ProcessLackingPrivileges::find(process) else { return Ok(false) };
        self.subject.session.release_thread_from_session(process);
        let (is_released, message) = unprivileged.release()?;
        if !is_released || process == self.subject.process || self.watch.children().is_some() {
            (self.note)(&message);
        }
        if is_released {
            self.subject.session.drop_thread(process);
            self.tasks.remove(&process);
            if process == self.subject.process {
                self.followed.is_released = true;
                // The collection does not wait for the end of unrecorded threads.
                self.tasks.clear();
            }
        }
        Ok(is_released)
    }

    /// Passes a stopped process with one thread on to the receiver, if there is one. `has_copy` says whether the process has a copy of the
    /// subject's memory; otherwise it has executed a different program. Returns false if the process is to continue untraced.
    fn pass_on_process(&mut self, process: Tid, has_copy: bool) -> Result<bool, CollectError> {
        let Some(receiver) = self.watch.children().filter(|_| !self.subject.session.is_filtered()) else { return Ok(false) };
        let parked = match self.park(process, has_copy) {
            Ok(Some(parked)) => parked,
            Ok(None) => return Ok(false),
            Err(error) => {
                if let Err(error) = ignore_killed_thread(error) {
                    (self.note)(&format!("process {process} is not traced: {error}"));
                }
                return Ok(false);
            }
        };
        if self.subject.session.detach(process, 0)? {
            self.tasks.remove(&process);
            self.followed.passed_on += 1;
            receiver.0(parked);
        } else {
            parked.forget();
        }
        Ok(true)
    }

    fn park(&self, process: Tid, has_copy: bool) -> Result<Option<ParkedProcess>, CollectError> {
        let session = &self.subject.session;
        if has_copy {
            session.unmap_in_child(process)?;
            restore_limit(session, process);
        }
        ParkedProcess::park(session, process, process == self.subject.process)
    }

    pub(super) fn handle_new_task(&mut self, parent: Tid, child: Tid, kind: TaskKind) -> Result<(), CollectError> {
        let from_unrecorded = self.tasks.get(&parent).is_some_and(|task| task.role == ThreadRole::Unrecorded);
        let shares = !from_unrecorded && shares_memory(self.subject.process, child)?;
        let task = match shares && !self.is_image_gone {
            true => self.number_new_thread().0,
            false => FollowedTask::new(ThreadRole::Unrecorded),
        };
        let copied = !shares && !from_unrecorded && !self.is_image_gone;
        let recorded = if let ThreadRole::Recorded(number) = task.role { Some(number) } else { None };
        self.tasks.insert(child, task);
        if self.early_stops.remove(&child).is_none() {
            // Its first stop follows at once. If the task was killed, its end is reported instead.
            match self.subject.session.wait_for(child) {
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                other => other?,
            };
        }
        if let (true, Some((place, flags))) = (copied, self.pending_clone_flags.get(&parent)) {
            Memory::open(child)?.write(*place, &flags.to_le_bytes())?;
        }
        if copied {
            match self.undo_changes_in_child(parent, child) {
                Ok(()) if self.pass_on_process(child, true)? => return Ok(()),
                Ok(()) => {}
                Err(error) => {
                    if let Err(error) = ignore_killed_thread(error) {
                        self.followed.unrestored.push(format!("the copy of the code in its child {child} ({error})"));
                        self.failure.get_or_insert(error);
                    }
                }
            }
        }
        if kind != TaskKind::Clone || !shares {
            self.followed.untraced_children += u32::from(recorded.is_none());
        }
        if let Some(number) = recorded {
            ignore_ended_thread(self.subject.session.note_signal_mask(child))?;
            self.subject.session.signals.borrow_mut().add_child(parent, child);
            self.watch.begin_thread(self.subject, child, number, self.sink)?;
        }
        self.resume(child, 0)
    }

    /// Undoes all changes in a child with a copy of the memory.
    fn undo_changes_in_child(&mut self, parent: Tid, child: Tid) -> Result<(), CollectError> {
        ptrace::set_options(child, false)?;
        self.watch.restore_child_code(&Memory::open(child)?)?;
        self.watch.move_out_of_copy(self.subject, child, true, false)?;
        self.watch.restore_child_protection(self.subject, child)?;
        self.subject.enable_rdtsc(child)?;
        self.subject.session.restore_actions_of_child(parent, child)
    }
}
