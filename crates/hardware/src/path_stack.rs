//! The path stack: one entry for each path under way (section 5.2).
//!
//! The published stack has 32 entries. What happens to the oldest when it is full is left to the implementation: it is
//! dropped, or spilled to memory. Each operation takes constant time; dropping uses a ring.

use crate::descriptor::PathDescriptor;
use crate::events::EventCounts;
use crate::stream::Address;
use std::collections::VecDeque;

/// What happens to the oldest entry when the stack is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// It is lost, and so is the path it describes.
    #[default]
    Drop,
    /// It goes to memory and comes back when it is wanted; spills are counted.
    Spill,
}

/// A path under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathEntry {
    /// What was seen of it.
    pub path: PathDescriptor,
    /// Events along it.
    pub events: EventCounts,
    /// Instructions along it. The hardware does not need to know.
    pub instructions: u32,
    /// Backward branches or calls that it was extended across.
    pub extensions: u16,
    /// Where its procedure returns to, if its call was seen.
    pub return_address: Option<Address>,
    /// Where in memory that is stored, if the source says.
    pub stack: Option<Address>,
    /// It is a signal handler's first.
    pub is_handler: bool,
}

impl PathEntry {
    /// A path that begins, with everything else zero.
    pub fn starting_at(start: Address) -> PathEntry {
        let path = PathDescriptor::starting_at(start);
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

    /// The frame of its procedure: where the return address lies, and what it is.
    pub fn frame(&self) -> Option<(Address, Address)> {
        self.stack.zip(self.return_address)
    }
}

/// The stack.
#[derive(Clone, Debug)]
pub struct PathStack {
    entries: VecDeque<PathEntry>,
    /// Entries in the hardware: the topmost of `entries`. All others were spilled.
    resident: usize,
    capacity: usize,
    overflow: Overflow,
    overflows: u64,
    deepest: usize,
}

impl PathStack {
    /// A stack of so many entries, at least one.
    pub fn new(capacity: usize, overflow: Overflow) -> PathStack {
        PathStack {
            entries: VecDeque::with_capacity(capacity.min(1024)),
            resident: 0,
            capacity: capacity.max(1),
            overflow,
            overflows: 0,
            deepest: 0,
        }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        (self.entries.capacity() * size_of::<PathEntry>()) as u64
    }

    /// The entry on top.
    pub fn top(&mut self) -> Option<&mut PathEntry> {
        self.entries.back_mut()
    }

    /// Puts an entry on top.
    pub fn push(&mut self, entry: PathEntry) {
        if self.resident == self.capacity {
            self.overflows += 1;
            self.resident -= 1;
            if self.overflow == Overflow::Drop {
                self.entries.pop_front();
            }
        }
        self.entries.push_back(entry);
        self.resident += 1;
        self.deepest = self.deepest.max(self.entries.len());
    }

    /// Takes the entry off the top.
    pub fn pop(&mut self) -> Option<PathEntry> {
        let entry = self.entries.pop_back()?;
        // An entry comes back from memory when it is on top and the hardware holds none.
        self.resident = (self.resident - 1).max(1).min(self.entries.len());
        Some(entry)
    }

    /// Number of entries.
    pub fn depth(&self) -> usize {
        self.entries.len()
    }

    /// Entries, the topmost first.
    pub fn from_top(&self) -> impl Iterator<Item = &PathEntry> {
        self.entries.iter().rev()
    }

    /// The same, to be changed.
    pub fn from_top_mut(&mut self) -> impl Iterator<Item = &mut PathEntry> {
        self.entries.iter_mut().rev()
    }

    /// Entries above the topmost one of which the condition holds, that one excluded; `None` if there is none.
    pub fn above(&self, is_it: impl Fn(&PathEntry) -> bool) -> Option<usize> {
        self.entries.iter().rev().position(is_it)
    }

    /// Entries dropped, or spilled to memory; one that comes back and is spilled again counts twice.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Most entries at a time.
    pub fn deepest(&self) -> usize {
        self.deepest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(overflow: Overflow) -> PathStack {
        let mut stack = PathStack::new(3, overflow);
        (0..5).for_each(|at| stack.push(PathEntry::starting_at(Address(at))));
        stack
    }

    #[test]
    fn a_full_stack_drops_or_spills_its_oldest() {
        let starts = |mut stack: PathStack| std::iter::from_fn(move || stack.pop()).map(|e| e.path.start.0).collect::<Vec<_>>();
        let dropping = filled(Overflow::Drop);
        assert_eq!((dropping.overflows(), dropping.deepest()), (2, 3));
        assert_eq!(starts(dropping), [4, 3, 2]);
        let spilling = filled(Overflow::Spill);
        assert_eq!((spilling.overflows(), spilling.deepest()), (2, 5));
        assert_eq!(starts(spilling), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn entries_in_memory_are_not_spilled_again() {
        let mut stack = filled(Overflow::Spill);
        // Five entries, three of them in the hardware: there is room after a pop.
        for _ in 0..10 {
            stack.pop();
            stack.push(PathEntry::starting_at(Address(9)));
        }
        assert_eq!(stack.overflows(), 2);
        // Three pops empty the hardware, and the fourth entry comes back alone: two more fit.
        (0..3).for_each(|_| _ = stack.pop());
        (0..2).for_each(|at| stack.push(PathEntry::starting_at(Address(at))));
        assert_eq!((stack.depth(), stack.overflows()), (4, 2));
        stack.push(PathEntry::starting_at(Address(5)));
        assert_eq!(stack.overflows(), 3);
    }

    #[test]
    fn entries_are_found_from_the_top() {
        let stack = filled(Overflow::Spill);
        assert_eq!(stack.above(|e| e.path.start == Address(3)), Some(1));
        assert_eq!(stack.above(|e| e.path.start == Address(9)), None);
    }
}
