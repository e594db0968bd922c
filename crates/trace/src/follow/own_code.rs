//! Programs that change their own code. Before the change, the code is released: it is no longer watched, and patches are removed, so that
//! the program reads, writes and executes its own bytes. From then on the trace has no hits in this code, and says so.
//!
//! This detects system calls that make code writable, replace it or unmap it, and writes to `/proc/self/mem` and by `process_vm_writev`. It
//! cannot detect writes by other processes, or stores to code that is writable from the start; collectors that modify code reject programs
//! with such code.

use super::{Following, ignore_killed_thread};
use crate::CollectError;
use crate::followed_thread::{FollowedTask, ThreadRole};
use crate::memory::{Memory, MemoryEffect, round_to_whole_pages};
use crate::ptrace::{self, PtraceStop, Tid, ignore_ended_thread};
use crate::sink::SinkFlow;
use std::ops::Range;

/// Maximum number of buffers in a vector (`IOV_MAX`). Calls with more buffers fail.
const MAX_VECTOR_BUFFERS: u64 = 1024;

pub struct MemoryChange {
    /// The affected addresses, in whole pages.
    pub(super) pages: Range<u64>,
    effect: MemoryEffect,
    /// True if the code there may be different or missing afterwards.
    changes_code: bool,
}

impl Following<'_, '_> {
    /// Handles the start of a system call: releases the code that the call may change.
    pub(super) fn release_changed_code(&mut self, thread: Tid, call: u64, arguments: &[u64; 6]) -> Result<(), CollectError> {
        let mut ranges = Vec::new();
        let changes = self.memory_changes_of_call(call, arguments);
        for change in changes.iter().filter(|change| change.changes_code) {
            ranges.extend(self.watch.watched_ranges_in(&change.pages, call as i64 == libc::SYS_munmap));
        }
        if !changes.is_empty() {
            self.pending_changes.insert(thread, changes);
        }
        if ranges.is_empty() { Ok(()) } else { self.release_code_with_all_stopped(&ranges, thread, true) }
    }

    /// Releases code. If the collector changes code, first stops the other recorded threads. `thread` is about to make a system call
    /// (`is_in_call`) or can be stepped.
    pub(super) fn release_code_with_all_stopped(
        &mut self,
        ranges: &[Range<u64>],
        thread: Tid,
        is_in_call: bool,
    ) -> Result<(), CollectError> {
        let others = if self.watch.patches_code() { self.stop_others_and_handle_new_tasks(thread)? } else { Vec::new() };
        let released = self.unguard(ranges, thread, is_in_call).and_then(|()| self.release(ranges, &others, thread, is_in_call));
        // The events are reported again, and then handled as usual.
        others.into_iter().for_each(|event| self.subject.session.requeue_event(event));
        released
    }

    /// Stops all other threads, and returns their events. New tasks with a copy of the memory are handled first, since their copies must be
    /// cleaned while the changes to the memory are known.
    fn stop_others_and_handle_new_tasks(&mut self, thread: Tid) -> Result<Vec<(Tid, PtraceStop)>, CollectError> {
        loop {
            let stopped = self.stop_others(thread)?.into_iter();
            let (created, others): (Vec<_>, Vec<_>) = stopped.partition(|(_, what)| matches!(what, PtraceStop::Created { .. }));
            if created.is_empty() {
                return Ok(others);
            }
            others.into_iter().for_each(|event| self.subject.session.requeue_event(event));
            created.into_iter().for_each(|(other, what): (Tid, PtraceStop)| _ = self.handle(other, what));
        }
    }

    /// Handles new tasks of other threads before the code guard ends, since a task with a copy of the memory also has a copy of the guard.
    pub(super) fn handle_new_tasks_of_others(&mut self, thread: Tid) -> Result<(), CollectError> {
        if !self.subject.session.has_several_threads() {
            return Ok(());
        }
        self.stop_other_threads_briefly(thread)
    }

    /// Stops all other threads. Their events are queued, and the threads resume when these are handled.
    pub(super) fn stop_other_threads_briefly(&mut self, thread: Tid) -> Result<(), CollectError> {
        let others = self.stop_others_and_handle_new_tasks(thread)?;
        others.into_iter().for_each(|event| self.subject.session.requeue_event(event));
        Ok(())
    }

    /// Ends the guard of code that is about to be released. For a system call (`is_in_call`) there is nothing to do, because it was
    /// deferred until the guard had ended.
    fn unguard(&self, ranges: &[Range<u64>], thread: Tid, is_in_call: bool) -> Result<(), CollectError> {
        if is_in_call {
            return Ok(());
        }
        self.subject.session.show_all_code(thread)?;
        ranges.iter().try_for_each(|range| self.subject.session.unguard(thread, &round_to_whole_pages(range)))
    }

    /// Handles the end of a system call that was to change memory.
    pub(super) fn handle_memory_changes(&mut self, thread: Tid, is_done: bool) -> Result<(), CollectError> {
        for change in self.pending_changes.remove(&thread).into_iter().flatten().filter(|_| is_done) {
            self.watch.handle_memory_change(self.subject, thread, &change.pages, change.effect)?;
        }
        Ok(())
    }

    /// Releases code and moves all threads out of it. `thread` is at its system call (`is_in_call`) or can be stepped; `others` are the
    /// other threads, each with the event for which it is stopped.
    fn release(&mut self, ranges: &[Range<u64>], others: &[(Tid, PtraceStop)], thread: Tid, is_in_call: bool) -> Result<(), CollectError> {
        for range in ranges {
            self.watch.release(self.subject, range, self.sink).map_err(CollectError::Store)?;
        }
        self.watch.move_out_of_released_code(thread, &|| Ok(!is_in_call && self.subject.step(thread)?.is_some()))?;
        for (other, what) in others {
            let information = if let PtraceStop::Signal(_) = what { ptrace::signal_information(*other).ok() } else { None };
            // In other stops, the thread is in the middle of a system call, and cannot be stepped.
            let can_step = matches!(what, PtraceStop::Signal(_) | PtraceStop::Interrupted);
            let moved = self.watch.move_out_of_released_code(*other, &|| Ok(can_step && self.subject.step(*other)?.is_some()));
            moved.map(|()| SinkFlow::Continue).or_else(ignore_killed_thread)?;
            if let Some(information) = information {
                ignore_ended_thread(ptrace::set_signal_information(*other, &information))?;
            }
        }
        Ok(())
    }

    /// Stops all other threads wherever they are, and returns their events. A thread that has hit a breakpoint is moved back before it,
    /// as if it had not reached it yet.
    fn stop_others(&mut self, thread: Tid) -> Result<Vec<(Tid, PtraceStop)>, CollectError> {
        let session = self.subject.session.clone();
        // The parent of a `vfork` child executes nothing, and cannot be stopped.
        let is_running = |other: &Tid| *other != thread && !session.is_stopped(*other) && !self.in_vfork.contains(other);
        // Unrecorded tasks have their own memory, from which the changes have been removed.
        let shares = |task: &FollowedTask| !task.is_ending && matches!(task.role, ThreadRole::Recorded(_));
        let running = self.tasks.iter().filter(|(_, task)| shares(task)).map(|(other, _)| *other).filter(is_running);
        let running: Vec<Tid> = running.collect();
        for other in &running {
            ignore_ended_thread(ptrace::interrupt_thread(*other))?;
        }
        let mut stopped = Vec::new();
        for other in running {
            match session.wait_for(other) {
                Ok(PtraceStop::Signal(libc::SIGTRAP)) if self.watch.undo_recorded_hit(other, libc::SIGTRAP)? == 0 => {
                    stopped.push((other, PtraceStop::Interrupted));
                }
                Ok(what) => stopped.push((other, what)),
                // The thread has ended, and its exit event is queued.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(stopped)
    }

    pub(super) fn memory_changes_of_call(&self, call: u64, arguments: &[u64; 6]) -> Vec<MemoryChange> {
        use MemoryEffect::{Protected, Replaced, Written};
        const DISCARDING_ADVICE: [u64; 4] =
            [libc::MADV_DONTNEED as u64, libc::MADV_FREE as u64, libc::MADV_REMOVE as u64, libc::MADV_DONTNEED_LOCKED as u64];
        let [first, second, third, fourth, fifth, _] = *arguments;
        // Code that stays executable and unwritable is unchanged.
        let stays = |protection: u64| protection & (libc::PROT_EXEC | libc::PROT_WRITE) as u64 == libc::PROT_EXEC as u64;
        let memory = |start: u64, length: u64, effect| MemoryChange {
            pages: round_to_whole_pages(&(start..start.saturating_add(length))),
            effect,
            changes_code: effect != Protected || !stays(third),
        };
        match call as i64 {
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => vec![memory(first, second, Protected)],
            libc::SYS_mmap if fourth & libc::MAP_FIXED as u64 != 0 => vec![memory(first, second, Replaced)],
            libc::SYS_munmap => vec![memory(first, second, Replaced)],
            libc::SYS_mremap => {
                let to = fourth & libc::MREMAP_FIXED as u64 != 0;
                [memory(first, second, Replaced)].into_iter().chain(to.then(|| memory(fifth, third, Replaced))).collect()
            }
            libc::SYS_madvise if DISCARDING_ADVICE.contains(&third) => vec![memory(first, second, Written)],
            // The size of the shared memory segment is unknown, so assume the largest.
            libc::SYS_shmat if third & libc::SHM_REMAP as u64 != 0 => vec![memory(second, u64::MAX, Replaced)],
            libc::SYS_write => self.position_in_memory_file(first, None).map(|at| memory(at, third, Written)).into_iter().collect(),
            libc::SYS_pwrite64 => {
                self.position_in_memory_file(first, Some(fourth)).map(|at| memory(at, third, Written)).into_iter().collect()
            }
            libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => {
                let at = self.position_in_memory_file(first, (call as i64 != libc::SYS_writev && fourth != u64::MAX).then_some(fourth));
                let length = || io_vector_buffers(&self.subject.memory, second, third).map(|part| part.1).fold(0, u64::saturating_add);
                at.map(|at| memory(at, length(), Written)).into_iter().collect()
            }
            libc::SYS_process_vm_writev if first as Tid == self.subject.process || self.tasks.contains_key(&(first as Tid)) => {
                io_vector_buffers(&self.subject.memory, fourth, fifth).map(|(start, length)| memory(start, length, Written)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// If a descriptor is `/proc/self/mem`, returns the address of an access to it: `at`, or the descriptor's own position.
    pub(super) fn position_in_memory_file(&self, descriptor: u64, at: Option<u64>) -> Option<u64> {
        let position = self.calls.shown.position_in_memory(self.subject.process, descriptor)?;
        Some(at.unwrap_or(position))
    }
}

/// Yields the address and length of each buffer in an I/O vector.
pub(super) fn io_vector_buffers(memory: &Memory, vector: u64, count: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
    let words = read_words_of_memory(memory, vector, 2 * count.min(MAX_VECTOR_BUFFERS));
    (0..words.len() / 2).map(move |part| (words[2 * part], words[2 * part + 1]))
}

pub(super) fn read_words_of_memory(memory: &Memory, address: u64, count: u64) -> Vec<u64> {
    let bytes = memory.read_some(address, 8 * count as usize);
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("it has eight bytes"))).collect()
}
