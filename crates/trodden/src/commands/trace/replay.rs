//! Calls and returns from the blocks of a thread, each of which was seen: no witness is missing, so that nothing must
//! be found out but which step led from one block to the next.
//!
//! A stack of frames is kept, each with its block and which of the block's calls are still to come. The next block is,
//! in this order: the entry of a call to come; a successor; after a return, one of these of the caller; the entry of a
//! function that code outside calls; a place to which the stack is unwound. The sequence of blocks is exact whatever is
//! found.

use super::code::Code;
use super::imports::{Assumption, opaque};
use anyhow::Result;
use trodden_binary::graph::{BlockEnd, CallKind, CallSite, CodeCallee, FunctionGraph};
use trodden_trace::TraceBlock;
use trodden_trace::TraceEvent;
use trodden_trace::container::ContainerError;

/// The frames of a thread.
pub struct Replay<'a> {
    code: &'a Code,
    frames: Vec<Frame>,
    /// Steps that were found before, each at the place that its question has: programs repeat themselves.
    known: Vec<Option<(Question, Step)>>,
}

/// From which frame to which block, and whether calls may enter more than usual.
type Question = (Frame, TraceBlock, bool);

/// Steps that are kept; a power of two.
const MAX_KNOWN: usize = 1 << 13;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Frame {
    block: TraceBlock,
    /// Calls of the block that were seen, by number.
    calls: usize,
}

/// Which step leads to a block.
#[derive(Clone, Copy)]
enum Step {
    /// `again`: the call may enter functions more than once.
    Call {
        number: usize,
        again: bool,
        outside: bool,
        tail: bool,
    },
    Next,
    Return,
    None,
}

/// Whether a call may enter a function.
type Enters<'e> = &'e dyn Fn(&CallSite, &FunctionGraph) -> bool;
type Push<'p> = &'p mut dyn FnMut(TraceEvent) -> Result<(), ContainerError>;

impl<'a> Replay<'a> {
    /// A thread that begins outside.
    pub fn new(code: &'a Code) -> Self {
        Self { code, frames: Vec::new(), known: vec![None; MAX_KNOWN] }
    }

    /// The next block.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn hit(&mut self, block: TraceBlock, push: Push) -> Result<()> {
        // A function that no call is known to enter may be called back by any function of another file.
        if !self.follow(block, false, push)? && !self.follow(block, true, push)? {
            self.unexplained(block, push)?;
        }
        push(TraceEvent::Block(block))?;
        Ok(())
    }

    /// Takes the step that leads to a block, returns before it included, if there is one.
    fn follow(&mut self, block: TraceBlock, is_unusual: bool, push: Push) -> Result<bool> {
        let mut returned = 0;
        loop {
            let place = self.frames.len() - returned;
            match place.checked_sub(1).map_or(Step::None, |at| self.known_step((self.frames[at], block, is_unusual))) {
                Step::Return => returned += 1,
                Step::None => return Ok(false),
                step => {
                    (0..returned).try_for_each(|_| push(TraceEvent::Return))?;
                    self.frames.truncate(place);
                    self.take(&step, block, push)?;
                    return Ok(true);
                }
            }
        }
    }

    fn take(&mut self, step: &Step, block: TraceBlock, push: Push) -> Result<()> {
        let frame = self.frames.last_mut().expect("the step is one of its block");
        let Step::Call { number, again, outside, tail } = *step else {
            *frame = Frame { block, calls: 0 };
            return Ok(());
        };
        push(TraceEvent::Call { outside, tail })?;
        frame.calls = number - usize::from(again);
        if tail {
            self.frames.pop();
        }
        self.frames.push(Frame { block, calls: 0 });
        Ok(())
    }

    /// As [`Replay::step`], found once.
    fn known_step(&mut self, question: Question) -> Step {
        let (frame, block, is_unusual) = question;
        let mixed = (frame.block.0 as usize).wrapping_mul(0x9e37_79b1) ^ (block.0 as usize).wrapping_mul(0x85eb_ca6b) ^ frame.calls << 1;
        let place = (mixed ^ mixed >> 15 ^ usize::from(is_unusual)) % MAX_KNOWN;
        match self.known[place] {
            Some((known, step)) if known == question => step,
            _ => {
                let step = self.step(frame, block, if is_unusual { &may_enter } else { &usually_enters });
                self.known[place] = Some((question, step));
                step
            }
        }
    }

    /// Which step leads from a frame to a block.
    fn step(&self, frame: Frame, block: TraceBlock, enters: Enters) -> Step {
        let (graph, index) = self.code.graph_of(frame.block);
        let (to, at) = self.code.graph_of(block);
        let start = to.block(at).start;
        let mut is_over = false;
        for (number, call) in (1..).zip(graph.calls_in(index)).skip(frame.calls) {
            if start == to.entry && enters(call, to) {
                let outside = matches!(call.callee, CodeCallee::Import(_));
                let again = outside || matches!(call.callee, CodeCallee::Indirect);
                return Step::Call { number, again, outside, tail: call.kind != CallKind::Call };
            }
            // A direct call of what is traced comes before everything behind it.
            if matches!(call.callee, CodeCallee::Function(entry) if self.code.block_at(entry).is_some()) && call.kind == CallKind::Call {
                return Step::None;
            }
            is_over |= call.kind != CallKind::Call;
        }
        if std::ptr::eq(graph, to) && graph.successors(index).iter().any(|e| graph.block(e.to).start == start) {
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

/// Whether a call is known to enter a function.
fn usually_enters(call: &CallSite, function: &FunctionGraph) -> bool {
    match &call.callee {
        CodeCallee::Import(name) => function.address_taken && opaque(name, Assumption::Usual).calls_back,
        CodeCallee::Indirect => function.address_taken,
        _ => may_enter(call, function),
    }
}

fn may_enter(call: &CallSite, function: &FunctionGraph) -> bool {
    match &call.callee {
        CodeCallee::Function(callee) => *callee == function.entry,
        CodeCallee::OneOf(callees) => callees.contains(&function.entry),
        CodeCallee::Import(_) | CodeCallee::Indirect => true,
    }
}
