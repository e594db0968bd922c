//! Files of compressed blocks that remain readable if their writer is killed: partial traces and traces.
//!
//! The format is a [container](trodden_container): each block is a section, with its kind as tag, its stream as subject and its number of
//! symbols as count. Reading a block needs nothing that is written later. A file whose last block is incomplete or not of kind
//! [`TraceBlockKind::End`] is *truncated*. Opening reads only the headers of blocks, so that any block can be reached at once. If all
//! symbols of a block fit into words of four bytes, they are stored by [prediction](crate::predicted); otherwise, each symbol is stored as
//! its difference from the previous one (zigzag, LEB128). The section's layout says which.

use crate::numbers::{Cursor, push_number, zigzag_encode};
use crate::predicted::{PredictionEncoder, decode_by_prediction};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use trodden_container::{
    FILE_HEADER_BYTES, FileError, FileHeader, FileKind, SECTION_HEADER_BYTES, Section, SectionError, SectionHeader, encode, expect_header,
};
use xxhash_rust::xxh3::xxh3_64;

/// Compression level of zstd. The level is low, since the traced program may wait for the collector.
const COMPRESSION_LEVEL: i32 = 1;
/// Maximum number of symbols per block that readers accept. Writers flush a block at about half this number.
const MAX_SYMBOLS_PER_BLOCK: u32 = 1 << 17;
/// Maximum number of threads per file.
pub const MAX_THREADS: u32 = 1 << 24;

/// A file format that consists of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceFormat {
    /// The kind of file.
    pub kind: FileKind,
    /// The version of the format.
    pub version: u32,
}

/// Layout of a block whose symbols are stored as differences, or that has no symbols.
pub const DIFFERENCE_LAYOUT: u32 = 0;
/// Layout of a block whose symbols are stored by prediction.
pub const PREDICTION_LAYOUT: u32 = 1;

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceBlockKind {
    /// The description of the traced program.
    Description = 1,
    /// Symbols of one thread.
    Symbols = 2,
    /// The end of a complete file. A file without it is truncated.
    End = 3,
    /// Order stamps of one thread: numbers of blocks, then as many readings of the time-stamp counter.
    Stamps = 4,
}

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceFileError {
    /// Reading or writing failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file has a different kind or version.
    #[error("{}: {error}. Record the trace again", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file's header.
        error: FileError,
    },
    /// A block is corrupt.
    #[error("{}: the block at byte {offset} is corrupt: {error}. Record the trace again", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Offset of the block.
        offset: u64,
        /// What is wrong with the block.
        error: SectionError,
    },
    /// The contents of a block contradict the rest of the file.
    #[error("{}: the block at byte {offset} is corrupt: {what}. Record the trace again", path.display())]
    Inconsistent {
        /// The file.
        path: PathBuf,
        /// Offset of the block.
        offset: u64,
        /// What is wrong with the block.
        what: &'static str,
    },
}

/// Writes a file of blocks.
#[derive(Debug)]
pub struct BlockFileWriter {
    file: File,
    path: PathBuf,
    size: u64,
    /// Kept to avoid allocations.
    encoder: PredictionEncoder,
}

/// The header of a block in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// What the block contains.
    pub kind: TraceBlockKind,
    /// The number of the thread that the symbols belong to.
    pub stream: u32,
    /// The number of symbols.
    pub count: u32,
    offset: u64,
    section: SectionHeader,
}

/// Reads a file of blocks.
#[derive(Debug)]
pub struct BlockFileReader {
    file: File,
    path: PathBuf,
    headers: Vec<StoredBlock>,
    is_truncated: bool,
}

impl BlockFileWriter {
    /// Creates a file that only its owner can read, since it may reveal the program's input.
    pub fn create(path: &Path, format: TraceFormat) -> Result<Self, TraceFileError> {
        let file = trodden_profile::private::create_file(path).map_err(|source| TraceFileError::Io { path: path.to_owned(), source })?;
        Self::begin(file, path, format)
    }

    /// Writes the header to an empty file. `path` is the file's present or future path.
    pub fn begin(mut file: File, path: &Path, format: TraceFormat) -> Result<Self, TraceFileError> {
        let header = FileHeader::new(format.kind, format.version).to_bytes();
        file.write_all(&header).map_err(|source| TraceFileError::Io { path: path.to_owned(), source })?;
        Ok(Self { file, path: path.to_owned(), size: FILE_HEADER_BYTES as u64, encoder: PredictionEncoder::default() })
    }

    /// Appends a block of symbols that fit into 32 bits each.
    pub fn append_words(&mut self, stream: u32, index: &[u8], words: &[u32]) -> Result<(), TraceFileError> {
        let mut encoder = std::mem::take(&mut self.encoder);
        encoder.begin();
        let mut rest = words.iter().copied();
        encoder.push_while(u32::MAX, || rest.next());
        let appended = self.append(TraceBlockKind::Symbols, PREDICTION_LAYOUT, (stream, encoder.count()), index, encoder.finish());
        self.encoder = encoder;
        appended
    }

    /// Appends a block with `count` symbols that are already encoded in `data`.
    pub fn append(
        &mut self,
        kind: TraceBlockKind,
        layout: u32,
        (stream, count): (u32, u32),
        index: &[u8],
        data: &[u8],
    ) -> Result<(), TraceFileError> {
        let mut subject = [0; 16];
        subject[..4].copy_from_slice(&stream.to_le_bytes());
        let block = Section { tag: kind as u32, layout, subject, count, index }.to_bytes(data, COMPRESSION_LEVEL);
        self.file.write_all(&block).map_err(|source| TraceFileError::Io { path: self.path.clone(), source })?;
        self.size += block.len() as u64;
        Ok(())
    }

    /// Serializes a value and appends it as a block.
    pub fn append_value<T: Serialize>(&mut self, kind: TraceBlockKind, value: &T) -> Result<(), TraceFileError> {
        self.append(kind, DIFFERENCE_LAYOUT, (0, 0), &[], &encode(value))
    }

    /// Number of bytes written so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The path of the finished file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl BlockFileReader {
    /// Opens a file and reads the headers of its blocks.
    ///
    /// # Errors
    /// The file cannot be read, has a different format, or has a block with a corrupt header.
    pub fn open(path: &Path, format: TraceFormat) -> Result<Self, TraceFileError> {
        let io = |source| TraceFileError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        if size == 0 {
            return Err(TraceFileError::Inconsistent { path: path.to_owned(), offset: 0, what: "the file is empty" });
        }
        let mut header = [0; FILE_HEADER_BYTES];
        let have = usize::try_from(size).map_or(FILE_HEADER_BYTES, |size| size.min(FILE_HEADER_BYTES));
        file.read_exact_at(&mut header[..have], 0).map_err(io)?;
        let foreign = |error| TraceFileError::Foreign { path: path.to_owned(), error };
        expect_header(&header[..have], format.kind, format.version).map_err(foreign)?;
        let (mut headers, mut offset) = (Vec::new(), FILE_HEADER_BYTES as u64);
        while let Some(header) = read_header(path, &file, offset, size)? {
            offset += header.section.length();
            headers.push(header);
        }
        let is_truncated = offset != size || headers.last().is_none_or(|h: &StoredBlock| h.kind != TraceBlockKind::End);
        Ok(Self { file, path: path.to_owned(), headers, is_truncated })
    }

    /// Reads the description of the traced program in the first block.
    ///
    /// # Errors
    /// The file ends before the description, or the description is corrupt.
    pub fn read_description<T: for<'a> Deserialize<'a>>(&self) -> Result<T, TraceFileError> {
        let what = "the file ends before the description of the program";
        let inconsistent = || TraceFileError::Inconsistent { path: self.path.clone(), offset: FILE_HEADER_BYTES as u64, what };
        self.value(self.headers.first().filter(|h| h.kind == TraceBlockKind::Description).ok_or_else(inconsistent)?)
    }

    /// All blocks, in the order of writing.
    pub fn blocks(&self) -> &[StoredBlock] {
        &self.headers
    }

    /// Returns true if the file does not end with a complete end block, for example because its writer was killed.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Reads the index of a block.
    pub fn index(&self, header: &StoredBlock) -> Result<Vec<u8>, TraceFileError> {
        let mut bytes = vec![0; header.section.index_length() as usize];
        self.read(&mut bytes, header.offset + SECTION_HEADER_BYTES as u64)?;
        header.section.verify_index_checksum(&bytes).map_err(|error| self.corrupt_block_error(header, error))?;
        Ok(bytes)
    }

    /// Reads and decompresses the data of a block.
    pub fn data(&self, header: &StoredBlock) -> Result<Vec<u8>, TraceFileError> {
        let mut packed = vec![0; header.section.packed_length() as usize];
        self.read(&mut packed, header.offset + SECTION_HEADER_BYTES as u64 + header.section.index_length())?;
        header.section.unpack(&packed).map_err(|error| self.corrupt_block_error(header, error))
    }

    /// Reads the symbols of a block.
    pub fn symbols(&self, header: &StoredBlock) -> Result<Vec<u64>, TraceFileError> {
        let data = self.data(header)?;
        let symbols = match header.section.layout {
            DIFFERENCE_LAYOUT => decode_differences(&data, header.count as usize),
            PREDICTION_LAYOUT => decode_by_prediction(&data, header.count as usize),
            _ => None,
        };
        symbols.ok_or_else(|| self.inconsistent_block_error(header, "its symbols are malformed"))
    }

    /// Returns the error for a block whose contents contradict the rest of the file.
    pub fn inconsistent_block_error(&self, header: &StoredBlock, what: &'static str) -> TraceFileError {
        TraceFileError::Inconsistent { path: self.path.clone(), offset: header.offset, what }
    }

    /// Reads the serialized value in a block.
    pub fn value<T: for<'a> Deserialize<'a>>(&self, header: &StoredBlock) -> Result<T, TraceFileError> {
        trodden_container::decode(&self.data(header)?).map_err(|error| self.corrupt_block_error(header, error))
    }

    fn corrupt_block_error(&self, header: &StoredBlock, error: SectionError) -> TraceFileError {
        TraceFileError::Corrupt { path: self.path.clone(), offset: header.offset, error }
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> Result<(), TraceFileError> {
        self.file.read_exact_at(bytes, at).map_err(|source| TraceFileError::Io { path: self.path.clone(), source })
    }
}

/// Reads the header of a block; `None` if the block is incomplete.
fn read_header(path: &Path, file: &File, offset: u64, size: u64) -> Result<Option<StoredBlock>, TraceFileError> {
    let mut bytes = [0; SECTION_HEADER_BYTES];
    if file.read_exact_at(&mut bytes, offset).is_err() {
        return Ok(None);
    }
    let corrupt = |error| TraceFileError::Corrupt { path: path.to_owned(), offset, error };
    let inconsistent = |what| TraceFileError::Inconsistent { path: path.to_owned(), offset, what };
    let section = SectionHeader::read(&bytes).map_err(corrupt)?;
    let kinds = [TraceBlockKind::Description, TraceBlockKind::Symbols, TraceBlockKind::End, TraceBlockKind::Stamps];
    let kind = kinds.into_iter().find(|k| *k as u32 == section.tag);
    let kind = kind.ok_or_else(|| inconsistent("its kind is unknown"))?;
    let (count, raw) = (section.count, section.unpacked_length());
    let stream = u32::from_le_bytes(*section.subject.first_chunk().expect("four bytes"));
    let has_symbols = matches!(kind, TraceBlockKind::Symbols | TraceBlockKind::Stamps);
    match kind {
        _ if !has_symbols => {}
        _ if count > MAX_SYMBOLS_PER_BLOCK => return Err(inconsistent("it has too many symbols")),
        // A symbol takes one to ten bytes, or less than one if it is predicted.
        _ if (raw < u64::from(count) && section.layout != PREDICTION_LAYOUT) || raw > 10 * u64::from(count) => {
            return Err(inconsistent("its size contradicts its number of symbols"));
        }
        _ if stream >= MAX_THREADS => return Err(inconsistent("its thread's number is too large")),
        _ => {}
    }
    let is_whole = offset.checked_add(section.length()).is_some_and(|end| end <= size);
    Ok(is_whole.then_some(StoredBlock { kind, stream, count, offset, section }))
}

/// Encodes each symbol as its difference from the previous one (zigzag, LEB128).
pub fn encode_differences(symbols: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(symbols.len() * 2);
    let mut before = 0u64;
    for symbol in symbols {
        push_number(zigzag_encode(symbol.wrapping_sub(before)), &mut bytes);
        before = *symbol;
    }
    bytes
}

/// Decodes `count` symbols that [`encode_differences`] has encoded; `None` if the bytes are malformed.
fn decode_differences(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    let mut rest = Cursor(bytes);
    let mut symbols = Vec::with_capacity(count.min(bytes.len()));
    let mut before = 0u64;
    for _ in 0..count {
        before = before.wrapping_add(rest.difference()?);
        symbols.push(before);
    }
    rest.0.is_empty().then_some(symbols)
}

/// Hashes the contents of a file, so that files can be compared by their hashes.
pub fn hash_file_contents(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Copies the rest of `from` to an unnamed file in `folder`, and returns that file, rewound.
///
/// # Errors
/// `from` cannot be read, or the file cannot be written.
pub fn copy_to_unnamed_file(from: &mut dyn Read, folder: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(folder)?;
    io::copy(from, &mut file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: TraceFormat = TraceFormat { kind: FileKind(*b"TEST"), version: 1 };

    fn write_test_file(path: &Path) -> Vec<u64> {
        let symbols: Vec<u64> = (0..1000).map(|n| n * n % 77 + 3).collect();
        let mut writer = BlockFileWriter::create(path, FORMAT).unwrap();
        writer.append_value(TraceBlockKind::Description, &("a program", 7u32)).unwrap();
        writer.append(TraceBlockKind::Symbols, DIFFERENCE_LAYOUT, (1, 1000), &[9], &encode_differences(&symbols)).unwrap();
        writer.append(TraceBlockKind::Symbols, DIFFERENCE_LAYOUT, (2, 3), &[], &encode_differences(&[u64::MAX, 0, 5])).unwrap();
        writer.append_words(3, &[7], &[u32::MAX, 0, 5]).unwrap();
        writer.append_value(TraceBlockKind::End, &0u8).unwrap();
        symbols
    }

    #[test]
    fn blocks_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let symbols = write_test_file(&path);
        let reader = BlockFileReader::open(&path, FORMAT).unwrap();
        assert!(!reader.is_truncated());
        let blocks = reader.blocks();
        assert_eq!(reader.value::<(String, u32)>(&blocks[0]).unwrap(), ("a program".to_owned(), 7));
        assert_eq!((reader.symbols(&blocks[1]).unwrap(), reader.index(&blocks[1]).unwrap()), (symbols, vec![9]));
        assert_eq!(reader.symbols(&blocks[2]).unwrap(), [u64::MAX, 0, 5]);
        assert_eq!(reader.symbols(&blocks[3]).unwrap(), [u32::MAX.into(), 0, 5]);
        for other in [TraceFormat { kind: FileKind::TRACE, ..FORMAT }, TraceFormat { version: 2, ..FORMAT }] {
            assert!(matches!(BlockFileReader::open(&path, other), Err(TraceFileError::Foreign { .. })));
        }
    }

    #[test]
    fn truncated_file_is_read_up_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let symbols = write_test_file(&path);
        let bytes = std::fs::read(&path).unwrap();
        for length in (FILE_HEADER_BYTES..bytes.len()).step_by(11) {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let reader = BlockFileReader::open(&path, FORMAT).unwrap();
            assert!(reader.is_truncated());
            if let Some(block) = reader.blocks().get(1) {
                assert_eq!(reader.symbols(block).unwrap(), symbols);
            }
        }
    }

    #[test]
    fn corrupt_block_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        write_test_file(&path);
        let mut bytes = std::fs::read(&path).unwrap();
        let reader = BlockFileReader::open(&path, FORMAT).unwrap();
        let block = reader.blocks()[1];
        let last = (block.offset + block.section.length()) as usize - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let reader = BlockFileReader::open(&path, FORMAT).unwrap();
        assert!(matches!(reader.symbols(&block), Err(TraceFileError::Corrupt { error: SectionError::Content, .. })));
    }

    #[test]
    fn every_changed_byte_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        write_test_file(&path);
        let bytes = std::fs::read(&path).unwrap();
        let all = || -> Result<(), TraceFileError> {
            let reader = BlockFileReader::open(&path, FORMAT)?;
            for block in reader.blocks() {
                reader.index(block)?;
                reader.data(block)?;
            }
            Ok(())
        };
        assert!(all().is_ok());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            std::fs::write(&path, &changed).unwrap();
            assert!(all().is_err(), "byte {at}");
        }
    }
}
