//! Streams as they are kept.
//!
//! ```text
//! file   "TRODWPP1" | u32 length | head (postcard of StreamHead) | frame ...
//! frame  FrameHead (64 bytes) | zstd of events as Event::to_word has them, u32 each
//! ```
//!
//! A frame has events of one thread: those of consecutive chunks. Frames of a thread may be out of order where
//! the program used several regions, and a frame may be there twice where the recorder was killed before it gave the chunks back:
//! readers put them in order. A frame that is cut off at the end is what was being written then; its chunks are still in the stream file.
//!
//! Memory: of writing, nothing but the frame; of reading, an entry of 64 bytes for each frame, and one frame.

use super::live::{StreamHead, ThreadKey};
use crate::error::ProfileError;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use trodden_wire::checksum;
use trodden_wire::stream::Event;

const MAGIC: [u8; 8] = *b"TRODWPP1";
const FRAME_MAGIC: u32 = 0x4652_4d31;
const FRAME_HEAD: usize = 64;
/// More than any head or frame has; a larger claim is damage.
const MOST: u32 = 1 << 28;
/// Fast: the program must not wait for it.
const LEVEL: i32 = 3;

/// Events of consecutive chunks of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Whose they are.
    pub key: ThreadKey,
    /// Process that was forked, if the stream began so.
    pub parent: Option<u32>,
    /// Number of the first chunk.
    pub sequence: u64,
    /// Number of chunks.
    pub chunks: u32,
    /// Events lost before it.
    pub lost: u64,
    /// Number of events.
    pub events: u32,
}

/// Writes a log.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl LogWriter {
    /// Makes a log.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path, head: &StreamHead) -> Result<LogWriter, ProfileError> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path).map_err(ProfileError::io(path, "write"))?;
        let mut log = LogWriter { path: path.to_owned(), file, bytes: 0 };
        let head = postcard::to_extend(head, Vec::new()).map_err(|e| ProfileError::io(path, "write")(std::io::Error::other(e)))?;
        log.write(&[&MAGIC[..], &(head.len() as u32).to_le_bytes(), &head].concat())?;
        Ok(log)
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, head: FrameHead, words: &[u32]) -> Result<(), ProfileError> {
        let plain: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let packed = zstd::bulk::compress(&plain, LEVEL).map_err(ProfileError::io(&self.path, "write"))?;
        let mut bytes = Vec::with_capacity(FRAME_HEAD + packed.len());
        for word in [FRAME_MAGIC, packed.len() as u32, words.len() as u32, head.chunks, head.key.thread, head.key.process] {
            bytes.extend(word.to_le_bytes());
        }
        for word in [head.key.started_ns, head.sequence, head.lost, u64::from(head.parent.unwrap_or(0)), checksum(&packed)] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&packed);
        self.write(&bytes)
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ProfileError> {
        self.file.write_all(bytes).map_err(ProfileError::io(&self.path, "write"))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// A log that is read.
#[derive(Debug)]
pub struct StreamLog {
    path: PathBuf,
    file: File,
    head: StreamHead,
    threads: Vec<ThreadLog>,
    /// Whether its end is cut off.
    is_cut: bool,
}

/// The stream of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadLog {
    /// Whose it is.
    pub key: ThreadKey,
    /// Process that was forked, if the stream began so.
    pub parent: Option<u32>,
    /// Events that there are.
    pub events: u64,
    /// Events that were lost.
    pub lost: u64,
    frames: Vec<FramePlace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FramePlace {
    head: FrameHead,
    offset: u64,
    length: u32,
    checksum: u64,
    /// Events of the thread before it.
    before: u64,
}

impl StreamLog {
    /// Reads where everything is.
    ///
    /// # Errors
    /// It cannot be read, or is no log.
    pub fn open(path: &Path) -> Result<StreamLog, ProfileError> {
        let mut file = File::open(path).map_err(ProfileError::io(path, "read"))?;
        let foreign = |what: &str| ProfileError::Foreign { path: path.to_owned(), expected: "log of a stream", what: what.into() };
        let mut begin = [0; 12];
        file.read_exact(&mut begin).map_err(|_| foreign("it is too short"))?;
        let length = u32::from_le_bytes(begin[8..12].try_into().expect("four bytes"));
        if begin[..8] != MAGIC || length > MOST {
            return Err(foreign("it does not begin with TRODWPP1"));
        }
        let mut head = vec![0; length as usize];
        file.read_exact(&mut head).map_err(|_| foreign("it ends within its head"))?;
        let head = postcard::from_bytes(&head).map_err(|e| foreign(&e.to_string()))?;
        let mut log = StreamLog { path: path.to_owned(), file, head, threads: Vec::new(), is_cut: false };
        let frames = log.find_frames(12 + u64::from(length))?;
        log.threads = threads(frames);
        Ok(log)
    }

    /// Its image.
    pub fn head(&self) -> &StreamHead {
        &self.head
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its end is cut off.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The threads, by process and beginning.
    pub fn threads(&self) -> &[ThreadLog] {
        &self.threads
    }

    /// Calls `visit` with a thread's events from number `from` on, in order, while it says so.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn visit(&self, thread: &ThreadLog, from: u64, mut visit: impl FnMut(Event) -> bool) -> Result<(), ProfileError> {
        let first = thread.frames.partition_point(|f| f.before + u64::from(f.head.events) <= from);
        for frame in &thread.frames[first..] {
            let words = self.words(frame)?;
            let skipped = from.saturating_sub(frame.before) as usize;
            for event in words.chunks_exact(4).skip(skipped).filter_map(|w| Event::of_stored(u32::from_le_bytes(w.try_into().ok()?))) {
                if !visit(event) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Calls `visit` with a thread's frames, in order.
    pub(super) fn visit_frames(
        &self,
        thread: &ThreadLog,
        mut visit: impl FnMut(FrameHead, &[u32]) -> Result<(), ProfileError>,
    ) -> Result<(), ProfileError> {
        for frame in &thread.frames {
            let words = self.words(frame)?;
            let words: Vec<u32> = words.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("four bytes"))).collect();
            visit(frame.head, &words)?;
        }
        Ok(())
    }

    fn words(&self, frame: &FramePlace) -> Result<Vec<u8>, ProfileError> {
        let damaged = |what: String| ProfileError::Damaged { path: self.path.clone(), offset: frame.offset, what };
        let mut packed = vec![0; frame.length as usize];
        self.file.read_exact_at(&mut packed, frame.offset).map_err(ProfileError::io(&self.path, "read"))?;
        if checksum(&packed) != frame.checksum {
            return Err(damaged("its checksum is another".into()));
        }
        zstd::bulk::decompress(&packed, 4 * frame.head.events as usize).map_err(|e| damaged(e.to_string()))
    }

    fn find_frames(&mut self, mut at: u64) -> Result<Vec<FramePlace>, ProfileError> {
        let end = self.file.metadata().map_err(ProfileError::io(&self.path, "read"))?.len();
        let mut frames = Vec::new();
        while at < end {
            let mut bytes = [0; FRAME_HEAD];
            let place = match self.file.read_exact_at(&mut bytes, at) {
                Ok(()) => place(&bytes, at + FRAME_HEAD as u64).filter(|p| p.offset + u64::from(p.length) <= end),
                Err(_) => None,
            };
            let Some(place) = place else {
                self.is_cut = true;
                break;
            };
            at = place.offset + u64::from(place.length);
            frames.push(place);
        }
        Ok(frames)
    }
}

fn place(bytes: &[u8; FRAME_HEAD], offset: u64) -> Option<FramePlace> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (length, events) = (u32_at(4), u32_at(8));
    if u32_at(0) != FRAME_MAGIC || length > MOST || events > MOST {
        return None;
    }
    let key = ThreadKey { process: u32_at(20), started_ns: u64_at(24), thread: u32_at(16) };
    let parent = Some(u64_at(48) as u32).filter(|p| *p != 0);
    let head = FrameHead { key, parent, sequence: u64_at(32), chunks: u32_at(12), lost: u64_at(40), events };
    Some(FramePlace { head, offset, length, checksum: u64_at(56), before: 0 })
}

/// Puts frames in order, each once.
fn threads(mut frames: Vec<FramePlace>) -> Vec<ThreadLog> {
    frames.sort_by_key(|f| (f.head.key, f.head.sequence, std::cmp::Reverse(f.head.chunks)));
    let mut threads = Vec::new();
    for frames in frames.chunk_by(|a, b| a.head.key == b.head.key) {
        let mut thread = ThreadLog { key: frames[0].head.key, parent: frames[0].head.parent, events: 0, lost: 0, frames: Vec::new() };
        let (mut next, mut gaps) = (0, 0);
        for frame in frames {
            if frame.head.sequence < next {
                continue;
            }
            gaps += frame.head.sequence - next;
            next = frame.head.sequence + u64::from(frame.head.chunks);
            thread.frames.push(FramePlace { before: thread.events, ..*frame });
            thread.events += u64::from(frame.head.events);
            thread.lost = frame.head.lost;
        }
        thread.lost += gaps * trodden_wire::stream::CHUNK_EVENTS;
        threads.push(thread);
    }
    threads
}
