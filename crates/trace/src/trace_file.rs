//! Trace files: the whole execution as a sequence of blocks, calls and returns for each thread, with what is needed to
//! show it without the binary.
//!
//! The file is a [sequence of blocks](crate::block_file): first what the trace is about (functions, blocks, lines), then events
//! in blocks of some ten thousand, each with an index: the number of its first block, the frames that are open there,
//! and the functions that occur. So any place is reached by reading one block, and places of a function by reading the
//! blocks that have it. The end says how the run ended, and whether the trace was cut. Memory is bounded by one block
//! and the call depth.

use crate::block_file::{Reader, StoredBlock, TraceBlockKind, TraceFileError, TraceFormat, Writer, pack};
use crate::follow::FollowEnding;
use crate::numbers::{Cursor, push_number};
use crate::sink::ThreadNumber;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use trodden_binary::linked::in_file;
use trodden_container::{FileKind, HEAD_BYTES};
use trodden_profile::whole_file::{Access, WholeFile};

/// The format of trace files.
pub const TRACE_FORMAT: TraceFormat = TraceFormat { kind: FileKind::TRACE, version: 5 };
/// Events of a block of the file.
const BLOCK: usize = 1 << 16;

/// A function of the trace: its place in [`TraceAbout::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TraceFunction(pub u32);

/// A block of the trace: its place in [`TraceAbout::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TraceBlock(pub u32);

/// What a trace is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceAbout {
    /// The command.
    pub command: Vec<String>,
    /// The image's file.
    pub image: String,
    /// The files of shared libraries that were traced inside, by number from 1: their addresses have the number above the low 48 bits.
    pub libraries: Vec<String>,
    /// A hash of the files.
    pub hash: u64,
    /// How it was collected.
    pub collector: String,
    /// Runs that were merged.
    pub runs: u32,
    /// Functions, by address.
    pub functions: Vec<FunctionAbout>,
    /// Blocks, by address.
    pub blocks: Vec<BlockAbout>,
    /// Edges inside functions, as the graph has them after all amendments.
    pub edges: Vec<(TraceBlock, TraceBlock)>,
    /// Source files.
    pub files: Vec<String>,
    /// Functions that were not traced inside, each with the reason.
    pub opaque: Vec<(String, String)>,
}

impl TraceAbout {
    /// Checks that every number of a function, a block, a file or a library is that of one that is there.
    fn check(&self) -> Result<(), &'static str> {
        let has_block = |block: TraceBlock| (block.0 as usize) < self.blocks.len();
        for block in &self.blocks {
            if block.function.0 as usize >= self.functions.len() {
                return Err("a block is of a function that it does not have");
            }
            if block.lines.iter().any(|(file, _)| *file as usize >= self.files.len()) {
                return Err("a line is of a file that it does not have");
            }
        }
        if !self.edges.iter().all(|(from, to)| has_block(*from) && has_block(*to)) {
            return Err("an edge is of a block that it does not have");
        }
        let addresses = self.blocks.iter().map(|b| b.address).chain(self.functions.iter().map(|f| f.address));
        if addresses.map(|address| in_file(address).0).any(|file| file > self.libraries.len()) {
            return Err("an address is in a library that it does not have");
        }
        Ok(())
    }
}

/// What is known of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionAbout {
    /// Its name.
    pub name: String,
    /// Its entry, in the file.
    pub address: u64,
}

/// What is known of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockAbout {
    /// Its address in the file.
    pub address: u64,
    /// Its bytes.
    pub size: u32,
    /// Its function.
    pub function: TraceFunction,
    /// The source files and lines of its instructions, in their order, each once.
    pub lines: Vec<(u32, u32)>,
}

/// A step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A block is executed.
    Block(TraceBlock),
    /// The next block is the first one of a callee.
    Call {
        /// Code outside the image calls.
        outside: bool,
        /// The caller's frame is replaced.
        tail: bool,
    },
    /// The function returns.
    Return,
    /// The function is left by an exception or `longjmp`.
    Unwind,
}

/// How a trace ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEnd {
    /// How the program ended; `None` if that is not known.
    pub ending: Option<FollowEnding>,
    /// Whether the execution went on behind the trace's end.
    pub cut: bool,
    /// What is to be known about it.
    pub notes: Vec<String>,
    /// Witnesses recorded in each run, and its time.
    pub runs: Vec<RunAbout>,
}

/// What a run cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunAbout {
    /// Sites with witnesses.
    pub sites: u64,
    /// Witnesses recorded.
    pub hits: u64,
    /// Its time in seconds.
    pub seconds: f64,
}

impl Eq for RunAbout {}

const RETURN: u64 = 0;
const UNWIND: u64 = 1;
const CALL: u64 = 2;
const OUTSIDE: u64 = 1;
const TAIL: u64 = 2;
const FIRST: u64 = 8;

impl TraceEvent {
    fn symbol(self) -> u64 {
        match self {
            Self::Return => RETURN,
            Self::Unwind => UNWIND,
            Self::Call { outside, tail } => CALL + if outside { OUTSIDE } else { 0 } + if tail { TAIL } else { 0 },
            Self::Block(block) => FIRST + u64::from(block.0),
        }
    }

    /// The event of a symbol, in a trace of so many blocks; `None` if the trace has no such block or kind of event.
    fn from_symbol(symbol: u64, blocks: usize) -> Option<Self> {
        Some(match symbol {
            RETURN => Self::Return,
            UNWIND => Self::Unwind,
            FIRST.. => Self::Block(TraceBlock(checked_number(symbol - FIRST, blocks)?)),
            CALL..FIRST if symbol - CALL <= OUTSIDE | TAIL => {
                Self::Call { outside: (symbol - CALL) & OUTSIDE != 0, tail: (symbol - CALL) & TAIL != 0 }
            }
            _ => return None,
        })
    }
}

/// The frames of a thread, followed event by event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFrames {
    /// Functions, outermost first; `None` where a call has not come to its first block.
    pub open: Vec<Option<TraceFunction>>,
}

impl TraceFrames {
    /// Follows an event. `function` is that of a block.
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

/// Temporary names of traces that are being written begin so.
const BEGUN: &str = ".trodden-";

/// Writes a trace.
#[derive(Debug)]
pub struct TraceWriter {
    writer: Writer,
    whole: WholeFile,
    functions: Vec<TraceFunction>,
    threads: Vec<Buffer>,
}

#[derive(Debug, Default)]
struct Buffer {
    symbols: Vec<u64>,
    touched: BTreeSet<TraceFunction>,
    /// The one that was added last.
    last_touched: Option<TraceFunction>,
    frames: TraceFrames,
    start: TraceFrames,
    blocks: u64,
    first: u64,
}

impl TraceWriter {
    /// Makes a file that only its owner can read. It takes the place of an older one when it is finished.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path, about: &TraceAbout) -> Result<Self, TraceFileError> {
        let begin = || {
            let whole = WholeFile::create_for(path, BEGUN, Access::PRIVATE)?;
            Ok((whole.file().try_clone()?, whole))
        };
        let (file, whole) = begin().map_err(|source| TraceFileError::Io { path: path.to_owned(), source })?;
        let mut writer = Writer::begin(file, path, TRACE_FORMAT)?;
        writer.append_value(TraceBlockKind::About, about)?;
        Ok(Self { writer, whole, functions: about.blocks.iter().map(|b| b.function).collect(), threads: Vec::new() })
    }

    /// Adds an event to a thread.
    ///
    /// # Errors
    /// The disk is full, or another error of the system.
    pub fn push(&mut self, thread: ThreadNumber, event: TraceEvent) -> Result<(), TraceFileError> {
        let index = thread.0 as usize;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, Buffer::default);
        }
        let buffer = &mut self.threads[index];
        buffer.symbols.push(event.symbol());
        if let TraceEvent::Block(block) = event {
            buffer.blocks += 1;
            let function = self.functions[block.0 as usize];
            if buffer.last_touched != Some(function) {
                buffer.last_touched = Some(function);
                buffer.touched.insert(function);
            }
        }
        buffer.frames.follow(event, |block| self.functions[block.0 as usize]);
        if buffer.symbols.len() >= BLOCK { self.flush(index) } else { Ok(()) }
    }

    /// Blocks of all threads so far.
    pub fn blocks(&self) -> u64 {
        self.threads.iter().map(|t| t.blocks).sum()
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.writer.size()
    }

    /// Writes what is left, and how the trace ended.
    ///
    /// # Errors
    /// The disk is full, or another error of the system.
    pub fn finish(mut self, end: &TraceEnd) -> Result<(), TraceFileError> {
        for thread in 0..self.threads.len() {
            self.flush(thread)?;
        }
        self.writer.append_value(TraceBlockKind::End, end)?;
        self.whole.finish().map_err(|source| TraceFileError::Io { path: self.writer.path().to_owned(), source })
    }

    fn flush(&mut self, thread: usize) -> Result<(), TraceFileError> {
        let buffer = &mut self.threads[thread];
        if buffer.symbols.is_empty() {
            return Ok(());
        }
        let mut index = Vec::new();
        push_number(buffer.first, &mut index);
        push_number(buffer.start.open.len() as u64, &mut index);
        buffer.start.open.iter().for_each(|f| push_number(f.map_or(0, |f| u64::from(f.0) + 1), &mut index));
        push_number(buffer.touched.len() as u64, &mut index);
        buffer.touched.iter().for_each(|f| push_number(u64::from(f.0), &mut index));
        let packed = pack(&buffer.symbols);
        self.writer.append(TraceBlockKind::Symbols, thread as u32, buffer.symbols.len() as u32, &index, &packed)?;
        buffer.symbols.clear();
        buffer.touched.clear();
        buffer.last_touched = None;
        (buffer.first, buffer.start) = (buffer.blocks, buffer.frames.clone());
        Ok(())
    }
}

/// A block of the file with its index.
#[derive(Clone, Debug)]
pub struct TracePiece {
    head: StoredBlock,
    /// The thread.
    pub thread: ThreadNumber,
    /// How many blocks of the thread come before.
    pub first: u64,
    /// Frames that are open at its beginning.
    pub frames: TraceFrames,
    /// Functions that occur.
    pub functions: Vec<TraceFunction>,
}

/// A trace that is read.
#[derive(Debug)]
pub struct TraceFile {
    reader: Reader,
    about: TraceAbout,
    end: TraceEnd,
    pieces: Vec<TracePiece>,
}

impl TraceFile {
    /// Opens a trace. One whose recording was killed is read up to there.
    ///
    /// # Errors
    /// It cannot be read, or is no trace.
    pub fn open(path: &Path) -> Result<Self, TraceFileError> {
        let reader = Reader::open(path, TRACE_FORMAT)?;
        let about = reader.about()?;
        let mut end = TraceEnd { cut: true, notes: vec!["the recording was stopped before its end".to_owned()], ..TraceEnd::default() };
        if let (Some(head), false) = (reader.blocks().last(), reader.is_cut()) {
            end = reader.value(head)?;
        }
        let about: TraceAbout = about;
        about.check().map_err(|what| TraceFileError::Unsound { path: path.to_owned(), offset: HEAD_BYTES as u64, what })?;
        let mut pieces = Vec::new();
        for head in reader.blocks().iter().filter(|h| h.kind == TraceBlockKind::Symbols) {
            let broken = || reader.broken(head, "its index does not agree with what the trace is about");
            pieces.push(piece(*head, &reader.index(head)?, about.functions.len()).ok_or_else(broken)?);
        }
        // Stable: those of a thread stay in their order.
        pieces.sort_by_key(|piece| piece.thread.0);
        Ok(Self { reader, about, end, pieces })
    }

    /// What it is about.
    pub fn about(&self) -> &TraceAbout {
        &self.about
    }

    /// How it ended.
    pub fn end(&self) -> &TraceEnd {
        &self.end
    }

    /// How many threads it has.
    pub fn threads(&self) -> u32 {
        self.pieces.last().map_or(0, |piece| piece.thread.0 + 1)
    }

    /// The pieces of a thread, in order.
    pub fn pieces(&self, thread: ThreadNumber) -> impl Iterator<Item = &TracePiece> {
        let begin = self.pieces.partition_point(|piece| piece.thread.0 < thread.0);
        self.pieces[begin..].iter().take_while(move |piece| piece.thread == thread)
    }

    /// The last piece of a thread that begins at or before its block `number`.
    pub fn piece_at(&self, thread: ThreadNumber, number: u64) -> Option<&TracePiece> {
        self.pieces(thread).take_while(|p| p.first <= number).last()
    }

    /// The events of a piece.
    ///
    /// # Errors
    /// It cannot be read, or is broken.
    pub fn events(&self, piece: &TracePiece) -> Result<Vec<TraceEvent>, TraceFileError> {
        let symbols = self.reader.symbols(&piece.head)?;
        let events: Option<Vec<TraceEvent>> =
            symbols.into_iter().map(|symbol| TraceEvent::from_symbol(symbol, self.about.blocks.len())).collect();
        events.ok_or_else(|| self.reader.broken(&piece.head, "it has a block or an event that the trace does not have"))
    }

    /// All events of a thread, one piece in memory at a time.
    pub fn stream(&self, thread: ThreadNumber) -> impl Iterator<Item = Result<TraceEvent, TraceFileError>> + '_ {
        self.pieces(thread).flat_map(|piece| match self.events(piece) {
            Ok(events) => events.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        })
    }

    /// The function of a block.
    pub fn function_of(&self, block: TraceBlock) -> TraceFunction {
        self.block(block).function
    }

    /// A block.
    pub fn block(&self, block: TraceBlock) -> &BlockAbout {
        &self.about.blocks[block.0 as usize]
    }

    /// A function's name.
    pub fn name(&self, function: TraceFunction) -> &str {
        &self.about.functions[function.0 as usize].name
    }
}

/// A number of one of `all` things.
fn checked_number(number: u64, all: usize) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| (*number as usize) < all)
}

/// The piece of a block's index, in a trace of so many functions; `None` if they do not agree.
fn piece(head: StoredBlock, index: &[u8], all: usize) -> Option<TracePiece> {
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
    // Numbers of blocks count up from here.
    if first > u64::MAX / 2 {
        return None;
    }
    Some(TracePiece { head, thread: ThreadNumber(head.stream), first, frames: TraceFrames { open }, functions })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> TraceAbout {
        let functions = ["main", "callee"].map(|name| FunctionAbout { name: name.to_owned(), address: 0x1000 });
        let block = |address: u64, function: u32| BlockAbout { address, size: 4, function: TraceFunction(function), lines: Vec::new() };
        TraceAbout {
            functions: functions.to_vec(),
            blocks: vec![block(0x1000, 0), block(0x1004, 0), block(0x2000, 1)],
            ..TraceAbout::default()
        }
    }

    #[test]
    fn any_place_is_found_with_its_frames() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.trace");
        let mut writer = TraceWriter::create(&path, &about()).unwrap();
        let (main, callee) = (TraceEvent::Block(TraceBlock(0)), TraceEvent::Block(TraceBlock(2)));
        let call = TraceEvent::Call { outside: false, tail: false };
        let mut all = vec![TraceEvent::Call { outside: true, tail: false }, main];
        for _ in 0..BLOCK {
            all.extend([call, callee, TraceEvent::Return, TraceEvent::Block(TraceBlock(1))]);
        }
        all.iter().for_each(|event| writer.push(ThreadNumber(1), *event).unwrap());
        writer.finish(&TraceEnd::default()).unwrap();
        let trace = TraceFile::open(&path).unwrap();
        assert_eq!(trace.stream(ThreadNumber(1)).collect::<Result<Vec<_>, _>>().unwrap(), all);
        let piece = trace.piece_at(ThreadNumber(1), 50_000).unwrap();
        assert!(piece.first > 30_000 && piece.first <= 50_000);
        assert_eq!(piece.frames.open.first(), Some(&Some(TraceFunction(0))));
        assert_eq!(piece.functions, [TraceFunction(0), TraceFunction(1)]);
        assert_eq!((trace.threads(), trace.pieces(ThreadNumber(0)).count()), (2, 0));
    }
}
