//! Writes a trace as a tree of calls with counts, or block by block.

use crate::escape;
use anyhow::{Result, bail};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, Write};
use trodden_distributed::calls::TraceFilter;
use trodden_distributed::place::{TraceLocation, address_in_file, describe_block, follow_event};
use trodden_trace::{ThreadNumber, TraceBlock, TraceEvent, TraceFile, TraceFrameStack, TraceFunction};

const SCHEMA_VERSION: u32 = 3;
/// Maximum depth of shown calls, by default.
pub const DEFAULT_DEPTH: usize = 40;

/// How a trace is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceView {
    /// As a tree of calls. Each node shows how many calls it represents and how many blocks they executed.
    Tree,
    /// Block by block, with source lines. The value is the maximum number of blocks shown per thread, where 0 means no limit.
    Blocks(u64),
}

/// Which part of a trace to show, and how.
#[derive(Clone, Debug)]
pub struct TraceShowOptions {
    /// Tree or blocks.
    pub view: TraceView,
    /// The thread's number; `None` shows all threads.
    pub thread: Option<u32>,
    /// The location to start at; `None` starts at the beginning of the trace.
    pub from: Option<String>,
    /// The location to end at, inclusive; `None` ends at the end of the trace.
    pub to: Option<String>,
    /// Maximum depth of shown calls.
    pub depth: usize,
    /// True for JSON, false for text.
    pub json: bool,
}

/// Writes a part of a trace. If blocks were omitted because of the maximum number of blocks, returns the number of the first one, in the
/// first thread that has omitted blocks; otherwise returns `None`. Fails if the trace does not have the thread or location, or if it cannot
/// be read.
pub fn show(out: &mut impl Write, trace: &TraceFile, options: &TraceShowOptions) -> Result<Option<u64>> {
    let threads: Vec<ThreadNumber> = TraceFilter::new(trace, &[], options.thread)?.threads(trace).collect();
    let from = options.from.as_deref().map(|p| TraceLocation::parse(p, trace)).transpose()?;
    let to = options.to.as_deref().map(|p| TraceLocation::parse(p, trace)).transpose()?;
    let numbers = |place: &Option<TraceLocation>| place.as_ref().and_then(TraceLocation::number);
    if let (Some(first), Some(last)) = (numbers(&from), numbers(&to))
        && last < first
    {
        bail!("invalid range: --to #{last} comes before --from #{first}. Swap the two values");
    }
    let span = [from, to];
    match options.view {
        TraceView::Tree => write_tree(trace, &threads, span, options, out).map(|()| None),
        TraceView::Blocks(count) => {
            let blocks = BlockSelection { trace, span, depth: options.depth, count: if count == 0 { u64::MAX } else { count } };
            if options.json { write_json_blocks(&blocks, &threads, out) } else { write_text_blocks(&blocks, &threads, out) }
        }
    }
}

struct BlockSelection<'a> {
    trace: &'a TraceFile,
    span: [Option<TraceLocation>; 2],
    depth: usize,
    count: u64,
}

impl BlockSelection<'_> {
    /// Calls `visit` for each selected block of a thread, with the block's number, its call depth, and the block. Returns the number of the
    /// first block beyond the maximum, or `None` if there is none.
    fn for_each_block(&self, thread: ThreadNumber, mut visit: impl FnMut(u64, usize, TraceBlock) -> Result<()>) -> Result<Option<u64>> {
        let mut span = EventSpan::new(self.span.clone());
        let mut frames = TraceFrameStack::default();
        let mut seen = 0;
        for event in self.trace.stream(thread) {
            let event = event?;
            let is_call = follow_event(&mut frames, event, self.trace);
            match (span.step(event, is_call, self.trace), event) {
                (SpanPosition::Inside, TraceEvent::Block(block)) => {
                    let (number, depth) = (span.blocks - 1, frames.open.len().saturating_sub(1));
                    if depth > self.depth {
                        continue;
                    }
                    if seen == self.count {
                        return Ok(Some(number));
                    }
                    seen += 1;
                    visit(number, depth, block)?;
                }
                (SpanPosition::After, _) => break,
                _ => {}
            }
        }
        Ok(None)
    }
}

fn write_text_blocks(blocks: &BlockSelection, threads: &[ThreadNumber], out: &mut impl Write) -> Result<Option<u64>> {
    let mut remaining = None;
    for thread in threads {
        if threads.len() > 1 {
            writeln!(out, "# thread {}", thread.0)?;
        }
        let more = blocks.for_each_block(*thread, |number, depth, block| {
            Ok(writeln!(out, "#{number:<8} {:indent$}{}", "", describe_block(blocks.trace, block), indent = 2 * depth)?)
        })?;
        remaining = remaining.or(more);
    }
    Ok(remaining)
}

#[derive(Serialize)]
struct ShownBlock<'a> {
    /// Number of the block within the thread, from 0.
    block: u64,
    /// Number of active calls around the block's function.
    depth: usize,
    address: String,
    /// The file that contains the block; `None` if the trace has only one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    function: &'a str,
    lines: Vec<(&'a str, u32)>,
}

/// Writes the blocks of threads as a JSON document. Blocks are written one by one, since there may be millions.
fn write_json_blocks(blocks: &BlockSelection, threads: &[ThreadNumber], out: &mut impl Write) -> Result<Option<u64>> {
    let (trace, about) = (blocks.trace, blocks.trace.description());
    let command = serde_json::to_string(&about.command)?;
    write!(out, r#"{{"schema_version":{SCHEMA_VERSION},"command":{command},"truncated":{},"threads":["#, trace.end().is_truncated)?;
    let mut remaining = None;
    for (number, thread) in threads.iter().enumerate() {
        let separator = if number > 0 { "," } else { "" };
        write!(out, r#"{separator}{{"thread":{},"blocks":["#, thread.0)?;
        let mut separator = "";
        let more = blocks.for_each_block(*thread, |number, depth, block| {
            let data = trace.block(block);
            let (address, image) = address_in_file(trace, data.address);
            let lines = data.lines.iter().map(|(file, line)| (about.files[*file as usize].as_str(), *line)).collect();
            let function = trace.name(data.function);
            let shown = ShownBlock { block: number, depth, address: format!("{address:#x}"), image, function, lines };
            write!(out, "{separator}\n{}", serde_json::to_string(&shown)?)?;
            separator = ",";
            Ok(())
        })?;
        remaining = remaining.or(more);
        // Each stamp is a pair: the number of blocks before it, and the time-stamp counter.
        let stamps: Vec<(u64, u64)> = trace.stamps(*thread)?.iter().map(|stamp| (stamp.blocks, stamp.ticks)).collect();
        write!(out, "\n],\"stamps\":{}}}", serde_json::to_string(&stamps)?)?;
    }
    writeln!(out, "]}}")?;
    Ok(remaining)
}

/// Tracks which events of a thread are between two locations.
struct EventSpan {
    from: Option<TraceLocation>,
    to: Option<TraceLocation>,
    seen: [u64; 2],
    begun: bool,
    over: bool,
    blocks: u64,
}

enum SpanPosition {
    Before,
    Inside,
    After,
}

impl EventSpan {
    fn new([from, to]: [Option<TraceLocation>; 2]) -> Self {
        Self { begun: from.is_none(), from, to, seen: [0; 2], over: false, blocks: 0 }
    }

    /// Advances to the next event, and returns whether it is before, in or after the span. The block at which the span ends belongs to the
    /// span.
    fn step(&mut self, event: TraceEvent, is_call: bool, trace: &TraceFile) -> SpanPosition {
        let number = self.blocks;
        self.blocks += u64::from(matches!(event, TraceEvent::Block(_)));
        if self.over {
            return SpanPosition::After;
        }
        let which = usize::from(self.begun);
        let place = if self.begun { &self.to } else { &self.from };
        let mut is_there = false;
        if let Some(place) = place.as_ref().filter(|p| p.matches(event, number, is_call, trace)) {
            self.seen[which] += 1;
            is_there = place.nth.is_none_or(|nth| nth == self.seen[which]);
        }
        match (self.begun, is_there) {
            (false, false) => return SpanPosition::Before,
            (false, true) => self.begun = true,
            (true, over) => self.over = over,
        }
        SpanPosition::Inside
    }
}

/// All calls of a function from the same calling context.
#[derive(Default)]
struct CalledFunction {
    function: Option<TraceFunction>,
    calls: u64,
    blocks: u64,
    callees: Vec<usize>,
}

#[derive(Serialize)]
struct ShownCall<'a> {
    function: &'a str,
    calls: u64,
    blocks: u64,
    callees: Vec<ShownCall<'a>>,
}

/// A thread's calls as a tree: a node represents all calls with the same calling context.
struct CallTree {
    nodes: Vec<CalledFunction>,
    by_callee: HashMap<(usize, TraceFunction), usize>,
    depth: usize,
}

impl CallTree {
    fn from_thread(trace: &TraceFile, thread: ThreadNumber, span: [Option<TraceLocation>; 2], depth: usize) -> Result<Self> {
        let mut tree = Self { nodes: vec![CalledFunction::default()], by_callee: HashMap::new(), depth };
        let mut span = EventSpan::new(span);
        let mut frames = TraceFrameStack::default();
        // For each active frame, its node in the tree. Frames below the maximum depth share the node of the deepest shown frame.
        let mut stack: Vec<usize> = Vec::new();
        for event in trace.stream(thread) {
            let event = event?;
            let is_call = follow_event(&mut frames, event, trace);
            stack.truncate(frames.open.len());
            match span.step(event, is_call, trace) {
                SpanPosition::After => break,
                position => tree.add(trace, event, &frames, &mut stack, matches!(position, SpanPosition::Inside)),
            }
        }
        Ok(tree)
    }

    fn add(&mut self, trace: &TraceFile, event: TraceEvent, frames: &TraceFrameStack, stack: &mut Vec<usize>, counts: bool) {
        let TraceEvent::Block(block) = event else {
            // A tail call replaced the innermost frame.
            if frames.open.last().is_some_and(Option::is_none) {
                stack.truncate(frames.open.len() - 1);
            }
            return;
        };
        while stack.len() < frames.open.len() {
            let parent = stack.last().copied().unwrap_or(0);
            let function = frames.open[stack.len()].unwrap_or_else(|| trace.function_of(block));
            let node = if stack.len() < self.depth { self.find_or_add_callee(parent, function) } else { parent };
            if stack.len() < self.depth && counts {
                self.nodes[node].calls += 1;
            }
            stack.push(node);
        }
        if counts {
            self.nodes[stack.last().copied().unwrap_or(0)].blocks += 1;
        }
    }

    fn find_or_add_callee(&mut self, parent: usize, function: TraceFunction) -> usize {
        let next = self.nodes.len();
        let node = *self.by_callee.entry((parent, function)).or_insert(next);
        if node == next {
            self.nodes.push(CalledFunction { function: Some(function), ..CalledFunction::default() });
            self.nodes[parent].callees.push(node);
        }
        node
    }

    /// Converts a node and its callees to the JSON form. `has_run` is the result of [`CallTree::find_executed_nodes`].
    fn to_shown_call<'a>(&self, trace: &'a TraceFile, node: usize, has_run: &[bool]) -> ShownCall<'a> {
        let called = &self.nodes[node];
        let callees = called.callees.iter().filter(|c| has_run[**c]).map(|c| self.to_shown_call(trace, *c, has_run)).collect();
        ShownCall { function: called.function.map_or("", |f| trace.name(f)), calls: called.calls, blocks: called.blocks, callees }
    }

    /// Determines for each node whether it or any node below it executed a block. `nodes` has callees after their callers.
    fn find_executed_nodes(&self) -> Vec<bool> {
        let mut has_run: Vec<bool> = self.nodes.iter().map(|node| node.blocks > 0).collect();
        for (number, node) in self.nodes.iter().enumerate().rev() {
            has_run[number] |= node.callees.iter().any(|callee| has_run[*callee]);
        }
        has_run
    }
}

fn write_tree(
    trace: &TraceFile,
    threads: &[ThreadNumber],
    span: [Option<TraceLocation>; 2],
    options: &TraceShowOptions,
    out: &mut impl Write,
) -> Result<()> {
    let mut all = Vec::new();
    for thread in threads {
        all.push((thread.0, CallTree::from_thread(trace, *thread, span.clone(), options.depth)?));
    }
    let shown: Vec<(u32, ShownCall)> =
        all.iter().map(|(thread, tree)| (*thread, tree.to_shown_call(trace, 0, &tree.find_executed_nodes()))).collect();
    if options.json {
        let threads: Vec<_> = shown.iter().map(|(thread, root)| serde_json::json!({ "thread": thread, "calls": root.callees })).collect();
        let document = serde_json::json!({ "schema_version": SCHEMA_VERSION, "command": trace.description().command,
            "truncated": trace.end().is_truncated, "runs": trace.end().runs, "opaque": trace.description().opaque, "threads": threads });
        serde_json::to_writer_pretty(&mut *out, &document)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "{:>10} {:>12}  function", "calls", "blocks")?;
    for (thread, root) in &shown {
        if shown.len() > 1 {
            writeln!(out, "thread {thread}")?;
        }
        root.callees.iter().try_for_each(|c| write_call(out, c, 0))?;
    }
    Ok(())
}

fn write_call(out: &mut impl Write, shown: &ShownCall, depth: usize) -> io::Result<()> {
    writeln!(out, "{:>10} {:>12}  {:indent$}{}", shown.calls, shown.blocks, "", escape::escape_line(shown.function), indent = 2 * depth)?;
    shown.callees.iter().try_for_each(|c| write_call(out, c, depth + 1))
}
