//! Programs that read their own code and must see their own bytes. They read it by instructions, by system calls that pass code on, such as
//! write(2), and through files of their memory. [`hidden_patches`](crate::hidden_patches) hides patches from instructions and the kernel.
//!
//! A system call that passes on code gets a copy of its original bytes instead. Any other call that fails with EFAULT because it reads
//! guarded memory, such as a path within code, is made again without the guard. Calls that need a change of the guard are deferred: they
//! are skipped, and made again once injected calls have made the change. Calls after which the kernel may read memory at any time, or whose
//! effect the guard would change, end the guard.

use super::Following;
use super::copied_input::CallInputWithCode;
use super::own_code::{io_vector_buffers, read_words_of_memory};
use crate::CollectError;
use crate::code_guard::PAGE_SIZE;
use crate::followed_thread::ThreadRole;
use crate::hidden_patches::GuardedCodeFault;
use crate::memory::round_to_whole_pages;
use crate::ptrace::{self, Registers, ResumeMode, Tid, ignore_ended_thread};
use crate::sink::{SinkFlow, ThreadNumber};
use std::ops::Range;

/// Size of the kernel's `struct mmsghdr`.
const MMSGHDR_SIZE: u64 = 64;
/// Maximum distance from the start of an argument to the guarded code that is part of it.
const MAX_ARGUMENT_SIZE: u64 = 1 << 16;
/// Number of words of an argument that are searched for addresses of code.
const MAX_SEARCHED_WORDS: u64 = 64;
/// `prctl` that keeps memory from becoming executable.
const PR_SET_MDWE: u64 = 65;

/// Address and length of a buffer.
type CallBufferRange = (u64, u64);

/// What must be done before a deferred system call is made.
pub enum DeferredCall {
    /// The guard of these pages is lifted until the call has ended.
    Lift(Range<u64>),
    /// The guard of these pages ends for good.
    Exclude(Range<u64>),
    /// The guard of all pages ends for good.
    End,
    /// There must be a free buffer of this size for the call's input.
    Room(u64),
}

impl Following<'_, '_> {
    /// Handles SIGSEGV of a recorded thread.
    pub(super) fn handle_fault(&mut self, thread: Tid, number: ThreadNumber) -> Result<SinkFlow, CollectError> {
        let session = self.subject.session.clone();
        match session.handle_code_fault(thread, libc::SIGSEGV) {
            Ok(GuardedCodeFault::Foreign) if self.emulate_rdtsc(thread)? => {}
            Ok(GuardedCodeFault::Foreign) if session.is_emulated(thread)? => self.end_guard(thread)?,
            Ok(GuardedCodeFault::Foreign) if session.guard().key.is_some() && session.is_merged(thread, libc::SIGSEGV)? => {
                // A pending SIGSEGV that the thread blocks has absorbed the guard's fault. As long as there is a guard, that can happen
                // again.
                self.end_guard(thread)?;
                ptrace::send_signal_to_thread(thread, libc::SIGSEGV);
            }
            Ok(GuardedCodeFault::Foreign) => return self.handle_signal(thread, number, libc::SIGSEGV),
            Ok(GuardedCodeFault::Faults) => return self.handle_signal(thread, number, ptrace::signal_information(thread)?.si_signo),
            Ok(GuardedCodeFault::Allowed | GuardedCodeFault::Executed) => {
                self.release_overused_pages(thread)?;
                self.stop_guarding_data_pages(thread)?;
            }
            Err(CollectError::System(error)) if error.raw_os_error() == Some(libc::ESRCH) => return Err(error.into()),
            Err(_) => self.end_guard(thread)?,
        }
        if session.restore_merged_signal(thread, libc::SIGSEGV)? && session.guard().key.is_some() {
            self.end_guard(thread)?;
        }
        session.restore_injected_trap(thread)?;
        self.resume(thread, 0)?;
        Ok(SinkFlow::Continue)
    }

    /// Ends the guard for good. If that fails, the thread still has the signal that it was about to receive.
    fn end_guard(&mut self, thread: Tid) -> Result<(), CollectError> {
        let information = ptrace::signal_information(thread);
        let ended = self.handle_new_tasks_of_others(thread).and_then(|()| self.subject.session.end_guard(thread));
        if let (Err(_), Ok(information)) = (&ended, information) {
            ignore_ended_thread(ptrace::set_signal_information(thread, &information))?;
        }
        ended
    }

    /// Stops guarding pages on which the program reads data.
    fn stop_guarding_data_pages(&mut self, thread: Tid) -> Result<(), CollectError> {
        let session = self.subject.session.clone();
        let pages = session.guard_mut().take_data_pages();
        if !pages.is_empty() {
            self.handle_new_tasks_of_others(thread)?;
        }
        pages.into_iter().try_for_each(|page| session.stop_guarding_page(thread, page))
    }

    /// Stops watching pages that the program alternately reads and executes.
    fn release_overused_pages(&mut self, thread: Tid) -> Result<(), CollectError> {
        let overused = self.subject.session.guard_mut().take_overused_pages();
        let ranges: Vec<Range<u64>> =
            overused.iter().flat_map(|page| self.watch.watched_ranges_in(&(*page..page + PAGE_SIZE), false)).collect();
        if ranges.is_empty() {
            return Ok(());
        }
        let in_file = |range: &Range<u64>| self.watch.in_file(range.start)..self.watch.in_file(range.end - 1) + 1;
        self.followed.read_code.extend(ranges.iter().map(in_file));
        self.release_code_with_all_stopped(&ranges, thread, false)
    }

    /// Handles the start of a system call. Returns true if the call is skipped now and made again later.
    pub(super) fn defer_call(
        &mut self,
        thread: Tid,
        call: u64,
        arguments: &[u64; 6],
        input: Option<&CallInputWithCode>,
    ) -> Result<bool, CollectError> {
        let session = self.subject.session.clone();
        if self.failure.is_some() || session.guard().key.is_none() {
            return Ok(false);
        }
        if !self.lifting.is_empty() && input.is_some() {
            // The guard must also stay lifted until this call has ended.
            self.lifting.insert(thread);
        }
        let Some(deferred) = self.change_needed_before_call(call, arguments, input) else { return Ok(false) };
        self.deferred_calls.insert(thread, (call, deferred));
        ptrace::write_registers(thread, &Registers { orig_rax: u64::MAX, ..ptrace::read_registers(thread)? })?;
        session.resume(thread, ResumeMode::ToSystemCall, 0)?;
        Ok(true)
    }

    /// Returns the change that must precede a system call, or `None` if the call needs no change.
    fn change_needed_before_call(&self, call: u64, arguments: &[u64; 6], input: Option<&CallInputWithCode>) -> Option<DeferredCall> {
        if self.ends_guard(call, arguments, input) {
            return Some(DeferredCall::End);
        }
        let session = &self.subject.session;
        let guarded = |range: Range<u64>| Some(range).filter(|range| session.guard().overlaps(range));
        if call as i64 == libc::SYS_mseal {
            return guarded(round_to_whole_pages(&(arguments[0]..arguments[0].saturating_add(arguments[1])))).map(DeferredCall::Exclude);
        }
        let is_unmapped = call as i64 == libc::SYS_munmap;
        let lifted = self.memory_changes_of_call(call, arguments).into_iter().find_map(|change| {
            // Patches in neighbouring pages may depend on those that are removed.
            let around =
                |range: Range<u64>| round_to_whole_pages(&(range.start.saturating_sub(PAGE_SIZE)..range.end.saturating_add(PAGE_SIZE)));
            let released = self.watch.watched_ranges_in(&change.pages, is_unmapped).into_iter().map(around);
            let all = released.chain([change.pages]).reduce(|all, range| all.start.min(range.start)..all.end.max(range.end));
            all.and_then(guarded)
        });
        lifted.map(DeferredCall::Lift).or_else(|| {
            let size = input?.size();
            (!self.buffers.has_free_buffer(size)).then_some(DeferredCall::Room(size))
        })
    }

    /// Returns true if the guard must end before a system call: the call reads memory later, or in a way that the guard would change, or
    /// its result depends on the keys in use.
    fn ends_guard(&self, call: u64, arguments: &[u64; 6], input: Option<&CallInputWithCode>) -> bool {
        const MEMORY_SHARING_FLAGS: i32 = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_VFORK;
        let shares = |flags: u64| flags as i32 & MEMORY_SHARING_FLAGS == libc::CLONE_VM;
        let [first, second, third, fourth, ..] = *arguments;
        let is_sent_later = |flags: u64| flags & libc::MSG_ZEROCOPY as u64 != 0;
        match call as i64 {
            libc::SYS_pkey_alloc | libc::SYS_pkey_free | libc::SYS_io_uring_setup | libc::SYS_io_setup => true,
            // With key -1, the call is a plain `mprotect`.
            libc::SYS_pkey_mprotect => fourth as i32 != -1,
            // The kernel implements execute-only memory with a protection key.
            libc::SYS_mprotect | libc::SYS_mmap => third == libc::PROT_EXEC as u64,
            libc::SYS_prctl => first == PR_SET_MDWE && second != 0,
            // The new process shares the memory but has its own key rights.
            libc::SYS_clone => shares(first),
            libc::SYS_clone3 => self.subject.memory.word(first).is_ok_and(shares),
            libc::SYS_sendmmsg => self.sends_code(second, third),
            libc::SYS_vmsplice => input.is_some(),
            libc::SYS_sendto if is_sent_later(fourth) => input.is_some(),
            libc::SYS_sendmsg if is_sent_later(third) => input.is_some(),
            _ => input.is_some_and(|input| !input.can_be_copied(&self.subject.memory)),
        }
    }

    fn sends_code(&self, messages: u64, count: u64) -> bool {
        const MAX_EXAMINED_MESSAGES: u64 = 1024;
        let (guard, memory) = (self.subject.session.guard(), &self.subject.memory);
        let has_code = |message: Vec<u64>| {
            let [name, name_length, vector, count, control, control_length, ..] = message[..] else { return false };
            let own = [
                (messages, MMSGHDR_SIZE * count),
                (name, name_length & 0xffff_ffff),
                (vector, 16 * count.min(1024)),
                (control, control_length),
            ];
            own.into_iter()
                .chain(io_vector_buffers(memory, vector, count))
                .any(|(start, length)| guard.overlaps(&(start..start.saturating_add(length))))
        };
        (0..count.min(MAX_EXAMINED_MESSAGES)).any(|n| has_code(read_words_of_memory(memory, messages.wrapping_add(MMSGHDR_SIZE * n), 7)))
    }

    /// Handles the end of a skipped system call: makes the change that the call needs, and lets the thread repeat the call. Returns false
    /// if the call was not skipped.
    pub(super) fn prepare_and_repeat_call(&mut self, thread: Tid) -> Result<bool, CollectError> {
        let Some((call, deferred)) = self.deferred_calls.remove(&thread) else { return Ok(false) };
        repeat_call(thread, call)?;
        let session = self.subject.session.clone();
        if !matches!(deferred, DeferredCall::Room(_)) {
            self.handle_new_tasks_of_others(thread)?;
        }
        match deferred {
            DeferredCall::Lift(range) => self.lift_guard_during_call(thread, &range)?,
            DeferredCall::Exclude(range) => {
                session.unguard(thread, &range)?;
                session.guard_mut().exclude(range);
            }
            DeferredCall::End => session.end_guard(thread)?,
            DeferredCall::Room(size) => match self.add_input_buffer(thread, size) {
                Err(CollectError::System(error)) if error.raw_os_error() == Some(libc::ESRCH) => return Err(error.into()),
                Err(_) => self.end_guard(thread)?,
                Ok(()) => {}
            },
        }
        session.restore_injected_trap(thread)?;
        self.resume(thread, 0)?;
        Ok(true)
    }

    /// If a system call has failed because it reads guarded memory, lets the thread make it again without the guard, and returns true.
    pub(super) fn repeat_call_unguarded(&mut self, thread: Tid, result: i64) -> Result<bool, CollectError> {
        let session = self.subject.session.clone();
        let is_possible = self.failure.is_none() && !self.lifting.contains(&thread) && session.guard().is_active();
        if result != -i64::from(libc::EFAULT) || !is_possible {
            return Ok(false);
        }
        let call = ptrace::read_registers(thread)?;
        let arguments = [call.rdi, call.rsi, call.rdx, call.r10, call.r8, call.r9];
        let guarded = self.arguments_with_guarded_code(call.orig_rax, &arguments);
        // The arguments of these calls are arrays of pointers, of any length, which are not searched.
        let executes = matches!(call.orig_rax as i64, libc::SYS_execve | libc::SYS_execveat);
        if guarded.is_empty() && !executes {
            return Ok(false);
        }
        repeat_call(thread, call.orig_rax)?;
        self.handle_new_tasks_of_others(thread)?;
        let in_code: Vec<u64> = guarded.into_iter().filter(|address| session.guard().code_at(*address).is_some()).collect();
        if in_code.iter().all(|address| self.is_unpatched(*address)) {
            in_code.into_iter().for_each(|address| session.guard_mut().note_data_read_by_call(address));
            self.stop_guarding_data_pages(thread)?;
        } else {
            // The call passes on patched code.
            session.end_guard(thread)?;
        }
        self.lift_guard_during_call(thread, &(0..u64::MAX))?;
        session.restore_injected_trap(thread)?;
        self.resume(thread, 0)?;
        Ok(true)
    }

    /// Ends the guard of pages until a thread's system call has ended. Meanwhile, other threads see the patches.
    fn lift_guard_during_call(&mut self, thread: Tid, range: &Range<u64>) -> Result<(), CollectError> {
        self.subject.session.unguard(thread, range)?;
        let others = self.tasks.iter().filter(|(other, task)| **other != thread && matches!(task.role, ThreadRole::Recorded(_)));
        self.subject.session.guard_mut().ends_early |= others.count() > 0;
        self.lifting.insert(thread);
        Ok(())
    }

    /// Returns true if an argument in guarded code contains no patches.
    fn is_unpatched(&self, address: u64) -> bool {
        let end = address + (self.subject.memory.string(address).len() as u64).max(8);
        self.subject.session.code_changes().changed_spans_in(&(address..end)).next().is_none()
    }

    /// Returns a system call's input arguments that contain code which is or was guarded. If there are none, returns addresses of such code
    /// that the arguments' first words hold.
    fn arguments_with_guarded_code(&self, call: u64, arguments: &[u64; 6]) -> Vec<u64> {
        let (guard, memory) = (self.subject.session.guard(), &self.subject.memory);
        let near = |address: u64| Some(address).filter(|at| guard.was_guarding(&(*at..at.saturating_add(MAX_ARGUMENT_SIZE))));
        // A call with output may have an effect before it fails, and must not be made again because of its output.
        let inputs: &[usize] = match call as i64 {
            libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => &[1],
            // The buffers were replaced by copies already, so only the vector itself can be guarded.
            libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 | libc::SYS_sendmsg => &[1],
            libc::SYS_process_vm_writev => &[1, 3],
            libc::SYS_sendto => &[4],
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_mq_timedreceive | libc::SYS_recvmmsg | libc::SYS_futex_waitv => {
                &[3, 4]
            }
            libc::SYS_rt_sigtimedwait => &[0, 2],
            libc::SYS_ppoll => &[2, 3],
            libc::SYS_pselect6 => &[4, 5],
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_msgrcv
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_wait4
            | libc::SYS_waitid
            | libc::SYS_epoll_wait
            | libc::SYS_poll
            | libc::SYS_select
            | libc::SYS_io_getevents
            | libc::SYS_getdents64
            | libc::SYS_process_vm_readv => &[],
            _ => &[0, 1, 2, 3, 4, 5],
        };
        let inputs = inputs.iter().map(|input| arguments[*input]);
        let direct: Vec<u64> = inputs.clone().filter_map(near).collect();
        if !direct.is_empty() {
            return direct;
        }
        inputs
            .flat_map(|argument| read_words_of_memory(memory, argument, MAX_SEARCHED_WORDS))
            .filter(|word| guard.view(*word).is_some())
            .collect()
    }

    /// Guards the code again after a system call for which the guard was lifted.
    pub(super) fn renew_lifted_guard(&mut self, thread: Tid) -> Result<(), CollectError> {
        if self.lifting.is_empty() {
            return Ok(());
        }
        let is_recorded = |thread: &Tid| self.tasks.get(thread).is_some_and(|task| matches!(task.role, ThreadRole::Recorded(_)));
        self.lifting.retain(|other| *other != thread && is_recorded(other));
        if self.lifting.is_empty() { self.watch.guard(thread) } else { Ok(()) }
    }

    /// After a system call has read `/proc/self/mem`, or the process's own memory by `process_vm_readv`, replaces the tracer's changes in
    /// the result by the program's own code.
    pub(super) fn hide_changes(&self, call: &Registers, result: i64) -> Result<(), CollectError> {
        let Ok(length @ 1..) = u64::try_from(result) else { return Ok(()) };
        let memory = &self.subject.memory;
        let (descriptor, buffer, count) = (call.rdi, call.rsi, call.rdx);
        // The file position is now after the bytes that were read.
        let before = || self.position_in_memory_file(descriptor, None).map(|at| at.wrapping_sub(length));
        let at = |at| self.position_in_memory_file(descriptor, Some(at));
        let (from, to): (Vec<CallBufferRange>, Vec<CallBufferRange>) = match call.orig_rax as i64 {
            libc::SYS_read => (before().map(|at| (at, length)).into_iter().collect(), vec![(buffer, length)]),
            libc::SYS_pread64 => (at(call.r10).map(|at| (at, length)).into_iter().collect(), vec![(buffer, length)]),
            libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => {
                let uses_position = call.orig_rax as i64 == libc::SYS_readv || call.r10 == u64::MAX;
                let from = if uses_position { before() } else { at(call.r10) };
                let Some(from) = from else { return Ok(()) };
                (vec![(from, length)], io_vector_buffers(memory, buffer, count).collect())
            }
            libc::SYS_process_vm_readv if descriptor as Tid == self.subject.process || self.tasks.contains_key(&(descriptor as Tid)) => {
                (io_vector_buffers(memory, call.r10, call.r8).collect(), io_vector_buffers(memory, buffer, count).collect())
            }
            _ => return Ok(()),
        };
        for (from, to, length) in split_transfer_by_buffers(&from, &to, length) {
            let mut bytes = memory.read_some(to, usize::try_from(length).unwrap_or(usize::MAX));
            if self.subject.session.code_changes().undo(from, &mut bytes) {
                memory.write(to, &bytes)?;
            }
        }
        Ok(())
    }

    /// Forgets the pending calls of a thread that has ended or has executed a different program.
    pub(super) fn forget_pending_calls(&mut self, thread: Tid) {
        self.deferred_calls.remove(&thread);
        if self.redirected_calls.remove(&thread).is_some() {
            self.buffers.release(thread);
        }
    }
}

/// Lets a thread, which is stopped at the end of a system call, make that call again.
fn repeat_call(thread: Tid, call: u64) -> Result<(), CollectError> {
    const SYSCALL_LENGTH: u64 = 2;
    let registers = ptrace::read_registers(thread)?;
    let again = Registers { rax: call, orig_rax: u64::MAX, rip: registers.rip - SYSCALL_LENGTH, ..registers };
    Ok(ptrace::write_registers(thread, &again)?)
}

/// Splits a transfer of `length` bytes between two lists of buffers into pieces (source, target, length), each within one buffer per list.
fn split_transfer_by_buffers(from: &[CallBufferRange], to: &[CallBufferRange], length: u64) -> Vec<(u64, u64, u64)> {
    let (mut from, mut to) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut target, mut left) = ((0, 0), (0, 0), length);
    let mut all = Vec::new();
    while left > 0 {
        while source.1 == 0 {
            let Some(next) = from.next() else { return all };
            source = next;
        }
        while target.1 == 0 {
            let Some(next) = to.next() else { return all };
            target = next;
        }
        let size = left.min(source.1).min(target.1);
        all.push((source.0, target.0, size));
        left -= size;
        for buffer in [&mut source, &mut target] {
            *buffer = (buffer.0.wrapping_add(size), buffer.1 - size);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_are_divided_at_the_ends_of_buffers() {
        assert_eq!(
            split_transfer_by_buffers(&[(10, 4), (50, 0), (20, 9)], &[(100, 6), (200, 9)], 11),
            [(10, 100, 4), (20, 104, 2), (22, 200, 5)]
        );
        assert_eq!(split_transfer_by_buffers(&[(10, 4)], &[(100, 2)], 9), [(10, 100, 2)]);
    }
}
