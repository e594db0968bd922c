//! Calls and returns from the blocks of a thread that were seen: no witness is missing, so that nothing must be found out but which step
//! led from one block to the next.
//!
//! A stack of frames is kept, each with its block and which of the block's calls are still to come. The next block is, in this order: the
//! entry of a call to come; a successor; after a return, one of these of the caller; what a caller goes on with to which the stack is
//! unwound; the entry of a function that code outside calls. Pieces behind calls that are not watched were executed if what follows is
//! behind them. Code that loads the stack pointer from memory goes on with the calls of another stack, which are not known.

use crate::code::Code;
use crate::imports::{Assumption, opaque};
use anyhow::Result;
use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use trodden_binary::graph::{BlockEnd, BlockIndex, CallKind, CallSite, CodeCallee, CodeEdge, CodeEdgeKind, FunctionGraph};
use trodden_trace::block_file::TraceFileError;
use trodden_trace::{ThreadNumber, TraceBlock, TraceEvent};

/// What the frames of all threads are followed by.
pub struct ReplayedCode<'a> {
    /// The code.
    pub code: &'a Code,
    /// Blocks that are not watched: pieces behind cuts.
    pub unwatched: HashSet<TraceBlock>,
    /// Blocks that load the stack pointer.
    pub switching: HashSet<TraceBlock>,
    /// Instructions at which handlers of signals began, in their order, each with its thread.
    pub interrupted: Vec<(u32, u64)>,
    /// Code that the program changed: calls of it need not be seen.
    pub changed: Vec<Range<u64>>,
}

/// The frames of a thread.
pub struct Replay<'a> {
    replayed: &'a ReplayedCode<'a>,
    code: &'a Code,
    frames: Vec<Frame>,
    /// How many frames there were with each one that code outside, or a signal, has entered.
    outermost: Vec<usize>,
    /// Steps that were found before, each at the place that its question has: programs repeat themselves.
    known: Vec<Cell<Option<(Question, Step)>>>,
    /// Where handlers of signals began of which no block has been seen.
    interrupted: VecDeque<u64>,
    /// How often the thread went on with the calls of another stack.
    pub switches: u64,
}

/// From which frame to which block, what calls may enter, and whether a call has returned before.
type Question = (Frame, TraceBlock, Enters, bool);

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
    /// A block that is not watched comes next.
    Unwatched(TraceBlock),
    None,
}

/// What is executed before a block is seen.
enum Before {
    Return,
    Block(TraceBlock),
}

/// A way from a frame to a block.
struct Way {
    before: Vec<Before>,
    /// Frames that are left, and the innermost one.
    depth: usize,
    top: Frame,
    step: Step,
}

/// What a call may enter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Enters {
    /// Nothing.
    Nothing,
    /// What it is known to enter.
    Usual,
    /// What nothing speaks against.
    Any,
}

type Push<'p> = &'p mut dyn FnMut(TraceEvent) -> Result<(), TraceFileError>;

impl<'a> Replay<'a> {
    /// A thread that begins outside.
    pub fn new(replayed: &'a ReplayedCode<'a>, thread: ThreadNumber) -> Self {
        let interrupted = replayed.interrupted.iter().filter(|(of, _)| *of == thread.0).map(|(_, place)| *place).collect();
        Self {
            replayed,
            code: replayed.code,
            frames: Vec::new(),
            outermost: Vec::new(),
            interrupted,
            switches: 0,
            known: vec![Cell::new(None); MAX_KNOWN],
        }
    }

    /// The next block.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn hit(&mut self, block: TraceBlock, push: Push) -> Result<()> {
        let depth = self.frames.len();
        let switches = self.frames.last().is_some_and(|f| self.replayed.switching.contains(&f.block));
        // A function that no call is known to enter may be called back by any function of another file.
        let way = self.way(depth, block, Enters::Usual);
        let way = way.or_else(|| if self.is_handler(block) { None } else { self.way(depth, block, Enters::Any) });
        match way {
            Some(way) if switches && way.before.is_empty() && matches!(way.step, Step::Call { .. }) => self.switch(block, push)?,
            Some(way) => self.go(way, block, push)?,
            None => self.unexplained(block, switches, push)?,
        }
        push(TraceEvent::Block(block))?;
        Ok(())
    }

    /// The thread has ended, or its trace has. `stack` is where it stood then, as far as that is known, innermost first: the place itself
    /// if that is code of the trace, then return addresses.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn end(&mut self, stack: &[u64], push: Push) -> Result<()> {
        let Some(&innermost) = stack.first() else { return Ok(()) };
        let way = self.way_to(|graph: &FunctionGraph, index| {
            graph.block(index).contains(innermost) || graph.calls_in(index).any(|c| c.return_address == Some(innermost))
        });
        self.go_to(way, push)
    }

    /// What leads to a block that is the place, if anything does: blocks that are not watched, and returns; with the frames that are left.
    fn way_to(&self, is_place: impl Fn(&FunctionGraph, BlockIndex) -> bool) -> Option<(Vec<Before>, usize, Frame)> {
        let stands = |frame: Frame| {
            let (graph, index) = self.code.graph_of(frame.block);
            is_place(graph, index)
        };
        let mut top = self.frames.last().copied()?;
        let (mut before, mut depth) = (Vec::new(), self.frames.len());
        while !stands(top) {
            let (graph, index) = self.code.graph_of(top.block);
            match self.unwatched_behind(top) {
                Some(next) => {
                    before.push(Before::Block(next));
                    top = Frame { block: next, calls: 0 };
                }
                None if graph.block(index).end == BlockEnd::Return && depth > 1 => {
                    before.push(Before::Return);
                    depth -= 1;
                    top = self.frames[depth - 1];
                }
                None => return None,
            }
        }
        Some((before, depth, top))
    }

    fn go_to(&mut self, way: Option<(Vec<Before>, usize, Frame)>, push: Push) -> Result<()> {
        if let Some((before, depth, top)) = way {
            self.carry_out(&before, push)?;
            self.frames.truncate(depth);
            self.frames[depth - 1] = top;
        }
        Ok(())
    }

    /// Whether a block may be the first one of a signal's handler that has interrupted the frames at the next place that is known.
    fn is_handler(&self, block: TraceBlock) -> bool {
        let (to, at) = self.code.graph_of(block);
        let is_entry = to.block(at).start == to.entry && to.address_taken;
        is_entry && self.interrupted.front().is_some_and(|place| self.way_to(is_at(*place)).is_some())
    }

    /// The way to a block from the frames up to a depth.
    fn way(&self, depth: usize, block: TraceBlock, enters: Enters) -> Option<Way> {
        let (mut before, mut depth) = (Vec::new(), depth);
        let mut top = self.frames[..depth].last().copied()?;
        let mut has_returned = false;
        loop {
            match self.known_step((top, block, enters, has_returned)) {
                Step::Return => {
                    before.push(Before::Return);
                    depth -= 1;
                    top = self.frames[..depth].last().copied()?;
                    has_returned = true;
                }
                Step::Unwatched(next) => {
                    before.push(Before::Block(next));
                    top = Frame { block: next, calls: 0 };
                    has_returned = false;
                }
                Step::None => return None,
                step => return Some(Way { before, depth, top, step }),
            }
        }
    }

    fn go(&mut self, way: Way, block: TraceBlock, push: Push) -> Result<()> {
        self.carry_out(&way.before, push)?;
        self.frames.truncate(way.depth);
        if let Some(top) = self.frames.last_mut() {
            *top = way.top;
        }
        self.take(&way.step, block, push)
    }

    fn carry_out(&self, before: &[Before], push: Push) -> Result<()> {
        for step in before {
            push(match step {
                Before::Return => TraceEvent::Return,
                Before::Block(block) => TraceEvent::Block(*block),
            })?;
        }
        Ok(())
    }

    fn take(&mut self, step: &Step, block: TraceBlock, push: Push) -> Result<()> {
        let frame = self.frames.last_mut().expect("the step is one of its block");
        let Step::Call { number, again, outside, tail } = *step else {
            *frame = Frame { block, calls: 0 };
            return Ok(());
        };
        push(TraceEvent::Call { outside, tail })?;
        frame.calls = number - usize::from(again);
        match tail {
            true => drop(self.frames.pop()),
            false => self.forget_outermost(),
        }
        self.frames.push(Frame { block, calls: 0 });
        Ok(())
    }

    /// As [`Replay::step`], found once.
    fn known_step(&self, question: Question) -> Step {
        let (frame, block, enters, has_returned) = question;
        let mixed = (frame.block.0 as usize).wrapping_mul(0x9e37_79b1) ^ (block.0 as usize).wrapping_mul(0x85eb_ca6b) ^ frame.calls << 2;
        let place = (mixed ^ mixed >> 15 ^ (enters as usize) << 1 ^ usize::from(has_returned)) % MAX_KNOWN;
        match self.known[place].get() {
            Some((known, step)) if known == question => step,
            _ => {
                let step = self.step(frame, block, enters, has_returned);
                self.known[place].set(Some((question, step)));
                step
            }
        }
    }

    /// Which step leads from a frame to a block. A call that has returned has thrown nothing.
    fn step(&self, frame: Frame, block: TraceBlock, enters: Enters, has_returned: bool) -> Step {
        let (graph, index) = self.code.graph_of(frame.block);
        let (to, at) = self.code.graph_of(block);
        let start = to.block(at).start;
        let mut is_over = false;
        for (number, call) in (1..).zip(graph.calls_in(index)).skip(frame.calls) {
            if start == to.entry && enters.allows(call, to) {
                let outside = matches!(call.callee, CodeCallee::Import(_));
                let again = outside || matches!(call.callee, CodeCallee::Indirect);
                return Step::Call { number, again, outside, tail: call.kind != CallKind::Call };
            }
            // A direct call of what is traced comes before everything behind it.
            if matches!(call.callee, CodeCallee::Function(entry) if self.is_seen(entry)) && call.kind == CallKind::Call {
                return Step::None;
            }
            is_over |= call.kind != CallKind::Call;
        }
        let is_next = |e: &CodeEdge| graph.block(e.to).start == start && !(has_returned && e.kind == CodeEdgeKind::Unwind);
        if std::ptr::eq(graph, to) && graph.successors(index).iter().any(is_next) {
            return Step::Next;
        }
        if let Some(next) = self.unwatched_behind(frame) {
            return Step::Unwatched(next);
        }
        match graph.block(index).end {
            BlockEnd::Return => Step::Return,
            _ if is_over => Step::Return,
            _ => Step::None,
        }
    }

    /// Whether a call of a function is seen wherever it is executed.
    fn is_seen(&self, entry: u64) -> bool {
        self.code.block_at(entry).is_some() && !self.replayed.changed.iter().any(|changed| changed.contains(&entry))
    }

    /// The block that is not watched and that a frame's block runs on to.
    fn unwatched_behind(&self, frame: Frame) -> Option<TraceBlock> {
        let (graph, index) = self.code.graph_of(frame.block);
        if graph.block(index).end != BlockEnd::FallThrough || self.replayed.unwatched.is_empty() {
            return None;
        }
        let next = self.code.block_at(graph.block(index).end_address())?;
        self.replayed.unwatched.contains(&next).then_some(next)
    }

    /// A call from outside, a stack that is unwound, another stack, or an edge that the graph does not have.
    fn unexplained(&mut self, block: TraceBlock, switches: bool, push: Push) -> Result<()> {
        let (to, index) = self.code.graph_of(block);
        let is_entry = to.block(index).start == to.entry;
        if !is_entry && self.unwind(block, push)? {
            return Ok(());
        }
        // The outermost function has returned, to code outside.
        if !self.frames.is_empty() && self.frames.iter().all(|frame| self.has_returned(*frame)) {
            let before = self.ending();
            self.carry_out(&before, push)?;
            self.frames.clear();
        }
        if switches && !self.frames.is_empty() {
            return self.switch(block, push);
        }
        // Else a signal's handler begins, code outside calls, or the trace begins, or goes on, in the middle of a function.
        if is_entry && to.address_taken {
            // A handler that is no code of the trace has left no block.
            let found = (0..self.interrupted.len()).find_map(|n| Some((n, self.way_to(is_at(self.interrupted[n]))?)));
            if let Some((number, way)) = found {
                self.interrupted.drain(..=number);
                self.go_to(Some(way), push)?;
            }
        }
        if is_entry {
            let way = self.way_outside(block);
            self.go_to(way, push)?;
        }
        self.switches += u64::from(!is_entry && !self.frames.is_empty());
        self.enter_from_outside(block, push)
    }

    /// The blocks that are not watched on the way from the innermost frame back to code outside, which has entered a block: a handler
    /// returns to code that brings the thread back.
    fn way_outside(&self, block: TraceBlock) -> Option<(Vec<Before>, usize, Frame)> {
        let mut depth = self.frames.len();
        let outermost = self.outermost.iter().rev().copied().find(|outermost| *outermost <= depth)?;
        let mut top = self.frames.last().copied()?;
        let (mut before, mut has_returned, mut has_unwatched) = (Vec::new(), false, false);
        loop {
            match self.known_step((top, block, Enters::Nothing, has_returned)) {
                Step::Return if depth == outermost => return has_unwatched.then_some((before, depth, top)),
                Step::Return => {
                    before.push(Before::Return);
                    depth -= 1;
                    top = self.frames[depth - 1];
                    has_returned = true;
                }
                Step::Unwatched(next) => {
                    before.push(Before::Block(next));
                    top = Frame { block: next, calls: 0 };
                    (has_returned, has_unwatched) = (false, true);
                }
                _ => return None,
            }
        }
    }

    /// Unwinds the stack to a caller that goes on with a block, or else to the innermost frame of its function.
    fn unwind(&mut self, block: TraceBlock, push: Push) -> Result<bool> {
        let function = self.code.function_of(block);
        let is_own = |depth: &usize| self.code.function_of(self.frames[*depth - 1].block) == function;
        let depths = (1..=self.frames.len()).rev().filter(is_own);
        let goes_on = |depth: usize| {
            let way = self.way(depth, block, Enters::Nothing).filter(|way| way.depth == depth);
            way.map(|way| (depth, Some(way)))
        };
        let found = depths.clone().find_map(goes_on).or_else(|| depths.clone().next().map(|depth| (depth, None)));
        let Some((depth, way)) = found else { return Ok(false) };
        for _ in depth..self.frames.len() {
            push(TraceEvent::Unwind)?;
        }
        self.frames.truncate(depth);
        match way {
            Some(way) => self.go(way, block, push)?,
            None => self.frames[depth - 1] = Frame { block, calls: 0 },
        }
        Ok(true)
    }

    /// Whether nothing of a frame can be left but its return.
    fn has_returned(&self, frame: Frame) -> bool {
        let mut frame = frame;
        while let Some(next) = self.unwatched_behind(frame) {
            frame = Frame { block: next, calls: 0 };
        }
        let (graph, index) = self.code.graph_of(frame.block);
        graph.block(index).end == BlockEnd::Return
    }

    /// What is left to do of all frames that return.
    fn ending(&self) -> Vec<Before> {
        let mut before = Vec::new();
        for &frame in self.frames.iter().rev() {
            let mut frame = frame;
            while let Some(next) = self.unwatched_behind(frame) {
                before.push(Before::Block(next));
                frame = Frame { block: next, calls: 0 };
            }
            before.push(Before::Return);
        }
        before
    }

    fn enter_from_outside(&mut self, block: TraceBlock, push: Push) -> Result<()> {
        push(TraceEvent::Call { outside: true, tail: false })?;
        self.forget_outermost();
        self.frames.push(Frame { block, calls: 0 });
        self.outermost.push(self.frames.len());
        Ok(())
    }

    /// Forgets frames that are gone, before another one takes their place.
    fn forget_outermost(&mut self) {
        while self.outermost.last().is_some_and(|outermost| *outermost > self.frames.len()) {
            self.outermost.pop();
        }
    }

    /// Goes on with another stack: of the calls that were open on the one before nothing is known when it goes on.
    fn switch(&mut self, block: TraceBlock, push: Push) -> Result<()> {
        self.switches += 1;
        for _ in 0..self.frames.len() {
            push(TraceEvent::Unwind)?;
        }
        self.frames.clear();
        self.enter_from_outside(block, push)
    }
}

/// Whether a block has an instruction.
fn is_at(place: u64) -> impl Fn(&FunctionGraph, BlockIndex) -> bool {
    move |graph, index| graph.block(index).contains(place)
}

impl Enters {
    fn allows(self, call: &CallSite, function: &FunctionGraph) -> bool {
        match self {
            Self::Nothing => false,
            Self::Usual => usually_enters(call, function),
            Self::Any => may_enter(call, function),
        }
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
