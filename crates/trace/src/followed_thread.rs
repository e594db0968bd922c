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

/// SIGTRAP in a set of signals.
pub const TRAP: u64 = 1 << (libc::SIGTRAP - 1);

/// A followed thread.
#[derive(Debug)]
pub struct Task {
    /// What it is.
    pub role: Role,
    /// Where handlers of signals are to come back to, with the stack pointer there: the instruction there has not run, but is recorded.
    interrupted: Vec<(u64, u64)>,
    /// Whether a handler is about to come back.
    pub returning: bool,
    /// Whether the program has it block SIGTRAP. The kernel unblocks that when it traps.
    pub blocks_traps: bool,
    /// Where a call of `rt_sigprocmask` says which signals were blocked before, if SIGTRAP was one of them.
    traps_said: Option<u64>,
    /// What the program has in `rdi` and `rsi` while a system call gets something else there.
    pub replaced: Option<[u64; 2]>,
    /// Whether it is about to end.
    pub is_ending: bool,
}

impl Task {
    /// One that has just been made.
    pub fn new(role: Role) -> Self {
        Self { role, interrupted: Vec::new(), returning: false, blocks_traps: false, traps_said: None, replaced: None, is_ending: false }
    }

    /// A call of `rt_sigprocmask` begins, with a set of signals or without.
    pub fn enter_mask(&mut self, how: u64, set: Option<u64>, old: u64) {
        self.traps_said = (self.blocks_traps && old != 0).then_some(old);
        let Some(has_trap) = set.map(|set| set & TRAP != 0) else { return };
        self.blocks_traps = match how as i32 {
            libc::SIG_BLOCK => self.blocks_traps || has_trap,
            libc::SIG_UNBLOCK => self.blocks_traps && !has_trap,
            _ => has_trap,
        };
    }

    /// A system call has ended: where a set of signals lacks SIGTRAP that the program expects there.
    pub fn leave_mask(&mut self) -> Option<u64> {
        self.traps_said.take()
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
