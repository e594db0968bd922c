//! One-sided communication. Fences wait like collective operations. A window's lock at a rank is a single object for all processes. The
//! four calls of an epoch between groups are recorded as messages: a post to the processes that may access the window, and a completion
//! back.

use super::call::MpiCall;
use super::communicator::{self, CommunicatorMembers, MemberKind, WINDOW_GROUP, hash_of, with_group};
use crate::handles::Handles;
use crate::memory::{map_private, release};
use crate::process;
use crate::thread::{add, finish};
use core::sync::atomic::{AtomicPtr, Ordering};
use trodden_wire::waits::{CallRecord, kind};

/// Tags of the messages that represent the calls of an epoch.
const POSTED: i32 = 1;
const COMPLETED: i32 = 2;

/// Creation: positions of the communicator and of the window.
#[inline]
pub fn window(call: MpiCall, parent: usize, created: usize) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL, |record| {
        record.object = call.communicator(parent);
        communicator::register_object(MemberKind::Window, call.handle(parent), call.handle_at(created));
    })
}

/// Fence: assertion, window.
#[inline]
pub fn window_fence(call: MpiCall) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL, |record| record.object = call.communicator(1))
}

/// Free: the address of a window handle. The handle may be reused afterwards.
#[inline]
pub fn window_free(call: MpiCall) -> i32 {
    let handle = call.handle_at(0);
    let number = communicator::number(handle);
    let result = call.recorded(kind::COLLECTIVE_ALL, |record| record.object = number);
    communicator::remove(handle);
    result
}

/// Lock or unlock of a window at a rank: positions of window and rank. The lock has the same number in all processes.
#[inline]
pub fn window_lock(call: MpiCall, kind: u16, window: usize, rank: usize) -> i32 {
    let lock = hash_of(&[call.communicator(window), call.arguments[rank] as u32 as u64]) | 1 << 63;
    call.recorded(kind, |record| record.object = lock)
}

/// Post: group, assertion, window. Members of the group may access this process's window from now on.
#[inline]
pub fn window_post(call: MpiCall) -> i32 {
    store_epoch(&EXPOSED, &call);
    meeting(call, 2, &EXPOSED, (POSTED, kind::MEETING_SEND), None)
}

/// Start: group, assertion, window. Waits until the members of the group have posted.
#[inline]
pub fn window_start(call: MpiCall) -> i32 {
    store_epoch(&ACCESSED, &call);
    meeting(call, 2, &ACCESSED, (POSTED, kind::MEETING_RECV), None)
}

/// Complete: window. Ends the accesses of the epoch that was started.
#[inline]
pub fn window_complete(call: MpiCall) -> i32 {
    meeting(call, 0, &ACCESSED, (COMPLETED, kind::MEETING_SEND), None)
}

/// Wait: window. Waits until the members of the exposure group have completed.
#[inline]
pub fn window_wait(call: MpiCall) -> i32 {
    meeting(call, 0, &EXPOSED, (COMPLETED, kind::MEETING_RECV), None)
}

/// Test: window, flag. Like [`window_wait`], if the flag is set.
#[inline]
pub fn window_test(call: MpiCall) -> i32 {
    meeting(call, 0, &EXPOSED, (COMPLETED, kind::MEETING_RECV), Some(1))
}

/// Records a call of the newest epoch, with a message of the given tag and kind for each member. For a test, `flag` is the position of its
/// flag.
fn meeting(call: MpiCall, window: usize, table: &'static WindowTable, (tag, kind): (i32, u16), flag: Option<usize>) -> i32 {
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

/// For each window, the members of its newest epoch.
struct WindowTable {
    windows: Handles<SLOTS>,
    epochs: [AtomicPtr<CommunicatorMembers>; SLOTS],
}

impl WindowTable {
    const fn new() -> WindowTable {
        WindowTable { windows: Handles::new(2), epochs: [const { AtomicPtr::new(core::ptr::null_mut()) }; SLOTS] }
    }
}

static EXPOSED: WindowTable = WindowTable::new();
static ACCESSED: WindowTable = WindowTable::new();

/// Stores the members of the epoch that begins with a call (group, assertion, window), until the window's next epoch. MPI permits only one
/// thread at a time to begin an epoch.
fn store_epoch(table: &'static WindowTable, call: &MpiCall) {
    let (group, window) = (call.arguments[0], call.arguments[2]);
    let epoch = with_group(&WINDOW_GROUP, window, |all| CommunicatorMembers::relative(group, all));
    let Some(slot) = table.windows.find_or_add(call.handle(2)) else {
        process::append_note(b"more than 64 windows with MPI_Win_post and MPI_Win_start: waits on further windows are not explained");
        return;
    };
    let Some(place) = map_private::<CommunicatorMembers>(1) else { return };
    // SAFETY: the memory was just mapped for one value of this type.
    unsafe { place.write(epoch) };
    let old = table.epochs[slot].swap(place, Ordering::AcqRel);
    if !old.is_null() {
        // SAFETY: written above; nothing else uses it, since MPI permits only one thread at a time to begin an epoch.
        drop(unsafe { old.read() });
        release(old, 1);
    }
}

fn find(table: &'static WindowTable, window: usize, see: impl FnOnce(&CommunicatorMembers)) {
    let held = table.windows.find(window).map(|slot| table.epochs[slot].load(Ordering::Acquire));
    // SAFETY: null, or written by `store_epoch`.
    if let Some(epoch) = held.and_then(|held| unsafe { held.as_ref() }) {
        see(epoch);
    }
}
