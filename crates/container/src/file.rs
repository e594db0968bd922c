//! Files with a single section that contains a value, such as requests and weights.

use crate::section::{SECTION_HEADER_BYTES, Section, SectionError, SectionHeader};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trodden_wire::file_header::{FILE_HEADER_BYTES, FileHeader, FileKind, HeaderError};

/// Compression level of single-value files.
const COMPRESSION_LEVEL: i32 = 3;

/// The reason why a file cannot be read. Callers put "FILE: " before the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum FileError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("it is {}, not {}", found.description(), expected.description())]
    Kind { found: FileKind, expected: FileKind },
    /// The file has the right kind, but a format version that this version of trodden does not read.
    #[error("it is {} in format {found}, but this version of trodden reads format {known}", kind.description())]
    Version { kind: FileKind, found: u32, known: u32 },
    #[error("it is corrupt: {0}")]
    Corrupt(#[from] SectionError),
    /// The file's content can be decoded, but is inconsistent.
    #[error("its parts contradict each other")]
    Inconsistent,
}

/// Reads and checks the header at the start of `bytes`. Fails if the header is corrupt, or of a different kind or version.
pub fn expect_header(bytes: &[u8], kind: FileKind, version: u32) -> Result<FileHeader, FileError> {
    let header = FileHeader::read(bytes)?;
    if header.kind != kind {
        return Err(FileError::Kind { found: header.kind, expected: kind });
    }
    if header.version != version {
        return Err(FileError::Version { kind, found: header.version, known: version });
    }
    Ok(header)
}

/// A file format for a single value.
#[derive(Clone, Copy, Debug)]
pub struct FileFormat {
    /// The kind of file.
    pub kind: FileKind,
    /// Version of the value.
    pub version: u32,
    /// Advice on how to obtain a valid file of this kind. Error messages end with it.
    pub remedy: &'static str,
}

/// The reason why a file cannot be read, with advice. Callers put "FILE: " before the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}. {remedy}")]
pub struct ContentError {
    /// Why the file cannot be read.
    pub error: FileError,
    /// Advice on how to obtain a valid file.
    pub remedy: &'static str,
}

impl FileFormat {
    /// Returns the bytes of a file that contains this value.
    pub fn to_bytes(&self, value: &impl Serialize) -> Vec<u8> {
        let section = Section { layout: self.version, ..Section::default() }.value_to_bytes(value, COMPRESSION_LEVEL);
        [&FileHeader::new(self.kind, self.version).to_bytes()[..], &section].concat()
    }

    /// Reads the value in a file. Fails if the file is of a different kind or version, or corrupt.
    pub fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, ContentError> {
        self.read_checked(bytes, |_| true)
    }

    /// Reads the value in a file, and checks it with `is_sound`. Fails like [`FileFormat::read`], or if `is_sound` returns false.
    pub fn read_checked<T: DeserializeOwned>(&self, bytes: &[u8], is_sound: impl FnOnce(&T) -> bool) -> Result<T, ContentError> {
        let value = self.read_value(bytes).and_then(|value| is_sound(&value).then_some(value).ok_or(FileError::Inconsistent));
        value.map_err(|error| ContentError { error, remedy: self.remedy })
    }

    /// Returns true if `bytes` start with [`MAGIC`](crate::MAGIC) and this kind. The rest of the file, including its version, is not
    /// checked.
    pub fn matches_kind(&self, bytes: &[u8]) -> bool {
        FileKind::detect(bytes) == Some(self.kind)
    }

    fn read_value<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, FileError> {
        expect_header(bytes, self.kind, self.version)?;
        let section = &bytes[FILE_HEADER_BYTES..];
        let header = SectionHeader::read(section)?;
        if section.len() as u64 != header.length() {
            return Err(SectionError::Truncated.into());
        }
        Ok(header.value(&section[SECTION_HEADER_BYTES + header.index_length() as usize..])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTS: FileFormat = FileFormat { kind: FileKind::WEIGHTS, version: 2, remedy: "Make one" };
    const SEGMENTS: FileFormat = FileFormat { kind: FileKind::SEGMENTS, ..WEIGHTS };

    #[test]
    fn corrupt_file_gives_no_value() {
        let whole = WEIGHTS.to_bytes(&vec![1u64, 2, 3]);
        assert_eq!(WEIGHTS.read::<Vec<u64>>(&whole).unwrap(), [1, 2, 3]);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            assert!(WEIGHTS.read::<Vec<u64>>(&bytes).is_err(), "byte {at}");
            assert!(WEIGHTS.read::<Vec<u64>>(&whole[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn other_kinds_and_versions_are_rejected() {
        let read_error = |bytes: &[u8]| SEGMENTS.read::<u64>(bytes).unwrap_err().to_string();
        assert_eq!(read_error(&WEIGHTS.to_bytes(&1u64)), "it is a file of weights, not a set of segments. Make one");
        let older = FileFormat { version: 1, ..SEGMENTS }.to_bytes(&1u64);
        assert_eq!(read_error(&older), "it is a set of segments in format 1, but this version of trodden reads format 2. Make one");
        assert_eq!(read_error(b"TRODSEG\x02 and more"), "an earlier version of trodden wrote it. Make one");
        assert_eq!(read_error(b"\x7fELF"), "it is not a file of trodden. Make one");
        assert_eq!(read_error(b""), "it ends within its header. Make one");
        assert_eq!(SEGMENTS.read_checked(&SEGMENTS.to_bytes(&1u64), |one: &u64| *one > 1).unwrap_err().error, FileError::Inconsistent);
    }
}
