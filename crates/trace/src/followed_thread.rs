//! What is known of a followed thread between its stops: what it is to us, and which handlers of signals it is in.

use crate::sink::ThreadNumber;

/// What a followed thread is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its stream is recorded.
    Recorded(ThreadNumber),
    /// It runs as if it were not traced.
    Guest,
}

/// Handlers of signals that a thread is in at most; more are those that did not come back.
const MOST_INTERRUPTED: usize = 64;

/// A followed thread.
#[derive(Debug)]
pub struct Task {
    /// What it is.
    pub role: Role,
    /// Where handlers of signals are to come back to, with the stack pointer there: the instruction there has not run, but is recorded.
    interrupted: Vec<(u64, u64)>,
    /// Whether a handler is about to come back.
    pub returning: bool,
    /// What the program has in `rdi` and `rsi` while a system call gets something else there.
    pub replaced: Option<[u64; 2]>,
}

impl Task {
    /// One that has just been made.
    pub fn new(role: Role) -> Self {
        Self { role, interrupted: Vec::new(), returning: false, replaced: None }
    }

    /// A handler of a signal is about to run in front of a recorded instruction.
    pub fn interrupt(&mut self, place: (u64, u64)) {
        // One that did not come back.
        self.interrupted.retain(|other| *other != place);
        if self.interrupted.len() == MOST_INTERRUPTED {
            self.interrupted.remove(0);
        }
        self.interrupted.push(place);
    }

    /// A handler has come back: whether to an instruction that is recorded already. Handlers that ran above it are over.
    pub fn come_back(&mut self, place: (u64, u64)) -> bool {
        let found = self.interrupted.iter().rposition(|other| *other == place);
        self.interrupted.truncate(found.unwrap_or(self.interrupted.len()));
        found.is_some()
    }
}
