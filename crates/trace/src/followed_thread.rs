//! What is known about a followed thread between its stops: its role, and the signal handlers it is in.

use crate::sink::ThreadNumber;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The thread's hits are recorded.
    Recorded(ThreadNumber),
    /// The thread runs as if it were not traced.
    Unrecorded,
}

/// Maximum number of signal handlers remembered per thread. The oldest are dropped, since they probably never returned.
const MAX_HANDLERS: usize = 64;

/// SIGTRAP as a signal set.
pub const SIGTRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);
/// SIGSEGV as a signal set.
pub const SIGSEGV_BIT: u64 = 1 << (libc::SIGSEGV - 1);

#[derive(Debug)]
pub struct Task {
    pub role: Role,
    /// Return addresses of the signal handlers it is in, each with the stack pointer there. The instruction at the address is recorded
    /// but was not executed.
    handler_returns: Vec<(u64, u64)>,
    /// True while the thread is in `rt_sigreturn`.
    pub is_returning: bool,
    /// True if the program has the thread block SIGTRAP, which the kernel unblocks on a trap.
    pub blocks_traps: bool,
    /// True if the program has the thread block SIGSEGV.
    pub blocks_faults: bool,
    /// Address where a call of `rt_sigprocmask` stores the old mask, if SIGTRAP was blocked.
    old_mask: Option<u64>,
    /// The program's own values of `rdi` and `rsi` while a system call runs with others.
    pub original_arguments: Option<[u64; 2]>,
    /// True if it has reported that it is ending.
    pub is_ending: bool,
}

impl Task {
    pub fn new(role: Role) -> Self {
        Self {
            role,
            handler_returns: Vec::new(),
            is_returning: false,
            blocks_traps: false,
            blocks_faults: false,
            old_mask: None,
            original_arguments: None,
            is_ending: false,
        }
    }

    /// Handles the start of `rt_sigprocmask`. `set` is the new mask, if the call sets one, and `old` the address for the old mask.
    pub fn enter_sigprocmask(&mut self, how: u64, set: Option<u64>, old: u64) {
        self.old_mask = (self.blocks_traps && old != 0).then_some(old);
        let Some(set) = set else { return };
        for (blocks, bit) in [(&mut self.blocks_traps, SIGTRAP_BIT), (&mut self.blocks_faults, SIGSEGV_BIT)] {
            let is_in_set = set & bit != 0;
            *blocks = match how as i32 {
                libc::SIG_BLOCK => *blocks || is_in_set,
                libc::SIG_UNBLOCK => *blocks && !is_in_set,
                _ => is_in_set,
            };
        }
    }

    /// Handles the end of a system call. Returns the address of an old mask in which the kernel has left out SIGTRAP, though the program
    /// blocks it.
    pub fn leave_sigprocmask(&mut self) -> Option<u64> {
        self.old_mask.take()
    }

    /// Notes that a signal handler is about to run before a recorded instruction. `place` is its address, with the stack pointer.
    pub fn enter_handler(&mut self, place: (u64, u64)) {
        // A handler that was interrupted at the same place has never returned.
        self.handler_returns.retain(|other| *other != place);
        if self.handler_returns.len() == MAX_HANDLERS {
            self.handler_returns.remove(0);
        }
        self.handler_returns.push(place);
    }

    /// Handles the return from a signal handler. Returns true if the instruction at `place` is recorded already. Handlers that were
    /// nested in this one are forgotten.
    pub fn return_from_handler(&mut self, place: (u64, u64)) -> bool {
        let found = self.handler_returns.iter().rposition(|other| *other == place);
        self.handler_returns.truncate(found.unwrap_or(self.handler_returns.len()));
        found.is_some()
    }
}
