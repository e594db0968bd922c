//! Reads a text line by line, and keeps the lines' offsets for messages.

use super::SourceError;
use std::io::BufRead;
use std::path::{Path, PathBuf};

pub(crate) struct SourceLines<R> {
    reader: R,
    path: PathBuf,
    /// Offsets of the start and end of the line that was read last.
    at: (u64, u64),
    buffer: Vec<u8>,
}

impl<R: BufRead> SourceLines<R> {
    pub fn new(reader: R, path: &Path) -> SourceLines<R> {
        SourceLines { reader, path: path.to_owned(), at: (0, 0), buffer: Vec::new() }
    }

    /// Reads the next line; `None` at the end of the text.
    pub fn next(&mut self) -> Result<Option<String>, SourceError> {
        self.buffer.clear();
        let read = self.reader.read_until(b'\n', &mut self.buffer);
        let size = read.map_err(|source| SourceError::Read { path: self.path.clone(), offset: self.at.1, source })?;
        self.at = (self.at.1, self.at.1 + size as u64);
        Ok((size > 0).then(|| String::from_utf8_lossy(&self.buffer).into_owned()))
    }

    /// Returns the error for a malformed line, which is the one that was read last.
    pub fn corrupt(&self, what: impl Into<String>) -> SourceError {
        if self.buffer.last().is_some_and(|b| *b != b'\n') {
            return self.truncated_file_error(format!("in a line: {}", what.into()));
        }
        SourceError::Corrupt { path: self.path.clone(), offset: self.at.0, what: what.into() }
    }

    pub fn truncated_file_error(&self, what: impl Into<String>) -> SourceError {
        SourceError::Truncated { path: self.path.clone(), offset: self.at.1, what: what.into() }
    }

    pub fn foreign_format_error(&self, what: impl Into<String>) -> SourceError {
        SourceError::Foreign { path: self.path.clone(), what: what.into() }
    }
}
