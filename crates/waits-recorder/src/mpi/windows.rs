//! One-sided communication: processes access memory *windows* of other processes.
//!
//! Fences are recorded like collective operations. A window's lock at a rank is recorded as one object for all processes. In an epoch
//! between groups of processes (`MPI_Win_post`, `start`, `complete`, `wait`), the calls are recorded as messages: a post sends to the
//! processes that may access the window, and a completion sends in the opposite direction.

use super::call::MpiCall;
use super::communicator::{self, CommunicatorMembers, MultiProcessObjectKind, WINDOW_GROUP, hash_parts, with_group};
use crate::handles::HandleTable;
use crate::memory::{map_private, unmap_elements};
use crate::process;
use crate::thread::{add_record, finish_record};
use core::sync::atomic::{AtomicPtr, Ordering};
use trodden_wire::waits::{CallRecord, kind};

/// Tags of the messages that stand for posts and completions.
const WINDOW_POST_TAG: i32 = 1;
const WINDOW_COMPLETION_TAG: i32 = 2;

/// Records the collective creation of a window. `parent` and `created` are the positions of the communicator and the window.
#[inline]
pub fn record_window(call: MpiCall, parent: usize, created: usize) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL, |record| {
        record.object = call.communicator_number(parent);
        communicator::register_object(MultiProcessObjectKind::Window, call.handle(parent), call.read_handle(created));
    })
}

/// Fence: assertion, window.
#[inline]
pub fn record_window_fence(call: MpiCall) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL, |record| record.object = call.communicator_number(1))
}

/// Records a collective call that frees a window. The argument is the address of the window's handle, which is removed because the library
/// may reuse it.
#[inline]
pub fn record_window_free(call: MpiCall) -> i32 {
    let handle = call.read_handle(0);
    let number = communicator::communicator_number_of_handle(handle);
    let result = call.run_recorded(kind::COLLECTIVE_ALL, |record| record.object = number);
    communicator::remove_handle(handle);
    result
}

/// Records a call that locks or unlocks a window at a rank. `window` and `rank` are argument positions. All processes compute the same
/// number for the lock.
#[inline]
pub fn record_window_lock(call: MpiCall, kind: u16, window: usize, rank: usize) -> i32 {
    let lock = hash_parts(&[call.communicator_number(window), call.arguments[rank] as u32 as u64]) | 1 << 63;
    call.run_recorded(kind, |record| record.object = lock)
}

/// Records a post, after which the members of a group may access this process's window. Arguments: group, assertion, window.
#[inline]
pub fn record_window_post(call: MpiCall) -> i32 {
    store_epoch_members(&EXPOSURE_EPOCHS, &call);
    record_meeting(call, 2, &EXPOSURE_EPOCHS, (WINDOW_POST_TAG, kind::MEETING_SEND), None)
}

/// Records the start of an access epoch, which waits until the group's members have posted. Arguments: group, assertion, window.
#[inline]
pub fn record_window_start(call: MpiCall) -> i32 {
    store_epoch_members(&ACCESS_EPOCHS, &call);
    record_meeting(call, 2, &ACCESS_EPOCHS, (WINDOW_POST_TAG, kind::MEETING_RECV), None)
}

/// Records the end of the access epoch that [`record_window_start`] began. Argument: window.
#[inline]
pub fn record_window_complete(call: MpiCall) -> i32 {
    record_meeting(call, 0, &ACCESS_EPOCHS, (WINDOW_COMPLETION_TAG, kind::MEETING_SEND), None)
}

/// Records a wait until all processes that may access this process's window have completed their epochs. Argument: window.
#[inline]
pub fn record_window_wait(call: MpiCall) -> i32 {
    record_meeting(call, 0, &EXPOSURE_EPOCHS, (WINDOW_COMPLETION_TAG, kind::MEETING_RECV), None)
}

/// Records a test for what [`record_window_wait`] waits for. If the call sets the flag, it is recorded like that wait. Arguments: window,
/// flag.
#[inline]
pub fn record_window_test(call: MpiCall) -> i32 {
    record_meeting(call, 0, &EXPOSURE_EPOCHS, (WINDOW_COMPLETION_TAG, kind::MEETING_RECV), Some(1))
}

/// Records a call in the window's newest epoch, and for each member of the epoch a message with the given tag and kind. `flag` is the
/// position of the flag if the call is a test.
fn record_meeting(call: MpiCall, window: usize, table: &'static WindowEpochTable, (tag, kind): (i32, u16), flag: Option<usize>) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::MEETING) else { return call.run() };
    open.record().object = call.communicator_number(window);
    let result = call.run();
    if let Some(flag) = flag {
        if call.read_integer(flag) == 0 {
            thread.fold_test_into_polling_loop(open);
            return result;
        }
        thread.end_polling_loop(&mut open);
    }
    finish_record(thread, open);
    let first = open.completion_template();
    with_epoch_members(table, call.handle(window), |epoch| {
        epoch.iter().for_each(|peer| add_record(thread, CallRecord { kind, peer, tag, ..first }))
    });
    result
}

const WINDOW_SLOTS: usize = 64;

/// For each window, the processes that take part in its newest epoch.
struct WindowEpochTable {
    windows: HandleTable<WINDOW_SLOTS>,
    epochs: [AtomicPtr<CommunicatorMembers>; WINDOW_SLOTS],
}

impl WindowEpochTable {
    const fn new() -> WindowEpochTable {
        WindowEpochTable { windows: HandleTable::new(2), epochs: [const { AtomicPtr::new(core::ptr::null_mut()) }; WINDOW_SLOTS] }
    }
}

static EXPOSURE_EPOCHS: WindowEpochTable = WindowEpochTable::new();
static ACCESS_EPOCHS: WindowEpochTable = WindowEpochTable::new();

/// Stores the members of the epoch that a call begins, until the next epoch of the same window. The call's arguments are group, assertion,
/// window.
fn store_epoch_members(table: &'static WindowEpochTable, call: &MpiCall) {
    let (group, window) = (call.arguments[0], call.arguments[2]);
    let epoch = with_group(&WINDOW_GROUP, window, |all| CommunicatorMembers::ranks_of_members_in(group, all));
    let Some(slot) = table.windows.find_or_add(call.handle(2)) else {
        process::append_note(b"more than 64 windows with MPI_Win_post and MPI_Win_start: waits on further windows are not explained");
        return;
    };
    let Some(place) = map_private::<CommunicatorMembers>(1) else { return };
    // SAFETY: the memory was just mapped for one value of this type.
    unsafe { place.write(epoch) };
    let old = table.epochs[slot].swap(place, Ordering::AcqRel);
    if !old.is_null() {
        // SAFETY: an earlier call wrote the value, and nothing else uses it, because MPI permits only one thread at a time to begin an
        // epoch.
        drop(unsafe { old.read() });
        unmap_elements(old, 1);
    }
}

fn with_epoch_members(table: &'static WindowEpochTable, window: usize, use_epoch: impl FnOnce(&CommunicatorMembers)) {
    let epoch = table.windows.find(window).map(|slot| table.epochs[slot].load(Ordering::Acquire));
    // SAFETY: the pointer is null, or refers to a value that `store_epoch_members` wrote.
    if let Some(epoch) = epoch.and_then(|epoch| unsafe { epoch.as_ref() }) {
        use_epoch(epoch);
    }
}
