//! Trace files: the complete execution of each thread as a sequence of blocks, calls and returns, with all that is needed to show it
//! without the binary.
//!
//! The file is a [sequence of blocks](crate::block_file): first a description of the program (functions, blocks, lines), then blocks of
//! some ten thousand events, each with an index that has the number of its first program block, the open frames, and the functions that
//! occur. So any position is reached by reading one block, and memory is bounded by one block and the call depth. Order stamps are in
//! blocks of their own. The end says how the run ended.

use crate::block_file::{BlockFileReader, StoredBlock, TraceBlockKind, TraceFileError, TraceFormat};
use crate::follow::FollowEnding;
use crate::numbers::Cursor;
use crate::sink::{OrderStamp, StampPosition, ThreadNumber};
use crate::trace_event::{TraceBlock, TraceEvent, TraceFunction};
use crate::trace_symbols::push_events_of_symbol;
use serde::{Deserialize, Serialize};
use std::path::Path;
use trodden_binary::linked::split_address;
use trodden_container::{FILE_HEADER_BYTES, FileKind};

/// The format of trace files.
pub const TRACE_FORMAT: TraceFormat = TraceFormat { kind: FileKind::TRACE, version: 9 };
/// Number of symbols in a piece of a trace. Only the last piece of a thread may have fewer.
pub(crate) const MAX_PIECE_SYMBOLS: u32 = 1 << 16;

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
        let mut events = Vec::with_capacity(symbols.len());
        let valid = symbols.into_iter().try_for_each(|symbol| push_events_of_symbol(symbol, self.description.blocks.len(), &mut events));
        valid.ok_or_else(|| self.reader.inconsistent_block_error(&piece.header, "it has an unknown block or event"))?;
        Ok(events)
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
