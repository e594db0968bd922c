//! Global numbers of communicators, windows and files. All member processes compute the same number without exchanging messages.
//!
//! Handles cannot be recorded, because they differ between processes. Members create a communicator with the same collective call on its
//! parent, so its number is a hash of the parent's number and the count of such calls on the parent. The hash also includes the world rank
//! of the first member, because one call to `MPI_Comm_split` creates several communicators.

use super::implementation::implementation;
use crate::handles::HandleTable;
use crate::output::OutputLine;
use crate::process;
use crate::real::{RealFunction, real};
use core::sync::atomic::{AtomicU64, Ordering};

pub const WORLD_COMMUNICATOR_NUMBER: u64 = 1;
pub const SELF_COMMUNICATOR_NUMBER: u64 = 2;

const COMMUNICATOR_HANDLE_SLOTS: usize = 1024;
static COMMUNICATOR_HANDLES: HandleTable<COMMUNICATOR_HANDLE_SLOTS> = HandleTable::new(2);
static COMMUNICATOR_NUMBERS: [AtomicU64; COMMUNICATOR_HANDLE_SLOTS] = [const { AtomicU64::new(0) }; COMMUNICATOR_HANDLE_SLOTS];
/// Number of communicators, windows and files that have been created from the communicator in each slot of `COMMUNICATOR_HANDLES`.
static CREATED_COUNTS: [AtomicU64; COMMUNICATOR_HANDLE_SLOTS] = [const { AtomicU64::new(0) }; COMMUNICATOR_HANDLE_SLOTS];

/// Returns the global number of a communicator, window or file; 0 if it is unknown.
#[inline]
pub fn communicator_number_of_handle(handle: usize) -> u64 {
    COMMUNICATOR_HANDLES.find(handle).map_or(0, |slot| COMMUNICATOR_NUMBERS[slot].load(Ordering::Acquire))
}

fn set_number(handle: usize, number: u64) {
    match COMMUNICATOR_HANDLES.find_or_add(handle) {
        Some(slot) => {
            CREATED_COUNTS[slot].store(0, Ordering::Release);
            COMMUNICATOR_NUMBERS[slot].store(number, Ordering::Release);
        }
        None => process::append_note(b"more than 1024 communicators: messages on further communicators are not matched"),
    }
}

/// Forgets a handle whose object was freed, because the MPI library may use it for another object.
pub fn remove_handle(handle: usize) {
    if let Some(slot) = COMMUNICATOR_HANDLES.find(handle) {
        COMMUNICATOR_NUMBERS[slot].store(0, Ordering::Release);
    }
}

pub fn register_predefined() {
    let library = implementation();
    set_number(library.world_communicator(), WORLD_COMMUNICATOR_NUMBER);
    set_number(library.self_communicator(), SELF_COMMUNICATOR_NUMBER);
}

/// Kinds of objects that, like communicators, belong to several processes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MultiProcessObjectKind {
    Window,
    File,
}

/// Assigns a global number to a window or file that a collective call on the communicator `parent` has created.
pub fn register_object(kind: MultiProcessObjectKind, parent: usize, handle: usize) {
    let parent_slot = COMMUNICATOR_HANDLES.find(parent);
    let count = parent_slot.map_or(0, |slot| CREATED_COUNTS[slot].fetch_add(1, Ordering::AcqRel));
    if handle == 0 {
        return;
    }
    let mut ranks = MemberRanks::new();
    ranks.collect_object_members(kind, handle);
    let parent_number = parent_slot.map_or(0, |slot| COMMUNICATOR_NUMBERS[slot].load(Ordering::Acquire));
    let number = hash_parts(&[parent_number, count, ranks.lower_first_rank_of_groups(), 1 << 50 | kind as u64]) | 1 << 63;
    set_number(handle, number);
    ranks.append_line(number, false);
}

pub fn hash_parts(parts: &[u64]) -> u64 {
    parts.iter().fold(0x517c_c1b7_2722_0a95u64, |hash, part| (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31))
}

/// Assigns a global number to a communicator that a call on `parent` has created. `extra` distinguishes the results of calls that not all
/// members of the parent make.
pub fn register_communicator(parent: usize, handle: usize, extra: Option<u64>) {
    let library = implementation();
    let parent_slot = COMMUNICATOR_HANDLES.find(parent);
    let count = parent_slot.map_or(0, |slot| CREATED_COUNTS[slot].fetch_add(u64::from(extra.is_none()), Ordering::AcqRel));
    if handle == library.no_communicator() || handle == 0 {
        return;
    }
    let mut ranks = MemberRanks::new();
    let is_inter = ranks.collect_members(handle);
    let parent_number = parent_slot.map_or(0, |slot| COMMUNICATOR_NUMBERS[slot].load(Ordering::Acquire));
    let key = [parent_number, extra.unwrap_or(count), ranks.lower_first_rank_of_groups()];
    let number = hash_parts(&key) | 1 << 63;
    set_number(handle, number);
    ranks.append_line(number, is_inter);
}

static COMMUNICATOR_GROUP: RealFunction = RealFunction::new(c"PMPI_Comm_group");
pub static WINDOW_GROUP: RealFunction = RealFunction::new(c"PMPI_Win_get_group");

/// Calls `make` with the group that the MPI function `getter` returns for the handle, and frees the group afterwards.
pub fn with_group<R>(getter: &'static RealFunction, handle: usize, make: impl FnOnce(usize) -> R) -> R {
    static FREE: RealFunction = RealFunction::new(c"PMPI_Group_free");
    let mut group = 0usize;
    real!(getter, fn(usize, *mut usize) -> i32, handle, &raw mut group);
    let created = make(group);
    real!(FREE, fn(*mut usize) -> i32, &raw mut group);
    created
}

/// World ranks of a communicator's members. Only an intercommunicator has remote members.
struct MemberRanks {
    local: CommunicatorMembers,
    remote: CommunicatorMembers,
}

pub struct CommunicatorMembers {
    ranks: *mut i32,
    count: usize,
}

impl CommunicatorMembers {
    const fn none() -> Self {
        CommunicatorMembers { ranks: core::ptr::null_mut(), count: 0 }
    }

    /// Returns the ranks of a group's members in `MPI_COMM_WORLD`.
    fn from_group(group: usize) -> Self {
        with_group(&COMMUNICATOR_GROUP, implementation().world_communicator(), |world| {
            CommunicatorMembers::ranks_of_members_in(group, world)
        })
    }

    /// Returns the ranks that the members of `group` have in the group `other`.
    pub fn ranks_of_members_in(group: usize, other: usize) -> Self {
        static SIZE: RealFunction = RealFunction::new(c"PMPI_Group_size");
        static TRANSLATE: RealFunction = RealFunction::new(c"PMPI_Group_translate_ranks");
        let mut size = 0i32;
        real!(SIZE, fn(usize, *mut i32) -> i32, group, &raw mut size);
        let count = size.max(0) as usize;
        let (Some(own), Some(ranks)) = (crate::memory::map_private::<i32>(count.max(1)), crate::memory::map_private::<i32>(count.max(1)))
        else {
            return CommunicatorMembers::none();
        };
        // SAFETY: the memory was just mapped for `count` ranks.
        (0..count).for_each(|rank| unsafe { own.add(rank).write(rank as i32) });
        real!(TRANSLATE, fn(usize, i32, *mut i32, usize, *mut i32) -> i32, group, size, own, other, ranks);
        crate::memory::unmap_elements(own, count.max(1));
        CommunicatorMembers { ranks, count }
    }

    pub fn iter(&self) -> impl Iterator<Item = i32> {
        (0..self.count).map(|index| self.get(index))
    }

    fn get(&self, index: usize) -> i32 {
        // SAFETY: the memory has `count` ranks, and callers pass a smaller index.
        unsafe { self.ranks.add(index).read() }
    }
}

impl Drop for CommunicatorMembers {
    fn drop(&mut self) {
        if !self.ranks.is_null() {
            crate::memory::unmap_elements(self.ranks, self.count.max(1));
        }
    }
}

impl MemberRanks {
    const fn new() -> Self {
        MemberRanks { local: CommunicatorMembers::none(), remote: CommunicatorMembers::none() }
    }

    /// Fills in the members of a communicator. Returns true if it is an intercommunicator.
    fn collect_members(&mut self, handle: usize) -> bool {
        static REMOTE: RealFunction = RealFunction::new(c"PMPI_Comm_remote_group");
        static INTER: RealFunction = RealFunction::new(c"PMPI_Comm_test_inter");
        let mut is_inter = 0i32;
        real!(INTER, fn(usize, *mut i32) -> i32, handle, &raw mut is_inter);
        self.local = with_group(&COMMUNICATOR_GROUP, handle, CommunicatorMembers::from_group);
        if is_inter != 0 {
            self.remote = with_group(&REMOTE, handle, CommunicatorMembers::from_group);
        }
        is_inter != 0
    }

    /// Fills in the members of a window or file.
    fn collect_object_members(&mut self, kind: MultiProcessObjectKind, handle: usize) {
        static FILE: RealFunction = RealFunction::new(c"PMPI_File_get_group");
        let group_of = match kind {
            MultiProcessObjectKind::Window => &WINDOW_GROUP,
            MultiProcessObjectKind::File => &FILE,
        };
        self.local = with_group(group_of, handle, CommunicatorMembers::from_group);
    }

    /// Returns the lower of the first ranks of the local and the remote group. Both sides of an intercommunicator get the same result.
    fn lower_first_rank_of_groups(&self) -> u64 {
        let firsts = [&self.local, &self.remote].map(|m| if m.count > 0 { m.get(0) } else { i32::MAX });
        firsts.into_iter().min().unwrap_or(0) as u64
    }

    fn append_line(&self, number: u64, is_inter: bool) {
        let mut line = OutputLine::new();
        line.add(b"communicator ").add_number(number).add(b" local");
        write_members(&mut line, &self.local, number);
        if is_inter {
            line.add(b" remote");
            write_members(&mut line, &self.remote, number);
        }
        process::append_line(&line);
    }
}

/// Appends ranks to a line, with runs of consecutive ranks written as `first-last`. Starts a new line when the line is full.
fn write_members(line: &mut OutputLine, members: &CommunicatorMembers, number: u64) {
    let mut at = 0;
    while at < members.count {
        let first = members.get(at);
        let mut last = at;
        while last + 1 < members.count && members.get(last + 1) == members.get(last) + 1 {
            last += 1;
        }
        if !line.has_room(40) {
            process::append_line(line);
            *line = OutputLine::new();
            line.add(b"more ").add_number(number);
        }
        // A process that was spawned or connected later has no rank in this `MPI_COMM_WORLD`.
        if first < 0 {
            line.add(b" ?");
        } else {
            line.add(b" ").add_number(first as u64);
        }
        if last > at {
            line.add(b"-").add_number(members.get(last) as u64);
        }
        at = last + 1;
    }
}
