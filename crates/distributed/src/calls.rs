//! The calls of a thread one after the other, without those that are left out: what the exports are made of.
//!
//! Time is the number of the thread's block. A function that is left out takes all that it calls with it; the numbers of the blocks
//! behind it stay those of the trace. Memory: the open calls.

use crate::place;
use anyhow::{Result, ensure};
use std::collections::HashSet;
use trodden_trace::{ThreadNumber, TraceBlock, TraceEvent, TraceFile, TraceFunction};

/// Refuses a thread that a trace does not have.
///
/// # Errors
/// It is such a thread.
pub(crate) fn check_thread(trace: &TraceFile, thread: Option<u32>) -> Result<()> {
    let last = trace.threads().saturating_sub(1);
    ensure!(thread.is_none_or(|t| t <= last), "the trace has no thread {}: its threads are 0 to {last}", thread.unwrap_or(0));
    Ok(())
}

/// Functions and threads that are left out.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    functions: HashSet<TraceFunction>,
    thread: Option<u32>,
}

impl LeftOut {
    /// Functions by their name or source file, and all threads but one.
    ///
    /// # Errors
    /// The trace has no such function, file or thread.
    pub fn new(trace: &TraceFile, ignored: &[String], thread: Option<u32>) -> Result<Self> {
        check_thread(trace, thread)?;
        Ok(Self { functions: place::functions_left_out(trace, ignored)?, thread })
    }

    /// The threads that are not left out.
    pub fn threads(&self, trace: &TraceFile) -> impl Iterator<Item = ThreadNumber> + use<> {
        let thread = self.thread;
        (0..trace.threads()).filter(move |t| thread.is_none_or(|wanted| wanted == *t)).map(ThreadNumber)
    }
}

/// What happens in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStep {
    /// A call comes to its first block.
    Open(TraceFunction),
    /// The innermost open call executes a block.
    Block(TraceBlock),
    /// The innermost open call ends.
    Close,
}

/// Calls `see` with each step of a thread, and the number of blocks of the thread before it. Calls that are open at the end are closed
/// there.
///
/// # Errors
/// The trace cannot be read; what `see` returns.
pub fn walk(trace: &TraceFile, thread: ThreadNumber, left_out: &LeftOut, mut see: impl FnMut(CallStep, u64) -> Result<()>) -> Result<()> {
    // Whether each open call is shown; `None` where it has not come to its first block.
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
                    let shown = parent && !left_out.functions.contains(&function);
                    open[last] = Some(shown);
                    if shown {
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
