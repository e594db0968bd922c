//! The path stack, which has one entry for each unfinished path (section 5.2). The published stack has 32 entries. When it is full, the
//! oldest entry is dropped or spilled to memory; the paper leaves this choice open.

use crate::descriptor::PathDescriptor;
use crate::events::EventCounts;
use crate::stream::Address;
use std::collections::VecDeque;

/// What happens to the oldest entry when the stack is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StackOverflowPolicy {
    /// The entry is lost, along with its path.
    #[default]
    Drop,
    /// The entry is written to memory, and read back when it is needed. Spills are counted.
    Spill,
}

/// An unfinished path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathEntry {
    /// The path so far.
    pub path: PathDescriptor,
    /// Events that occurred along the path.
    pub events: EventCounts,
    /// Number of instructions on the path, for statistics; the hardware does not know it.
    pub instructions: u32,
    /// Number of backward branches or calls across which the path was extended.
    pub extensions: u16,
    /// Return address of the path's procedure; `None` if the call was not seen.
    pub return_address: Option<Address>,
    /// Where the return address is on the program's stack; `None` if the source does not provide the location.
    pub stack: Option<Address>,
    /// Whether the path belongs to the first procedure of a signal handler.
    pub is_handler: bool,
}

impl PathEntry {
    /// Creates an empty path that begins at an address.
    pub fn start_at_address(start: Address) -> PathEntry {
        let path = PathDescriptor::start_at_address(start);
        PathEntry {
            path,
            events: EventCounts::default(),
            instructions: 0,
            extensions: 0,
            return_address: None,
            stack: None,
            is_handler: false,
        }
    }

    /// Returns the frame of the path's procedure: the location and the value of its return address.
    pub fn frame(&self) -> Option<(Address, Address)> {
        self.stack.zip(self.return_address)
    }
}

/// A stack of unfinished paths.
#[derive(Clone, Debug)]
pub struct PathStack {
    entries: VecDeque<PathEntry>,
    /// How many of the topmost entries are in the hardware. All other entries are spilled.
    resident: usize,
    capacity: usize,
    overflow: StackOverflowPolicy,
    overflows: u64,
    deepest: usize,
}

impl PathStack {
    /// Creates a stack. A capacity of 0 is raised to 1.
    pub fn new(capacity: usize, overflow: StackOverflowPolicy) -> PathStack {
        PathStack {
            entries: VecDeque::with_capacity(capacity.min(1024)),
            resident: 0,
            capacity: capacity.max(1),
            overflow,
            overflows: 0,
            deepest: 0,
        }
    }

    /// Returns the memory used, in bytes.
    pub fn memory(&self) -> u64 {
        (self.entries.capacity() * size_of::<PathEntry>()) as u64
    }

    /// Returns the entry on top; `None` if the stack is empty.
    pub fn top(&mut self) -> Option<&mut PathEntry> {
        self.entries.back_mut()
    }

    /// Pushes an entry. If the stack is full, this counts as an overflow and drops or spills the oldest resident entry.
    pub fn push(&mut self, entry: PathEntry) {
        if self.resident == self.capacity {
            self.overflows += 1;
            self.resident -= 1;
            if self.overflow == StackOverflowPolicy::Drop {
                self.entries.pop_front();
            }
        }
        self.entries.push_back(entry);
        self.resident += 1;
        self.deepest = self.deepest.max(self.entries.len());
    }

    /// Pops the entry on top; `None` if the stack is empty.
    pub fn pop(&mut self) -> Option<PathEntry> {
        let entry = self.entries.pop_back()?;
        // If the hardware has no entry left, the entry on top is read back from memory.
        self.resident = (self.resident - 1).max(1).min(self.entries.len());
        Some(entry)
    }

    /// Returns the number of entries, including spilled ones.
    pub fn depth(&self) -> usize {
        self.entries.len()
    }

    /// Iterates over the entries, from the top down.
    pub fn iter_from_top(&self) -> impl Iterator<Item = &PathEntry> {
        self.entries.iter().rev()
    }

    /// Iterates over the entries, from the top down, with mutable access.
    pub fn iter_from_top_mut(&mut self) -> impl Iterator<Item = &mut PathEntry> {
        self.entries.iter_mut().rev()
    }

    /// Counts the entries above the topmost one that satisfies the condition. Returns `None` if no entry does.
    pub fn count_entries_above_match(&self, matches: impl Fn(&PathEntry) -> bool) -> Option<usize> {
        self.entries.iter().rev().position(matches)
    }

    /// Returns how often an entry was dropped or spilled. An entry that is spilled twice counts twice.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Returns the greatest number of entries so far.
    pub fn max_depth(&self) -> usize {
        self.deepest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled_stack(overflow: StackOverflowPolicy) -> PathStack {
        let mut stack = PathStack::new(3, overflow);
        (0..5).for_each(|at| stack.push(PathEntry::start_at_address(Address(at))));
        stack
    }

    #[test]
    fn full_stack_drops_or_spills_its_oldest_entry() {
        let starts = |mut stack: PathStack| std::iter::from_fn(move || stack.pop()).map(|e| e.path.start.0).collect::<Vec<_>>();
        let dropping = filled_stack(StackOverflowPolicy::Drop);
        assert_eq!((dropping.overflows(), dropping.max_depth()), (2, 3));
        assert_eq!(starts(dropping), [4, 3, 2]);
        let spilling = filled_stack(StackOverflowPolicy::Spill);
        assert_eq!((spilling.overflows(), spilling.max_depth()), (2, 5));
        assert_eq!(starts(spilling), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn entries_in_memory_are_not_spilled_again() {
        let mut stack = filled_stack(StackOverflowPolicy::Spill);
        // Three of the five entries are in the hardware, so there is room after a pop.
        for _ in 0..10 {
            stack.pop();
            stack.push(PathEntry::start_at_address(Address(9)));
        }
        assert_eq!(stack.overflows(), 2);
        // Three pops leave the hardware empty. Only one entry is read back from memory, so there is room for two more.
        (0..3).for_each(|_| _ = stack.pop());
        (0..2).for_each(|at| stack.push(PathEntry::start_at_address(Address(at))));
        assert_eq!((stack.depth(), stack.overflows()), (4, 2));
        stack.push(PathEntry::start_at_address(Address(5)));
        assert_eq!(stack.overflows(), 3);
    }

    #[test]
    fn entries_above_the_topmost_match_are_counted() {
        let stack = filled_stack(StackOverflowPolicy::Spill);
        assert_eq!(stack.count_entries_above_match(|e| e.path.start == Address(3)), Some(1));
        assert_eq!(stack.count_entries_above_match(|e| e.path.start == Address(9)), None);
    }
}
