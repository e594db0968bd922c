//! An intercepted MPI call, and the steps that are the same for the recording of all kinds of calls.

use super::communicator;
use super::implementation::implementation;
use crate::thread::{OpenRecord, Thread, begin_record, finish_record, recordable_thread};
use trodden_wire::waits::{CallName, CallRecord};

pub const MAX_ARGUMENTS: usize = 13;

/// An MPI call that the program made. `real` calls the MPI library's function.
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

    /// Begins a record of the call. Returns `None` if the thread is not recorded, or if the call was made inside another recorded call.
    #[inline]
    pub fn begin(&self, kind: u16) -> Option<(&'static mut Thread, OpenRecord)> {
        let thread = recordable_thread()?;
        let open = begin_record(thread, kind, self.function)?;
        Some((thread, open))
    }

    /// Makes the call and records its start and end. `fill` adds other fields to the record after the function has returned.
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

    /// Returns the handle that the argument points to.
    #[inline]
    pub fn read_handle(&self, position: usize) -> usize {
        // SAFETY: MPI defines this argument of the function as the address of a handle.
        unsafe { implementation().read_handle(self.arguments[position], 0) }
    }

    /// Returns the global number of the communicator or window whose handle is the argument at this position.
    #[inline]
    pub fn communicator_number(&self, position: usize) -> u64 {
        communicator::communicator_number_of_handle(self.handle(position))
    }

    /// Returns the integer that the argument points to: a flag, index or count that the call sets.
    #[inline]
    pub fn read_integer(&self, position: usize) -> i32 {
        // SAFETY: MPI defines this argument of the function as the address of an integer.
        unsafe { (self.arguments[position] as *const i32).read() }
    }

    /// Returns the address to which the call writes its status or statuses. If the program ignores them, replaces the argument by `spare`,
    /// because the recorder needs them.
    #[inline]
    pub fn ensure_statuses(&mut self, position: usize, spare: *mut i32) -> usize {
        if implementation().is_ignored(self.arguments[position]) {
            self.arguments[position] = spare as usize;
        }
        self.arguments[position]
    }
}

/// Returns the source and the tag in the `index`-th status. `statuses` is an address that [`MpiCall::ensure_statuses`] has returned.
#[inline]
pub fn source_and_tag(statuses: usize, index: usize) -> (i32, i32) {
    // SAFETY: the address refers to the program's statuses or to the spare ones, and the call has written the status at this index.
    unsafe { implementation().source_and_tag(statuses, index) }
}
