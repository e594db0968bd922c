//! What is known about a followed thread between its stops: its role, and the signal handlers it is in.

use crate::sink::ThreadNumber;

/// The role of a followed thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its hits are recorded.
    Recorded(ThreadNumber),
    /// It runs as if it were not traced.
    Unrecorded,
}

/// Maximum number of signal handlers remembered per thread. The oldest are dropped, since they probably never returned.
const MAX_HANDLERS: usize = 64;

/// SIGTRAP as a signal set.
pub const TRAP: u64 = 1 << (libc::SIGTRAP - 1);

/// A followed thread.
#[derive(Debug)]
pub struct Task {
    pub role: Role,
    /// Return addresses of the signal handlers it is in, each with the stack pointer there. The instruction at the address is recorded
    /// but was not executed.
    interrupted: Vec<(u64, u64)>,
    /// True while the thread is in `rt_sigreturn`.
    pub returning: bool,
    /// True if the program has the thread block SIGTRAP, which the kernel unblocks on a trap.
    pub blocks_traps: bool,
    /// Address where a call of `rt_sigprocmask` stores the old mask, if SIGTRAP was blocked.
    traps_said: Option<u64>,
    /// The program's own values of `rdi` and `rsi` while a system call runs with others.
    pub replaced: Option<[u64; 2]>,
    /// True if it has reported that it is ending.
    pub is_ending: bool,
}

impl Task {
    pub fn new(role: Role) -> Self {
        Self { role, interrupted: Vec::new(), returning: false, blocks_traps: false, traps_said: None, replaced: None, is_ending: false }
    }

    /// Handles the start of `rt_sigprocmask`. `set` is the new mask, if the call sets one, and `old` the address for the old mask.
    pub fn enter_mask(&mut self, how: u64, set: Option<u64>, old: u64) {
        self.traps_said = (self.blocks_traps && old != 0).then_some(old);
        let Some(has_trap) = set.map(|set| set & TRAP != 0) else { return };
        self.blocks_traps = match how as i32 {
            libc::SIG_BLOCK => self.blocks_traps || has_trap,
            libc::SIG_UNBLOCK => self.blocks_traps && !has_trap,
            _ => has_trap,
        };
    }

    /// Handles the end of a system call. Returns the address of an old mask in which the kernel has left out SIGTRAP, though the program
    /// blocks it.
    pub fn leave_mask(&mut self) -> Option<u64> {
        self.traps_said.take()
    }

    /// Notes that a signal handler is about to run before a recorded instruction. `place` is its address, with the stack pointer.
    pub fn interrupt(&mut self, place: (u64, u64)) {
        // A handler that was interrupted at the same place has never returned.
        self.interrupted.retain(|other| *other != place);
        if self.interrupted.len() == MAX_HANDLERS {
            self.interrupted.remove(0);
        }
        self.interrupted.push(place);
    }

    /// Handles the return from a signal handler. Returns true if the instruction at `place` is recorded already. Handlers that were
    /// nested in this one are forgotten.
    pub fn come_back(&mut self, place: (u64, u64)) -> bool {
        let found = self.interrupted.iter().rposition(|other| *other == place);
        self.interrupted.truncate(found.unwrap_or(self.interrupted.len()));
        found.is_some()
    }
}
