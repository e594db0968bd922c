//! A recording on disk: its processes and their threads. Calls and samples are read as streams.

use super::process_file::ProcessFile;
use anyhow::{Context, Result, anyhow, bail};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use trodden_wire::waits::{CallRecord, HEADER_SIZE, MAGIC, RECORD_SIZE, SAMPLE_SIZE, SampleRecord, VERSION, kind};

/// A recording.
#[derive(Debug)]
pub struct Recording {
    /// Processes, by rank, then by number.
    pub processes: Vec<Process>,
}

/// A process.
#[derive(Debug)]
pub struct Process {
    pub file: ProcessFile,
    /// Threads, in order of their beginning.
    pub threads: Vec<RecordedThread>,
}

/// A thread.
#[derive(Debug)]
pub struct RecordedThread {
    pub number: u32,
    pub token: u64,
    /// Ticks when its recording began, and the clock then.
    pub begin: u64,
    pub begin_ns: u64,
    /// A later pair of ticks and clock; 0 if there was none.
    pub anchor: (u64, u64),
    path: PathBuf,
}

impl Recording {
    /// Reads what is small, and finds what is not.
    ///
    /// # Errors
    /// There is no recording, or a file of it is damaged; the message names it.
    pub fn open(folder: &Path) -> Result<Recording> {
        if !folder.is_dir() {
            bail!("{} is no recording (a folder made by `trodden waits record`)", folder.display());
        }
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        names.sort();
        let ends = |path: &&PathBuf, ending: &str| path.extension().is_some_and(|e| e == ending);
        let mut processes = Vec::new();
        for path in names.iter().filter(|path| ends(path, "process")) {
            let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let file = ProcessFile::parse(path, &String::from_utf8_lossy(&text))?;
            let stem = format!("{}.", path.file_stem().unwrap_or_default().to_string_lossy());
            let own = |path: &&PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&stem));
            let threads = names.iter().filter(|path| ends(path, "calls")).filter(own).map(|path| RecordedThread::open(path));
            let mut threads: Vec<RecordedThread> = threads.collect::<Result<_>>()?;
            threads.sort_by_key(|thread| (thread.begin, thread.number));
            processes.push(Process { file, threads });
        }
        processes.retain(|process| !process.threads.is_empty());
        if processes.is_empty() {
            bail!(
                "{} has no recorded thread: did the program use MPI or threads? (`trodden waits record` says what it recorded)",
                folder.display()
            );
        }
        processes.sort_by_key(|p| (p.file.mpi.as_ref().map_or(u32::MAX, |mpi| mpi.rank), p.threads[0].begin));
        Ok(Recording { processes })
    }
}

impl RecordedThread {
    fn open(path: &Path) -> Result<RecordedThread> {
        let mut header = [0u8; HEADER_SIZE];
        let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        file.read_exact(&mut header).map_err(|_| anyhow!("{}: shorter than its header: the recording is damaged", path.display()))?;
        if header[..8] != MAGIC {
            bail!("{}: not a file of recorded calls", path.display());
        }
        let version = u32_at(&header, 8);
        if version != VERSION {
            bail!("{}: version {version} of the recording, and this trodden reads {VERSION}: use the one that recorded it", path.display());
        }
        Ok(RecordedThread {
            number: u32_at(&header, 16),
            token: u64_at(&header, 32),
            begin: u64_at(&header, 24),
            begin_ns: u64_at(&header, 56),
            anchor: (u64_at(&header, 40), u64_at(&header, 48)),
            path: path.to_owned(),
        })
    }

    /// Its calls, from the first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn calls(&self) -> Result<RecordedCalls> {
        let mut file =
            BufReader::with_capacity(1 << 16, File::open(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?);
        file.read_exact(&mut [0; HEADER_SIZE]).with_context(|| format!("cannot read {}", self.path.display()))?;
        Ok(RecordedCalls { file, next: None })
    }

    /// Its samples, all. Samples of a thread are few: some hundred per second.
    ///
    /// # Errors
    /// The file cannot be read. A missing one has none.
    pub fn samples(&self) -> Result<Vec<SampleRecord>> {
        let bytes = read_beside(&self.path, "samples")?;
        let records = bytes.chunks_exact(SAMPLE_SIZE).map(sample);
        Ok(records.take_while(|sample| sample.time != 0).collect())
    }

    /// Its stacks of return addresses, by number. A cut last one is left out.
    ///
    /// # Errors
    /// The file cannot be read. A missing one has none.
    pub fn stacks(&self) -> Result<Vec<Vec<u64>>> {
        let bytes = read_beside(&self.path, "stacks")?;
        let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64_at(word, 0)).collect();
        let mut stacks = Vec::new();
        let mut rest = &words[..];
        while let [count, after @ ..] = rest {
            let Some((stack, next)) = usize::try_from(*count).ok().and_then(|count| after.split_at_checked(count)) else { break };
            stacks.push(stack.to_vec());
            rest = next;
        }
        Ok(stacks)
    }
}

fn read_beside(path: &Path, ending: &str) -> Result<Vec<u8>> {
    let path = path.with_extension(ending);
    match fs::read(&path) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The calls of a thread.
pub struct RecordedCalls {
    file: BufReader<File>,
    next: Option<CallRecord>,
}

impl RecordedCalls {
    /// The next record without taking it.
    pub fn peek(&mut self) -> Option<&CallRecord> {
        if self.next.is_none() {
            let mut bytes = [0u8; RECORD_SIZE];
            // A cut record is the end, as it is of a program that was killed.
            self.file.read_exact(&mut bytes).ok()?;
            self.next = Some(call(&bytes)).filter(|record| record.kind != kind::END);
        }
        self.next.as_ref()
    }
}

impl Iterator for RecordedCalls {
    type Item = CallRecord;

    fn next(&mut self) -> Option<CallRecord> {
        self.peek();
        self.next.take()
    }
}

fn call(bytes: &[u8]) -> CallRecord {
    CallRecord {
        enter: u64_at(bytes, 0),
        exit: u64_at(bytes, 8),
        kind: u16::from_le_bytes([bytes[16], bytes[17]]),
        function: u16::from_le_bytes([bytes[18], bytes[19]]),
        stack: u32_at(bytes, 20),
        object: u64_at(bytes, 24),
        peer: u32_at(bytes, 32) as i32,
        tag: u32_at(bytes, 36) as i32,
        amount: u64_at(bytes, 40),
        request: u64_at(bytes, 48),
        cpu_ns: u64_at(bytes, 56),
    }
}

fn sample(bytes: &[u8]) -> SampleRecord {
    SampleRecord {
        time: u64_at(bytes, 0),
        address: u64_at(bytes, 8),
        stack: u32_at(bytes, 16),
        calls: u32_at(bytes, 20),
        position: u64_at(bytes, 24),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}
