//! Operations on MPI files. In a collective file operation, processes wait for each other as in a collective operation on a communicator.
//! File handles are addresses in all MPI libraries.

use super::behaviour::add_completion_record;
use super::call::MpiCall;
use super::communicator::{self, MultiProcessObjectKind};
use crate::thread::finish_record;
use trodden_wire::waits::{NO_PEER, kind};

/// Records a collective open. Arguments: communicator, name, mode, info, file.
#[inline]
pub fn record_file_open(call: MpiCall) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL, |record| {
        record.object = call.communicator_number(0);
        // SAFETY: MPI defines the argument as the address of a file handle. All libraries set the handle to null if opening fails.
        communicator::register_object(MultiProcessObjectKind::File, call.handle(0), unsafe { (call.arguments[4] as *const usize).read() });
    })
}

/// Records a collective close. The argument is the address of a file handle, which is removed because the library may reuse it.
#[inline]
pub fn record_file_close(call: MpiCall) -> i32 {
    // SAFETY: MPI defines the argument as the address of a file handle.
    let handle = unsafe { (call.arguments[0] as *const usize).read() };
    let number = communicator::communicator_number_of_handle(handle);
    let result = call.run_recorded(kind::COLLECTIVE_ALL, |record| record.object = number);
    communicator::remove_handle(handle);
    result
}

/// Records a collective operation on the file that is the first argument.
#[inline]
pub fn record_file_all(call: MpiCall) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL, |record| record.object = communicator::communicator_number_of_handle(call.arguments[0]))
}

/// Records a non-blocking collective operation on the file that is the first argument. `request` is the position of the request.
#[inline]
pub fn record_file_all_nonblocking(call: MpiCall, request: usize) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, |record| {
        record.object = communicator::communicator_number_of_handle(call.arguments[0]);
        record.request = call.read_handle(request) as u64;
    })
}

/// Returns a made-up request number for a split collective operation (`..._begin` and `..._end`), which is recorded like a non-blocking
/// operation. A file has at most one split operation at a time, so one number per file suffices.
fn split_request_number(file: usize) -> u64 {
    communicator::communicator_number_of_handle(file) ^ 1 << 62
}

#[inline]
pub fn record_file_begin(call: MpiCall) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, |record| {
        record.object = communicator::communicator_number_of_handle(call.arguments[0]);
        record.request = split_request_number(call.arguments[0]);
    })
}

#[inline]
pub fn record_file_end(call: MpiCall) -> i32 {
    let request = split_request_number(call.arguments[0]);
    let Some((thread, mut open)) = call.begin(kind::WAIT) else { return call.run() };
    let result = call.run();
    finish_record(thread, open);
    add_completion_record(thread, &mut open, request, (NO_PEER, 0), 0);
    result
}
