//! System calls whose input is guarded code (code in which patches are hidden), such as a write(2) from a code address. They get a copy of
//! the code's original bytes.

use super::Following;
use super::own_code::io_vector_buffers;
use crate::CollectError;
use crate::code_guard::PAGE_SIZE;
use crate::memory::{Memory, round_to_whole_pages};
use crate::ptrace::{self, Registers, Tid};
use crate::subject::MIN_INJECTED_AREA_SIZE;
use std::ops::Range;

/// Maximum size in bytes of the input that is copied for one system call. A larger input ends the guard.
const MAX_INPUT_SIZE: u64 = 8 << 20;
const MIN_BUFFER_SIZE: u64 = 1 << 16;
/// Size of the kernel's `struct msghdr`.
const MSGHDR_SIZE: u64 = 56;

/// Buffers in the traced program for copies of code that is the input of system calls.
#[derive(Default)]
pub struct InputBuffers {
    /// The range of each buffer, and the thread that uses it.
    all: Vec<(Range<u64>, Option<Tid>)>,
}

/// The original second argument of a system call whose second argument was replaced.
pub struct RedirectedInputCall {
    rsi: u64,
}

struct InputBuffer {
    start: u64,
    length: u64,
    /// True if the buffer contains guarded code, or code whose guard is currently lifted.
    is_guarded: bool,
}

pub(super) struct CallInputWithCode {
    parts: Vec<InputBuffer>,
    /// True if the call takes the parts as an I/O vector.
    is_vector: bool,
    /// The address of the `msghdr` that refers to the vector.
    message: Option<u64>,
}

impl Following<'_, '_> {
    /// Maps a buffer of at least this size.
    pub(super) fn add_input_buffer(&mut self, thread: Tid, size: u64) -> Result<(), CollectError> {
        const MAX_MAPPING_ATTEMPTS: u64 = 8;
        let size = size.max(MIN_BUFFER_SIZE).next_power_of_two();
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
        // Place the buffer after the collector's area, or after the last buffer there.
        let mut place = self.buffers.all.iter().map(|buffer| buffer.0.end).max().unwrap_or(self.subject.injected_area().end);
        for _ in 0..MAX_MAPPING_ATTEMPTS {
            let arguments = [place, size, libc::PROT_READ as u64, flags, u64::MAX, 0];
            if self.subject.inject_system_call(thread, Some(self.subject.area), libc::SYS_mmap, arguments)? as u64 == place {
                self.calls.shown.hide(place..place + size);
                self.buffers.all.push((place..place + size, None));
                return Ok(());
            }
            place += MIN_INJECTED_AREA_SIZE;
        }
        Err(CollectError::Unexpected {
            what: "there is no free memory near its image for a copy of the code that a system call reads".to_owned(),
        })
    }

    /// Handles the start of a system call whose input is guarded code: replaces the input by a copy of the original bytes, and returns the
    /// new arguments.
    pub(super) fn redirect_call_input(
        &mut self,
        thread: Tid,
        input: CallInputWithCode,
        arguments: [u64; 6],
    ) -> Result<[u64; 6], CollectError> {
        let Some(buffer) = self.buffers.acquire(thread, input.size()) else { return Ok(arguments) };
        let (memory, session) = (&self.subject.memory, &self.subject.session);
        let vector_size = if input.is_vector { 16 * input.parts.len() as u64 } else { 0 };
        let message_size = input.message.map_or(0, |_| MSGHDR_SIZE);
        let (mut vector, mut next) = (Vec::new(), buffer + message_size + vector_size);
        let mut start = arguments[1];
        for part in &input.parts {
            start = part.start;
            if part.is_guarded {
                let mut bytes = memory.read_some(part.start, part.length as usize);
                session.hide_changes(part.start, &mut bytes);
                // Direct I/O requires that buffers are aligned.
                start = next.next_multiple_of(PAGE_SIZE) + part.start % PAGE_SIZE;
                memory.write(start, &bytes)?;
                next = start + part.length;
            }
            vector.extend([start.to_le_bytes(), part.length.to_le_bytes()].concat());
        }
        if input.is_vector {
            memory.write(buffer + message_size, &vector)?;
            start = buffer + message_size;
        }
        if let Some(message) = input.message {
            let mut bytes = memory.read_some(message, MSGHDR_SIZE as usize);
            bytes.resize(MSGHDR_SIZE as usize, 0);
            bytes[16..24].copy_from_slice(&(buffer + message_size).to_le_bytes());
            memory.write(buffer, &bytes)?;
            start = buffer;
        }
        self.redirected_calls.insert(thread, RedirectedInputCall { rsi: arguments[1] });
        ptrace::write_registers(thread, &Registers { rsi: start, ..ptrace::read_registers(thread)? })?;
        Ok([arguments[0], start, arguments[2], arguments[3], arguments[4], arguments[5]])
    }

    pub(super) fn restore_call_input(&mut self, thread: Tid) -> Result<(), CollectError> {
        let Some(RedirectedInputCall { rsi }) = self.redirected_calls.remove(&thread) else { return Ok(()) };
        self.buffers.release(thread);
        Ok(ptrace::write_registers(thread, &Registers { rsi, ..ptrace::read_registers(thread)? })?)
    }

    /// Returns the input of a system call if it contains guarded code, or code whose guard is currently lifted.
    pub(super) fn find_call_input_with_code(&self, call: u64, arguments: &[u64; 6]) -> Option<CallInputWithCode> {
        let (session, memory) = (&self.subject.session, &self.subject.memory);
        let guard = session.guard();
        guard.key.filter(|_| self.failure.is_none())?;
        let is_lifted = |range: &Range<u64>| {
            !self.lifting.is_empty() && session.code_changes().changed_spans_in(&round_to_whole_pages(range)).next().is_some()
        };
        let part = |(start, length): (u64, u64)| {
            let range = start..start.saturating_add(length);
            InputBuffer { start, length, is_guarded: length > 0 && (guard.overlaps(&range) || is_lifted(&range)) }
        };
        let vector = |vector: u64, count: u64| -> Option<Vec<InputBuffer>> {
            let parts: Vec<InputBuffer> = io_vector_buffers(memory, vector, count).map(part).collect();
            // If part of the vector cannot be read, the call fails anyway.
            (parts.len() as u64 == count).then_some(parts)
        };
        let [_, second, third, ..] = *arguments;
        let (parts, is_vector, message): (Vec<InputBuffer>, bool, Option<u64>) = match call as i64 {
            libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_sendto => (vec![part((second, third))], false, None),
            libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 | libc::SYS_vmsplice | libc::SYS_process_vm_writev => {
                (vector(second, third)?, true, None)
            }
            libc::SYS_sendmsg => {
                let word = |offset: u64| memory.word(second.wrapping_add(offset)).ok();
                (vector(word(16)?, word(24)?)?, true, Some(second))
            }
            _ => return None,
        };
        parts.iter().any(|part| part.is_guarded).then_some(CallInputWithCode { parts, is_vector, message })
    }
}

impl CallInputWithCode {
    /// Returns the size of the buffer that a copy of the input needs.
    pub(super) fn size(&self) -> u64 {
        let sizes = self.guarded_parts().map(|part| part.length.saturating_add(2 * PAGE_SIZE));
        sizes.fold(16 * self.parts.len() as u64 + MSGHDR_SIZE, u64::saturating_add)
    }

    fn guarded_parts(&self) -> impl Iterator<Item = &InputBuffer> {
        self.parts.iter().filter(|part| part.is_guarded)
    }

    /// Returns true if a copy can replace the input. A call whose input is partly unmapped ends early, which a copy would hide.
    pub(super) fn can_be_copied(&self, memory: &Memory) -> bool {
        let is_mapped = |part: &InputBuffer| memory.read(part.start.saturating_add(part.length - 1), &mut [0]).is_ok();
        self.size() <= MAX_INPUT_SIZE && self.guarded_parts().all(is_mapped)
    }
}

impl InputBuffers {
    pub(super) fn has_free_buffer(&self, size: u64) -> bool {
        self.all.iter().any(|(range, user)| user.is_none() && range.end - range.start >= size)
    }

    /// Reserves a free buffer of at least this size, and returns its address.
    fn acquire(&mut self, thread: Tid, size: u64) -> Option<u64> {
        let (range, user) = self.all.iter_mut().find(|(range, user)| user.is_none() && range.end - range.start >= size)?;
        *user = Some(thread);
        Some(range.start)
    }

    pub(super) fn release(&mut self, thread: Tid) {
        self.all.iter_mut().filter(|(_, user)| *user == Some(thread)).for_each(|(_, user)| *user = None);
    }
}
