//! A program's own view of its signal state: the masks of its threads, and its actions for SIGTRAP and SIGSEGV, the signals that tracing
//! causes. [`kept_signals`](crate::kept_signals) keeps it up to date and restores it.
//!
//! Actions belong to a process, not to memory: a `vfork` child has its own.

use crate::process_status::{find_status_number, read_process_status};
use crate::ptrace::Tid;
use std::collections::{HashMap, HashSet};

/// The kernel's `struct sigaction`.
pub type SignalAction = [u8; 32];

/// The signals whose actions are tracked.
pub const TRACKED_SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGTRAP];

#[derive(Debug, Default)]
pub struct SignalState {
    /// The mask of each thread, with signal 1 in the lowest bit.
    pub masks: HashMap<Tid, u64>,
    /// Actions by process and signal. Default actions are absent.
    actions: HashMap<(Tid, i32), SignalAction>,
    /// Threads in which an injected call or step may have reset the action for SIGTRAP.
    pub reset_traps: HashSet<Tid>,
}

/// Returns the signal set that contains only this signal.
pub fn signal_bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

fn handler_of_action(action: &SignalAction) -> usize {
    u64::from_le_bytes(*action.first_chunk().expect("it has 32 bytes")) as usize
}

pub fn ignores_signal(action: &SignalAction) -> bool {
    handler_of_action(action) == libc::SIG_IGN
}

/// Returns true if a handler runs only once (`SA_RESETHAND`).
pub fn resets_after_one_delivery(action: &SignalAction) -> bool {
    let flags = u32::from_le_bytes(action[8..12].try_into().expect("it has 32 bytes"));
    flags & libc::SA_RESETHAND as u32 != 0
}

/// Returns the action for a signal that the program ignores.
pub fn ignore_action() -> SignalAction {
    let mut action = SignalAction::default();
    action[..8].copy_from_slice(&(libc::SIG_IGN as u64).to_le_bytes());
    action
}

pub fn process_of(thread: Tid) -> Tid {
    find_status_number(&read_process_status(thread), "Tgid").unwrap_or(thread)
}

impl SignalState {
    pub fn set_action(&mut self, process: Tid, signal: i32, action: Option<SignalAction>) {
        match action.filter(|action| handler_of_action(action) != libc::SIG_DFL) {
            Some(action) => drop(self.actions.insert((process, signal), action)),
            None => drop(self.actions.remove(&(process, signal))),
        }
    }

    /// Returns a process's action for a signal; `None` is the default action.
    pub fn action_of(&self, process: Tid, signal: i32) -> Option<SignalAction> {
        self.actions.get(&(process, signal)).copied()
    }

    /// Returns the action of a thread's process for a signal; `None` is the default action.
    pub fn action(&self, thread: Tid, signal: i32) -> Option<SignalAction> {
        let is_set = self.actions.keys().any(|key| key.1 == signal);
        if is_set { self.action_of(process_of(thread), signal) } else { None }
    }

    /// Returns true if any process ignores a signal.
    pub fn may_be_ignored(&self, signal: i32) -> bool {
        self.actions.iter().any(|(key, action)| key.1 == signal && ignores_signal(action))
    }

    /// Notes a new task: a process begins with the actions of its parent.
    pub fn add_child(&mut self, parent: Tid, child: Tid) {
        if self.actions.is_empty() {
            return;
        }
        let (from, to) = (process_of(parent), process_of(child));
        for signal in TRACKED_SIGNALS.into_iter().filter(|_| from != to) {
            self.set_action(to, signal, self.action_of(from, signal));
        }
    }

    /// Forgets a thread that has ended, or a process that has executed a different program.
    pub fn forget(&mut self, thread: Tid) {
        self.masks.remove(&thread);
        self.reset_traps.remove(&thread);
        self.actions.retain(|key, _| key.0 != thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_belong_to_processes() {
        let (mut signals, own, other) = (SignalState::default(), std::process::id() as Tid, 1);
        let mut once = SignalAction::default();
        (once[0], once[11]) = (9, 0x80);
        signals.set_action(own, libc::SIGSEGV, Some(once));
        signals.set_action(own, libc::SIGTRAP, Some(ignore_action()));
        assert!(resets_after_one_delivery(&once) && !resets_after_one_delivery(&ignore_action()));
        signals.add_child(own, other);
        signals.set_action(other, libc::SIGSEGV, Some(SignalAction::default()));
        assert_eq!((signals.action(own, libc::SIGSEGV), signals.action(other, libc::SIGSEGV)), (Some(once), None));
        signals.forget(own);
        assert!(signals.may_be_ignored(libc::SIGTRAP) && signals.action(own, libc::SIGTRAP).is_none());
        signals.forget(other);
        assert!(!signals.may_be_ignored(libc::SIGTRAP));
    }
}
