//! Handles signals of recorded threads: records hits of sites (executions of watched addresses), and delivers all other signals.

use super::Following;
use crate::CollectError;
use crate::breakpoints::SlotProgress;
use crate::followed_thread::ThreadRole;
use crate::memory::Memory;
use crate::ptrace::{self, PtraceStop, ResumeMode, SignalDisposition, TRAP_FLAG, Tid};
use crate::signal_state::TRACKED_SIGNALS;
use crate::single_step::{HANDLER_ENTRY_TRAP_CODE, SIGNAL_FRAME_FLAGS_OFFSET, hide_trap_flag};
use crate::sink::{SinkFlow, ThreadNumber, TrapOutcome};

/// Maximum number of handled signals whose code addresses are noted.
const MAX_SIGNAL_ADDRESSES: usize = 4096;

impl Following<'_, '_> {
    pub(super) fn handle_signal(&mut self, thread: Tid, number: ThreadNumber, signal: i32) -> Result<SinkFlow, CollectError> {
        match self.watch.handle_trap(self.subject, thread, number, signal, self.sink)? {
            TrapOutcome::Recorded(flow) => {
                self.resume(thread, 0)?;
                Ok(flow)
            }
            TrapOutcome::Foreign if signal == libc::SIGTRAP && self.subject.session.is_merged(thread, signal)? => {
                // The program blocks this signal; only a trap of the tracer's, which has been undone, has unblocked it. Make it pending
                // again.
                ptrace::send_signal_to_thread(thread, signal);
                self.subject.session.restore_signal_masks(thread, 0)?;
                self.resume(thread, 0)?;
                Ok(SinkFlow::Continue)
            }
            TrapOutcome::Foreign => {
                self.prepare_signal_delivery(thread, signal)?;
                self.deliver_signal(thread, signal)?;
                Ok(SinkFlow::Continue)
            }
        }
    }

    /// Prepares the delivery of a signal: a thread in a slot or copy is moved to the corresponding instruction of the image.
    fn prepare_signal_delivery(&mut self, thread: Tid, signal: i32) -> Result<(), CollectError> {
        let information = ptrace::signal_information(thread)?;
        self.stop_threads_that_reset_actions(thread, signal)?;
        self.subject.session.restore_action_for_delivery(thread, &information)?;
        let at = ptrace::instruction_pointer(thread)?;
        let in_copy = self.watch.is_copy(at);
        let in_image = in_copy || self.watch.is_code(at);
        let synchronous = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP);
        let disposition = ptrace::signal_disposition(thread, signal, synchronous);
        if disposition == SignalDisposition::Ignored {
            return Ok(());
        }
        if !synchronous && (in_image || self.watch.slot_progress(at).is_some()) {
            self.followed.asynchronous_signals += 1;
        }
        let mut is_recorded = self.watch.is_recorded_step(thread, at);
        if in_copy {
            is_recorded = self.watch.move_out_of_copy(self.subject, thread, false, synchronous)?;
        }
        if disposition == SignalDisposition::Caught {
            self.followed.handled_faults += u32::from(synchronous);
            self.watch.prepare_for_handler(self.subject, thread)?;
        }
        ptrace::set_signal_information(thread, &information)?;
        match self.watch.slot_progress(at) {
            Some(SlotProgress::NotExecuted(address)) => {
                ptrace::set_instruction_pointer(thread, address)?;
                is_recorded = true;
            }
            Some(SlotProgress::Executed(address)) => ptrace::set_instruction_pointer(thread, address)?,
            Some(SlotProgress::Partial) | None => {}
        }
        if disposition == SignalDisposition::Caught {
            let at = ptrace::instruction_pointer(thread)?;
            let places = if synchronous { &mut self.followed.faults } else { &mut self.followed.interruptions };
            if self.followed.handled_signals.len() < MAX_SIGNAL_ADDRESSES && self.watch.is_code(at) {
                let place = self.watch.in_file(at);
                places.insert(place);
                if let Some(ThreadRole::Recorded(number)) = self.tasks.get(&thread).map(|task| task.role) {
                    self.followed.handled_signals.push((number.0, place));
                }
            }
        }
        if is_recorded && disposition == SignalDisposition::Caught {
            let registers = ptrace::read_registers(thread)?;
            self.tasks.get_mut(&thread).expect("the thread is known").enter_handler((registers.rip, registers.rsp));
        }
        Ok(())
    }

    /// If the program handles a signal that the trace causes as well, stops all other threads: if one that blocks the signal hit a
    /// breakpoint or read guarded code, the kernel would reset the action before the handler has begun.
    fn stop_threads_that_reset_actions(&mut self, thread: Tid, signal: i32) -> Result<(), CollectError> {
        let session = &self.subject.session;
        let is_handled = TRACKED_SIGNALS.contains(&signal) && session.signals.borrow().action(thread, signal).is_some();
        if is_handled && session.has_several_threads() { self.stop_other_threads_briefly(thread) } else { Ok(()) }
    }

    /// Delivers a signal. If its handler runs, the thread first stops there, since the handler has a mask of its own.
    fn deliver_signal(&mut self, thread: Tid, signal: i32) -> Result<(), CollectError> {
        let session = self.subject.session.clone();
        let is_caught = ptrace::signal_disposition(thread, signal, true) == SignalDisposition::Caught;
        if is_caught {
            session.note_delivery(thread, signal);
        }
        // If another thread now ignores the signal, a step could enter a system call that waits for that thread.
        let may_change = self.tasks.values().any(|task| task.sets_action);
        if !is_caught || may_change || self.watch.resume(thread) == ResumeMode::Step {
            return self.resume(thread, signal);
        }
        let had_flag = ptrace::read_registers(thread)?.eflags & TRAP_FLAG != 0;
        session.resume(thread, ResumeMode::Step, signal)?;
        match session.wait_for(thread)? {
            PtraceStop::Signal(libc::SIGTRAP) if ptrace::signal_code(thread)? == HANDLER_ENTRY_TRAP_CODE => {
                session.note_signal_mask(thread)?;
                if !had_flag {
                    hide_trap_flag(self.subject, ptrace::stack_pointer(thread)? + SIGNAL_FRAME_FLAGS_OFFSET)?;
                }
                self.resume(thread, 0)
            }
            other => {
                session.requeue_event((thread, other));
                Ok(())
            }
        }
    }

    /// If the thread has stopped at `rdtsc` or `rdtscp`, emulates the instruction and returns true. Both instructions trap if the run has a
    /// fixed clock.
    pub(super) fn emulate_rdtsc(&mut self, thread: Tid) -> Result<bool, CollectError> {
        if !self.subject.fixed_clock {
            return Ok(false);
        }
        let mut registers = ptrace::read_registers(thread)?;
        let code = Memory::open(thread)?.read_some(registers.rip, 3);
        let length = match code.as_slice() {
            [0x0f, 0x31, ..] => 2,
            [0x0f, 0x01, 0xf9] => 3,
            _ => return Ok(false),
        };
        self.cycles += 1000;
        (registers.rax, registers.rdx) = (self.cycles & 0xffff_ffff, self.cycles >> 32);
        if length == 3 {
            registers.rcx = 0;
        }
        registers.rip += length;
        ptrace::write_registers(thread, &registers)?;
        Ok(true)
    }
}
