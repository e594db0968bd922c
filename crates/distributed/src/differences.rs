//! Finds the points at which two executions diverge, and describes what each execution does after them.
//!
//! The traces are compared step by step. Where they diverge, both have the same open frames, and the first difference is a different block,
//! call or return in the innermost frame. Each trace is followed to the end of that frame, where the comparison resumes. Traces are thus
//! aligned by their call structure. The comparison takes one pass over each trace; memory is bounded by the call depth.
//! Blocks of the same build are equal if their addresses are equal. Blocks of different builds are compared by function name and source
//! line, or, without lines, by their position in the function.

use crate::place::{describe_block, has_calls_only, ignored_functions, require_all_blocks};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::{HashMap, HashSet, VecDeque};
use trodden_trace::{ThreadNumber, TraceBlock, TraceEvent, TraceFile, TraceFrames, TraceFunction};

const MAX_LISTED_CALLS: usize = 12;

struct TraceCursor<'a> {
    trace: &'a TraceFile,
    events: Box<dyn Iterator<Item = Result<TraceEvent, trodden_trace::block_file::TraceFileError>> + 'a>,
    /// Buffered events up to and including the next block.
    ahead: VecDeque<TraceEvent>,
    frames: TraceFrames,
    keys: &'a [BlockKey],
    ignored: &'a HashSet<TraceFunction>,
    blocks: u64,
    last: Option<TraceBlock>,
}

/// A key that is equal for blocks considered equal.
type BlockKey = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AlignmentStep {
    Block(BlockKey),
    Call,
    Return,
    Unwind,
}

/// Options of a comparison.
#[derive(Clone, Debug, Default)]
pub struct TraceDiffOptions {
    /// Functions to ignore, along with all their callees: names of functions or source files.
    pub ignore: Vec<String>,
    /// The thread to compare; `None` means all.
    pub thread: Option<u32>,
    /// Maximum number of differences; 0 means all.
    pub top: usize,
}

/// The differences between two traces.
#[derive(Debug, Serialize)]
pub struct TraceDifferences {
    /// Whether both traces were recorded from the same files.
    pub same_build: bool,
    /// The differences, in order within each thread.
    pub differences: Vec<TraceDifference>,
}

/// A point at which two traces diverge.
#[derive(Debug, Serialize)]
pub struct TraceDifference {
    /// The thread.
    pub thread: u32,
    /// Names of the open functions, outermost first.
    pub calls: Vec<String>,
    /// The last block that both traces executed; `None` if the traces differ from the start.
    pub last_common_block: Option<String>,
    /// The next steps in the first trace.
    pub left: AfterDifference,
    /// The next steps in the second trace.
    pub right: AfterDifference,
}

/// The steps of one trace from a difference to the end of the frame.
#[derive(Debug, Serialize)]
pub struct AfterDifference {
    /// Number of the thread's blocks before the difference.
    pub block_number: u64,
    /// Description of the first step.
    pub first: String,
    /// Number of blocks executed.
    pub blocks: u64,
    /// Functions called by the frame, each with its number of consecutive calls.
    pub called: Vec<(String, u64)>,
}

/// Compares two traces.
///
/// # Errors
/// A trace cannot be read, or lacks an ignored function or the selected thread.
pub fn differences(left: &TraceFile, right: &TraceFile, options: &TraceDiffOptions) -> Result<TraceDifferences> {
    if has_calls_only(left) != has_calls_only(right) {
        [left, right].into_iter().try_for_each(|trace| require_all_blocks(trace, "a comparison with the other trace"))?;
    }
    let same_build = left.description().hash == right.description().hash;
    let (left_keys, right_keys) = if same_build { (address_keys(left), address_keys(right)) } else { keys_across_builds(left, right) };
    let left_out = |trace| ignored_functions(trace, &options.ignore);
    let (left_ignored, right_ignored) = (left_out(left)?, left_out(right)?);
    let threads = left.threads().max(right.threads());
    if let Some(thread) = options.thread {
        ensure!(thread < threads, "no trace has a thread {thread}; threads are numbered from 0 to {}", threads.saturating_sub(1));
    }
    let mut differences = Vec::new();
    for thread in (0..threads).filter(|t| options.thread.is_none_or(|wanted| wanted == *t)) {
        let mut a = TraceCursor::new(left, thread, &left_keys, &left_ignored);
        let mut b = TraceCursor::new(right, thread, &right_keys, &right_ignored);
        while options.top == 0 || differences.len() < options.top {
            match next_difference(&mut a, &mut b, thread)? {
                Some(difference) => differences.push(difference),
                None => break,
            }
        }
    }
    Ok(TraceDifferences { same_build, differences })
}

/// Advances both traces to the next difference, and then to the end of the frame that contains the difference.
fn next_difference(a: &mut TraceCursor, b: &mut TraceCursor, thread: u32) -> Result<Option<TraceDifference>> {
    loop {
        let (calls, behind) = (a.frames.clone(), a.last);
        let (number_a, number_b) = (a.blocks, b.blocks);
        let (left, right) = (a.next_step()?, b.next_step()?);
        if left.map(|s| s.1) == right.map(|s| s.1) {
            if left.is_none() {
                return Ok(None);
            }
            continue;
        }
        let names = calls.open.iter().flatten().map(|f| a.trace.name(*f).to_owned()).collect();
        let last_common_block = behind.map(|block| describe_block(a.trace, block));
        let depth = calls.open.len();
        let left = a.follow_to_end_of(depth, left, number_a)?;
        let right = b.follow_to_end_of(depth, right, number_b)?;
        return Ok(Some(TraceDifference { thread, calls: names, last_common_block, left, right }));
    }
}

impl<'a> TraceCursor<'a> {
    fn new(trace: &'a TraceFile, thread: u32, keys: &'a [BlockKey], ignored: &'a HashSet<TraceFunction>) -> Self {
        let events = Box::new(trace.stream(ThreadNumber(thread)));
        Self { trace, events, ahead: VecDeque::new(), frames: TraceFrames::default(), keys, ignored, blocks: 0, last: None }
    }

    /// The next event. Return events after the last block are dropped, since not every collector records them.
    fn next_event(&mut self) -> Result<Option<TraceEvent>> {
        while self.ahead.back().is_none_or(|last| !matches!(last, TraceEvent::Block(_))) {
            match self.events.next() {
                Some(event) => self.ahead.push_back(event?),
                None => return Ok(None),
            }
        }
        Ok(self.ahead.pop_front())
    }

    fn next_step(&mut self) -> Result<Option<(TraceEvent, AlignmentStep)>> {
        while let Some(event) = self.next_event()? {
            let depth = self.frames.open.len();
            let was_ignored = self.is_ignored(depth);
            self.frames.follow(event, |block| self.trace.function_of(block));
            if let TraceEvent::Block(block) = event {
                self.blocks += 1;
                if self.is_ignored(self.frames.open.len()) {
                    continue;
                }
                self.last = Some(block);
                return Ok(Some((event, AlignmentStep::Block(self.keys[block.0 as usize]))));
            }
            // A call becomes a step only at its first block, so that calls of ignored functions are not steps.
            if was_ignored || matches!(event, TraceEvent::Call { .. }) {
                continue;
            }
            let step = match event {
                TraceEvent::Return => AlignmentStep::Return,
                TraceEvent::Unwind => AlignmentStep::Unwind,
                _ => AlignmentStep::Call,
            };
            return Ok(Some((event, step)));
        }
        Ok(None)
    }

    fn is_ignored(&self, depth: usize) -> bool {
        !self.ignored.is_empty() && self.frames.open[..depth].iter().flatten().any(|f| self.ignored.contains(f))
    }

    /// Follows the trace to the end of the frame at `depth` (the number of open frames). `first` is a step that was already consumed.
    fn follow_to_end_of(&mut self, depth: usize, first: Option<(TraceEvent, AlignmentStep)>, block_number: u64) -> Result<AfterDifference> {
        let described = match first.map(|f| f.0) {
            None => "the trace ends".to_owned(),
            Some(TraceEvent::Block(block)) => describe_block(self.trace, block),
            Some(TraceEvent::Return) => "returns".to_owned(),
            Some(TraceEvent::Unwind) => "is unwound".to_owned(),
            Some(TraceEvent::Call { .. }) => "calls".to_owned(),
        };
        let mut after = AfterDifference { block_number, first: described, blocks: 0, called: Vec::new() };
        let mut step = first;
        let mut before = depth;
        while let Some((event, _)) = step {
            let now = self.frames.open.len();
            if let TraceEvent::Block(block) = event {
                after.blocks += 1;
                if now == depth + 1 && before <= depth {
                    list_call(&mut after.called, self.trace.name(self.trace.function_of(block)));
                }
            }
            if now < depth {
                break;
            }
            before = now;
            step = self.next_step()?;
        }
        Ok(after)
    }
}

fn list_call(called: &mut Vec<(String, u64)>, name: &str) {
    let full = called.len() >= MAX_LISTED_CALLS;
    match called.last_mut() {
        Some((last, times)) if last == name => *times += 1,
        _ if !full => called.push((name.to_owned(), 1)),
        _ => {}
    }
}

fn address_keys(trace: &TraceFile) -> Vec<BlockKey> {
    trace.description().blocks.iter().map(|b| b.address).collect()
}

/// Identifies a block across builds: the function's name, a source line, and the block's number among the function's blocks for that line.
type NamedPlace = (String, Option<(String, u32)>, u32);

fn keys_across_builds(left: &TraceFile, right: &TraceFile) -> (Vec<BlockKey>, Vec<BlockKey>) {
    let mut numbers: HashMap<NamedPlace, BlockKey> = HashMap::new();
    let mut of = |trace: &TraceFile| {
        let about = trace.description();
        let mut times: HashMap<(u32, Option<(u32, u32)>), u32> = HashMap::new();
        let mut keys = Vec::with_capacity(about.blocks.len());
        for block in &about.blocks {
            let line = block.lines.first().copied();
            let nth = times.entry((block.function.0, line)).or_default();
            let named = line.map(|(file, line)| (about.files[file as usize].clone(), line));
            let next = numbers.len() as BlockKey;
            keys.push(*numbers.entry((trace.name(block.function).to_owned(), named, *nth)).or_insert(next));
            *nth += 1;
        }
        keys
    };
    (of(left), of(right))
}
