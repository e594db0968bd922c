//! Finds the points at which two executions diverge, and describes what each does next.
//!
//! The traces are compared step by step. At a difference, both executions are inside the same calls, and the innermost function of one
//! executes a different block, call or return than that of the other. Each trace is then followed to the end of this function's call, where
//! the comparison resumes, so the traces stay aligned by their calls. Each trace is read once, and memory is bounded by the call depth.
//!
//! In traces of the same build, blocks are the same if their addresses are equal. In traces of different builds, they are the same if they
//! have the same function name and source line or, without line information, the same position in the function.

use crate::place::{describe_block, has_calls_only, ignored_functions, require_all_blocks};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::{HashMap, HashSet, VecDeque};
use trodden_trace::{ThreadNumber, TraceBlock, TraceEvent, TraceFile, TraceFrameStack, TraceFunction};

const MAX_LISTED_CALLS: usize = 12;

struct TraceCursor<'a> {
    trace: &'a TraceFile,
    events: Box<dyn Iterator<Item = Result<TraceEvent, trodden_trace::block_file::TraceFileError>> + 'a>,
    /// Events that were read in advance, up to and including the next block.
    ahead: VecDeque<TraceEvent>,
    frames: TraceFrameStack,
    keys: &'a [BlockKey],
    ignored: &'a HashSet<TraceFunction>,
    blocks: u64,
    last: Option<TraceBlock>,
}

/// A number that is the same for two blocks if the comparison treats them as the same block.
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
    /// Names of functions or source files. These functions, and everything that they call, are ignored.
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
    /// The differences, thread by thread, in execution order.
    pub differences: Vec<TraceDifference>,
}

/// A point at which two traces diverge.
#[derive(Debug, Serialize)]
pub struct TraceDifference {
    /// The thread.
    pub thread: u32,
    /// Names of the functions that had been called and had not returned, outermost first.
    pub calls: Vec<String>,
    /// Description of the last block that both traces executed; `None` if the traces differ from the start.
    pub last_common_block: Option<String>,
    /// How the first trace continues after the difference.
    pub left: EventsAfterDifference,
    /// How the second trace continues after the difference.
    pub right: EventsAfterDifference,
}

/// What one trace does between a difference and the end of the function call in which it occurs.
#[derive(Debug, Serialize)]
pub struct EventsAfterDifference {
    /// Number of blocks that the thread executed before the difference.
    pub block_number: u64,
    /// Description of the first step after the difference.
    pub first: String,
    /// Number of blocks executed until the function call ends, including those of callees.
    pub blocks: u64,
    /// Functions that the innermost function calls, each with the number of consecutive calls. Further functions are not listed.
    pub called: Vec<(String, u64)>,
}

/// Compares two traces.
///
/// # Errors
/// A trace cannot be read or lacks an ignored function, or neither trace has the selected thread.
pub fn find_trace_differences(left: &TraceFile, right: &TraceFile, options: &TraceDiffOptions) -> Result<TraceDifferences> {
    if has_calls_only(left) != has_calls_only(right) {
        [left, right].into_iter().try_for_each(|trace| require_all_blocks(trace, "a comparison with the other trace"))?;
    }
    let same_build = left.description().hash == right.description().hash;
    let (left_keys, right_keys) = if same_build { (address_keys(left), address_keys(right)) } else { keys_across_builds(left, right) };
    let left_out = |trace| ignored_functions(trace, &options.ignore);
    let (left_ignored, right_ignored) = (left_out(left)?, left_out(right)?);
    let threads = left.threads().max(right.threads());
    if let Some(thread) = options.thread {
        ensure!(
            thread < threads,
            "no trace has a thread with number {thread}: threads are numbered from 0 to {}",
            threads.saturating_sub(1)
        );
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

/// Advances both traces to the next difference, and from there to the end of the function call in which they differ.
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
        let left = a.follow_to_end_of_call(depth, left, number_a)?;
        let right = b.follow_to_end_of_call(depth, right, number_b)?;
        return Ok(Some(TraceDifference { thread, calls: names, last_common_block, left, right }));
    }
}

impl<'a> TraceCursor<'a> {
    fn new(trace: &'a TraceFile, thread: u32, keys: &'a [BlockKey], ignored: &'a HashSet<TraceFunction>) -> Self {
        let events = Box::new(trace.stream(ThreadNumber(thread)));
        Self { trace, events, ahead: VecDeque::new(), frames: TraceFrameStack::default(), keys, ignored, blocks: 0, last: None }
    }

    /// Returns the next event; `None` at the end. Returns of functions after the last block are dropped, because not every collector
    /// records them.
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
            let was_ignored = self.is_within_ignored_call(depth);
            self.frames.follow(event, |block| self.trace.function_of(block));
            if let TraceEvent::Block(block) = event {
                self.blocks += 1;
                if self.is_within_ignored_call(self.frames.open.len()) {
                    continue;
                }
                self.last = Some(block);
                return Ok(Some((event, AlignmentStep::Block(self.keys[block.0 as usize]))));
            }
            // A call counts as a step only when it executes its first block, because before that it is not known whether the function is
            // ignored.
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

    fn is_within_ignored_call(&self, depth: usize) -> bool {
        !self.ignored.is_empty() && self.frames.open[..depth].iter().flatten().any(|f| self.ignored.contains(f))
    }

    /// Follows the trace until the number of calls that have not returned is less than `depth`. `first` is the step at which the traces
    /// differ, which was already read.
    fn follow_to_end_of_call(
        &mut self,
        depth: usize,
        first: Option<(TraceEvent, AlignmentStep)>,
        block_number: u64,
    ) -> Result<EventsAfterDifference> {
        let described = match first.map(|f| f.0) {
            None => "the trace ends".to_owned(),
            Some(TraceEvent::Block(block)) => describe_block(self.trace, block),
            Some(TraceEvent::Return) => "returns".to_owned(),
            Some(TraceEvent::Unwind) => "is unwound".to_owned(),
            Some(TraceEvent::Call { .. }) => "calls".to_owned(),
        };
        let mut after = EventsAfterDifference { block_number, first: described, blocks: 0, called: Vec::new() };
        let mut step = first;
        let mut before = depth;
        while let Some((event, _)) = step {
            let now = self.frames.open.len();
            if let TraceEvent::Block(block) = event {
                after.blocks += 1;
                if now == depth + 1 && before <= depth {
                    add_call_to_list(&mut after.called, self.trace.name(self.trace.function_of(block)));
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

fn add_call_to_list(called: &mut Vec<(String, u64)>, name: &str) {
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

/// Identifies the same block in different builds: the function's name, a source line, and the block's number among the function's blocks
/// for that line.
type BlockIdentity = (String, Option<(String, u32)>, u32);

fn keys_across_builds(left: &TraceFile, right: &TraceFile) -> (Vec<BlockKey>, Vec<BlockKey>) {
    let mut numbers: HashMap<BlockIdentity, BlockKey> = HashMap::new();
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
