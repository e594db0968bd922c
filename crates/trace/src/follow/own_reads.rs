//! Programs that read their own code, which must be the program's own: by instructions, by system calls that pass code on, such as
//! write(2), and by files of their memory. [`hidden_patches`](crate::hidden_patches) hides the code from instructions and from the kernel.
//!
//! A system call that passes on code gets a copy of its original bytes instead. Any other call that fails with EFAULT because it reads
//! guarded memory, such as a path within code, is made again without the guard. Calls that need the guard to be changed are deferred:
//! they are skipped, and made again once the change, which takes injected calls, is done.

use super::Following;
use super::own_code::parts;
use crate::CollectError;
use crate::code_guard::{PAGE, page_of};
use crate::followed_thread::{Role, SIGSEGV_BIT};
use crate::hidden_patches::CodeFault;
use crate::memory::pages;
use crate::ptrace::{self, Registers, Resume, Tid};
use crate::sink::{SinkFlow, ThreadNumber};
use crate::subject::AREA_SIZE;
use std::ops::Range;

/// Maximum number of bytes of code that one system call passes on. More is a short write.
const MAX_INPUT: u64 = 8 << 20;
/// Minimum size of a buffer.
const MIN_BUFFER: u64 = 1 << 16;
/// Size of the kernel's `struct msghdr`.
const MESSAGE_SIZE: u64 = 56;
/// `prctl` that keeps memory from becoming executable.
const PR_SET_MDWE: u64 = 65;

/// Address and length of a buffer.
type Buffer = (u64, u64);

/// What must be done before a system call is made again.
pub enum DeferredCall {
    /// The guard of these pages ends until the call has ended.
    Lift(Range<u64>),
    /// The guard of these pages ends.
    Exclude(Range<u64>),
    /// All of the guard ends until the call has ended.
    LiftAll,
    /// All of the guard ends.
    End,
    /// There must be a free buffer of this size.
    Room(u64),
}

/// Buffers in the subject for copies of code that system calls pass on.
#[derive(Default)]
pub struct InputBuffers {
    /// Each with the thread that uses it.
    all: Vec<(Range<u64>, Option<Tid>)>,
}

/// The program's own arguments of a system call that has others.
pub struct RedirectedCall {
    rsi: u64,
    rdx: u64,
    /// True if the kernel may refer to the buffer after the call.
    keeps_buffer: bool,
}

/// A part of a system call's input.
struct InputPart {
    start: u64,
    length: u64,
    /// True if it contains guarded code.
    is_guarded: bool,
}

/// The input of a system call with guarded code.
struct GuardedInput {
    parts: Vec<InputPart>,
    /// True if the parts are those of a vector.
    is_vector: bool,
    /// The address of the message that refers to the vector.
    message: Option<u64>,
}

impl Following<'_, '_> {
    /// Handles SIGSEGV of a recorded thread.
    pub(super) fn handle_fault(&mut self, thread: Tid, number: ThreadNumber) -> Result<SinkFlow, CollectError> {
        match self.subject.session.handle_code_fault(thread, libc::SIGSEGV)? {
            CodeFault::Foreign if self.emulate_time_stamp(thread)? => {}
            CodeFault::Foreign => return self.handle_signal(thread, number, libc::SIGSEGV),
            CodeFault::Faults => return self.handle_signal(thread, number, ptrace::signal_information(thread)?.si_signo),
            CodeFault::Allowed | CodeFault::Executed => {
                if self.tasks.get(&thread).is_some_and(|task| task.blocks_faults) {
                    ptrace::set_signal_mask(thread, ptrace::signal_mask(thread)? | SIGSEGV_BIT)?;
                }
                self.release_overused(thread)?;
            }
        }
        self.resume(thread, 0)?;
        Ok(SinkFlow::Continue)
    }

    /// Stops watching pages that the program reads and executes in turns.
    fn release_overused(&mut self, thread: Tid) -> Result<(), CollectError> {
        let overused = self.subject.session.guard_mut().take_overused();
        let ranges: Vec<Range<u64>> = overused.iter().flat_map(|page| self.watch.watched_in(&(*page..page + PAGE), false)).collect();
        if ranges.is_empty() {
            return Ok(());
        }
        let in_file = |range: &Range<u64>| self.watch.in_file(range.start)..self.watch.in_file(range.end - 1) + 1;
        self.followed.read_code.extend(ranges.iter().map(in_file));
        self.release_with_all_stopped(&ranges, thread, false)
    }

    /// Handles the start of a system call. Returns true if it is skipped now and made again later.
    pub(super) fn defer_call(&mut self, thread: Tid, call: u64, arguments: &[u64; 6]) -> Result<bool, CollectError> {
        let session = self.subject.session.clone();
        if self.failure.is_some() || session.guard().key.is_none() {
            return Ok(false);
        }
        let guarded = |range: Range<u64>| Some(range).filter(|range| session.guard().overlaps(range));
        let memory = || guarded(pages(&(arguments[0]..arguments[0].saturating_add(arguments[1]))));
        let deferred = match call as i64 {
            libc::SYS_pkey_alloc => Some(DeferredCall::LiftAll),
            libc::SYS_prctl if arguments[0] == PR_SET_MDWE && arguments[1] != 0 => Some(DeferredCall::End),
            libc::SYS_mseal | libc::SYS_pkey_mprotect => memory().map(DeferredCall::Exclude),
            _ => {
                let changes = self.memory_changes(call, arguments);
                // Patches in neighbouring pages may depend on those in a page.
                let around = |pages: &Range<u64>| pages.start.saturating_sub(PAGE)..pages.end.saturating_add(PAGE);
                let lifted = changes.iter().find_map(|change| guarded(around(&change.pages)));
                lifted.map(DeferredCall::Lift).or_else(|| {
                    let size = self.guarded_input(call, arguments)?.size();
                    (!self.buffers.has_room(size)).then_some(DeferredCall::Room(size))
                })
            }
        };
        let Some(deferred) = deferred else { return Ok(false) };
        self.deferred_calls.insert(thread, (call, deferred));
        ptrace::set_registers(thread, &Registers { orig_rax: u64::MAX, ..ptrace::registers(thread)? })?;
        session.resume(thread, Resume::ToSystemCall, 0)?;
        Ok(true)
    }

    /// Handles the end of a skipped system call: does what it needs, and lets the thread make it again. Returns false if the call was not
    /// skipped.
    pub(super) fn make_deferred_call(&mut self, thread: Tid) -> Result<bool, CollectError> {
        let Some((call, deferred)) = self.deferred_calls.remove(&thread) else { return Ok(false) };
        repeat_call(thread, call)?;
        let session = self.subject.session.clone();
        match deferred {
            DeferredCall::Lift(range) => {
                session.unguard(thread, &range)?;
                self.lifting.insert(thread);
            }
            DeferredCall::LiftAll => {
                session.unguard_all(thread)?;
                self.lifting.insert(thread);
            }
            DeferredCall::Exclude(range) => {
                session.unguard(thread, &range)?;
                session.guard_mut().exclude(range);
            }
            DeferredCall::End => session.end_guard(thread)?,
            DeferredCall::Room(size) => self.add_buffer(thread, size)?,
        }
        self.resume(thread, 0)?;
        Ok(true)
    }

    /// If a system call has failed because it reads guarded memory, lets the thread make it again without the guard, and returns true.
    pub(super) fn repeat_unguarded(&mut self, thread: Tid, result: i64) -> Result<bool, CollectError> {
        let session = self.subject.session.clone();
        let is_possible = self.failure.is_none() && !self.lifting.contains(&thread) && session.guard().key.is_some();
        if result != -i64::from(libc::EFAULT) || !is_possible {
            return Ok(false);
        }
        let call = ptrace::registers(thread)?;
        let arguments = [call.rdi, call.rsi, call.rdx, call.r10, call.r8, call.r9];
        let guarded: Vec<u64> = arguments.into_iter().filter(|argument| session.guard().code_at(*argument).is_some()).collect();
        // Their arguments are addresses of addresses.
        let executes = matches!(call.orig_rax as i64, libc::SYS_execve | libc::SYS_execveat);
        if guarded.is_empty() && !executes {
            return Ok(false);
        }
        repeat_call(thread, call.orig_rax)?;
        for address in guarded {
            let is_data = session.code_changes().spans_in(&(address..address + 8)).next().is_none();
            if is_data && session.guard_mut().note_data_call(address) {
                session.open(thread, page_of(address))?;
            }
        }
        session.unguard_all(thread)?;
        self.lifting.insert(thread);
        self.resume(thread, 0)?;
        Ok(true)
    }

    /// Guards the code again after a system call for which the guard was lifted.
    pub(super) fn renew_guard(&mut self, thread: Tid) -> Result<(), CollectError> {
        if self.lifting.is_empty() {
            return Ok(());
        }
        let is_recorded = |thread: &Tid| self.tasks.get(thread).is_some_and(|task| matches!(task.role, Role::Recorded(_)));
        self.lifting.retain(|other| *other != thread && is_recorded(other));
        if self.lifting.is_empty() { self.watch.guard(thread) } else { Ok(()) }
    }

    fn add_buffer(&mut self, thread: Tid, size: u64) -> Result<(), CollectError> {
        const MAX_TRIES: u64 = 8;
        let size = size.max(MIN_BUFFER).next_power_of_two();
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
        // After the area, or after the last buffer there.
        let mut place = self.buffers.all.iter().map(|buffer| buffer.0.end).max().unwrap_or(self.subject.area + AREA_SIZE);
        for _ in 0..MAX_TRIES {
            let arguments = [place, size, libc::PROT_READ as u64, flags, u64::MAX, 0];
            if self.subject.inject(thread, Some(self.subject.area), libc::SYS_mmap, arguments)? as u64 == place {
                self.calls.shown.hide(place..place + size);
                self.buffers.all.push((place..place + size, None));
                return Ok(());
            }
            place += AREA_SIZE;
        }
        Err(CollectError::Unexpected { what: "there is no free memory near its image for code that it passes on".to_owned() })
    }

    /// Handles the start of a system call that passes on guarded code: replaces its input by a copy of the original bytes, and returns
    /// its arguments.
    pub(super) fn redirect_input(&mut self, thread: Tid, call: u64, arguments: [u64; 6]) -> Result<[u64; 6], CollectError> {
        let Some(input) = self.guarded_input(call, &arguments) else { return Ok(arguments) };
        let Some(buffer) = self.buffers.acquire(thread, input.size()) else { return Ok(arguments) };
        let (memory, session) = (&self.subject.memory, &self.subject.session);
        let vector_size = if input.is_vector { 16 * input.parts.len() as u64 } else { 0 };
        let message_size = input.message.map_or(0, |_| MESSAGE_SIZE);
        let (mut vector, mut next) = (Vec::new(), buffer + message_size + vector_size);
        let mut length = arguments[2];
        for part in &input.parts {
            let (mut start, mut size) = (part.start, part.length);
            if part.is_guarded {
                let mut bytes = memory.read_some(part.start, part.length.min(MAX_INPUT) as usize);
                session.hide_changes(part.start, &mut bytes);
                memory.write(next, &bytes)?;
                (start, size) = (next, bytes.len() as u64);
                next += size;
                length = size;
            }
            vector.extend([start.to_le_bytes(), size.to_le_bytes()].concat());
        }
        if input.is_vector {
            memory.write(buffer + message_size, &vector)?;
            length = arguments[2];
        }
        if let Some(message) = input.message {
            let mut bytes = memory.read_some(message, MESSAGE_SIZE as usize);
            bytes.resize(MESSAGE_SIZE as usize, 0);
            bytes[16..24].copy_from_slice(&(buffer + message_size).to_le_bytes());
            memory.write(buffer, &bytes)?;
        }
        let keeps_buffer = call as i64 == libc::SYS_vmsplice;
        self.redirected_calls.insert(thread, RedirectedCall { rsi: arguments[1], rdx: arguments[2], keeps_buffer });
        ptrace::set_registers(thread, &Registers { rsi: buffer, rdx: length, ..ptrace::registers(thread)? })?;
        Ok([arguments[0], buffer, length, arguments[3], arguments[4], arguments[5]])
    }

    /// Handles the end of a system call whose input was replaced.
    pub(super) fn restore_input(&mut self, thread: Tid) -> Result<(), CollectError> {
        let Some(RedirectedCall { rsi, rdx, keeps_buffer }) = self.redirected_calls.remove(&thread) else { return Ok(()) };
        if !keeps_buffer {
            self.buffers.release(thread);
        }
        Ok(ptrace::set_registers(thread, &Registers { rsi, rdx, ..ptrace::registers(thread)? })?)
    }

    /// The input of a system call, if it contains guarded code.
    fn guarded_input(&self, call: u64, arguments: &[u64; 6]) -> Option<GuardedInput> {
        let (guard, memory) = (self.subject.session.guard(), &self.subject.memory);
        let part = |(start, length): (u64, u64)| {
            let is_guarded = guard.overlaps(&(start..start.saturating_add(length)));
            InputPart { start, length, is_guarded }
        };
        let vector = |vector: u64, count: u64| parts(memory, vector, count).map(part).collect();
        let [_, second, third, ..] = *arguments;
        let (parts, is_vector, message): (Vec<InputPart>, bool, Option<u64>) = match call as i64 {
            libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_sendto => (vec![part((second, third))], false, None),
            libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 | libc::SYS_vmsplice | libc::SYS_process_vm_writev => {
                (vector(second, third), true, None)
            }
            libc::SYS_sendmsg => {
                let word = |offset: u64| memory.word(second.wrapping_add(offset)).ok();
                (vector(word(16)?, word(24)?), true, Some(second))
            }
            _ => return None,
        };
        parts.iter().any(|part| part.is_guarded).then_some(GuardedInput { parts, is_vector, message })
    }

    /// Puts the program's own code in place of the tracer's changes in what a system call has read from `/proc/self/mem`, or from its own
    /// memory by `process_vm_readv`.
    pub(super) fn hide_changes(&self, call: &Registers, result: i64) -> Result<(), CollectError> {
        let Ok(length @ 1..) = u64::try_from(result) else { return Ok(()) };
        let memory = &self.subject.memory;
        let (descriptor, buffer, count) = (call.rdi, call.rsi, call.rdx);
        // The position is now after the bytes that were read.
        let before = || self.in_memory_file(descriptor, None).map(|at| at.wrapping_sub(length));
        let at = |at| self.in_memory_file(descriptor, Some(at));
        let (from, to): (Vec<Buffer>, Vec<Buffer>) = match call.orig_rax as i64 {
            libc::SYS_read => (before().map(|at| (at, length)).into_iter().collect(), vec![(buffer, length)]),
            libc::SYS_pread64 => (at(call.r10).map(|at| (at, length)).into_iter().collect(), vec![(buffer, length)]),
            libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => {
                let uses_position = call.orig_rax as i64 == libc::SYS_readv || call.r10 == u64::MAX;
                let from = if uses_position { before() } else { at(call.r10) };
                let Some(from) = from else { return Ok(()) };
                (vec![(from, length)], parts(memory, buffer, count).collect())
            }
            libc::SYS_process_vm_readv if descriptor as Tid == self.subject.process || self.tasks.contains_key(&(descriptor as Tid)) => {
                (parts(memory, call.r10, call.r8).collect(), parts(memory, buffer, count).collect())
            }
            _ => return Ok(()),
        };
        for (from, to, length) in transfers(&from, &to, length) {
            let mut bytes = memory.read_some(to, usize::try_from(length).unwrap_or(usize::MAX));
            if self.subject.session.code_changes().undo(from, &mut bytes) {
                memory.write(to, &bytes)?;
            }
        }
        Ok(())
    }

    /// Forgets a thread that has ended, or has executed another program.
    pub(super) fn forget_calls(&mut self, thread: Tid) {
        self.deferred_calls.remove(&thread);
        if self.redirected_calls.remove(&thread).is_some() {
            self.buffers.release(thread);
        }
    }
}

impl GuardedInput {
    /// The size of a buffer for a copy.
    fn size(&self) -> u64 {
        let guarded = self.parts.iter().filter(|part| part.is_guarded).map(|part| part.length.min(MAX_INPUT));
        guarded.sum::<u64>() + 16 * self.parts.len() as u64 + MESSAGE_SIZE
    }
}

impl InputBuffers {
    fn has_room(&self, size: u64) -> bool {
        self.all.iter().any(|(range, user)| user.is_none() && range.end - range.start >= size)
    }

    /// Takes a free buffer of this size, and returns its address.
    fn acquire(&mut self, thread: Tid, size: u64) -> Option<u64> {
        let (range, user) = self.all.iter_mut().find(|(range, user)| user.is_none() && range.end - range.start >= size)?;
        *user = Some(thread);
        Some(range.start)
    }

    fn release(&mut self, thread: Tid) {
        self.all.iter_mut().filter(|(_, user)| *user == Some(thread)).for_each(|(_, user)| *user = None);
    }
}

/// Lets a thread, which is stopped at the end of a system call, make that call again.
fn repeat_call(thread: Tid, call: u64) -> Result<(), CollectError> {
    const SYSCALL_LENGTH: u64 = 2;
    let registers = ptrace::registers(thread)?;
    let again = Registers { rax: call, orig_rax: u64::MAX, rip: registers.rip - SYSCALL_LENGTH, ..registers };
    Ok(ptrace::set_registers(thread, &again)?)
}

/// Divides a transfer of `length` bytes between two lists of buffers into pieces of one buffer of each.
fn transfers(from: &[Buffer], to: &[Buffer], length: u64) -> Vec<(u64, u64, u64)> {
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
        assert_eq!(transfers(&[(10, 4), (50, 0), (20, 9)], &[(100, 6), (200, 9)], 11), [(10, 100, 4), (20, 104, 2), (22, 200, 5)]);
        assert_eq!(transfers(&[(10, 4)], &[(100, 2)], 9), [(10, 100, 2)]);
    }
}
