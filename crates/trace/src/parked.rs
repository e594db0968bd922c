//! Parked processes: how a process passes from one tracing thread to another, since ptrace is bound to the thread that attached.
//!
//! The first thread makes the process wait in pause(2) with all signals blocked, and detaches. The second thread attaches, and puts the
//! registers, the signal mask and the overwritten code back before the process continues. If a parked process is dropped instead, it is
//! released in the same way, and continues untraced.

use crate::CollectError;
use crate::command::ActiveRun;
use crate::injection::is_caused_by_instruction;
use crate::memory::Memory;
use crate::ptrace::{self, PtraceStop, Registers, ResumeMode, SystemCallStop, Tid, ignore_ended_thread};
use crate::session::Session;
use std::io;

/// `syscall`, followed by a jump to itself, which is reached only if the kernel ends the system call without a reason.
const WAIT_LOOP_CODE: [u8; 4] = [0x0f, 0x05, 0xeb, 0xfe];

/// A process of a traced program that waits for another thread to trace it.
#[derive(Debug)]
pub struct ParkedProcess {
    process: Tid,
    /// True if the process was traced before and has executed a different program.
    is_successor: bool,
    state: Option<Box<StateBeforeParking>>,
    /// Keeps the command from ending while the process is changed.
    registration: Option<ActiveRun>,
}

#[derive(Debug)]
struct StateBeforeParking {
    registers: Registers,
    code: [u8; WAIT_LOOP_CODE.len()],
    mask: u64,
}

impl ParkedProcess {
    /// Parks a stopped process with one thread, which the calling thread must detach next. `is_successor` says whether this is the traced
    /// process itself, which has executed a different program. Returns `None` if the command is ending.
    ///
    /// # Errors
    /// The process is gone, may not be attached to again, or is a 32-bit program.
    pub(crate) fn park(session: &Session, process: Tid, is_successor: bool) -> Result<Option<Self>, CollectError> {
        if !ptrace::is_64_bit(&ptrace::read_registers(process)?) {
            return Err(CollectError::Unexpected { what: "it is a 32-bit program".to_owned() });
        }
        let Some(registration) = ActiveRun::begin_successor_run(process as u32) else { return Ok(None) };
        // Opening the memory requires the same permission as attaching.
        let memory = Memory::open(process)?;
        let registers = Registers { orig_rax: u64::MAX, ..ptrace::read_registers(process)? };
        let mut code = [0; WAIT_LOOP_CODE.len()];
        memory.read(registers.rip, &mut code)?;
        let state = StateBeforeParking { registers, code, mask: ptrace::signal_mask(process)? };
        memory.write(registers.rip, &WAIT_LOOP_CODE)?;
        let mut parked = Self { process, is_successor, state: Some(Box::new(state)), registration: Some(registration) };
        match parked.start_wait_loop(session, &registers) {
            Ok(()) => Ok(Some(parked)),
            Err(error) => {
                let restored = parked.restore();
                parked.state = None;
                restored?;
                Err(error)
            }
        }
    }

    /// Lets the process permit the tracer to attach, and prepares it to wait. No trap is used, since it would reset an ignored SIGTRAP.
    fn start_wait_loop(&self, session: &Session, registers: &Registers) -> Result<(), CollectError> {
        let process = self.process;
        let (rdi, rsi) = (libc::PR_SET_PTRACER as u64, u64::from(std::process::id()));
        let permit = Registers { rax: libc::SYS_prctl as u64, rdi, rsi, rdx: 0, r10: 0, r8: 0, ..*registers };
        ptrace::write_registers(process, &permit)?;
        ptrace::set_signal_mask(process, u64::MAX)?;
        let mut held = None;
        // Under Yama, a tracer may attach to its descendants, but the process's parent may end before another thread attaches. Without
        // Yama, the call fails and changes nothing.
        while !matches!(ptrace::read_system_call_stop(process)?, SystemCallStop::Exit { .. })
            || ptrace::read_registers(process)?.orig_rax != permit.rax
        {
            session.resume(process, ResumeMode::ToSystemCall, 0)?;
            match session.wait_for(process)? {
                PtraceStop::Signal(signal) if is_caused_by_instruction(process, signal)? => {
                    return Err(CollectError::Unexpected { what: format!("signal {signal} while it was to wait") });
                }
                // SIGSTOP cannot be blocked.
                PtraceStop::Signal(signal) => held = Some(signal),
                _ => {}
            }
        }
        held.into_iter().for_each(|signal| ptrace::send_signal_to_thread(process, signal));
        Ok(ptrace::write_registers(process, &Registers { rax: libc::SYS_pause as u64, ..*registers })?)
    }

    /// Forgets a process that was killed before it could be detached. Its end is reported to the thread that traces it.
    pub(crate) fn forget(mut self) {
        self.state = None;
    }

    /// Returns the process id.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Returns true if the process was traced before and has executed a different program.
    pub fn is_successor(&self) -> bool {
        self.is_successor
    }

    /// Takes the registration of the run, which must exist until the process's trace ends.
    pub fn take_registration(&mut self) -> Option<ActiveRun> {
        self.registration.take()
    }

    /// Puts everything back. The process must be stopped, and traced by the calling thread.
    pub(crate) fn restore(&mut self) -> io::Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        Memory::open(self.process)?.write(state.registers.rip, &state.code)?;
        ptrace::write_registers(self.process, &state.registers)?;
        ptrace::set_signal_mask(self.process, state.mask)?;
        self.state = None;
        Ok(())
    }

    fn release(&mut self) -> io::Result<()> {
        let process = self.process;
        ptrace::seize_thread(process, 0)?;
        ptrace::interrupt_thread(process)?;
        match ptrace::wait_for_thread(process)? {
            Some((_, PtraceStop::Ended(_))) | None => Ok(()),
            Some((_, stop)) => {
                self.restore()?;
                ptrace::detach_thread(process, if let PtraceStop::Signal(signal) = stop { signal } else { 0 })
            }
        }
    }
}

impl Drop for ParkedProcess {
    fn drop(&mut self) {
        if self.state.is_some()
            && let Err(error) = ignore_ended_thread(self.release())
        {
            log::warn!(
                "process {}, which was stopped in order to trace it, cannot continue ({error}). End it with `kill -KILL {0}`",
                self.process
            );
        }
    }
}
