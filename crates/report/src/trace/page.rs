//! A trace as a self-contained HTML page. It has a zoomable, searchable chart of a thread's calls over time, and the source and machine
//! code of the selected call with execution counts.
//!
//! Everything that comes from the program is JSON in a script block. It is escaped so that no text can close the block, and the page's
//! script inserts it only as text. The `MAX_` constants limit the page's size; the page says what is omitted. A first pass over the trace
//! measures the lengths of calls, and a second pass collects what is shown, so that memory is proportional to the shown data and the depth
//! of calls.

use crate::SourceProvider;
use crate::words::plural;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use trodden_binary::instruction;
use trodden_binary::linked::split_address;
use trodden_distributed::calls::{CallStep, TraceFilter, walk_calls};
use trodden_distributed::files::TracedFiles;
use trodden_trace::{ThreadNumber, TraceBlock, TraceFile, TraceFunction};

const PAGE_TEMPLATE: &str = include_str!("page/page.html");
const STYLE_SHEET: &str = include_str!("page/page.css");
const PAGE_SCRIPT: &str = include_str!("page/page.js");
/// Maximum number of calls shown individually. Shorter calls are merged with their neighbours.
const MAX_CALLS_ON_PAGE: usize = 100_000;
/// Maximum number of steps in the page. A step is a block, or the start or end of a call. Longer traces are not shown block by block.
const MAX_STEPS_ON_PAGE: u64 = 600_000;
/// Maximum number of instructions in the page. The instructions of the least executed functions are omitted.
const MAX_INSTRUCTIONS_ON_PAGE: usize = 60_000;
const MAX_SOURCE_LINES_ON_PAGE: usize = 30_000;
const CONTEXT_LINES: u32 = 3;
/// The step that starts a call. Non-negative steps are block numbers.
const CALL_BEGIN_STEP: i64 = -1;
/// The step that ends a call.
const CALL_END_STEP: i64 = -2;

/// Writes the page. `files` contains the traced binaries, whose machine code is shown, or the reason why they cannot be read.
pub fn page(trace: &TraceFile, filter: &TraceFilter, files: &Result<TracedFiles>, sources: &SourceProvider) -> Result<String> {
    let threads: Vec<ThreadNumber> = filter.threads(trace).collect();
    let lengths = CallLengthHistogram::new(trace, &threads, filter)?;
    let shortest = lengths.min_length_for_call_count(MAX_CALLS_ON_PAGE);
    let with_steps = lengths.steps <= MAX_STEPS_ON_PAGE;
    let mut executed = vec![0u64; trace.description().blocks.len()];
    let mut shown = Vec::new();
    for thread in threads {
        let mut calls = PageCalls { shortest, with_steps, ..PageCalls::default() };
        walk_calls(trace, thread, filter, |step, number| {
            if let CallStep::Block(block) = step {
                executed[block.0 as usize] += 1;
            }
            calls.add(step, number);
            Ok(())
        })?;
        shown.push(json!({ "thread": thread.0, "calls": calls.columns_json(), "steps": calls.steps, "counts": calls.counts_json() }));
    }
    let about = trace.description();
    let (code, code_note) = collect_machine_code(trace, files, &executed);
    let notes: Vec<&str> = trace.end().notes.iter().map(String::as_str).chain(code_note.as_deref()).collect();
    let data = json!({
        "command": about.command, "image": about.image, "runs": about.runs, "collector": about.collector,
        "truncated": trace.end().is_truncated,
        "shortest": shortest, "with_steps": with_steps, "notes": notes, "threads": shown,
        "functions": functions_json(trace, &executed), "blocks": blocks_json(trace, &executed, &code),
        "files": about.files, "source": source_json(trace, sources, &executed),
    });
    // Without these replacements, a string in the data could close the script element.
    let data = data.to_string().replace("</", "<\\/").replace("<!--", "<\\!--");
    let (head, rest) = PAGE_TEMPLATE.split_once("/*STYLE*/").expect("the page has a style");
    let (middle, rest) = rest.split_once("/*DATA*/").expect("the page has data");
    let (before_script, end) = rest.split_once("/*SCRIPT*/").expect("the page has a script");
    Ok([head, STYLE_SHEET, middle, &data, before_script, PAGE_SCRIPT, end].concat())
}

/// A logarithmic histogram of the lengths of calls.
struct CallLengthHistogram {
    /// The number of calls whose length has `i` bits, for each `i`.
    by_bits: [u64; 65],
    steps: u64,
}

impl CallLengthHistogram {
    fn new(trace: &TraceFile, threads: &[ThreadNumber], filter: &TraceFilter) -> Result<Self> {
        let mut lengths = Self { by_bits: [0; 65], steps: 0 };
        for thread in threads {
            let mut open = Vec::new();
            walk_calls(trace, *thread, filter, |step, number| {
                lengths.steps += 1;
                match step {
                    CallStep::Open(_) => open.push(number),
                    CallStep::Close => {
                        let begun = open.pop().expect("a call that ends has begun");
                        lengths.by_bits[64 - (number - begun).leading_zeros() as usize] += 1;
                    }
                    CallStep::Block(_) => {}
                }
                Ok(())
            })?;
        }
        Ok(lengths)
    }

    /// Returns the smallest length (a power of two, or 0) such that at most `max_calls` calls have at least that length.
    fn min_length_for_call_count(&self, max_calls: usize) -> u64 {
        let mut calls = 0;
        for bits in (0..self.by_bits.len()).rev() {
            calls += self.by_bits[bits];
            if calls > max_calls as u64 {
                return 1u64.checked_shl(bits as u32).unwrap_or(u64::MAX);
            }
        }
        0
    }
}

/// A call, or several short calls merged into one entry.
struct PageCall {
    function: Option<TraceFunction>,
    calls: u64,
    depth: u32,
    from: u64,
    to: u64,
    /// Index in `steps` of the first step inside the call.
    step: u64,
}

/// A thread's calls, ordered by their start.
#[derive(Default)]
struct PageCalls {
    shortest: u64,
    with_steps: bool,
    calls: Vec<PageCall>,
    open: Vec<usize>,
    steps: Vec<i64>,
    executed: BTreeMap<TraceBlock, u64>,
    /// Calls of each function, including calls that are not shown.
    called: BTreeMap<TraceFunction, u64>,
}

impl PageCalls {
    fn add(&mut self, step: CallStep, number: u64) {
        if self.with_steps {
            self.steps.push(match step {
                CallStep::Open(_) => CALL_BEGIN_STEP,
                CallStep::Close => CALL_END_STEP,
                CallStep::Block(block) => i64::from(block.0),
            });
        }
        match step {
            CallStep::Open(function) => {
                *self.called.entry(function).or_default() += 1;
                let (depth, step) = (self.open.len() as u32, self.steps.len() as u64);
                self.open.push(self.calls.len());
                self.calls.push(PageCall { function: Some(function), calls: 1, depth, from: number, to: number, step });
            }
            CallStep::Close => self.close_call(number),
            CallStep::Block(block) => *self.executed.entry(block).or_default() += 1,
        }
    }

    fn close_call(&mut self, number: u64) {
        let place = self.open.pop().expect("a call that ends has begun");
        self.calls[place].to = number;
        if number - self.calls[place].from >= self.shortest {
            return;
        }
        // A callee is not longer than its caller, so the entries after a short call are its short callees.
        let inner: u64 = self.calls[place + 1..].iter().map(|c| c.calls).sum();
        self.calls.truncate(place + 1);
        let call = self.calls.pop().expect("the call is the last one");
        let calls = call.calls + inner;
        match self.calls.last_mut().filter(|c| c.function.is_none() && c.depth == call.depth) {
            Some(merged) => {
                merged.calls += calls;
                merged.to = number;
            }
            None => self.calls.push(PageCall { function: None, calls, ..call }),
        }
    }

    /// Returns the calls as one array per column: function (-1 for merged calls), number of calls, depth, start, end, step.
    fn columns_json(&self) -> Value {
        let function: Vec<i64> = self.calls.iter().map(|c| c.function.map_or(-1, |f| i64::from(f.0))).collect();
        let column = |of: &dyn Fn(&PageCall) -> u64| self.calls.iter().map(of).collect::<Vec<u64>>();
        json!({ "function": function, "calls": column(&|c| c.calls), "depth": column(&|c| u64::from(c.depth)),
            "from": column(&|c| c.from), "to": column(&|c| c.to), "step": column(&|c| c.step) })
    }

    fn counts_json(&self) -> Value {
        let blocks: Vec<[u64; 2]> = self.executed.iter().map(|(b, n)| [u64::from(b.0), *n]).collect();
        let functions: Vec<[u64; 2]> = self.called.iter().map(|(f, n)| [u64::from(f.0), *n]).collect();
        json!({ "blocks": blocks, "functions": functions })
    }
}

fn executed_functions(trace: &TraceFile, executed: &[u64]) -> Vec<bool> {
    let mut executed_functions = vec![false; trace.description().functions.len()];
    let blocks = trace.description().blocks.iter().zip(executed).filter(|(_, n)| **n > 0);
    blocks.for_each(|(b, _)| executed_functions[b.function.0 as usize] = true);
    executed_functions
}

/// Returns the names and entry addresses of executed functions; null for other functions.
fn functions_json(trace: &TraceFile, executed: &[u64]) -> Value {
    let is_executed = executed_functions(trace, executed);
    let all = trace.description().functions.iter().zip(is_executed);
    all.map(|(f, shown)| if shown { json!([f.name, format!("{:#x}", split_address(f.address).1)]) } else { Value::Null }).collect()
}

/// Returns the blocks of executed functions, each as function, address, lines and machine code; null for other blocks.
fn blocks_json(trace: &TraceFile, executed: &[u64], code: &BTreeMap<u32, Vec<String>>) -> Value {
    let is_executed = executed_functions(trace, executed);
    let all = (0u32..).zip(&trace.description().blocks);
    all.map(|(number, b)| match is_executed[b.function.0 as usize] {
        true => json!([b.function.0, format!("{:#x}", split_address(b.address).1), b.lines, code.get(&number)]),
        false => Value::Null,
    })
    .collect()
}

/// Disassembles the blocks of executed functions. Returns the instructions by block number, and a note if some are missing.
fn collect_machine_code(trace: &TraceFile, files: &Result<TracedFiles>, executed: &[u64]) -> (BTreeMap<u32, Vec<String>>, Option<String>) {
    let about = trace.description();
    let none = |why: &str| (BTreeMap::new(), Some(format!("no machine code is shown: {why}")));
    let files = match files {
        Ok(files) => files,
        Err(error) => return none(&error.to_string()),
    };
    if files.hash() != about.hash {
        return none(&format!("{} has changed since the trace was recorded", about.image));
    }
    let mut of_functions: BTreeMap<u32, (u64, Vec<u32>)> = BTreeMap::new();
    for (number, (block, times)) in (0u32..).zip(about.blocks.iter().zip(executed)) {
        let (all, blocks) = of_functions.entry(block.function.0).or_default();
        *all += times;
        blocks.push(number);
    }
    let mut order: Vec<&(u64, Vec<u32>)> = of_functions.values().filter(|(times, _)| *times > 0).collect();
    order.sort_by_key(|(times, _)| std::cmp::Reverse(*times));
    let (mut code, mut remaining) = (BTreeMap::new(), MAX_INSTRUCTIONS_ON_PAGE);
    let mut without = 0;
    for (_, blocks) in order {
        let texts: Vec<(u32, Vec<String>)> = blocks.iter().map(|b| (*b, disassemble(files, trace, TraceBlock(*b)))).collect();
        let size: usize = texts.iter().map(|(_, t)| t.len()).sum();
        match remaining.checked_sub(size) {
            Some(rest) => {
                remaining = rest;
                code.extend(texts);
            }
            None => without += 1,
        }
    }
    let note = (without > 0)
        .then(|| format!("the machine code of the {} is omitted", plural(without, "least executed function", "least executed functions")));
    (code, note)
}

fn disassemble(files: &TracedFiles, trace: &TraceFile, block: TraceBlock) -> Vec<String> {
    let block = trace.block(block);
    let (binary, start) = files.locate(block.address);
    let (mut at, end) = (start, start + u64::from(block.size));
    let mut texts = Vec::new();
    while at < end {
        let Some(decoded) = binary.code_at(at).and_then(|code| instruction::decode_instruction(code, at)) else { break };
        texts.push(format!("{at:x}  {}", instruction::format_intel(&decoded)));
        at += decoded.len() as u64;
    }
    texts
}

/// Returns the source lines of executed functions with a few lines of context, by file; null for a file that cannot be read.
fn source_json(trace: &TraceFile, sources: &SourceProvider, executed: &[u64]) -> Value {
    let about = trace.description();
    let is_executed = executed_functions(trace, executed);
    let mut near: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for block in about.blocks.iter().filter(|b| is_executed[b.function.0 as usize]) {
        for (file, line) in block.lines.iter().filter(|(_, line)| *line > 0) {
            near.entry(*file).or_default().extend(line.saturating_sub(CONTEXT_LINES).max(1)..=line.saturating_add(CONTEXT_LINES));
        }
    }
    let mut remaining = MAX_SOURCE_LINES_ON_PAGE;
    let mut shown = serde_json::Map::new();
    for (file, near) in near {
        let text = sources(&about.files[file as usize]);
        let lines = text.map_or(Value::Null, |text| {
            let lines = (1u32..).zip(text.lines()).filter(|(n, _)| near.contains(n)).take(remaining);
            let lines: Vec<Value> = lines.map(|(number, text)| json!([number, text])).collect();
            remaining -= lines.len();
            Value::Array(lines)
        });
        shown.insert(file.to_string(), lines);
    }
    Value::Object(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_short_calls_are_merged() {
        let mut calls = PageCalls { shortest: 4, ..PageCalls::default() };
        let (main, small) = (TraceFunction(0), TraceFunction(1));
        calls.add(CallStep::Open(main), 0);
        for n in 0..3 {
            calls.add(CallStep::Open(small), 1 + 2 * n);
            calls.add(CallStep::Open(small), 2 + 2 * n);
            calls.add(CallStep::Close, 3 + 2 * n);
            calls.add(CallStep::Close, 3 + 2 * n);
        }
        calls.add(CallStep::Close, 8);
        let shown: Vec<_> = calls.calls.iter().map(|c| (c.function, c.calls, c.depth, c.from, c.to)).collect();
        assert_eq!(shown, [(Some(main), 1, 0, 0, 8), (None, 6, 1, 1, 7)]);
        assert_eq!(calls.called[&small], 6);
    }

    #[test]
    fn minimum_length_limits_the_number_of_calls() {
        let mut by_bits = [0; 65];
        (by_bits[1], by_bits[3], by_bits[9]) = (1000, 50, 7);
        let lengths = CallLengthHistogram { by_bits, steps: 0 };
        assert_eq!(
            (
                lengths.min_length_for_call_count(2000),
                lengths.min_length_for_call_count(60),
                lengths.min_length_for_call_count(20),
                lengths.min_length_for_call_count(3)
            ),
            (0, 2, 8, 512)
        );
    }
}
