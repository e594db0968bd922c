//! A call of a function of MPI: what every behaviour gets, and begins its record with.

use super::communicator;
use super::implementation::implementation;
use crate::thread::{OpenRecord, Thread, begin, finish, outside};
use trodden_wire::waits::{CallName, CallRecord};

/// No function of MPI that is wrapped has more arguments.
pub const MOST_ARGUMENTS: usize = 13;

/// The caller's arguments, 0 behind the last one, and how the function is carried out.
#[derive(Clone, Copy)]
pub struct MpiCall {
    pub function: CallName,
    pub arguments: [usize; MOST_ARGUMENTS],
    pub real: fn(&[usize; MOST_ARGUMENTS]) -> i32,
}

impl MpiCall {
    /// Carries the call out.
    #[inline]
    pub fn run(&self) -> i32 {
        (self.real)(&self.arguments)
    }

    /// Begins a record; none inside of another recorded call, and where the thread is not recorded.
    #[inline]
    pub fn begin(&self, kind: u16) -> Option<(&'static mut Thread, OpenRecord)> {
        let thread = outside()?;
        let open = begin(thread, kind, self.function)?;
        Some((thread, open))
    }

    /// Carries the call out, and records nothing but its time and what `fill` adds when it has returned.
    #[inline]
    pub fn recorded(&self, kind: u16, fill: impl FnOnce(&mut CallRecord)) -> i32 {
        let Some((thread, mut open)) = self.begin(kind) else { return self.run() };
        let result = self.run();
        fill(open.record());
        finish(thread, open);
        result
    }

    /// The handle that is an argument.
    #[inline]
    pub fn handle(&self, position: usize) -> usize {
        implementation().handle(self.arguments[position])
    }

    /// The handle whose address is an argument.
    #[inline]
    pub fn handle_at(&self, position: usize) -> usize {
        // SAFETY: the address of a handle, by MPI's definition of the function that is called.
        unsafe { implementation().handle_at(self.arguments[position], 0) }
    }

    /// The number of the communicator or window that is an argument.
    #[inline]
    pub fn communicator(&self, position: usize) -> u64 {
        communicator::number(self.handle(position))
    }

    /// The integer whose address is an argument: a flag, index or count that the call has set.
    #[inline]
    pub fn integer_at(&self, position: usize) -> i32 {
        // SAFETY: the address of an integer, by MPI's definition of the function that is called.
        unsafe { (self.arguments[position] as *const i32).read() }
    }

    /// Where the statuses of the call will be: in `spare` if the caller wants none.
    #[inline]
    pub fn statuses(&mut self, position: usize, spare: *mut i32) -> usize {
        if implementation().is_ignored(self.arguments[position]) {
            self.arguments[position] = spare as usize;
        }
        self.arguments[position]
    }
}

/// Source and tag of the `index`-th status at an address that [`MpiCall::statuses`] gave.
#[inline]
pub fn source_and_tag(statuses: usize, index: usize) -> (i32, i32) {
    // SAFETY: the caller's statuses or the spare ones; callers pass the index of one that the call has set.
    unsafe { implementation().source_and_tag(statuses, index) }
}
