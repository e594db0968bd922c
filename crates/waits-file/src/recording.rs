//! Reads recordings. Descriptions of processes and threads are kept in memory, and calls are read from the files when they are needed.

use crate::process_file::ProcessFile;
use crate::threads_file::{RecordPiece, ThreadsFile};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_text::words::plural;
use trodden_wire::layout::Layout;
use trodden_wire::waits::{CALL_RECORD_SIZE, CallRecord, SAMPLE_RECORD_SIZE, SampleRecord, ThreadHeader, kind};

/// A recording of the calls by which threads and processes wait for each other.
#[derive(Debug)]
pub struct WaitsRecording {
    /// Processes with at least one thread, ordered by rank, and then by start time.
    pub processes: Vec<Process>,
    /// Messages about corrupt parts of the files, whose records are missing.
    pub losses: Vec<String>,
}

/// A recorded process.
#[derive(Debug)]
pub struct Process {
    /// The process's description.
    pub file: ProcessFile,
    /// The process's threads, ordered by start time.
    pub threads: Vec<ThreadRecording>,
}

/// A recorded thread.
#[derive(Debug)]
pub struct ThreadRecording {
    /// The kernel's thread ID.
    pub number: u32,
    /// Number of the thread in the records of the calls that create or join it.
    pub token: u64,
    /// Time in ticks at which recording of the thread started.
    pub begin: u64,
    /// The same time on the monotonic clock, in ns.
    pub begin_ns: u64,
    /// The ticks and the monotonic time in ns of a later moment; zeros if none were recorded.
    pub anchor: (u64, u64),
    path: Arc<Path>,
    calls: Arc<[RecordPiece]>,
    samples: Vec<RecordPiece>,
    stacks: Vec<RecordPiece>,
}

/// Returns the files in a folder whose extension is `ending`, sorted by name.
pub fn list_files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == ending)).collect();
    paths.sort();
    Ok(paths)
}

/// Returns the number of recorded threads of all processes in a recording's folder.
pub fn count_threads(folder: &Path) -> Result<usize> {
    list_files(folder, "threads")?.iter().map(|path| Ok(ThreadsFile::read(path)?.thread_count())).sum()
}

impl WaitsRecording {
    /// Opens a recording. Reads the descriptions of processes, and finds the records of threads.
    ///
    /// # Errors
    /// The folder is not a recording or contains no thread, or a file is unusable. The message names the file.
    pub fn open(folder: &Path) -> Result<WaitsRecording> {
        if !folder.is_dir() {
            bail!("{} is not a recording of waits. Pass a folder written by `trodden waits record`", folder.display());
        }
        let mut recording = WaitsRecording { processes: Vec::new(), losses: Vec::new() };
        for path in list_files(folder, "process")? {
            let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            // An empty file means that the disk was full, or that the program was killed immediately after its start.
            if text.is_empty() {
                continue;
            }
            let processes = ProcessFile::parse(&path, &String::from_utf8_lossy(&text))?;
            recording.add_program(processes, &path.with_extension("threads"))?;
        }
        if recording.processes.is_empty() {
            match recording.losses.first() {
                Some(loss) => bail!("{} has no recorded threads: {loss}", folder.display()),
                None => bail!("{} has no recorded threads. Only programs that use MPI or threads are recorded", folder.display()),
            }
        }
        recording.processes.sort_by_key(|p| (p.file.mpi.as_ref().map_or(u32::MAX, |mpi| mpi.rank), p.threads[0].begin));
        Ok(recording)
    }

    /// Adds the processes of a program. Their threads are read from the program's threads file at `path`, which may be missing.
    fn add_program(&mut self, processes: Vec<ProcessFile>, path: &Path) -> Result<()> {
        let mut found = if path.exists() { ThreadsFile::read(path)? } else { ThreadsFile::default() };
        let shared: Arc<Path> = path.into();
        for file in processes {
            let threads = found.take_threads((file.number, file.start));
            let mut threads: Vec<ThreadRecording> =
                threads.into_iter().map(|(header, pieces)| ThreadRecording::new(header, pieces, &shared)).collect();
            threads.sort_by_key(|thread| (thread.begin, thread.number));
            if threads.is_empty() {
                self.losses.extend(file.notes.into_iter().filter(|note| !self.losses.contains(note)).collect::<Vec<_>>());
            } else {
                self.processes.push(Process { file, threads });
            }
        }
        let unnamed = found.thread_count();
        if unnamed > 0 {
            let threads = plural(unnamed as u128, "thread is", "threads are");
            let text = path.with_extension("process");
            self.losses.push(format!("{threads} left out, because {} does not describe their process", text.display()));
        }
        self.losses.append(&mut found.losses);
        Ok(())
    }
}

impl ThreadRecording {
    fn new(header: ThreadHeader, [calls, samples, stacks]: [Vec<RecordPiece>; 3], path: &Arc<Path>) -> ThreadRecording {
        ThreadRecording {
            number: header.thread,
            token: header.token,
            begin: header.begin,
            begin_ns: header.begin_ns,
            anchor: (header.anchor_ticks, header.anchor_ns),
            path: path.clone(),
            calls: calls.into(),
            samples,
            stacks,
        }
    }

    /// Returns an iterator over the thread's records of calls, in the order in which they were written.
    pub fn calls(&self) -> RecordedCalls {
        let (path, pieces) = (self.path.clone(), self.calls.clone());
        RecordedCalls { path, pieces, piece: 0, at: 0, bytes: Vec::new(), used: 0, next: None, is_incomplete: false }
    }

    /// Reads all samples of the thread. They fit into memory, because the default is about a thousand samples per second of processor time.
    pub fn samples(&self) -> Result<Vec<SampleRecord>> {
        let mut samples = Vec::new();
        for bytes in self.read_pieces(&self.samples)? {
            samples.extend(bytes.chunks_exact(SAMPLE_RECORD_SIZE).map_while(SampleRecord::read).take_while(|sample| sample.time != 0));
        }
        Ok(samples)
    }

    /// Reads all call stacks of the thread, which are numbered by their order. If one is missing, all later ones are left out, because
    /// their numbers are unknown.
    pub fn stacks(&self) -> Result<Vec<Vec<u64>>> {
        let mut stacks = Vec::new();
        for (bytes, piece) in self.read_pieces(&self.stacks)?.iter().zip(&self.stacks) {
            if piece.first as usize != stacks.len() {
                break;
            }
            let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            let mut rest = &words[..];
            // A count of zero marks the end of the stacks in a piece.
            while let [count, after @ ..] = rest
                && *count != 0
            {
                let Some((stack, next)) = usize::try_from(*count).ok().and_then(|count| after.split_at_checked(count)) else { break };
                stacks.push(stack.to_vec());
                rest = next;
            }
        }
        Ok(stacks)
    }

    fn read_pieces(&self, pieces: &[RecordPiece]) -> Result<Vec<Vec<u8>>> {
        if pieces.is_empty() {
            return Ok(Vec::new());
        }
        let read = || {
            let file = File::open(&self.path)?;
            pieces.iter().map(|piece| piece.read(&file)).collect::<std::io::Result<_>>()
        };
        read().with_context(|| format!("cannot read {}", self.path.display()))
    }
}

/// Iterates over the records of a thread's calls. The file is opened for each read, because a recording may have more threads than a
/// process may have open files.
pub struct RecordedCalls {
    path: Arc<Path>,
    pieces: Arc<[RecordPiece]>,
    /// Index of the current piece, and the offset in it from which the next read continues.
    piece: usize,
    at: u32,
    bytes: Vec<u8>,
    used: usize,
    next: Option<CallRecord>,
    is_incomplete: bool,
}

const CALL_READ_BUFFER_BYTES: u32 = 256 * CALL_RECORD_SIZE as u32;

impl RecordedCalls {
    /// Returns the next record without consuming it.
    pub fn peek_record(&mut self) -> Option<&CallRecord> {
        if self.next.is_none() && !self.is_incomplete {
            if self.used == self.bytes.len() && !self.fill_buffer() {
                return None;
            }
            let record = CallRecord::read(&self.bytes[self.used..])?;
            self.used += CALL_RECORD_SIZE;
            if record.kind == kind::END {
                // An incomplete record is expected only at the end of the last piece, because the program was killed while it wrote the
                // record.
                self.is_incomplete = self.piece + 1 < self.pieces.len();
                (self.piece, self.used) = (self.pieces.len(), self.bytes.len());
                return None;
            }
            self.next = Some(record);
        }
        self.next.as_ref()
    }

    /// Returns true if records are missing in the middle. All later records were then left out. The result is meaningful only after the
    /// last record was read.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Reads further records into the buffer. Returns false if there are none.
    fn fill_buffer(&mut self) -> bool {
        let left = |piece: &RecordPiece, at: u32| piece.size.saturating_sub(at) / CALL_RECORD_SIZE as u32 * CALL_RECORD_SIZE as u32;
        while self.pieces.get(self.piece).is_some_and(|piece| left(piece, self.at) == 0) {
            (self.piece, self.at) = (self.piece + 1, 0);
        }
        let Some(piece) = self.pieces.get(self.piece) else { return false };
        let size = left(piece, self.at).min(CALL_READ_BUFFER_BYTES);
        self.bytes.resize(size as usize, 0);
        let place = piece.offset + u64::from(self.at);
        if File::open(&self.path).and_then(|file| file.read_exact_at(&mut self.bytes, place)).is_err() {
            // The file was readable when the recording was opened, so this error means that records are missing.
            (self.is_incomplete, self.piece, self.used) = (true, self.pieces.len(), self.bytes.len());
            return false;
        }
        (self.at, self.used) = (self.at + size, 0);
        true
    }
}

impl Iterator for RecordedCalls {
    type Item = CallRecord;

    fn next(&mut self) -> Option<CallRecord> {
        self.peek_record();
        self.next.take()
    }
}
