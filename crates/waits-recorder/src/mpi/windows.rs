//! Windows: one-sided communication. Fences wait like collective operations; a lock of a window at a process is one object for all;
//! the four calls of an epoch between groups are messages: a post to those that may access, a completion back.

use super::behaviour::{at, handle_of, is_set, recorded};
use super::communicator::{self, CommunicatorMembers, MemberKind, mixed};
use super::implementation::implementation;
use crate::output::{memory, release};
use crate::process;
use crate::real::{Real, real};
use crate::thread::{add, begin, finish, outside};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use trodden_wire::waits::{CallName, CallRecord, kind};

/// Tags of the messages that an epoch stands for.
const POSTED: i32 = 1;
const COMPLETED: i32 = 2;

/// Positions of the communicator and of the window that is made.
#[inline]
pub fn window<const N: usize>(
    parent: usize,
    made: usize,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    recorded(kind::COLLECTIVE_ALL, function, arguments, call, |record, arguments, library| {
        let from = library.handle(at(arguments, parent));
        record.object = communicator::number(from);
        communicator::made_of(MemberKind::Window, from, handle_of(arguments, made));
    })
}

/// Assertion, window.
#[inline]
pub fn window_fence<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    recorded(kind::COLLECTIVE_ALL, function, arguments, call, |record, arguments, library| {
        record.object = communicator::number(library.handle(at(arguments, 1)));
    })
}

/// The address of a window, whose handle may be given again.
#[inline]
pub fn window_free<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let handle = handle_of(arguments, 0);
    let number = communicator::number(handle);
    let result = recorded(kind::COLLECTIVE_ALL, function, arguments, call, |record, _, _| record.object = number);
    communicator::remove(handle);
    result
}

/// Names the lock of a window at a rank, for all processes.
fn lock_of(window: usize, rank: usize) -> u64 {
    mixed(&[communicator::number(implementation().handle(window)), rank as u32 as u64]) | 1 << 63
}

/// Kind of lock, rank, assertion, window.
#[inline]
pub fn window_lock<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let lock = lock_of(at(arguments, 3), at(arguments, 1));
    recorded(kind::WINDOW_LOCK, function, arguments, call, |record, _, _| record.object = lock)
}

/// Rank, window.
#[inline]
pub fn window_unlock<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let lock = lock_of(at(arguments, 1), arguments[0]);
    recorded(kind::WINDOW_UNLOCK, function, arguments, call, |record, _, _| record.object = lock)
}

/// Group, assertion, window: those of the group may access this process's window from now on.
#[inline]
pub fn window_post<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let (group, window) = (arguments[0], at(arguments, 2));
    keep(&EXPOSED, window, Epoch::from_group(group, window));
    meeting(function, arguments, call, window, |epoch, see| epoch.each(POSTED, kind::MEETING_SEND, see), &EXPOSED)
}

/// Group, assertion, window: waits until those of the group have posted.
#[inline]
pub fn window_start<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let (group, window) = (arguments[0], at(arguments, 2));
    keep(&ACCESSED, window, Epoch::from_group(group, window));
    meeting(function, arguments, call, window, |epoch, see| epoch.each(POSTED, kind::MEETING_RECV, see), &ACCESSED)
}

/// Window: the accesses of the epoch that was started are over.
#[inline]
pub fn window_complete<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let window = arguments[0];
    meeting(function, arguments, call, window, |epoch, see| epoch.each(COMPLETED, kind::MEETING_SEND, see), &ACCESSED)
}

/// Window: waits until those that were let access have completed.
#[inline]
pub fn window_wait<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let window = arguments[0];
    meeting(function, arguments, call, window, |epoch, see| epoch.each(COMPLETED, kind::MEETING_RECV, see), &EXPOSED)
}

/// Window, flag: as [`window_wait`], if the flag is set.
#[inline]
pub fn window_test<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let window = implementation().handle(arguments[0]);
    let Some(mut open) = begin(thread, kind::MEETING, function) else { return call(arguments) };
    open.record().object = communicator::number(window);
    let result = call(arguments);
    if !is_set(at(arguments, 1)) {
        thread.withdraw(open);
        return result;
    }
    thread.end_polling(&mut open);
    finish(thread, open);
    let first = open.copy();
    find(&EXPOSED, window, |epoch| {
        epoch.each(COMPLETED, kind::MEETING_RECV, &mut |peer, tag, kind| {
            add(thread, CallRecord { kind, peer, tag, ..first });
        })
    });
    result
}

/// What a side of an epoch does with each of its members: rank, tag, kind of record.
type See<'a> = &'a mut dyn FnMut(i32, i32, u16);

fn meeting<const N: usize>(
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
    window: usize,
    sides: impl FnOnce(&Epoch, See),
    table: &'static Table,
) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let window = implementation().handle(window);
    let Some(mut open) = begin(thread, kind::MEETING, function) else { return call(arguments) };
    open.record().object = communicator::number(window);
    let result = call(arguments);
    finish(thread, open);
    let first = open.copy();
    find(table, window, |epoch| sides(epoch, &mut |peer, tag, kind| add(thread, CallRecord { kind, peer, tag, ..first })));
    result
}

/// The members of an epoch, by their ranks in the window's group.
struct Epoch {
    members: CommunicatorMembers,
}

impl Epoch {
    fn from_group(group: usize, window: usize) -> Epoch {
        static GROUP: Real = Real::new(c"PMPI_Win_get_group");
        static FREE: Real = Real::new(c"PMPI_Group_free");
        let mut of_window = 0usize;
        real!(GROUP, fn(usize, *mut usize) -> i32, window, &raw mut of_window);
        let members = CommunicatorMembers::relative(group, of_window);
        real!(FREE, fn(*mut usize) -> i32, &raw mut of_window);
        Epoch { members }
    }

    fn each(&self, tag: i32, kind: u16, see: See) {
        (0..self.members.count).for_each(|index| see(self.members.get(index), tag, kind));
    }
}

const SLOTS: usize = 64;

/// The newest epoch of each window.
struct Table {
    windows: [AtomicU64; SLOTS],
    epochs: [AtomicPtr<Epoch>; SLOTS],
}

impl Table {
    const fn new() -> Table {
        Table { windows: [const { AtomicU64::new(0) }; SLOTS], epochs: [const { AtomicPtr::new(core::ptr::null_mut()) }; SLOTS] }
    }
}

static EXPOSED: Table = Table::new();
static ACCESSED: Table = Table::new();

/// Keeps an epoch until the next one of the same window. MPI lets one thread at a time do so.
fn keep(table: &'static Table, window: usize, epoch: Epoch) {
    let key = implementation().handle(window) as u64;
    for (slot, held) in table.windows.iter().zip(&table.epochs) {
        let found = slot.load(Ordering::Acquire);
        if found != key && (found != 0 || slot.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire).is_err()) {
            continue;
        }
        let Some(place) = memory::<Epoch>(1) else { return };
        // SAFETY: fresh memory of this size.
        unsafe { place.write(epoch) };
        let old = held.swap(place, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: written above; nothing else holds it, since MPI lets one thread at a time begin an epoch.
            drop(unsafe { old.read() });
            release(old, 1);
        }
        return;
    }
    process::note(b"more windows with post and start than are followed (64): who waits there is not known");
}

fn find(table: &'static Table, window: usize, see: impl FnOnce(&Epoch)) {
    let slot = table.windows.iter().position(|slot| slot.load(Ordering::Acquire) == window as u64);
    let held = slot.map_or(core::ptr::null_mut(), |slot| table.epochs[slot].load(Ordering::Acquire));
    if !held.is_null() {
        // SAFETY: as in `keep`.
        see(unsafe { &*held });
    }
}
