//! The guard of patched code: which pages are hidden from the program's own reads, and what the program sees of each. This module only does
//! the bookkeeping; [`hidden_patches`](crate::hidden_patches) changes the process.
//!
//! A guarded page has one of two views. In the *code view* it contains the patches, can be executed, and is tagged with a protection key
//! that forbids data accesses. In the *data view* it contains the program's own bytes, and can be read but not executed. A fault at an
//! access that the view forbids switches it.
//!
//! Reads of unpatched bytes in the code view, such as tables within code, do not switch the view. A page in which only such bytes have been
//! read, [`MAX_WEIGHTED_DATA_READS`] times, is classified as data and no longer guarded. By then, a program that sums up a page byte by
//! byte has read a patch if the page has one.

use crate::memory::{do_ranges_overlap, intersect_ranges, parts_outside_range};
use crate::ptrace::Tid;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

pub const PAGE_SIZE: u64 = 4096;
/// Weighted number of reads after which a page counts as data and is no longer guarded, if all of them read unpatched bytes.
const MAX_WEIGHTED_DATA_READS: u32 = PAGE_SIZE as u32 + SCATTERED_READ_WEIGHT;
/// Weight of a read that does not start within 64 bytes after the previous one. Such a read is typical of tables, whereas checksums read
/// consecutive bytes.
const SCATTERED_READ_WEIGHT: u32 = 4;
/// Weight of a system call that reads unpatched bytes.
const SYSTEM_CALL_READ_WEIGHT: u32 = 256;
/// Number of switches to the code view after which a page is no longer watched. A busy page reaches it in about a second.
const MAX_CODE_VIEW_SWITCHES: u32 = 10_000;
/// Maximum number of times that a thread may repeat an access that faults although the page's view permits it.
const MAX_ACCESS_RETRIES: u32 = 1000;

#[derive(Debug, Default)]
pub struct CodeGuard {
    /// The protection key of code views; `None` if nothing is guarded.
    pub key: Option<u32>,
    /// Guarded code, in whole pages, by start address.
    ranges: BTreeMap<u64, GuardedCode>,
    pages: HashMap<u64, PageState>,
    /// Formerly guarded pages. Threads may still report faults there.
    former: Vec<Range<u64>>,
    /// Pages that must not be guarded again.
    excluded: Vec<Range<u64>>,
    /// Pages that are no longer guarded because the program reads data there.
    pub readable: Vec<Range<u64>>,
    /// Pages that switch so often that they should be released.
    overused: Vec<u64>,
    /// Pages that are classified as data and should no longer be guarded.
    data: Vec<u64>,
    retries: HashMap<Tid, (Vec<u64>, u32)>,
    /// True if the traced process cannot or must not be guarded.
    pub is_disabled: bool,
    /// True if pages were unguarded while the program was running: for good, or during a system call of one thread while others ran.
    pub ends_early: bool,
    /// True if threads cannot be given access to pages of the code view.
    pub lacks_access: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedCode {
    pub range: Range<u64>,
    /// The protection (`PROT_*` bits) that the program has requested.
    pub protection: i32,
    /// The address of a slot near the code for displaced instructions.
    pub slot: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PageState {
    shows_data: bool,
    switches: u32,
    data_reads: u32,
    /// End address of the last read of unpatched bytes.
    next_read: u64,
    /// True once the program has read a patched byte.
    is_read_as_code: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageView {
    Code,
    Data,
    /// No longer guarded.
    Former,
}

impl CodeGuard {
    /// Returns true if anything is or was guarded, so that there may be faults.
    pub fn is_active(&self) -> bool {
        !self.ranges.is_empty() || !self.former.is_empty()
    }

    pub fn add(&mut self, code: GuardedCode) {
        self.former = self.former.iter().flat_map(|former| parts_outside_range(former, &code.range)).collect();
        self.ranges.insert(code.range.start, code);
    }

    /// Removes the guard of a range of whole pages that is still mapped, and returns what was guarded there.
    pub fn remove(&mut self, range: &Range<u64>) -> Vec<GuardedCode> {
        let removed = self.remove_overlapping(range);
        self.former.extend(removed.iter().map(|code| code.range.clone()));
        removed
    }

    /// Forgets a range that is no longer mapped.
    pub fn forget(&mut self, range: &Range<u64>) {
        self.remove_overlapping(range);
        for list in [&mut self.former, &mut self.excluded] {
            *list = list.iter().flat_map(|part| parts_outside_range(part, range)).collect();
        }
    }

    /// Forgets all guarded pages, but keeps what is reported at the end of the run.
    pub fn clear(&mut self) {
        let (is_disabled, ends_early) = (self.is_disabled, self.ends_early);
        *self = Self { readable: std::mem::take(&mut self.readable), is_disabled, ends_early, ..Self::default() };
    }

    fn remove_overlapping(&mut self, range: &Range<u64>) -> Vec<GuardedCode> {
        let touched: Vec<GuardedCode> = self.ranges.values().filter(|code| do_ranges_overlap(&code.range, range)).cloned().collect();
        let mut removed = Vec::new();
        for code in touched {
            self.ranges.remove(&code.range.start);
            for rest in parts_outside_range(&code.range, range) {
                self.ranges.insert(rest.start, GuardedCode { range: rest, ..code.clone() });
            }
            removed.push(GuardedCode { range: intersect_ranges(&code.range, range), ..code });
        }
        self.pages.retain(|page, _| !range.contains(page));
        self.overused.retain(|page| !range.contains(page));
        self.data.retain(|page| !range.contains(page));
        removed
    }

    pub fn exclude(&mut self, range: Range<u64>) {
        self.excluded.push(range);
    }

    /// Returns the parts of a range that are not guarded but may be.
    pub fn unguarded_parts(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut parts = vec![range];
        for other in self.ranges.values().map(|code| &code.range).chain(&self.excluded) {
            parts = parts.iter().flat_map(|part| parts_outside_range(part, other)).collect();
        }
        parts
    }

    pub fn ranges(&self) -> impl Iterator<Item = &GuardedCode> {
        self.ranges.values()
    }

    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        self.ranges.values().any(|code| do_ranges_overlap(&code.range, range))
    }

    /// Returns true if any byte of a range is or was guarded.
    pub fn was_guarding(&self, range: &Range<u64>) -> bool {
        self.overlaps(range) || self.former.iter().any(|former| do_ranges_overlap(former, range))
    }

    pub fn code_at(&self, address: u64) -> Option<&GuardedCode> {
        self.ranges.range(..=address).next_back().map(|(_, code)| code).filter(|code| code.range.contains(&address))
    }

    /// Returns the view of the page that contains an address, or `None` if the page was never guarded.
    pub fn view(&self, address: u64) -> Option<PageView> {
        if self.code_at(address).is_some() {
            let shows_data = self.pages.get(&page_of(address)).is_some_and(|page| page.shows_data);
            return Some(if shows_data { PageView::Data } else { PageView::Code });
        }
        self.former.iter().any(|range| range.contains(&address)).then_some(PageView::Former)
    }

    pub fn set_data_view(&mut self, page: u64) {
        let state = self.pages.entry(page).or_default();
        (state.shows_data, state.is_read_as_code) = (true, true);
    }

    pub fn set_code_view(&mut self, page: u64) {
        let state = self.pages.entry(page).or_default();
        state.shows_data = false;
        state.switches = state.switches.saturating_add(1);
        if state.switches == MAX_CODE_VIEW_SWITCHES {
            self.overused.push(page);
        }
    }

    /// Returns the pages in the data view, ascending.
    pub fn data_pages(&self) -> Vec<u64> {
        let mut pages: Vec<u64> = self.pages.iter().filter(|(_, state)| state.shows_data).map(|(page, _)| *page).collect();
        pages.sort_unstable();
        pages
    }

    pub fn take_overused_pages(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.overused)
    }

    pub fn take_data_pages(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.data)
    }

    /// Notes a read of unpatched bytes in the code view. A page without patches is classified as data at once.
    pub fn note_data_read(&mut self, read: &Range<u64>, has_patches: bool) {
        let page = page_of(read.start);
        let state = self.pages.entry(page).or_default();
        let follows = read.start.wrapping_sub(state.next_read) < 64;
        state.next_read = read.end;
        self.count_data_reads(page, if follows { 1 } else { SCATTERED_READ_WEIGHT });
        if !has_patches && !self.data.contains(&page) {
            self.data.push(page);
        }
    }

    /// Notes a system call that has read unpatched bytes.
    pub fn note_data_read_by_call(&mut self, address: u64) {
        self.count_data_reads(page_of(address), SYSTEM_CALL_READ_WEIGHT);
    }

    fn count_data_reads(&mut self, page: u64, weight: u32) {
        let state = self.pages.entry(page).or_default();
        state.data_reads = state.data_reads.saturating_add(weight);
        if state.data_reads >= MAX_WEIGHTED_DATA_READS && !state.is_read_as_code && !self.data.contains(&page) {
            self.data.push(page);
        }
    }

    /// Notes that a thread retries an access. `state` consists of the thread's registers and the address. Returns false after too many
    /// retries in the same state: either the fault has a different cause, or the guard blocks the access for good.
    pub fn note_access_retry(&mut self, thread: Tid, state: &[u64]) -> bool {
        let retry = self.retries.entry(thread).or_default();
        if retry.0 != state {
            *retry = (state.to_vec(), 0);
        }
        retry.1 += 1;
        retry.1 <= MAX_ACCESS_RETRIES
    }

    /// Notes that a thread has made progress.
    pub fn forget_access_retries(&mut self, thread: Tid) {
        self.retries.remove(&thread);
    }

    /// Notes that nothing is guarded from now on. Each thread may still report one fault that the guard caused; later faults have other
    /// causes.
    pub fn end(&mut self) {
        (self.is_disabled, self.ends_early) = (true, self.ends_early || self.key.is_some());
        self.retries.clear();
    }
}

pub fn page_of(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> CodeGuard {
        let mut guard = CodeGuard::default();
        guard.add(GuardedCode { range: 0x1000..0x5000, protection: 5, slot: 64 });
        guard
    }

    #[test]
    fn removed_pages_are_remembered_and_forgotten_ones_are_not() {
        let mut guard = guard();
        let removed = guard.remove(&(0x2000..0x3000));
        assert_eq!(removed, [GuardedCode { range: 0x2000..0x3000, protection: 5, slot: 64 }]);
        let views = [0x1fff, 0x2000, 0x3000, 0x5000].map(|address| guard.view(address));
        assert_eq!(views, [Some(PageView::Code), Some(PageView::Former), Some(PageView::Code), None]);
        guard.forget(&(0x2000..0x4000));
        assert_eq!((guard.view(0x2000), guard.view(0x3000)), (None, None));
        guard.exclude(0x2000..0x3000);
        assert_eq!(guard.unguarded_parts(0..0x6000), [0..0x1000, 0x3000..0x4000, 0x5000..0x6000]);
    }

    #[test]
    fn only_pages_whose_code_is_never_read_are_taken_for_data() {
        let mut guard = guard();
        // A checksum reads unpatched bytes until it reaches a patch, which switches the view. Later reads find no patch.
        for address in 0x1000..0x2000 {
            guard.note_data_read(&(address..address + 1), true);
        }
        guard.set_data_view(0x1000);
        assert_eq!((guard.view(0x1fff), guard.data_pages()), (Some(PageView::Data), vec![0x1000]));
        guard.set_code_view(0x1000);
        (0..10_000).for_each(|_| guard.note_data_read(&(0x1000..0x1001), true));
        assert!(guard.take_data_pages().is_empty());
        // Read a table in a different page at scattered offsets.
        let read = |guard: &mut CodeGuard, n: u32| {
            guard.note_data_read(&(0x2000 + u64::from(n % 7) * 256..0x3000), true);
            guard.take_data_pages()
        };
        let reads = (0u32..).take_while(|n| read(&mut guard, *n).is_empty());
        assert_eq!(reads.count(), MAX_WEIGHTED_DATA_READS as usize / SCATTERED_READ_WEIGHT as usize - 1);
        // A page without patches.
        guard.note_data_read(&(0x4000..0x4004), false);
        assert_eq!(guard.take_data_pages(), [0x4000]);
    }

    #[test]
    fn pages_that_switch_too_often_are_reported_once() {
        let mut guard = guard();
        for _ in 0..2 * MAX_CODE_VIEW_SWITCHES {
            guard.set_data_view(0x3000);
            guard.set_code_view(0x3000);
        }
        assert_eq!((guard.take_overused_pages(), guard.take_overused_pages()), (vec![0x3000], vec![]));
    }

    #[test]
    fn an_access_that_faults_for_another_reason_is_not_retried_forever() {
        let mut guard = guard();
        assert_eq!((0..).take_while(|_| guard.note_access_retry(1, &[2, 3])).count(), MAX_ACCESS_RETRIES as usize);
        assert!(!guard.note_access_retry(1, &[2, 3]));
        assert!(guard.note_access_retry(1, &[2, 4]) && guard.note_access_retry(2, &[2, 3]));
        guard.forget_access_retries(1);
        assert!(guard.note_access_retry(1, &[2, 3]));
    }
}
