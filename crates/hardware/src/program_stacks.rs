//! The stacks that a thread of the program runs on, and the path stack of each: repairs by the addresses of frames.
//!
//! Where calls store their return addresses says which frame executes. A call that stores at A is made by the innermost
//! frame whose own return address lies above A; a return that loads from A leaves the frame whose return address lies at
//! A. Frames below have been left by `longjmp` or an exception, and their entries go before the branch is processed.
//! Between the jump and that branch nothing is pushed, so this has the effect of a handler that repairs at once.
//!
//! A coroutine, or a handler of signals with a stack of its own, has a path stack of its own, which its switch keeps as
//! the system keeps that of a thread. Stacks are distinguished by the range of addresses that was seen on each. Cost: a
//! comparison for each call and return; a search of the path stack for a repair, of all stacks for a switch.

use crate::path_stack::{Overflow, PathEntry, PathStack};
use crate::stream::Address;

/// A frame that large may be called without an earlier frame near it, after a jump that might have changed stacks.
const FAR: u64 = 1 << 20;
/// Addresses that near a stack's range belong to it, unless they are in another's.
const NEAR: u64 = 1 << 12;

/// Fewer bytes than the system stores for each signal: registers, those of vectors, the description of the signal.
const LEAST_OF_SIGNAL: u64 = 512;

/// A frame: where its return address lies, and what it is.
type Frame = (Address, Address);

/// A stack of the program.
#[derive(Clone, Debug)]
struct ProgramStack {
    paths: PathStack,
    /// Lowest and highest address of a return address that was seen on it; the lowest is above the highest if there is none.
    low: u64,
    high: u64,
    /// The frame that control left it from.
    left: Option<Frame>,
    /// Frames that paths were extended into, innermost last.
    extended: Vec<Frame>,
    /// The stack that was interrupted by the handler which runs on this one.
    interrupted: Option<usize>,
    /// A handler has begun, and where its frames are is not known.
    is_handler_new: bool,
}

impl ProgramStack {
    fn new(capacity: usize, overflow: Overflow) -> ProgramStack {
        ProgramStack {
            paths: PathStack::new(capacity, overflow),
            low: u64::MAX,
            high: 0,
            left: None,
            extended: Vec::new(),
            interrupted: None,
            is_handler_new: false,
        }
    }

    fn see(&mut self, at: Address) {
        self.low = self.low.min(at.0);
        self.high = self.high.max(at.0);
    }

    /// Whether an address lies in the range of this stack, or at most so far below or above it.
    fn spans(&self, at: Address, below: u64, above: u64) -> bool {
        self.low <= self.high && self.low.saturating_sub(below) <= at.0 && at.0 <= self.high.saturating_add(above)
    }

    /// Entries on top that belong to frames which are gone when a return loads from an address, or a call stores there.
    fn stale(&self, at: Address, is_return: bool) -> usize {
        let mut stale = 0;
        for (number, entry) in self.paths.from_top().enumerate() {
            match entry.stack {
                Some(stack) if stack == at && is_return => return number,
                // Where the handler returns from is not known exactly; it is above what it interrupted if that returns.
                Some(_) if entry.is_handler && is_return => {}
                Some(stack) if stack <= at => stale = number + 1,
                Some(_) => break,
                None => {}
            }
        }
        stale
    }

    /// Removes the extended calls that are gone; says whether there were any.
    fn cut_extended(&mut self, at: Address, is_return: bool) -> bool {
        let before = self.extended.len();
        while self.extended.last().is_some_and(|(stack, _)| *stack < at || (*stack == at && !is_return)) {
            self.extended.pop();
        }
        self.extended.len() < before
    }

    /// Whether a return to an address, which it loads from there, is one of a frame on this stack.
    fn has_frame(&self, frame: Frame) -> bool {
        self.paths.from_top().any(|entry| entry.frame() == Some(frame)) || self.extended.contains(&frame)
    }

    /// How many calls the path of a frame is extended across.
    fn extensions(&self, frame: Option<Address>) -> u16 {
        let inner = self.extended.iter().rev().take_while(|(stack, _)| frame.is_none_or(|frame| *stack < frame)).count();
        u16::try_from(inner).unwrap_or(u16::MAX)
    }
}

/// What a return does beside its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It returns to the caller.
    Caller,
    /// It leads to another place in the caller: a landing pad.
    Landing,
    /// It is a jump within its procedure: its target was pushed just before.
    Jump,
    /// It leads to the stack with this number, and leaves this frame.
    Stack(usize, Option<Frame>),
}

/// What was done beside the operations of branches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StackCounts {
    pub repairs: u64,
    pub switches: u64,
    pub unfinished: u64,
}

/// The stacks of a thread.
#[derive(Clone, Debug)]
pub(crate) struct ProgramStacks {
    stacks: Vec<ProgramStack>,
    current: usize,
    capacity: usize,
    overflow: Overflow,
    /// Paths are extended across calls.
    extends_calls: bool,
    /// A jump may have led to another frame since the last call or return.
    may_have_moved: bool,
    /// The first procedure of a handler has returned.
    has_returned: bool,
    pub counts: StackCounts,
}

impl ProgramStacks {
    pub fn new(capacity: usize, overflow: Overflow, extends_calls: bool) -> ProgramStacks {
        let stacks = vec![ProgramStack::new(capacity, overflow)];
        ProgramStacks {
            stacks,
            current: 0,
            capacity,
            overflow,
            extends_calls,
            may_have_moved: false,
            has_returned: false,
            counts: StackCounts::default(),
        }
    }

    pub fn memory(&self) -> u64 {
        self.stacks.iter().map(|s| size_of::<ProgramStack>() as u64 + s.paths.memory() + 16 * s.extended.capacity() as u64).sum()
    }

    /// The path stack of the stack in use.
    pub fn paths(&mut self) -> &mut PathStack {
        &mut self.stacks[self.current].paths
    }

    pub fn overflows(&self) -> u64 {
        self.stacks.iter().map(|s| s.paths.overflows()).sum()
    }

    pub fn deepest(&self) -> usize {
        self.stacks.iter().map(|s| s.paths.deepest()).max().unwrap_or(0)
    }

    /// Discards entries on top.
    pub fn discard(&mut self, number: usize) {
        for _ in 0..number {
            self.counts.unfinished += u64::from(self.paths().pop().is_some());
        }
    }

    /// Discards everything.
    pub fn discard_all(&mut self) {
        for number in 0..self.stacks.len() {
            self.current = number;
            let depth = self.paths().depth();
            self.discard(depth);
            let stack = &mut self.stacks[number];
            (stack.low, stack.high, stack.left, stack.interrupted, stack.is_handler_new) = (u64::MAX, 0, None, None, false);
            stack.extended.clear();
        }
        self.current = 0;
        self.may_have_moved = false;
        self.has_returned = false;
    }

    /// An indirect jump was processed.
    pub fn jumped(&mut self) {
        self.may_have_moved = true;
    }

    /// Prepares for a call that stores its return address there: its frame's entry is on top afterwards.
    pub fn before_call(&mut self, at: Address) {
        self.place_handler(Some(at));
        let may_have_moved = std::mem::take(&mut self.may_have_moved);
        let stack = &mut self.stacks[self.current];
        let is_inner = stack.paths.top().is_none_or(|top| top.stack.is_none_or(|frame| at < frame))
            && stack.extended.last().is_none_or(|(frame, _)| at < *frame);
        if !is_inner || (may_have_moved && !stack.spans(at, 0, 0)) {
            match self.locate(at, FAR) {
                Some(place) if place == self.current => self.unwind(at, false),
                place => self.carry(place, at, false),
            }
        }
        self.stacks[self.current].see(at);
    }

    /// A path is extended across a call.
    pub fn extend(&mut self, at: Address, return_address: Address) {
        self.stacks[self.current].extended.push((at, return_address));
    }

    /// Prepares for a return that loads from an address: its frame's entry is on top afterwards, unless it leads to another stack.
    pub fn before_return(&mut self, at: Address, target: Address) -> Arrival {
        self.place_handler(Some(at));
        let may_have_moved = std::mem::take(&mut self.may_have_moved);
        if self.frame() == Some((at, target)) {
            return Arrival::Caller;
        }
        let awaits = |(number, stack): (usize, &ProgramStack)| number != self.current && stack.left == Some((at, target));
        if let Some(number) = self.stacks.iter().enumerate().position(awaits) {
            return Arrival::Stack(number, self.frame());
        }
        match self.locate(at, NEAR) {
            Some(place) if place == self.current => {}
            Some(place) if may_have_moved && self.stacks[place].has_frame((at, target)) => self.carry(Some(place), at, true),
            Some(place) => return Arrival::Stack(place, self.frame()),
            None => return Arrival::Stack(self.add(), self.frame()),
        }
        self.unwind(at, true);
        self.stacks[self.current].see(at);
        match self.frame() {
            // A procedure whose call was not seen.
            None => Arrival::Caller,
            Some((frame, return_address)) if frame == at && return_address == target => Arrival::Caller,
            Some((frame, _)) if frame == at => Arrival::Landing,
            Some(_) => Arrival::Jump,
        }
    }

    /// Carries out where a return led, after its operations.
    pub fn arrive(&mut self, arrival: Arrival, popped: Option<PathEntry>, at: Address, target: Address) {
        match arrival {
            Arrival::Caller | Arrival::Jump => {}
            Arrival::Landing => self.take_over(PathEntry::starting_at(target)),
            Arrival::Stack(place, left) => {
                self.leave(place, left, popped);
                self.resume(at, target);
            }
        }
    }

    /// A path of an extended call has ended by a return: the innermost call is over.
    pub fn end_extended(&mut self) {
        self.stacks[self.current].extended.pop();
    }

    /// A handler begins. Until a call or return says which stack it runs on, it has one of its own.
    pub fn interrupt(&mut self, handler: Address) {
        let is_free = |stack: &ProgramStack| stack.low > stack.high && stack.paths.depth() == 0 && stack.interrupted.is_none();
        let free = self.stacks.iter().position(is_free).filter(|place| *place != self.current);
        let place = free.unwrap_or_else(|| self.add());
        let stack = &mut self.stacks[place];
        stack.paths.push(PathEntry { is_handler: true, ..PathEntry::starting_at(handler) });
        (stack.interrupted, stack.is_handler_new) = (Some(self.current), true);
        self.current = place;
        self.has_returned = false;
    }

    /// A handler's first procedure has returned, to code of the system that goes back to what was interrupted.
    pub fn handler_returned(&mut self) {
        self.has_returned = true;
        self.back_to_interrupted();
    }

    /// What a handler interrupted goes on.
    pub fn leave_handler(&mut self) {
        if !std::mem::take(&mut self.has_returned) {
            let above = self.paths().above(|entry| entry.is_handler);
            let is_own = self.stacks[self.current].interrupted.is_some();
            let depth = self.paths().depth();
            // On a stack of its own, what the path stack has lost may be the handler's first entry.
            self.discard(above.map_or(if is_own { depth } else { 0 }, |above| above + 1));
            self.back_to_interrupted();
        }
        self.may_have_moved = true;
    }

    fn back_to_interrupted(&mut self) {
        if let Some(interrupted) = self.stacks[self.current].interrupted.take() {
            self.current = interrupted;
        }
    }

    /// The innermost frame.
    fn frame(&mut self) -> Option<Frame> {
        let extends_calls = self.extends_calls;
        let stack = &mut self.stacks[self.current];
        let top = stack.paths.top()?;
        if extends_calls && top.extensions > 0 { stack.extended.last().copied() } else { top.frame() }
    }

    /// The stack that an address lies on, if it is known; it may lie so far below the one in use.
    fn locate(&self, at: Address, below: u64) -> Option<usize> {
        let current = &self.stacks[self.current];
        let other = |margin| self.stacks.iter().position(|stack| stack.spans(at, margin, margin));
        if current.low > current.high || current.spans(at, 0, 0) {
            return Some(self.current);
        }
        other(0).or_else(|| current.spans(at, below, NEAR).then_some(self.current)).or_else(|| other(NEAR))
    }

    fn add(&mut self) -> usize {
        self.stacks.push(ProgramStack::new(self.capacity, self.overflow));
        self.stacks.len() - 1
    }

    /// Removes what belongs to frames that are gone. The path on top goes on, in the frame that is left.
    fn unwind(&mut self, at: Address, is_return: bool) {
        let stack = &mut self.stacks[self.current];
        let has_cut = stack.cut_extended(at, is_return);
        let stale = stack.stale(at, is_return);
        if stale > 0 {
            let top = self.paths().pop();
            self.discard(stale - 1);
            top.into_iter().for_each(|top| self.take_over(top));
        } else if has_cut && let Some(frame) = stack.paths.top().map(|top| top.stack) {
            let extensions = stack.extensions(frame);
            stack.paths.top().into_iter().for_each(|top| top.extensions = extensions);
        }
        self.counts.repairs += u64::from(stale > 0 || has_cut);
    }

    /// Takes the path on top to the stack that a jump led to.
    fn carry(&mut self, place: Option<usize>, at: Address, is_return: bool) {
        let left = self.frame();
        let top = self.paths().pop();
        if top.is_some_and(|top| top.frame() != left) {
            self.end_extended();
        }
        let place = place.unwrap_or_else(|| self.add());
        self.leave(place, left, top);
        let stack = &mut self.stacks[self.current];
        stack.left = None;
        stack.cut_extended(at, is_return);
        let stale = stack.stale(at, is_return);
        self.discard(stale);
        top.into_iter().for_each(|top| self.take_over(top));
    }

    /// Leaves the stack in use for another, in a frame whose path was taken off.
    fn leave(&mut self, place: usize, left: Option<Frame>, path: Option<PathEntry>) {
        let stack = &mut self.stacks[self.current];
        stack.left = left;
        if let (Some(path), Some((_, return_address))) = (path, left)
            && path.frame() != left
        {
            // The path was extended into that frame, and its caller goes on with another.
            let extensions = stack.extensions(path.stack);
            let PathEntry { return_address: of_caller, stack: at, is_handler, .. } = path;
            let caller =
                PathEntry { extensions, return_address: of_caller, stack: at, is_handler, ..PathEntry::starting_at(return_address) };
            stack.paths.push(caller);
        }
        self.current = place;
        self.counts.switches += 1;
    }

    /// Goes on, on the stack that a return led to.
    fn resume(&mut self, at: Address, target: Address) {
        let stack = &mut self.stacks[self.current];
        stack.see(at);
        if stack.left.take() == Some((at, target)) {
            return;
        }
        stack.cut_extended(at, true);
        let stale = stack.stale(at, true);
        self.discard(stale);
        let frame = self.paths().top().and_then(|top| top.frame());
        if frame.is_some_and(|(frame, _)| frame == at) {
            self.discard(1);
        }
        if frame != Some((at, target)) {
            self.take_over(PathEntry::starting_at(target));
        }
    }

    /// A path takes the place of the one on top, whose procedure it belongs to.
    fn take_over(&mut self, mut path: PathEntry) {
        let extends_calls = self.extends_calls;
        let stack = &mut self.stacks[self.current];
        let replaced = stack.paths.pop();
        self.counts.unfinished += u64::from(replaced.is_some());
        let owner = replaced.unwrap_or_else(|| PathEntry::starting_at(path.path.start));
        (path.stack, path.return_address, path.is_handler) = (owner.stack, owner.return_address, owner.is_handler);
        if extends_calls {
            path.extensions = stack.extensions(path.stack);
        }
        stack.paths.push(path);
    }

    /// Moves a handler that has just begun to the stack that it runs on: that of the address, or, without one, the interrupted one.
    pub fn place_handler(&mut self, at: Option<Address>) {
        let begun = self.current;
        let stack = &mut self.stacks[begun];
        if !std::mem::take(&mut stack.is_handler_new) {
            return;
        }
        let Some(interrupted) = stack.interrupted else { return };
        let place = at.map_or(Some(interrupted), |at| self.stack_of_handler(at, interrupted));
        let Some(place) = place else { return };
        let mut handler: Vec<PathEntry> = std::iter::from_fn(|| self.stacks[begun].paths.pop()).collect();
        self.stacks[begun].interrupted = None;
        self.current = place;
        if place != interrupted {
            let left = self.paths().depth();
            self.discard(left);
            (self.stacks[place].interrupted, self.stacks[place].left) = (Some(interrupted), None);
        }
        let stack = &mut self.stacks[place];
        at.into_iter().for_each(|at| stack.see(at));
        while let Some(mut entry) = handler.pop() {
            if place == interrupted && entry.is_handler {
                // Its frames lie below what the system stores for it, and that below the frame that it interrupted.
                entry.stack = at.map(|at| Address(at.0.saturating_add(LEAST_OF_SIGNAL)));
            }
            stack.paths.push(entry);
        }
    }

    /// The stack of a handler with a frame at an address; `None` if it is a new one.
    fn stack_of_handler(&self, at: Address, interrupted: usize) -> Option<usize> {
        let stack = &self.stacks[interrupted];
        let innermost = stack.paths.from_top().find_map(|entry| entry.stack);
        let innermost = innermost.map_or(stack.high.saturating_add(1), |frame| frame.0);
        if stack.low > stack.high || (at.0 < innermost && stack.low.saturating_sub(FAR) <= at.0) {
            return Some(interrupted);
        }
        let near = |margin| self.stacks.iter().position(|stack| stack.spans(at, margin, margin));
        near(0).or_else(|| near(NEAR))
    }
}
