//! The path detector: turns the retired branches of one thread into paths (section 5.2).
//!
//! Each branch performs the operations of its class in a fixed order: update the path on top or only its event counter, pop, push. A path
//! that reaches the length limit is popped, and a new path begins after the branch. The paper leaves three cases open. In this model:
//! - [`StackRepair`] decides what happens to a path stack that no longer matches the program's stack.
//! - When a procedure returns whose call was not seen, a path begins at the return's target.
//! - A path may begin in a procedure that the previous path was extended into. The new path then inherits the number of extensions;
//!   otherwise, the return of that procedure would pop the entry of a different procedure.

use crate::descriptor::{MAX_DESCRIPTOR_BRANCHES, PathDescriptor};
use crate::error::HardwareError;
use crate::events::{CounterWidth, EventCounts};
use crate::mapping::{BranchType, OperationMapping, PathExtension, PathStackOperations};
use crate::path_stack::{PathEntry, StackOverflowPolicy};
use crate::program_stacks::{ProgramStacks, ReturnTarget};
use crate::stream::{Address, RetiredBranch, StreamEvent};

/// How the path stack is kept consistent after `longjmp` and exceptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StackRepair {
    /// Uses the locations of return addresses on the program's stack. If the event source does not provide them, the repair is a guess: a
    /// return to an unexpected address is assumed to follow a `longjmp` or an exception. The path stack is then searched for the entry with
    /// that return address, and all entries above it are discarded. If no entry matches, the return acts like an indirect branch.
    #[default]
    Frames,
    /// Does nothing: each return pops one entry, whatever its target.
    None,
}

/// The programmable parameters of a detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectorParameters {
    /// The operations that each branch class performs.
    pub mapping: OperationMapping,
    /// Maximum number of branches in a path.
    pub length_limit: u8,
    /// Maximum number of entries on the path stack.
    pub stack_entries: usize,
    /// What happens when the path stack is full.
    pub overflow: StackOverflowPolicy,
    /// How the path stack is repaired after `longjmp` and exceptions.
    pub repair: StackRepair,
    /// Width of the event counter in each entry.
    pub counter_width: CounterWidth,
}

impl DetectorParameters {
    /// The published configuration: paths of up to 32 branches, 8-bit counters, and 32 stack entries, of which the oldest is dropped on
    /// overflow.
    pub fn published(mapping: OperationMapping) -> DetectorParameters {
        DetectorParameters {
            mapping,
            length_limit: 32,
            stack_entries: 32,
            overflow: StackOverflowPolicy::Drop,
            repair: StackRepair::Frames,
            counter_width: CounterWidth::PUBLISHED,
        }
    }

    /// Checks that all parameters are in range.
    pub fn check(&self) -> Result<(), HardwareError> {
        if !(1..=MAX_DESCRIPTOR_BRANCHES).contains(&self.length_limit) {
            return Err(HardwareError::parameter("branches of a path", self.length_limit, "1 to 64"));
        }
        if self.stack_entries == 0 {
            return Err(HardwareError::parameter("entries of the path stack", 0, "at least 1"));
        }
        Ok(())
    }
}

/// Why a path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathEndReason {
    /// A branch of this class popped the path.
    Branch(BranchType),
    /// The path reached the length limit.
    Limit,
}

impl PathEndReason {
    /// Returns the name used in files: that of the branch class, or `limit`.
    pub fn name(self) -> &'static str {
        match self {
            PathEndReason::Branch(class) => class.name(),
            PathEndReason::Limit => "limit",
        }
    }
}

/// A completed path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedPath {
    /// The path that was completed.
    pub path: PathDescriptor,
    /// Events that occurred along the path.
    pub events: EventCounts,
    /// Number of instructions on the path, for statistics; the hardware does not know it.
    pub instructions: u32,
    /// Why the path ended.
    pub end: PathEndReason,
}

/// Statistics of a detector. All fields except `max_depth` are counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetectorCounts {
    /// Processed branches.
    pub branches: u64,
    /// Operations on the path stack. A pop, a push, and an update of a path or of its event counter count as one each.
    pub operations: u64,
    /// Completed paths.
    pub paths: u64,
    /// Paths split at the length limit.
    pub splits: u64,
    /// Pushes while the stack was full.
    pub overflows: u64,
    /// Greatest number of entries on the path stack at one time.
    pub max_depth: u64,
    /// Returns that left the path stack empty.
    pub underflows: u64,
    /// Repairs of the path stack after `longjmp` and exceptions.
    pub repairs: u64,
    /// Guessed repairs: returns that matched a call further down the stack.
    pub guessed_repairs: u64,
    /// Switches between the program's stacks (coroutines).
    pub switches: u64,
    /// Returns that matched no open call.
    pub unmatched_returns: u64,
    /// Unfinished paths that were discarded by repairs, gaps or thread exits.
    pub unfinished: u64,
    /// Signal handlers that were entered.
    pub interrupts: u64,
    /// Gaps in the event stream.
    pub gaps: u64,
    /// Branches at which an event counter of the path on top saturated.
    pub saturated: u64,
}

impl DetectorCounts {
    /// Adds the statistics of another thread's detector.
    pub fn add(&mut self, other: &DetectorCounts) {
        self.branches += other.branches;
        self.operations += other.operations;
        self.paths += other.paths;
        self.splits += other.splits;
        self.overflows += other.overflows;
        self.max_depth = self.max_depth.max(other.max_depth);
        self.underflows += other.underflows;
        self.repairs += other.repairs;
        self.guessed_repairs += other.guessed_repairs;
        self.switches += other.switches;
        self.unmatched_returns += other.unmatched_returns;
        self.unfinished += other.unfinished;
        self.interrupts += other.interrupts;
        self.gaps += other.gaps;
        self.saturated += other.saturated;
    }
}

/// A path detector for one thread.
#[derive(Clone, Debug)]
pub struct Detector {
    parameters: DetectorParameters,
    has_frame_repair: bool,
    stacks: ProgramStacks,
    counts: DetectorCounts,
}

impl Detector {
    /// Returns the memory used, in bytes.
    pub fn memory(&self) -> u64 {
        size_of::<Self>() as u64 + self.stacks.memory()
    }

    /// Creates a detector with an empty stack.
    ///
    /// # Errors
    /// Fails if a parameter is out of range.
    pub fn new(parameters: DetectorParameters) -> Result<Detector, HardwareError> {
        parameters.check()?;
        let has_frame_repair = parameters.repair == StackRepair::Frames && parameters.mapping.follows_procedures();
        let extends_calls = matches!(parameters.mapping.extension, PathExtension::Calls(_));
        let stacks = ProgramStacks::new(parameters.stack_entries, parameters.overflow, extends_calls);
        Ok(Detector { parameters, has_frame_repair, stacks, counts: DetectorCounts::default() })
    }

    /// Returns the statistics so far.
    pub fn counts(&self) -> DetectorCounts {
        let stack_counts = self.stacks.counts;
        DetectorCounts {
            overflows: self.stacks.overflows(),
            max_depth: self.stacks.max_depth() as u64,
            repairs: self.counts.guessed_repairs + stack_counts.repairs,
            switches: stack_counts.switches,
            unfinished: stack_counts.unfinished,
            ..self.counts
        }
    }

    /// Processes an event of the thread, and calls `emit` for each completed path. `events` are the event counts since the last branch;
    /// they matter only if `event` is a branch.
    pub fn process_event(&mut self, event: &StreamEvent, events: &EventCounts, emit: &mut impl FnMut(&CompletedPath)) {
        match event {
            StreamEvent::Branch(branch) => self.process_branch(branch, events, emit),
            StreamEvent::Begin(start) => self.restart_at_address(*start),
            StreamEvent::Gap(next) => {
                self.counts.gaps += 1;
                self.restart_at_address(*next);
            }
            StreamEvent::Interrupt(handler) => {
                self.counts.interrupts += 1;
                self.stacks.enter_handler(*handler);
            }
            StreamEvent::Resume(_) => self.stacks.leave_handler(),
            StreamEvent::End(_) => self.stacks.discard_all_entries(),
        }
    }

    /// Processes a branch, like [`Detector::process_event`].
    pub fn process_branch(&mut self, branch: &RetiredBranch, events: &EventCounts, emit: &mut impl FnMut(&CompletedPath)) {
        self.counts.branches += 1;
        let class = BranchType::from_branch(branch);
        let frame = branch.stack.filter(|_| self.has_frame_repair);
        if frame.is_none() && matches!(class, BranchType::Call | BranchType::Return) {
            self.stacks.move_handler_to_its_stack(None);
        }
        let return_target = frame.map_or(ReturnTarget::Caller, |at| self.repair_stack_before_branch(class, at, branch.target));
        let (mut operations, unwound) = self.select_operations(class, return_target, frame, branch);
        if unwound == UnwoundEntries::Unknown {
            operations.push = true;
        }
        let end = self.update_top(branch, operations, events).unwrap_or(PathEndReason::Branch(class));
        let is_split = end == PathEndReason::Limit;
        let replaced = if operations.pop || is_split { self.complete_path(end, emit) } else { None };
        if let UnwoundEntries::Entries(number) = unwound {
            self.stacks.discard_top_entries(number);
        }
        if is_split {
            // If the branch that reached the limit is a call, the caller's path continues after the call returns.
            let start = if class == BranchType::Call && operations.push { branch.fall_through } else { branch.next() };
            self.push_path(start, replaced);
        }
        match (operations.push, class) {
            (false, _) => frame.into_iter().for_each(|at| self.stacks.complete_return(return_target, replaced, at, branch.target)),
            (true, BranchType::Call) if !operations.pop => self.stacks.paths().push(new_callee_entry(branch)),
            (true, _) => self.push_path(branch.next(), replaced),
        }
        self.counts.operations += 1 + u64::from(operations.pop || is_split) + u64::from(operations.push) + u64::from(is_split);
        if class == BranchType::Return && operations.pop && replaced.is_some_and(|path| path.is_handler) {
            self.stacks.leave_first_procedure();
        }
        if self.stacks.paths().depth() == 0 {
            self.counts.underflows += 1;
            self.stacks.paths().push(PathEntry::start_at_address(branch.next()));
        }
    }

    /// Repairs the path stack before a call or a return, if necessary. Returns where a return leads; for all other branches, returns
    /// `Caller`.
    fn repair_stack_before_branch(&mut self, class: BranchType, at: Address, target: Address) -> ReturnTarget {
        match class {
            BranchType::Call => self.stacks.prepare_call(at),
            BranchType::Return => {
                let return_target = self.stacks.prepare_return(at, target);
                self.counts.unmatched_returns += u64::from(return_target == ReturnTarget::Jump);
                return return_target;
            }
            _ => {}
        }
        ReturnTarget::Caller
    }

    /// Returns the operations that a branch performs and, for a return after which the stack is repaired by guessing, the entries to
    /// discard.
    fn select_operations(
        &mut self,
        class: BranchType,
        return_target: ReturnTarget,
        frame: Option<Address>,
        branch: &RetiredBranch,
    ) -> (PathStackOperations, UnwoundEntries) {
        if return_target == ReturnTarget::Jump {
            return (PathStackOperations { pop: true, push: true, ..self.parameters.mapping.operations(class) }, UnwoundEntries::Nothing);
        }
        let is_extended = self.stacks.paths().top().is_some_and(|top| top.extensions > 0);
        let operations = self.extend_operations(class);
        match (class, frame) {
            (BranchType::Call, Some(at)) if !operations.push => self.stacks.record_extension(at, branch.fall_through),
            (BranchType::Return, Some(_)) if !operations.pop => {
                self.stacks.end_innermost_extension();
                if is_extended && return_target != ReturnTarget::Caller {
                    // The return does not lead to the code after the call, so the extended path ends here.
                    return (
                        PathStackOperations { pop: true, push: return_target == ReturnTarget::Landing, ..operations },
                        UnwoundEntries::Nothing,
                    );
                }
            }
            (BranchType::Return, None) if operations.pop && self.has_frame_repair => {
                return (operations, self.find_unwound_entries(branch.target));
            }
            (BranchType::Indirect, _) => self.stacks.record_indirect_jump(),
            _ => {}
        }
        (operations, UnwoundEntries::Nothing)
    }

    /// Returns the operations of a branch class. If the mapping extends paths, they depend on how often the path on top was extended.
    fn extend_operations(&mut self, class: BranchType) -> PathStackOperations {
        let default = self.parameters.mapping.operations(class);
        let Some(top) = self.stacks.paths().top() else { return default };
        let extended = PathStackOperations { pop: false, push: false, ..default };
        match (self.parameters.mapping.extension, class) {
            (PathExtension::Loops(limit), BranchType::Backward | BranchType::BackwardNotTaken) if default.pop && top.extensions < limit => {
                top.extensions += 1;
                PathStackOperations { update: true, ..extended }
            }
            (PathExtension::Calls(limit), BranchType::Call) if top.extensions < limit => {
                top.extensions += 1;
                extended
            }
            (PathExtension::Calls(_), BranchType::Return) if top.extensions > 0 => {
                top.extensions -= 1;
                extended
            }
            _ => default,
        }
    }

    /// Updates the top entry. Returns [`PathEndReason::Limit`] if the path reached the length limit and the branch does not end it anyway.
    fn update_top(&mut self, branch: &RetiredBranch, operations: PathStackOperations, events: &EventCounts) -> Option<PathEndReason> {
        let top = self.stacks.paths().top()?;
        self.counts.saturated += u64::from(top.events.add(events, self.parameters.counter_width));
        top.instructions = top.instructions.saturating_add(branch.instructions);
        if !operations.update {
            return None;
        }
        top.path.push(branch.is_taken);
        (top.path.length == self.parameters.length_limit && !operations.pop).then_some(PathEndReason::Limit)
    }

    fn complete_path(&mut self, end: PathEndReason, emit: &mut impl FnMut(&CompletedPath)) -> Option<PathEntry> {
        let entry = self.stacks.paths().pop()?;
        self.counts.paths += 1;
        self.counts.splits += u64::from(end == PathEndReason::Limit);
        emit(&CompletedPath { path: entry.path, events: entry.events, instructions: entry.instructions, end });
        Some(entry)
    }

    /// Pushes a path that begins after a branch. If it replaces a path that has just ended (`replaced`), it belongs to the same procedure.
    fn push_path(&mut self, start: Address, replaced: Option<PathEntry>) {
        let mut entry = PathEntry::start_at_address(start);
        if let Some(before) = replaced {
            entry.return_address = before.return_address;
            entry.stack = before.stack;
            entry.is_handler = before.is_handler;
            if matches!(self.parameters.mapping.extension, PathExtension::Calls(_)) {
                entry.extensions = before.extensions;
            }
        }
        self.stacks.paths().push(entry);
    }

    /// Finds the entries that a return to `target` discards in addition to the one on top.
    fn find_unwound_entries(&mut self, target: Address) -> UnwoundEntries {
        match self.stacks.paths().top().and_then(|top| top.return_address) {
            Some(expected) if expected != target => {}
            _ => return UnwoundEntries::Nothing,
        }
        match self.stacks.paths().count_entries_above_match(|entry| entry.return_address == Some(target)) {
            Some(above) => {
                self.counts.guessed_repairs += 1;
                UnwoundEntries::Entries(above)
            }
            None => {
                self.counts.unmatched_returns += 1;
                UnwoundEntries::Unknown
            }
        }
    }

    fn restart_at_address(&mut self, start: Address) {
        self.stacks.discard_all_entries();
        self.stacks.paths().push(PathEntry::start_at_address(start));
    }
}

fn new_callee_entry(branch: &RetiredBranch) -> PathEntry {
    PathEntry { return_address: Some(branch.fall_through), stack: branch.stack, ..PathEntry::start_at_address(branch.next()) }
}

/// The entries that a return discards in addition to the one that it pops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnwoundEntries {
    /// None, because the return belongs to the entry on top.
    Nothing,
    /// This many: the return belongs to the entry below them.
    Entries(usize),
    /// Unknown, because the return belongs to no entry.
    Unknown,
}

#[cfg(test)]
#[path = "detector_tests.rs"]
mod tests;
