//! A call of an MPI function, and the recording steps that all kinds of calls have in common.

use super::communicator;
use super::implementation::implementation;
use crate::thread::{OpenRecord, Thread, begin_record, finish_record, recordable_thread};
use trodden_wire::waits::{CallName, CallRecord};

pub const MAX_ARGUMENTS: usize = 13;

/// An MPI call that was intercepted.
#[derive(Clone, Copy)]
pub struct MpiCall {
    pub function: CallName,
    pub arguments: [usize; MAX_ARGUMENTS],
    pub real: fn(&[usize; MAX_ARGUMENTS]) -> i32,
}

impl MpiCall {
    #[inline]
    pub fn run(&self) -> i32 {
        (self.real)(&self.arguments)
    }

    /// Begins a record. Returns `None` inside another recorded call, or if the thread is not recorded.
    #[inline]
    pub fn begin(&self, kind: u16) -> Option<(&'static mut Thread, OpenRecord)> {
        let thread = recordable_thread()?;
        let open = begin_record(thread, kind, self.function)?;
        Some((thread, open))
    }

    /// Calls the real function and records its time. `fill` completes the record after the function has returned.
    #[inline]
    pub fn run_recorded(&self, kind: u16, fill: impl FnOnce(&mut CallRecord)) -> i32 {
        let Some((thread, mut open)) = self.begin(kind) else { return self.run() };
        let result = self.run();
        fill(open.record());
        finish_record(thread, open);
        result
    }

    /// Returns the handle that is passed as an argument.
    #[inline]
    pub fn handle(&self, position: usize) -> usize {
        implementation().handle(self.arguments[position])
    }

    /// Returns the handle whose address is passed as an argument.
    #[inline]
    pub fn read_handle(&self, position: usize) -> usize {
        // SAFETY: by MPI's definition of the function, the argument is the address of a handle.
        unsafe { implementation().read_handle(self.arguments[position], 0) }
    }

    /// Returns the number of the communicator or window that is passed as an argument.
    #[inline]
    pub fn communicator(&self, position: usize) -> u64 {
        communicator::number_of(self.handle(position))
    }

    /// Returns the integer whose address is passed as an argument: a flag, index or count that the call sets.
    #[inline]
    pub fn read_integer(&self, position: usize) -> i32 {
        // SAFETY: by MPI's definition of the function, the argument is the address of an integer.
        unsafe { (self.arguments[position] as *const i32).read() }
    }

    /// Returns the address of the call's statuses. If the caller ignores statuses, the function gets `spare` instead.
    #[inline]
    pub fn ensure_statuses(&mut self, position: usize, spare: *mut i32) -> usize {
        if implementation().is_ignored(self.arguments[position]) {
            self.arguments[position] = spare as usize;
        }
        self.arguments[position]
    }
}

/// Returns the source and tag of the `index`-th status at an address from [`MpiCall::ensure_statuses`].
#[inline]
pub fn source_and_tag(statuses: usize, index: usize) -> (i32, i32) {
    // SAFETY: the address is that of the caller's statuses or of the spare ones, and the call has set the status at this index.
    unsafe { implementation().source_and_tag(statuses, index) }
}
