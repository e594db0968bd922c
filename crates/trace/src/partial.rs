//! Partial traces: what one run of a collector has recorded, as one stream per thread, and how the run ended.

use crate::block_file::{
    BlockFileReader, BlockFileWriter, DIFFERENCE_LAYOUT, TraceBlockKind, TraceFileError, TraceFormat, encode_differences,
};
use crate::follow::{FollowEnding, FollowOutcome};
use crate::sink::{Sink, SinkFlow, ThreadNumber};
use crate::symbols::Symbols;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use trodden_container::FileKind;

/// The format of partial traces.
pub const PARTIAL_TRACE_FORMAT: TraceFormat = TraceFormat { kind: FileKind::PARTIAL_TRACE, version: 6 };
/// Maximum number of symbols per block, and thus of a thread's hits in this writer that are lost if the collector is killed.
const MAX_BLOCK_SYMBOLS: usize = 1 << 16;

/// The end of a run, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialTraceEnd {
    /// How the run ended.
    pub ending: FollowEnding,
    /// Number of recorded threads.
    pub threads: u32,
    /// The call stack at the end, as in [`FollowOutcome::stack`].
    pub stack: Vec<u64>,
}

/// Writes a partial trace while a program is traced.
#[derive(Debug)]
pub struct PartialTraceWriter {
    writer: BlockFileWriter,
    buffers: Vec<Symbols>,
    max_size: Option<u64>,
    symbols: u64,
}

impl PartialTraceWriter {
    /// Creates the file. Tracing ends when the file has reached `max_size` bytes.
    pub fn create(path: &Path, max_size: Option<u64>) -> Result<Self, TraceFileError> {
        Ok(Self { writer: BlockFileWriter::create(path, PARTIAL_TRACE_FORMAT)?, buffers: Vec::new(), max_size, symbols: 0 })
    }

    /// Number of symbols so far.
    pub fn symbols(&self) -> u64 {
        self.symbols
    }

    /// Writes the remaining symbols, and how the run ended.
    pub fn finish(mut self, followed: &FollowOutcome) -> Result<(), TraceFileError> {
        for thread in 0..self.buffers.len() {
            self.flush(thread)?;
        }
        let end = PartialTraceEnd { ending: followed.ending, threads: followed.threads, stack: followed.stack.clone() };
        self.writer.append_value(TraceBlockKind::End, &end)
    }

    fn flush(&mut self, thread: usize) -> Result<(), TraceFileError> {
        let symbols = &mut self.buffers[thread];
        if symbols.is_empty() {
            return Ok(());
        }
        match symbols.as_words() {
            Some(words) => self.writer.append_words(thread as u32, &[], words)?,
            None => {
                let all: Vec<u64> = symbols.iter().collect();
                self.writer.append(
                    TraceBlockKind::Symbols,
                    DIFFERENCE_LAYOUT,
                    (thread as u32, all.len() as u32),
                    &[],
                    &encode_differences(&all),
                )?;
            }
        }
        symbols.clear();
        Ok(())
    }
}

impl Sink for PartialTraceWriter {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        self.buffer(thread).push(what);
        self.symbols += 1;
        self.flush_if_full(thread)
    }

    fn record_sites(&mut self, thread: ThreadNumber, sites: &[u32]) -> io::Result<SinkFlow> {
        let mut rest = sites;
        while !rest.is_empty() {
            // Blocks are filled up, so that they are few and of one size.
            let piece;
            (piece, rest) = rest.split_at(rest.len().min(MAX_BLOCK_SYMBOLS - self.buffer(thread).len()));
            self.buffer(thread).extend(piece);
            self.symbols += piece.len() as u64;
            if self.flush_if_full(thread)? == SinkFlow::Stop {
                return Ok(SinkFlow::Stop);
            }
        }
        Ok(SinkFlow::Continue)
    }
}

impl PartialTraceWriter {
    fn buffer(&mut self, thread: ThreadNumber) -> &mut Symbols {
        let index = thread.0 as usize;
        if self.buffers.len() <= index {
            self.buffers.resize_with(index + 1, Symbols::default);
        }
        &mut self.buffers[index]
    }

    fn flush_if_full(&mut self, thread: ThreadNumber) -> io::Result<SinkFlow> {
        let index = thread.0 as usize;
        // A compressed symbol takes about a byte.
        let full = |max_size: u64| self.writer.size() + self.buffers[index].len() as u64 >= max_size;
        if self.buffers[index].len() < MAX_BLOCK_SYMBOLS && !self.max_size.is_some_and(full) {
            return Ok(SinkFlow::Continue);
        }
        self.flush(index).map_err(io::Error::other)?;
        Ok(if self.max_size.is_some_and(|max_size| self.writer.size() >= max_size) { SinkFlow::Stop } else { SinkFlow::Continue })
    }
}

/// Reads a partial trace.
#[derive(Debug)]
pub struct PartialTrace {
    reader: BlockFileReader,
    end: Option<PartialTraceEnd>,
}

impl PartialTrace {
    /// Opens a partial trace, which may be truncated.
    ///
    /// # Errors
    /// The file cannot be read, or is not a partial trace.
    pub fn open(path: &Path) -> Result<Self, TraceFileError> {
        let reader = BlockFileReader::open(path, PARTIAL_TRACE_FORMAT)?;
        let end = match reader.blocks().last() {
            Some(header) if header.kind == TraceBlockKind::End => Some(reader.value(header)?),
            _ => None,
        };
        Ok(Self { reader, end })
    }

    /// Returns how the run ended; `None` if the trace is truncated.
    pub fn end(&self) -> Option<&PartialTraceEnd> {
        self.end.as_ref()
    }

    /// Number of threads, up to the last one that has recorded symbols.
    pub fn threads(&self) -> u32 {
        let symbols = self.reader.blocks().iter().filter(|h| h.kind == TraceBlockKind::Symbols);
        symbols.map(|h| h.stream + 1).max().unwrap_or(0)
    }

    /// Returns the symbols of a thread, which are read block by block.
    pub fn stream(&self, thread: ThreadNumber) -> impl Iterator<Item = Result<u64, TraceFileError>> + '_ {
        let headers = self.reader.blocks().iter().filter(move |h| h.kind == TraceBlockKind::Symbols && h.stream == thread.0);
        headers.flat_map(|header| match self.reader.symbols(header) {
            Ok(symbols) => symbols.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        })
    }
}
