//! Stream files, as programs write them. Layout: [`trodden_wire::stream`].
//!
//! A file may be written while it is read, and its programs may die at any moment: nothing it says is believed before it
//! was checked against the file's length, and words that are no events are counted, not read. A flight recorder overwrites its chunks: a
//! chunk is what its header said only if that says so still when its events were read. It does not until the chunk is free, and a chunk is
//! free before it changes.

use crate::error::ProfileError;
use crate::raw::{Raw, RawSetup, begins_as};
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
    CHUNK_BYTES, CHUNK_FREE, CHUNK_FULL, ChunkHeader, Event, HEADER_BYTES, REGION_WORDS, RING_OFFSET, RegionStream, SHADOW_BYTES, SLOTS,
};
use trodden_wire::{LostThreads, RawHeader, RawUnit, region_lost_offset, region_stride};

/// Maximum number of times the chunks of a running thread are read until its last chunk did not change during a reading.
const READINGS: usize = 16;

/// What is known of a stream's image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamHead {
    /// Identity of the image.
    pub image: Identity,
    /// Its path as the process saw it; empty if unknown.
    pub image_path: PathBuf,
    /// Number of its counters.
    pub counters: u64,
    /// Its units in link order: identity, first counter, number of counters.
    pub units: Vec<(Identity, u64, u64)>,
    /// The process that made the file.
    pub pid: u64,
    /// When it made it, nanoseconds since 1970.
    pub created_ns: u64,
}

/// Name of a thread's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadKey {
    /// Process.
    pub process: u32,
    /// When it began, nanoseconds since 1970.
    pub started_ns: u64,
    /// Thread.
    pub thread: u32,
}

/// A chunk of a thread's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Whose it is.
    pub key: ThreadKey,
    /// Process that was forked, if the stream began so.
    pub parent: Option<u32>,
    /// Its place among the chunks of the stream.
    pub sequence: u64,
    /// Events lost before it.
    pub lost: u64,
    /// Where the image's template of counters was.
    pub template: u64,
    /// It changes no more.
    pub is_full: bool,
    /// Where it is: region and chunk.
    pub place: (u64, u64),
}

impl ThreadKey {
    fn of(header: &ChunkHeader) -> ThreadKey {
        ThreadKey { process: header.process, started_ns: header.started_ns, thread: header.thread }
    }
}

impl Chunk {
    fn new(header: &ChunkHeader, place: (u64, u64)) -> Chunk {
        Chunk {
            key: ThreadKey::of(header),
            parent: Some(header.parent).filter(|p| *p != 0),
            sequence: header.sequence,
            lost: header.lost,
            template: header.template,
            is_full: header.state == CHUNK_FULL,
            place,
        }
    }
}

/// What a flight recorder has of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveThread {
    /// Whose it is.
    pub key: ThreadKey,
    /// Slots of the live frames, outermost first.
    pub frames: Vec<Event>,
    /// The last events, oldest first.
    pub events: Vec<Event>,
    /// Events before those.
    pub earlier: u64,
    /// The thread wrote events while this was read: the frames are of a later moment than the events.
    pub is_running: bool,
}

/// A stream file.
#[derive(Debug)]
pub struct LiveStream {
    path: PathBuf,
    file: File,
    head: StreamHead,
    regions_offset: u64,
    stride: u64,
}

/// Whether a file begins as a stream file does.
pub fn is_stream_file(path: &Path) -> bool {
    begins_as(path, FileKind::STREAM_FILE)
}

impl LiveStream {
    /// Opens a stream file; `to_drain` if chunks are to be given back.
    ///
    /// # Errors
    /// It cannot be read, is no stream file, is not set up, or damaged in its head.
    pub fn open(path: &Path, to_drain: bool) -> Result<LiveStream, ProfileError> {
        let action = if to_drain { "write" } else { "read" };
        let file = OpenOptions::new().read(true).write(to_drain).open(path).map_err(ProfileError::io(path, action))?;
        let raw = Raw::new(path, file)?;
        let RawSetup { header, units, image_path } = raw.setup(FileKind::STREAM_FILE)?;
        if header.region_stride != region_stride(REGION_WORDS) {
            let what = format!("regions of {} bytes, not {}", header.region_stride, region_stride(REGION_WORDS));
            return Err(ProfileError::RawDamaged { path: path.to_owned(), offset: offset_of!(RawHeader, region_stride) as u64, what });
        }
        let units = units.into_iter().map(|RawUnit { unit, first, counters }| (Identity(unit), first, counters)).collect();
        let head = StreamHead {
            image: Identity(header.image),
            image_path,
            counters: header.counters,
            units,
            pid: header.pid,
            created_ns: header.created_ns,
        };
        let (regions_offset, stride) = (header.regions_offset, header.region_stride);
        Ok(LiveStream { path: raw.path, file: raw.file, head, regions_offset, stride })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its image.
    pub fn head(&self) -> &StreamHead {
        &self.head
    }

    /// Threads of which nothing was written so far, since there was no room.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn lost_threads(&self) -> Result<LostThreads, ProfileError> {
        let word = |at: u64| {
            let mut word = [0; 8];
            self.exact(&mut word, at).map(|()| LostThreads(u64::from_le_bytes(word)))
        };
        let of_header = word(offset_of!(RawHeader, lost) as u64)?;
        (0..self.regions()?).try_fold(of_header, |sum, region| Ok(sum.plus(word(self.at(region, region_lost_offset(REGION_WORDS)))?)))
    }

    /// Number of whole regions.
    ///
    /// # Errors
    /// The file cannot be examined.
    pub fn regions(&self) -> Result<u64, ProfileError> {
        let length = self.file.metadata().map_err(ProfileError::io(&self.path, "read"))?.len();
        Ok(length.saturating_sub(self.regions_offset) / self.stride)
    }

    /// Whether a part of the file is missing: it grows by whole regions.
    ///
    /// # Errors
    /// The file cannot be examined.
    pub fn is_cut(&self) -> Result<bool, ProfileError> {
        let length = self.file.metadata().map_err(ProfileError::io(&self.path, "read"))?.len();
        Ok(length.checked_sub(self.regions_offset).is_none_or(|regions| !regions.is_multiple_of(self.stride)))
    }

    /// A chunk, if anything is in it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn chunk(&self, region: u64, slot: u64) -> Result<Option<Chunk>, ProfileError> {
        let (header, is_intact) = self.header(region, slot)?;
        Ok((header.state != CHUNK_FREE && is_intact).then(|| Chunk::new(&header, (region, slot))))
    }

    /// The header of a chunk, and whether it is as its program wrote it. That of a free one may be changing.
    fn header(&self, region: u64, slot: u64) -> Result<(ChunkHeader, bool), ProfileError> {
        let mut bytes = [0; ChunkHeader::BYTES];
        let mut readings = 0;
        loop {
            self.exact(&mut bytes, self.chunk_at(region, slot))?;
            let header = ChunkHeader::read(&bytes).expect("as many bytes as a header has");
            let is_intact = header.checksum == header.fields_checksum() && header.state <= CHUNK_FULL;
            readings += 1;
            // Read while it changed, one may have the state of its last contents and fields of the next.
            if is_intact || header.state == CHUNK_FREE || readings == READINGS {
                return Ok((header, is_intact));
            }
        }
    }

    /// Where chunks are whose headers are damaged. What threads wrote there is lost.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn damaged_chunks(&self) -> Result<Vec<u64>, ProfileError> {
        let mut damaged = Vec::new();
        for region in 0..self.regions()? {
            for slot in 0..SLOTS {
                let (header, is_intact) = self.header(region, slot)?;
                damaged.extend((header.state != CHUNK_FREE && !is_intact).then(|| self.chunk_at(region, slot)));
            }
        }
        Ok(damaged)
    }

    /// All chunks with something in them, by stream and place in it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn chunks(&self) -> Result<Vec<Chunk>, ProfileError> {
        let mut chunks = Vec::new();
        for region in 0..self.regions()? {
            for slot in 0..SLOTS {
                chunks.extend(self.chunk(region, slot)?);
            }
        }
        chunks.sort_by_key(|c| (c.key, c.sequence));
        Ok(chunks)
    }

    /// Of each thread the number of the chunk that it would write next, as far as the file still says it. A chunk that was given back
    /// keeps its header until another is written in its place.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn ends(&self) -> Result<BTreeMap<ThreadKey, u64>, ProfileError> {
        let mut ends = BTreeMap::<ThreadKey, u64>::new();
        for region in 0..self.regions()? {
            for slot in 0..SLOTS {
                let (header, is_intact) = self.header(region, slot)?;
                if is_intact {
                    let end = ends.entry(ThreadKey::of(&header)).or_default();
                    *end = (*end).max(header.sequence.saturating_add(1));
                }
            }
        }
        Ok(ends)
    }

    /// Appends a chunk's events, as [`Event::to_word`] has them; gives the number of words that are none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_events(&self, chunk: &Chunk, into: &mut Vec<u32>) -> Result<u64, ProfileError> {
        let mut bytes = vec![0; (CHUNK_BYTES - HEADER_BYTES) as usize];
        self.exact(&mut bytes, self.chunk_at(chunk.place.0, chunk.place.1) + HEADER_BYTES)?;
        let mut damaged = 0;
        // A word that is 0 before others is of an event that a signal handler came before, and that was never written.
        for word in bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("four bytes"))).filter(|w| *w != 0) {
            match Event::from_word(word, chunk.template).filter(|e| self.is_event(*e)) {
                Some(event) => into.push(event.to_word()),
                None => damaged += 1,
            }
        }
        Ok(damaged)
    }

    fn is_event(&self, event: Event) -> bool {
        match event {
            Event::Path(counter) | Event::Exit(counter) | Event::Enter(counter) | Event::Inherited(counter) => {
                u64::from(counter) < self.head.counters
            }
            Event::Resume(_) => true,
        }
    }

    /// Gives a chunk back to its program.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn give_back(&self, chunk: &Chunk) -> Result<(), ProfileError> {
        let at = self.chunk_at(chunk.place.0, chunk.place.1);
        self.file.write_all_at(&CHUNK_FREE.to_le_bytes(), at).map_err(ProfileError::io(&self.path, "write"))
    }

    /// What a flight recorder has of each thread, by process and beginning. Of a whole program: what was not drained.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn threads(&self) -> Result<Vec<LiveThread>, ProfileError> {
        if let Some(offset) = self.damaged_chunks()?.first() {
            let what = "the header of a chunk".into();
            return Err(ProfileError::RawDamaged { path: self.path.clone(), offset: *offset, what });
        }
        let chunks = self.chunks()?;
        chunks.chunk_by(|a, b| a.key == b.key).map(|chunks| self.thread(chunks)).collect()
    }

    /// What a thread's chunks have. Of one that goes on meanwhile, the chunks of a moment behind the call, if one of [`READINGS`] readings
    /// finds the last one still there; else no events.
    fn thread(&self, chunks: &[Chunk]) -> Result<LiveThread, ProfileError> {
        let key = chunks[0].key;
        let mut seen = chunks.to_vec();
        for _ in 0..READINGS {
            let mut kept = self.unchanged(&seen)?;
            if let Some((last, newest)) = kept.last_mut()
                && seen.last().is_some_and(|seen| seen.sequence == last.sequence)
            {
                let frames = self.frames(last)?;
                let mut again = Vec::new();
                self.read_events(last, &mut again)?;
                let is_running = again != *newest || self.chunk(last.place.0, last.place.1)?.as_ref() != Some(last);
                // A reading that goes on while events are written may lack one of them and have the next.
                newest.truncate(newest.iter().zip(&again).take_while(|(one, other)| one == other).count());
                // What comes before a gap is not the end.
                let gap = kept.windows(2).rposition(|pair| pair[0].0.sequence + 1 != pair[1].0.sequence).map_or(0, |at| at + 1);
                let events = kept[gap..].iter().flat_map(|(_, words)| words.iter().copied().filter_map(Event::from_stored)).collect();
                let earlier = kept[gap].0.sequence.saturating_mul(trodden_wire::stream::CHUNK_EVENTS);
                return Ok(LiveThread { key, frames, events, earlier, is_running });
            }
            seen = self.chunks()?.into_iter().filter(|chunk| chunk.key == key).collect();
        }
        let earlier = seen.last().map_or(0, |last| last.sequence.saturating_mul(trodden_wire::stream::CHUNK_EVENTS));
        Ok(LiveThread { key, frames: Vec::new(), events: Vec::new(), earlier, is_running: true })
    }

    /// The chunks that are still what they were when their events were read, with these.
    fn unchanged(&self, chunks: &[Chunk]) -> Result<Vec<(Chunk, Vec<u32>)>, ProfileError> {
        let mut kept = Vec::new();
        for chunk in chunks {
            let mut words = Vec::new();
            self.read_events(chunk, &mut words)?;
            let is_same = |now: &Chunk| (now.key, now.sequence) == (chunk.key, chunk.sequence);
            if self.chunk(chunk.place.0, chunk.place.1)?.as_ref().is_some_and(is_same) {
                kept.push((chunk.clone(), words));
            }
        }
        Ok(kept)
    }

    /// Slots of the frames of the thread that wrote a chunk, if its region is still its own.
    fn frames(&self, chunk: &Chunk) -> Result<Vec<Event>, ProfileError> {
        for region in 0..self.regions()? {
            let mut head = [0; size_of::<RegionStream>()];
            self.exact(&mut head, self.at(region, 0))?;
            let RegionStream { thread, process, started_ns, .. } = RegionStream::read(&head).expect("as many bytes as a header has");
            if (ThreadKey { process, started_ns, thread }) != chunk.key {
                continue;
            }
            let mut slots = vec![0; (SHADOW_BYTES - HEADER_BYTES + 4) as usize];
            self.exact(&mut slots, self.at(region, HEADER_BYTES))?;
            let words = slots.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("four bytes")));
            let frames = words.take_while(|w| *w != 0).filter_map(|w| Event::from_word(w, chunk.template));
            return Ok(frames.filter(|e| self.is_event(*e)).collect());
        }
        Ok(Vec::new())
    }

    fn at(&self, region: u64, offset: u64) -> u64 {
        self.regions_offset + region * self.stride + offset
    }

    fn chunk_at(&self, region: u64, slot: u64) -> u64 {
        self.at(region, RING_OFFSET + slot * CHUNK_BYTES)
    }

    fn exact(&self, bytes: &mut [u8], at: u64) -> Result<(), ProfileError> {
        self.file.read_exact_at(bytes, at).map_err(ProfileError::io(&self.path, "read"))
    }
}
