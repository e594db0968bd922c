//! Text buffers that need no heap, and messages to the user.

use crate::system::{self, Errno};
use crate::wire::LostReason;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The kernel's maximum length of a path in bytes, including the NUL.
pub const PATH_MAX: usize = 4096;

/// A text of limited length, followed by a NUL.
pub struct Text {
    bytes: [u8; PATH_MAX],
    length: usize,
}

/// The error that a text has no room for more bytes.
pub struct TextFull;

impl Text {
    pub const fn new() -> Text {
        Text { bytes: [0; PATH_MAX], length: 0 }
    }

    pub fn clear(&mut self) {
        self.length = 0;
    }

    pub fn push(&mut self, byte: u8) -> Result<(), TextFull> {
        if self.length + 1 >= PATH_MAX {
            return Err(TextFull);
        }
        if let [at, next, ..] = self.bytes.get_mut(self.length..).unwrap_or(&mut []) {
            *at = byte;
            *next = 0;
            self.length += 1;
        }
        Ok(())
    }

    pub fn extend(&mut self, bytes: &[u8]) -> Result<(), TextFull> {
        bytes.iter().try_for_each(|&byte| self.push(byte))
    }

    pub fn extend_number(&mut self, number: u32) -> Result<(), TextFull> {
        if number >= 10 {
            self.extend_number(number / 10)?;
        }
        self.push(b'0' + (number % 10) as u8)
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// Returns the bytes from index `start` on, including the NUL.
    pub fn with_nul(&self, start: usize) -> &[u8] {
        self.bytes.get(start..=self.length).unwrap_or(&[0])
    }

    /// Replaces the text with the bytes that `source` writes into the buffer. `source` returns their number.
    pub fn fill(&mut self, source: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<(), Errno> {
        let [buffer @ .., _] = &mut self.bytes;
        self.length = source(buffer)?.min(PATH_MAX - 1);
        self.set_byte(self.length, 0);
        Ok(())
    }

    /// Changes the byte at `index`; does nothing if it is outside the buffer.
    pub fn set_byte(&mut self, index: usize, byte: u8) {
        if let Some(place) = self.bytes.get_mut(index) {
            *place = byte;
        }
    }
}

/// The reason why counts cannot be written, and advice to the user.
pub struct OutputFailure {
    pub reason: &'static [u8],
    pub error: Option<Errno>,
    pub advice: &'static [u8],
    /// The reason as it is recorded in the raw file.
    pub lost: LostReason,
}

impl OutputFailure {
    pub const fn new(reason: &'static [u8], advice: &'static [u8]) -> OutputFailure {
        OutputFailure { reason, error: None, advice, lost: LostReason::Other }
    }

    /// Creates the failure of a system call. If the cause is a limit of the process, the advice is to raise that limit.
    pub const fn from_errno(reason: &'static [u8], error: Errno, advice: &'static [u8]) -> OutputFailure {
        let advice: &[u8] = match error.0 {
            12 => b"let the program have more memory (ulimit -v)",
            24 => b"let the program open more files (ulimit -n)",
            _ => advice,
        };
        OutputFailure { reason, error: Some(error), advice, lost: LostReason::Other }
    }

    pub const fn with_lost_reason(self, lost: LostReason) -> OutputFailure {
        OutputFailure { lost, ..self }
    }
}

/// Device and inode of standard error when the image starts; zero if it was closed. By comparing them, messages are never written to a file
/// that was opened later under the same descriptor number.
static STDERR_IDENTITY: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

fn stat_stderr() -> [u64; 2] {
    system::stat_number(2).map_or([0; 2], |stat| [stat.dev, stat.ino])
}

pub fn save_stderr_identity() {
    STDERR_IDENTITY.iter().zip(stat_stderr()).for_each(|(saved, now)| saved.store(now, SeqCst));
}

/// Prints one line, `trodden: SUBJECT: reason (error): advice; ...`. Overwrites `scratch`.
pub fn print_failure(subject: &[u8], failure: &OutputFailure, scratch: &mut Text) {
    scratch.clear();
    let _ = compose_failure(subject, failure, scratch);
    scratch.set_byte(scratch.bytes().len(), b'\n');
    print_line(scratch.with_nul(0));
}

/// Writes a line to standard error, unless the descriptor refers to a different file by now.
pub fn print_line(line: &[u8]) {
    let [device, inode] = stat_stderr();
    let is_unchanged = STDERR_IDENTITY.iter().zip([device, inode]).all(|(saved, now)| saved.load(SeqCst) == now);
    if is_unchanged && inode != 0 {
        system::write_if_ready(2, line);
    }
}

fn compose_failure(subject: &[u8], failure: &OutputFailure, line: &mut Text) -> Result<(), TextFull> {
    line.extend(b"trodden: ")?;
    // Leave room for the rest of the line, however long the name is.
    for &byte in subject.iter().take(PATH_MAX - 512) {
        line.push(if byte < b' ' { b'?' } else { byte })?;
    }
    line.extend(b": ")?;
    line.extend(failure.reason)?;
    if let Some(error) = failure.error {
        line.extend(b" (")?;
        match describe_errno(error) {
            Some(name) => line.extend(name)?,
            None => {
                line.extend(b"error ")?;
                line.extend_number(error.0 as u32)?;
            }
        }
        line.extend(b")")?;
    }
    line.extend(b": ")?;
    line.extend(failure.advice)?;
    line.extend(b"; code that runs from here on is not counted")
}

/// Returns the description of a common error; `None` for other errors.
fn describe_errno(error: Errno) -> Option<&'static [u8]> {
    Some(match error.0 {
        1 => b"operation not permitted",
        2 => b"no such file or folder",
        12 => b"out of memory",
        13 => b"permission denied",
        20 => b"not a folder",
        21 => b"it is a folder",
        23 | 24 => b"too many open files",
        28 => b"no space left",
        30 => b"read-only file system",
        36 => b"name too long",
        40 => b"symbolic link",
        122 => b"disk quota exceeded",
        _ => return None,
    })
}
