//! Programs that change their own code. Before they do, nothing is watched there any more, and what was written there is taken out: they
//! read, write and execute what is theirs. From then on the trace lacks what is executed there, and says so.
//!
//! Seen are the system calls that let code be written, replace it or take it away, and writes of `/proc/self/mem` and
//! `process_vm_writev`. Not seen are stores into code that could be written from the start, which collectors refuse that write into code,
//! and those of another process.

use super::{Following, unless_killed};
use crate::CollectError;
use crate::memory::{Memory, MemoryEffect, pages};
use crate::ptrace::{self, PtraceStop, Registers, Tid, unless_gone};
use crate::sink::SinkFlow;
use std::ops::Range;

/// Parts of a vector of buffers at most: more are an error of the program (`IOV_MAX`).
const MAX_PARTS: u64 = 1024;

/// What a system call does to memory.
pub struct MemoryChange {
    /// Whole pages.
    pages: Range<u64>,
    effect: MemoryEffect,
    /// Whether code in it may be other code from now on, or none.
    changes_code: bool,
}

impl Following<'_, '_> {
    /// A system call begins: code that it may change is not watched any more.
    pub(super) fn release_changed_code(&mut self, thread: Tid, call: u64, arguments: &[u64; 6]) -> Result<(), CollectError> {
        let mut ranges = Vec::new();
        let changes = self.memory_changes(call, arguments);
        for change in changes.iter().filter(|change| change.changes_code) {
            ranges.extend(self.watch.watched_in(&change.pages, call as i64 == libc::SYS_munmap));
        }
        if !changes.is_empty() {
            self.changing.insert(thread, changes);
        }
        if ranges.is_empty() {
            return Ok(());
        }
        let mut others = Vec::new();
        while self.watch.changes_code() {
            let made;
            (made, others) = self.stop_others(thread)?.into_iter().partition(|(_, what)| matches!(what, PtraceStop::Made { .. }));
            if made.is_empty() {
                break;
            }
            // A child with a copy of the memory is cleaned of what is there now.
            others.drain(..).for_each(|event| self.subject.session.keep_event(event));
            made.into_iter().for_each(|(other, what): (Tid, PtraceStop)| _ = self.handle(other, what));
        }
        let released = self.release(&ranges, &others, thread);
        // They come again, and are handled in the usual way.
        others.into_iter().for_each(|event| self.subject.session.keep_event(event));
        released
    }

    /// A system call has ended that was to change memory.
    pub(super) fn note_changes(&mut self, thread: Tid, is_done: bool) -> Result<(), CollectError> {
        for change in self.changing.remove(&thread).into_iter().flatten().filter(|_| is_done) {
            self.watch.note_change(self.subject, thread, &change.pages, change.effect)?;
        }
        Ok(())
    }

    /// Takes out what was written for some code, and puts all threads right: `others`, stopped for these events, and one at its system
    /// call.
    fn release(&mut self, ranges: &[Range<u64>], others: &[(Tid, PtraceStop)], thread: Tid) -> Result<(), CollectError> {
        for range in ranges {
            self.watch.release(self.subject, range, self.sink).map_err(CollectError::Store)?;
        }
        self.watch.leave_released(thread, &|| Ok(false))?;
        for (other, what) in others {
            let information = if let PtraceStop::Signal(_) = what { ptrace::signal_information(*other).ok() } else { None };
            // Elsewhere it is in the middle of a system call.
            let can_step = matches!(what, PtraceStop::Signal(_) | PtraceStop::Begun);
            let left = self.watch.leave_released(*other, &|| Ok(can_step && self.subject.step(*other)?.is_some()));
            left.map(|()| SinkFlow::GoOn).or_else(unless_killed)?;
            if let Some(information) = information {
                unless_gone(ptrace::set_signal_information(*other, &information))?;
            }
        }
        Ok(())
    }

    /// Stops all other threads wherever they are; gives what for. One that was at a breakpoint stands before it, as if it had not been
    /// there yet.
    fn stop_others(&mut self, thread: Tid) -> Result<Vec<(Tid, PtraceStop)>, CollectError> {
        let session = self.subject.session.clone();
        // A parent in `vfork` executes nothing, and cannot be stopped.
        let is_running = |other: &Tid| *other != thread && !session.is_stopped(*other) && !self.in_vfork.contains(other);
        let running = self.tasks.iter().filter(|(_, task)| !task.is_ending).map(|(other, _)| *other).filter(is_running);
        let running: Vec<Tid> = running.collect();
        for other in &running {
            unless_gone(ptrace::interrupt(*other))?;
        }
        let mut stopped = Vec::new();
        for other in running {
            match session.wait_for(other) {
                Ok(PtraceStop::Signal(libc::SIGTRAP)) if self.watch.undo_hit(other, libc::SIGTRAP)? == 0 => {
                    stopped.push((other, PtraceStop::Begun));
                }
                Ok(what) => stopped.push((other, what)),
                // Its end has been kept.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(stopped)
    }

    /// What a system call may do to memory.
    fn memory_changes(&self, call: u64, arguments: &[u64; 6]) -> Vec<MemoryChange> {
        use MemoryEffect::{Protected, Replaced, Written};
        const DISCARDS: [u64; 4] =
            [libc::MADV_DONTNEED as u64, libc::MADV_FREE as u64, libc::MADV_REMOVE as u64, libc::MADV_DONTNEED_LOCKED as u64];
        let [first, second, third, fourth, fifth, _] = *arguments;
        // Code that can run and not be written stays what it is.
        let stays = |protection: u64| protection & (libc::PROT_EXEC | libc::PROT_WRITE) as u64 == libc::PROT_EXEC as u64;
        let memory = |start: u64, length: u64, effect| MemoryChange {
            pages: pages(&(start..start.saturating_add(length))),
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
            libc::SYS_madvise if DISCARDS.contains(&third) => vec![memory(first, second, Written)],
            // How much it maps is not known.
            libc::SYS_shmat if third & libc::SHM_REMAP as u64 != 0 => vec![memory(second, u64::MAX, Replaced)],
            libc::SYS_write => self.in_memory_file(first, None).map(|at| memory(at, third, Written)).into_iter().collect(),
            libc::SYS_pwrite64 => self.in_memory_file(first, Some(fourth)).map(|at| memory(at, third, Written)).into_iter().collect(),
            libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => {
                let at = self.in_memory_file(first, (call as i64 != libc::SYS_writev && fourth != u64::MAX).then_some(fourth));
                let length = || parts(&self.subject.memory, second, third).map(|part| part.1).fold(0, u64::saturating_add);
                at.map(|at| memory(at, length(), Written)).into_iter().collect()
            }
            libc::SYS_process_vm_writev if first as Tid == self.subject.process || self.tasks.contains_key(&(first as Tid)) => {
                parts(&self.subject.memory, fourth, fifth).map(|(start, length)| memory(start, length, Written)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Where in the program's memory a file is read or written, at a given position or at its own, if it is `/proc/self/mem`.
    fn in_memory_file(&self, descriptor: u64, at: Option<u64>) -> Option<u64> {
        let position = self.calls.shown.position_in_memory(self.subject.process, descriptor)?;
        Some(at.unwrap_or(position))
    }

    /// A system call has ended: what it has read of `/proc/self/mem` is the program's own code.
    pub(super) fn hide_changes(&self, call: &Registers, result: i64) -> Result<(), CollectError> {
        let Ok(length @ 1..) = u64::try_from(result) else { return Ok(()) };
        let (descriptor, buffer, offset) = (call.rdi, call.rsi, call.r10);
        let at = match call.orig_rax as i64 {
            // The file stands behind what was read.
            libc::SYS_read => self.in_memory_file(descriptor, None).map(|at| at.wrapping_sub(length)),
            libc::SYS_pread64 => self.in_memory_file(descriptor, Some(offset)),
            _ => None,
        };
        let Some(at) = at else { return Ok(()) };
        let mut bytes = self.subject.memory.read_some(buffer, usize::try_from(length).unwrap_or(usize::MAX));
        self.subject.session.hide_changes(at, &mut bytes);
        Ok(self.subject.memory.write(buffer, &bytes)?)
    }
}

/// Addresses and lengths of a vector of buffers.
fn parts(memory: &Memory, vector: u64, count: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    (0..count.min(MAX_PARTS)).map_while(move |part| {
        let at = vector.wrapping_add(16 * part);
        Some((memory.word(at).ok()?, memory.word(at.wrapping_add(8)).ok()?))
    })
}
