//! Exports traces to the formats of other tools. A trace has no clock, so time is the number of executed blocks.
//!
//! Folded stacks are for flame graph tools. They have a line for each calling context, with the number of blocks that the innermost
//! function executed. Chrome trace events (`B` and `E`) open in Perfetto and in the browser's own viewer. An address export lists the
//! addresses of executed blocks in their files.

use crate::escape;
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::Write;
use trodden_distributed::calls::{CallStep, TraceFilter, walk_calls};
use trodden_distributed::place::format_address;
use trodden_trace::{TraceFile, TraceFunction};

/// Maximum depth of a folded stack, because the size of the output is quadratic in the depth. Blocks of deeper frames are added to the
/// frame at this depth.
const MAX_FOLDED_DEPTH: usize = 1000;

/// Writes folded stacks.
pub fn write_folded(trace: &TraceFile, filter: &TraceFilter, out: &mut dyn Write) -> Result<()> {
    let mut counts: BTreeMap<Vec<TraceFunction>, u64> = BTreeMap::new();
    for thread in filter.threads(trace) {
        let (mut stack, mut since) = (Vec::new(), 0);
        walk_calls(trace, thread, filter, |step, _| {
            if let CallStep::Block(_) = step {
                since += 1;
                return Ok(());
            }
            if since > 0 {
                let shown = &stack[..stack.len().min(MAX_FOLDED_DEPTH)];
                *counts.entry(shown.to_vec()).or_default() += std::mem::take(&mut since);
            }
            match step {
                CallStep::Open(function) => stack.push(function),
                CallStep::Close | CallStep::Block(_) => drop(stack.pop()),
            }
            Ok(())
        })?;
    }
    for (stack, blocks) in &counts {
        // The format separates frames by semicolons, which do not occur in C++ names.
        let names: Vec<String> = stack.iter().map(|f| escape::escape_line(trace.name(*f))).collect();
        writeln!(out, "{} {blocks}", names.join(";"))?;
    }
    Ok(())
}

/// Writes the address of each executed block on a separate line.
pub fn write_addresses(trace: &TraceFile, filter: &TraceFilter, out: &mut dyn Write) -> Result<()> {
    let threads: Vec<_> = filter.threads(trace).collect();
    for thread in &threads {
        if threads.len() > 1 {
            writeln!(out, "# thread {}", thread.0)?;
        }
        walk_calls(trace, *thread, filter, |step, _| match step {
            CallStep::Block(block) => Ok(writeln!(out, "{}", escape::escape_line(&format_address(trace, trace.block(block).address)))?),
            CallStep::Open(_) | CallStep::Close => Ok(()),
        })?;
    }
    Ok(())
}

/// Writes Chrome trace events.
pub fn write_chrome_trace(trace: &TraceFile, filter: &TraceFilter, out: &mut dyn Write) -> Result<()> {
    let mut first = true;
    let mut event = |out: &mut dyn Write, phase: &str, name: &str, thread: u32, time: u64| -> Result<()> {
        let separator = if std::mem::take(&mut first) { "\n" } else { ",\n" };
        let name = serde_json::to_string(name)?;
        write!(out, r#"{separator}{{"ph":"{phase}","name":{name},"pid":1,"tid":{thread},"ts":{time}}}"#)?;
        Ok(())
    };
    write!(out, r#"{{"displayTimeUnit":"ms","otherData":{{"unit":"one microsecond is one block"}},"traceEvents":["#)?;
    for thread in filter.threads(trace) {
        let mut open = Vec::new();
        walk_calls(trace, thread, filter, |step, time| match step {
            CallStep::Open(function) => {
                open.push(function);
                event(out, "B", trace.name(function), thread.0, time)
            }
            CallStep::Close => open.pop().map_or(Ok(()), |f| event(out, "E", trace.name(f), thread.0, time)),
            CallStep::Block(_) => Ok(()),
        })?;
    }
    writeln!(out, "\n]}}")?;
    Ok(())
}
