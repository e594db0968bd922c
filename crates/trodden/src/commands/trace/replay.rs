//! Calls and returns from the blocks of a thread, each of which was seen: no witness is missing, so that nothing must
//! be found out but which step led from one block to the next.
//!
//! A stack of frames is kept, each with its block and which of the block's calls are still to come. The next block is,
//! in this order: the entry of a call to come; a successor; after a return, one of these of the caller; the entry of a
//! function that code outside calls; a place to which the stack is unwound. The sequence of blocks is exact whatever is
//! found.

use super::code::Code;
use anyhow::Result;
use trodden_binary::graph::{BlockEnd, CallKind, CallSite, Callee};
use trodden_trace::TraceBlock;
use trodden_trace::TraceEvent;
use trodden_trace::container::ContainerError;

/// The frames of a thread.
pub struct Replay<'a> {
    code: &'a Code,
    frames: Vec<Frame>,
}

#[derive(Clone, Copy)]
struct Frame {
    block: TraceBlock,
    /// Calls of the block that were seen, by number.
    calls: usize,
}

/// Which step leads to a block.
enum Step {
    Call { number: usize, outside: bool, tail: bool },
    Next,
    Return,
    None,
}

type Push<'p> = &'p mut dyn FnMut(TraceEvent) -> Result<(), ContainerError>;

impl<'a> Replay<'a> {
    /// A thread that begins outside.
    pub fn new(code: &'a Code) -> Self {
        Self { code, frames: Vec::new() }
    }

    /// The next block.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn hit(&mut self, block: TraceBlock, push: Push) -> Result<()> {
        let mut returned = Vec::new();
        let depth = self.frames.len();
        loop {
            let step = self.frames.last().map_or(Step::None, |frame| self.step(*frame, block));
            match step {
                Step::Return => returned.extend(self.frames.pop()),
                Step::Next => {
                    (0..returned.len()).try_for_each(|_| push(TraceEvent::Return))?;
                    let frame = self.frames.last_mut().expect("it has a next block");
                    *frame = Frame { block, calls: 0 };
                    break;
                }
                Step::Call { number, outside, tail } => {
                    (0..returned.len()).try_for_each(|_| push(TraceEvent::Return))?;
                    push(TraceEvent::Call { outside, tail })?;
                    self.frames.last_mut().expect("it calls").calls = number;
                    if tail {
                        self.frames.pop();
                    }
                    self.frames.push(Frame { block, calls: 0 });
                    break;
                }
                Step::None => {
                    // Neither a call nor a return explains it: the frames are as before.
                    let back = returned.drain(..).rev();
                    self.frames.extend(back);
                    self.frames.truncate(depth);
                    self.unexplained(block, push)?;
                    break;
                }
            }
        }
        push(TraceEvent::Block(block))?;
        Ok(())
    }

    /// Which step leads from a frame to a block.
    fn step(&self, frame: Frame, block: TraceBlock) -> Step {
        let (graph, index) = self.code.graph_of(frame.block);
        let (to, _) = self.code.graph_of(block);
        let start = to.block(self.code.graph_of(block).1).start;
        let is_entry = start == to.entry;
        let mut is_over = false;
        for (number, call) in (1..).zip(graph.calls_in(index)).skip(frame.calls) {
            if is_entry && may_enter(call, start) {
                let outside = matches!(call.callee, Callee::Import(_));
                return Step::Call { number, outside, tail: call.kind != CallKind::Call };
            }
            // A direct call of what is traced comes before everything behind it.
            if matches!(call.callee, Callee::Function(entry) if self.code.block_at(entry).is_some()) && call.kind == CallKind::Call {
                return Step::None;
            }
            is_over |= call.kind != CallKind::Call;
        }
        let same = std::ptr::eq(graph, to);
        if same && graph.successors(index).iter().any(|e| graph.block(e.to).start == start) {
            return Step::Next;
        }
        match graph.block(index).end {
            BlockEnd::Return => Step::Return,
            _ if is_over => Step::Return,
            _ => Step::None,
        }
    }

    /// A call from outside, or a stack that is unwound; or an edge that the graph does not have.
    fn unexplained(&mut self, block: TraceBlock, push: Push) -> Result<()> {
        let (to, index) = self.code.graph_of(block);
        if to.block(index).start == to.entry {
            push(TraceEvent::Call { outside: true, tail: false })?;
            self.frames.push(Frame { block, calls: 0 });
            return Ok(());
        }
        let function = self.code.function_of(block);
        let owner = self.frames.iter().rposition(|f| self.code.function_of(f.block) == function);
        match owner {
            Some(owner) => {
                for _ in owner + 1..self.frames.len() {
                    push(TraceEvent::Unwind)?;
                }
                self.frames.truncate(owner + 1);
                self.frames[owner] = Frame { block, calls: 0 };
            }
            // The trace begins, or goes on, in the middle of a function.
            None => {
                push(TraceEvent::Call { outside: true, tail: false })?;
                self.frames.push(Frame { block, calls: 0 });
            }
        }
        Ok(())
    }
}

fn may_enter(call: &CallSite, entry: u64) -> bool {
    match &call.callee {
        Callee::Function(callee) => *callee == entry,
        Callee::OneOf(callees) => callees.contains(&entry),
        Callee::Import(_) | Callee::Indirect => true,
    }
}
