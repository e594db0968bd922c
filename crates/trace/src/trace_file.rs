//! Trace files: the complete execution of each thread as a sequence of blocks, calls and returns, with all that is needed to show it
//! without the binary.
//!
//! The file is a [sequence of blocks](crate::block_file): first a description of the program (functions, blocks, lines), then blocks of
//! some ten thousand events, each with an index that has the number of its first program block, the open frames, and the functions that
//! occur. So any position is reached by reading one block, and memory is bounded by one block and the call depth. Order stamps are in
//! blocks of their own. The end says how the run ended.
// Length: what is written is also read here.

use crate::block_file::{
    BlockFileReader, BlockFileWriter, DIFFERENCE_LAYOUT, StoredBlock, TraceBlockKind, TraceFileError, TraceFormat, encode_differences,
};
use crate::follow::FollowEnding;
use crate::numbers::{Cursor, push_number};
use crate::sink::{OrderStamp, StampPosition, ThreadNumber};
use serde::{Deserialize, Serialize};
use std::os::fd::AsRawFd;
use std::path::Path;
use trodden_binary::linked::split_address;
use trodden_container::{FILE_HEADER_BYTES, FileKind};
use trodden_profile::atomic_file::{AtomicFile, FilePermissions};

/// The format of trace files.
pub const TRACE_FORMAT: TraceFormat = TraceFormat { kind: FileKind::TRACE, version: 8 };
/// Maximum number of events per block of the file.
const MAX_BLOCK_EVENTS: usize = 1 << 16;
/// Maximum number of order stamps per block of the file.
const MAX_BLOCK_STAMPS: usize = 1 << 15;

/// A function of the trace, as an index into [`TraceDescription::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TraceFunction(pub u32);

/// A program block of the trace, as an index into [`TraceDescription::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TraceBlock(pub u32);

/// The description of a traced program and its collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceDescription {
    /// The command line.
    pub command: Vec<String>,
    /// Path of the program's file.
    pub image: String,
    /// Paths of the shared libraries that were traced, by number from 1. Addresses in them have the number above the low 48 bits.
    pub libraries: Vec<String>,
    /// A hash of the files' contents.
    pub hash: u64,
    /// Name of the collector.
    pub collector: String,
    /// Number of runs that were merged.
    pub runs: u32,
    /// All functions, by address.
    pub functions: Vec<TracedFunctionInfo>,
    /// All blocks, by address.
    pub blocks: Vec<TracedBlockInfo>,
    /// The edges inside functions, including those found during tracing.
    pub edges: Vec<(TraceBlock, TraceBlock)>,
    /// Paths of the source files.
    pub files: Vec<String>,
    /// Names of functions inside which nothing was traced, each with the reason.
    pub opaque: Vec<(String, String)>,
}

impl TraceDescription {
    /// Checks that all references to functions, blocks, files and libraries are valid.
    fn check_description(&self) -> Result<(), &'static str> {
        let has_block = |block: TraceBlock| (block.0 as usize) < self.blocks.len();
        for block in &self.blocks {
            if block.function.0 as usize >= self.functions.len() {
                return Err("a block refers to a missing function");
            }
            if block.lines.iter().any(|(file, _)| *file as usize >= self.files.len()) {
                return Err("a line refers to a missing file");
            }
        }
        if !self.edges.iter().all(|(from, to)| has_block(*from) && has_block(*to)) {
            return Err("an edge refers to a missing block");
        }
        let addresses = self.blocks.iter().map(|b| b.address).chain(self.functions.iter().map(|f| f.address));
        if addresses.map(|address| split_address(address).0).any(|file| file > self.libraries.len()) {
            return Err("an address refers to a missing library");
        }
        Ok(())
    }
}

/// A function of the traced program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedFunctionInfo {
    /// The function's name.
    pub name: String,
    /// File address of the function's entry.
    pub address: u64,
}

/// A basic block of the traced program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedBlockInfo {
    /// The block's file address.
    pub address: u64,
    /// The block's size in bytes.
    pub size: u32,
    /// The function that contains the block.
    pub function: TraceFunction,
    /// The distinct source lines of the block's instructions, in order, as pairs of file index and line number.
    pub lines: Vec<(u32, u32)>,
}

/// An event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A block is executed.
    Block(TraceBlock),
    /// A call; the next block is the callee's first.
    Call {
        /// True if the caller is outside the traced code.
        outside: bool,
        /// True for a tail call, which replaces the frame of the caller.
        tail: bool,
    },
    /// The current function returns.
    Return,
    /// The current function is left by an exception or `longjmp`.
    Unwind,
}

/// An order stamp of a thread: a reading of the time-stamp counter between two blocks, or during a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadStamp {
    /// Number of the thread's blocks that started before the stamp.
    pub blocks: u64,
    /// The time-stamp counter, which is the same for all threads.
    pub ticks: u64,
}

impl From<ThreadStamp> for OrderStamp {
    fn from(stamp: ThreadStamp) -> Self {
        Self { ticks: stamp.ticks, position: StampPosition::InBlock }
    }
}

/// The end of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEndRecord {
    /// How the program ended; `None` if that is unknown.
    pub ending: Option<FollowEnding>,
    /// True if the execution continued after the end of the trace.
    pub is_truncated: bool,
    /// Notes for readers of the trace.
    pub notes: Vec<String>,
    /// The cost of each run.
    pub runs: Vec<TracedRunInfo>,
}

/// The cost of a run: what was recorded, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TracedRunInfo {
    /// Number of watched sites.
    pub sites: u64,
    /// Number of recorded hits.
    pub hits: u64,
    /// Run time in seconds.
    pub seconds: f64,
}

impl Eq for TracedRunInfo {}

const RETURN_SYMBOL: u32 = 0;
const UNWIND_SYMBOL: u32 = 1;
const FIRST_CALL_SYMBOL: u32 = 2;
const OUTSIDE_FLAG: u32 = 1;
const TAIL_FLAG: u32 = 2;
const FIRST_BLOCK_SYMBOL: u32 = 8;

impl TraceEvent {
    fn symbol(self) -> u32 {
        match self {
            Self::Return => RETURN_SYMBOL,
            Self::Unwind => UNWIND_SYMBOL,
            Self::Call { outside, tail } => FIRST_CALL_SYMBOL + if outside { OUTSIDE_FLAG } else { 0 } + if tail { TAIL_FLAG } else { 0 },
            Self::Block(block) => FIRST_BLOCK_SYMBOL + block.0,
        }
    }

    /// Returns the event of a symbol in a trace with this number of program blocks; `None` if the symbol is invalid.
    fn from_symbol(symbol: u64, blocks: usize) -> Option<Self> {
        let symbol = u32::try_from(symbol).ok()?;
        Some(match symbol {
            RETURN_SYMBOL => Self::Return,
            UNWIND_SYMBOL => Self::Unwind,
            FIRST_BLOCK_SYMBOL.. => Self::Block(TraceBlock(checked_number((symbol - FIRST_BLOCK_SYMBOL).into(), blocks)?)),
            FIRST_CALL_SYMBOL..FIRST_BLOCK_SYMBOL if symbol - FIRST_CALL_SYMBOL <= OUTSIDE_FLAG | TAIL_FLAG => Self::Call {
                outside: (symbol - FIRST_CALL_SYMBOL) & OUTSIDE_FLAG != 0,
                tail: (symbol - FIRST_CALL_SYMBOL) & TAIL_FLAG != 0,
            },
            _ => return None,
        })
    }
}

/// The call stack of a thread, updated event by event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFrameStack {
    /// The functions, outermost first; `None` after a call until the callee's first block.
    pub open: Vec<Option<TraceFunction>>,
}

impl TraceFrameStack {
    /// Applies an event. `function` returns a block's function.
    pub fn follow(&mut self, event: TraceEvent, function: impl FnOnce(TraceBlock) -> TraceFunction) {
        match event {
            TraceEvent::Call { tail, .. } => {
                if tail {
                    self.open.pop();
                }
                self.open.push(None);
            }
            TraceEvent::Return | TraceEvent::Unwind => drop(self.open.pop()),
            TraceEvent::Block(block) => match self.open.last_mut() {
                Some(Some(_)) => {}
                Some(empty) => *empty = Some(function(block)),
                None => self.open.push(Some(function(block))),
            },
        }
    }
}

/// Prefix of the temporary file names of traces that are being written.
const TEMPORARY_FILE_PREFIX: &str = ".trodden-";

#[derive(Debug)]
/// Writes a trace.
pub struct TraceWriter {
    writer: BlockFileWriter,
    whole: AtomicFile,
    functions: Vec<TraceFunction>,
    threads: Vec<ThreadBuffer>,
}

#[derive(Debug, Default)]
struct ThreadBuffer {
    symbols: Vec<u32>,
    /// The stamps among the symbols, each with the number of symbols before it.
    stamps: Vec<(usize, OrderStamp)>,
    touched: Vec<TraceFunction>,
    /// For each function by number, whether it is in `touched`.
    is_touched: Vec<bool>,
    /// The frames after the symbols that have been written.
    frames: TraceFrameStack,
    /// Number of program blocks that have been written.
    blocks: u64,
    /// Number of events that have been written.
    events: u64,
}

impl TraceWriter {
    /// Creates a file that only its owner can read. It replaces an existing file of this name once it is finished.
    pub fn create(path: &Path, about: &TraceDescription) -> Result<Self, TraceFileError> {
        let begin = || {
            let whole = AtomicFile::create_with_access(path, TEMPORARY_FILE_PREFIX, FilePermissions::OWNER_ONLY)?;
            Ok((whole.file().try_clone()?, whole))
        };
        let (file, whole) = begin().map_err(|source| TraceFileError::Io { path: path.to_owned(), source })?;
        let mut writer = BlockFileWriter::begin(file, path, TRACE_FORMAT)?;
        writer.append_value(TraceBlockKind::Description, about)?;
        Ok(Self { writer, whole, functions: about.blocks.iter().map(|b| b.function).collect(), threads: Vec::new() })
    }

    /// Appends an event of a thread.
    pub fn push(&mut self, thread: ThreadNumber, event: TraceEvent) -> Result<(), TraceFileError> {
        self.thread(thread).push(event)
    }

    /// Returns the writer for one thread's events.
    pub fn thread(&mut self, thread: ThreadNumber) -> ThreadWriter<'_> {
        let index = thread.0 as usize;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, ThreadBuffer::default);
        }
        ThreadWriter { buffer: &mut self.threads[index], functions: &self.functions, writer: &mut self.writer, thread: thread.0 }
    }

    /// Returns the number of program blocks of all threads so far.
    pub fn blocks(&self) -> u64 {
        let pending = |thread: &ThreadBuffer| thread.symbols.iter().filter(|symbol| **symbol >= FIRST_BLOCK_SYMBOL).count() as u64;
        self.threads.iter().map(|thread| thread.blocks + pending(thread)).sum()
    }

    /// Writes the buffered events, and opens the file written so far for reading.
    pub fn reopen_for_reading(mut self) -> Result<TraceFile, TraceFileError> {
        for (thread, buffer) in (0..).zip(&mut self.threads) {
            buffer.flush(thread, &self.functions, &mut self.writer)?;
        }
        TraceFile::open(Path::new(&format!("/proc/self/fd/{}", self.whole.file().as_raw_fd())))
    }

    /// Returns the number of bytes written to the file so far.
    pub fn size(&self) -> u64 {
        self.writer.size()
    }

    /// Writes the remaining events and the end of the trace.
    pub fn finish(mut self, end: &TraceEndRecord) -> Result<(), TraceFileError> {
        for (thread, buffer) in (0..).zip(&mut self.threads) {
            buffer.flush(thread, &self.functions, &mut self.writer)?;
        }
        self.writer.append_value(TraceBlockKind::End, end)?;
        self.whole.finish().map_err(|source| TraceFileError::Io { path: self.writer.path().to_owned(), source })
    }
}

impl ThreadBuffer {
    /// Writes the symbols of a thread. `functions` has the function of each block.
    #[cold]
    fn flush(&mut self, thread: u32, functions: &[TraceFunction], writer: &mut BlockFileWriter) -> Result<(), TraceFileError> {
        self.write_stamps(thread, writer)?;
        if self.symbols.is_empty() {
            return Ok(());
        }
        let mut index = Vec::new();
        push_number(self.blocks, &mut index);
        push_number(self.frames.open.len() as u64, &mut index);
        self.frames.open.iter().for_each(|f| push_number(f.map_or(0, |f| u64::from(f.0) + 1), &mut index));
        self.follow_symbols(functions);
        self.touched.sort_unstable();
        push_number(self.touched.len() as u64, &mut index);
        for function in self.touched.drain(..) {
            push_number(u64::from(function.0), &mut index);
            self.is_touched[function.0 as usize] = false;
        }
        writer.append_words(thread, &index, &self.symbols)?;
        self.events += self.symbols.len() as u64;
        self.symbols.clear();
        Ok(())
    }

    /// Writes the stamps among the symbols, which must not have been written yet.
    fn write_stamps(&mut self, thread: u32, writer: &mut BlockFileWriter) -> Result<(), TraceFileError> {
        if self.stamps.is_empty() {
            return Ok(());
        }
        let (mut blocks, mut seen) = (self.blocks, 0);
        let (mut counts, mut ticks) = (Vec::with_capacity(2 * self.stamps.len()), Vec::with_capacity(self.stamps.len()));
        for (index, stamp) in self.stamps.drain(..) {
            blocks += self.symbols[seen..index].iter().filter(|symbol| **symbol >= FIRST_BLOCK_SYMBOL).count() as u64;
            seen = index;
            counts.push(match stamp.position {
                StampPosition::InBlock => blocks,
                StampPosition::BlockStart => blocks.saturating_sub(1),
            });
            ticks.push(stamp.ticks);
        }
        counts.append(&mut ticks);
        let count = counts.len() as u32;
        writer.append(TraceBlockKind::Stamps, DIFFERENCE_LAYOUT, (thread, count), &[], &encode_differences(&counts))
    }

    /// Updates the frames, and notes the functions that occur. `functions` has the function of each block.
    fn follow_symbols(&mut self, functions: &[TraceFunction]) {
        // The function that the thread is in; `None` after a call or return.
        let mut current = None;
        for &symbol in &self.symbols {
            let Some(block) = symbol.checked_sub(FIRST_BLOCK_SYMBOL) else {
                let event = TraceEvent::from_symbol(symbol.into(), functions.len()).expect("it is the symbol of an event");
                self.frames.follow(event, |block| functions[block.0 as usize]);
                current = None;
                continue;
            };
            self.blocks += 1;
            let function = functions[block as usize];
            if current == Some(function) {
                continue;
            }
            current = Some(function);
            self.frames.follow(TraceEvent::Block(TraceBlock(block)), |_| function);
            let number = function.0 as usize;
            if self.is_touched.len() <= number {
                self.is_touched.resize(number + 1, false);
            }
            if !self.is_touched[number] {
                self.is_touched[number] = true;
                self.touched.push(function);
            }
        }
    }
}

/// Writes the events of one thread.
#[derive(Debug)]
pub struct ThreadWriter<'w> {
    buffer: &'w mut ThreadBuffer,
    functions: &'w [TraceFunction],
    writer: &'w mut BlockFileWriter,
    thread: u32,
}

impl ThreadWriter<'_> {
    /// Returns the number of the thread's events so far.
    pub fn events(&self) -> u64 {
        self.buffer.events + self.buffer.symbols.len() as u64
    }

    /// Appends an event.
    #[inline]
    pub fn push(&mut self, event: TraceEvent) -> Result<(), TraceFileError> {
        self.buffer.symbols.push(event.symbol());
        if self.buffer.symbols.len() >= MAX_BLOCK_EVENTS { self.buffer.flush(self.thread, self.functions, self.writer) } else { Ok(()) }
    }

    /// Appends an order stamp.
    pub fn push_stamp(&mut self, stamp: OrderStamp) -> Result<(), TraceFileError> {
        self.buffer.stamps.push((self.buffer.symbols.len(), stamp));
        if self.buffer.stamps.len() >= MAX_BLOCK_STAMPS { self.buffer.flush(self.thread, self.functions, self.writer) } else { Ok(()) }
    }
}

/// A part of a thread's trace: a block of the file, and its index.
#[derive(Clone, Debug)]
pub struct TraceFilePiece {
    header: StoredBlock,
    /// The thread.
    pub thread: ThreadNumber,
    /// Number of the thread's program blocks before the piece.
    pub first: u64,
    /// The frames that are open at the start of the piece.
    pub frames: TraceFrameStack,
    /// The functions that occur in the piece.
    pub functions: Vec<TraceFunction>,
}

/// Reads a trace.
#[derive(Debug)]
pub struct TraceFile {
    reader: BlockFileReader,
    description: TraceDescription,
    end: TraceEndRecord,
    pieces: Vec<TraceFilePiece>,
}

impl TraceFile {
    /// Opens a trace, which may be truncated.
    ///
    /// # Errors
    /// The file cannot be read, or is not a valid trace.
    pub fn open(path: &Path) -> Result<Self, TraceFileError> {
        let reader = BlockFileReader::open(path, TRACE_FORMAT)?;
        let about = reader.read_description()?;
        let mut end = TraceEndRecord {
            is_truncated: true,
            notes: vec!["the recording was killed before the trace was complete".to_owned()],
            ..TraceEndRecord::default()
        };
        if let (Some(header), false) = (reader.blocks().last(), reader.is_truncated()) {
            end = reader.value(header)?;
        }
        let description: TraceDescription = about;
        description.check_description().map_err(|what| TraceFileError::Inconsistent {
            path: path.to_owned(),
            offset: FILE_HEADER_BYTES as u64,
            what,
        })?;
        let mut pieces = Vec::new();
        for header in reader.blocks().iter().filter(|h| h.kind == TraceBlockKind::Symbols) {
            let inconsistent = || reader.inconsistent_block_error(header, "its index contradicts the description of the program");
            pieces.push(decode_piece(*header, &reader.index(header)?, description.functions.len()).ok_or_else(inconsistent)?);
        }
        // The sort is stable, so that the pieces of a thread stay in order.
        pieces.sort_by_key(|piece| piece.thread.0);
        Ok(Self { reader, description, end, pieces })
    }

    /// Returns the description of the program.
    pub fn description(&self) -> &TraceDescription {
        &self.description
    }

    /// Returns the end of the trace.
    pub fn end(&self) -> &TraceEndRecord {
        &self.end
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> u32 {
        self.pieces.last().map_or(0, |piece| piece.thread.0 + 1)
    }

    /// Returns the pieces of a thread, in order.
    pub fn pieces(&self, thread: ThreadNumber) -> impl Iterator<Item = &TraceFilePiece> {
        let begin = self.pieces.partition_point(|piece| piece.thread.0 < thread.0);
        self.pieces[begin..].iter().take_while(move |piece| piece.thread == thread)
    }

    /// Returns the piece that contains the program block with this number within a thread.
    pub fn piece_at(&self, thread: ThreadNumber, number: u64) -> Option<&TraceFilePiece> {
        self.pieces(thread).take_while(|p| p.first <= number).last()
    }

    /// Reads the events of a piece.
    ///
    /// # Errors
    /// The block cannot be read, or is corrupt.
    pub fn events(&self, piece: &TraceFilePiece) -> Result<Vec<TraceEvent>, TraceFileError> {
        let symbols = self.reader.symbols(&piece.header)?;
        let events: Option<Vec<TraceEvent>> =
            symbols.into_iter().map(|symbol| TraceEvent::from_symbol(symbol, self.description.blocks.len())).collect();
        events.ok_or_else(|| self.reader.inconsistent_block_error(&piece.header, "it has an unknown block or event"))
    }

    /// Returns the events of a thread, read piece by piece.
    pub fn stream(&self, thread: ThreadNumber) -> impl Iterator<Item = Result<TraceEvent, TraceFileError>> + '_ {
        self.pieces(thread).flat_map(|piece| match self.events(piece) {
            Ok(events) => events.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        })
    }

    /// Returns true if the trace has order stamps.
    pub fn has_stamps(&self) -> bool {
        self.reader.blocks().iter().any(|header| header.kind == TraceBlockKind::Stamps)
    }

    /// Reads the order stamps of a thread.
    ///
    /// # Errors
    /// A block cannot be read, or is corrupt.
    pub fn stamps(&self, thread: ThreadNumber) -> Result<Vec<ThreadStamp>, TraceFileError> {
        let mut all: Vec<ThreadStamp> = Vec::new();
        for header in self.reader.blocks().iter().filter(|h| h.kind == TraceBlockKind::Stamps && h.stream == thread.0) {
            let numbers = self.reader.symbols(header)?;
            let (blocks, ticks) = numbers.split_at(numbers.len() / 2);
            all.extend(blocks.iter().zip(ticks).map(|(blocks, ticks)| ThreadStamp { blocks: *blocks, ticks: *ticks }));
            if blocks.len() != ticks.len() || !all.is_sorted_by_key(|stamp| stamp.blocks) {
                return Err(self.reader.inconsistent_block_error(header, "its order stamps are out of order"));
            }
        }
        Ok(all)
    }

    /// Returns the function that contains a block.
    pub fn function_of(&self, block: TraceBlock) -> TraceFunction {
        self.block(block).function
    }

    /// Returns the description of a block.
    pub fn block(&self, block: TraceBlock) -> &TracedBlockInfo {
        &self.description.blocks[block.0 as usize]
    }

    /// Returns a function's name.
    pub fn name(&self, function: TraceFunction) -> &str {
        &self.description.functions[function.0 as usize].name
    }
}

/// Returns a number if it is below `all`.
fn checked_number(number: u64, all: usize) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| (*number as usize) < all)
}

/// Decodes the index of a block, in a trace with `all` functions; `None` if it is invalid.
fn decode_piece(header: StoredBlock, index: &[u8], all: usize) -> Option<TraceFilePiece> {
    let mut rest = Cursor(index);
    let first = rest.number()?;
    let depth = rest.number()?;
    let mut open = Vec::new();
    for _ in 0..depth {
        open.push(match rest.number()? {
            0 => None,
            number => Some(TraceFunction(checked_number(number - 1, all)?)),
        });
    }
    let touched = rest.number()?;
    let mut functions = Vec::new();
    for _ in 0..touched {
        functions.push(TraceFunction(checked_number(rest.number()?, all)?));
    }
    // With this bound, counting blocks from here cannot overflow.
    if first > u64::MAX / 2 {
        return None;
    }
    Some(TraceFilePiece { header, thread: ThreadNumber(header.stream), first, frames: TraceFrameStack { open }, functions })
}

#[cfg(test)]
#[path = "trace_file_tests.rs"]
mod tests;
