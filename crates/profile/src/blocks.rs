//! The blocks of a stored profile; see `docs/profile-format.md`.
//!
//! ```text
//! file    magic "TRODPROF" 8 | version u32 | flags u32 (0) | blocks
//! block   marker "TRODBLCK" 8 | kind u32 | layout u32 | subject 16 | packed u64 | unpacked u64 | checksum u64 | packed bytes
//! ```
//! Little-endian. The checksum (XXH3, 64 bits) covers the block's head up to the checksum and the packed bytes, which are zstd of
//! [postcard](https://postcard.jamesmunns.com/wire-format). After damage, a reader searches for the next marker.

use crate::error::ProfileError;
use crate::events::PathEvents;
use crate::model::Run;
use crate::sampling::Sampling;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_unit::{Identity, MAP_VERSION, UnitMap};
use xxhash_rust::xxh3::Xxh3;

const MAGIC: [u8; 8] = *b"TRODPROF";
/// How other files begin that people take for stored profiles, and what to do with them.
const OTHER_KINDS: &[(&[u8], &str)] = &[
    (b"TRODRAW", "it is a raw file of counts, of which `trodden import` makes a profile"),
    (b"TRODTRC", "it is a trace, of which `trodden import` makes a profile; `trodden report` shows a trace as it is"),
    (b"TRODSTR", "it is a stream file, of which `trodden import` makes a run"),
    (b"TRODWPP", "it is a log of a stream: `trodden info`, `show`, `patterns` and `segments` take logs"),
    (b"\x7fELF", "it is a program: `trodden record -- PROGRAM` makes a profile"),
];
/// Maps by unit, shared by all profiles that are read with it: thousands of runs of one program have its maps in memory once.
pub type Maps = HashMap<Identity, Arc<UnitMap>>;

/// Version of the container.
pub const CONTAINER_VERSION: u32 = 1;
const MARKER: [u8; 8] = *b"TRODBLCK";
/// Size of the file's head.
pub const FILE_HEAD: u64 = 16;
const BLOCK_HEAD: usize = 56;
/// The greatest size of an unpacked block. A block with a greater size in its head is damaged.
const MOST_UNPACKED: u64 = 1 << 30;

/// The kind of a block's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// [`Run`].
    Run = 1,
    /// [`UnitMap`]; the subject is the unit.
    Map = 2,
    /// [`ImageBlock`]; the subject is the image.
    Image = 3,
    /// [`CountsBlock`]; the subject is the unit.
    Counts = 4,
    /// The number of blocks before it, `u64`.
    End = 5,
    /// [`Sampling`]; only in profiles that were sampled.
    Sampling = 6,
    /// [`EventsBlock`]; the subject is the unit. Only for units that sum events.
    Events = 7,
    /// [`CountsBlock`] of times, nanoseconds since 1970; the subject is the unit. Only for units that note when paths were taken first.
    Times = 8,
}

impl ContentKind {
    fn from_number(number: u32) -> Option<ContentKind> {
        use ContentKind::*;
        [Run, Map, Image, Counts, End, Sampling, Events, Times].into_iter().find(|kind| *kind as u32 == number)
    }

    /// Version of the content of a block of this kind.
    fn layout(self) -> u32 {
        match self {
            ContentKind::Map => MAP_VERSION,
            // Version 1 had no weights.
            ContentKind::Sampling => 2,
            // Version 1 had no test, version 2 no divergence of copies, version 3 no counts that are lost.
            ContentKind::Run => 4,
            _ => 1,
        }
    }

    fn words(self) -> &'static str {
        match self {
            ContentKind::Run => "the description of the run",
            ContentKind::Map => "the map of unit",
            ContentKind::Image => "image",
            ContentKind::Counts => "the counts of unit",
            ContentKind::End => "the end",
            ContentKind::Sampling => "how it was sampled",
            ContentKind::Events => "the events of unit",
            ContentKind::Times => "the times of unit",
        }
    }
}

/// An image and its units. Maps come before it, counts after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageBlock {
    /// The number by which its counts refer to it.
    pub number: u32,
    /// Path.
    pub path: String,
    /// The linker's build id.
    pub build_id: Option<String>,
    /// Units in link order.
    pub units: Vec<UnitEntry>,
}

/// A unit of an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnitEntry {
    /// Identity.
    pub unit: Identity,
    /// Number of its counters that are not zero; they are in one [`CountsBlock`], if any.
    pub executed: u64,
}

/// Counts of one unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountsBlock {
    /// Number of the image.
    pub image: u32,
    /// Place of the unit in it.
    pub place: u32,
    /// For each counter that is not zero its distance from the one before (the first: from 0) and its value.
    pub counts: Vec<(u64, u64)>,
}

impl CountsBlock {
    /// From ascending counts.
    pub fn pack(image: u32, place: u32, counts: &[(u64, u64)]) -> CountsBlock {
        let mut last = 0;
        let step = |&(at, count): &(u64, u64)| (at - std::mem::replace(&mut last, at), count);
        CountsBlock { image, place, counts: counts.iter().map(step).collect() }
    }

    /// To ascending counts; `None` if they are not ascending.
    pub fn unpack(&self) -> Option<Vec<(u64, u64)>> {
        let mut out: Vec<(u64, u64)> = Vec::with_capacity(self.counts.len());
        for &(step, count) in &self.counts {
            let at = match out.last() {
                None => step,
                Some(_) if step == 0 => return None,
                Some((last, _)) => last.checked_add(step)?,
            };
            out.push((at, count));
        }
        out.iter().all(|c| c.1 != 0).then_some(out)
    }
}

/// Events of one unit's paths.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventsBlock {
    /// Number of the image.
    pub image: u32,
    /// Place of the unit in it.
    pub place: u32,
    /// By counter, ascending.
    pub events: Vec<(u64, PathEvents)>,
}

/// Writes blocks.
pub struct BlockWriter<'a> {
    out: &'a mut dyn Write,
    blocks: u64,
}

impl<'a> BlockWriter<'a> {
    /// Writes the file's head.
    pub fn new(out: &'a mut dyn Write) -> io::Result<BlockWriter<'a>> {
        out.write_all(&MAGIC)?;
        out.write_all(&CONTAINER_VERSION.to_le_bytes())?;
        out.write_all(&0u32.to_le_bytes())?;
        Ok(BlockWriter { out, blocks: 0 })
    }

    /// Continues a file that has its head.
    pub fn after_head(out: &'a mut dyn Write) -> BlockWriter<'a> {
        BlockWriter { out, blocks: 0 }
    }

    /// Writes a block.
    pub fn put(&mut self, kind: ContentKind, subject: Identity, content: &impl Serialize) -> io::Result<()> {
        let content = postcard::to_allocvec(content).map_err(io::Error::other)?;
        let packed = zstd::bulk::compress(&content, 3)?;
        let mut head = Vec::with_capacity(BLOCK_HEAD);
        head.extend(MARKER);
        head.extend((kind as u32).to_le_bytes());
        head.extend(kind.layout().to_le_bytes());
        head.extend(subject.0);
        head.extend((packed.len() as u64).to_le_bytes());
        head.extend((content.len() as u64).to_le_bytes());
        head.extend(checksum(&head, &packed).to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&packed)?;
        self.blocks += 1;
        Ok(())
    }

    /// Writes the last block.
    pub fn finish(mut self) -> io::Result<()> {
        let blocks = self.blocks;
        self.put(ContentKind::End, Identity([0; 16]), &blocks)
    }
}

/// Head of a block.
#[derive(Clone, Debug)]
pub struct BlockHead {
    kind: u32,
    layout: u32,
    /// What it is about.
    pub subject: Identity,
    packed: u64,
    unpacked: u64,
    checksum: u64,
    bytes: [u8; BLOCK_HEAD],
}

/// The content of a block.
#[derive(Debug)]
pub enum BlockContent {
    /// The run.
    Run(Run),
    /// A map.
    Map(Box<UnitMap>),
    /// A block that the reader does not want; it was not unpacked.
    Unwanted,
    /// An image.
    Image(ImageBlock),
    /// Counts.
    Counts(CountsBlock),
    /// The profile's sampling.
    Sampling(Sampling),
    /// Events.
    Events(EventsBlock),
    /// Times of the first executions, by counter.
    Times(CountsBlock),
    /// The end, and the number of blocks before it.
    End(u64),
}

/// What comes next in a file.
#[derive(Debug)]
pub enum BlockItem {
    /// An intact block.
    Block {
        /// Where it begins.
        offset: u64,
        /// Its head.
        head: BlockHead,
        /// Its content.
        content: Box<BlockContent>,
    },
    /// Bytes that are no intact block; the reader continues at the next marker.
    Damage {
        /// Where it begins.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

/// Reads blocks one by one.
pub struct BlockReader {
    path: PathBuf,
    file: BufReader<File>,
    at: u64,
    length: u64,
}

impl BlockReader {
    /// Reads the file's head.
    pub fn new(path: &Path, file: File) -> Result<BlockReader, ProfileError> {
        let length = file.metadata().map_err(ProfileError::io(path, "read"))?.len();
        let mut reader = BlockReader { path: path.to_owned(), file: BufReader::new(file), at: FILE_HEAD, length };
        let mut head = [0; FILE_HEAD as usize];
        let have = length.min(FILE_HEAD) as usize;
        reader.file.read_exact(&mut head[..have]).map_err(ProfileError::io(path, "read"))?;
        if have < 8 || head[..8] != MAGIC {
            let what =
                OTHER_KINDS.iter().find(|(begin, _)| head.starts_with(begin)).map_or("it does not begin with TRODPROF", |(_, what)| what);
            return Err(ProfileError::Foreign { path: path.to_owned(), expected: "stored profile", what: what.to_owned() });
        }
        let version = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
        if have == head.len() && version != CONTAINER_VERSION {
            let (found, known) = (u64::from(version), u64::from(CONTAINER_VERSION));
            return Err(ProfileError::Version { path: path.to_owned(), kind: "stored profile", found, known });
        }
        Ok(reader)
    }

    /// Length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Offset of the next block.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// The next block; only those that are `wanted`, by kind and subject, are unpacked. `None` at the end of the file.
    pub fn next(&mut self, wanted: &dyn Fn(ContentKind, Identity) -> bool) -> Result<Option<BlockItem>, ProfileError> {
        if self.at >= self.length {
            return Ok(None);
        }
        let offset = self.at;
        match self.block(wanted)? {
            Ok((head, content)) => Ok(Some(BlockItem::Block { offset, head, content: Box::new(content) })),
            Err(what) => {
                // If the checksum is right, so is the length: the next block follows directly.
                if self.at == offset {
                    self.skip_to_marker(offset + 1)?;
                }
                Ok(Some(BlockItem::Damage { offset, what }))
            }
        }
    }

    /// The block here; the inner error says what is wrong with it.
    #[allow(clippy::type_complexity)]
    fn block(&mut self, wanted: &dyn Fn(ContentKind, Identity) -> bool) -> Result<Result<(BlockHead, BlockContent), String>, ProfileError> {
        let left = self.length - self.at;
        if left < BLOCK_HEAD as u64 {
            return Ok(Err("the file ends within the head of a block".into()));
        }
        let mut bytes = [0; BLOCK_HEAD];
        self.read(&mut bytes)?;
        if bytes[..8] != MARKER {
            return Ok(Err("there is no block here".into()));
        }
        let head = BlockHead::parse(bytes);
        let name = head.name();
        if head.packed > left - BLOCK_HEAD as u64 {
            return Ok(Err(format!("the file ends within {name}")));
        }
        if head.packed > MOST_UNPACKED || head.unpacked > MOST_UNPACKED {
            return Ok(Err(format!("{name} claims {} bytes", head.packed.max(head.unpacked))));
        }
        let mut packed = vec![0; head.packed as usize];
        self.read(&mut packed)?;
        if checksum(&head.bytes[..BLOCK_HEAD - 8], &packed) != head.checksum {
            return Ok(Err(format!("{name}: the checksum does not match")));
        }
        self.at += BLOCK_HEAD as u64 + head.packed;
        head.check_layout(&self.path)?;
        let content = head.content(&packed, wanted);
        Ok(content.map(|c| (head, c)).map_err(|what| format!("{name}: {what}")))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), ProfileError> {
        self.file.read_exact(bytes).map_err(ProfileError::io(&self.path, "read"))
    }

    fn skip_to_marker(&mut self, from: u64) -> Result<(), ProfileError> {
        const WINDOW: usize = 1 << 16;
        let mut window = vec![0; WINDOW];
        self.at = from;
        while self.at < self.length {
            let size = (self.length - self.at).min(WINDOW as u64) as usize;
            self.go_to(self.at)?;
            self.read(&mut window[..size])?;
            if let Some(found) = window[..size].windows(8).position(|w| w == MARKER) {
                self.at += found as u64;
                return self.go_to(self.at);
            }
            if size < 8 || self.at + size as u64 == self.length {
                break;
            }
            self.at += size as u64 - 7;
        }
        self.at = self.length;
        Ok(())
    }

    fn go_to(&mut self, at: u64) -> Result<(), ProfileError> {
        self.file.seek(SeekFrom::Start(at)).map(drop).map_err(ProfileError::io(&self.path, "read"))
    }
}

impl BlockHead {
    fn parse(bytes: [u8; BLOCK_HEAD]) -> BlockHead {
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let subject = Identity(bytes[16..32].try_into().expect("sixteen bytes"));
        BlockHead { kind: half(8), layout: half(12), subject, packed: word(32), unpacked: word(40), checksum: word(48), bytes }
    }

    fn name(&self) -> String {
        match ContentKind::from_number(self.kind) {
            Some(kind @ (ContentKind::Map | ContentKind::Image | ContentKind::Counts | ContentKind::Events | ContentKind::Times)) => {
                format!("{} {}", kind.words(), self.subject)
            }
            Some(kind) => kind.words().into(),
            None => format!("a block of unknown kind {}", self.kind),
        }
    }

    /// Refuses what another version of trodden wrote: that is no damage, and nothing of it can be shown without the rest.
    fn check_layout(&self, path: &Path) -> Result<(), ProfileError> {
        let Some(kind) = ContentKind::from_number(self.kind) else { return Ok(()) };
        let (path, what, found, known) = (path.to_owned(), self.name(), self.layout, kind.layout());
        match found.cmp(&known) {
            Ordering::Less => Err(ProfileError::Older { path, what, found, known }),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(ProfileError::Newer { path, what, found, known }),
        }
    }

    fn content(&self, packed: &[u8], wanted: &dyn Fn(ContentKind, Identity) -> bool) -> Result<BlockContent, String> {
        let kind = ContentKind::from_number(self.kind).ok_or("a newer version of trodden wrote it")?;
        if !wanted(kind, self.subject) {
            return Ok(BlockContent::Unwanted);
        }
        let bytes = unpack(packed, self.unpacked)?;
        Ok(match kind {
            ContentKind::Run => BlockContent::Run(parse(&bytes)?),
            ContentKind::Map => BlockContent::Map(Box::new(parse(&bytes)?)),
            ContentKind::Image => BlockContent::Image(parse(&bytes)?),
            ContentKind::Counts => BlockContent::Counts(parse(&bytes)?),
            ContentKind::End => BlockContent::End(parse(&bytes)?),
            ContentKind::Sampling => BlockContent::Sampling(parse(&bytes)?),
            ContentKind::Events => BlockContent::Events(parse(&bytes)?),
            ContentKind::Times => BlockContent::Times(parse(&bytes)?),
        })
    }
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} bytes too many", rest.len())),
        Err(e) => Err(e.to_string()),
    }
}

/// Unpacks at most the size in the block's head. Memory grows with the bytes that are really there. A size that no profile can reach by
/// compression is refused.
fn unpack(packed: &[u8], size: u64) -> Result<Vec<u8>, String> {
    if size > trodden_unit::most_unpacked(packed.len()) {
        return Err(format!("its {} packed bytes claim to hold {size}, which no profile's do", packed.len()));
    }
    let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    decoder.take(size + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    match bytes.len() as u64 == size {
        true => Ok(bytes),
        false => Err(format!("it unpacks to more or less than {size} bytes")),
    }
}

fn checksum(head: &[u8], packed: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(head);
    hash.update(packed);
    hash.digest()
}
