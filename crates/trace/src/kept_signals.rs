//! Preserves the signal state that a program expects, although the trace causes faults and traps.
//!
//! If a thread blocks or ignores the signal of a fault or trap, the kernel unblocks it and resets its action to the default before the
//! tracer learns of it (`force_sig_info_to_task` in Linux's `kernel/signal.c`). Both are restored here if the trace was the cause. Masks
//! are read after every event that changes them.

use crate::CollectError;
use crate::memory::Memory;
use crate::process_status::{find_status_number, read_process_status};
use crate::ptrace::{self, Tid};
use crate::session::Session;
use crate::signal_state::{SignalAction, TRACKED_SIGNALS, ignores_signal, process_of, resets_after_one_delivery, signal_bit};
use std::io;

impl Session {
    /// Remembers the signal mask of a stopped thread, which must be the program's own.
    pub fn note_signal_mask(&self, thread: Tid) -> io::Result<()> {
        let mask = ptrace::signal_mask(thread)?;
        self.signals.borrow_mut().masks.insert(thread, mask);
        Ok(())
    }

    /// Returns true if a thread blocks a signal according to the program's own mask.
    pub fn blocks(&self, thread: Tid, signal: i32) -> bool {
        self.signals.borrow().masks.get(&thread).is_some_and(|mask| mask & signal_bit(signal) != 0)
    }

    /// Remembers the action that a process sets for a signal, or that it has had from its start.
    pub fn note_action(&self, process: Tid, signal: i32, action: Option<SignalAction>) {
        self.signals.borrow_mut().set_action(process, signal, action);
    }

    pub fn may_be_ignored(&self, signal: i32) -> bool {
        self.signals.borrow().may_be_ignored(signal)
    }

    /// Notes that a signal is delivered to its handler: if the handler is a one-shot handler, the kernel removes it.
    pub fn note_delivery(&self, thread: Tid, signal: i32) {
        let action = self.action(thread, signal);
        if action.is_some_and(|action| resets_after_one_delivery(&action)) {
            self.note_action(process_of(thread), signal, None);
        }
    }

    fn action(&self, thread: Tid, signal: i32) -> Option<SignalAction> {
        self.signals.borrow().action(thread, signal)
    }

    /// Restores the mask and the action that the kernel has changed because the trace, not the program, has caused a thread's fault or
    /// trap. The thread receives no signal when it resumes. Returns true if other threads of its process may have seen a wrong action
    /// meanwhile.
    pub fn restore_merged_signal(&self, thread: Tid, signal: i32) -> Result<bool, CollectError> {
        let is_blocked = self.blocks(thread, signal);
        if !is_blocked && !self.may_be_ignored(signal) {
            return Ok(false);
        }
        self.restore_mask(thread, signal_bit(signal))?;
        let Some(action) = self.action(thread, signal).filter(|action| is_blocked || ignores_signal(action)) else {
            return Ok(false);
        };
        // A filter may kill the program for injected calls.
        if !self.is_filtered() {
            self.set_action(self.own_memory()?, thread, signal, &action)?;
        }
        Ok(find_status_number(&read_process_status(thread), "Threads") != Some(1))
    }

    /// Returns true if the signal that a thread is about to receive was sent while the thread blocked it, and became deliverable only
    /// because a fault or trap raised the same signal. The kernel keeps one pending instance of a signal, so the two are merged into one.
    pub fn is_merged(&self, thread: Tid, signal: i32) -> io::Result<bool> {
        Ok(TRACKED_SIGNALS.contains(&signal) && self.blocks(thread, signal) && ptrace::signal_code(thread)? <= 0)
    }

    /// Blocks again the signals that the program's own mask blocks, except for `delivered`.
    pub fn restore_signal_masks(&self, thread: Tid, delivered: i32) -> io::Result<()> {
        let signals = TRACKED_SIGNALS.iter().filter(|signal| **signal != delivered).fold(0, |set, signal| set | signal_bit(*signal));
        self.restore_mask(thread, signals)
    }

    fn restore_mask(&self, thread: Tid, signals: u64) -> io::Result<()> {
        let blocked = self.signals.borrow().masks.get(&thread).map_or(0, |mask| mask & signals);
        if blocked == 0 {
            return Ok(());
        }
        let mask = ptrace::signal_mask(thread)?;
        if mask & blocked == blocked { Ok(()) } else { ptrace::set_signal_mask(thread, mask | blocked) }
    }

    /// Notes that a call or step injected into a thread has ended with SIGTRAP.
    pub fn note_injected_trap(&self, thread: Tid) {
        if self.may_be_ignored(libc::SIGTRAP) {
            self.signals.borrow_mut().reset_traps.insert(thread);
        }
    }

    /// Restores the action for SIGTRAP if injected calls have reset it. The thread receives no signal when it resumes.
    pub fn restore_injected_trap(&self, thread: Tid) -> Result<(), CollectError> {
        let is_reset = self.signals.borrow_mut().reset_traps.remove(&thread);
        if is_reset { self.restore_merged_signal(thread, libc::SIGTRAP).map(drop) } else { Ok(()) }
    }

    /// Makes the process ignore SIGSEGV again after the trace has caused a fault in a step. Steps do not block the signals of faults.
    pub fn restore_ignored_signal_fault(&self, thread: Tid) -> Result<(), CollectError> {
        let is_ignored = self.may_be_ignored(libc::SIGSEGV) && !self.is_filtered() && !ptrace::has_signal_action(thread, libc::SIGSEGV);
        let Some(action) = self.action(thread, libc::SIGSEGV).filter(|_| is_ignored) else { return Ok(()) };
        self.set_action_by_trap(thread, libc::SIGSEGV, &action)
    }

    /// Before a thread receives a signal that the trace has not caused, restores the action if the kernel has reset it because of a
    /// different thread's fault or trap.
    pub fn restore_action_for_delivery(&self, thread: Tid, information: &libc::siginfo_t) -> Result<(), CollectError> {
        let (signal, is_caused_by_instruction) = (information.si_signo, information.si_code > 0);
        let Some(action) = self.action(thread, signal).filter(|_| TRACKED_SIGNALS.contains(&signal)) else { return Ok(()) };
        // A fault whose signal the thread blocks or ignores kills the process.
        let kills = is_caused_by_instruction && (self.blocks(thread, signal) || ignores_signal(&action));
        if kills || self.is_filtered() || ptrace::has_signal_action(thread, signal) {
            return Ok(());
        }
        self.set_action_by_trap(thread, signal, &action)?;
        Ok(ptrace::set_signal_information(thread, information)?)
    }

    /// Restores the actions for the signals of faults and traps if the kernel has reset them. One of `threads`, which are stopped and
    /// receive no signal when they resume, makes the calls. Returns a description of each action that could not be restored.
    pub fn restore_actions(&self, threads: &[Tid]) -> Vec<String> {
        let mut unrestored = Vec::new();
        for signal in TRACKED_SIGNALS {
            let Some(action) = self.signals.borrow().action_of(self.process(), signal) else { continue };
            let mut result = Err(CollectError::Unexpected { what: "each of its threads is about to receive a signal".to_owned() });
            for thread in threads {
                let is_set = ptrace::has_signal_action(*thread, signal);
                let set = || self.set_action(self.own_memory()?, *thread, signal, &action);
                result = if is_set { Ok(()) } else { set() };
                if !matches!(&result, Err(CollectError::System(e)) if e.raw_os_error() == Some(libc::ESRCH)) {
                    break;
                }
            }
            let name = if signal == libc::SIGTRAP { "SIGTRAP" } else { "SIGSEGV" };
            // In a thread that is gone there is nothing to restore.
            let error = result.err().filter(|error| !matches!(error, CollectError::System(e) if e.raw_os_error() == Some(libc::ESRCH)));
            unrestored.extend(error.map(|error| format!("the action for {name} ({error})")));
        }
        unrestored
    }

    /// Restores the actions in a stopped child that has a copy of the memory and is no longer followed.
    pub fn restore_actions_of_child(&self, parent: Tid, child: Tid) -> Result<(), CollectError> {
        for signal in TRACKED_SIGNALS {
            let Some(action) = self.action(parent, signal).filter(|_| !self.is_filtered()) else { continue };
            if !ptrace::has_signal_action(child, signal) {
                self.set_action(&Memory::open(child)?, child, signal, &action)?;
            }
        }
        Ok(())
    }
}
