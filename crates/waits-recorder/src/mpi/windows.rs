//! Windows: one-sided communication. Fences wait like collective operations; a lock of a window at a process is one object for all;
//! the four calls of an epoch between groups are messages: a post to those that may access, a completion back.

use super::call::MpiCall;
use super::communicator::{self, CommunicatorMembers, MemberKind, WINDOW_GROUP, mixed, with_group};
use crate::handles::Handles;
use crate::memory::{memory, release};
use crate::process;
use crate::thread::{add, finish};
use core::sync::atomic::{AtomicPtr, Ordering};
use trodden_wire::waits::{CallRecord, kind};

/// Tags of the messages that an epoch stands for.
const POSTED: i32 = 1;
const COMPLETED: i32 = 2;

/// Positions of the communicator and of the window that is made.
#[inline]
pub fn window(call: MpiCall, parent: usize, made: usize) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL, |record| {
        record.object = call.communicator(parent);
        communicator::made_of(MemberKind::Window, call.handle(parent), call.handle_at(made));
    })
}

/// Assertion, window.
#[inline]
pub fn window_fence(call: MpiCall) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL, |record| record.object = call.communicator(1))
}

/// The address of a window, whose handle may be given again.
#[inline]
pub fn window_free(call: MpiCall) -> i32 {
    let handle = call.handle_at(0);
    let number = communicator::number(handle);
    let result = call.recorded(kind::COLLECTIVE_ALL, |record| record.object = number);
    communicator::remove(handle);
    result
}

/// A lock of a window at a rank, or its release; positions of both. The lock has one name for all processes.
#[inline]
pub fn window_lock(call: MpiCall, kind: u16, window: usize, rank: usize) -> i32 {
    let lock = mixed(&[call.communicator(window), call.arguments[rank] as u32 as u64]) | 1 << 63;
    call.recorded(kind, |record| record.object = lock)
}

/// Group, assertion, window: those of the group may access this process's window from now on.
#[inline]
pub fn window_post(call: MpiCall) -> i32 {
    keep(&EXPOSED, &call);
    meeting(call, 2, &EXPOSED, (POSTED, kind::MEETING_SEND), None)
}

/// Group, assertion, window: waits until those of the group have posted.
#[inline]
pub fn window_start(call: MpiCall) -> i32 {
    keep(&ACCESSED, &call);
    meeting(call, 2, &ACCESSED, (POSTED, kind::MEETING_RECV), None)
}

/// Window: the accesses of the epoch that was started are over.
#[inline]
pub fn window_complete(call: MpiCall) -> i32 {
    meeting(call, 0, &ACCESSED, (COMPLETED, kind::MEETING_SEND), None)
}

/// Window: waits until those that were let access have completed.
#[inline]
pub fn window_wait(call: MpiCall) -> i32 {
    meeting(call, 0, &EXPOSED, (COMPLETED, kind::MEETING_RECV), None)
}

/// Window, flag: as [`window_wait`], if the flag is set.
#[inline]
pub fn window_test(call: MpiCall) -> i32 {
    meeting(call, 0, &EXPOSED, (COMPLETED, kind::MEETING_RECV), Some(1))
}

/// What a side of the newest epoch does with each of its members: tag and kind of record. Of a test, the position of its flag.
fn meeting(call: MpiCall, window: usize, table: &'static Table, (tag, kind): (i32, u16), flag: Option<usize>) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::MEETING) else { return call.run() };
    open.record().object = call.communicator(window);
    let result = call.run();
    if let Some(flag) = flag {
        if call.integer_at(flag) == 0 {
            thread.withdraw(open);
            return result;
        }
        thread.end_polling(&mut open);
    }
    finish(thread, open);
    let first = open.copy();
    find(table, call.handle(window), |epoch| epoch.iter().for_each(|peer| add(thread, CallRecord { kind, peer, tag, ..first })));
    result
}

const SLOTS: usize = 64;

/// The members of the newest epoch of each window.
struct Table {
    windows: Handles<SLOTS>,
    epochs: [AtomicPtr<CommunicatorMembers>; SLOTS],
}

impl Table {
    const fn new() -> Table {
        Table { windows: Handles::new(2), epochs: [const { AtomicPtr::new(core::ptr::null_mut()) }; SLOTS] }
    }
}

static EXPOSED: Table = Table::new();
static ACCESSED: Table = Table::new();

/// Keeps the epoch that a call with group, assertion and window begins, until the next one of the same window. MPI lets one thread at a
/// time do so.
fn keep(table: &'static Table, call: &MpiCall) {
    let (group, window) = (call.arguments[0], call.arguments[2]);
    let epoch = with_group(&WINDOW_GROUP, window, |all| CommunicatorMembers::relative(group, all));
    let Some(slot) = table.windows.find_or_add(call.handle(2)) else {
        process::note(b"more windows with post and start than are followed (64): who waits there is not known");
        return;
    };
    let Some(place) = memory::<CommunicatorMembers>(1) else { return };
    // SAFETY: fresh memory of this size.
    unsafe { place.write(epoch) };
    let old = table.epochs[slot].swap(place, Ordering::AcqRel);
    if !old.is_null() {
        // SAFETY: written above; nothing else holds it, since MPI lets one thread at a time begin an epoch.
        drop(unsafe { old.read() });
        release(old, 1);
    }
}

fn find(table: &'static Table, window: usize, see: impl FnOnce(&CommunicatorMembers)) {
    let held = table.windows.find(window).map(|slot| table.epochs[slot].load(Ordering::Acquire));
    // SAFETY: null, or as in `keep`.
    if let Some(epoch) = held.and_then(|held| unsafe { held.as_ref() }) {
        see(epoch);
    }
}
