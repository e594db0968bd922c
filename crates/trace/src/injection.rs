//! System calls and single steps in the name of stopped threads of a session. Registers, signal masks and mappings are entered in
//! the journal before they are changed.

use crate::CollectError;
use crate::journal::JournalEntry;
use crate::memory::Memory;
use crate::ptrace::{self, CallStop, PtraceStop, Registers, Resume, TRAP_FLAG, Tid, unless_gone};
use crate::session::Session;
use std::io;

/// `syscall; int3`.
pub const STUB: &[u8] = &[0x0f, 0x05, 0xcc];

/// Arguments of `prctl` by which a thread may read the time-stamp counter.
const FREE_CLOCK: [u64; 6] = [libc::PR_SET_TSC as u64, libc::PR_TSC_ENABLE as u64, 0, 0, 0, 0];

impl Session {
    /// Whether a filter of system calls has ended a thread.
    fn was_filtered(&self, thread: Tid) -> bool {
        let status = match self.first_event() {
            Some((ended, PtraceStop::Ended(status))) if ended == thread => status,
            Some((ending, PtraceStop::Ending)) if ending == thread => ptrace::event_message(thread).unwrap_or(0) as i32,
            _ => return false,
        };
        status & 0x7f == libc::SIGSYS
    }

    /// Makes a system call in the name of a stopped thread. `at` is where [`STUB`] stands; without it these bytes are put into `memory`
    /// where the thread stands, for the time being. Mappings are entered in the journal.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn inject(
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
            self.fit_address_limit();
        }
        let saved = ptrace::registers(thread)?;
        let place = at.unwrap_or(saved.rip);
        let mut hidden = [0; STUB.len()];
        if at.is_none() {
            memory.read(place, &mut hidden)?;
            memory.patch(&[(place, STUB)])?;
        }
        self.enter(JournalEntry::Registers(thread, Box::new(saved)));
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let rax = number as u64;
        // The program's own trap flag would trap in the stub.
        let eflags = saved.eflags & !TRAP_FLAG;
        let call = Registers { rip: place, rax, orig_rax: u64::MAX, rdi, rsi, rdx, r10, r8, r9, eflags, ..saved };
        ptrace::set_registers(thread, &call)?;
        let is_end = |signal| Ok(signal == libc::SIGTRAP && ptrace::instruction_pointer(thread)? == place + STUB.len() as u64);
        self.undisturbed(thread, || self.run_to_end(thread, Resume::Continue, is_end, "in a system call made in its name"))?;
        let result = ptrace::registers(thread)?.rax as i64;
        if at.is_none() {
            memory.patch(&[(place, &hidden)])?;
        }
        // With the number of a system call that was interrupted: the kernel begins it again.
        ptrace::set_registers(thread, &saved)?;
        self.remove(|entry| matches!(entry, JournalEntry::Registers(other, _) if *other == thread));
        if number == libc::SYS_munmap || number == libc::SYS_mmap && result as u64 != range.start {
            self.remove(|entry| matches!(entry, JournalEntry::Mapping(own) if *own == range));
            self.fit_address_limit();
        }
        Ok(result)
    }

    /// Makes a system call in the name of a thread that gets no signal when it goes on, and without one: what the thread does on SIGTRAP
    /// stays. It is slower.
    ///
    /// # Errors
    /// The thread is gone, or there is no place for [`STUB`].
    pub fn inject_quietly(&self, thread: Tid, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, CollectError> {
        if self.is_filtered() {
            return Err(CollectError::Filtered);
        }
        let (saved, mask, rip) = (ptrace::registers(thread)?, ptrace::signal_mask(thread)?, self.stub());
        if rip == 0 {
            return Err(CollectError::Unexpected { what: "it has no memory for system calls".to_owned() });
        }
        self.enter(JournalEntry::Registers(thread, Box::new(saved)));
        self.enter(JournalEntry::SignalMask(thread, mask));
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let (rax, eflags) = (number as u64, saved.eflags & !TRAP_FLAG);
        let call = Registers { rip, rax, orig_rax: u64::MAX, rdi, rsi, rdx, r10, r8, r9, eflags, ..saved };
        ptrace::set_registers(thread, &call)?;
        ptrace::set_signal_mask(thread, u64::MAX)?;
        let until = |how, is_end: &dyn Fn(PtraceStop) -> io::Result<bool>| loop {
            self.resume(thread, how, 0)?;
            let stop = self.wait_for(thread)?;
            if is_end(stop)? {
                return io::Result::Ok(());
            }
        };
        until(Resume::ToSystemCall, &|_| Ok(matches!(ptrace::system_call(thread)?, CallStop::Exit { .. })))?;
        let result = ptrace::registers(thread)?.rax as i64;
        // Where an interrupted call is begun again if the thread goes on.
        ptrace::interrupt(thread)?;
        until(Resume::Continue, &|stop| Ok(matches!(stop, PtraceStop::Begun | PtraceStop::GroupStopped)))?;
        ptrace::set_registers(thread, &saved)?;
        ptrace::set_signal_mask(thread, mask)?;
        self.remove(|entry| matches!(entry, JournalEntry::SignalMask(other, _) if *other == thread));
        self.remove(|entry| matches!(entry, JournalEntry::Registers(other, _) if *other == thread));
        Ok(result)
    }

    /// Lets a stopped thread execute one instruction; gives where it stands then, or nothing if the instruction faults: it does so again
    /// when the thread goes on. A signal that comes in between is sent again.
    ///
    /// # Errors
    /// The thread cannot be followed.
    pub fn step(&self, thread: Tid) -> Result<Option<u64>, CollectError> {
        let is_end = |signal| Ok(signal == libc::SIGTRAP || is_fault(thread, signal)?);
        let signal = self.undisturbed(thread, || self.run_to_end(thread, Resume::Step, is_end, "at an indirect jump"))?;
        Ok(if signal == libc::SIGTRAP { Some(ptrace::instruction_pointer(thread)?) } else { None })
    }

    /// Lets a stopped thread do something while it blocks all signals but those that its instructions cause: others wait, with all that is
    /// said of them, until it goes on by itself. SIGTRAP must not be blocked: the kernel would take its handler away.
    fn undisturbed(&self, thread: Tid, run: impl FnOnce() -> Result<i32, CollectError>) -> Result<i32, CollectError> {
        let caused = [libc::SIGTRAP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
        let mask = ptrace::signal_mask(thread)?;
        self.enter(JournalEntry::SignalMask(thread, mask));
        ptrace::set_signal_mask(thread, caused.iter().fold(u64::MAX, |all, signal| all & !(1 << (signal - 1))))?;
        let result = run()?;
        unless_gone(ptrace::set_signal_mask(thread, mask))?;
        self.remove(|entry| matches!(entry, JournalEntry::SignalMask(other, _) if *other == thread));
        Ok(result)
    }

    /// Runs a thread until it gets the signal that it should; gives that.
    fn run_to_end(&self, thread: Tid, how: Resume, is_end: impl Fn(i32) -> io::Result<bool>, when: &str) -> Result<i32, CollectError> {
        let mut held = 0;
        loop {
            self.resume(thread, how, 0)?;
            match self.wait_for(thread) {
                Ok(PtraceStop::Signal(signal)) if is_end(signal)? => {
                    if held != 0 {
                        // SAFETY: a system call without pointers.
                        unsafe { libc::syscall(libc::SYS_tkill, thread, held) };
                    }
                    return Ok(signal);
                }
                // One that is not blocked: sent back to the thread when it goes on by itself.
                Ok(PtraceStop::Signal(signal)) => held = signal,
                Ok(PtraceStop::Begun | PtraceStop::GroupStopped) => {}
                Ok(other) => return Err(CollectError::Unexpected { what: format!("{other:?} {when}") }),
                Err(_) if self.was_filtered(thread) => {
                    return Err(CollectError::Unexpected {
                        what: format!(
                            "its filter of system calls (seccomp) ended it {when}: start it with `--no-repeat time`, which needs none later"
                        ),
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lets a stopped thread read the time-stamp counter itself. `at` as for [`Session::inject`].
    ///
    /// # Errors
    /// The thread is gone.
    pub fn free_clock(&self, memory: &Memory, thread: Tid, at: Option<u64>) -> Result<(), CollectError> {
        self.inject(memory, thread, at, libc::SYS_prctl, FREE_CLOCK).map(drop)
    }

    /// Says again what the program wants on SIGTRAP, in the name of a thread that gets no signal when it goes on.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn restore_trap_action(&self, thread: Tid) -> Result<(), CollectError> {
        let Some(action) = self.trap_action() else { return Ok(()) };
        // After the stub, in memory that only the kernel and this session read and write.
        let place = self.stub() + 16;
        self.own_memory()?.write(place, &action)?;
        self.inject_quietly(thread, libc::SYS_rt_sigaction, [libc::SIGTRAP as u64, place, 0, 8, 0, 0])?;
        Ok(())
    }
}

/// Whether a stopped thread's own instruction causes the signal.
fn is_fault(thread: Tid, signal: i32) -> io::Result<bool> {
    let can_be = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL);
    Ok(can_be && ptrace::signal_code(thread)? > 0)
}
