//! Files of compressed blocks that survive a kill of the process that writes them: partial traces and traces.
//!
//! A file is a magic number and a sequence of blocks, each with its kind, its stream, how many symbols it has, an index
//! of its own, the data compressed by zstd, and checksums of these and of the head. Nothing is written behind the last block that reading
//! needs: what is there is readable, and a file whose last block is broken or not of kind [`TraceBlockKind::End`] is *cut*.
//! Opening reads the heads of blocks only, so any block is reached at once.
//!
//! Symbols are written as the difference to the one before, in as few bytes as it needs (zigzag, LEB128).

use crate::numbers::{Cursor, push_number, zigzag};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Level of zstd: the program may wait for the collector.
const LEVEL: i32 = 1;
/// Bytes of a block's head: kind, stream, count, lengths of index, raw data and packed data, checksums of index and packed data, and one
/// of all these.
const HEAD: usize = 1 + 4 * 5 + 8 * 3;
/// Those before the last checksum.
const CHECKED: usize = HEAD - 8;
/// Maximum size of a block's index, raw data and packed data.
const MAX_SIZE: u32 = 1 << 28;
/// Maximum number of symbols of a block; writers flush a block long before.
const MAX_SYMBOLS: u32 = 1 << 17;
/// Maximum number of threads of a file.
pub const MAX_THREADS: u32 = 1 << 24;
/// Raw data of values is at most this many times as large as packed data, beyond [`FREE_SIZE`]: a small file cannot fill the memory.
const MAX_RATIO: u64 = 1024;
/// Raw data to which [`MAX_RATIO`] does not apply.
const FREE_SIZE: u64 = 1 << 16;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceBlockKind {
    /// What the file is about.
    About,
    /// Symbols of a stream.
    Symbols,
    /// The trace ended here.
    End,
}

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The system says so.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is another kind of file.
    #[error("{} is no {expected} of this version of trodden: record it again", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// A block is broken.
    #[error("{}: the block at byte {offset} is broken: {what}; record the trace again", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// A file that is being written.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    size: u64,
}

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerHead {
    /// What it is.
    pub kind: TraceBlockKind,
    /// Its stream.
    pub stream: u32,
    /// Symbols in it.
    pub count: u32,
    offset: u64,
    index: u32,
    raw: u32,
    packed: u32,
    index_checksum: u64,
    checksum: u64,
}

/// A file that is read.
#[derive(Debug)]
pub struct Reader {
    file: File,
    path: PathBuf,
    heads: Vec<ContainerHead>,
    cut: bool,
}

impl Writer {
    /// Makes a file that only its owner can read, since it may have the program's input.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path, magic: [u8; 8]) -> Result<Self, ContainerError> {
        let file = trodden_profile::private::create_file(path).map_err(|source| ContainerError::Io { path: path.to_owned(), source })?;
        Self::begin(file, path, magic)
    }

    /// Begins to write an empty file, which will have this path.
    ///
    /// # Errors
    /// The disk is full, or another error of the system.
    pub fn begin(mut file: File, path: &Path, magic: [u8; 8]) -> Result<Self, ContainerError> {
        file.write_all(&magic).map_err(|source| ContainerError::Io { path: path.to_owned(), source })?;
        Ok(Self { file, path: path.to_owned(), size: 8 })
    }

    /// Appends a block.
    ///
    /// # Errors
    /// The disk is full, or another error of the system.
    pub fn append(&mut self, kind: TraceBlockKind, stream: u32, count: u32, index: &[u8], data: &[u8]) -> Result<(), ContainerError> {
        let io = |source| ContainerError::Io { path: self.path.clone(), source };
        let packed = zstd::bulk::compress(data, LEVEL).map_err(io)?;
        let mut block = Vec::with_capacity(HEAD + index.len() + packed.len());
        block.push(kind as u8);
        for number in [stream, count, index.len() as u32, data.len() as u32, packed.len() as u32] {
            block.extend(number.to_le_bytes());
        }
        block.extend(xxh3_64(index).to_le_bytes());
        block.extend(xxh3_64(&packed).to_le_bytes());
        block.extend(xxh3_64(&block).to_le_bytes());
        block.extend(index);
        block.extend(&packed);
        self.file.write_all(&block).map_err(io)?;
        self.size += block.len() as u64;
        Ok(())
    }

    /// Appends a value.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn append_value<T: Serialize>(&mut self, kind: TraceBlockKind, value: &T) -> Result<(), ContainerError> {
        let bytes =
            postcard::to_allocvec(value).map_err(|e| ContainerError::Io { path: self.path.clone(), source: io::Error::other(e) })?;
        self.append(kind, 0, 0, &[], &bytes)
    }

    /// Bytes written so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where the file is, or will be.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Reader {
    /// Opens a file and reads the heads of its blocks.
    ///
    /// # Errors
    /// It cannot be read, or begins with another magic number; `expected` is what to call such files.
    pub fn open(path: &Path, magic: [u8; 8], expected: &'static str) -> Result<Self, ContainerError> {
        let io = |source| ContainerError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        if size == 0 {
            return Err(ContainerError::Broken { path: path.to_owned(), offset: 0, what: "the file is empty" });
        }
        let mut found = [0; 8];
        if file.read_exact_at(&mut found, 0).is_err() || found != magic {
            return Err(ContainerError::Foreign { path: path.to_owned(), expected });
        }
        let (mut heads, mut offset) = (Vec::new(), 8);
        while let Some(head) =
            read_head(&file, offset, size).map_err(|what| ContainerError::Broken { path: path.to_owned(), offset, what })?
        {
            offset += HEAD as u64 + u64::from(head.index) + u64::from(head.packed);
            heads.push(head);
        }
        let cut = offset != size || heads.last().is_none_or(|h: &ContainerHead| h.kind != TraceBlockKind::End);
        Ok(Self { file, path: path.to_owned(), heads, cut })
    }

    /// The value in the first block, which says what the file is about.
    ///
    /// # Errors
    /// The file ends before it, or it is broken.
    pub fn about<T: for<'a> Deserialize<'a>>(&self) -> Result<T, ContainerError> {
        let what = "the file ends before it says what it is about";
        let broken = || ContainerError::Broken { path: self.path.clone(), offset: 8, what };
        self.value(self.heads.first().filter(|h| h.kind == TraceBlockKind::About).ok_or_else(broken)?)
    }

    /// All blocks, in the order in which they were written.
    pub fn blocks(&self) -> &[ContainerHead] {
        &self.heads
    }

    /// Whether its writer was stopped before the end.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The index of a block.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn index(&self, head: &ContainerHead) -> Result<Vec<u8>, ContainerError> {
        let mut bytes = vec![0; head.index as usize];
        let read = self.file.read_exact_at(&mut bytes, head.offset + HEAD as u64);
        read.map_err(|source| ContainerError::Io { path: self.path.clone(), source })?;
        match xxh3_64(&bytes) == head.index_checksum {
            true => Ok(bytes),
            false => {
                Err(ContainerError::Broken { path: self.path.clone(), offset: head.offset, what: "the checksum of its index is wrong" })
            }
        }
    }

    /// The data of a block.
    ///
    /// # Errors
    /// It cannot be read, or is broken.
    pub fn data(&self, head: &ContainerHead) -> Result<Vec<u8>, ContainerError> {
        let mut packed = vec![0; head.packed as usize];
        let at = head.offset + HEAD as u64 + u64::from(head.index);
        self.file.read_exact_at(&mut packed, at).map_err(|source| ContainerError::Io { path: self.path.clone(), source })?;
        let broken = |what| ContainerError::Broken { path: self.path.clone(), offset: head.offset, what };
        if xxh3_64(&packed) != head.checksum {
            return Err(broken("its checksum is wrong"));
        }
        // Memory grows with what is decompressed, not with what the head says.
        let mut data = Vec::new();
        let decoder = zstd::stream::read::Decoder::with_buffer(packed.as_slice());
        let read = decoder.and_then(|decoder| decoder.take(u64::from(head.raw) + 1).read_to_end(&mut data));
        match read {
            Ok(size) if size == head.raw as usize => Ok(data),
            Ok(_) => Err(broken("its size is not what its head says")),
            Err(_) => Err(broken("it cannot be decompressed")),
        }
    }

    /// The symbols of a block.
    ///
    /// # Errors
    /// It cannot be read, or is broken.
    pub fn symbols(&self, head: &ContainerHead) -> Result<Vec<u64>, ContainerError> {
        let data = self.data(head)?;
        let broken = || ContainerError::Broken { path: self.path.clone(), offset: head.offset, what: "a symbol ends too early" };
        unpack(&data, head.count as usize).ok_or_else(broken)
    }

    /// The error for a block whose content contradicts the rest of the file.
    pub fn broken(&self, head: &ContainerHead, what: &'static str) -> ContainerError {
        ContainerError::Broken { path: self.path.clone(), offset: head.offset, what }
    }

    /// The value in a block.
    ///
    /// # Errors
    /// It cannot be read, or is broken.
    pub fn value<T: for<'a> Deserialize<'a>>(&self, head: &ContainerHead) -> Result<T, ContainerError> {
        let broken = |_| ContainerError::Broken { path: self.path.clone(), offset: head.offset, what: "it has another form" };
        postcard::from_bytes(&self.data(head)?).map_err(broken)
    }
}

/// The head of a block; nothing if the file ends within the block.
fn read_head(file: &File, offset: u64, size: u64) -> Result<Option<ContainerHead>, &'static str> {
    let mut bytes = [0; HEAD];
    if file.read_exact_at(&mut bytes, offset).is_err() {
        return Ok(None);
    }
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let kind = [TraceBlockKind::About, TraceBlockKind::Symbols, TraceBlockKind::End].into_iter().find(|k| *k as u8 == bytes[0]);
    let Some(kind) = kind.filter(|_| xxh3_64(&bytes[..CHECKED]) == long(CHECKED)) else {
        return Err("the checksum of its head is wrong");
    };
    let [stream, count, index, raw, packed] = [1, 5, 9, 13, 17].map(number);
    if index >= MAX_SIZE || raw >= MAX_SIZE || packed >= MAX_SIZE {
        return Err("it is too large");
    }
    match kind {
        TraceBlockKind::Symbols if count > MAX_SYMBOLS => return Err("it has too many symbols"),
        // A symbol takes at least a byte, and at most ten.
        TraceBlockKind::Symbols if raw < count || u64::from(raw) > 10 * u64::from(count) => {
            return Err("its size does not agree with its number of symbols");
        }
        TraceBlockKind::Symbols if stream >= MAX_THREADS => return Err("its thread's number is too large"),
        TraceBlockKind::Symbols => {}
        _ if u64::from(raw) > FREE_SIZE + MAX_RATIO * u64::from(packed) => return Err("it is too large for its compressed size"),
        _ => {}
    }
    let is_whole = offset + HEAD as u64 + u64::from(index) + u64::from(packed) <= size;
    let (index_checksum, checksum) = (long(21), long(29));
    Ok(is_whole.then_some(ContainerHead { kind, stream, count, offset, index, raw, packed, index_checksum, checksum }))
}

/// Symbols as bytes.
pub fn pack(symbols: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(symbols.len() * 2);
    let mut before = 0u64;
    for symbol in symbols {
        push_number(zigzag(symbol.wrapping_sub(before)), &mut bytes);
        before = *symbol;
    }
    bytes
}

/// Bytes as symbols.
fn unpack(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    let mut rest = Cursor(bytes);
    let mut symbols = Vec::with_capacity(count.min(bytes.len()));
    let mut before = 0u64;
    for _ in 0..count {
        before = before.wrapping_add(rest.difference()?);
        symbols.push(before);
    }
    rest.0.is_empty().then_some(symbols)
}

/// The hash by which contents are compared.
pub fn hash(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Copies what is left of `from` into an unnamed file in a folder, and gives it at its beginning.
///
/// # Errors
/// It cannot be read, or the disk is full.
pub fn spool(from: &mut dyn Read, folder: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(folder)?;
    io::copy(from, &mut file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 8] = *b"TESTFILE";

    fn written(path: &Path) -> Vec<u64> {
        let symbols: Vec<u64> = (0..1000).map(|n| n * n % 77 + 3).collect();
        let mut writer = Writer::create(path, MAGIC).unwrap();
        writer.append_value(TraceBlockKind::About, &("a program", 7u32)).unwrap();
        writer.append(TraceBlockKind::Symbols, 1, 1000, &[9], &pack(&symbols)).unwrap();
        writer.append(TraceBlockKind::Symbols, 2, 3, &[], &pack(&[u64::MAX, 0, 5])).unwrap();
        writer.append_value(TraceBlockKind::End, &0u8).unwrap();
        symbols
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let symbols = written(&path);
        let reader = Reader::open(&path, MAGIC, "test").unwrap();
        assert!(!reader.is_cut());
        let blocks = reader.blocks();
        assert_eq!(reader.value::<(String, u32)>(&blocks[0]).unwrap(), ("a program".to_owned(), 7));
        assert_eq!((reader.symbols(&blocks[1]).unwrap(), reader.index(&blocks[1]).unwrap()), (symbols, vec![9]));
        assert_eq!(reader.symbols(&blocks[2]).unwrap(), [u64::MAX, 0, 5]);
        assert!(matches!(Reader::open(&path, *b"OTHERONE", "other"), Err(ContainerError::Foreign { .. })));
    }

    #[test]
    fn what_was_cut_is_read_up_to_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let symbols = written(&path);
        let bytes = std::fs::read(&path).unwrap();
        for length in (8..bytes.len()).step_by(11) {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let reader = Reader::open(&path, MAGIC, "test").unwrap();
            assert!(reader.is_cut());
            if let Some(block) = reader.blocks().get(1) {
                assert_eq!(reader.symbols(block).unwrap(), symbols);
            }
        }
    }

    #[test]
    fn a_broken_block_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        written(&path);
        let mut bytes = std::fs::read(&path).unwrap();
        let reader = Reader::open(&path, MAGIC, "test").unwrap();
        let block = reader.blocks()[1];
        let last = (block.offset as usize) + HEAD + 1 + block.packed as usize - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let reader = Reader::open(&path, MAGIC, "test").unwrap();
        assert!(matches!(reader.symbols(&block), Err(ContainerError::Broken { what: "its checksum is wrong", .. })));
    }

    /// No byte of a file can change unnoticed.
    #[test]
    fn every_changed_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        written(&path);
        let bytes = std::fs::read(&path).unwrap();
        let all = || -> Result<(), ContainerError> {
            let reader = Reader::open(&path, MAGIC, "test")?;
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
