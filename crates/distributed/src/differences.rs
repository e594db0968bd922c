//! Where two executions part, and what each did then.
//!
//! The traces are compared step by step. Where they part, both stand in the same frames: the first difference is a
//! different block, call or return in the innermost one. Each is followed to the end of that frame, with the calls that
//! it made there; behind it they are compared on. So an execution that did something more in one place is compared
//! again behind it: alignment by the structure of calls.
//!
//! Blocks of one build are equal if their addresses are. Blocks of two builds are compared by their function's name and
//! their lines, or, where there are no lines, by their place in the function. One pass over each trace; memory is
//! bounded by the call depth.

use crate::place::{check_blocks, described, functions_left_out, has_calls_only};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::{HashMap, HashSet, VecDeque};
use trodden_trace::{ThreadNumber, TraceBlock, TraceEvent, TraceFile, TraceFrames, TraceFunction};

/// Calls that are kept of what a frame did behind a difference.
const KEPT: usize = 12;

/// One trace on its way.
struct Side<'a> {
    trace: &'a TraceFile,
    events: Box<dyn Iterator<Item = Result<TraceEvent, trodden_trace::block_file::TraceFileError>> + 'a>,
    /// Events up to the next block, that included.
    ahead: VecDeque<TraceEvent>,
    frames: TraceFrames,
    keys: &'a [Key],
    ignored: &'a HashSet<TraceFunction>,
    blocks: u64,
    last: Option<TraceBlock>,
}

/// What blocks of two traces are equal by.
type Key = u64;

/// A step that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Block(Key),
    Call,
    Return,
    Unwind,
}

/// What is compared of two traces.
#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    /// Functions that are left out with all that they call, by name or by source file.
    pub ignore: Vec<String>,
    /// The one thread that is compared; by default all.
    pub thread: Option<u32>,
    /// Maximum number of differences; 0: all.
    pub top: usize,
}

/// Where two traces part.
#[derive(Debug, Serialize)]
pub struct TraceDifferences {
    /// Both are of the same files.
    pub same_build: bool,
    /// The differences of each thread, in their order.
    pub differences: Vec<TraceDifference>,
}

/// A place at which two traces part.
#[derive(Debug, Serialize)]
pub struct TraceDifference {
    /// The thread.
    pub thread: u32,
    /// Functions that are open, outermost first.
    pub calls: Vec<String>,
    /// The last block that both executed.
    pub behind: Option<String>,
    /// What the one did then.
    pub left: AfterDifference,
    /// What the other did.
    pub right: AfterDifference,
}

/// What one side did behind a difference, to the end of the frame.
#[derive(Debug, Serialize)]
pub struct AfterDifference {
    /// How many blocks of the thread came before.
    pub block_number: u64,
    /// Its first step.
    pub first: String,
    /// Blocks that were executed.
    pub blocks: u64,
    /// Functions that the frame called, with how often.
    pub called: Vec<(String, u64)>,
}

/// Compares two traces.
///
/// # Errors
/// One cannot be read, or has nothing of what is to be left out or compared.
pub fn differences(left: &TraceFile, right: &TraceFile, options: &DiffOptions) -> Result<TraceDifferences> {
    if has_calls_only(left) != has_calls_only(right) {
        [left, right].into_iter().try_for_each(|trace| check_blocks(trace, "a comparison with the other trace"))?;
    }
    let same_build = left.about().hash == right.about().hash;
    let (left_keys, right_keys) = if same_build { (addresses(left), addresses(right)) } else { keys(left, right) };
    let left_out = |trace| functions_left_out(trace, &options.ignore);
    let (left_ignored, right_ignored) = (left_out(left)?, left_out(right)?);
    let threads = left.threads().max(right.threads());
    if let Some(thread) = options.thread {
        ensure!(thread < threads, "the traces have no thread {thread}: theirs are 0 to {}", threads.saturating_sub(1));
    }
    let mut differences = Vec::new();
    for thread in (0..threads).filter(|t| options.thread.is_none_or(|wanted| wanted == *t)) {
        let mut a = Side::new(left, thread, &left_keys, &left_ignored);
        let mut b = Side::new(right, thread, &right_keys, &right_ignored);
        while options.top == 0 || differences.len() < options.top {
            match next_difference(&mut a, &mut b, thread)? {
                Some(difference) => differences.push(difference),
                None => break,
            }
        }
    }
    Ok(TraceDifferences { same_build, differences })
}

/// Compares on to the next difference, and behind it to the end of the frame.
fn next_difference(a: &mut Side, b: &mut Side, thread: u32) -> Result<Option<TraceDifference>> {
    loop {
        let (calls, behind) = (a.frames.clone(), a.last);
        let (number_a, number_b) = (a.blocks, b.blocks);
        let (left, right) = (a.step()?, b.step()?);
        if left.map(|s| s.1) == right.map(|s| s.1) {
            if left.is_none() {
                return Ok(None);
            }
            continue;
        }
        let names = calls.open.iter().flatten().map(|f| a.trace.name(*f).to_owned()).collect();
        let behind = behind.map(|block| described(a.trace, block));
        let depth = calls.open.len();
        let left = a.follow_to_end_of(depth, left, number_a)?;
        let right = b.follow_to_end_of(depth, right, number_b)?;
        return Ok(Some(TraceDifference { thread, calls: names, behind, left, right }));
    }
}

impl<'a> Side<'a> {
    fn new(trace: &'a TraceFile, thread: u32, keys: &'a [Key], ignored: &'a HashSet<TraceFunction>) -> Self {
        let events = Box::new(trace.stream(ThreadNumber(thread)));
        Self { trace, events, ahead: VecDeque::new(), frames: TraceFrames::default(), keys, ignored, blocks: 0, last: None }
    }

    /// The next event. Returns behind the last block are none: whether the program still returned when it ended, not every collector sees.
    fn event(&mut self) -> Result<Option<TraceEvent>> {
        while self.ahead.back().is_none_or(|last| !matches!(last, TraceEvent::Block(_))) {
            match self.events.next() {
                Some(event) => self.ahead.push_back(event?),
                None => return Ok(None),
            }
        }
        Ok(self.ahead.pop_front())
    }

    /// The next step that is compared; `None` at the end.
    fn step(&mut self) -> Result<Option<(TraceEvent, Step)>> {
        while let Some(event) = self.event()? {
            let depth = self.frames.open.len();
            let was_ignored = self.is_ignored(depth);
            self.frames.follow(event, |block| self.trace.function_of(block));
            if let TraceEvent::Block(block) = event {
                self.blocks += 1;
                if self.is_ignored(self.frames.open.len()) {
                    continue;
                }
                self.last = Some(block);
                return Ok(Some((event, Step::Block(self.keys[block.0 as usize]))));
            }
            // Calls are compared by the blocks that they begin with, so that calls of what is left out are no steps either.
            if was_ignored || matches!(event, TraceEvent::Call { .. }) {
                continue;
            }
            let step = match event {
                TraceEvent::Return => Step::Return,
                TraceEvent::Unwind => Step::Unwind,
                _ => Step::Call,
            };
            return Ok(Some((event, step)));
        }
        Ok(None)
    }

    /// Whether one of the innermost frames up to `depth` is left out.
    fn is_ignored(&self, depth: usize) -> bool {
        !self.ignored.is_empty() && self.frames.open[..depth].iter().flatten().any(|f| self.ignored.contains(f))
    }

    /// Follows what is done to the end of the frame at `depth` (the number of open frames), beginning with a step that was taken already.
    fn follow_to_end_of(&mut self, depth: usize, first: Option<(TraceEvent, Step)>, block_number: u64) -> Result<AfterDifference> {
        let described = match first.map(|f| f.0) {
            None => "the trace ends".to_owned(),
            Some(TraceEvent::Block(block)) => described(self.trace, block),
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
                    note_call(&mut after.called, self.trace.name(self.trace.function_of(block)));
                }
            }
            if now < depth {
                break;
            }
            before = now;
            step = self.step()?;
        }
        Ok(after)
    }
}

fn note_call(called: &mut Vec<(String, u64)>, name: &str) {
    let full = called.len() >= KEPT;
    match called.last_mut() {
        Some((last, times)) if last == name => *times += 1,
        _ if !full => called.push((name.to_owned(), 1)),
        _ => {}
    }
}

fn addresses(trace: &TraceFile) -> Vec<Key> {
    trace.about().blocks.iter().map(|b| b.address).collect()
}

/// A function's name, a line, and which of the function's blocks of that line.
type NamedPlace = (String, Option<(String, u32)>, u32);

/// Keys of the blocks of two builds: one number for each function, line and place among the function's blocks of that line.
fn keys(left: &TraceFile, right: &TraceFile) -> (Vec<Key>, Vec<Key>) {
    let mut numbers: HashMap<NamedPlace, Key> = HashMap::new();
    let mut of = |trace: &TraceFile| {
        let about = trace.about();
        let mut times: HashMap<(u32, Option<(u32, u32)>), u32> = HashMap::new();
        let mut keys = Vec::with_capacity(about.blocks.len());
        for block in &about.blocks {
            let line = block.lines.first().copied();
            let nth = times.entry((block.function.0, line)).or_default();
            let named = line.map(|(file, line)| (about.files[file as usize].clone(), line));
            let next = numbers.len() as Key;
            keys.push(*numbers.entry((trace.name(block.function).to_owned(), named, *nth)).or_insert(next));
            *nth += 1;
        }
        keys
    };
    (of(left), of(right))
}
