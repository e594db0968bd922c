//! The program stacks that a thread runs on. Each of them has its own path stack, which is repaired by frame addresses.
//!
//! A call that stores its return address at A is made by the innermost frame whose own return address is above A. A return that loads
//! from A leaves the frame whose return address is at A. Frames below were abandoned by `longjmp` or an exception, so their entries are
//! discarded before the branch is processed. This is equivalent to a repair at the time of the jump, because nothing is pushed between
//! the jump and that branch. Coroutines and signal handlers that run on separate stacks have separate path stacks. A stack is recognised
//! by the range of the addresses seen on it.

use crate::path_stack::{PathEntry, PathStack, StackOverflowPolicy};
use crate::stream::Address;

/// Maximum distance in bytes below the known range of the current stack at which a call still counts as being on that stack, if control may
/// have jumped to another stack before.
const MAX_CALL_DISTANCE_BYTES: u64 = 1 << 20;
/// An address within this many bytes of a stack's range counts as part of that stack, unless it is in another stack's range.
const STACK_RANGE_MARGIN_BYTES: u64 = 1 << 12;

/// Minimum size in bytes of the kernel's signal frame, which holds general registers, vector registers and a description of the signal.
const MIN_SIGNAL_FRAME_SIZE: u64 = 512;

/// A frame, identified by the location and the value of its return address.
type ReturnFrame = (Address, Address);

#[derive(Clone, Debug)]
struct ProgramStack {
    paths: PathStack,
    /// Lowest and highest locations of the return addresses seen on this stack. The range is empty if `low > high`.
    low: u64,
    high: u64,
    /// The frame that was executing when control switched from this stack to a different stack.
    left: Option<ReturnFrame>,
    /// Frames into which paths of callers were extended, innermost last.
    extended: Vec<ReturnFrame>,
    /// If a signal handler runs on this stack, the index of the stack that it interrupted.
    interrupted: Option<usize>,
    /// True if a handler has begun on this provisional stack and it is not known yet on which stack it really runs.
    is_handler_new: bool,
}

impl ProgramStack {
    fn new(capacity: usize, overflow: StackOverflowPolicy) -> ProgramStack {
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

    fn extend_range(&mut self, at: Address) {
        self.low = self.low.min(at.0);
        self.high = self.high.max(at.0);
    }

    /// Returns true if an address is in the range of this stack, extended by `below` and `above`.
    fn spans_address(&self, at: Address, below: u64, above: u64) -> bool {
        self.low <= self.high && self.low.saturating_sub(below) <= at.0 && at.0 <= self.high.saturating_add(above)
    }

    /// Returns how many entries on top belong to frames that no longer exist, given that a return loads its address from `at` or a call
    /// stores it there.
    fn count_stale_entries(&self, at: Address, is_return: bool) -> usize {
        let mut stale_entries = 0;
        for (number, entry) in self.paths.iter_from_top().enumerate() {
            match entry.stack {
                Some(stack) if stack == at && is_return => return number,
                // The location of the handler's return address is only estimated.
                Some(_) if entry.is_handler && is_return => {}
                Some(stack) if stack <= at => stale_entries = number + 1,
                Some(_) => break,
                None => {}
            }
        }
        stale_entries
    }

    /// Forgets the frames into which paths were extended and which no longer exist, given that a return or call uses the location `at`.
    /// Returns true if there were any.
    fn remove_dead_extension_frames(&mut self, at: Address, is_return: bool) -> bool {
        let before = self.extended.len();
        while self.extended.last().is_some_and(|(stack, _)| *stack < at || (*stack == at && !is_return)) {
            self.extended.pop();
        }
        self.extended.len() < before
    }

    fn has_frame(&self, frame: ReturnFrame) -> bool {
        self.paths.iter_from_top().any(|entry| entry.frame() == Some(frame)) || self.extended.contains(&frame)
    }

    /// Returns the number of calls across which the path of a frame is extended.
    fn count_extensions(&self, frame: Option<Address>) -> u16 {
        let inner = self.extended.iter().rev().take_while(|(stack, _)| frame.is_none_or(|frame| *stack < frame)).count();
        u16::try_from(inner).unwrap_or(u16::MAX)
    }
}

/// Where a return leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnTarget {
    /// To the caller, after the call.
    Caller,
    /// To a different address in the caller, such as a landing pad.
    Landing,
    /// To a target within the returning procedure, which pushed the address just before: the return is used as a jump.
    Jump,
    /// To a frame on another stack, with this index. The second field is the frame that control leaves.
    Stack(usize, Option<ReturnFrame>),
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StackCounts {
    pub repairs: u64,
    pub switches: u64,
    pub unfinished: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct ProgramStacks {
    stacks: Vec<ProgramStack>,
    current: usize,
    capacity: usize,
    overflow: StackOverflowPolicy,
    extends_calls: bool,
    /// True if a jump since the last call or return may have led to another frame or stack.
    may_have_moved: bool,
    has_handler_returned: bool,
    pub counts: StackCounts,
}

impl ProgramStacks {
    pub fn new(capacity: usize, overflow: StackOverflowPolicy, extends_calls: bool) -> ProgramStacks {
        let stacks = vec![ProgramStack::new(capacity, overflow)];
        ProgramStacks {
            stacks,
            current: 0,
            capacity,
            overflow,
            extends_calls,
            may_have_moved: false,
            has_handler_returned: false,
            counts: StackCounts::default(),
        }
    }

    pub fn memory(&self) -> u64 {
        self.stacks.iter().map(|s| size_of::<ProgramStack>() as u64 + s.paths.memory() + 16 * s.extended.capacity() as u64).sum()
    }

    /// Returns the path stack of the current stack.
    pub fn paths(&mut self) -> &mut PathStack {
        &mut self.stacks[self.current].paths
    }

    pub fn overflows(&self) -> u64 {
        self.stacks.iter().map(|s| s.paths.overflows()).sum()
    }

    pub fn max_depth(&self) -> usize {
        self.stacks.iter().map(|s| s.paths.max_depth()).max().unwrap_or(0)
    }

    /// Discards the given number of entries from the top of the path stack.
    pub fn discard_top_entries(&mut self, number: usize) {
        for _ in 0..number {
            self.counts.unfinished += u64::from(self.paths().pop().is_some());
        }
    }

    /// Discards all entries of all stacks, and forgets what is known about the stacks.
    pub fn discard_all_entries(&mut self) {
        for number in 0..self.stacks.len() {
            self.current = number;
            let depth = self.paths().depth();
            self.discard_top_entries(depth);
            let stack = &mut self.stacks[number];
            (stack.low, stack.high, stack.left, stack.interrupted, stack.is_handler_new) = (u64::MAX, 0, None, None, false);
            stack.extended.clear();
        }
        self.current = 0;
        self.may_have_moved = false;
        self.has_handler_returned = false;
    }

    /// Records that an indirect jump was executed; it may be a `longjmp` or a switch to a different stack.
    pub fn record_indirect_jump(&mut self) {
        self.may_have_moved = true;
    }

    /// Prepares for a call that stores its return address at `at`. Afterwards, the entry of the calling frame is on top.
    pub fn prepare_call(&mut self, at: Address) {
        self.move_handler_to_its_stack(Some(at));
        let may_have_moved = std::mem::take(&mut self.may_have_moved);
        let stack = &mut self.stacks[self.current];
        let is_inner = stack.paths.top().is_none_or(|top| top.stack.is_none_or(|frame| at < frame))
            && stack.extended.last().is_none_or(|(frame, _)| at < *frame);
        if !is_inner || (may_have_moved && !stack.spans_address(at, 0, 0)) {
            match self.find_stack(at, MAX_CALL_DISTANCE_BYTES) {
                Some(place) if place == self.current => self.unwind_stack(at, false),
                place => self.move_top_path_to_stack(place, at, false),
            }
        }
        self.stacks[self.current].extend_range(at);
    }

    /// Records that a path is extended across a call.
    pub fn record_extension(&mut self, at: Address, return_address: Address) {
        self.stacks[self.current].extended.push((at, return_address));
    }

    /// Prepares for a return that loads from `at`. Afterwards, the entry of the returning frame is on top, unless the return switches
    /// stacks.
    pub fn prepare_return(&mut self, at: Address, target: Address) -> ReturnTarget {
        self.move_handler_to_its_stack(Some(at));
        let may_have_moved = std::mem::take(&mut self.may_have_moved);
        if self.innermost_frame() == Some((at, target)) {
            return ReturnTarget::Caller;
        }
        let awaits = |(number, stack): (usize, &ProgramStack)| number != self.current && stack.left == Some((at, target));
        if let Some(number) = self.stacks.iter().enumerate().position(awaits) {
            return ReturnTarget::Stack(number, self.innermost_frame());
        }
        match self.find_stack(at, STACK_RANGE_MARGIN_BYTES) {
            Some(place) if place == self.current => {}
            Some(place) if may_have_moved && self.stacks[place].has_frame((at, target)) => {
                self.move_top_path_to_stack(Some(place), at, true)
            }
            Some(place) => return ReturnTarget::Stack(place, self.innermost_frame()),
            None => return ReturnTarget::Stack(self.add_stack(), self.innermost_frame()),
        }
        self.unwind_stack(at, true);
        self.stacks[self.current].extend_range(at);
        match self.innermost_frame() {
            // The detector did not see the call to the returning procedure.
            None => ReturnTarget::Caller,
            Some((frame, return_address)) if frame == at && return_address == target => ReturnTarget::Caller,
            Some((frame, _)) if frame == at => ReturnTarget::Landing,
            Some(_) => ReturnTarget::Jump,
        }
    }

    /// Completes a return after the detector performed its operations.
    pub fn complete_return(&mut self, return_target: ReturnTarget, popped: Option<PathEntry>, at: Address, target: Address) {
        match return_target {
            ReturnTarget::Caller | ReturnTarget::Jump => {}
            ReturnTarget::Landing => self.replace_top(PathEntry::start_at_address(target)),
            ReturnTarget::Stack(place, left) => {
                self.switch_stack_from_frame(place, left, popped);
                self.resume_stack(at, target);
            }
        }
    }

    /// Forgets the innermost call across which a path was extended, after the called procedure has returned.
    pub fn end_innermost_extension(&mut self) {
        self.stacks[self.current].extended.pop();
    }

    /// Enters a signal handler. The handler gets a provisional stack until a call or return shows which stack it runs on.
    pub fn enter_handler(&mut self, handler: Address) {
        let is_free = |stack: &ProgramStack| stack.low > stack.high && stack.paths.depth() == 0 && stack.interrupted.is_none();
        let free = self.stacks.iter().position(is_free).filter(|place| *place != self.current);
        let place = free.unwrap_or_else(|| self.add_stack());
        let stack = &mut self.stacks[place];
        stack.paths.push(PathEntry { is_handler: true, ..PathEntry::start_at_address(handler) });
        (stack.interrupted, stack.is_handler_new) = (Some(self.current), true);
        self.current = place;
        self.has_handler_returned = false;
    }

    /// Handles the return of a handler's first procedure, which returns to system code. That code then resumes the interrupted code.
    pub fn leave_first_procedure(&mut self) {
        self.has_handler_returned = true;
        self.switch_to_interrupted();
    }

    /// Leaves a handler and resumes the interrupted code.
    pub fn leave_handler(&mut self) {
        if !std::mem::take(&mut self.has_handler_returned) {
            let above = self.paths().count_entries_above_match(|entry| entry.is_handler);
            let is_own = self.stacks[self.current].interrupted.is_some();
            let depth = self.paths().depth();
            // If the handler ran on a separate stack, its first entry may have been dropped.
            self.discard_top_entries(above.map_or(if is_own { depth } else { 0 }, |above| above + 1));
            self.switch_to_interrupted();
        }
        self.may_have_moved = true;
    }

    fn switch_to_interrupted(&mut self) {
        if let Some(interrupted) = self.stacks[self.current].interrupted.take() {
            self.current = interrupted;
        }
    }

    /// Returns the innermost frame, or `None` if its call was not seen.
    fn innermost_frame(&mut self) -> Option<ReturnFrame> {
        let extends_calls = self.extends_calls;
        let stack = &mut self.stacks[self.current];
        let top = stack.paths.top()?;
        if extends_calls && top.extensions > 0 { stack.extended.last().copied() } else { top.frame() }
    }

    /// Finds the stack that contains an address; returns `None` if no known stack does. An address up to `below` bytes under the current
    /// stack's range counts as part of the current stack.
    fn find_stack(&self, at: Address, below: u64) -> Option<usize> {
        let current = &self.stacks[self.current];
        let other = |margin| self.stacks.iter().position(|stack| stack.spans_address(at, margin, margin));
        if current.low > current.high || current.spans_address(at, 0, 0) {
            return Some(self.current);
        }
        other(0)
            .or_else(|| current.spans_address(at, below, STACK_RANGE_MARGIN_BYTES).then_some(self.current))
            .or_else(|| other(STACK_RANGE_MARGIN_BYTES))
    }

    fn add_stack(&mut self) -> usize {
        self.stacks.push(ProgramStack::new(self.capacity, self.overflow));
        self.stacks.len() - 1
    }

    /// Discards the entries of frames that no longer exist. The path on top continues in the frame that remains.
    fn unwind_stack(&mut self, at: Address, is_return: bool) {
        let stack = &mut self.stacks[self.current];
        let has_removed = stack.remove_dead_extension_frames(at, is_return);
        let stale_entries = stack.count_stale_entries(at, is_return);
        if stale_entries > 0 {
            let top = self.paths().pop();
            self.discard_top_entries(stale_entries - 1);
            top.into_iter().for_each(|top| self.replace_top(top));
        } else if has_removed && let Some(frame) = stack.paths.top().map(|top| top.stack) {
            let extensions = stack.count_extensions(frame);
            stack.paths.top().into_iter().for_each(|top| top.extensions = extensions);
        }
        self.counts.repairs += u64::from(stale_entries > 0 || has_removed);
    }

    /// Moves the path on top to the stack to which a jump has led.
    fn move_top_path_to_stack(&mut self, place: Option<usize>, at: Address, is_return: bool) {
        let left = self.innermost_frame();
        let top = self.paths().pop();
        if top.is_some_and(|top| top.frame() != left) {
            self.end_innermost_extension();
        }
        let place = place.unwrap_or_else(|| self.add_stack());
        self.switch_stack_from_frame(place, left, top);
        let stack = &mut self.stacks[self.current];
        stack.left = None;
        stack.remove_dead_extension_frames(at, is_return);
        let stale_entries = stack.count_stale_entries(at, is_return);
        self.discard_top_entries(stale_entries);
        top.into_iter().for_each(|top| self.replace_top(top));
    }

    /// Switches from the current stack to a different one. `left` is the frame that control leaves, and `path` is the path that was
    /// popped for it.
    fn switch_stack_from_frame(&mut self, place: usize, left: Option<ReturnFrame>, path: Option<PathEntry>) {
        let stack = &mut self.stacks[self.current];
        stack.left = left;
        if let (Some(path), Some((_, return_address))) = (path, left)
            && path.frame() != left
        {
            // The path was extended into the frame that control leaves, so a new path begins in that frame's caller.
            let extensions = stack.count_extensions(path.stack);
            let PathEntry { return_address: of_caller, stack: at, is_handler, .. } = path;
            let caller =
                PathEntry { extensions, return_address: of_caller, stack: at, is_handler, ..PathEntry::start_at_address(return_address) };
            stack.paths.push(caller);
        }
        self.current = place;
        self.counts.switches += 1;
    }

    /// Resumes the current stack at the destination of a return.
    fn resume_stack(&mut self, at: Address, target: Address) {
        let stack = &mut self.stacks[self.current];
        stack.extend_range(at);
        if stack.left.take() == Some((at, target)) {
            return;
        }
        stack.remove_dead_extension_frames(at, true);
        let stale_entries = stack.count_stale_entries(at, true);
        self.discard_top_entries(stale_entries);
        let frame = self.paths().top().and_then(|top| top.frame());
        if frame.is_some_and(|(frame, _)| frame == at) {
            self.discard_top_entries(1);
        }
        if frame != Some((at, target)) {
            self.replace_top(PathEntry::start_at_address(target));
        }
    }

    /// Replaces the entry on top with a path of the same procedure.
    fn replace_top(&mut self, mut path: PathEntry) {
        let extends_calls = self.extends_calls;
        let stack = &mut self.stacks[self.current];
        let replaced = stack.paths.pop();
        self.counts.unfinished += u64::from(replaced.is_some());
        let owner = replaced.unwrap_or_else(|| PathEntry::start_at_address(path.path.start));
        (path.stack, path.return_address, path.is_handler) = (owner.stack, owner.return_address, owner.is_handler);
        if extends_calls {
            path.extensions = stack.count_extensions(path.stack);
        }
        stack.paths.push(path);
    }

    /// Moves a handler that has just begun from its provisional stack to the stack that it runs on. That stack contains `at`; if `at` is
    /// `None`, it is the interrupted stack.
    pub fn move_handler_to_its_stack(&mut self, at: Option<Address>) {
        let provisional = self.current;
        let stack = &mut self.stacks[provisional];
        if !std::mem::take(&mut stack.is_handler_new) {
            return;
        }
        let Some(interrupted) = stack.interrupted else { return };
        let place = at.map_or(Some(interrupted), |at| self.find_handler_stack(at, interrupted));
        let Some(place) = place else { return };
        let mut handler: Vec<PathEntry> = std::iter::from_fn(|| self.stacks[provisional].paths.pop()).collect();
        self.stacks[provisional].interrupted = None;
        self.current = place;
        if place != interrupted {
            let left = self.paths().depth();
            self.discard_top_entries(left);
            (self.stacks[place].interrupted, self.stacks[place].left) = (Some(interrupted), None);
        }
        let stack = &mut self.stacks[place];
        at.into_iter().for_each(|at| stack.extend_range(at));
        while let Some(mut entry) = handler.pop() {
            if place == interrupted && entry.is_handler {
                // The handler's frames are below the kernel's signal frame, which is below the interrupted frame.
                entry.stack = at.map(|at| Address(at.0.saturating_add(MIN_SIGNAL_FRAME_SIZE)));
            }
            stack.paths.push(entry);
        }
    }

    /// Finds the known stack that a handler with a frame at `at` runs on. Returns `None` if the stack is new.
    fn find_handler_stack(&self, at: Address, interrupted: usize) -> Option<usize> {
        let stack = &self.stacks[interrupted];
        let innermost = stack.paths.iter_from_top().find_map(|entry| entry.stack);
        let innermost = innermost.map_or(stack.high.saturating_add(1), |frame| frame.0);
        if stack.low > stack.high || (at.0 < innermost && stack.low.saturating_sub(MAX_CALL_DISTANCE_BYTES) <= at.0) {
            return Some(interrupted);
        }
        let closest = |margin| self.stacks.iter().position(|stack| stack.spans_address(at, margin, margin));
        closest(0).or_else(|| closest(STACK_RANGE_MARGIN_BYTES))
    }
}
