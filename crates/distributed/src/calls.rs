//! A thread's calls in execution order, without ignored functions, for exports.
//!
//! Time is measured in executed blocks of the thread. Ignoring a function also ignores all functions that it calls, but their blocks
//! still count. Memory is bounded by the call depth.

use crate::place;
use anyhow::{Result, ensure};
use std::collections::HashSet;
use trodden_trace::{ThreadNumber, TraceBlock, TraceEvent, TraceFile, TraceFunction};

pub(crate) fn check_thread(trace: &TraceFile, thread: Option<u32>) -> Result<()> {
    let last = trace.threads().saturating_sub(1);
    ensure!(thread.is_none_or(|t| t <= last), "the trace has no thread {}; its threads are numbered from 0 to {last}", thread.unwrap_or(0));
    Ok(())
}

/// The threads to export, and the functions to ignore.
#[derive(Clone, Debug, Default)]
pub struct TraceFilter {
    functions: HashSet<TraceFunction>,
    thread: Option<u32>,
}

impl TraceFilter {
    /// Ignores functions given by name or source file. If `thread` is given, ignores all other threads.
    ///
    /// # Errors
    /// The trace has no such function, file or thread.
    pub fn new(trace: &TraceFile, ignored: &[String], thread: Option<u32>) -> Result<Self> {
        check_thread(trace, thread)?;
        Ok(Self { functions: place::ignored_functions(trace, ignored)?, thread })
    }

    /// The selected threads.
    pub fn threads(&self, trace: &TraceFile) -> impl Iterator<Item = ThreadNumber> + use<> {
        let thread = self.thread;
        (0..trace.threads()).filter(move |t| thread.is_none_or(|wanted| wanted == *t)).map(ThreadNumber)
    }
}

/// A step in the calls of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// A call has reached its first block.
    Open(TraceFunction),
    /// The innermost open call executes a block.
    Block(TraceBlock),
    /// The innermost open call has ended.
    Close,
}

/// Calls `see` with each step of a thread and the number of the thread's blocks before the step. Calls that are still open at the end of
/// the trace are closed there.
pub fn walk_calls(
    trace: &TraceFile,
    thread: ThreadNumber,
    left_out: &TraceFilter,
    mut see: impl FnMut(CallStep, u64) -> Result<()>,
) -> Result<()> {
    // Whether each open call is shown; `None` until the call reaches its first block.
    let mut open: Vec<Option<bool>> = Vec::new();
    let mut number = 0;
    for event in trace.stream(thread) {
        match event? {
            TraceEvent::Call { tail, .. } => {
                if tail && open.pop() == Some(Some(true)) {
                    see(CallStep::Close, number)?;
                }
                open.push(None);
            }
            TraceEvent::Return | TraceEvent::Unwind => {
                if open.pop() == Some(Some(true)) {
                    see(CallStep::Close, number)?;
                }
            }
            TraceEvent::Block(block) => {
                if open.is_empty() {
                    open.push(None);
                }
                let last = open.len() - 1;
                let parent = last.checked_sub(1).and_then(|p| open[p]).unwrap_or(true);
                if open[last].is_none() {
                    let function = trace.function_of(block);
                    let is_shown = parent && !left_out.functions.contains(&function);
                    open[last] = Some(is_shown);
                    if is_shown {
                        see(CallStep::Open(function), number)?;
                    }
                }
                if open[last] == Some(true) {
                    see(CallStep::Block(block), number)?;
                }
                number += 1;
            }
        }
    }
    open.iter().rev().filter(|o| **o == Some(true)).try_for_each(|_| see(CallStep::Close, number))
}
