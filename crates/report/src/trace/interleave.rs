//! Writes the blocks of all threads of a trace in the order that its order stamps show.
//!
//! A block belongs to the last stamp before it in its thread. Blocks of different threads are ordered by these stamps; between two stamps,
//! their order is unknown, so a thread's blocks are kept together.

use anyhow::{Result, bail, ensure};
use std::io::Write;
use std::iter::Peekable;
use trodden_distributed::occurrences::find_place_occurrences;
use trodden_distributed::place::{TraceLocation, describe_block, follow_event};
use trodden_trace::{ThreadNumber, ThreadStamp, TraceBlock, TraceEvent, TraceFile};

/// Which blocks to show.
#[derive(Clone, Debug)]
pub struct InterleavingOptions {
    /// The location to start at; `None` starts at the beginning of the trace.
    pub from: Option<String>,
    /// The thread in which the location is searched; `None` searches all.
    pub thread: Option<u32>,
    /// Maximum number of blocks shown.
    pub count: u64,
    /// Maximum depth of shown calls.
    pub depth: usize,
}

/// A thread's blocks that have not been shown yet.
struct RemainingBlocks<'a> {
    thread: ThreadNumber,
    blocks: Peekable<Box<dyn Iterator<Item = Result<NumberedBlock>> + 'a>>,
    stamps: Vec<ThreadStamp>,
}

/// A block of a thread.
#[derive(Clone, Copy, Debug)]
struct NumberedBlock {
    /// Number of the block within the thread, from 0.
    number: u64,
    /// Number of active calls around the block's function.
    depth: usize,
    block: TraceBlock,
}

/// Writes the blocks. If blocks were omitted because of the maximum number, returns the thread and the number of the first one.
///
/// # Errors
/// The trace has several threads but no order stamps, the location is not executed, or the trace cannot be read.
pub fn show_interleaved(out: &mut impl Write, trace: &TraceFile, options: &InterleavingOptions) -> Result<Option<(ThreadNumber, u64)>> {
    ensure!(
        trace.threads() < 2 || trace.has_stamps(),
        "the threads have no common order, which collector `{}` does not record. Record the trace with `--collector trampolines`",
        trace.description().collector
    );
    let start = find_start(trace, options)?;
    let mut threads = Vec::new();
    for thread in (0..trace.threads()).map(ThreadNumber) {
        let stamps = trace.stamps(thread)?;
        let first = match start {
            Some((of, number, _)) if of == thread => number,
            Some((_, _, ticks)) => first_block_since(&stamps, ticks),
            None => 0,
        };
        let blocks: Box<dyn Iterator<Item = Result<NumberedBlock>>> = Box::new(blocks_from(trace, thread, first, options.depth));
        threads.push(RemainingBlocks { thread, blocks: blocks.peekable(), stamps });
    }
    write_blocks(out, trace, &mut threads, options.count)
}

fn write_blocks(
    out: &mut impl Write,
    trace: &TraceFile,
    threads: &mut [RemainingBlocks],
    max_count: u64,
) -> Result<Option<(ThreadNumber, u64)>> {
    let mut last_thread = None;
    for shown in 0.. {
        let next = threads.iter_mut().filter_map(|remaining| Some((remaining.ticks_of_next()?, remaining)));
        let Some((_, remaining)) = next.min_by_key(|(ticks, remaining)| (*ticks, remaining.thread)) else { break };
        let thread = remaining.thread;
        let Some(block) = remaining.blocks.next().transpose()? else { break };
        if shown == max_count {
            return Ok(Some((thread, block.number)));
        }
        if last_thread.replace(thread) != Some(thread) {
            writeln!(out, "# thread {}", thread.0)?;
        }
        let NumberedBlock { number, depth, block } = block;
        writeln!(out, "#{number:<8} {:indent$}{}", "", describe_block(trace, block), indent = 2 * depth)?;
    }
    Ok(None)
}

impl RemainingBlocks<'_> {
    /// Returns the stamp to which the next block belongs, 0 if there is none before it; `None` if no block is left. An error counts as a
    /// block, so that it is reported.
    fn ticks_of_next(&mut self) -> Option<u64> {
        let number = self.blocks.peek()?.as_ref().map_or(0, |block| block.number);
        Some(ticks_before(&self.stamps, number))
    }
}

/// Returns thread and number of the block at which to start, and the stamp to which it belongs.
fn find_start(trace: &TraceFile, options: &InterleavingOptions) -> Result<Option<(ThreadNumber, u64, u64)>> {
    let Some(text) = &options.from else { return Ok(None) };
    let place = TraceLocation::parse(text, trace)?;
    let all = find_place_occurrences(trace, &place, options.thread, 1)?;
    let Some(first) = all.found.first() else { bail!("the trace has no execution of `{text}`") };
    let thread = ThreadNumber(first.thread);
    Ok(Some((thread, first.block, ticks_before(&trace.stamps(thread)?, first.block))))
}

/// Returns the last stamp before a block, or 0 if there is none.
fn ticks_before(stamps: &[ThreadStamp], number: u64) -> u64 {
    let before = stamps.partition_point(|stamp| stamp.blocks <= number);
    stamps[..before].last().map_or(0, |stamp| stamp.ticks)
}

/// Returns the number of the first block whose stamp is not before `ticks`.
fn first_block_since(stamps: &[ThreadStamp], ticks: u64) -> u64 {
    if ticks == 0 {
        return 0;
    }
    stamps.iter().find(|stamp| stamp.ticks >= ticks).map_or(u64::MAX, |stamp| stamp.blocks)
}

/// Returns the blocks of a thread from number `first` on.
fn blocks_from(trace: &TraceFile, thread: ThreadNumber, first: u64, max_depth: usize) -> impl Iterator<Item = Result<NumberedBlock>> + '_ {
    let first_piece = trace.piece_at(thread, first).map_or(0, |piece| piece.first);
    let pieces = trace.pieces(thread).filter(move |piece| piece.first >= first_piece);
    pieces.flat_map(move |piece| {
        let events = match trace.events(piece) {
            Ok(events) => events,
            Err(error) => return vec![Err(error.into())],
        };
        let (mut frames, mut number) = (piece.frames.clone(), piece.first);
        let mut blocks = Vec::new();
        for event in events {
            follow_event(&mut frames, event, trace);
            let TraceEvent::Block(block) = event else { continue };
            let depth = frames.open.len().saturating_sub(1);
            if number >= first && depth <= max_depth {
                blocks.push(Ok(NumberedBlock { number, depth, block }));
            }
            number += 1;
        }
        blocks
    })
}
