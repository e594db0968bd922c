//! The head with which each binary file of trodden begins: which kind of file it is, and in which version.
//!
//! ```text
//! 0   magic     8   [`MAGIC`]
//! 8   kind      4   a constant of [`FileKind`]
//! 12  version   4   of the kind's format
//! 16  flags     8   meaning by kind; 0 where it has none
//! 24  checksum  8   [`checksum`](crate::checksum) of bytes 0 to 23
//! ```

// Functions are inline so that the runtime, whose object must not be able to panic, has only those that it uses.

use crate::checksum;

/// The first eight bytes. The first one is in no text.
pub const MAGIC: [u8; 8] = *b"\x93TRODDEN";
/// Size of a head in bytes.
pub const HEAD_BYTES: usize = 32;
/// How binary files of earlier formats begin.
const EARLIER: [&[u8]; 2] = [b"TROD", b"trod"];

/// What a file is. Four letters, so that a hex dump says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKind(pub [u8; 4]);

impl FileKind {
    /// A stored profile.
    pub const PROFILE: FileKind = FileKind(*b"PROF");
    /// A trace.
    pub const TRACE: FileKind = FileKind(*b"TRAC");
    /// What one run of a distributed trace recorded.
    pub const PARTIAL_TRACE: FileKind = FileKind(*b"PART");
    /// A stream of paths as it is kept.
    pub const STREAM_LOG: FileKind = FileKind(*b"SLOG");
    /// A unit's map and bitcode.
    pub const UNIT: FileKind = FileKind(*b"UNIT");
    /// What one of several copies of a program counts.
    pub const COPY: FileKind = FileKind(*b"COPY");
    /// What a build is asked to observe.
    pub const REQUEST: FileKind = FileKind(*b"REQU");
    /// Executions of blocks, for a build that is to use them.
    pub const WEIGHTS: FileKind = FileKind(*b"WEIG");
    /// What a profile-guided build changes.
    pub const TRANSFORMATIONS: FileKind = FileKind(*b"CHNG");
    /// A set of segments.
    pub const SEGMENTS: FileKind = FileKind(*b"SEGM");
    /// A set of known paths.
    pub const KNOWN_PATHS: FileKind = FileKind(*b"KNOW");

    /// All kinds, with what to call them.
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
        (FileKind::KNOWN_PATHS, "a set of known paths"),
    ];

    /// What a file that begins with `bytes` is, even if its head is damaged after that.
    #[inline]
    pub fn of(bytes: &[u8]) -> Option<FileKind> {
        bytes.strip_prefix(&MAGIC)?.first_chunk().copied().map(FileKind)
    }

    /// What to call such a file, with an article.
    #[inline]
    pub fn phrase(self) -> &'static str {
        FileKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("a file of a kind that this version of trodden does not know", |k| k.1)
    }
}

/// The head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHead {
    /// What it is.
    pub kind: FileKind,
    /// Version of the kind's format.
    pub version: u32,
    /// Meaning by kind.
    pub flags: u64,
}

/// Why bytes are not the head of a file of this version of trodden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// There are fewer bytes than a head has.
    Short,
    /// An earlier version of trodden wrote it, before files had this head.
    Earlier,
    /// It does not begin with [`MAGIC`].
    Foreign,
    /// The checksum does not match.
    Checksum,
}

impl FileHead {
    /// A head without flags.
    #[inline]
    pub const fn new(kind: FileKind, version: u32) -> FileHead {
        FileHead { kind, version, flags: 0 }
    }

    /// The head as it stands in a file.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.kind.0);
        bytes[12..16].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.flags.to_le_bytes());
        let sum = checksum(&bytes[..24]);
        bytes[24..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The head at the beginning of `bytes`.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<FileHead, HeadError> {
        let begins_with = |magic: &[u8]| bytes.starts_with(magic);
        if !begins_with(&MAGIC) {
            return Err(match EARLIER.into_iter().any(begins_with) {
                true => HeadError::Earlier,
                false if MAGIC.starts_with(bytes) => HeadError::Short,
                false => HeadError::Foreign,
            });
        }
        let Some(bytes) = bytes.first_chunk::<HEAD_BYTES>() else { return Err(HeadError::Short) };
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"));
        if checksum(&bytes[..24]) != word(24) {
            return Err(HeadError::Checksum);
        }
        let kind = FileKind(*bytes[8..].first_chunk().expect("four bytes"));
        Ok(FileHead { kind, version: (word(8) >> 32) as u32, flags: word(16) })
    }
}

impl core::fmt::Display for HeadError {
    #[inline]
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            HeadError::Short => "it ends within its head",
            HeadError::Earlier => "an earlier version of trodden wrote it",
            HeadError::Foreign => "it is not a file of trodden",
            HeadError::Checksum => "its head is damaged",
        })
    }
}

impl core::error::Error for HeadError {}
