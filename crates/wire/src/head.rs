//! The head at the start of each binary file of trodden, which identifies its kind and version: [`MAGIC`] (8 bytes), a constant of
//! [`FileKind`] (4), the version of the kind's format (4), flags with a meaning by kind, or 0 (8), and the [`checksum`](crate::checksum)
//! of these 24 bytes (8).

// Functions are inline so that the runtime's object, which must not panic, only contains those that it uses.

use crate::Checksum;

/// The first eight bytes. The first byte does not occur in text.
pub const MAGIC: [u8; 8] = *b"\x93TRODDEN";
/// Size of a head in bytes.
pub const HEAD_BYTES: usize = 32;
/// Offset of the checksum in a head.
pub const HEAD_CHECKSUM: usize = HEAD_BYTES - 8;
/// First bytes of binary files of earlier formats.
const EARLIER: [&[u8]; 2] = [b"TROD", b"trod"];

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
    /// A unit's map and bitcode.
    pub const UNIT: FileKind = FileKind(*b"UNIT");
    /// The part of the paths that one of several copies of a program counts.
    pub const COPY: FileKind = FileKind(*b"COPY");
    /// A request to a build to observe a program.
    pub const REQUEST: FileKind = FileKind(*b"REQU");
    /// Execution counts of blocks, as input of a build.
    pub const WEIGHTS: FileKind = FileKind(*b"WEIG");
    /// The transformations of a profile-guided build.
    pub const TRANSFORMATIONS: FileKind = FileKind(*b"CHNG");
    /// A set of segments.
    pub const SEGMENTS: FileKind = FileKind(*b"SEGM");
    /// A set of paths over iterations.
    pub const ITERATIONS: FileKind = FileKind(*b"ITER");
    /// A set of known paths.
    pub const KNOWN_PATHS: FileKind = FileKind(*b"KNOW");
    /// Further known paths of one program, which its runtime reads.
    pub const FURTHER_KNOWN_PATHS: FileKind = FileKind(*b"MORE");
    /// Counts as programs write them: a raw file.
    pub const RAW_COUNTS: FileKind = FileKind(*b"RAWC");
    /// Streams of paths as programs write them: rings of chunks.
    pub const STREAM_FILE: FileKind = FileKind(*b"RING");
    /// Calls and samples of threads, as the recorder of waits writes them.
    pub const WAITS: FileKind = FileKind(*b"WAIT");
    /// Blocks that a program executes under QEMU, as the plugin writes them.
    pub const BLOCKS: FileKind = FileKind(*b"BLKS");
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
    ];

    /// Returns the kind of a file that starts with `bytes`, even if the rest of its head is corrupt.
    #[inline]
    pub fn of(bytes: &[u8]) -> Option<FileKind> {
        bytes.strip_prefix(&MAGIC)?.first_chunk().copied().map(FileKind)
    }

    /// Returns a description of the kind, with an article.
    #[inline]
    pub fn description(self) -> &'static str {
        FileKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("a file of an unknown kind", |k| k.1)
    }
}

/// The head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHead {
    /// The kind of file.
    pub kind: FileKind,
    /// Version of the kind's format.
    pub version: u32,
    /// Flags, with a meaning by kind.
    pub flags: u64,
}

/// The reason why bytes are not the head of a file of this version of trodden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// There are too few bytes.
    Truncated,
    /// An earlier version of trodden wrote the file, before files had this head.
    EarlierFormat,
    /// The file does not start with [`MAGIC`].
    NotTrodden,
    /// The checksum does not match.
    Checksum,
}

impl FileHead {
    /// Returns a head without flags.
    #[inline]
    pub const fn new(kind: FileKind, version: u32) -> FileHead {
        FileHead { kind, version, flags: 0 }
    }

    /// Returns the head's bytes in a file.
    #[inline]
    pub const fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let kind = u32::from_le_bytes(self.kind.0) as u64 | (self.version as u64) << 32;
        let words = [u64::from_le_bytes(MAGIC), kind, self.flags, sum_of([u64::from_le_bytes(MAGIC), kind, self.flags])];
        let (mut bytes, mut at) = ([0; HEAD_BYTES], 0);
        while at < HEAD_BYTES {
            bytes[at] = words[at / 8].to_le_bytes()[at % 8];
            at += 1;
        }
        bytes
    }

    /// Returns the head's bytes without its checksum. If a file is created in several steps, the checksum is written last.
    #[inline]
    pub fn unfinished_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = self.to_bytes();
        bytes[HEAD_CHECKSUM..].fill(0);
        bytes
    }

    /// Returns true if `bytes` are a head of `kind`, of any version, without its checksum, which means that the file's creation was
    /// interrupted.
    #[inline]
    pub fn is_unfinished(bytes: &[u8; HEAD_BYTES], kind: FileKind) -> bool {
        FileKind::of(bytes) == Some(kind) && bytes[HEAD_CHECKSUM..] == [0; 8]
    }

    /// Reads the head at the start of `bytes`.
    ///
    /// # Errors
    /// `bytes` do not start with a head, or the head is corrupt.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<FileHead, HeadError> {
        let begins_with = |magic: &[u8]| bytes.starts_with(magic);
        if !begins_with(&MAGIC) {
            return Err(match EARLIER.into_iter().any(begins_with) {
                true => HeadError::EarlierFormat,
                false if MAGIC.starts_with(bytes) => HeadError::Truncated,
                false => HeadError::NotTrodden,
            });
        }
        let Some([magic, kind, flags, sum]) = bytes.as_chunks().0.first_chunk().map(|words| words.map(u64::from_le_bytes)) else {
            return Err(HeadError::Truncated);
        };
        if sum_of([magic, kind, flags]) != sum {
            return Err(HeadError::Checksum);
        }
        Ok(FileHead { kind: FileKind((kind as u32).to_le_bytes()), version: (kind >> 32) as u32, flags })
    }
}

/// Computes the [`checksum`](crate::checksum) of the preceding words.
const fn sum_of([magic, kind, flags]: [u64; 3]) -> u64 {
    Checksum::new().add_word(magic).add_word(kind).add_word(flags).value()
}

impl core::fmt::Display for HeadError {
    #[inline]
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            HeadError::Truncated => "it ends within its header",
            HeadError::EarlierFormat => "an earlier version of trodden wrote it",
            HeadError::NotTrodden => "it is not a file of trodden",
            HeadError::Checksum => "its header is corrupt",
        })
    }
}

impl core::error::Error for HeadError {}
