//! Iterates over the function calls of a thread in execution order, for exporters. Functions that the user ignores are left out.
//!
//! Time is measured in basic blocks that the thread has executed. Functions that an ignored function calls are left out as well, but their
//! blocks still count as time. Memory is bounded by the call depth.

use crate::place;
use anyhow::{Result, ensure};
use std::collections::HashSet;
use trodden_trace::{ThreadNumber, TraceBlock, TraceEvent, TraceFile, TraceFunction};

pub(crate) fn check_thread(trace: &TraceFile, thread: Option<u32>) -> Result<()> {
    let last = trace.threads().saturating_sub(1);
    ensure!(
        thread.is_none_or(|t| t <= last),
        "the trace has no thread with number {}: its threads are numbered from 0 to {last}",
        thread.unwrap_or(0)
    );
    Ok(())
}

/// Selects the threads to export, and the functions to leave out.
#[derive(Clone, Debug, Default)]
pub struct TraceFilter {
    functions: HashSet<TraceFunction>,
    thread: Option<u32>,
}

impl TraceFilter {
    /// Creates a filter that leaves out the functions with the given names or from the given source files. If `thread` is given, selects
    /// only this thread.
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

/// A step of a thread through its function calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// A function was called, and executes its first block.
    Open(TraceFunction),
    /// The innermost function that has not returned executes this block.
    Block(TraceBlock),
    /// The innermost function returned or was unwound.
    Close,
}

/// Calls `see` with each step of a thread, and with the number of blocks that the thread executed before the step. Calls that have not
/// returned at the end of the trace are closed there.
pub fn walk_calls(
    trace: &TraceFile,
    thread: ThreadNumber,
    left_out: &TraceFilter,
    mut see: impl FnMut(CallStep, u64) -> Result<()>,
) -> Result<()> {
    // For each call that has not returned: whether it is shown. `None` until the call executes its first block, which identifies the
    // function.
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
