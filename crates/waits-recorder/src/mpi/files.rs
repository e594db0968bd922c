//! Files of MPI: their operations by all members wait like those of a communicator. Handles are addresses in all libraries.

use super::behaviour::completed;
use super::call::MpiCall;
use super::communicator::{self, MemberKind};
use crate::thread::finish;
use trodden_wire::waits::{NO_PEER, kind};

/// Communicator, name, mode, info, file.
#[inline]
pub fn file_open(call: MpiCall) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL, |record| {
        record.object = call.communicator(0);
        // SAFETY: the file's address, by MPI's definition; null in all libraries if it could not be opened.
        communicator::made_of(MemberKind::File, call.handle(0), unsafe { (call.arguments[4] as *const usize).read() });
    })
}

/// The address of a file, which may be given again.
#[inline]
pub fn file_close(call: MpiCall) -> i32 {
    // SAFETY: the file's address, by MPI's definition.
    let handle = unsafe { (call.arguments[0] as *const usize).read() };
    let number = communicator::number(handle);
    let result = call.recorded(kind::COLLECTIVE_ALL, |record| record.object = number);
    communicator::remove(handle);
    result
}

/// An operation of all members; the file is the first argument.
#[inline]
pub fn file_all(call: MpiCall) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL, |record| record.object = communicator::number(call.arguments[0]))
}

/// The same, with a request.
#[inline]
pub fn file_all_later(call: MpiCall, request: usize) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, |record| {
        record.object = communicator::number(call.arguments[0]);
        record.request = call.handle_at(request) as u64;
    })
}

/// The number of the request that stands for a split operation: a file has at most one.
fn split_request(file: usize) -> u64 {
    communicator::number(file) ^ 1 << 62
}

/// A split operation begins.
#[inline]
pub fn file_begin(call: MpiCall) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, |record| {
        record.object = communicator::number(call.arguments[0]);
        record.request = split_request(call.arguments[0]);
    })
}

/// It ends.
#[inline]
pub fn file_end(call: MpiCall) -> i32 {
    let request = split_request(call.arguments[0]);
    let Some((thread, mut open)) = call.begin(kind::WAIT) else { return call.run() };
    let result = call.run();
    finish(thread, open);
    completed(thread, &mut open, request, (NO_PEER, 0), 0);
    result
}
