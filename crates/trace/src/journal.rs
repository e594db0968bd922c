//! The undo journal of a traced process: every change is entered before it is made, and taken out once it has been undone.
//!
//! Code is kept apart, page by page with the bytes before and after, since there can be a million breakpoints.
//!
//! Invariant: undoing replaces only bytes that still are what was written. Code which the program itself has written meanwhile stays.

use crate::ptrace::{Registers, Tid};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Bytes of a page.
const PAGE: usize = 4096;

/// `struct sigaction` of the kernel.
pub type TrapAction = [u8; 32];

/// A limit of the address space (`RLIMIT_AS`), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressLimit {
    /// What is enforced.
    pub soft: u64,
    /// What `soft` can be raised to.
    pub hard: u64,
}

impl AddressLimit {
    /// That of a process; `None` if it is gone.
    pub fn of(process: i32) -> Option<Self> {
        let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: no new limit; the kernel writes the structure.
        let result = unsafe { libc::prlimit64(process, libc::RLIMIT_AS, std::ptr::null(), &raw mut limit) };
        (result == 0).then_some(Self { soft: limit.rlim_cur, hard: limit.rlim_max })
    }

    /// Gives it to a process; whether that is allowed.
    pub fn set(self, process: i32) -> bool {
        let limit = libc::rlimit64 { rlim_cur: self.soft, rlim_max: self.hard };
        // SAFETY: the kernel reads the structure; no old limit is asked for.
        unsafe { libc::prlimit64(process, libc::RLIMIT_AS, &raw const limit, std::ptr::null_mut()) == 0 }
    }

    /// The same with room for more.
    pub fn raised(self, by: u64) -> Self {
        // No limit is the largest number.
        Self { soft: self.soft.saturating_add(by), hard: self.hard.saturating_add(by) }
    }

    /// Whether there is one.
    pub fn is_limited(self) -> bool {
        self.soft != libc::RLIM64_INFINITY
    }

    /// `struct rlimit` of the kernel.
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.soft.to_le_bytes());
        bytes[8..].copy_from_slice(&self.hard.to_le_bytes());
        bytes
    }
}

/// A change to a traced process other than to its code.
#[derive(Clone, Debug)]
pub enum JournalEntry {
    /// Memory was mapped.
    Mapping(Range<u64>),
    /// The protection of mapped code was changed; before, it was this (mprotect(2)).
    Protection(Range<u64>, i32),
    /// A thread's registers were replaced for a system call or a step in its name.
    Registers(Tid, Box<Registers>),
    /// The set of signals that a thread blocks was replaced.
    SignalMask(Tid, u64),
    /// Debug registers of a thread were set.
    DebugRegisters(Tid),
    /// Reading the time-stamp counter traps, in every thread.
    TimeStampCounter,
    /// Every thread runs on one core.
    Affinity,
    /// The limit of the address space was raised; this is the program's own.
    AddressLimit(AddressLimit),
    /// The kernel may forget what the program wants on SIGTRAP.
    TrapAction(TrapAction),
}

/// Changes to the code of a process, shared by its session and all its [`Memory`](crate::memory::Memory).
pub type SharedCodeChanges = Rc<RefCell<CodeChanges>>;

/// Changes to the code of a process by the first address of each page.
#[derive(Debug, Default)]
pub struct CodeChanges {
    pages: BTreeMap<u64, PageChange>,
}

/// A page's bytes, before and after; equal where nothing was changed.
#[derive(Debug)]
struct PageChange {
    before: Box<[u8; PAGE]>,
    after: Box<[u8; PAGE]>,
    /// From the first to the last byte that was ever changed.
    bytes: Range<usize>,
}

impl CodeChanges {
    /// Enters that `before` at `address` becomes `after`.
    pub fn enter(&mut self, address: u64, before: &[u8], after: &[u8]) {
        for (at, (old, new)) in (address..).zip(before.iter().zip(after)) {
            if old == new {
                continue;
            }
            let offset = at as usize % PAGE;
            let page = self.pages.entry(at - offset as u64).or_insert_with(|| PageChange::new(offset));
            // The program itself may have written something there since the last change.
            if !page.is_changed(offset) || page.after[offset] != *old {
                page.before[offset] = *old;
            }
            page.after[offset] = *new;
            page.bytes = page.bytes.start.min(offset)..page.bytes.end.max(offset + 1);
        }
    }

    /// Forgets changes in memory that is not there any more.
    pub fn forget(&mut self, gone: &Range<u64>) {
        let first = gone.start & !(PAGE as u64 - 1);
        let pages: Vec<u64> = self.pages.range(first..gone.end).map(|page| *page.0).collect();
        for page in pages {
            self.pages.remove(&page);
        }
    }

    /// Changed pages, each with the addresses between its first and last changed byte.
    pub fn spans(&self) -> impl Iterator<Item = Range<u64>> {
        let has_change = |page: &PageChange| page.bytes.clone().any(|offset| page.is_changed(offset));
        let changed = self.pages.iter().filter(move |(_, page)| has_change(page));
        changed.map(|(start, page)| start + page.bytes.start as u64..start + page.bytes.end as u64)
    }

    /// Undoes changes in the bytes of a span that are given; returns whether there were any.
    pub fn undo(&self, address: u64, bytes: &mut [u8]) -> bool {
        let mut is_changed = false;
        for (at, byte) in (address..).zip(bytes) {
            let offset = at as usize % PAGE;
            let Some(page) = self.pages.get(&(at - offset as u64)) else { continue };
            if page.is_changed(offset) && page.after[offset] == *byte {
                *byte = page.before[offset];
                is_changed = true;
            }
        }
        is_changed
    }

    /// Whether the byte at an address was changed.
    pub fn is_changed(&self, address: u64) -> bool {
        let offset = address as usize % PAGE;
        self.pages.get(&(address - offset as u64)).is_some_and(|page| page.is_changed(offset))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.pages.clear();
    }
}

impl PageChange {
    /// Nothing is changed yet; the first change is at `offset`.
    fn new(offset: usize) -> Self {
        Self { before: Box::new([0; PAGE]), after: Box::new([0; PAGE]), bytes: offset..offset }
    }

    fn is_changed(&self, offset: usize) -> bool {
        self.before[offset] != self.after[offset]
    }
}

impl std::fmt::Display for JournalEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Mapping(range) => write!(f, "the mapping at {:#x}", range.start),
            Self::Protection(range, _) => write!(f, "the protection of the code at {:#x}", range.start),
            Self::Registers(thread, _) => write!(f, "the registers of thread {thread}"),
            Self::SignalMask(thread, _) => write!(f, "the signals that thread {thread} blocks"),
            Self::DebugRegisters(thread) => write!(f, "the debug registers of thread {thread}"),
            Self::TimeStampCounter => f.write_str("the trap of the time-stamp counter"),
            Self::Affinity => f.write_str("the binding to one core"),
            Self::AddressLimit(_) => f.write_str("the limit of its address space"),
            Self::TrapAction(_) => f.write_str("the action on SIGTRAP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_are_as_written_are_undone() {
        let mut changes = CodeChanges::default();
        changes.enter(0x1ffe, &[1, 2, 3, 4], &[9, 2, 9, 9]);
        assert_eq!(changes.spans().collect::<Vec<_>>(), [0x1ffe..0x1fff, 0x2000..0x2002]);
        // The program has overwritten the last byte.
        let mut bytes = [9, 2, 9, 7];
        assert!(changes.undo(0x1ffe, &mut bytes));
        assert_eq!(bytes, [1, 2, 3, 7]);
        // Changed twice, and back.
        changes.enter(0x2000, &[9], &[8]);
        assert!(!changes.undo(0x2000, &mut bytes[..1]));
        let mut twice = [8];
        assert!(changes.undo(0x2000, &mut twice));
        assert_eq!(twice, [3]);
        changes.enter(0x1ffe, &[9], &[1]);
        assert!(changes.spans().eq(std::iter::once(0x2000..0x2002)));
        changes.forget(&(0x2000..0x3000));
        assert_eq!(changes.spans().count(), 0);
    }
}
