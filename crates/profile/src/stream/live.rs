//! Reads stream files, to which programs may be writing. [`trodden_wire::stream`] defines the layout.
//!
//! The program may write while the file is read, and may be killed at any moment. Therefore all sizes and offsets are checked against the
//! file's length, and words that are not events are counted and skipped. A flight recorder, which keeps only the most recent events,
//! overwrites its chunks, but marks a chunk as free before it changes it. The events read from such a chunk are valid only if the chunk's
//! header is the same afterwards.

use crate::error::ProfileError;
use crate::raw::{RawFileSetup, RawRegionFile, has_kind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use trodden_container::FileKind;
use trodden_unit::Identity;
use trodden_wire::layout::Layout;
use trodden_wire::stream::{
    CHUNK_BYTES, CHUNK_FREE, CHUNK_FULL, CHUNK_RING_OFFSET_BYTES, Event, RegionStream, SHADOW_BYTES, STREAM_CHUNKS_PER_REGION,
    STREAM_HEADER_BYTES, STREAM_REGION_WORDS, StreamChunkHeader,
};
use trodden_wire::{LostThreads, RawHeader, RawUnit, region_lost_offset, region_stride};

/// Maximum number of attempts to read data that the program is changing at the same time.
const MAX_READ_ATTEMPTS: usize = 16;

/// Description of the image and the process that wrote a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamHeader {
    /// Identity of the image.
    pub image: Identity,
    /// Path under which the process loaded the image; empty if unknown.
    pub image_path: PathBuf,
    /// Number of its counters.
    pub counters: u64,
    /// Identity, first counter and number of counters of each unit, in link order.
    pub units: Vec<(Identity, u64, u64)>,
    /// ID of the process that created the file.
    pub pid: u64,
    /// Creation time of the file, in nanoseconds since 1970.
    pub created_ns: u64,
}

/// Key of a thread's stream. It includes the start time because process and thread IDs may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadKey {
    /// Process ID.
    pub process: u32,
    /// Start time of the thread, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Thread ID.
    pub thread: u32,
}

/// A chunk of a thread's stream, in a stream file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamChunk {
    /// Its thread.
    pub key: ThreadKey,
    /// ID of the parent process, if the stream began with a `fork`.
    pub parent: Option<u32>,
    /// Index of the chunk in the thread's stream.
    pub sequence: u64,
    /// Number of events that the thread lost before this chunk.
    pub lost: u64,
    /// Address of the image's counter template in the process. Addresses in events are relative to it.
    pub template: u64,
    /// Whether the chunk is full. The program does not change a full chunk until it is returned to the program.
    pub is_full: bool,
    /// Index of the chunk's region in the file, and of its slot in the region.
    pub place: (u64, u64),
}

impl ThreadKey {
    fn from_header(header: &StreamChunkHeader) -> ThreadKey {
        ThreadKey { process: header.process, started_ns: header.started_ns, thread: header.thread }
    }
}

impl StreamChunk {
    fn new(header: &StreamChunkHeader, place: (u64, u64)) -> StreamChunk {
        StreamChunk {
            key: ThreadKey::from_header(header),
            parent: Some(header.parent).filter(|p| *p != 0),
            sequence: header.sequence,
            lost: header.lost,
            template: header.template,
            is_full: header.state == CHUNK_FULL,
            place,
        }
    }
}

/// A thread's most recent events, read from the stream file of a flight recorder.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveThread {
    /// The thread.
    pub key: ThreadKey,
    /// One event for each live activation of a function, outermost first.
    pub frames: Vec<Event>,
    /// The thread's most recent events, oldest first.
    pub events: Vec<Event>,
    /// Number of events that the thread recorded before `events`.
    pub earlier: u64,
    /// Whether the thread wrote events while its chunks were read. If so, `frames` may be newer than `events`.
    pub is_running: bool,
}

/// An open stream file.
#[derive(Debug)]
pub struct LiveStream {
    path: PathBuf,
    file: File,
    header: StreamHeader,
    regions_offset: u64,
    stride: u64,
}

/// Returns whether a file has the header of a stream file.
pub fn is_stream_file(path: &Path) -> bool {
    has_kind(path, FileKind::STREAM_FILE)
}

impl LiveStream {
    /// Opens a stream file. With `to_drain`, it is also opened for writing, so that chunks can be returned to the program. Fails if the
    /// file cannot be opened, is not a stream file, has no header yet, or has a corrupt header.
    pub fn open(path: &Path, to_drain: bool) -> Result<LiveStream, ProfileError> {
        let action = if to_drain { "write" } else { "read" };
        let file = OpenOptions::new().read(true).write(to_drain).open(path).map_err(ProfileError::io(path, action))?;
        let raw = RawRegionFile::new(path, file)?;
        let RawFileSetup { header, units, image_path } = raw.read_setup(FileKind::STREAM_FILE)?;
        if header.region_stride != region_stride(STREAM_REGION_WORDS) {
            let what = format!("expected regions of {} bytes, found {}", region_stride(STREAM_REGION_WORDS), header.region_stride);
            return Err(ProfileError::RawCorrupt { path: path.to_owned(), offset: offset_of!(RawHeader, region_stride) as u64, what });
        }
        let units = units.into_iter().map(|RawUnit { unit, first, counters }| (Identity(unit), first, counters)).collect();
        let stream_header = StreamHeader {
            image: Identity(header.image),
            image_path,
            counters: header.counters,
            units,
            pid: header.pid,
            created_ns: header.created_ns,
        };
        let (regions_offset, stride) = (header.regions_offset, header.region_stride);
        Ok(LiveStream { path: raw.path, file: raw.file, header: stream_header, regions_offset, stride })
    }

    /// Returns the path of the stream file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the description of the image and the process that write the stream.
    pub fn header(&self) -> &StreamHeader {
        &self.header
    }

    /// Returns the threads that have recorded nothing so far, because there was no space for a region.
    pub fn lost_threads(&self) -> Result<LostThreads, ProfileError> {
        let word = |offset: u64| {
            let mut word = [0; 8];
            self.read_exact(&mut word, offset).map(|()| LostThreads(u64::from_le_bytes(word)))
        };
        let of_header = word(offset_of!(RawHeader, lost) as u64)?;
        (0..self.region_count()?)
            .try_fold(of_header, |sum, region| Ok(sum.merge(word(self.region_offset(region, region_lost_offset(STREAM_REGION_WORDS)))?)))
    }

    /// Returns the number of regions that are complete in the file.
    pub fn region_count(&self) -> Result<u64, ProfileError> {
        let length = self.file.metadata().map_err(ProfileError::io(&self.path, "read"))?.len();
        Ok(length.saturating_sub(self.regions_offset) / self.stride)
    }

    /// Returns whether the file is truncated. An intact file ends where a region ends.
    pub fn is_truncated(&self) -> Result<bool, ProfileError> {
        let length = self.file.metadata().map_err(ProfileError::io(&self.path, "read"))?.len();
        Ok(length.checked_sub(self.regions_offset).is_none_or(|regions| !regions.is_multiple_of(self.stride)))
    }

    /// Returns the chunk in a slot; `None` if the slot is free or the chunk's header is corrupt.
    pub fn chunk(&self, region: u64, slot: u64) -> Result<Option<StreamChunk>, ProfileError> {
        let (header, is_intact) = self.read_header(region, slot)?;
        Ok((header.state != CHUNK_FREE && is_intact).then(|| StreamChunk::new(&header, (region, slot))))
    }

    /// Reads a chunk's header, and returns whether its checksum matches. It may not match for a free chunk, whose header the program may be
    /// changing.
    fn read_header(&self, region: u64, slot: u64) -> Result<(StreamChunkHeader, bool), ProfileError> {
        let mut bytes = [0; StreamChunkHeader::BYTES];
        let mut reads = 0;
        loop {
            self.read_exact(&mut bytes, self.chunk_offset(region, slot))?;
            let header = StreamChunkHeader::read(&bytes).expect("as many bytes as a header has");
            let is_intact = header.checksum == header.fields_checksum() && header.state <= CHUNK_FULL;
            reads += 1;
            // If the program changed the header while it was read, the state may be older than the other fields. The header is read again
            // then.
            if is_intact || header.state == CHUNK_FREE || reads == MAX_READ_ATTEMPTS {
                return Ok((header, is_intact));
            }
        }
    }

    /// Returns the file offsets of chunks with corrupt headers. The events in these chunks are lost.
    pub fn corrupt_chunks(&self) -> Result<Vec<u64>, ProfileError> {
        let mut corrupt = Vec::new();
        for region in 0..self.region_count()? {
            for slot in 0..STREAM_CHUNKS_PER_REGION {
                let (header, is_intact) = self.read_header(region, slot)?;
                corrupt.extend((header.state != CHUNK_FREE && !is_intact).then(|| self.chunk_offset(region, slot)));
            }
        }
        Ok(corrupt)
    }

    /// Returns all chunks that are in use, sorted by thread and number.
    pub fn chunks(&self) -> Result<Vec<StreamChunk>, ProfileError> {
        let mut chunks = Vec::new();
        for region in 0..self.region_count()? {
            for slot in 0..STREAM_CHUNKS_PER_REGION {
                chunks.extend(self.chunk(region, slot)?);
            }
        }
        chunks.sort_by_key(|c| (c.key, c.sequence));
        Ok(chunks)
    }

    /// Returns, for each thread, the number of its last known chunk plus 1. This includes chunks that were already returned to the program,
    /// since they keep their headers until they are reused.
    pub(super) fn count_chunks_by_thread(&self) -> Result<BTreeMap<ThreadKey, u64>, ProfileError> {
        let mut ends = BTreeMap::<ThreadKey, u64>::new();
        for region in 0..self.region_count()? {
            for slot in 0..STREAM_CHUNKS_PER_REGION {
                let (header, is_intact) = self.read_header(region, slot)?;
                if is_intact {
                    let end = ends.entry(ThreadKey::from_header(&header)).or_default();
                    *end = (*end).max(header.sequence.saturating_add(1));
                }
            }
        }
        Ok(ends)
    }

    /// Appends the events of a chunk to `into`, as words ([`Event::to_word`]). Skips words that are not events, and returns their number.
    pub fn read_events(&self, chunk: &StreamChunk, into: &mut Vec<u32>) -> Result<u64, ProfileError> {
        let mut bytes = vec![0; (CHUNK_BYTES - STREAM_HEADER_BYTES) as usize];
        self.read_exact(&mut bytes, self.chunk_offset(chunk.place.0, chunk.place.1) + STREAM_HEADER_BYTES)?;
        let mut invalid = 0;
        // A zero that is followed by other words stands for an event that was never written: a signal handler interrupted the thread before
        // it wrote the event, and did not return.
        for word in bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("four bytes"))).filter(|w| *w != 0) {
            match Event::from_word(word, chunk.template).filter(|e| self.is_event(*e)) {
                Some(event) => into.push(event.to_word()),
                None => invalid += 1,
            }
        }
        Ok(invalid)
    }

    fn is_event(&self, event: Event) -> bool {
        match event {
            Event::Path(counter) | Event::Exit(counter) | Event::Enter(counter) | Event::Inherited(counter) => {
                u64::from(counter) < self.header.counters
            }
            Event::Resume(_) => true,
        }
    }

    /// Returns a chunk to the program by marking it as free.
    pub fn release_chunk(&self, chunk: &StreamChunk) -> Result<(), ProfileError> {
        let offset = self.chunk_offset(chunk.place.0, chunk.place.1);
        self.file.write_all_at(&CHUNK_FREE.to_le_bytes(), offset).map_err(ProfileError::io(&self.path, "write"))
    }

    /// Returns the most recent events of each thread, sorted by process ID and then by start time. If a recorder is draining the file,
    /// these are only the events that it has not drained yet. Fails if the file cannot be read, or if a chunk's header is corrupt.
    pub fn threads(&self) -> Result<Vec<LiveThread>, ProfileError> {
        if let Some(offset) = self.corrupt_chunks()?.first() {
            let what = "the checksum of a chunk's header does not match".into();
            return Err(ProfileError::RawCorrupt { path: self.path.clone(), offset: *offset, what });
        }
        let chunks = self.chunks()?;
        chunks.chunk_by(|a, b| a.key == b.key).map(|chunks| self.read_live_thread(chunks)).collect()
    }

    /// Reads the events of a thread from its chunks. If the thread is running, it may overwrite its last chunk, so reading is tried up to
    /// [`MAX_READ_ATTEMPTS`] times. Returns no events if all attempts fail.
    fn read_live_thread(&self, chunks: &[StreamChunk]) -> Result<LiveThread, ProfileError> {
        let key = chunks[0].key;
        let mut seen = chunks.to_vec();
        for _ in 0..MAX_READ_ATTEMPTS {
            let mut kept = self.read_unchanged(&seen)?;
            if let Some((last, newest)) = kept.last_mut()
                && seen.last().is_some_and(|seen| seen.sequence == last.sequence)
            {
                let frames = self.live_frames(last)?;
                let mut again = Vec::new();
                self.read_events(last, &mut again)?;
                let is_running = again != *newest || self.chunk(last.place.0, last.place.1)?.as_ref() != Some(last);
                // If the thread writes while its chunk is read, the reader may miss an event although it sees the next one. Only events
                // that two reads have in common, from the beginning, are certain.
                newest.truncate(newest.iter().zip(&again).take_while(|(one, other)| one == other).count());
                // Chunks are missing before this point, so earlier chunks are not part of the most recent events.
                let gap = kept.windows(2).rposition(|pair| pair[0].0.sequence + 1 != pair[1].0.sequence).map_or(0, |at| at + 1);
                let events = kept[gap..].iter().flat_map(|(_, words)| words.iter().copied().filter_map(Event::from_stored)).collect();
                let earlier = kept[gap].0.sequence.saturating_mul(trodden_wire::stream::CHUNK_EVENT_COUNT);
                return Ok(LiveThread { key, frames, events, earlier, is_running });
            }
            seen = self.chunks()?.into_iter().filter(|chunk| chunk.key == key).collect();
        }
        let earlier = seen.last().map_or(0, |last| last.sequence.saturating_mul(trodden_wire::stream::CHUNK_EVENT_COUNT));
        Ok(LiveThread { key, frames: Vec::new(), events: Vec::new(), earlier, is_running: true })
    }

    /// Returns the chunks that did not change while they were read, with their events.
    fn read_unchanged(&self, chunks: &[StreamChunk]) -> Result<Vec<(StreamChunk, Vec<u32>)>, ProfileError> {
        let mut kept = Vec::new();
        for chunk in chunks {
            let mut words = Vec::new();
            self.read_events(chunk, &mut words)?;
            let is_same = |now: &StreamChunk| (now.key, now.sequence) == (chunk.key, chunk.sequence);
            if self.chunk(chunk.place.0, chunk.place.1)?.as_ref().is_some_and(is_same) {
                kept.push((chunk.clone(), words));
            }
        }
        Ok(kept)
    }

    /// Returns the live activations of the thread that wrote a chunk; empty if its region now belongs to a different thread.
    fn live_frames(&self, chunk: &StreamChunk) -> Result<Vec<Event>, ProfileError> {
        for region in 0..self.region_count()? {
            let mut header = [0; size_of::<RegionStream>()];
            self.read_exact(&mut header, self.region_offset(region, 0))?;
            let RegionStream { thread, process, started_ns, .. } = RegionStream::read(&header).expect("as many bytes as a header has");
            if (ThreadKey { process, started_ns, thread }) != chunk.key {
                continue;
            }
            let mut slots = vec![0; (SHADOW_BYTES - STREAM_HEADER_BYTES + 4) as usize];
            self.read_exact(&mut slots, self.region_offset(region, STREAM_HEADER_BYTES))?;
            let words = slots.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("four bytes")));
            let frames = words.take_while(|w| *w != 0).filter_map(|w| Event::from_word(w, chunk.template));
            return Ok(frames.filter(|e| self.is_event(*e)).collect());
        }
        Ok(Vec::new())
    }

    fn region_offset(&self, region: u64, offset: u64) -> u64 {
        self.regions_offset + region * self.stride + offset
    }

    fn chunk_offset(&self, region: u64, slot: u64) -> u64 {
        self.region_offset(region, CHUNK_RING_OFFSET_BYTES + slot * CHUNK_BYTES)
    }

    fn read_exact(&self, bytes: &mut [u8], at: u64) -> Result<(), ProfileError> {
        self.file.read_exact_at(bytes, at).map_err(ProfileError::io(&self.path, "read"))
    }
}
