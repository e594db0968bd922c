//! Finds the records of each thread in the threads file of a program and its forked children.
//!
//! The file consists of extents, which consist of chunks of records. Each has a header with its size and a checksum. After a corrupt
//! header, the reader searches for the next valid one, and reports the bytes in between as lost. Only the headers are kept in memory.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use trodden_container::{FileError, FileKind, HeaderError, expect_header};
use trodden_wire::layout::Layout;
use trodden_wire::waits::{
    CALL_RECORD_SIZE, CHUNK_ALIGNMENT, CHUNK_HEADER_SIZE, EXTENT_ALIGNMENT, EXTENT_HEADER_SIZE, ExtentHeader, SAMPLE_RECORD_SIZE,
    ThreadHeader, VERSION, WaitsChunkHeader, chunk_kind,
};

/// Maximum size in bytes of an extent whose header is accepted as valid. Recorders write smaller extents.
const MAX_EXTENT_BYTES: u32 = 16 << 20;
/// Maximum number of bytes that are searched for the next extent. A killed process leaves a gap that is no longer than an extent.
const MAX_SEARCHED_GAP_BYTES: u64 = 64 << 20;
const READ_WINDOW_SIZE: usize = 4096;

pub type ProcessKey = (u32, u64);

/// A chunk of a thread's records of one kind, in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPiece {
    pub offset: u64,
    /// Size in bytes of the space for records. The space in a thread's last piece need not be used completely.
    pub size: u32,
    /// Number of the piece's first record among the thread's records of this kind.
    pub first: u32,
}

impl RecordPiece {
    pub fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.size as usize];
        file.read_exact_at(&mut bytes, self.offset)?;
        Ok(bytes)
    }
}

#[derive(Debug, Default)]
struct ThreadInFile {
    header: Option<ThreadHeader>,
    /// The thread's pieces with calls, those with samples, and those with stacks.
    pieces: [Vec<RecordPiece>; 3],
}

#[derive(Debug, Default)]
pub struct ThreadsFile {
    threads: BTreeMap<ProcessKey, BTreeMap<u32, ThreadInFile>>,
    /// Messages about corrupt parts of the file, whose records are missing.
    pub losses: Vec<String>,
}

impl ThreadsFile {
    /// Reads the headers in a threads file.
    ///
    /// # Errors
    /// The file cannot be read, does not belong to a recording, or has an unsupported format version.
    pub fn read(path: &Path) -> Result<ThreadsFile> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let size = file.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        let mut reader =
            ThreadsReader { file: &file, size, window: Vec::new(), begin: 0, found: ThreadsFile::default(), corrupt: Vec::new() };
        let begin = reader.bytes_at(0, EXTENT_HEADER_SIZE).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(begin) = begin.filter(|begin| begin.iter().any(|byte| *byte != 0)) {
            match expect_header(begin, FileKind::WAITS, VERSION) {
                // A corrupt first header is reported as a loss, like other corrupt headers.
                Ok(_) | Err(FileError::Header(HeaderError::Checksum)) => {}
                Err(FileError::Version { found, .. }) => {
                    bail!(
                        "{}: the recording has format {found}, but this version of trodden reads format {VERSION}. Use the version that \
                         wrote the recording",
                        path.display()
                    )
                }
                Err(FileError::Header(error @ HeaderError::EarlierFormat)) => {
                    bail!("{}: {error}. Use the earlier version, or record again", path.display())
                }
                Err(error) => bail!("{} is not a file of recorded threads: {error}", path.display()),
            }
        }
        reader.read_extents().with_context(|| format!("cannot read {}", path.display()))?;
        let ThreadsReader { mut found, corrupt, .. } = reader;
        for (from, to) in corrupt {
            if from >= size {
                found.losses.push(format!("{} is truncated at byte {size}, so later records are missing", path.display()));
                continue;
            }
            found.losses.push(format!("{}: bytes {from} to {to} are corrupt, so the records in them are missing", path.display()));
        }
        found.drop_incomplete_records(path);
        Ok(found)
    }

    pub fn thread_count(&self) -> usize {
        self.threads.values().map(BTreeMap::len).sum()
    }

    /// Removes the threads of a process from the index. Returns their headers and their pieces with calls, samples and stacks.
    pub fn take_threads(&mut self, process: ProcessKey) -> Vec<(ThreadHeader, [Vec<RecordPiece>; 3])> {
        let threads = self.threads.remove(&process).unwrap_or_default();
        threads.into_values().filter_map(|thread| Some((thread.header?, thread.pieces))).collect()
    }

    /// Drops threads without a header, and the records of a thread after the first missing piece.
    fn drop_incomplete_records(&mut self, path: &Path) {
        for ((process, _), threads) in &mut self.threads {
            threads.retain(|index, thread| {
                let Some(header) = thread.header else {
                    self.losses.push(format!("{}: thread {index} of process {process} has no header, and is left out", path.display()));
                    return false;
                };
                for ((pieces, size), what) in
                    thread.pieces.iter_mut().zip([CALL_RECORD_SIZE, SAMPLE_RECORD_SIZE, 0]).zip(["calls", "samples", "stacks"])
                {
                    if let Some(complete) = count_pieces_before_gap(pieces, size) {
                        pieces.truncate(complete);
                        let (path, thread) = (path.display(), header.thread);
                        self.losses.push(format!("{path}: {what} of thread {thread} of process {process} are missing from some point on"));
                    }
                }
                true
            });
        }
        self.threads.retain(|_, threads| !threads.is_empty());
    }
}

/// Returns the number of pieces before the first missing one; `None` if none is missing. `size` is the size of a record in bytes. It is 0
/// for stacks, whose size varies; missing stacks are found when they are read.
fn count_pieces_before_gap(pieces: &[RecordPiece], size: usize) -> Option<usize> {
    if pieces.first().is_some_and(|first| first.first != 0) {
        return Some(0);
    }
    let is_gap = |pair: &[RecordPiece]| Some(pair[1].first) != pair[0].first.checked_add(pair[0].size / size.max(1) as u32);
    pieces.windows(2).position(|pair| size != 0 && is_gap(pair)).map(|before| before + 1)
}

struct ThreadsReader<'a> {
    file: &'a File,
    size: u64,
    window: Vec<u8>,
    /// Offset of the window in the file.
    begin: u64,
    found: ThreadsFile,
    /// Start and end offsets of corrupt ranges.
    corrupt: Vec<(u64, u64)>,
}

impl ThreadsReader<'_> {
    /// Returns `count` bytes at an offset in the file; `None` if the file is too short. `count` must not exceed [`READ_WINDOW_SIZE`].
    fn bytes_at(&mut self, offset: u64, count: usize) -> io::Result<Option<&[u8]>> {
        if offset + count as u64 > self.size {
            return Ok(None);
        }
        let is_in = self.begin <= offset && offset + count as u64 <= self.begin + self.window.len() as u64;
        if !is_in {
            let size = (self.size - offset).min(READ_WINDOW_SIZE as u64) as usize;
            self.window.resize(size, 0);
            self.file.read_exact_at(&mut self.window, offset)?;
            self.begin = offset;
        }
        let from = (offset - self.begin) as usize;
        Ok(Some(&self.window[from..from + count]))
    }

    fn read_extents(&mut self) -> io::Result<()> {
        let mut at = 0;
        while at < self.size {
            match self.read_extent_header(at)? {
                Some((process, size)) => {
                    self.read_chunks(process, at + EXTENT_HEADER_SIZE as u64, at + u64::from(size))?;
                    at += u64::from(size);
                }
                None => {
                    let is_extent = |reader: &mut Self, at: u64| Ok(reader.read_extent_header(at)?.is_some());
                    at = self.skip_to_match(at, self.size.min(at + MAX_SEARCHED_GAP_BYTES), EXTENT_ALIGNMENT, is_extent)?;
                    if at < self.size && self.read_extent_header(at)?.is_none() {
                        self.corrupt.push((at, self.size));
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the header of an extent. Returns the extent's process and its size in bytes; `None` if the header is invalid.
    fn read_extent_header(&mut self, offset: u64) -> io::Result<Option<(ProcessKey, u32)>> {
        let Some(bytes) = self.bytes_at(offset, EXTENT_HEADER_SIZE)? else { return Ok(None) };
        let Some(header) = ExtentHeader::read(bytes) else { return Ok(None) };
        let is_sound = header.size > 0 && header.size <= MAX_EXTENT_BYTES && header.size.is_multiple_of(EXTENT_ALIGNMENT as u32);
        Ok((header.is_intact() && is_sound).then_some(((header.process, header.start), header.size)))
    }

    /// Searches from `from` in steps of `step` bytes for an offset at which `is_match` returns true. Returns `to` if there is none. The
    /// skipped bytes count as corrupt unless all of them are zero.
    fn skip_to_match(&mut self, from: u64, to: u64, step: usize, is_match: impl Fn(&mut Self, u64) -> io::Result<bool>) -> io::Result<u64> {
        let (mut at, mut is_corrupt) = (from, false);
        while at < to && !is_match(self, at)? {
            let count = (step as u64).min(to - at).min(self.size.saturating_sub(at)) as usize;
            is_corrupt |= self.bytes_at(at, count)?.is_none_or(|bytes| bytes.iter().any(|byte| *byte != 0));
            at += step as u64;
        }
        let at = at.min(to);
        if is_corrupt {
            self.corrupt.push((from, at));
        }
        Ok(at)
    }

    fn read_chunks(&mut self, process: ProcessKey, from: u64, to: u64) -> io::Result<()> {
        if to > self.size {
            self.corrupt.push((self.size, to));
        }
        let end = to.min(self.size);
        let mut at = from;
        while at < end {
            let Some(header) = self.read_chunk_header(at, to)? else {
                at = self.skip_to_match(at, end, CHUNK_ALIGNMENT, |reader, at| Ok(reader.read_chunk_header(at, to)?.is_some()))?;
                continue;
            };
            let offset = at + CHUNK_HEADER_SIZE as u64;
            let is_thread = header.kind == chunk_kind::THREAD && header.size as usize >= CHUNK_HEADER_SIZE + size_of::<ThreadHeader>();
            let thread = if is_thread { self.bytes_at(offset, ThreadHeader::BYTES)?.and_then(ThreadHeader::read) } else { None };
            let known = self.found.threads.entry(process).or_default().entry(header.thread).or_default();
            known.header = known.header.or(thread);
            // The file may have been truncated within the chunk.
            let size = u64::from(header.size - CHUNK_HEADER_SIZE as u32).min(self.size.saturating_sub(offset)) as u32;
            if let Some(pieces) = header.kind.checked_sub(chunk_kind::CALLS).and_then(|kind| known.pieces.get_mut(kind as usize)) {
                pieces.push(RecordPiece { offset, size, first: header.first });
            }
            at += u64::from(header.size);
        }
        Ok(())
    }

    /// Reads the header of the chunk at `offset`. Returns `None` if the header is incomplete or invalid, or if the chunk extends beyond
    /// `to`.
    fn read_chunk_header(&mut self, offset: u64, to: u64) -> io::Result<Option<WaitsChunkHeader>> {
        let Some(bytes) = self.bytes_at(offset, CHUNK_HEADER_SIZE)? else { return Ok(None) };
        let Some(header) = WaitsChunkHeader::read(bytes) else { return Ok(None) };
        let is_sound = header.size as usize >= CHUNK_HEADER_SIZE && (header.size as usize).is_multiple_of(CHUNK_ALIGNMENT);
        let is_known = (chunk_kind::THREAD..=chunk_kind::STACKS).contains(&header.kind);
        Ok((header.is_intact() && is_sound && is_known && offset + u64::from(header.size) <= to).then_some(header))
    }
}
