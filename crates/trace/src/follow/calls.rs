//! Handles system calls of recorded threads: takes their results from an earlier run or compares them with that run, and notices changed
//! mappings and new tasks (threads and processes).

use super::Following;
use crate::CollectError;
use crate::images::{self, Library};
use crate::ptrace::{self, Registers, ResumeMode, SystemCallStop, Tid};
use crate::repeat::{CallEntry, Repeater};
use crate::sink::{SinkFlow, ThreadNumber};
use crate::subject::TracedProcess;
use crate::watch::Watch;

/// Flag of `clone` that keeps the new task from being traced.
const UNTRACED_FLAG: u64 = libc::CLONE_UNTRACED as u64;

impl Following<'_, '_> {
    pub(super) fn handle_system_call(&mut self, thread: Tid, number: ThreadNumber) -> Result<SinkFlow, CollectError> {
        match ptrace::read_system_call_stop(thread)? {
            SystemCallStop::Entry { number: call, arguments } => {
                self.handle_call_entry(thread, number, call, arguments).map(|()| SinkFlow::Continue)
            }
            SystemCallStop::Exit { result } => self.handle_call_exit(thread, number, result),
            SystemCallStop::NotAtCall => self.resume(thread, 0).map(|()| SinkFlow::Continue),
        }
    }

    fn handle_call_entry(&mut self, thread: Tid, number: ThreadNumber, call: u64, arguments: [u64; 6]) -> Result<(), CollectError> {
        let input = self.find_call_input_with_code(call, &arguments);
        if self.defer_call(thread, call, &arguments, input.as_ref())? {
            return Ok(());
        }
        let arguments = match input {
            Some(input) => self.redirect_call_input(thread, input, arguments)?,
            None => arguments,
        };
        let memory = &self.subject.memory;
        if self.failure.is_none() {
            self.watch.handle_call_start(thread, call, &arguments, memory)?;
        }
        let task = self.tasks.get_mut(&thread).expect("the thread is known");
        task.is_returning = call as i64 == libc::SYS_rt_sigreturn;
        task.sets_action = call as i64 == libc::SYS_rt_sigaction;
        task.changes_mask = matches!(call as i64, libc::SYS_rt_sigprocmask | libc::SYS_rt_sigreturn);
        if matches!(call as i64, libc::SYS_execve | libc::SYS_execveat) {
            self.followed.stack = self.watch.stack(self.subject, thread).unwrap_or_default();
        }
        if call as i64 == libc::SYS_clone3 {
            self.force_tracing_of_clone3_child(thread, arguments[0])?;
        }
        if self.failure.is_none() {
            self.release_changed_code(thread, call, &arguments)?;
        }
        self.raise_address_space_limit(thread, call, &arguments)?;
        let memory = &self.subject.memory;
        match self.calls.enter(thread, number, call, arguments, memory) {
            // A task that shares the memory must be traced, since it runs into the same breakpoints.
            CallEntry::Run if call as i64 == libc::SYS_clone && arguments[0] & UNTRACED_FLAG != 0 => {
                self.tasks.get_mut(&thread).expect("the thread is known").original_arguments = Some([arguments[0], arguments[1]]);
                ptrace::write_registers(thread, &Registers { rdi: arguments[0] & !UNTRACED_FLAG, ..ptrace::read_registers(thread)? })?;
            }
            CallEntry::Run if self.installs_filter(call, &arguments) => {
                self.deferred_filters.insert(thread, (call, arguments));
                ptrace::write_registers(thread, &Registers { orig_rax: u64::MAX, ..ptrace::read_registers(thread)? })?;
            }
            CallEntry::Run => {}
            // The program's system call filter must see this call, too, so it is made, and its result is replaced afterwards.
            CallEntry::Skip if self.subject.session.is_filtered() => {}
            CallEntry::RunWith([rdi, rsi]) => {
                self.tasks.get_mut(&thread).expect("the thread is known").original_arguments = Some([arguments[0], arguments[1]]);
                ptrace::write_registers(thread, &Registers { rdi, rsi, ..ptrace::read_registers(thread)? })?;
            }
            CallEntry::Skip => {
                ptrace::write_registers(thread, &Registers { orig_rax: u64::MAX, ..ptrace::read_registers(thread)? })?;
            }
        }
        Ok(self.subject.session.resume(thread, ResumeMode::ToSystemCall, 0)?)
    }

    fn handle_call_exit(&mut self, thread: Tid, number: ThreadNumber, result: i64) -> Result<SinkFlow, CollectError> {
        if self.prepare_and_repeat_call(thread)? {
            return Ok(SinkFlow::Continue);
        }
        self.restore_call_input(thread)?;
        let task = self.tasks.get_mut(&thread).expect("the thread is known");
        task.sets_action = false;
        if std::mem::take(&mut task.changes_mask) {
            self.subject.session.note_signal_mask(thread)?;
        }
        let memory = &self.subject.memory;
        if let Some((place, flags)) = self.pending_clone_flags.remove(&thread) {
            memory.write(place, &flags.to_le_bytes())?;
        }
        if let Some([rdi, rsi]) = self.tasks.get_mut(&thread).and_then(|task| task.original_arguments.take()) {
            ptrace::write_registers(thread, &Registers { rdi, rsi, ..ptrace::read_registers(thread)? })?;
        }
        if self.repeat_call_unguarded(thread, result)? {
            return Ok(SinkFlow::Continue);
        }
        let result = match self.deferred_filters.remove(&thread) {
            Some((call, arguments)) => self.install_deferred_filter(thread, call, arguments)?,
            None => result,
        };
        let memory = &self.subject.memory;
        let call = ptrace::read_registers(thread)?;
        self.hide_changes(&call, result)?;
        self.show_own_address_space_limit(thread, &call, result)?;
        if self.calls.is_reading_mappings(thread) {
            self.calls.shown.note_pages_in_data_view(self.subject.session.guard().data_pages());
        }
        if let Some(result) = self.calls.exit(thread, number, result, memory)? {
            let registers = ptrace::read_registers(thread)?;
            ptrace::write_registers(thread, &Registers { rax: result as u64, ..registers })?;
        }
        if self.failure.is_some() {
            // The collection is ending, and nothing more is watched.
            self.resume(thread, 0)?;
            return Ok(SinkFlow::Stop);
        }
        self.handle_mapping_change(thread, &call, result)?;
        self.renew_lifted_guard(thread)?;
        let registers = ptrace::read_registers(thread)?;
        let task = self.tasks.get_mut(&thread).expect("the thread is known");
        let again = std::mem::take(&mut task.is_returning) && task.return_from_handler((registers.rip, registers.rsp));
        self.subject.session.restore_injected_trap(thread)?;
        let flow = self.watch.after_system_call(self.subject, (thread, number), again, self.sink)?;
        self.resume(thread, 0)?;
        Ok(flow)
    }

    /// Handles the start of `clone3`, whose flags are in memory. As for `clone`, a task that shares the memory must be traced. The flags
    /// are restored when the call has ended.
    fn force_tracing_of_clone3_child(&mut self, thread: Tid, place: u64) -> Result<(), CollectError> {
        let memory = &self.subject.memory;
        // If the memory is not mapped, the kernel reports that to the program.
        let Ok(flags) = memory.word(place) else { return Ok(()) };
        if flags & UNTRACED_FLAG != 0 && memory.write(place, &(flags & !UNTRACED_FLAG).to_le_bytes()).is_ok() {
            self.pending_clone_flags.insert(thread, (place, flags));
        }
        Ok(())
    }

    /// Handles the end of a system call that may have mapped or unmapped memory: watches a library that it has mapped, and forgets one
    /// that it has unmapped.
    fn handle_mapping_change(&mut self, thread: Tid, call: &Registers, result: i64) -> Result<(), CollectError> {
        let is_done = !(-4095..0).contains(&result);
        self.handle_memory_changes(thread, is_done)?;
        if !is_done {
            return Ok(());
        }
        match call.orig_rax as i64 {
            libc::SYS_munmap => self.subject.session.forget_memory(&(call.rdi..call.rdi.saturating_add(call.rsi))),
            libc::SYS_mmap => self.subject.session.forget_memory(&(result as u64..(result as u64).saturating_add(call.rsi))),
            _ => {}
        }
        if self.watch.libraries().is_empty() {
            return Ok(());
        }
        match call.orig_rax as i64 {
            libc::SYS_mmap if call.rdx & libc::PROT_EXEC as u64 != 0 && call.r10 & libc::MAP_ANONYMOUS as u64 == 0 => {
                match images::find_mapped(self.watch.libraries(), self.subject.process, call.r8, call.r9) {
                    Some(library) => watch_library((self.subject, thread), self.watch, self.calls, library, result as u64),
                    None => Ok(()),
                }
            }
            libc::SYS_munmap => {
                for image in self.watch.unmap(&(call.rdi..call.rdi.saturating_add(call.rsi)), &self.subject.memory) {
                    let (start, size) = (image.area.start, image.area.end - image.area.start);
                    self.subject.inject_system_call(thread, Some(self.subject.area), libc::SYS_munmap, [start, size, 0, 0, 0, 0])?;
                    self.calls.shown.forget(&image.area, &image.code);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

pub fn watch_library(
    (subject, thread): (&TracedProcess, Tid),
    watch: &mut Watch,
    calls: &mut Repeater,
    library: &Library,
    start: u64,
) -> Result<(), CollectError> {
    match watch.map(subject, thread, library, start)? {
        Some(image) => {
            calls.shown.add(subject.process, image.area.clone(), &image.code)?;
            watch.guard(thread)
        }
        None => Ok(()),
    }
}
