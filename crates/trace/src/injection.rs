//! System calls and single steps injected into stopped threads of a session. Registers, signal masks and mappings are entered in the
//! journal before they are changed.

use crate::CollectError;
use crate::hidden_patches::GuardedCodeFault;
use crate::journal::JournalEntry;
use crate::memory::Memory;
use crate::ptrace::{self, PtraceStop, Registers, ResumeMode, SystemCallStop, TRAP_FLAG, Tid, ignore_ended_thread};
use crate::session::Session;
use crate::signal_state::SignalAction;
use std::io;

/// The code of an injected system call: `syscall; int3`.
pub const SYSCALL_STUB: &[u8] = &[0x0f, 0x05, 0xcc];

/// Arguments of `prctl` that allow a thread to read the time-stamp counter.
const ENABLE_RDTSC_ARGUMENTS: [u64; 6] = [libc::PR_SET_TSC as u64, libc::PR_TSC_ENABLE as u64, 0, 0, 0, 0];

/// Maximum number of faults of an injected system call.
const MAX_FAULTS_PER_INJECTED_CALL: u32 = 100;

impl Session {
    fn is_killed_by_filter(&self, thread: Tid) -> bool {
        let status = match self.first_queued_event() {
            Some((ended, PtraceStop::Ended(status))) if ended == thread => status,
            Some((ending, PtraceStop::Ending)) if ending == thread => ptrace::event_message(thread).unwrap_or(0) as i32,
            _ => return false,
        };
        status & 0x7f == libc::SIGSYS
    }

    /// Makes a system call in a stopped thread, and returns its result. `at` is the address of a copy of [`SYSCALL_STUB`]; without one, the
    /// stub is written temporarily to `memory` at the thread's position. Mappings are entered in the journal.
    ///
    /// # Errors
    /// The thread is gone, the program filters its system calls, or the stub faults.
    pub fn inject_system_call(
        &self,
        memory: &Memory,
        thread: Tid,
        at: Option<u64>,
        number: libc::c_long,
        arguments: [u64; 6],
    ) -> Result<i64, CollectError> {
        if self.is_filtered() {
            return Err(CollectError::Filtered);
        }
        let range = arguments[0]..arguments[0].saturating_add(arguments[1]);
        if number == libc::SYS_mmap {
            self.enter(JournalEntry::Mapping(range.clone()));
            self.apply_address_limit();
        }
        let saved = ptrace::read_registers(thread)?;
        let place = at.unwrap_or(saved.rip);
        let mut hidden = [0; SYSCALL_STUB.len()];
        if at.is_none() {
            memory.read(place, &mut hidden)?;
            memory.patch(&[(place, SYSCALL_STUB)])?;
        }
        self.enter(JournalEntry::Registers(thread, Box::new(saved)));
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let rax = number as u64;
        // If the program has set its trap flag, the stub would trap.
        let eflags = saved.eflags & !TRAP_FLAG;
        let call = Registers { rip: place, rax, orig_rax: u64::MAX, rdi, rsi, rdx, r10, r8, r9, eflags, ..saved };
        ptrace::write_registers(thread, &call)?;
        let is_end = |signal| Ok(signal == libc::SIGTRAP && ptrace::instruction_pointer(thread)? == place + SYSCALL_STUB.len() as u64);
        let called =
            self.with_signals_blocked(thread, || self.run_until_signal(thread, ResumeMode::Continue, is_end, "in an injected system call"));
        if let Err(CollectError::Unexpected { .. }) = called {
            // Restore the registers here: if the journal is being undone at present, nobody else would.
            ignore_ended_thread(ptrace::write_registers(thread, &saved))?;
            self.remove(|entry| matches!(entry, JournalEntry::Registers(other, _) if *other == thread));
        }
        let restored = if at.is_none() { memory.patch(&[(place, &hidden)]) } else { Ok(()) };
        // Without the thread, there may be no memory left.
        called?;
        restored?;
        self.note_injected_trap(thread);
        let result = ptrace::read_registers(thread)?.rax as i64;
        // If the stop has interrupted a system call, these registers contain its number, so that the kernel restarts it.
        ptrace::write_registers(thread, &saved)?;
        self.remove(|entry| matches!(entry, JournalEntry::Registers(other, _) if *other == thread));
        if number == libc::SYS_munmap || number == libc::SYS_mmap && result as u64 != range.start {
            self.remove(|entry| matches!(entry, JournalEntry::Mapping(own) if *own == range));
            self.apply_address_limit();
        }
        Ok(result)
    }

    /// Makes a system call without causing a signal, in a thread that receives no signal when it resumes, so that the thread's action for
    /// SIGTRAP is not reset. This is slower than [`Session::inject_system_call`].
    ///
    /// # Errors
    /// The thread is gone, the program filters its system calls, or there is no permanent stub.
    pub fn inject_call_without_signal(&self, thread: Tid, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, CollectError> {
        if self.is_filtered() {
            return Err(CollectError::Filtered);
        }
        let (saved, mask, rip) = (ptrace::read_registers(thread)?, ptrace::signal_mask(thread)?, self.stub());
        if rip == 0 {
            return Err(CollectError::Unexpected { what: "it has no stub for system calls".to_owned() });
        }
        self.enter(JournalEntry::Registers(thread, Box::new(saved)));
        self.enter(JournalEntry::SignalMask(thread, mask));
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let (rax, eflags) = (number as u64, saved.eflags & !TRAP_FLAG);
        let call = Registers { rip, rax, orig_rax: u64::MAX, rdi, rsi, rdx, r10, r8, r9, eflags, ..saved };
        ptrace::write_registers(thread, &call)?;
        ptrace::set_signal_mask(thread, u64::MAX)?;
        let until = |how, is_end: &dyn Fn(PtraceStop) -> io::Result<bool>| loop {
            self.resume(thread, how, 0)?;
            let stop = self.wait_for(thread)?;
            if is_end(stop)? {
                return io::Result::Ok(());
            }
        };
        until(ResumeMode::ToSystemCall, &|_| Ok(matches!(ptrace::read_system_call_stop(thread)?, SystemCallStop::Exit { .. })))?;
        let result = ptrace::read_registers(thread)?.rax as i64;
        // Stop the thread once more, at a stop after which the kernel restarts a system call that was interrupted.
        ptrace::interrupt_thread(thread)?;
        until(ResumeMode::Continue, &|stop| Ok(matches!(stop, PtraceStop::Interrupted | PtraceStop::GroupStopped)))?;
        ptrace::write_registers(thread, &saved)?;
        ptrace::set_signal_mask(thread, mask)?;
        self.remove(|entry| matches!(entry, JournalEntry::SignalMask(other, _) if *other == thread));
        self.remove(|entry| matches!(entry, JournalEntry::Registers(other, _) if *other == thread));
        Ok(result)
    }

    /// Single-steps a stopped thread and returns its new position, or `None` if the instruction faults; the fault then recurs when the
    /// thread resumes. Signals that arrive meanwhile are delivered later. The instruction may read guarded code.
    pub fn step(&self, thread: Tid) -> Result<Option<u64>, CollectError> {
        loop {
            if let Some(at) = self.single_step_once(thread)? {
                return Ok(Some(at));
            }
            let fault = match self.handle_code_fault(thread, ptrace::signal_information(thread)?.si_signo) {
                Err(CollectError::System(error)) if error.raw_os_error() == Some(libc::ESRCH) => return Err(error.into()),
                Err(_) => self.end_guard(thread).map(|()| GuardedCodeFault::Allowed),
                other => other,
            };
            self.restore_ignored_signal_fault(thread)?;
            match fault? {
                GuardedCodeFault::Executed => return Ok(Some(ptrace::instruction_pointer(thread)?)),
                GuardedCodeFault::Allowed => {}
                GuardedCodeFault::Foreign | GuardedCodeFault::Faults => return Ok(None),
            }
        }
    }

    /// Like [`Session::step`], but reads of guarded code fault.
    pub fn single_step_once(&self, thread: Tid) -> Result<Option<u64>, CollectError> {
        // After a step over a uprobe, the kernel's SIGTRAP looks as if a process had sent it. An earlier SIGTRAP can be pending only if the
        // thread blocks it.
        let is_step = |signal| signal == libc::SIGTRAP && !self.blocks(thread, signal);
        let is_end = |signal| Ok(is_step(signal) || is_caused_by_instruction(thread, signal)?);
        let signal =
            self.with_signals_blocked(thread, || self.run_until_signal(thread, ResumeMode::Step, is_end, "at an indirect jump"))?;
        self.note_injected_trap(thread);
        Ok(if signal == libc::SIGTRAP { Some(ptrace::instruction_pointer(thread)?) } else { None })
    }

    /// Runs `run` while a stopped thread blocks all signals except those that its own instructions cause. Other signals remain pending,
    /// with their information, until the thread resumes. SIGTRAP must not be blocked, since the kernel would reset its handler.
    fn with_signals_blocked(&self, thread: Tid, run: impl FnOnce() -> Result<i32, CollectError>) -> Result<i32, CollectError> {
        let caused = [libc::SIGTRAP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
        let mask = ptrace::signal_mask(thread)?;
        self.enter(JournalEntry::SignalMask(thread, mask));
        ptrace::set_signal_mask(thread, caused.iter().fold(u64::MAX, |all, signal| all & !(1 << (signal - 1))))?;
        let result = run();
        // After other errors, the thread may be running or gone.
        if matches!(result, Ok(_) | Err(CollectError::Unexpected { .. })) {
            ignore_ended_thread(ptrace::set_signal_mask(thread, mask))?;
            self.remove(|entry| matches!(entry, JournalEntry::SignalMask(other, _) if *other == thread));
        }
        result
    }

    /// Resumes a thread until it receives an expected signal, and returns that signal.
    fn run_until_signal(
        &self,
        thread: Tid,
        how: ResumeMode,
        is_end: impl Fn(i32) -> io::Result<bool>,
        when: &str,
    ) -> Result<i32, CollectError> {
        let (mut held, mut faults) = (Vec::new(), 0);
        loop {
            self.resume(thread, how, 0)?;
            match self.wait_for(thread) {
                Ok(PtraceStop::Signal(signal)) if is_end(signal)? => {
                    held.into_iter().for_each(|signal| ptrace::send_signal_to_thread(thread, signal));
                    return Ok(signal);
                }
                // Faults are repeated only a few times: while another thread changes a page's protection, the page may fault once more, but
                // any other fault would recur for ever.
                Ok(PtraceStop::Signal(signal)) if is_caused_by_instruction(thread, signal)? => {
                    faults += 1;
                    if faults > MAX_FAULTS_PER_INJECTED_CALL {
                        let at = ptrace::instruction_pointer(thread)?;
                        return Err(CollectError::Unexpected { what: format!("signal {signal} at {at:#x} {when}") });
                    }
                }
                // An unblocked signal, which is sent again once the thread has finished.
                Ok(PtraceStop::Signal(signal)) => held.push(signal),
                Ok(PtraceStop::Interrupted | PtraceStop::GroupStopped) => {}
                Ok(other) => return Err(CollectError::Unexpected { what: format!("{other:?} {when}") }),
                Err(_) if self.is_killed_by_filter(thread) => {
                    return Err(CollectError::Unexpected {
                        what: format!(
                            "its system call filter (seccomp) killed it {when}. With several runs, `--no-repeat time` avoids that"
                        ),
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Allows a stopped thread to read the time-stamp counter. `at` is as in [`Session::inject_system_call`].
    pub fn enable_rdtsc(&self, memory: &Memory, thread: Tid, at: Option<u64>) -> Result<(), CollectError> {
        self.inject_system_call(memory, thread, at, libc::SYS_prctl, ENABLE_RDTSC_ARGUMENTS).map(drop)
    }

    /// Sets the action for a signal in the process of a thread. `memory` is that process's memory; the thread receives no signal when it
    /// resumes.
    pub fn set_action(&self, memory: &Memory, thread: Tid, signal: i32, action: &SignalAction) -> Result<(), CollectError> {
        let arguments = self.sigaction_arguments(memory, signal, action)?;
        self.inject_call_without_signal(thread, libc::SYS_rt_sigaction, arguments).map(drop)
    }

    /// Like [`Session::set_action`], for a thread that may receive a signal when it resumes. If the program ignores SIGTRAP, the kernel
    /// resets that action.
    pub fn set_action_by_trap(&self, thread: Tid, signal: i32, action: &SignalAction) -> Result<(), CollectError> {
        let memory = self.own_memory()?;
        let arguments = self.sigaction_arguments(memory, signal, action)?;
        self.inject_system_call(memory, thread, Some(self.stub()), libc::SYS_rt_sigaction, arguments).map(drop)
    }

    fn sigaction_arguments(&self, memory: &Memory, signal: i32, action: &SignalAction) -> io::Result<[u64; 6]> {
        // The program does not use the memory after the stub.
        let place = self.stub() + 16;
        memory.write(place, action)?;
        Ok([signal as u64, place, 0, 8, 0, 0])
    }
}

/// Returns true if a stopped thread's own instruction, or a step, has caused the signal.
pub(crate) fn is_caused_by_instruction(thread: Tid, signal: i32) -> io::Result<bool> {
    let can_be = matches!(signal, libc::SIGTRAP | libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL);
    Ok(can_be && ptrace::signal_code(thread)? > 0)
}
