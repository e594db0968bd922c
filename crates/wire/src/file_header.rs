//! The header at the start of each of trodden's binary files. Its fields and their sizes in bytes:
//!
//! - [`MAGIC`] (8)
//! - a constant of [`FileKind`] (4)
//! - the version of the kind's format (4)
//! - flags whose meaning depends on the kind (8)
//! - the [`checksum`](crate::checksum) of the preceding 24 bytes (8)

// Functions are inline so that the runtime's object, which must not panic, contains only the functions it uses.

use crate::Checksum;

/// First eight bytes of every file. The byte 0x93 cannot begin ASCII or UTF-8 text.
pub const MAGIC: [u8; 8] = *b"\x93TRODDEN";
/// Size of a header in bytes.
pub const FILE_HEADER_BYTES: usize = 32;
/// Offset of the checksum in a header, in bytes.
pub const FILE_HEADER_CHECKSUM_OFFSET: usize = FILE_HEADER_BYTES - 8;
/// First bytes of binary files that earlier versions of trodden wrote.
const EARLIER_MAGICS: [&[u8]; 2] = [b"TROD", b"trod"];

/// The kind of a file: four letters, readable in a hex dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKind(pub [u8; 4]);

impl FileKind {
    /// A stored profile.
    pub const PROFILE: FileKind = FileKind(*b"PROF");
    /// A trace.
    pub const TRACE: FileKind = FileKind(*b"TRAC");
    /// The recording of one run of a distributed trace.
    pub const PARTIAL_TRACE: FileKind = FileKind(*b"PART");
    /// A stored stream of paths.
    pub const STREAM_LOG: FileKind = FileKind(*b"SLOG");
    /// The map and the bitcode of a compilation unit.
    pub const UNIT: FileKind = FileKind(*b"UNIT");
    /// The share of a program's paths that one of several differently instrumented copies of the program counts.
    pub const COPY: FileKind = FileKind(*b"COPY");
    /// A request to a build to observe a program.
    pub const REQUEST: FileKind = FileKind(*b"REQU");
    /// Execution counts of blocks, as input of a build.
    pub const WEIGHTS: FileKind = FileKind(*b"WEIG");
    /// The transformations of a profile-guided build.
    pub const TRANSFORMATIONS: FileKind = FileKind(*b"CHNG");
    /// A set of interprocedural path segments.
    pub const SEGMENTS: FileKind = FileKind(*b"SEGM");
    /// A set of paths that extend over several loop iterations.
    pub const ITERATIONS: FileKind = FileKind(*b"ITER");
    /// A set of known paths.
    pub const KNOWN_PATHS: FileKind = FileKind(*b"KNOW");
    /// Paths that a program's runtime treats as known in addition to those known at build time.
    pub const FURTHER_KNOWN_PATHS: FileKind = FileKind(*b"MORE");
    /// A raw file: the counts that a program writes.
    pub const RAW_COUNTS: FileKind = FileKind(*b"RAWC");
    /// A stream file: the rings of chunks in which a program that was built for streaming records its paths.
    pub const STREAM_FILE: FileKind = FileKind(*b"RING");
    /// Each thread's calls and samples, written by the waits recorder.
    pub const WAITS: FileKind = FileKind(*b"WAIT");
    /// Blocks that a program executed under QEMU, written by the QEMU plugin.
    pub const BLOCKS: FileKind = FileKind(*b"BLKS");
    /// The recovered control-flow graphs of a binary file.
    pub const GRAPHS: FileKind = FileKind(*b"GRPH");
    /// A recording of branches.
    pub const BRANCHES: FileKind = FileKind(*b"BRCH");

    /// All kinds with their descriptions.
    pub const ALL: &[(FileKind, &'static str)] = &[
        (FileKind::PROFILE, "a profile"),
        (FileKind::TRACE, "a trace"),
        (FileKind::PARTIAL_TRACE, "a partial trace"),
        (FileKind::STREAM_LOG, "a stream of paths"),
        (FileKind::UNIT, "a unit's map"),
        (FileKind::COPY, "a copy's part of a program"),
        (FileKind::REQUEST, "a request to the compiler plugin"),
        (FileKind::WEIGHTS, "a file of weights"),
        (FileKind::TRANSFORMATIONS, "a plan of a profile-guided build"),
        (FileKind::SEGMENTS, "a set of segments"),
        (FileKind::ITERATIONS, "a set of paths over iterations"),
        (FileKind::KNOWN_PATHS, "a set of known paths"),
        (FileKind::FURTHER_KNOWN_PATHS, "a set of known paths of one program"),
        (FileKind::RAW_COUNTS, "a raw file of counts"),
        (FileKind::STREAM_FILE, "a stream file as programs write it"),
        (FileKind::WAITS, "a file of recorded threads"),
        (FileKind::BLOCKS, "a stream of executed blocks"),
        (FileKind::BRANCHES, "a recording of branches"),
        (FileKind::GRAPHS, "a file of recovered graphs"),
    ];

    /// Returns the kind of a file that starts with `bytes`, even if the rest of its header is corrupt. `None` if the file is not one of
    /// trodden's, or is too short.
    #[inline]
    pub fn detect(bytes: &[u8]) -> Option<FileKind> {
        bytes.strip_prefix(&MAGIC)?.first_chunk().copied().map(FileKind)
    }

    /// Returns a description of the kind, with an article.
    #[inline]
    pub fn description(self) -> &'static str {
        FileKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("a file of an unknown kind", |k| k.1)
    }
}

/// A file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The kind of file.
    pub kind: FileKind,
    /// Version of the kind's format.
    pub version: u32,
    /// Flags whose meaning depends on the kind.
    pub flags: u64,
}

/// Why bytes are not a valid file header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The file is shorter than a header.
    Truncated,
    /// An earlier version of trodden wrote the file, before files had this header.
    EarlierFormat,
    /// The file does not start with [`MAGIC`].
    NotTrodden,
    /// The checksum does not match.
    Checksum,
}

impl FileHeader {
    /// Returns a header without flags.
    #[inline]
    pub const fn new(kind: FileKind, version: u32) -> FileHeader {
        FileHeader { kind, version, flags: 0 }
    }

    /// Returns the header's bytes in a file.
    #[inline]
    pub const fn to_bytes(&self) -> [u8; FILE_HEADER_BYTES] {
        let kind = u32::from_le_bytes(self.kind.0) as u64 | (self.version as u64) << 32;
        let words = [u64::from_le_bytes(MAGIC), kind, self.flags, header_checksum([u64::from_le_bytes(MAGIC), kind, self.flags])];
        let (mut bytes, mut at) = ([0; FILE_HEADER_BYTES], 0);
        while at < FILE_HEADER_BYTES {
            bytes[at] = words[at / 8].to_le_bytes()[at % 8];
            at += 1;
        }
        bytes
    }

    /// Returns the header's bytes with zeros for the checksum. A file that is created in several steps gets its checksum last.
    #[inline]
    pub fn bytes_with_zero_checksum(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = self.to_bytes();
        bytes[FILE_HEADER_CHECKSUM_OFFSET..].fill(0);
        bytes
    }

    /// Returns true if `bytes` are a header of `kind` (in any version) whose checksum is still 0. The creation of such a file was
    /// interrupted.
    #[inline]
    pub fn is_unfinished(bytes: &[u8; FILE_HEADER_BYTES], kind: FileKind) -> bool {
        FileKind::detect(bytes) == Some(kind) && bytes[FILE_HEADER_CHECKSUM_OFFSET..] == [0; 8]
    }

    /// Reads the header at the start of `bytes`. Fails if `bytes` do not start with a header, or the header is corrupt.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<FileHeader, HeaderError> {
        let begins_with = |magic: &[u8]| bytes.starts_with(magic);
        if !begins_with(&MAGIC) {
            return Err(match EARLIER_MAGICS.into_iter().any(begins_with) {
                true => HeaderError::EarlierFormat,
                false if MAGIC.starts_with(bytes) => HeaderError::Truncated,
                false => HeaderError::NotTrodden,
            });
        }
        let Some([magic, kind, flags, sum]) = bytes.as_chunks().0.first_chunk().map(|words| words.map(u64::from_le_bytes)) else {
            return Err(HeaderError::Truncated);
        };
        if header_checksum([magic, kind, flags]) != sum {
            return Err(HeaderError::Checksum);
        }
        Ok(FileHeader { kind: FileKind((kind as u32).to_le_bytes()), version: (kind >> 32) as u32, flags })
    }
}

const fn header_checksum([magic, kind, flags]: [u64; 3]) -> u64 {
    Checksum::new().add_word(magic).add_word(kind).add_word(flags).value()
}

impl core::fmt::Display for HeaderError {
    #[inline]
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            HeaderError::Truncated => "it ends within its header",
            HeaderError::EarlierFormat => "an earlier version of trodden wrote it",
            HeaderError::NotTrodden => "it is not a file of trodden",
            HeaderError::Checksum => "its header is corrupt",
        })
    }
}

impl core::error::Error for HeaderError {}
