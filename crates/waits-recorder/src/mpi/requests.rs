//! What is recorded of calls that complete requests: waits and tests for one, all, any or some.
//!
//! Parameters are the positions of the status and, of a test, of the flag that says whether it found anything.

use super::behaviour::{cancelled, completed};
use super::call::{MpiCall, source_and_tag};
use super::implementation::{STATUS_WORDS, implementation};
use crate::memory::{memory, release};
use crate::thread::{OpenRecord, Thread, add, finish, outside};
use trodden_wire::waits::{CallRecord, kind};

/// Request first.
pub fn completes_one(mut call: MpiCall, status: usize, flag: Option<usize>) -> i32 {
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

/// Handles and statuses of a call on several requests: on the stack for few, else mapped.
struct Several {
    handles: *mut u64,
    statuses: *mut i32,
    count: usize,
    few_handles: [u64; FEW],
    few_statuses: [i32; FEW * STATUS_WORDS],
}

const FEW: usize = 32;

impl Several {
    /// Room for `count`, to be filled by [`Several::begin`].
    fn new() -> Self {
        Several {
            handles: core::ptr::null_mut(),
            statuses: core::ptr::null_mut(),
            count: 0,
            few_handles: [0; FEW],
            few_statuses: [0; FEW * STATUS_WORDS],
        }
    }

    /// Copies the handles and begins a record: where that cannot be recorded, nothing is kept.
    fn begin(&mut self, call: &MpiCall) -> Option<(&'static mut Thread, OpenRecord)> {
        outside()?;
        self.count = (call.arguments[0] as i32).max(0) as usize;
        if self.count <= FEW {
            self.handles = self.few_handles.as_mut_ptr();
            self.statuses = self.few_statuses.as_mut_ptr();
        } else {
            (self.handles, self.statuses) = (memory(self.count)?, memory(self.count * STATUS_WORDS)?);
        }
        let library = implementation();
        for index in 0..self.count {
            // SAFETY: the caller's array has that many handles, and so has the copy.
            unsafe { self.handles.add(index).write(library.handle_at(call.arguments[1], index) as u64) };
        }
        let begun = call.begin(kind::WAIT);
        if begun.is_none() {
            self.end();
        }
        begun
    }

    fn handle(&self, index: usize) -> u64 {
        // SAFETY: callers pass an index below the count.
        unsafe { self.handles.add(index).read() }
    }

    fn end(&self) {
        if self.count > FEW {
            release(self.handles, self.count);
            release(self.statuses, self.count * STATUS_WORDS);
        }
    }
}

/// Count, requests.
pub fn completes_all(mut call: MpiCall, statuses: usize, flag: Option<usize>) -> i32 {
    let mut several = Several::new();
    let Some((thread, mut open)) = several.begin(&call) else { return call.run() };
    let statuses = call.statuses(statuses, several.statuses);
    let result = call.run();
    if flag.is_some_and(|flag| call.integer_at(flag) == 0) {
        thread.withdraw(open);
    } else {
        thread.end_polling(&mut open);
        open.record().amount = several.count as u64;
        finish(thread, open);
        let first = open.copy();
        for index in 0..several.count {
            let (peer, tag) = source_and_tag(statuses, index);
            add(thread, CallRecord { peer, tag, amount: cancelled(statuses, index), request: several.handle(index), ..first });
        }
    }
    several.end();
    result
}

/// Count, requests, index.
pub fn completes_any(mut call: MpiCall, status: usize, flag: Option<usize>) -> i32 {
    let mut several = Several::new();
    let Some((thread, mut open)) = several.begin(&call) else { return call.run() };
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.statuses(status, spare.as_mut_ptr());
    let result = call.run();
    if flag.is_some_and(|flag| call.integer_at(flag) == 0) {
        thread.withdraw(open);
    } else {
        thread.end_polling(&mut open);
        finish(thread, open);
        let which = call.integer_at(2);
        if which >= 0 && (which as usize) < several.count {
            completed(thread, &mut open, several.handle(which as usize), source_and_tag(status, 0), cancelled(status, 0));
        }
    }
    several.end();
    result
}

/// Count, requests, count of completed ones, their indices, statuses.
pub fn completes_some(mut call: MpiCall) -> i32 {
    let mut several = Several::new();
    let Some((thread, mut open)) = several.begin(&call) else { return call.run() };
    let statuses = call.statuses(4, several.statuses);
    let result = call.run();
    let count = call.integer_at(2);
    if count <= 0 {
        thread.withdraw(open);
    } else {
        thread.end_polling(&mut open);
        finish(thread, open);
        let first = open.copy();
        for place in 0..count as usize {
            // SAFETY: the indices' address, by MPI's definition.
            let index = unsafe { (call.arguments[3] as *const i32).add(place).read() } as usize;
            let (peer, tag) = source_and_tag(statuses, place);
            if index < several.count {
                add(thread, CallRecord { peer, tag, amount: cancelled(statuses, place), request: several.handle(index), ..first });
            }
        }
    }
    several.end();
    result
}
