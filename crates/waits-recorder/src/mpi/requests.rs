//! Calls that complete requests: waits and tests for one, all, any or some of them.
//!
//! Parameters are the argument positions of the status and, for a test, of the flag that the call sets if the test is successful.

use super::behaviour::{cancelled, completed};
use super::call::{MpiCall, source_and_tag};
use super::implementation::{STATUS_WORDS, implementation};
use crate::memory::{map_private, release};
use crate::thread::{OpenRecord, Thread, add, finish, recordable_thread};
use trodden_wire::waits::{CallRecord, kind};

/// Wait or test for one request: the request is the first argument.
pub fn complete_one(mut call: MpiCall, status: usize, flag: Option<usize>) -> i32 {
    let request = call.handle_at(0) as u64;
    let Some((thread, mut open)) = call.begin(kind::WAIT) else { return call.run() };
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.statuses(status, spare.as_mut_ptr());
    let result = call.run();
    if flag.is_some_and(|flag| call.integer_at(flag) == 0) {
        thread.withdraw(open);
        return result;
    }
    let amount = cancelled(status, 0);
    thread.end_polling(&mut open);
    finish(thread, open);
    completed(thread, &mut open, request, source_and_tag(status, 0), amount);
    result
}

/// Handles and statuses of a call on several requests. They are stored on the stack if there are few, and otherwise in mapped memory.
struct RequestArray {
    handles: *mut u64,
    statuses: *mut i32,
    count: usize,
    stack_handles: [u64; MAX_ON_STACK],
    stack_statuses: [i32; MAX_ON_STACK * STATUS_WORDS],
}

const MAX_ON_STACK: usize = 32;

impl RequestArray {
    /// An empty array, to be filled by [`RequestArray::begin`].
    fn new() -> Self {
        RequestArray {
            handles: core::ptr::null_mut(),
            statuses: core::ptr::null_mut(),
            count: 0,
            stack_handles: [0; MAX_ON_STACK],
            stack_statuses: [0; MAX_ON_STACK * STATUS_WORDS],
        }
    }

    /// Copies the handles and begins a record. Returns `None`, without holding memory, if the call cannot be recorded.
    fn begin(&mut self, call: &MpiCall) -> Option<(&'static mut Thread, OpenRecord)> {
        recordable_thread()?;
        self.count = (call.arguments[0] as i32).max(0) as usize;
        if self.count <= MAX_ON_STACK {
            self.handles = self.stack_handles.as_mut_ptr();
            self.statuses = self.stack_statuses.as_mut_ptr();
        } else {
            (self.handles, self.statuses) = (map_private(self.count)?, map_private(self.count * STATUS_WORDS)?);
        }
        let library = implementation();
        for index in 0..self.count {
            // SAFETY: the caller's array and the copy have `count` handles.
            unsafe { self.handles.add(index).write(library.handle_at(call.arguments[1], index) as u64) };
        }
        let opened = call.begin(kind::WAIT);
        if opened.is_none() {
            self.free();
        }
        opened
    }

    fn handle(&self, index: usize) -> u64 {
        // SAFETY: callers pass an index below the count.
        unsafe { self.handles.add(index).read() }
    }

    fn free(&self) {
        if self.count > MAX_ON_STACK {
            release(self.handles, self.count);
            release(self.statuses, self.count * STATUS_WORDS);
        }
    }
}

/// Wait or test for all: count, requests.
pub fn complete_all(mut call: MpiCall, statuses: usize, flag: Option<usize>) -> i32 {
    let mut array = RequestArray::new();
    let Some((thread, mut open)) = array.begin(&call) else { return call.run() };
    let statuses = call.statuses(statuses, array.statuses);
    let result = call.run();
    if flag.is_some_and(|flag| call.integer_at(flag) == 0) {
        thread.withdraw(open);
    } else {
        thread.end_polling(&mut open);
        open.record().size_or_count = array.count as u64;
        finish(thread, open);
        let first = open.copy();
        for index in 0..array.count {
            let (peer, tag) = source_and_tag(statuses, index);
            add(thread, CallRecord { peer, tag, size_or_count: cancelled(statuses, index), request: array.handle(index), ..first });
        }
    }
    array.free();
    result
}

/// Wait or test for any: count, requests, index.
pub fn complete_any(mut call: MpiCall, status: usize, flag: Option<usize>) -> i32 {
    let mut array = RequestArray::new();
    let Some((thread, mut open)) = array.begin(&call) else { return call.run() };
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.statuses(status, spare.as_mut_ptr());
    let result = call.run();
    if flag.is_some_and(|flag| call.integer_at(flag) == 0) {
        thread.withdraw(open);
    } else {
        thread.end_polling(&mut open);
        finish(thread, open);
        let which = call.integer_at(2);
        if which >= 0 && (which as usize) < array.count {
            completed(thread, &mut open, array.handle(which as usize), source_and_tag(status, 0), cancelled(status, 0));
        }
    }
    array.free();
    result
}

/// Wait or test for some: count, requests, number of completed requests, their indices, statuses.
pub fn complete_some(mut call: MpiCall) -> i32 {
    let mut array = RequestArray::new();
    let Some((thread, mut open)) = array.begin(&call) else { return call.run() };
    let statuses = call.statuses(4, array.statuses);
    let result = call.run();
    let count = call.integer_at(2);
    if count <= 0 {
        thread.withdraw(open);
    } else {
        thread.end_polling(&mut open);
        finish(thread, open);
        let first = open.copy();
        for place in 0..count as usize {
            // SAFETY: by MPI's definition, the argument is the address of an array with `count` indices.
            let index = unsafe { (call.arguments[3] as *const i32).add(place).read() } as usize;
            let (peer, tag) = source_and_tag(statuses, place);
            if index < array.count {
                add(thread, CallRecord { peer, tag, size_or_count: cancelled(statuses, place), request: array.handle(index), ..first });
            }
        }
    }
    array.free();
    result
}
