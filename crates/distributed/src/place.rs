//! Parses and matches places in a trace: `FUNCTION`, `FILE:LINE`, `0xADDRESS` or `#NUMBER`, optionally followed by a number for the nth
//! occurrence.

use anyhow::{Context, Result, bail, ensure};
use std::collections::HashSet;
use trodden_binary::linked::split_address;
use trodden_text::escape;
use trodden_trace::{TraceBlock, TraceEvent, TraceFile, TraceFrameStack, TraceFunction, TracedBlockInfo, TracedFunctionInfo};

/// Suffix of the collector's name in a trace that contains only calls and returns.
const CALLS_ONLY_SUFFIX: &str = ", calls only";

/// Adds the suffix by which a trace with calls and returns only is recognised to a collector's name.
pub(crate) fn add_calls_only_suffix(collector: &str) -> String {
    format!("{collector}{CALLS_ONLY_SUFFIX}")
}

pub(crate) fn has_calls_only(trace: &TraceFile) -> bool {
    trace.description().collector.ends_with(CALLS_ONLY_SUFFIX)
}

/// Returns an error if a trace contains only calls and returns. `what` names the operation that needs all blocks, for the message.
pub(crate) fn require_all_blocks(trace: &TraceFile, what: &str) -> Result<()> {
    ensure!(
        !has_calls_only(trace),
        "the trace contains only calls and returns, but {what} needs all basic blocks. Record again without `trodden-lab with --calls`"
    );
    Ok(())
}

/// A place in a trace, given by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLocation {
    what: LocationKind,
    /// If given, selects only the nth occurrence, counted from 1.
    pub nth: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LocationKind {
    /// Calls of functions.
    Calls(Vec<TraceFunction>),
    /// Executions of blocks.
    Blocks(Vec<TraceBlock>),
    /// The block with this number in a thread, counted in execution order.
    Number(u64),
}

impl TraceLocation {
    /// Parses a place that the user has given, and looks it up in the trace.
    ///
    /// # Errors
    /// The text is not a place, or the trace has no such function, line or address.
    pub fn parse(text: &str, trace: &TraceFile) -> Result<Self> {
        let (name, nth) = match text.trim().rsplit_once(' ') {
            Some((name, number)) if number.bytes().all(|b| b.is_ascii_digit()) => {
                let nth: u64 = number.parse().with_context(|| format!("the number of the execution, `{number}`, is too large"))?;
                ensure!(nth > 0, "invalid place `{text}`: the number of an execution must be at least 1");
                (name.trim(), Some(nth))
            }
            _ => (text.trim(), None),
        };
        if let Some(number) = name.strip_prefix('#') {
            return Ok(Self {
                what: LocationKind::Number(
                    number.parse().with_context(|| format!("invalid block number `{name}`: expected `#` and a number, such as #12"))?,
                ),
                nth,
            });
        }
        if let Some(address) = name.strip_prefix("0x") {
            let address = u64::from_str_radix(address, 16)
                .with_context(|| format!("invalid address `{name}`: expected a hexadecimal number, such as 0x401a2c"))?;
            return Ok(Self { what: LocationKind::Blocks(blocks_at(trace, address)?), nth });
        }
        let functions = functions_named(trace, name);
        if !functions.is_empty() {
            return Ok(Self { what: LocationKind::Calls(functions), nth });
        }
        match name.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse::<u32>().ok()?))) {
            Some((file, line)) => Ok(Self { what: LocationKind::Blocks(blocks_of_line(trace, file, line)?), nth }),
            None => bail!(
                "the trace has no function `{name}`. To list the functions that were called, run `trodden report`; write a source line \
                 as FILE:LINE"
            ),
        }
    }

    /// Returns the block number if the place is one.
    pub fn number(&self) -> Option<u64> {
        if let LocationKind::Number(number) = self.what { Some(number) } else { None }
    }

    /// Returns true if an event of a thread is at the place, whatever `nth` selects. `number` is the number of blocks before the event, and
    /// `is_call` is true for the first block of a call.
    pub fn matches(&self, event: TraceEvent, number: u64, is_call: bool, trace: &TraceFile) -> bool {
        let TraceEvent::Block(block) = event else { return false };
        match &self.what {
            LocationKind::Calls(functions) => is_call && functions.contains(&trace.function_of(block)),
            LocationKind::Blocks(blocks) => blocks.binary_search(&block).is_ok(),
            LocationKind::Number(wanted) => *wanted == number,
        }
    }

    /// Returns the functions that contain the place. For a block number, the result is empty, because it does not determine the function.
    pub fn functions(&self, trace: &TraceFile) -> Vec<TraceFunction> {
        match &self.what {
            LocationKind::Calls(functions) => functions.clone(),
            LocationKind::Blocks(blocks) => blocks.iter().map(|b| trace.function_of(*b)).collect(),
            LocationKind::Number(_) => Vec::new(),
        }
    }
}

/// Returns the functions with a name. If no name matches exactly, names are compared without arguments, namespaces and files.
pub fn functions_named(trace: &TraceFile, name: &str) -> Vec<TraceFunction> {
    let all = &trace.description().functions;
    let chosen = |test: &dyn Fn(&str) -> bool| -> Vec<TraceFunction> {
        (0..).zip(all).filter(|(_, f)| test(&f.name)).map(|(n, _)| TraceFunction(n)).collect()
    };
    let whole = chosen(&|n| n == name);
    match whole.is_empty() {
        true => chosen(&|n| {
            n.split(['(', '@']).next().is_some_and(|n| n == name || n.strip_suffix(name).is_some_and(|rest| rest.ends_with("::")))
        }),
        false => whole,
    }
}

/// Returns the functions to ignore: for each name, the functions with this name or, if there are none, all functions from the source file
/// with this name.
///
/// # Errors
/// The trace has neither a function nor a source file with one of the names.
pub fn ignored_functions(trace: &TraceFile, names: &[String]) -> Result<HashSet<TraceFunction>> {
    let mut left_out = HashSet::new();
    for name in names {
        let mut named = functions_named(trace, name);
        if named.is_empty() {
            named = functions_of_file(trace, name);
        }
        ensure!(!named.is_empty(), "{} has no function or source file `{name}` that could be ignored", trace.description().image);
        left_out.extend(named);
    }
    Ok(left_out)
}

fn functions_of_file(trace: &TraceFile, name: &str) -> Vec<TraceFunction> {
    let about = trace.description();
    let is_entry = |block: &&TracedBlockInfo| about.functions[block.function.0 as usize].address == block.address;
    let is_of = |block: &&TracedBlockInfo| {
        let file = block.lines.first().map(|(file, _)| about.files[*file as usize].as_str());
        file.is_some_and(|file| file == name || file.strip_suffix(name).is_some_and(|rest| rest.ends_with('/')))
    };
    about.blocks.iter().filter(is_entry).filter(is_of).map(|block| block.function).collect()
}

fn blocks_at(trace: &TraceFile, address: u64) -> Result<Vec<TraceBlock>> {
    let blocks = (0..).zip(&trace.description().blocks);
    let has =
        |b: &TracedBlockInfo| split_address(b.address).1 <= address && address < split_address(b.address).1 + u64::from(b.size.max(1));
    let found: Vec<TraceBlock> = blocks.filter(|(_, b)| has(b)).map(|(n, _)| TraceBlock(n)).collect();
    ensure!(!found.is_empty(), "the trace has no block at {address:#x}. Pass the address of code in the program's file, as `nm` prints it");
    Ok(found)
}

fn blocks_of_line(trace: &TraceFile, file: &str, line: u32) -> Result<Vec<TraceBlock>> {
    let about = trace.description();
    let is_file = |n: u32| about.files[n as usize] == file || about.files[n as usize].ends_with(&format!("/{file}"));
    require_all_blocks(trace, "a line")?;
    ensure!(!about.files.is_empty(), "{} has no line numbers. Pass a function or an address instead of a line", about.image);
    let blocks = (0..).zip(&about.blocks);
    let found: Vec<TraceBlock> =
        blocks.filter(|(_, b)| b.lines.iter().any(|(f, l)| *l == line && is_file(*f))).map(|(n, _)| TraceBlock(n)).collect();
    ensure!(!found.is_empty(), "line {line} of `{file}` has no traced code");
    let continues = |block: &TraceBlock| sole_predecessor(trace, *block).is_some_and(|before| found.binary_search(&before).is_ok());
    Ok(found.iter().copied().filter(|block| !continues(block)).collect())
}

/// Returns the block before `block` in memory if it is the only predecessor of `block` and has no other successor. This is usual after a
/// call.
fn sole_predecessor(trace: &TraceFile, block: TraceBlock) -> Option<TraceBlock> {
    let edges = &trace.description().edges;
    let mut to_it = edges.iter().filter(|(_, to)| *to == block).map(|(from, _)| *from);
    let (before, None) = (to_it.next()?, to_it.next()) else { return None };
    let data = trace.block(before);
    let is_only = edges.iter().filter(|(from, _)| *from == before).count() == 1;
    (is_only && data.address + u64::from(data.size) == trace.block(block).address).then_some(before)
}

/// Formats an address as its offset in the file that contains it, followed by the file's name if several files are traced.
pub fn format_address(trace: &TraceFile, address: u64) -> String {
    match address_in_file(trace, address) {
        (at, None) => format!("{at:#x}"),
        (at, Some(file)) => format!("{at:#x} {file}"),
    }
}

/// Returns an address within the file that contains it, and the file's name if several files are traced.
pub fn address_in_file(trace: &TraceFile, address: u64) -> (u64, Option<&str>) {
    (split_address(address).1, (!trace.description().libraries.is_empty()).then(|| file_of(trace, address)))
}

fn file_of(trace: &TraceFile, address: u64) -> &str {
    let about = trace.description();
    base_name(split_address(address).0.checked_sub(1).and_then(|n| about.libraries.get(n)).unwrap_or(&about.image))
}

/// Returns a function's name without the suffix `@FILE`, which is present if several files have a function with this name.
pub fn name_in_file<'a>(trace: &TraceFile, function: &'a TracedFunctionInfo) -> &'a str {
    let of_file = format!("@{}", file_of(trace, function.address));
    function.name.strip_suffix(of_file.as_str()).filter(|_| !trace.description().libraries.is_empty()).unwrap_or(&function.name)
}

/// Describes a block by its address, its function, its offset in the function, and its line.
pub fn describe_block(trace: &TraceFile, block: TraceBlock) -> String {
    let about = trace.description();
    let data = trace.block(block);
    let function = &about.functions[data.function.0 as usize];
    let offset = data.address.wrapping_sub(function.address) as i64;
    let place = match offset {
        0 => function.name.clone(),
        1.. => format!("{}+{offset:#x}", function.name),
        _ => format!("{}-{:#x}", function.name, -offset),
    };
    let text = match data.lines.first() {
        Some((file, line)) => format!("{} {place} {}:{line}", format_address(trace, data.address), base_name(&about.files[*file as usize])),
        None => format!("{} {place}", format_address(trace, data.address)),
    };
    escape::escape_line(&text)
}

fn base_name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Updates the thread's call stack for an event. Returns true if the event is the first block of a call.
pub fn follow_event(frames: &mut TraceFrameStack, event: TraceEvent, trace: &TraceFile) -> bool {
    let opens = frames.open.last().is_none_or(Option::is_none);
    frames.follow(event, |block| trace.function_of(block));
    opens && matches!(event, TraceEvent::Block(_))
}
