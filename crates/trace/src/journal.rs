//! The undo journal of a traced process: every change is entered before it is made, and removed once it has been undone.
//!
//! Since there can be a million breakpoints, changes to code are kept separately, as pages with the bytes before and after.
//!
//! Invariant: undoing replaces only bytes that still have the value written by the session. Code that the program has overwritten
//! meanwhile stays.

use crate::ptrace::{Registers, Tid};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

const PAGE_SIZE: usize = 4096;

/// A limit on the address space (`RLIMIT_AS`), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressLimit {
    pub soft: u64,
    pub hard: u64,
}

impl AddressLimit {
    /// Returns the limit of a process, or `None` if the process is gone or belongs to a different user.
    pub fn of(process: i32) -> Option<Self> {
        let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer to a new limit is null, and the kernel writes the old one to a valid structure.
        let result = unsafe { libc::prlimit64(process, libc::RLIMIT_AS, std::ptr::null(), &raw mut limit) };
        (result == 0).then_some(Self { soft: limit.rlim_cur, hard: limit.rlim_max })
    }

    /// Sets the limit of a process. Returns false if that is not allowed or the process is gone.
    pub fn set(self, process: i32) -> bool {
        let limit = libc::rlimit64 { rlim_cur: self.soft, rlim_max: self.hard };
        // SAFETY: `limit` is a valid structure, and the pointer for the old limit is null.
        unsafe { libc::prlimit64(process, libc::RLIMIT_AS, &raw const limit, std::ptr::null_mut()) == 0 }
    }

    pub fn raised(self, by: u64) -> Self {
        // Saturation preserves "no limit", which is the largest number.
        Self { soft: self.soft.saturating_add(by), hard: self.hard.saturating_add(by) }
    }

    pub fn is_limited(self) -> bool {
        self.soft != libc::RLIM64_INFINITY
    }

    /// Encodes the limit as the kernel's `struct rlimit`.
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.soft.to_le_bytes());
        bytes[8..].copy_from_slice(&self.hard.to_le_bytes());
        bytes
    }
}

/// A change to a traced process, apart from changes to its code.
#[derive(Clone, Debug)]
pub enum JournalEntry {
    Mapping(Range<u64>),
    /// The protection of code was changed from this value (as for mprotect(2)).
    Protection(Range<u64>, i32),
    /// Code was tagged with a protection key, and its protection may have been changed from this value.
    KeyedProtection(Range<u64>, i32),
    ProtectionKey(u32),
    /// A thread's rights for protection keys were changed from this value.
    KeyRights(Tid, u32),
    /// A thread's registers were replaced for an injected system call or a step.
    Registers(Tid, Box<Registers>),
    SignalMask(Tid, u64),
    DebugRegisters(Tid),
    /// Reading the time-stamp counter traps in every thread.
    TimeStampCounter,
    /// Every thread is bound to one core.
    Affinity,
    /// The limit on the address space was raised. The value is the program's own.
    AddressLimit(AddressLimit),
}

/// The changes to a process's code, shared by its session and all its [`Memory`](crate::memory::Memory) values.
pub type SharedCodeChanges = Rc<RefCell<CodeChanges>>;

/// The changes to a process's code, by the address of each page.
#[derive(Debug, Default)]
pub struct CodeChanges {
    pages: BTreeMap<u64, ChangedPage>,
}

/// The bytes of a page before and after the changes. They are equal where nothing was changed.
#[derive(Debug)]
struct ChangedPage {
    before: Box<[u8; PAGE_SIZE]>,
    after: Box<[u8; PAGE_SIZE]>,
    /// Offsets from the first to the last byte that was ever changed.
    bytes: Range<usize>,
}

impl CodeChanges {
    /// Records that the bytes `before` at `address` are replaced by `after`.
    pub fn enter(&mut self, address: u64, before: &[u8], after: &[u8]) {
        for (at, (old, new)) in (address..).zip(before.iter().zip(after)) {
            if old == new {
                continue;
            }
            let offset = at as usize % PAGE_SIZE;
            let page = self.pages.entry(at - offset as u64).or_insert_with(|| ChangedPage::new(offset));
            // The program itself may have overwritten the byte since the last change.
            if !page.is_changed(offset) || page.after[offset] != *old {
                page.before[offset] = *old;
            }
            page.after[offset] = *new;
            page.bytes = page.bytes.start.min(offset)..page.bytes.end.max(offset + 1);
        }
    }

    /// Forgets changes to memory that is no longer mapped.
    pub fn forget(&mut self, gone: &Range<u64>) {
        let first = gone.start & !(PAGE_SIZE as u64 - 1);
        let pages: Vec<u64> = self.pages.range(first..gone.end).map(|page| *page.0).collect();
        for page in pages {
            self.pages.remove(&page);
        }
    }

    /// Returns, for each page with changes, the range from the first to the last byte that was ever changed.
    pub fn spans(&self) -> impl Iterator<Item = Range<u64>> {
        let has_change = |page: &ChangedPage| page.bytes.clone().any(|offset| page.is_changed(offset));
        let changed = self.pages.iter().filter(move |(_, page)| has_change(page));
        changed.map(|(start, page)| start + page.bytes.start as u64..start + page.bytes.end as u64)
    }

    /// Returns the parts of a range with changes, one for each page.
    pub fn changed_spans_in(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'_> {
        let range = range.clone();
        let first = range.start & !(PAGE_SIZE as u64 - 1);
        self.pages.range(first..range.end.max(first)).filter_map(move |(start, page)| {
            let offset = |address: u64| address.saturating_sub(*start).min(PAGE_SIZE as u64) as usize;
            let mut inside = page.bytes.start.max(offset(range.start))..page.bytes.end.min(offset(range.end));
            let first = inside.clone().find(|offset| page.is_changed(*offset))?;
            let last = inside.rfind(|offset| page.is_changed(*offset))?;
            Some(start + first as u64..start + last as u64 + 1)
        })
    }

    /// Undoes the changes in bytes that were read at `address`. Returns true if there were any.
    pub fn undo(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.replace(address, bytes, |page, offset| (page.after[offset], page.before[offset]))
    }

    /// Reapplies the changes to bytes that were read at `address`, where they had been undone.
    pub fn redo(&self, address: u64, bytes: &mut [u8]) {
        self.replace(address, bytes, |page, offset| (page.before[offset], page.after[offset]));
    }

    /// Replaces each changed byte that has the first of its two `values` by the second. Returns true if there was any.
    fn replace(&self, address: u64, bytes: &mut [u8], values: impl Fn(&ChangedPage, usize) -> (u8, u8)) -> bool {
        let mut is_changed = false;
        for span in self.changed_spans_in(&(address..address.saturating_add(bytes.len() as u64))) {
            let page = &self.pages[&(span.start & !(PAGE_SIZE as u64 - 1))];
            for at in span {
                let (byte, offset) = (&mut bytes[(at - address) as usize], at as usize % PAGE_SIZE);
                let (old, new) = values(page, offset);
                if old != new && *byte == old {
                    *byte = new;
                    is_changed = true;
                }
            }
        }
        is_changed
    }

    pub fn is_changed(&self, address: u64) -> bool {
        let offset = address as usize % PAGE_SIZE;
        self.pages.get(&(address - offset as u64)).is_some_and(|page| page.is_changed(offset))
    }

    pub fn clear(&mut self) {
        self.pages.clear();
    }
}

impl ChangedPage {
    /// Creates a page without changes. The first change will be at `offset`.
    fn new(offset: usize) -> Self {
        Self { before: Box::new([0; PAGE_SIZE]), after: Box::new([0; PAGE_SIZE]), bytes: offset..offset }
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
            Self::KeyedProtection(range, _) => write!(f, "the protection key of the code at {:#x}", range.start),
            Self::ProtectionKey(key) => write!(f, "protection key {key}"),
            Self::KeyRights(thread, _) => write!(f, "the rights of thread {thread} for protection keys"),
            Self::Registers(thread, _) => write!(f, "the registers of thread {thread}"),
            Self::SignalMask(thread, _) => write!(f, "the signal mask of thread {thread}"),
            Self::DebugRegisters(thread) => write!(f, "the debug registers of thread {thread}"),
            Self::TimeStampCounter => f.write_str("the trap on reading the time-stamp counter"),
            Self::Affinity => f.write_str("the binding to one core"),
            Self::AddressLimit(_) => f.write_str("the limit on its address space"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_still_as_written_are_undone() {
        let mut changes = CodeChanges::default();
        changes.enter(0x1ffe, &[1, 2, 3, 4], &[9, 2, 9, 9]);
        assert_eq!(changes.spans().collect::<Vec<_>>(), [0x1ffe..0x1fff, 0x2000..0x2002]);
        // The program has overwritten the last byte.
        let mut bytes = [9, 2, 9, 7];
        assert!(changes.undo(0x1ffe, &mut bytes));
        assert_eq!(bytes, [1, 2, 3, 7]);
        changes.redo(0x1ffe, &mut bytes);
        assert_eq!(bytes, [9, 2, 9, 7]);
        assert!(changes.changed_spans_in(&(0x1fff..0x2001)).eq(std::iter::once(0x2000..0x2001)));
        // One byte is changed a second time, and another one is changed back.
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
