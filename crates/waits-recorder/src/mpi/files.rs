//! Operations on MPI files. Collective file operations wait like collective operations on a communicator. File handles are addresses in all
//! libraries.

use super::behaviour::completed;
use super::call::MpiCall;
use super::communicator::{self, MemberKind};
use crate::thread::finish;
use trodden_wire::waits::{NO_PEER, kind};

/// Open: communicator, name, mode, info, file.
#[inline]
pub fn file_open(call: MpiCall) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL, |record| {
        record.object = call.communicator(0);
        // SAFETY: by MPI's definition, the argument is the address of a file handle. The handle is null in all libraries if the open
        // failed.
        communicator::register_object(MemberKind::File, call.handle(0), unsafe { (call.arguments[4] as *const usize).read() });
    })
}

/// Close: the address of a file handle. The handle may be reused afterwards.
#[inline]
pub fn file_close(call: MpiCall) -> i32 {
    // SAFETY: by MPI's definition, the argument is the address of a file handle.
    let handle = unsafe { (call.arguments[0] as *const usize).read() };
    let number = communicator::number(handle);
    let result = call.recorded(kind::COLLECTIVE_ALL, |record| record.object = number);
    communicator::remove(handle);
    result
}

/// Collective operation on a file, the first argument.
#[inline]
pub fn file_all(call: MpiCall) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL, |record| record.object = communicator::number(call.arguments[0]))
}

/// Non-blocking collective operation on a file: position of the request.
#[inline]
pub fn file_all_nonblocking(call: MpiCall, request: usize) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, |record| {
        record.object = communicator::number(call.arguments[0]);
        record.request = call.handle_at(request) as u64;
    })
}

/// The number of the pseudo-request of a split operation. A file has at most one split operation at a time.
fn split_request(file: usize) -> u64 {
    communicator::number(file) ^ 1 << 62
}

/// Start of a split operation.
#[inline]
pub fn file_begin(call: MpiCall) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, |record| {
        record.object = communicator::number(call.arguments[0]);
        record.request = split_request(call.arguments[0]);
    })
}

/// End of a split operation.
#[inline]
pub fn file_end(call: MpiCall) -> i32 {
    let request = split_request(call.arguments[0]);
    let Some((thread, mut open)) = call.begin(kind::WAIT) else { return call.run() };
    let result = call.run();
    finish(thread, open);
    completed(thread, &mut open, request, (NO_PEER, 0), 0);
    result
}
