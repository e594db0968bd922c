//! Stream logs: files with the compressed streams of a run's threads.
//!
//! A log is a [container](trodden_container) file: a section with the [`StreamHeader`], then a section for each *frame*. A frame contains
//! the events of consecutive chunks of one thread, either compressed to a *window* (a grammar of [`StreamSymbol`]s) or plain
//! ([`Event::to_word`](trodden_wire::stream::Event::to_word), 4 bytes each). The section's subject is the thread; its index has the other
//! fields of the [`LogFrameHeader`]. The log of a finished recording contains only windows. Plain events occur in journals, which belong to
//! windows that are not finished ([`super::builder`]).

use super::live::{StreamHeader, ThreadKey};
use super::symbol::{CallStackDepth, StreamSymbol};
use crate::error::ProfileError;
use crate::private;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use trodden_container::{
    FILE_HEADER_BYTES, FileError, FileHeader, FileKind, HeaderError, SECTION_HEADER_BYTES, SECTION_MARKER, Section, SectionError,
    SectionHeader, encode, expect_header, find_marker,
};
use trodden_sequence::Grammar;
use trodden_sequence::grammar::read_window;
use trodden_wire::stream::CHUNK_EVENT_COUNT;

const LOG_VERSION: u32 = 4;
const STREAM_HEADER_TAG: u32 = 1;
const EVENTS_FRAME_TAG: u32 = 2;
const WINDOW_FRAME_TAG: u32 = 3;
/// Size of a frame's index in bytes. It consists of seven numbers.
const FRAME_INDEX_BYTES: usize = 7 * 8;
/// Number of bytes of a frame before its content.
const FRAME_HEADER_BYTES: usize = SECTION_HEADER_BYTES + FRAME_INDEX_BYTES;
/// File offset of the first section's content.
const FIRST_FRAME_CONTENT_OFFSET: usize = FILE_HEADER_BYTES + SECTION_HEADER_BYTES;
const MARKER_SEARCH_BUFFER_BYTES: usize = 1 << 16;
const HEADER_COMPRESSION_LEVEL: i32 = 3;
/// This level is low, because the traced program may be waiting while its events are written.
const EVENTS_COMPRESSION_LEVEL: i32 = 1;
/// This level is higher than the one for events, because windows are written less often.
const WINDOW_COMPRESSION_LEVEL: i32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFrameContent {
    Events,
    /// A grammar of symbols.
    Window,
}

/// Header of a frame, which is a section of the log with the events of consecutive chunks of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFrameHeader {
    pub content: LogFrameContent,
    pub key: ThreadKey,
    /// ID of the parent process, if the stream began with a `fork`.
    pub parent: Option<u32>,
    /// Number of the frame's first chunk.
    pub sequence: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of events that the thread lost before this frame.
    pub lost: u64,
    /// Number of events or, in a window, of symbols.
    pub events: u64,
    /// Depth of the call stack at the end of the window. Unused in frames of events.
    pub depth: CallStackDepth,
}

#[derive(Debug)]
pub struct StreamLogWriter {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl StreamLogWriter {
    pub fn create(path: &Path, header: &StreamHeader) -> Result<StreamLogWriter, ProfileError> {
        let file = private::create_file(path).map_err(ProfileError::io(path, "write"))?;
        let mut log = StreamLogWriter { path: path.to_owned(), file, bytes: 0 };
        let section = Section { tag: STREAM_HEADER_TAG, layout: LOG_VERSION, ..Section::default() }
            .to_bytes(&encode(header), HEADER_COMPRESSION_LEVEL);
        log.write(&[&FileHeader::new(FileKind::STREAM_LOG, LOG_VERSION).to_bytes()[..], &section].concat())?;
        Ok(log)
    }

    pub fn reopen(path: &Path) -> Result<StreamLogWriter, ProfileError> {
        let file = OpenOptions::new().append(true).open(path).map_err(ProfileError::io(path, "write"))?;
        let bytes = file.metadata().map_err(ProfileError::io(path, "read"))?.len();
        Ok(StreamLogWriter { path: path.to_owned(), file, bytes })
    }

    /// Compresses `content` and appends it to the log as a frame.
    pub fn append(&mut self, header: &LogFrameHeader, content: &[u8]) -> Result<(), ProfileError> {
        let level = match header.content {
            LogFrameContent::Events => EVENTS_COMPRESSION_LEVEL,
            LogFrameContent::Window => WINDOW_COMPRESSION_LEVEL,
        };
        let packed = zstd::bulk::compress(content, level).map_err(ProfileError::io(&self.path, "write"))?;
        self.append_packed(header, &packed, content.len() as u64)
    }

    pub(super) fn append_packed(&mut self, header: &LogFrameHeader, packed: &[u8], unpacked: u64) -> Result<(), ProfileError> {
        let LogFrameHeader { sequence, chunks, lost, events, depth, .. } = *header;
        let parent = u64::from(header.parent.unwrap_or(0));
        let index: Vec<u8> = [sequence, chunks, lost, parent, events, depth.frames, u64::from(depth.is_known)]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let mut subject = [0; 16];
        subject[..4].copy_from_slice(&header.key.thread.to_le_bytes());
        subject[4..8].copy_from_slice(&header.key.process.to_le_bytes());
        subject[8..].copy_from_slice(&header.key.started_ns.to_le_bytes());
        let tag = match header.content {
            LogFrameContent::Events => EVENTS_FRAME_TAG,
            LogFrameContent::Window => WINDOW_FRAME_TAG,
        };
        let section = Section { tag, layout: LOG_VERSION, subject, count: 0, index: &index };
        self.write(&section.packed_to_bytes(packed, unpacked))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ProfileError> {
        self.file.write_all(bytes).map_err(ProfileError::io(&self.path, "write"))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// An open stream log.
///
/// If the recorder was killed, the same chunks may be in two frames, or in both a window and a journal. Therefore readers sort the frames
/// and use each chunk once. If the last frame is truncated, its chunks are still in the journal or in the stream file. After a corrupt
/// frame header, reading continues at the next frame ([`StreamLog::corrupt_bytes`]). Corrupt content is an error only when the frame is
/// read.
#[derive(Debug)]
pub struct StreamLog {
    path: PathBuf,
    file: File,
    header: StreamHeader,
    threads: Vec<ThreadLog>,
    is_truncated: bool,
    corrupt_bytes: u64,
}

/// The stream of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadLog {
    /// The thread.
    pub key: ThreadKey,
    /// ID of the parent process, if the stream began with a `fork`.
    pub parent: Option<u32>,
    /// Number of events of the thread in the log.
    pub events: u64,
    /// Number of events of the thread that were lost.
    pub lost: u64,
    frames: Vec<FramePosition>,
}

impl ThreadLog {
    /// Returns the number of windows of the thread.
    pub fn window_count(&self) -> usize {
        self.frames.len()
    }

    /// Returns the compressed size of the thread's stream in bytes.
    pub fn bytes(&self) -> u64 {
        self.frames.iter().map(|f| f.section.length()).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FramePosition {
    header: LogFrameHeader,
    section: SectionHeader,
    /// Offset of its content.
    offset: u64,
    /// Number of the thread's symbols in earlier frames.
    before: u64,
}

pub(super) struct PackedFrame {
    pub header: LogFrameHeader,
    pub packed: Vec<u8>,
    pub section: SectionHeader,
}

impl StreamLog {
    /// Opens a log and finds its frames. Fails if the file cannot be read, is not a stream log, is of a different version, or has a corrupt
    /// stream header.
    pub fn open(path: &Path) -> Result<StreamLog, ProfileError> {
        let file = File::open(path).map_err(ProfileError::io(path, "read"))?;
        let foreign = |what: String| ProfileError::Foreign { path: path.to_owned(), expected: "stream log", what };
        let corrupt = |error: SectionError| ProfileError::Corrupt {
            path: path.to_owned(),
            offset: FILE_HEADER_BYTES as u64,
            what: format!("the description of the program is invalid: {error}"),
        };
        let mut begin = Vec::new();
        (&file).take(FIRST_FRAME_CONTENT_OFFSET as u64).read_to_end(&mut begin).map_err(ProfileError::io(path, "read"))?;
        match expect_header(&begin, FileKind::STREAM_LOG, LOG_VERSION) {
            Ok(_) => {}
            Err(FileError::Version { found, known, .. }) => {
                let (found, known) = (found.into(), known.into());
                return Err(ProfileError::Version { path: path.to_owned(), kind: "stream log", found, known });
            }
            Err(FileError::Header(HeaderError::EarlierFormat)) => {
                return Err(ProfileError::Earlier { path: path.to_owned(), kind: "stream log" });
            }
            Err(error) => return Err(foreign(error.to_string())),
        }
        let section = SectionHeader::read(&begin[FILE_HEADER_BYTES..]).map_err(corrupt)?;
        if section.tag != STREAM_HEADER_TAG || section.index_length() != 0 {
            return Err(corrupt(SectionError::Marker));
        }
        let mut packed = Vec::new();
        (&file).take(section.packed_length()).read_to_end(&mut packed).map_err(ProfileError::io(path, "read"))?;
        let header = section.value(&packed).map_err(corrupt)?;
        let mut log = StreamLog { path: path.to_owned(), file, header, threads: Vec::new(), is_truncated: false, corrupt_bytes: 0 };
        let frames = log.find_frames(FILE_HEADER_BYTES as u64 + section.length())?;
        log.threads = group_by_thread(frames);
        Ok(log)
    }

    /// Returns the path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the description of the image and the process that wrote the stream.
    pub fn header(&self) -> &StreamHeader {
        &self.header
    }

    /// Returns whether the log ends within a frame.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Returns the number of bytes that are not part of a readable frame. It is unknown which threads they belonged to.
    pub fn corrupt_bytes(&self) -> u64 {
        self.corrupt_bytes
    }

    /// Returns the streams of all threads, sorted by process ID and start time.
    pub fn threads(&self) -> &[ThreadLog] {
        &self.threads
    }

    /// Returns the grammar of a thread's window. Its terminals are [`StreamSymbol`]s ([`StreamSymbol::from_number`]).
    pub fn window(&self, thread: &ThreadLog, number: usize) -> Result<Grammar, ProfileError> {
        let frame = &thread.frames[number];
        let content = self.read_frame_content(frame)?;
        let corrupt = |what: String| ProfileError::Corrupt { path: self.path.clone(), offset: frame.offset, what };
        if frame.header.content != LogFrameContent::Window {
            return Err(corrupt("expected a window, found events. The file is a journal; read it with `trodden import`".into()));
        }
        let (window, _) = read_window(&content).map_err(|e| corrupt(e.to_string()))?;
        if window.grammar.len() != frame.header.events {
            return Err(corrupt(format!("expected a window of {} symbols, found {}", frame.header.events, window.grammar.len())));
        }
        Ok(window.grammar)
    }

    /// Joins a thread's windows to one grammar, without expanding them. Fails if the file cannot be read or is corrupt, or if the joined
    /// grammar would be too large.
    pub fn grammar(&self, thread: &ThreadLog) -> Result<Grammar, ProfileError> {
        let windows = (0..thread.window_count()).map(|number| self.window(thread, number)).collect::<Result<Vec<_>, _>>()?;
        if let [window] = windows.as_slice() {
            return Ok(window.clone());
        }
        Grammar::concatenated(&windows).map_err(|e| ProfileError::Corrupt { path: self.path.clone(), offset: 0, what: e.to_string() })
    }

    /// Calls `visit` with the symbols of a thread in order, starting with symbol number `from`. Stops when `visit` returns false.
    pub fn visit(&self, thread: &ThreadLog, from: u64, mut visit: impl FnMut(StreamSymbol) -> bool) -> Result<(), ProfileError> {
        let first = thread.frames.partition_point(|f| f.before + f.header.events <= from);
        for number in first..thread.frames.len() {
            let grammar = self.window(thread, number)?;
            let skipped = from.saturating_sub(thread.frames[number].before);
            for symbol in grammar.symbols_from(skipped).filter_map(StreamSymbol::from_number) {
                if !visit(symbol) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Calls `visit` with the frames of a thread in order. The frames are still compressed.
    pub(super) fn visit_frames(
        &self,
        thread: &ThreadLog,
        mut visit: impl FnMut(PackedFrame) -> Result<(), ProfileError>,
    ) -> Result<(), ProfileError> {
        for frame in &thread.frames {
            visit(PackedFrame { header: frame.header, packed: self.read_packed_frame(frame)?, section: frame.section })?;
        }
        Ok(())
    }

    fn read_packed_frame(&self, frame: &FramePosition) -> Result<Vec<u8>, ProfileError> {
        let mut packed = vec![0; frame.section.packed_length() as usize];
        self.file.read_exact_at(&mut packed, frame.offset).map_err(ProfileError::io(&self.path, "read"))?;
        frame.section.check(&packed).map_err(|error| self.corrupt_frame_error(frame, &error))?;
        Ok(packed)
    }

    fn read_frame_content(&self, frame: &FramePosition) -> Result<Vec<u8>, ProfileError> {
        frame.section.unpack(&self.read_packed_frame(frame)?).map_err(|error| self.corrupt_frame_error(frame, &error))
    }

    fn corrupt_frame_error(&self, frame: &FramePosition, error: &SectionError) -> ProfileError {
        ProfileError::Corrupt { path: self.path.clone(), offset: frame.offset, what: format!("the content of a frame is invalid: {error}") }
    }

    fn find_frames(&mut self, mut at: u64) -> Result<Vec<FramePosition>, ProfileError> {
        let end = self.file.metadata().map_err(ProfileError::io(&self.path, "read"))?.len();
        let mut frames = Vec::new();
        while at < end {
            match self.frame_at(at, end)? {
                FoundFrame::Complete(frame) => {
                    at = frame.offset + frame.section.packed_length();
                    frames.push(frame);
                }
                FoundFrame::Truncated => {
                    self.is_truncated = true;
                    break;
                }
                FoundFrame::Corrupt => {
                    let next = self.find_next_frame(at + 1, end)?;
                    self.corrupt_bytes += next - at;
                    at = next;
                }
            }
        }
        Ok(frames)
    }

    /// Reads the header of the frame at an offset. `end` is the length of the file.
    fn frame_at(&self, at: u64, end: u64) -> Result<FoundFrame, ProfileError> {
        if end - at < FRAME_HEADER_BYTES as u64 {
            return Ok(FoundFrame::Truncated);
        }
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.file.read_exact_at(&mut bytes, at).map_err(ProfileError::io(&self.path, "read"))?;
        Ok(match parse_frame_header(&bytes, at + FRAME_HEADER_BYTES as u64) {
            None => FoundFrame::Corrupt,
            Some(frame) if frame.offset + frame.section.packed_length() > end => FoundFrame::Truncated,
            Some(frame) => FoundFrame::Complete(frame),
        })
    }

    /// Returns the offset of the first frame at or after `from`; `end` if there is none.
    fn find_next_frame(&self, from: u64, end: u64) -> Result<u64, ProfileError> {
        let mut bytes = vec![0; MARKER_SEARCH_BUFFER_BYTES];
        let mut at = from;
        while at + (FRAME_HEADER_BYTES as u64) <= end {
            let length = (end - at).min(MARKER_SEARCH_BUFFER_BYTES as u64) as usize;
            self.file.read_exact_at(&mut bytes[..length], at).map_err(ProfileError::io(&self.path, "read"))?;
            match find_marker(&bytes[..length]) {
                Some(index) => {
                    let candidate = at + index as u64;
                    if end - candidate >= FRAME_HEADER_BYTES as u64 && !matches!(self.frame_at(candidate, end)?, FoundFrame::Corrupt) {
                        return Ok(candidate);
                    }
                    at = candidate + 1;
                }
                // The next search begins before the end of these bytes, since a marker may begin in the last of them.
                None => at += (length - SECTION_MARKER.len() + 1) as u64,
            }
        }
        Ok(end)
    }
}

enum FoundFrame {
    Complete(FramePosition),
    /// The file ends before the frame does.
    Truncated,
    /// The frame's header is corrupt.
    Corrupt,
}

/// Returns whether the file ends before the end of its stream header. That is the case if its writer was killed while it created the log.
pub(super) fn has_incomplete_header(path: &Path) -> Result<bool, ProfileError> {
    let file = File::open(path).map_err(ProfileError::io(path, "read"))?;
    let length = file.metadata().map_err(ProfileError::io(path, "read"))?.len();
    let mut begin = Vec::new();
    (&file).take(FIRST_FRAME_CONTENT_OFFSET as u64).read_to_end(&mut begin).map_err(ProfileError::io(path, "read"))?;
    if begin.len() < FIRST_FRAME_CONTENT_OFFSET {
        return Ok(true);
    }
    let is_log = expect_header(&begin, FileKind::STREAM_LOG, LOG_VERSION).is_ok();
    Ok(is_log && SectionHeader::read(&begin[FILE_HEADER_BYTES..]).is_ok_and(|header| FILE_HEADER_BYTES as u64 + header.length() > length))
}

pub(super) fn unpack_events(frame: &PackedFrame, path: &Path) -> Result<Vec<u32>, ProfileError> {
    let corrupt = |error: SectionError| ProfileError::Corrupt { path: path.to_owned(), offset: 0, what: error.to_string() };
    let bytes = frame.section.unpack(&frame.packed).map_err(corrupt)?;
    Ok(bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("four bytes"))).collect())
}

/// Parses the section header and index of a frame; `None` if they are corrupt. `offset` is the file offset of the frame's content.
fn parse_frame_header(bytes: &[u8; FRAME_HEADER_BYTES], offset: u64) -> Option<FramePosition> {
    let section = SectionHeader::read(bytes).ok()?;
    let content = match section.tag {
        EVENTS_FRAME_TAG => LogFrameContent::Events,
        WINDOW_FRAME_TAG => LogFrameContent::Window,
        _ => return None,
    };
    let index = &bytes[SECTION_HEADER_BYTES..];
    if section.index_length() != FRAME_INDEX_BYTES as u64 || section.verify_index_checksum(index).is_err() {
        return None;
    }
    let id = |at: usize| u32::from_le_bytes(section.subject[at..at + 4].try_into().expect("four bytes"));
    let started_ns = u64::from_le_bytes(section.subject[8..].try_into().expect("eight bytes"));
    let number = |n: usize| u64::from_le_bytes(index[8 * n..8 * n + 8].try_into().expect("eight bytes"));
    let header = LogFrameHeader {
        content,
        key: ThreadKey { process: id(4), started_ns, thread: id(0) },
        parent: Some(number(3) as u32).filter(|p| *p != 0),
        sequence: number(0),
        chunks: number(1),
        lost: number(2),
        events: number(4),
        depth: CallStackDepth { frames: number(5), is_known: number(6) != 0 },
    };
    Some(FramePosition { header, section, offset, before: 0 })
}

/// Groups frames by thread and sorts them. Drops frames whose chunks are in earlier frames.
fn group_by_thread(mut frames: Vec<FramePosition>) -> Vec<ThreadLog> {
    frames.sort_by_key(|f| (f.header.key, f.header.sequence, std::cmp::Reverse(f.header.chunks)));
    let mut threads = Vec::new();
    for frames in frames.chunk_by(|a, b| a.header.key == b.header.key) {
        let mut thread = ThreadLog { key: frames[0].header.key, parent: frames[0].header.parent, events: 0, lost: 0, frames: Vec::new() };
        let (mut next, mut gaps) = (0, 0_u64);
        for frame in frames {
            if frame.header.sequence < next {
                continue;
            }
            gaps = gaps.saturating_add(frame.header.sequence - next);
            next = frame.header.sequence.saturating_add(frame.header.chunks);
            thread.frames.push(FramePosition { before: thread.events, ..*frame });
            thread.events = thread.events.saturating_add(frame.header.events);
            thread.lost = frame.header.lost;
        }
        thread.lost = thread.lost.saturating_add(gaps.saturating_mul(CHUNK_EVENT_COUNT));
        threads.push(thread);
    }
    threads
}
