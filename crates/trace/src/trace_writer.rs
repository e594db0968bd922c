//! Writes traces. Each thread's events are encoded at once, so that memory is bounded by one piece of the trace and the depth of calls.

use crate::block_file::{BlockFileWriter, DIFFERENCE_LAYOUT, PREDICTION_LAYOUT, TraceBlockKind, TraceFileError, encode_differences};
use crate::numbers::push_number;
use crate::predicted::PredictionEncoder;
use crate::sink::{OrderStamp, StampPosition, ThreadNumber};
use crate::trace_event::{TraceBlock, TraceEvent, TraceFunction};
use crate::trace_file::{MAX_PIECE_SYMBOLS, TRACE_FORMAT, ThreadStamp, TraceDescription, TraceEndRecord, TraceFile};
use crate::trace_symbols::{BlockLead, BlockSymbol, symbol_of_event, symbols_of_lead};
use std::os::fd::AsRawFd;
use std::path::Path;
use trodden_profile::atomic_file::{AtomicFile, FilePermissions};

/// Maximum number of order stamps per block of the file.
const MAX_BLOCK_STAMPS: usize = 1 << 15;
/// Maximum number of calls and returns after which they are followed.
const MAX_LEADS: usize = 1 << 10;
/// Prefix of the temporary file names of traces that are being written.
const TEMPORARY_FILE_PREFIX: &str = ".trodden-";

/// Writes a trace.
#[derive(Debug)]
pub struct TraceWriter {
    writer: BlockFileWriter,
    whole: AtomicFile,
    functions: Vec<TraceFunction>,
    threads: Vec<ThreadBuffer>,
}

#[derive(Debug, Default)]
struct ThreadBuffer {
    encoder: PredictionEncoder,
    /// The beginning of the piece's index.
    index: Vec<u8>,
    /// Calls and returns after the last block. They are encoded with the next block if possible.
    pending: BlockLead,
    stamps: Vec<ThreadStamp>,
    /// For each function by number, whether it occurs in the piece.
    is_touched: Vec<bool>,
    frames: FunctionStack,
    /// Space for symbols with calls and returns that are to be followed.
    leads: Vec<BlockSymbol>,
    /// Number of program blocks so far.
    blocks: u64,
}

/// The functions that are open in a thread, outermost first, as [`TraceFrameStack`](crate::TraceFrameStack) has them.
#[derive(Debug, Default)]
struct FunctionStack(Vec<u32>);

/// Stands for the function that a call enters until its first block is known.
const UNKNOWN_FUNCTION: u32 = u32::MAX;

impl FunctionStack {
    fn follow(&mut self, event: TraceEvent, functions: &[TraceFunction]) {
        match event {
            TraceEvent::Return | TraceEvent::Unwind => drop(self.0.pop()),
            TraceEvent::Call { tail, .. } => {
                if tail {
                    self.0.pop();
                }
                self.0.push(UNKNOWN_FUNCTION);
            }
            TraceEvent::Block(block) => self.enter(functions[block.0 as usize].0),
        }
    }

    /// Follows the calls and returns before a block of this function, and the block.
    fn follow_lead(&mut self, lead: BlockLead, function: u32) {
        if lead.returns() {
            self.0.pop();
        }
        if lead.tail_calls() {
            self.0.pop();
        }
        if lead.calls() || lead.tail_calls() {
            self.0.push(UNKNOWN_FUNCTION);
        }
        self.enter(function);
    }

    /// Follows a block of this function.
    fn enter(&mut self, function: u32) {
        match self.0.last_mut() {
            None => self.0.push(function),
            Some(innermost) if *innermost == UNKNOWN_FUNCTION => *innermost = function,
            Some(_) => {}
        }
    }
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
        let buffer = &mut self.threads[index];
        if buffer.index.is_empty() {
            buffer.begin_piece();
        }
        ThreadWriter { buffer, functions: &self.functions, writer: &mut self.writer, thread: thread.0 }
    }

    /// Returns the number of program blocks of all threads so far.
    pub fn blocks(&self) -> u64 {
        self.threads.iter().map(|thread| thread.blocks).sum()
    }

    /// Writes the buffered events, and opens the file written so far for reading.
    pub fn reopen_for_reading(mut self) -> Result<TraceFile, TraceFileError> {
        self.flush()?;
        TraceFile::open(Path::new(&format!("/proc/self/fd/{}", self.whole.file().as_raw_fd())))
    }

    fn flush(&mut self) -> Result<(), TraceFileError> {
        (0..).zip(&mut self.threads).try_for_each(|(thread, buffer)| buffer.flush(thread, &mut self.writer))
    }

    /// Returns the number of bytes written to the file so far.
    pub fn size(&self) -> u64 {
        self.writer.size()
    }

    /// Writes the remaining events and the end of the trace.
    pub fn finish(mut self, end: &TraceEndRecord) -> Result<(), TraceFileError> {
        self.flush()?;
        self.writer.append_value(TraceBlockKind::End, end)?;
        self.whole.finish().map_err(|source| TraceFileError::Io { path: self.writer.path().to_owned(), source })
    }
}

impl ThreadBuffer {
    fn begin_piece(&mut self) {
        self.encoder.begin();
        self.index.clear();
        push_number(self.blocks, &mut self.index);
        push_number(self.frames.0.len() as u64, &mut self.index);
        for &function in &self.frames.0 {
            push_number(if function == UNKNOWN_FUNCTION { 0 } else { u64::from(function) + 1 }, &mut self.index);
        }
    }

    /// Writes what has not been written yet.
    #[cold]
    fn flush(&mut self, thread: u32, writer: &mut BlockFileWriter) -> Result<(), TraceFileError> {
        self.write_stamps(thread, writer)?;
        self.encode_pending();
        let count = self.encoder.count();
        if count == 0 {
            return Ok(());
        }
        let touched: Vec<usize> = (0..self.is_touched.len()).filter(|function| self.is_touched[*function]).collect();
        push_number(touched.len() as u64, &mut self.index);
        for function in touched {
            push_number(function as u64, &mut self.index);
            self.is_touched[function] = false;
        }
        writer.append(TraceBlockKind::Symbols, PREDICTION_LAYOUT, (thread, count), &self.index, self.encoder.finish())?;
        self.begin_piece();
        Ok(())
    }

    fn write_stamps(&mut self, thread: u32, writer: &mut BlockFileWriter) -> Result<(), TraceFileError> {
        if self.stamps.is_empty() {
            return Ok(());
        }
        let mut numbers: Vec<u64> = self.stamps.iter().map(|stamp| stamp.blocks).collect();
        numbers.extend(self.stamps.drain(..).map(|stamp| stamp.ticks));
        let count = numbers.len() as u32;
        writer.append(TraceBlockKind::Stamps, DIFFERENCE_LAYOUT, (thread, count), &[], &encode_differences(&numbers))
    }

    fn encode_pending(&mut self) {
        symbols_of_lead(std::mem::take(&mut self.pending)).for_each(|symbol| self.encoder.push(symbol));
    }

    /// Appends the call or return `lead`.
    fn push_lead(&mut self, lead: BlockLead) {
        self.pending = self.pending.followed_by(lead).unwrap_or_else(|| {
            self.encode_pending();
            lead
        });
    }

    /// Appends an event. `functions` has the function of each block.
    fn push(&mut self, event: TraceEvent, functions: &[TraceFunction]) {
        self.frames.follow(event, functions);
        match event {
            TraceEvent::Block(block) => self.push_block(block, functions),
            TraceEvent::Return => self.push_lead(BlockLead::RETURN),
            TraceEvent::Call { outside: false, tail } => self.push_lead(if tail { BlockLead::TAIL_CALL } else { BlockLead::CALL }),
            TraceEvent::Unwind | TraceEvent::Call { outside: true, .. } => {
                self.encode_pending();
                self.encoder.push(symbol_of_event(event).expect("only blocks have no symbols of their own"));
            }
        }
    }

    fn push_block(&mut self, block: TraceBlock, functions: &[TraceFunction]) {
        let symbol = BlockSymbol::new(std::mem::take(&mut self.pending), block).expect("the description has fewer blocks");
        self.encoder.push(symbol.number());
        self.blocks += 1;
        self.make_room(functions);
        self.is_touched[functions[block.0 as usize].0 as usize] = true;
    }

    /// Follows the calls and returns of the first symbols in `leads`.
    fn follow_leads(&mut self, count: usize, functions: &[TraceFunction]) {
        self.make_room(functions);
        for symbol in &self.leads[..count] {
            let (lead, function) = (symbol.lead(), functions[symbol.block().0 as usize].0);
            self.frames.follow_lead(lead, function);
            self.is_touched[function as usize] = true;
        }
    }

    /// Makes room for all functions in `is_touched`.
    fn make_room(&mut self, functions: &[TraceFunction]) {
        if self.is_touched.is_empty() {
            self.is_touched.resize(functions.iter().map(|function| function.0 as usize + 1).max().unwrap_or(0), false);
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
    /// Returns the number of the thread's program blocks so far.
    pub fn blocks(&self) -> u64 {
        self.buffer.blocks
    }

    /// Appends an event.
    pub fn push(&mut self, event: TraceEvent) -> Result<(), TraceFileError> {
        self.buffer.push(event, self.functions);
        self.flush_if_full()
    }

    /// Appends the blocks that `next` returns until it returns `None`. May end earlier. A block without a lead must be in the innermost
    /// function.
    ///
    /// This is a fast form of [`Self::push`].
    #[inline]
    pub fn push_blocks_while(&mut self, mut next: impl FnMut() -> Option<BlockSymbol>) -> Result<(), TraceFileError> {
        self.buffer.encode_pending();
        let ThreadBuffer { encoder, leads, blocks, .. } = &mut *self.buffer;
        if leads.is_empty() {
            leads.resize(MAX_LEADS, BlockSymbol::default());
        }
        let count = encoder.count();
        let mut lead_count = 0;
        encoder.push_while(MAX_PIECE_SYMBOLS.saturating_sub(count), || {
            if lead_count >= leads.len() {
                return None;
            }
            let symbol = next()?;
            // The piece may have begun after the function was entered, so the first symbol is noted as well.
            if lead_count == 0 || symbol.lead() != BlockLead::NONE {
                leads[lead_count] = symbol;
                lead_count += 1;
            }
            Some(symbol.number())
        });
        *blocks += u64::from(encoder.count() - count);
        self.buffer.follow_leads(lead_count, self.functions);
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<(), TraceFileError> {
        if self.buffer.encoder.count() >= MAX_PIECE_SYMBOLS { self.buffer.flush(self.thread, self.writer) } else { Ok(()) }
    }

    /// Appends an order stamp.
    pub fn push_stamp(&mut self, stamp: OrderStamp) -> Result<(), TraceFileError> {
        let blocks = match stamp.position {
            StampPosition::InBlock => self.buffer.blocks,
            StampPosition::BlockStart => self.buffer.blocks.saturating_sub(1),
        };
        self.buffer.stamps.push(ThreadStamp { blocks, ticks: stamp.ticks });
        if self.buffer.stamps.len() >= MAX_BLOCK_STAMPS { self.buffer.write_stamps(self.thread, self.writer) } else { Ok(()) }
    }
}
