//! Reads and writes the blocks of a stored profile: typed sections of a [container](trodden_container) file. The handbook describes the
//! format (`docs/handbook/src/file-formats.md`).

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
use trodden_container::{
    FILE_HEADER_BYTES, FileHeader, FileKind, HeaderError, SECTION_HEADER_BYTES, SECTION_MARKER, Section, SectionError, SectionHeader,
    find_marker,
};
use trodden_unit::{Identity, MAP_VERSION, UnitMap};

/// Kinds of files that users pass by mistake instead of a stored profile. Each message names the command that accepts the file.
const FILE_KINDS_THAT_ARE_NO_PROFILES: &[(FileKind, &str)] = &[
    (FileKind::TRACE, "it is a trace. Convert it to a profile with `trodden import`, or show it with `trodden report`"),
    (FileKind::STREAM_LOG, "it is a stream log. Read it with `trodden info`, `show`, `patterns` or `segments`"),
    (FileKind::RAW_COUNTS, "it is a raw file of counts. Convert it to a profile with `trodden import`"),
    (FileKind::STREAM_FILE, "it is a stream file. Convert it to a run with `trodden import`"),
];
/// Unit maps by identity. A unit map describes the functions and paths of a compilation unit. Profiles that are read with the same
/// `UnitMapsByIdentity` share their maps, so memory holds each map only once, even for many runs of a program.
pub type UnitMapsByIdentity = HashMap<Identity, Arc<UnitMap>>;

pub const PROFILE_FORMAT_VERSION: u32 = 2;
pub const FILE_HEADER_LENGTH: u64 = FILE_HEADER_BYTES as u64;
const BLOCK_COMPRESSION_LEVEL: i32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileBlockKind {
    /// A [`Run`].
    Run = 1,
    /// A [`UnitMap`]. The block header's subject is the identity of the unit.
    Map = 2,
    /// An [`ImageBlock`]. The block header's subject is the identity of the executable or shared library.
    Image = 3,
    /// A [`CountsBlock`]. The block header's subject is the identity of the unit.
    Counts = 4,
    /// The number of preceding blocks, as a `u64`. Readers recognise truncated files by it.
    End = 5,
    /// [`Sampling`]. Only sampled profiles have this block.
    Sampling = 6,
    /// An [`EventsBlock`]. Present only for units that count hardware or software events. The block header's subject is the identity of the
    /// unit.
    Events = 7,
    /// A [`CountsBlock`] with times instead of counts: when each path was first executed, in nanoseconds since 1970. Present only for units
    /// that record these times. The block header's subject is the identity of the unit.
    Times = 8,
}

impl ProfileBlockKind {
    fn from_number(number: u32) -> Option<ProfileBlockKind> {
        use ProfileBlockKind::*;
        [Run, Map, Image, Counts, End, Sampling, Events, Times].into_iter().find(|kind| *kind as u32 == number)
    }

    fn layout_version(self) -> u32 {
        match self {
            ProfileBlockKind::Map => MAP_VERSION,
            // Version 2 added weights.
            ProfileBlockKind::Sampling => 3,
            // Layout version 2 added the test, version 3 the number of differences between copies, version 4 the number of threads whose
            // counts were lost.
            ProfileBlockKind::Run => 4,
            _ => 1,
        }
    }

    fn description(self) -> &'static str {
        match self {
            ProfileBlockKind::Run => "the description of the run",
            ProfileBlockKind::Map => "the map of unit",
            ProfileBlockKind::Image => "image",
            ProfileBlockKind::Counts => "the counts of unit",
            ProfileBlockKind::End => "the end",
            ProfileBlockKind::Sampling => "the sampling data",
            ProfileBlockKind::Events => "the events of unit",
            ProfileBlockKind::Times => "the times of unit",
        }
    }
}

/// An image (an executable or shared library) and its compilation units. In the file, the units' maps precede this block, and their counts
/// follow it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageBlock {
    /// Number by which [`CountsBlock::image`] refers to this image.
    pub number: u32,
    /// Path under which the profiled process had loaded the file.
    pub path: String,
    pub build_id: Option<String>,
    /// Units in link order.
    pub units: Vec<ImageUnitEntry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageUnitEntry {
    pub unit: Identity,
    /// Number of counters of the unit that are not zero, which is the length of its [`CountsBlock`].
    pub executed: u64,
}

/// The counters of one unit that are not zero.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountsBlock {
    /// Number of the image.
    pub image: u32,
    /// Number of the unit's image ([`ImageBlock::number`]).
    pub place: u32,
    /// One pair for each nonzero counter: its index minus the previous counter's index (for the first counter, its index), and its value.
    pub counts: Vec<(u64, u64)>,
}

impl CountsBlock {
    /// Delta-encodes the indices of `counts`, which are pairs of index and value, sorted by index.
    pub fn delta_encode_counts(image: u32, place: u32, counts: &[(u64, u64)]) -> CountsBlock {
        let mut last = 0;
        let step = |&(at, count): &(u64, u64)| (at - std::mem::replace(&mut last, at), count);
        CountsBlock { image, place, counts: counts.iter().map(step).collect() }
    }

    /// Decodes the counts to pairs of index and value. Returns `None` if the indices are not strictly ascending, or a value is zero.
    pub fn decode_counts(&self) -> Option<Vec<(u64, u64)>> {
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

/// Events that occurred on the paths of one unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventsBlock {
    pub image: u32,
    pub place: u32,
    /// Events by index of the path's counter, in ascending order.
    pub events: Vec<(u64, PathEvents)>,
}

pub struct BlockWriter<'a> {
    out: &'a mut dyn Write,
    blocks: u64,
}

impl<'a> BlockWriter<'a> {
    pub fn new(out: &'a mut dyn Write) -> io::Result<BlockWriter<'a>> {
        out.write_all(&FileHeader::new(FileKind::PROFILE, PROFILE_FORMAT_VERSION).to_bytes())?;
        Ok(BlockWriter { out, blocks: 0 })
    }

    /// Returns a writer for a file whose header is already written.
    pub fn with_written_header(out: &'a mut dyn Write) -> BlockWriter<'a> {
        BlockWriter { out, blocks: 0 }
    }

    pub fn write_block(&mut self, kind: ProfileBlockKind, subject: Identity, content: &impl Serialize) -> io::Result<()> {
        let section = Section { tag: kind as u32, layout: kind.layout_version(), subject: subject.0, ..Section::default() };
        self.out.write_all(&section.value_to_bytes(content, BLOCK_COMPRESSION_LEVEL))?;
        self.blocks += 1;
        Ok(())
    }

    pub fn write_end_block(mut self) -> io::Result<()> {
        let blocks = self.blocks;
        self.write_block(ProfileBlockKind::End, Identity([0; 16]), &blocks)
    }
}

#[derive(Clone, Debug)]
pub struct ProfileBlockHeader {
    section: SectionHeader,
    /// Identity of the unit or image that the block describes; zero in other kinds of blocks.
    pub subject: Identity,
}

/// How much of a block the reader processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockReadMode {
    /// Verify the checksum and decode the content.
    Decode,
    Verify,
    Skip,
}

#[derive(Debug)]
pub enum BlockContent {
    Run(Run),
    Map(Box<UnitMap>),
    /// A block that was verified or skipped, but not decoded.
    NotDecoded,
    Image(ImageBlock),
    Counts(CountsBlock),
    /// How the profile was sampled: method and parameters.
    Sampling(Sampling),
    Events(EventsBlock),
    /// Times of first executions, in nanoseconds since 1970, in place of counts.
    Times(CountsBlock),
    /// The number of preceding blocks.
    End(u64),
}

#[derive(Debug)]
pub enum BlockOrGap {
    Block {
        offset: u64,
        header: ProfileBlockHeader,
        content: Box<BlockContent>,
    },
    /// A corrupt block, or bytes that are not a block. The reader can continue: after the block if its header is intact, otherwise at the
    /// next block marker.
    Corrupt {
        offset: u64,
        what: String,
    },
}

pub struct BlockReader {
    path: PathBuf,
    file: BufReader<File>,
    at: u64,
    length: u64,
    /// Description of a checksum error in the file header. The first call to `next` reports it.
    header_error: Option<String>,
}

impl BlockReader {
    /// Reads and checks the file's header.
    pub fn new(path: &Path, file: File) -> Result<BlockReader, ProfileError> {
        let length = file.metadata().map_err(ProfileError::io(path, "read"))?.len();
        let mut reader =
            BlockReader { path: path.to_owned(), file: BufReader::new(file), at: FILE_HEADER_LENGTH, length, header_error: None };
        let mut header = [0; FILE_HEADER_BYTES];
        let have = length.min(FILE_HEADER_LENGTH) as usize;
        reader.file.read_exact(&mut header[..have]).map_err(ProfileError::io(path, "read"))?;
        let foreign = |what: String| ProfileError::Foreign { path: path.to_owned(), expected: "stored profile", what };
        if header.starts_with(b"\x7fELF") {
            return Err(foreign("it is a program. Record a profile of it with `trodden record -- PROGRAM`".into()));
        }
        match FileHeader::read(&header[..have]) {
            Ok(header) if header.kind != FileKind::PROFILE => {
                let known =
                    FILE_KINDS_THAT_ARE_NO_PROFILES.iter().find(|(kind, _)| *kind == header.kind).map(|(_, what)| (*what).to_owned());
                Err(foreign(known.unwrap_or_else(|| format!("it is {}", header.kind.description()))))
            }
            Ok(header) if header.version != PROFILE_FORMAT_VERSION => {
                let (found, known) = (u64::from(header.version), u64::from(PROFILE_FORMAT_VERSION));
                Err(ProfileError::Version { path: path.to_owned(), kind: "stored profile", found, known })
            }
            Ok(_) => Ok(reader),
            Err(HeaderError::EarlierFormat) => Err(ProfileError::Earlier { path: path.to_owned(), kind: "stored profile" }),
            // A file that is truncated within its header counts as corrupt rather than as a foreign file. The error is reported when its
            // first block is read.
            Err(HeaderError::Truncated) if have > 0 => Ok(reader),
            Err(HeaderError::Checksum) => {
                reader.header_error = Some(HeaderError::Checksum.to_string());
                Ok(reader)
            }
            Err(error) => Err(foreign(error.to_string())),
        }
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Reads the next block; `None` at the end of the file. `mode` decides how much of the block to read, based on the block's kind and
    /// subject.
    pub fn next(&mut self, mode: &dyn Fn(ProfileBlockKind, Identity) -> BlockReadMode) -> Result<Option<BlockOrGap>, ProfileError> {
        if let Some(what) = self.header_error.take() {
            return Ok(Some(BlockOrGap::Corrupt { offset: 0, what }));
        }
        if self.at >= self.length {
            return Ok(None);
        }
        let offset = self.at;
        match self.read_block(mode)? {
            Ok((header, content)) => Ok(Some(BlockOrGap::Block { offset, header, content: Box::new(content) })),
            Err(what) => {
                // `at` has moved if the block's header was intact: its length is valid then, and `read_block` has advanced past the block.
                if self.at == offset {
                    self.skip_to_next_block_marker(offset + 1)?;
                }
                Ok(Some(BlockOrGap::Corrupt { offset, what }))
            }
        }
    }

    /// Reads the block at the current offset. The inner error says why the block is corrupt.
    #[allow(clippy::type_complexity)]
    fn read_block(
        &mut self,
        mode: &dyn Fn(ProfileBlockKind, Identity) -> BlockReadMode,
    ) -> Result<Result<(ProfileBlockHeader, BlockContent), String>, ProfileError> {
        let left = self.length - self.at;
        let mut bytes = [0; SECTION_HEADER_BYTES];
        let have = left.min(SECTION_HEADER_BYTES as u64) as usize;
        self.read(&mut bytes[..have])?;
        let section = match SectionHeader::read(&bytes[..have]) {
            Ok(section) => section,
            Err(SectionError::Truncated) => return Ok(Err("the file ends within the header of a block".into())),
            Err(SectionError::Marker) => return Ok(Err("expected a block".into())),
            Err(error) => return Ok(Err(format!("invalid block: {error}"))),
        };
        let header = ProfileBlockHeader { section, subject: Identity(section.subject) };
        let name = header.name();
        if section.length() > left {
            return Ok(Err(format!("the file ends before the end of {name}")));
        }
        self.at += section.length();
        let kind = ProfileBlockKind::from_number(section.tag);
        let mode = kind.map_or(BlockReadMode::Skip, |kind| mode(kind, header.subject));
        if mode == BlockReadMode::Skip {
            self.seek_to(self.at)?;
            header.check_layout(&self.path)?;
            return Ok(match kind {
                Some(_) => Ok((header, BlockContent::NotDecoded)),
                None => Err(format!("{name} was written by a newer version of trodden")),
            });
        }
        let mut stored = vec![0; (section.index_length() + section.packed_length()) as usize];
        self.read(&mut stored)?;
        let packed = &stored[section.index_length() as usize..];
        if let Err(error) = section.check(packed) {
            return Ok(Err(format!("{name}: {error}")));
        }
        header.check_layout(&self.path)?;
        let content = match (kind, mode) {
            (Some(kind), BlockReadMode::Decode) => header.decode(kind, packed).map_err(|error| format!("{name}: {error}")),
            _ => Ok(BlockContent::NotDecoded),
        };
        Ok(content.map(|content| (header, content)))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), ProfileError> {
        self.file.read_exact(bytes).map_err(ProfileError::io(&self.path, "read"))
    }

    fn skip_to_next_block_marker(&mut self, from: u64) -> Result<(), ProfileError> {
        const MARKER_SEARCH_BUFFER_BYTES: usize = 1 << 16;
        let mut window = vec![0; MARKER_SEARCH_BUFFER_BYTES];
        self.at = from;
        while self.at < self.length {
            let size = (self.length - self.at).min(MARKER_SEARCH_BUFFER_BYTES as u64) as usize;
            self.seek_to(self.at)?;
            self.read(&mut window[..size])?;
            if let Some(found) = find_marker(&window[..size]) {
                self.at += found as u64;
                return self.seek_to(self.at);
            }
            if size < SECTION_MARKER.len() || self.at + size as u64 == self.length {
                break;
            }
            self.at += (size + 1 - SECTION_MARKER.len()) as u64;
        }
        self.at = self.length;
        Ok(())
    }

    fn seek_to(&mut self, at: u64) -> Result<(), ProfileError> {
        self.file.seek(SeekFrom::Start(at)).map(drop).map_err(ProfileError::io(&self.path, "read"))
    }
}

impl ProfileBlockHeader {
    fn name(&self) -> String {
        match ProfileBlockKind::from_number(self.section.tag) {
            Some(
                kind @ (ProfileBlockKind::Map
                | ProfileBlockKind::Image
                | ProfileBlockKind::Counts
                | ProfileBlockKind::Events
                | ProfileBlockKind::Times),
            ) => {
                format!("{} {}", kind.description(), self.subject)
            }
            Some(kind) => kind.description().into(),
            None => format!("a block of unknown kind {}", self.section.tag),
        }
    }

    /// Fails if the block's content has a different layout version. Such a block is not corrupt, but the profile is useless without it.
    fn check_layout(&self, path: &Path) -> Result<(), ProfileError> {
        let Some(kind) = ProfileBlockKind::from_number(self.section.tag) else { return Ok(()) };
        let (path, what, found, known) = (path.to_owned(), self.name(), self.section.layout, kind.layout_version());
        match found.cmp(&known) {
            Ordering::Less => Err(ProfileError::Older { path, what, found, known }),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(ProfileError::Newer { path, what, found, known }),
        }
    }

    fn decode(&self, kind: ProfileBlockKind, packed: &[u8]) -> Result<BlockContent, SectionError> {
        Ok(match kind {
            ProfileBlockKind::Run => BlockContent::Run(self.section.value(packed)?),
            ProfileBlockKind::Map => BlockContent::Map(Box::new(self.section.value(packed)?)),
            ProfileBlockKind::Image => BlockContent::Image(self.section.value(packed)?),
            ProfileBlockKind::Counts => BlockContent::Counts(self.section.value(packed)?),
            ProfileBlockKind::End => BlockContent::End(self.section.value(packed)?),
            ProfileBlockKind::Sampling => BlockContent::Sampling(self.section.value(packed)?),
            ProfileBlockKind::Events => BlockContent::Events(self.section.value(packed)?),
            ProfileBlockKind::Times => BlockContent::Times(self.section.value(packed)?),
        })
    }
}
