//! Calls that complete requests: `MPI_Wait`, `MPI_Test`, and their variants for all, any or some of several requests.
//!
//! The parameters of the functions are the position of the status argument and, for a test, the position of the flag. The call sets the
//! flag if the requests are complete.

use super::behaviour::{add_completion_record, read_cancelled_as_amount};
use super::call::{MpiCall, source_and_tag};
use super::implementation::{STATUS_WORDS, implementation};
use crate::memory::{map_private, unmap_elements};
use crate::thread::{OpenRecord, Thread, add_record, finish_record, recordable_thread};
use trodden_wire::waits::{CallRecord, kind};

/// Records a wait or a test for the request that is the first argument.
pub fn record_completion_of_one(mut call: MpiCall, status: usize, flag: Option<usize>) -> i32 {
    let request = call.read_handle(0) as u64;
    let Some((thread, mut open)) = call.begin(kind::WAIT) else { return call.run() };
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.ensure_statuses(status, spare.as_mut_ptr());
    let result = call.run();
    if flag.is_some_and(|flag| call.read_integer(flag) == 0) {
        thread.fold_test_into_polling_loop(open);
        return result;
    }
    let amount = read_cancelled_as_amount(status, 0);
    thread.end_polling_loop(&mut open);
    finish_record(thread, open);
    add_completion_record(thread, &mut open, request, source_and_tag(status, 0), amount);
    result
}

/// Handles and statuses of a call on several requests. Up to [`MAX_REQUESTS_ON_STACK`] are stored in the structure, more in mapped memory.
struct RequestArray {
    handles: *mut u64,
    statuses: *mut i32,
    count: usize,
    stack_handles: [u64; MAX_REQUESTS_ON_STACK],
    stack_statuses: [i32; MAX_REQUESTS_ON_STACK * STATUS_WORDS],
}

const MAX_REQUESTS_ON_STACK: usize = 32;

impl RequestArray {
    fn new() -> Self {
        RequestArray {
            handles: core::ptr::null_mut(),
            statuses: core::ptr::null_mut(),
            count: 0,
            stack_handles: [0; MAX_REQUESTS_ON_STACK],
            stack_statuses: [0; MAX_REQUESTS_ON_STACK * STATUS_WORDS],
        }
    }

    /// Copies the program's request handles and begins a record. Returns `None` if the call is not recorded.
    fn begin(&mut self, call: &MpiCall) -> Option<(&'static mut Thread, OpenRecord)> {
        recordable_thread()?;
        self.count = (call.arguments[0] as i32).max(0) as usize;
        if self.count <= MAX_REQUESTS_ON_STACK {
            self.handles = self.stack_handles.as_mut_ptr();
            self.statuses = self.stack_statuses.as_mut_ptr();
        } else {
            self.handles = map_private(self.count)?;
            let Some(statuses) = map_private(self.count * STATUS_WORDS) else {
                unmap_elements(self.handles, self.count);
                return None;
            };
            self.statuses = statuses;
        }
        let library = implementation();
        for index in 0..self.count {
            // SAFETY: both the program's array and the copy have `count` handles.
            unsafe { self.handles.add(index).write(library.read_handle(call.arguments[1], index) as u64) };
        }
        let opened = call.begin(kind::WAIT);
        if opened.is_none() {
            self.free();
        }
        opened
    }

    fn handle(&self, index: usize) -> u64 {
        // SAFETY: there are `count` handles, and callers pass a smaller index.
        unsafe { self.handles.add(index).read() }
    }

    fn free(&self) {
        if self.count > MAX_REQUESTS_ON_STACK {
            unmap_elements(self.handles, self.count);
            unmap_elements(self.statuses, self.count * STATUS_WORDS);
        }
    }
}

/// Records a wait or a test for all of several requests. Arguments: count, requests.
pub fn record_completion_of_all(mut call: MpiCall, statuses: usize, flag: Option<usize>) -> i32 {
    let mut array = RequestArray::new();
    let Some((thread, mut open)) = array.begin(&call) else { return call.run() };
    let statuses = call.ensure_statuses(statuses, array.statuses);
    let result = call.run();
    if flag.is_some_and(|flag| call.read_integer(flag) == 0) {
        thread.fold_test_into_polling_loop(open);
    } else {
        thread.end_polling_loop(&mut open);
        open.record().size_or_count = array.count as u64;
        finish_record(thread, open);
        let first = open.completion_template();
        for index in 0..array.count {
            let (peer, tag) = source_and_tag(statuses, index);
            add_record(
                thread,
                CallRecord { peer, tag, size_or_count: read_cancelled_as_amount(statuses, index), request: array.handle(index), ..first },
            );
        }
    }
    array.free();
    result
}

/// Records a wait or a test for any of several requests. Arguments: count, requests, index of the completed request.
pub fn record_completion_of_any(mut call: MpiCall, status: usize, flag: Option<usize>) -> i32 {
    let mut array = RequestArray::new();
    let Some((thread, mut open)) = array.begin(&call) else { return call.run() };
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.ensure_statuses(status, spare.as_mut_ptr());
    let result = call.run();
    if flag.is_some_and(|flag| call.read_integer(flag) == 0) {
        thread.fold_test_into_polling_loop(open);
    } else {
        thread.end_polling_loop(&mut open);
        finish_record(thread, open);
        let completed_index = call.read_integer(2);
        if completed_index >= 0 && (completed_index as usize) < array.count {
            add_completion_record(
                thread,
                &mut open,
                array.handle(completed_index as usize),
                source_and_tag(status, 0),
                read_cancelled_as_amount(status, 0),
            );
        }
    }
    array.free();
    result
}

/// Records a wait or a test for some of several requests. Arguments: count, requests, number of completed requests, their indices,
/// statuses.
pub fn record_completion_of_some(mut call: MpiCall) -> i32 {
    let mut array = RequestArray::new();
    let Some((thread, mut open)) = array.begin(&call) else { return call.run() };
    let statuses = call.ensure_statuses(4, array.statuses);
    let result = call.run();
    let count = call.read_integer(2);
    if count <= 0 {
        thread.fold_test_into_polling_loop(open);
    } else {
        thread.end_polling_loop(&mut open);
        finish_record(thread, open);
        let first = open.completion_template();
        for place in 0..count as usize {
            // SAFETY: MPI defines the argument as the address of an array, whose first `count` indices the call has set.
            let index = unsafe { (call.arguments[3] as *const i32).add(place).read() } as usize;
            let (peer, tag) = source_and_tag(statuses, place);
            if index < array.count {
                add_record(
                    thread,
                    CallRecord {
                        peer,
                        tag,
                        size_or_count: read_cancelled_as_amount(statuses, place),
                        request: array.handle(index),
                        ..first
                    },
                );
            }
        }
    }
    array.free();
    result
}
