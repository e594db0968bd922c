//! Files of MPI: their operations by all members wait like those of a communicator. Handles are addresses in all libraries.

use super::behaviour::{at, completed, handle_of, recorded};
use super::communicator::{self, MemberKind};
use crate::thread::{begin, finish, outside};
use trodden_wire::waits::{CallName, NO_PEER, kind};

/// Communicator, name, mode, info, file.
#[inline]
pub fn file_open<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    recorded(kind::COLLECTIVE_ALL, function, arguments, call, |record, arguments, library| {
        let parent = library.handle(arguments[0]);
        record.object = communicator::number(parent);
        // SAFETY: the file's address, by MPI's definition; null in all libraries if it could not be opened.
        communicator::made_of(MemberKind::File, parent, unsafe { (at(arguments, 4) as *const usize).read() });
    })
}

/// The address of a file, which may be given again.
#[inline]
pub fn file_close<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    // SAFETY: the file's address, by MPI's definition.
    let handle = unsafe { (arguments[0] as *const usize).read() };
    let number = communicator::number(handle);
    let result = recorded(kind::COLLECTIVE_ALL, function, arguments, call, |record, _, _| record.object = number);
    communicator::remove(handle);
    result
}

/// An operation of all members; the file is the first argument.
#[inline]
pub fn file_all<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    recorded(kind::COLLECTIVE_ALL, function, arguments, call, |record, arguments, _| record.object = communicator::number(arguments[0]))
}

/// The same, with a request.
#[inline]
pub fn file_all_later<const N: usize>(
    request: usize,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, function, arguments, call, |record, arguments, _| {
        record.object = communicator::number(arguments[0]);
        record.request = handle_of(arguments, request) as u64;
    })
}

/// The number of the request that stands for a split operation: a file has at most one.
fn split_request(file: usize) -> u64 {
    communicator::number(file) ^ 1 << 62
}

/// A split operation begins.
#[inline]
pub fn file_begin<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, function, arguments, call, |record, arguments, _| {
        record.object = communicator::number(arguments[0]);
        record.request = split_request(arguments[0]);
    })
}

/// It ends.
#[inline]
pub fn file_end<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let request = split_request(arguments[0]);
    let Some(mut open) = begin(thread, kind::WAIT, function) else { return call(arguments) };
    let result = call(arguments);
    finish(thread, open);
    completed(thread, &mut open, request, (NO_PEER, 0), 0);
    result
}

/// Input or output of this process alone.
#[inline]
pub fn file_access<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    recorded(kind::BLOCKED, function, arguments, call, |_, _, _| {})
}
