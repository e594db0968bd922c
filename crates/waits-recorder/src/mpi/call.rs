//! A call of an MPI function, and the recording steps common to all kinds of calls.

use super::communicator;
use super::implementation::implementation;
use crate::thread::{OpenRecord, Thread, begin, finish, recordable_thread};
use trodden_wire::waits::{CallName, CallRecord};

/// Maximum number of arguments of a wrapped function.
pub const MAX_ARGUMENTS: usize = 13;

/// The function, the caller's arguments padded with zeros, and the real function.
#[derive(Clone, Copy)]
pub struct MpiCall {
    pub function: CallName,
    pub arguments: [usize; MAX_ARGUMENTS],
    pub real: fn(&[usize; MAX_ARGUMENTS]) -> i32,
}

impl MpiCall {
    /// Calls the real function.
    #[inline]
    pub fn run(&self) -> i32 {
        (self.real)(&self.arguments)
    }

    /// Begins a record. `None` inside another recorded call, or if the thread is not recorded.
    #[inline]
    pub fn begin(&self, kind: u16) -> Option<(&'static mut Thread, OpenRecord)> {
        let thread = recordable_thread()?;
        let open = begin(thread, kind, self.function)?;
        Some((thread, open))
    }

    /// Calls the real function and records its time. After the function has returned, `fill` completes the record.
    #[inline]
    pub fn recorded(&self, kind: u16, fill: impl FnOnce(&mut CallRecord)) -> i32 {
        let Some((thread, mut open)) = self.begin(kind) else { return self.run() };
        let result = self.run();
        fill(open.record());
        finish(thread, open);
        result
    }

    /// The handle that is passed as an argument.
    #[inline]
    pub fn handle(&self, position: usize) -> usize {
        implementation().handle(self.arguments[position])
    }

    /// The handle whose address is passed as an argument.
    #[inline]
    pub fn handle_at(&self, position: usize) -> usize {
        // SAFETY: by MPI's definition of the function, the argument is the address of a handle.
        unsafe { implementation().handle_at(self.arguments[position], 0) }
    }

    /// The number of the communicator or window that is passed as an argument.
    #[inline]
    pub fn communicator(&self, position: usize) -> u64 {
        communicator::number(self.handle(position))
    }

    /// The integer whose address is passed as an argument: a flag, index or count that the call sets.
    #[inline]
    pub fn integer_at(&self, position: usize) -> i32 {
        // SAFETY: by MPI's definition of the function, the argument is the address of an integer.
        unsafe { (self.arguments[position] as *const i32).read() }
    }

    /// The address of the call's statuses. If the caller ignores statuses, `spare` is passed to the function instead.
    #[inline]
    pub fn statuses(&mut self, position: usize, spare: *mut i32) -> usize {
        if implementation().is_ignored(self.arguments[position]) {
            self.arguments[position] = spare as usize;
        }
        self.arguments[position]
    }
}

/// Source and tag of the `index`-th status at an address from [`MpiCall::statuses`].
#[inline]
pub fn source_and_tag(statuses: usize, index: usize) -> (i32, i32) {
    // SAFETY: the caller's statuses or the spare ones; callers pass the index of a status that the call has set.
    unsafe { implementation().source_and_tag(statuses, index) }
}
