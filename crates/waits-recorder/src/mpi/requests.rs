//! What is recorded of calls that complete requests: waits and tests for one, all, any or some.

use super::behaviour::{at, cancelled, completed, handle_of, is_set, status, status_at, with_status};
use super::implementation::{STATUS_WORDS, implementation};
use crate::output::{memory, release};
use crate::thread::{add, begin, finish, outside};
use trodden_wire::waits::{CallName, CallRecord, kind};

/// Request, status.
#[inline]
pub fn wait<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    one(1, None, function, arguments, call)
}

/// Request, flag, status.
#[inline]
pub fn test<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    one(2, Some(1), function, arguments, call)
}

fn one<const N: usize>(
    position: usize,
    flag: Option<usize>,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let request = handle_of(arguments, 0) as u64;
    let Some(mut open) = begin(thread, kind::WAIT, function) else { return call(arguments) };
    let mut spare = [0i32; STATUS_WORDS];
    let result = with_status(arguments, position, &mut spare, call);
    let (peer, tag) = status(arguments, position, &spare);
    let place = status_at(arguments, position, &spare);
    if flag.is_some_and(|flag| !is_set(at(arguments, flag))) {
        thread.withdraw(open);
        return result;
    }
    let amount = cancelled(place, 0);
    thread.end_polling(&mut open);
    finish(thread, open);
    completed(thread, &mut open, request, (peer, tag), amount);
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

    /// Copies the handles; false if there is no memory.
    fn begin(&mut self, count: i32, array: usize) -> bool {
        self.count = count.max(0) as usize;
        if self.count <= FEW {
            self.handles = self.few_handles.as_mut_ptr();
            self.statuses = self.few_statuses.as_mut_ptr();
        } else {
            let (Some(handles), Some(statuses)) = (memory(self.count), memory(self.count * STATUS_WORDS)) else { return false };
            (self.handles, self.statuses) = (handles, statuses);
        }
        let library = implementation();
        for index in 0..self.count {
            // SAFETY: the caller's array has that many handles, and so has the copy.
            unsafe { self.handles.add(index).write(library.handle_at(array, index) as u64) };
        }
        true
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

/// Count, requests, statuses.
#[inline]
pub fn wait_all<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    all(2, None, function, arguments, call)
}

/// Count, requests, flag, statuses.
#[inline]
pub fn test_all<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    all(3, Some(2), function, arguments, call)
}

fn all<const N: usize>(
    position: usize,
    flag: Option<usize>,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let library = implementation();
    let mut several = Several::new();
    if !several.begin(arguments[0] as i32, arguments[1]) {
        return call(arguments);
    }
    let Some(mut open) = begin(thread, kind::WAIT, function) else { return call(arguments) };
    let is_ignored = library.is_ignored(at(arguments, position));
    let kept = at(arguments, position);
    if is_ignored {
        arguments[position] = several.statuses as usize;
    }
    let result = call(arguments);
    let statuses = core::mem::replace(&mut arguments[position], kept);
    if flag.is_some_and(|flag| !is_set(at(arguments, flag))) {
        thread.withdraw(open);
    } else {
        thread.end_polling(&mut open);
        open.record().amount = several.count as u64;
        finish(thread, open);
        let first = open.copy();
        for index in 0..several.count {
            // SAFETY: the statuses are the caller's or the spare ones, one for each request.
            let (peer, tag) = unsafe { library.source_and_tag(statuses, index) };
            add(thread, CallRecord { peer, tag, amount: cancelled(statuses, index), request: several.handle(index), ..first });
        }
    }
    several.end();
    result
}

/// Count, requests, index, status.
#[inline]
pub fn wait_any<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    any(2, 3, None, function, arguments, call)
}

/// Count, requests, index, flag, status.
#[inline]
pub fn test_any<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    any(2, 4, Some(3), function, arguments, call)
}

fn any<const N: usize>(
    index: usize,
    position: usize,
    flag: Option<usize>,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let mut several = Several::new();
    if !several.begin(arguments[0] as i32, arguments[1]) {
        return call(arguments);
    }
    let Some(mut open) = begin(thread, kind::WAIT, function) else { return call(arguments) };
    let mut spare = [0i32; STATUS_WORDS];
    let result = with_status(arguments, position, &mut spare, call);
    let (peer, tag) = status(arguments, position, &spare);
    let place = status_at(arguments, position, &spare);
    if flag.is_some_and(|flag| !is_set(at(arguments, flag))) {
        thread.withdraw(open);
    } else {
        thread.end_polling(&mut open);
        finish(thread, open);
        // SAFETY: the index's address, by MPI's definition.
        let which = unsafe { (at(arguments, index) as *const i32).read() };
        if which >= 0 && (which as usize) < several.count {
            completed(thread, &mut open, several.handle(which as usize), (peer, tag), cancelled(place, 0));
        }
    }
    several.end();
    result
}

/// Count, requests, count of completed ones, their indices, statuses.
#[inline]
pub fn wait_some<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let library = implementation();
    let mut several = Several::new();
    if !several.begin(arguments[0] as i32, arguments[1]) {
        return call(arguments);
    }
    let Some(mut open) = begin(thread, kind::WAIT, function) else { return call(arguments) };
    let kept = at(arguments, 4);
    if library.is_ignored(kept) {
        arguments[4] = several.statuses as usize;
    }
    let result = call(arguments);
    let statuses = core::mem::replace(&mut arguments[4], kept);
    // SAFETY: the count's address, by MPI's definition.
    let count = unsafe { (at(arguments, 2) as *const i32).read() };
    if count <= 0 {
        thread.withdraw(open);
    } else {
        thread.end_polling(&mut open);
        finish(thread, open);
        let first = open.copy();
        for place in 0..count as usize {
            // SAFETY: the indices' address, by MPI's definition.
            let index = unsafe { (at(arguments, 3) as *const i32).add(place).read() } as usize;
            // SAFETY: as in `all`.
            let (peer, tag) = unsafe { library.source_and_tag(statuses, place) };
            if index < several.count {
                add(thread, CallRecord { peer, tag, amount: cancelled(statuses, place), request: several.handle(index), ..first });
            }
        }
    }
    several.end();
    result
}
