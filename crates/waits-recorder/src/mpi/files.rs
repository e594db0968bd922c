//! Operations on MPI files. Collective file operations wait like collective operations on a communicator. File handles are addresses in
//! all MPI libraries.

use super::behaviour::add_completion;
use super::call::MpiCall;
use super::communicator::{self, MemberKind};
use crate::thread::finish_record;
use trodden_wire::waits::{NO_PEER, kind};

/// Open: communicator, name, mode, info, file.
#[inline]
pub fn record_file_open(call: MpiCall) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL, |record| {
        record.object = call.communicator(0);
        // SAFETY: by MPI's definition, the argument is the address of a file handle. In all libraries, the handle is null if opening
        // failed.
        communicator::register_object(MemberKind::File, call.handle(0), unsafe { (call.arguments[4] as *const usize).read() });
    })
}

/// Close: the address of a file handle, which may be reused afterwards.
#[inline]
pub fn record_file_close(call: MpiCall) -> i32 {
    // SAFETY: by MPI's definition, the argument is the address of a file handle.
    let handle = unsafe { (call.arguments[0] as *const usize).read() };
    let number = communicator::number_of(handle);
    let result = call.run_recorded(kind::COLLECTIVE_ALL, |record| record.object = number);
    communicator::remove_handle(handle);
    result
}

/// Collective operation on a file. The file is the first argument.
#[inline]
pub fn record_file_all(call: MpiCall) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL, |record| record.object = communicator::number_of(call.arguments[0]))
}

/// Non-blocking collective operation on a file. `request` is the position of the request.
#[inline]
pub fn record_file_all_nonblocking(call: MpiCall, request: usize) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, |record| {
        record.object = communicator::number_of(call.arguments[0]);
        record.request = call.read_handle(request) as u64;
    })
}

/// Returns the number of the pseudo-request of a split operation. A file has at most one split operation at a time.
fn split_request(file: usize) -> u64 {
    communicator::number_of(file) ^ 1 << 62
}

#[inline]
pub fn record_file_begin(call: MpiCall) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, |record| {
        record.object = communicator::number_of(call.arguments[0]);
        record.request = split_request(call.arguments[0]);
    })
}

#[inline]
pub fn record_file_end(call: MpiCall) -> i32 {
    let request = split_request(call.arguments[0]);
    let Some((thread, mut open)) = call.begin(kind::WAIT) else { return call.run() };
    let result = call.run();
    finish_record(thread, open);
    add_completion(thread, &mut open, request, (NO_PEER, 0), 0);
    result
}
