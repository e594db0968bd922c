//! Reconstruction of calls and returns from a thread's recorded blocks. Every watched block was recorded, so only the steps between
//! consecutive blocks must be determined.
//!
//! The replay maintains a stack of frames, each with its current block and the number of that block's calls already seen. The next block is
//! explained by the first of these steps that is possible: a pending call; a successor; a return to a caller that continues at the block;
//! unwinding to such a caller; a call from outside code. Unwatched pieces after calls count as executed if a later block implies it. After
//! code that loads the stack pointer from memory, the thread continues on a different stack, whose frames are unknown.
// Length: all steps of one stack.

use crate::code::TracedCode;
use crate::frames::FrameStack;
use crate::ordinary_steps::{OrdinaryStep, OrdinarySteps};
use crate::steps::{EnterableFunctions, ReplayFrame, ReplayStep, StepCache, StepKey};
use anyhow::Result;
use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use trodden_binary::graph::{BlockEnd, BlockIndex, CallKind, CodeCallee, CodeEdge, CodeEdgeKind, FunctionGraph};
use trodden_trace::block_file::TraceFileError;
use trodden_trace::{BlockLead, ThreadNumber, ThreadWriter, TraceBlock, TraceEvent};

/// The code that a run executed, and what is known about the run.
pub struct ReplayedCode<'a> {
    /// The traced functions and blocks.
    pub code: &'a TracedCode,
    /// Blocks that the run did not watch. They are parts of longer blocks, after a cut.
    pub unwatched: HashSet<TraceBlock>,
    /// For each block, whether it loads the stack pointer, so that it may switch to another stack.
    pub switching: Vec<bool>,
    /// The instructions that signal handlers interrupted, each with its thread, in the order of the interruptions.
    pub interrupted: Vec<(u32, u64)>,
    /// Address ranges of code that the program changed. Calls to functions in these ranges may be missing.
    pub changed: Vec<Range<u64>>,
}

/// Replays the blocks of one thread, and keeps track of its call stack.
pub struct ThreadReplay<'a> {
    replayed: &'a ReplayedCode<'a>,
    code: &'a TracedCode,
    frames: FrameStack,
    /// Stack depths of the functions that were entered from untraced code or by a signal.
    outermost: Vec<usize>,
    known: StepCache,
    /// A buffer for the implied steps of a route, which is reused to avoid allocations.
    scratch: Cell<Vec<ImpliedStep>>,
    /// Instructions that signal handlers interrupted. An entry is removed when its handler executes a traced block.
    interrupted: VecDeque<u64>,
    /// Number of times that the thread switched to another stack.
    pub switches: u64,
}

/// A step that was not recorded, but must have happened before the next recorded block.
enum ImpliedStep {
    Return,
    Block(TraceBlock),
}

/// How a thread gets from its current call stack to a recorded block: implied steps, and then the step to the block.
struct RouteToBlock {
    before: Vec<ImpliedStep>,
    /// The number of functions on the stack after the implied steps, and the innermost of them.
    depth: usize,
    top: ReplayFrame,
    step: ReplayStep,
}

/// Marks a site that is not a known block, so that its hits need special treatment.
pub const NO_BLOCK_AT_SITE: u32 = u32::MAX;

type EventPushFunction<'p> = &'p mut dyn FnMut(TraceEvent) -> Result<(), TraceFileError>;

impl<'a> ThreadReplay<'a> {
    /// Creates the replay of a thread. Its first block counts as entered from untraced code.
    pub fn new(replayed: &'a ReplayedCode<'a>, thread: ThreadNumber) -> Self {
        let interrupted = replayed.interrupted.iter().filter(|(of, _)| *of == thread.0).map(|(_, place)| *place).collect();
        Self {
            replayed,
            code: replayed.code,
            frames: FrameStack::default(),
            outermost: Vec::new(),
            interrupted,
            switches: 0,
            known: StepCache::new(),
            scratch: Cell::default(),
        }
    }

    /// Finds out how the thread got to its next block, and writes the block and the calls and returns before it.
    pub fn replay_block(&mut self, block: TraceBlock, writer: &mut ThreadWriter) -> Result<()> {
        while let Some(step) = self.find_ordinary_step(block) {
            self.write_ordinary_step(step, writer)?;
            if step.is_last() {
                return Ok(());
            }
        }
        self.replay_unusual_block(block, &mut |event| writer.push(event))
    }

    /// Like [`Self::replay_block`], but for consecutive hits of sites, up to the first site without a block, which has [`NO_BLOCK_AT_SITE`]
    /// in `block_of_site`. Returns the number of hits before it. `steps` must always be the same for this code.
    pub fn replay_sites(
        &mut self,
        sites: &[u32],
        block_of_site: &[u32],
        steps: &mut OrdinarySteps,
        writer: &mut ThreadWriter,
    ) -> Result<usize> {
        let mut done = 0;
        loop {
            let outermost = self.outermost.last().copied().unwrap_or(0);
            done += steps.follow(&sites[done..], block_of_site, &mut self.frames, outermost, writer)?;
            let Some(&site) = sites.get(done) else { return Ok(done) };
            let block = block_of_site[site as usize];
            if block == NO_BLOCK_AT_SITE {
                return Ok(done);
            }
            if let Some(step) = self.find_ordinary_step(TraceBlock(block)) {
                steps.add(step);
                self.write_ordinary_step(step, writer)?;
                done += usize::from(step.is_last());
            } else {
                self.replay_unusual_block(TraceBlock(block), &mut |event| writer.push(event))?;
                done += 1;
            }
        }
    }

    /// Returns the step on the way to `block` if it is the usual kind: to a successor, a called function, or a block after a call that has
    /// returned, with at most one unwatched block in between.
    fn find_ordinary_step(&self, block: TraceBlock) -> Option<OrdinaryStep> {
        let top = *self.frames.last()?;
        let leads_to_block = |step: &ReplayStep| match step {
            ReplayStep::Unwatched(piece) => self.is_next_or_call(*piece, block),
            _ => true,
        };
        match self.cached_step((top, block, EnterableFunctions::Usual, false)) {
            ReplayStep::Return => {
                let caller = *self.frames.iter().rev().nth(1)?;
                let step = Some(self.cached_step((caller, block, EnterableFunctions::Usual, true))).filter(leads_to_block)?;
                OrdinaryStep::new(BlockLead::RETURN, &step, block, top, caller)
            }
            ReplayStep::Call { .. } if self.replayed.switching[top.block.0 as usize] => None,
            step => Some(step).filter(leads_to_block).and_then(|step| OrdinaryStep::new(BlockLead::NONE, &step, block, top, top)),
        }
    }

    /// Returns true if execution may continue from the start of `piece` directly to `block`, or call it.
    fn is_next_or_call(&self, piece: TraceBlock, block: TraceBlock) -> bool {
        let step = self.cached_step((ReplayFrame { block: piece, calls: 0 }, block, EnterableFunctions::Usual, false));
        matches!(step, ReplayStep::Next | ReplayStep::Call { .. })
    }

    fn write_ordinary_step(&mut self, step: OrdinaryStep, writer: &mut ThreadWriter) -> Result<()> {
        let lead = step.symbol().lead();
        if lead.returns() {
            self.frames.pop();
        }
        if lead.calls() {
            self.drop_stale_outermost_frames();
            *self.frames.last_mut().expect("it has the frame in which the step starts") = step.calling_frame();
            self.frames.push(ReplayFrame { block: step.symbol().block(), calls: 0 });
        } else {
            self.set_innermost_block(step.symbol().block());
        }
        Ok(step.symbol().events().try_for_each(|event| writer.push(event))?)
    }

    fn set_innermost_block(&mut self, block: TraceBlock) {
        if let Some(frame) = self.frames.last_mut() {
            *frame = ReplayFrame { block, calls: 0 };
        }
    }

    /// Handles a block to which no ordinary steps lead.
    fn replay_unusual_block(&mut self, block: TraceBlock, push: EventPushFunction) -> Result<()> {
        let depth = self.frames.len();
        let switches = self.frames.last().is_some_and(|f| self.replayed.switching[f.block.0 as usize]);
        // If the usual callees do not explain the block, any function may have been called back from another file.
        let route = self.find_route(depth, block, EnterableFunctions::Usual);
        let route =
            route.or_else(|| if self.may_begin_handler(block) { None } else { self.find_route(depth, block, EnterableFunctions::Any) });
        match route {
            Some(route) if switches && route.before.is_empty() && matches!(route.step, ReplayStep::Call { .. }) => {
                self.switch_stack(block, push)?
            }
            Some(route) => self.follow_route(route, block, push)?,
            None => self.handle_unexplained_block(block, switches, push)?,
        }
        push(TraceEvent::Block(block))?;
        Ok(())
    }

    /// Ends the replay of the thread. `stack` is the known part of its call stack at that moment, from the innermost element on: the
    /// current instruction if it is traced, followed by return addresses. If `stack` is empty, the thread has returned from all traced
    /// functions.
    pub fn end_thread(&mut self, stack: &[u64], push: EventPushFunction) -> Result<()> {
        let route = match stack.first() {
            Some(&innermost) => self.implied_steps_to(|_, graph, index| {
                graph.block(index).contains(innermost) || graph.calls_in(index).any(|c| c.return_address == Some(innermost))
            }),
            None => self.implied_steps_to(|depth, graph, index| depth == 1 && graph.block(index).end == BlockEnd::Return),
        };
        self.apply_implied_steps(route, push)
    }

    /// Returns the steps that are implied if the nearest frame whose depth (1 for the outermost frame) and block satisfy `is_place` has
    /// become the innermost one. Also returns its depth and frame.
    fn implied_steps_to(
        &self,
        is_place: impl Fn(usize, &FunctionGraph, BlockIndex) -> bool,
    ) -> Option<(Vec<ImpliedStep>, usize, ReplayFrame)> {
        let is_reached = |depth: usize, frame: ReplayFrame| {
            let (graph, index) = self.code.graph_of(frame.block);
            is_place(depth, graph, index)
        };
        let mut top = self.frames.last().copied()?;
        let (mut before, mut depth) = (Vec::new(), self.frames.len());
        while !is_reached(depth, top) {
            let (graph, index) = self.code.graph_of(top.block);
            match self.unwatched_successor(top) {
                Some(next) => {
                    before.push(ImpliedStep::Block(next));
                    top = ReplayFrame { block: next, calls: 0 };
                }
                None if graph.block(index).end == BlockEnd::Return && depth > 1 => {
                    before.push(ImpliedStep::Return);
                    depth -= 1;
                    top = self.frames[depth - 1];
                }
                None => return None,
            }
        }
        Some((before, depth, top))
    }

    fn apply_implied_steps(&mut self, route: Option<(Vec<ImpliedStep>, usize, ReplayFrame)>, push: EventPushFunction) -> Result<()> {
        if let Some((before, depth, top)) = route {
            self.write_implied_steps(&before, push)?;
            self.frames.truncate(depth);
            self.frames[depth - 1] = top;
        }
        Ok(())
    }

    /// Returns true if `block` may be the beginning of the signal handler that caused the thread's next known interruption.
    fn may_begin_handler(&self, block: TraceBlock) -> bool {
        let (to, at) = self.code.graph_of(block);
        let is_entry = to.block(at).start == to.entry && to.is_address_taken;
        is_entry && self.interrupted.front().is_some_and(|place| self.implied_steps_to(contains_instruction(*place)).is_some())
    }

    /// Returns a route to `block` from the innermost of the first `depth` frames; `None` if no steps lead there.
    fn find_route(&self, depth: usize, block: TraceBlock, enters: EnterableFunctions) -> Option<RouteToBlock> {
        let (mut before, mut depth) = (self.scratch.take(), depth);
        before.clear();
        let mut top = self.frames[..depth].last().copied()?;
        let mut has_returned = false;
        loop {
            match self.cached_step((top, block, enters, has_returned)) {
                ReplayStep::Return => {
                    before.push(ImpliedStep::Return);
                    depth -= 1;
                    top = self.frames[..depth].last().copied()?;
                    has_returned = true;
                }
                ReplayStep::Unwatched(next) => {
                    before.push(ImpliedStep::Block(next));
                    top = ReplayFrame { block: next, calls: 0 };
                    has_returned = false;
                }
                ReplayStep::None => return None,
                step => return Some(RouteToBlock { before, depth, top, step }),
            }
        }
    }

    fn follow_route(&mut self, route: RouteToBlock, block: TraceBlock, push: EventPushFunction) -> Result<()> {
        self.write_implied_steps(&route.before, push)?;
        self.scratch.set(route.before);
        self.frames.truncate(route.depth);
        if let Some(top) = self.frames.last_mut() {
            *top = route.top;
        }
        self.take_step(&route.step, block, push)
    }

    fn write_implied_steps(&self, before: &[ImpliedStep], push: EventPushFunction) -> Result<()> {
        for step in before {
            push(match step {
                ImpliedStep::Return => TraceEvent::Return,
                ImpliedStep::Block(block) => TraceEvent::Block(*block),
            })?;
        }
        Ok(())
    }

    fn take_step(&mut self, step: &ReplayStep, block: TraceBlock, push: EventPushFunction) -> Result<()> {
        let frame = self.frames.last_mut().expect("the step is one of its block");
        let ReplayStep::Call { number, repeats, outside, tail } = *step else {
            *frame = ReplayFrame { block, calls: 0 };
            return Ok(());
        };
        push(TraceEvent::Call { outside, tail })?;
        frame.calls = number - u32::from(repeats);
        match tail {
            true => self.frames.pop(),
            false => self.drop_stale_outermost_frames(),
        }
        self.frames.push(ReplayFrame { block, calls: 0 });
        Ok(())
    }

    #[inline]
    fn cached_step(&self, key: StepKey) -> ReplayStep {
        let (frame, block, enters, has_returned) = key;
        self.known.get_or_compute(key, || self.find_step(frame, block, enters, has_returned))
    }

    /// Returns the step that leads from a frame to a block. If a call of the frame has just returned, its unwind edge is excluded, because
    /// a function that returns has not thrown.
    #[cold]
    fn find_step(&self, frame: ReplayFrame, block: TraceBlock, enters: EnterableFunctions, has_returned: bool) -> ReplayStep {
        let (graph, index) = self.code.graph_of(frame.block);
        let (to, at) = self.code.graph_of(block);
        let start = to.block(at).start;
        let mut is_over = false;
        for (number, call) in (1..).zip(graph.calls_in(index)).skip(frame.calls as usize) {
            if start == to.entry && enters.allows(call, to) {
                let outside = matches!(call.callee, CodeCallee::Import(_));
                let repeats = outside || matches!(call.callee, CodeCallee::Indirect);
                return ReplayStep::Call { number, repeats, outside, tail: call.kind != CallKind::Call };
            }
            // If this call were executed, the first block of its callee would have been recorded, so no later step of the frame is possible
            // yet.
            let is_seen = matches!(call.callee, CodeCallee::Function(entry) if self.is_seen(entry));
            match call.kind {
                CallKind::Call if is_seen => return ReplayStep::None,
                CallKind::Call => {}
                // The same holds for a return from a tail-called function.
                CallKind::TailCall | CallKind::ConditionalTailCall => is_over |= !is_seen,
            }
        }
        let is_next = |e: &CodeEdge| graph.block(e.to).start == start && !(has_returned && e.kind == CodeEdgeKind::Unwind);
        if std::ptr::eq(graph, to) && graph.successors(index).iter().any(is_next) {
            return ReplayStep::Next;
        }
        if let Some(next) = self.unwatched_successor(frame) {
            return ReplayStep::Unwatched(next);
        }
        match graph.block(index).end {
            BlockEnd::Return => ReplayStep::Return,
            _ if is_over => ReplayStep::Return,
            _ => ReplayStep::None,
        }
    }

    /// Returns true if each execution of the function with this entry is recorded.
    fn is_seen(&self, entry: u64) -> bool {
        self.code.block_at(entry).is_some() && !self.replayed.changed.iter().any(|changed| changed.contains(&entry))
    }

    /// Returns the unwatched block into which a frame's block falls through.
    fn unwatched_successor(&self, frame: ReplayFrame) -> Option<TraceBlock> {
        let (graph, index) = self.code.graph_of(frame.block);
        if graph.block(index).end != BlockEnd::FallThrough || self.replayed.unwatched.is_empty() {
            return None;
        }
        let next = self.code.block_at(graph.block(index).end_address())?;
        self.replayed.unwatched.contains(&next).then_some(next)
    }

    /// Handles a block to which no steps lead: a call from untraced code, unwinding, a switch of stacks, or an edge that is missing from
    /// the graph.
    fn handle_unexplained_block(&mut self, block: TraceBlock, switches: bool, push: EventPushFunction) -> Result<()> {
        let (to, index) = self.code.graph_of(block);
        let is_entry = to.block(index).start == to.entry;
        if !is_entry && self.unwind_to_block(block, push)? {
            return Ok(());
        }
        // All traced functions can have returned to untraced code, which then made a call.
        if !self.frames.is_empty() && self.frames.iter().all(|frame| self.can_only_return(*frame)) {
            let before = self.implied_returns();
            self.write_implied_steps(&before, push)?;
            self.frames.truncate(0);
        }
        if switches && !self.frames.is_empty() {
            return self.switch_stack(block, push);
        }
        // The remaining cases are the start of a signal handler, a call from untraced code, and a trace that starts or resumes in the
        // middle of a function.
        let mut is_handler = false;
        if is_entry && to.is_address_taken {
            // Interruptions before the one that matches are dropped. Their handlers executed no traced block.
            let found =
                (0..self.interrupted.len()).find_map(|n| Some((n, self.implied_steps_to(contains_instruction(self.interrupted[n]))?)));
            if let Some((number, route)) = found {
                self.interrupted.drain(..=number);
                self.apply_implied_steps(Some(route), push)?;
                is_handler = true;
            }
        }
        if is_entry {
            let route = self.implied_steps_to_outside(block, is_handler);
            self.apply_implied_steps(route, push)?;
        }
        self.switches += u64::from(!is_entry && !self.frames.is_empty());
        self.enter_function_from_outside(block, push)
    }

    /// Returns the steps by which the innermost functions return to untraced code, which then enters `block`. For example, a signal handler
    /// returns to code that resumes the thread, or generated code calls a function again and again. If `block` begins a signal handler, the
    /// interrupted function has not returned.
    fn implied_steps_to_outside(&self, block: TraceBlock, is_handler: bool) -> Option<(Vec<ImpliedStep>, usize, ReplayFrame)> {
        let mut depth = self.frames.len();
        let outermost = self.outermost.iter().rev().copied().find(|outermost| *outermost <= depth)?;
        let mut top = self.frames.last().copied()?;
        let (mut before, mut has_returned, mut is_certain) = (Vec::new(), false, false);
        let mut only_returns = !is_handler;
        loop {
            let step = self.cached_step((top, block, EnterableFunctions::Nothing, has_returned));
            only_returns &= self.can_only_return(top);
            match step {
                ReplayStep::Return if depth == outermost && only_returns => {
                    before.push(ImpliedStep::Return);
                    return Some((before, depth - 1, *self.frames.get(depth.wrapping_sub(2))?));
                }
                ReplayStep::Return if depth == outermost => return is_certain.then_some((before, depth, top)),
                ReplayStep::Return => {
                    before.push(ImpliedStep::Return);
                    depth -= 1;
                    top = self.frames[depth - 1];
                    has_returned = true;
                }
                ReplayStep::Unwatched(next) => {
                    before.push(ImpliedStep::Block(next));
                    top = ReplayFrame { block: next, calls: 0 };
                    (has_returned, is_certain) = (false, true);
                }
                _ => return None,
            }
        }
    }

    /// Unwinds the stack to a function that can continue with `block`, or else to the innermost call of the function that contains `block`.
    /// Returns false if the stack has no call of this function.
    fn unwind_to_block(&mut self, block: TraceBlock, push: EventPushFunction) -> Result<bool> {
        let function = self.code.function_of(block);
        let is_own = |depth: &usize| self.code.function_of(self.frames[*depth - 1].block) == function;
        let depths = (1..=self.frames.len()).rev().filter(is_own);
        let continues_at = |depth: usize| {
            let route = self.find_route(depth, block, EnterableFunctions::Nothing).filter(|route| route.depth == depth);
            route.map(|route| (depth, Some(route)))
        };
        let found = depths.clone().find_map(continues_at).or_else(|| depths.clone().next().map(|depth| (depth, None)));
        let Some((depth, route)) = found else { return Ok(false) };
        for _ in depth..self.frames.len() {
            push(TraceEvent::Unwind)?;
        }
        self.frames.truncate(depth);
        match route {
            Some(route) => self.follow_route(route, block, push)?,
            None => self.frames[depth - 1] = ReplayFrame { block, calls: 0 },
        }
        Ok(true)
    }

    /// Returns true if the frame can only return next.
    fn can_only_return(&self, frame: ReplayFrame) -> bool {
        let mut frame = frame;
        while let Some(next) = self.unwatched_successor(frame) {
            frame = ReplayFrame { block: next, calls: 0 };
        }
        let (graph, index) = self.code.graph_of(frame.block);
        graph.block(index).end == BlockEnd::Return && graph.calls_in(index).nth(frame.calls as usize).is_none()
    }

    fn implied_returns(&self) -> Vec<ImpliedStep> {
        let mut before = Vec::new();
        for &frame in self.frames.iter().rev() {
            let mut frame = frame;
            while let Some(next) = self.unwatched_successor(frame) {
                before.push(ImpliedStep::Block(next));
                frame = ReplayFrame { block: next, calls: 0 };
            }
            before.push(ImpliedStep::Return);
        }
        before
    }

    fn enter_function_from_outside(&mut self, block: TraceBlock, push: EventPushFunction) -> Result<()> {
        push(TraceEvent::Call { outside: true, tail: false })?;
        self.drop_stale_outermost_frames();
        self.frames.push(ReplayFrame { block, calls: 0 });
        self.outermost.push(self.frames.len());
        Ok(())
    }

    /// Removes depths above the current one, because their frames have been popped and new frames may get the same depths.
    fn drop_stale_outermost_frames(&mut self) {
        while self.outermost.last().is_some_and(|outermost| *outermost > self.frames.len()) {
            self.outermost.pop();
        }
    }

    /// Continues on another stack. All functions on the old stack are unwound, because it is not known which stack a later switch resumes.
    fn switch_stack(&mut self, block: TraceBlock, push: EventPushFunction) -> Result<()> {
        self.switches += 1;
        for _ in 0..self.frames.len() {
            push(TraceEvent::Unwind)?;
        }
        self.frames.truncate(0);
        self.enter_function_from_outside(block, push)
    }
}

fn contains_instruction(place: u64) -> impl Fn(usize, &FunctionGraph, BlockIndex) -> bool {
    move |_, graph, index| graph.block(index).contains(place)
}
