//! The requests of ptrace(2) that collectors need: registers, single words of registers, events, resumption.
//!
//! Every function is one system call on one stopped thread. A thread that was killed meanwhile answers `ESRCH`: callers
//! go on waiting, since its end is reported by wait(2).

use crate::system::checked;
use std::io;

/// Registers of a stopped thread.
pub type Registers = libc::user_regs_struct;

/// A thread or process number of the kernel.
pub type Tid = i32;

/// How a stopped thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Until something happens to it.
    Continue,
    /// Until something happens, or a system call begins or ends.
    ToSystemCall,
    /// For one instruction.
    Step,
}

/// The trap flag of `eflags`: as registers are read, the program's own.
pub const TRAP_FLAG: u64 = 1 << 8;

/// Why a thread stopped or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtraceStop {
    /// It ended with this wait status.
    Ended(i32),
    /// A system call begins or has ended.
    SystemCall,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It executes another program.
    Exec,
    /// It made a process (`vfork` or not) or a thread.
    Made {
        /// The new thread or process.
        child: Tid,
        /// What it is.
        kind: NewTask,
    },
    /// The parent's wait for a vfork child is over.
    VforkDone,
    /// It was just made, or an interrupt was asked for.
    Begun,
    /// It is about to end; the memory is still there.
    Ending,
    /// Its process is stopped by a signal.
    GroupStopped,
}

/// What was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTask {
    /// A process with a copy of the memory.
    Fork,
    /// A process that borrows the memory until it executes or ends.
    Vfork,
    /// A thread, or a process by clone(2).
    Clone,
}

/// Reports new tasks and executed programs.
pub const NEW_TASKS: i32 = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;
/// Reports also ends, the end of a `vfork`, and system calls apart from signals.
pub const ALL: i32 = NEW_TASKS | libc::PTRACE_O_TRACEVFORKDONE | libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_TRACESYSGOOD;

/// Reports all of a thread; `kill_with_us` ends it when the collector ends.
pub fn set_options(thread: Tid, kill_with_us: bool) -> io::Result<()> {
    let options = ALL | if kill_with_us { libc::PTRACE_O_EXITKILL } else { 0 };
    request(libc::PTRACE_SETOPTIONS, thread, 0, options as usize)
}

/// Reports that a thread is about to end. Else a killed process whose first thread is traced so, and others are not, could not be waited
/// for.
pub const END: i32 = libc::PTRACE_O_TRACEEXIT;

/// Follows a running thread without stopping it; `reports` is what is reported of it.
pub fn seize(thread: Tid, reports: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, thread, 0, reports as usize)
}

/// Sets of signals of a stopped thread (proc(5)), as bits from signal 1 on; empty if it is gone.
fn signals<const N: usize>(thread: Tid, names: [&str; N]) -> [u64; N] {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let set = |name: &str| {
        let text = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        u64::from_str_radix(text.trim(), 16).ok()
    };
    names.map(|name| set(name).unwrap_or(0))
}

/// Whether a stopped thread has a signal of its own that is delivered as soon as it goes on.
pub fn is_pending(thread: Tid, signal: i32) -> bool {
    let [pending, blocked] = signals(thread, ["SigPnd", "SigBlk"]);
    (pending & !blocked) >> (signal - 1) & 1 == 1
}

/// Whether a stopped thread blocks a signal.
pub fn is_blocked(thread: Tid, signal: i32) -> bool {
    signals(thread, ["SigBlk"])[0] >> (signal - 1) & 1 == 1
}

/// Signals that a stopped thread blocks, as bits from signal 1 on; while it waits with others (`sigsuspend`), those it blocks then.
pub fn signal_mask(thread: Tid) -> io::Result<u64> {
    const GET: u32 = 0x420a;
    let mut mask = 0u64;
    request(GET, thread, size_of::<u64>(), &raw mut mask as usize)?;
    Ok(mask)
}

/// Sets them.
pub fn set_signal_mask(thread: Tid, mask: u64) -> io::Result<()> {
    const SET: u32 = 0x420b;
    request(SET, thread, size_of::<u64>(), &raw const mask as usize)
}

/// Whether a stopped thread or its process has a signal that is delivered as soon as the thread goes on.
pub fn has_pending(thread: Tid) -> bool {
    let [own, shared, blocked] = signals(thread, ["SigPnd", "ShdPnd", "SigBlk"]);
    (own | shared) & !blocked != 0
}

/// What a signal does to a thread that it is delivered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The program's handler runs.
    Caught,
    /// Nothing, but for a stop.
    Passed,
    /// It ends the process.
    Fatal,
}

/// What a signal will do to a stopped thread, whose own instruction has caused it or not.
pub fn disposition(thread: Tid, signal: i32, caused: bool) -> Disposition {
    let [caught, ignored] = signals(thread, ["SigCgt", "SigIgn"]).map(|set| set >> (signal - 1) & 1 == 1);
    let passes = matches!(
        signal,
        libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT | libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU
    );
    match (caught, ignored || passes) {
        (true, _) => Disposition::Caught,
        (false, true) if !caused => Disposition::Passed,
        _ => Disposition::Fatal,
    }
}

/// Stops a followed thread.
pub fn interrupt(thread: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, thread, 0, 0)
}

/// Lets a thread go for good, with a signal or (0) without.
pub fn detach(thread: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, thread, 0, signal as usize)
}

/// Lets a stopped thread go on, with a signal or (0) without.
pub fn resume(thread: Tid, how: Resume, signal: i32) -> io::Result<()> {
    let what = match how {
        Resume::Continue => libc::PTRACE_CONT,
        Resume::ToSystemCall => libc::PTRACE_SYSCALL,
        Resume::Step => libc::PTRACE_SINGLESTEP,
    };
    request(what, thread, 0, signal as usize)
}

/// Leaves a thread stopped with its group.
pub fn listen(thread: Tid) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, thread, 0, 0)
}

/// All general registers.
pub fn registers(thread: Tid) -> io::Result<Registers> {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETREGS, thread, 0, &raw mut registers as usize)?;
    Ok(registers)
}

/// Sets all general registers.
pub fn set_registers(thread: Tid, registers: &Registers) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, thread, 0, std::ptr::from_ref(registers) as usize)
}

/// The instruction pointer alone: one word is cheaper than all.
pub fn instruction_pointer(thread: Tid) -> io::Result<u64> {
    user_word(thread, std::mem::offset_of!(libc::user, regs) + std::mem::offset_of!(Registers, rip))
}

/// The stack pointer alone.
pub fn stack_pointer(thread: Tid) -> io::Result<u64> {
    user_word(thread, std::mem::offset_of!(libc::user, regs) + std::mem::offset_of!(Registers, rsp))
}

/// Sets the instruction pointer alone.
pub fn set_instruction_pointer(thread: Tid, address: u64) -> io::Result<()> {
    set_user_word(thread, std::mem::offset_of!(libc::user, regs) + std::mem::offset_of!(Registers, rip), address)
}

/// Debug register `number`.
pub fn debug_register(thread: Tid, number: usize) -> io::Result<u64> {
    user_word(thread, std::mem::offset_of!(libc::user, u_debugreg) + 8 * number)
}

/// Sets debug register `number`.
pub fn set_debug_register(thread: Tid, number: usize, value: u64) -> io::Result<()> {
    set_user_word(thread, std::mem::offset_of!(libc::user, u_debugreg) + 8 * number, value)
}

fn user_word(thread: Tid, offset: usize) -> io::Result<u64> {
    let mut word = 0u64;
    request(libc::PTRACE_PEEKUSER, thread, offset, &raw mut word as usize)?;
    Ok(word)
}

fn set_user_word(thread: Tid, offset: usize, value: u64) -> io::Result<()> {
    request(libc::PTRACE_POKEUSER, thread, offset, value as usize)
}

/// The code of the signal that a thread is about to get: what caused it.
pub fn signal_code(thread: Tid) -> io::Result<i32> {
    Ok(signal_information(thread)?.si_code)
}

/// All that is said of the signal that a thread is about to get.
pub fn signal_information(thread: Tid) -> io::Result<libc::siginfo_t> {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, thread, 0, &raw mut information as usize)?;
    Ok(information)
}

/// Says it again, when the thread has been stepped meanwhile.
pub fn set_signal_information(thread: Tid, information: &libc::siginfo_t) -> io::Result<()> {
    request(libc::PTRACE_SETSIGINFO, thread, 0, std::ptr::from_ref(information) as usize)
}

/// A system call at its beginning or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStop {
    /// It begins.
    Entry {
        /// Its number.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// It has ended.
    Exit {
        /// Its result; small negative numbers are errors.
        result: i64,
    },
    /// The thread is not at a system call.
    Neither,
}

/// What PTRACE_GET_SYSCALL_INFO fills in: header, then the number and arguments or the result.
#[repr(C)]
#[derive(Default)]
struct CallInformation {
    op: u8,
    padding: [u8; 3],
    architecture: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    words: [u64; 8],
}

/// The system call that a thread has stopped at.
pub fn system_call(thread: Tid) -> io::Result<CallStop> {
    const GET_SYSCALL_INFO: u32 = 0x420e;
    let mut information = CallInformation::default();
    request(GET_SYSCALL_INFO, thread, size_of::<CallInformation>(), &raw mut information as usize)?;
    let [number, a, b, c, d, e, f, _] = information.words;
    Ok(match information.op {
        1 => CallStop::Entry { number, arguments: [a, b, c, d, e, f] },
        2 => CallStop::Exit { result: number as i64 },
        _ => CallStop::Neither,
    })
}

/// Waits for a thread that this thread follows, or (-1) any; `None` when there is none any more.
pub fn wait(thread: Tid) -> io::Result<Option<(Tid, PtraceStop)>> {
    loop {
        match waited(thread, 0) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            other => return other,
        }
    }
}

/// Waits for any thread that this thread follows, as [`wait`], but can be woken.
///
/// # Errors
/// A signal interrupted the wait (`EINTR`), or another error of the system.
pub fn wait_unless_woken() -> io::Result<Option<(Tid, PtraceStop)>> {
    waited(-1, 0)
}

/// Waits for the end of a child of this process that is not followed any more; gives its wait status.
///
/// # Errors
/// It is no child, or its status has been taken.
pub fn wait_child(process: Tid) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one number to where the pointer says.
        match (unsafe { libc::waitpid(process, &raw mut status, 0) }, io::Error::last_os_error()) {
            (1.., _) => return Ok(status),
            (_, error) if error.raw_os_error() == Some(libc::EINTR) => {}
            (_, error) => return Err(error),
        }
    }
}

fn waited(thread: Tid, options: i32) -> io::Result<Option<(Tid, PtraceStop)>> {
    let mut status = 0;
    // SAFETY: the kernel writes one number to where the pointer says.
    let found = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::__WNOTHREAD | options) };
    match (found, io::Error::last_os_error()) {
        (1.., _) => Ok(Some((found, stop(found, status)))),
        (0, _) => Ok(None),
        (_, error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        (_, error) => Err(error),
    }
}

fn stop(thread: Tid, status: i32) -> PtraceStop {
    if !libc::WIFSTOPPED(status) {
        return PtraceStop::Ended(status);
    }
    let signal = libc::WSTOPSIG(status);
    // One that was killed meanwhile has made nothing that can be followed.
    let made = |kind| event_message(thread).map_or(PtraceStop::Begun, |child| PtraceStop::Made { child: child as Tid, kind });
    match status >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => PtraceStop::SystemCall,
        0 => PtraceStop::Signal(signal),
        libc::PTRACE_EVENT_EXEC => PtraceStop::Exec,
        libc::PTRACE_EVENT_FORK => made(NewTask::Fork),
        libc::PTRACE_EVENT_VFORK => made(NewTask::Vfork),
        libc::PTRACE_EVENT_CLONE => made(NewTask::Clone),
        libc::PTRACE_EVENT_VFORK_DONE => PtraceStop::VforkDone,
        libc::PTRACE_EVENT_EXIT => PtraceStop::Ending,
        _ if signal == libc::SIGTRAP => PtraceStop::Begun,
        _ => PtraceStop::GroupStopped,
    }
}

/// What the kernel says of the event that a thread has stopped for: the new thread, or (of [`PtraceStop::Ending`]) the wait status.
pub fn event_message(thread: Tid) -> io::Result<u64> {
    let mut word = 0u64;
    request(libc::PTRACE_GETEVENTMSG, thread, 0, &raw mut word as usize)?;
    Ok(word)
}

fn request(what: u32, thread: Tid, address: usize, data: usize) -> io::Result<()> {
    // The system call itself, not the C library's function, which returns peeked words as results.
    // SAFETY: the callers give pointers to objects of the size that the request reads or writes, or plain numbers.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, libc::c_long::from(what), thread, address, data) };
    checked(result)
}

/// A thread that was killed meanwhile is no error: wait(2) reports its end.
pub fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|e| if e.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(e) })
}

/// System calls that say `EINTR` when their thread has been stopped, though no handler has run (signal(7)).
const CUT_BY_STOPS: &[libc::c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
];

/// Lets a thread that was stopped in such a call begin it again, with its whole time limit, so that the program sees no error that it
/// would not have seen.
///
/// # Errors
/// The thread is gone.
pub fn begin_again(thread: Tid) -> io::Result<()> {
    let registers = registers(thread)?;
    let is_cut = registers.rax as i64 == -i64::from(libc::EINTR) && CUT_BY_STOPS.contains(&(registers.orig_rax as libc::c_long));
    if is_cut && !has_pending(thread) {
        let again = Registers { rax: registers.orig_rax, orig_rax: u64::MAX, rip: registers.rip - SYSTEM_CALL, ..registers };
        set_registers(thread, &again)?;
    }
    Ok(())
}

/// Bytes of the instruction `syscall`.
const SYSTEM_CALL: u64 = 2;

/// Switches the hardware breakpoints of a stopped thread off.
///
/// # Errors
/// The thread is gone.
pub fn clear_debug_registers(thread: Tid) -> io::Result<()> {
    const CONTROL: usize = 7;
    set_debug_register(thread, CONTROL, 0)?;
    (0..4).try_for_each(|register| set_debug_register(thread, register, 0))
}
