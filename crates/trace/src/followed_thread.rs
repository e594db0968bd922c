//! What is known about a followed thread between its stops: its role, the signal handlers it is in, and the system call under way.

use crate::sink::ThreadNumber;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadRole {
    Recorded(ThreadNumber),
    /// The thread runs as if it were not traced.
    Unrecorded,
}

/// Maximum number of signal handlers remembered per thread. The oldest are dropped, since they probably never returned.
const MAX_REMEMBERED_HANDLERS: usize = 64;

#[derive(Debug)]
pub struct FollowedTask {
    pub role: ThreadRole,
    /// The signal handlers that have interrupted the thread before an instruction that was recorded but not executed: the instruction's
    /// address and the stack pointer there, to which the handler returns.
    handler_returns: Vec<(u64, u64)>,
    /// True while the thread is in `rt_sigreturn`.
    pub is_returning: bool,
    /// True while the thread is in a system call that changes its signal mask.
    pub changes_mask: bool,
    /// True while the thread is in a system call that sets the action for a signal.
    pub sets_action: bool,
    /// The program's own values of `rdi` and `rsi` while a system call runs with different values.
    pub original_arguments: Option<[u64; 2]>,
    /// True once the thread has reported that it is about to end.
    pub is_ending: bool,
}

impl FollowedTask {
    pub fn new(role: ThreadRole) -> Self {
        Self {
            role,
            handler_returns: Vec::new(),
            is_returning: false,
            changes_mask: false,
            sets_action: false,
            original_arguments: None,
            is_ending: false,
        }
    }

    /// Notes that a signal handler is about to run before a recorded instruction. `place` is the instruction's address and the stack
    /// pointer.
    pub fn enter_handler(&mut self, place: (u64, u64)) {
        // An earlier handler that was entered at the same place has never returned.
        self.handler_returns.retain(|other| *other != place);
        if self.handler_returns.len() == MAX_REMEMBERED_HANDLERS {
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
