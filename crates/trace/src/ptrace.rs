//! The requests of ptrace(2) that collectors need, waits for traced threads, and the signal sets in `/proc/PID/status`.
//!
//! Except for [`seize_thread`] and [`interrupt_thread`], requests need a stopped thread. If the thread was killed meanwhile, the error is
//! `ESRCH`; callers then keep waiting, since its end is reported by wait(2).

use crate::system::check_call_result;
use std::io;
use std::time::Duration;

pub type Registers = libc::user_regs_struct;

/// The kernel's id of a thread or process.
pub type Tid = i32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeMode {
    Continue,
    /// Until the next event, or the start or end of a system call.
    ToSystemCall,
    Step,
}

/// The trap flag of `eflags`. In registers that were read by ptrace, it is the program's own.
pub const TRAP_FLAG: u64 = 1 << 8;

/// Why a thread stopped or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtraceStop {
    /// The thread ended with this wait status.
    Ended(i32),
    /// A system call is about to start or has ended.
    SystemCall,
    Signal(i32),
    Exec,
    Created {
        child: Tid,
        kind: TaskKind,
    },
    /// The thread's `vfork` child has released the memory.
    VforkDone,
    /// The thread was just created, has stopped on request, or has left a group stop.
    Interrupted,
    /// The thread is about to end; its memory still exists.
    Ending,
    /// A signal has stopped the thread's process.
    GroupStopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// A process with a copy of the memory.
    Fork,
    /// A process that shares the memory until it executes a different program or ends.
    Vfork,
    /// A thread, or a process created by clone(2).
    Clone,
}

/// Ptrace options that report new tasks and executed programs.
pub const TASK_EVENT_OPTIONS: i32 =
    libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;
/// Ptrace options that also report exits and the end of `vfork`, and that distinguish system calls from signals.
pub const ALL_EVENT_OPTIONS: i32 =
    TASK_EVENT_OPTIONS | libc::PTRACE_O_TRACEVFORKDONE | libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_TRACESYSGOOD;

/// Enables all reports of a thread. With `kill_with_tracer`, the thread is killed when the tracer ends.
pub fn set_options(thread: Tid, kill_with_tracer: bool) -> io::Result<()> {
    let options = ALL_EVENT_OPTIONS | if kill_with_tracer { libc::PTRACE_O_EXITKILL } else { 0 };
    make_ptrace_request(libc::PTRACE_SETOPTIONS, thread, 0, options as usize)
}

/// Ptrace options that report only that a thread is about to end. Without them, a killed process in which only the first thread has options
/// could not be waited for.
pub const EXIT_EVENT_OPTIONS: i32 = libc::PTRACE_O_TRACEEXIT;

/// Starts tracing a running thread without stopping it, with these options.
pub fn seize_thread(thread: Tid, reports: i32) -> io::Result<()> {
    make_ptrace_request(libc::PTRACE_SEIZE, thread, 0, reports as usize)
}

/// Returns signal sets of a thread (proc(5)), with signal 1 in the lowest bit. They are empty if the thread is gone.
fn signal_sets<const N: usize>(thread: Tid, names: [&str; N]) -> [u64; N] {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let set = |name: &str| {
        let text = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        u64::from_str_radix(text.trim(), 16).ok()
    };
    names.map(|name| set(name).unwrap_or(0))
}

/// Returns true if a stopped thread has a pending signal of its own that is delivered as soon as it resumes.
pub fn is_signal_pending(thread: Tid, signal: i32) -> bool {
    let [pending, blocked] = signal_sets(thread, ["SigPnd", "SigBlk"]);
    (pending & !blocked) >> (signal - 1) & 1 == 1
}

/// Returns true if a stopped thread blocks a signal at present, even if only for the duration of a system call.
pub fn is_signal_blocked(thread: Tid, signal: i32) -> bool {
    signal_sets(thread, ["SigBlk"])[0] >> (signal - 1) & 1 == 1
}

/// Reads a stopped thread's signal mask, with signal 1 in the lowest bit. Within `sigsuspend`, this is the mask that the call will restore.
pub fn signal_mask(thread: Tid) -> io::Result<u64> {
    const PTRACE_GETSIGMASK: u32 = 0x420a;
    let mut mask = 0u64;
    make_ptrace_request(PTRACE_GETSIGMASK, thread, size_of::<u64>(), &raw mut mask as usize)?;
    Ok(mask)
}

pub fn set_signal_mask(thread: Tid, mask: u64) -> io::Result<()> {
    const PTRACE_SETSIGMASK: u32 = 0x420b;
    make_ptrace_request(PTRACE_SETSIGMASK, thread, size_of::<u64>(), &raw const mask as usize)
}

/// Returns true if a stopped thread or its process has a pending signal that is delivered as soon as the thread resumes.
pub fn has_pending_signals(thread: Tid) -> bool {
    let [own, shared, blocked] = signal_sets(thread, ["SigPnd", "ShdPnd", "SigBlk"]);
    (own | shared) & !blocked != 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalDisposition {
    /// The program's handler runs.
    Caught,
    /// Nothing happens, except that the process may stop.
    Ignored,
    Fatal,
}

/// Returns the effect of a signal on a stopped thread. `caused` means that the thread's own instruction has caused the signal.
pub fn signal_disposition(thread: Tid, signal: i32, caused: bool) -> SignalDisposition {
    let [caught, ignored] = signal_sets(thread, ["SigCgt", "SigIgn"]).map(|set| set >> (signal - 1) & 1 == 1);
    let passes = matches!(
        signal,
        libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT | libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU
    );
    match (caught, ignored || passes) {
        (true, _) => SignalDisposition::Caught,
        (false, true) if !caused => SignalDisposition::Ignored,
        _ => SignalDisposition::Fatal,
    }
}

pub fn has_signal_action(thread: Tid, signal: i32) -> bool {
    let [caught, ignored] = signal_sets(thread, ["SigCgt", "SigIgn"]);
    (caught | ignored) >> (signal - 1) & 1 == 1
}

pub fn interrupt_thread(thread: Tid) -> io::Result<()> {
    make_ptrace_request(libc::PTRACE_INTERRUPT, thread, 0, 0)
}

/// Detaches from a stopped thread and delivers `signal`, unless that is 0.
pub fn detach_thread(thread: Tid, signal: i32) -> io::Result<()> {
    make_ptrace_request(libc::PTRACE_DETACH, thread, 0, signal as usize)
}

/// Resumes a stopped thread and delivers `signal`, unless that is 0.
pub fn resume_thread(thread: Tid, how: ResumeMode, signal: i32) -> io::Result<()> {
    let what = match how {
        ResumeMode::Continue => libc::PTRACE_CONT,
        ResumeMode::ToSystemCall => libc::PTRACE_SYSCALL,
        ResumeMode::Step => libc::PTRACE_SINGLESTEP,
    };
    make_ptrace_request(what, thread, 0, signal as usize)
}

/// Sends a signal to a thread. A thread that is gone is not an error.
pub fn send_signal_to_thread(thread: Tid, signal: i32) {
    // SAFETY: the system call takes no pointers.
    unsafe { libc::syscall(libc::SYS_tkill, thread, signal) };
}

/// Leaves a thread in its group stop.
pub fn keep_thread_stopped(thread: Tid) -> io::Result<()> {
    make_ptrace_request(libc::PTRACE_LISTEN, thread, 0, 0)
}

pub fn read_registers(thread: Tid) -> io::Result<Registers> {
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    make_ptrace_request(libc::PTRACE_GETREGS, thread, 0, &raw mut registers as usize)?;
    Ok(registers)
}

/// Returns true if a stopped thread executes 64-bit code. System calls cannot be injected into 32-bit code.
pub fn is_64_bit(registers: &Registers) -> bool {
    const CODE_SEGMENT_OF_64_BIT_MODE: u64 = 0x33;
    registers.cs == CODE_SEGMENT_OF_64_BIT_MODE
}

pub fn write_registers(thread: Tid, registers: &Registers) -> io::Result<()> {
    make_ptrace_request(libc::PTRACE_SETREGS, thread, 0, std::ptr::from_ref(registers) as usize)
}

/// Reads the instruction pointer alone, which is cheaper than all registers.
pub fn instruction_pointer(thread: Tid) -> io::Result<u64> {
    user_word(thread, std::mem::offset_of!(libc::user, regs) + std::mem::offset_of!(Registers, rip))
}

pub fn stack_pointer(thread: Tid) -> io::Result<u64> {
    user_word(thread, std::mem::offset_of!(libc::user, regs) + std::mem::offset_of!(Registers, rsp))
}

pub fn set_instruction_pointer(thread: Tid, address: u64) -> io::Result<()> {
    set_user_word(thread, std::mem::offset_of!(libc::user, regs) + std::mem::offset_of!(Registers, rip), address)
}

pub fn debug_register(thread: Tid, number: usize) -> io::Result<u64> {
    user_word(thread, std::mem::offset_of!(libc::user, u_debugreg) + 8 * number)
}

pub fn set_debug_register(thread: Tid, number: usize, value: u64) -> io::Result<()> {
    set_user_word(thread, std::mem::offset_of!(libc::user, u_debugreg) + 8 * number, value)
}

fn user_word(thread: Tid, offset: usize) -> io::Result<u64> {
    let mut word = 0u64;
    make_ptrace_request(libc::PTRACE_PEEKUSER, thread, offset, &raw mut word as usize)?;
    Ok(word)
}

fn set_user_word(thread: Tid, offset: usize, value: u64) -> io::Result<()> {
    make_ptrace_request(libc::PTRACE_POKEUSER, thread, offset, value as usize)
}

/// Type of the register set with all extended state (`NT_X86_XSTATE`), in the format of XSAVE.
const NT_X86_XSTATE: usize = 0x202;
/// Number of the state's component with the rights for protection keys.
const PKRU_COMPONENT: u32 = 9;
/// Offset of the bit set that says which components the state has.
const XSAVE_COMPONENTS_OFFSET: usize = 512;

/// Reads a stopped thread's rights for memory protection keys (the register PKRU).
pub fn protection_key_rights(thread: Tid) -> io::Result<u32> {
    let (state, place) = extended_state(thread)?;
    Ok(u32::from_le_bytes(state[place..place + 4].try_into().expect("four bytes")))
}

pub fn set_protection_key_rights(thread: Tid, rights: u32) -> io::Result<()> {
    const PTRACE_SETREGSET: u32 = 0x4205;
    let (mut state, place) = extended_state(thread)?;
    state[place..place + 4].copy_from_slice(&rights.to_le_bytes());
    state[XSAVE_COMPONENTS_OFFSET + PKRU_COMPONENT as usize / 8] |= 1 << (PKRU_COMPONENT % 8);
    let vector = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    make_ptrace_request(PTRACE_SETREGSET, thread, NT_X86_XSTATE, &raw const vector as usize)
}

/// Reads a stopped thread's extended state. Returns the state, and the offset in it of the rights for protection keys.
fn extended_state(thread: Tid) -> io::Result<(Vec<u8>, usize)> {
    const PTRACE_GETREGSET: u32 = 0x4204;
    let mut state = vec![0; 1 << 14];
    let mut vector = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
    make_ptrace_request(PTRACE_GETREGSET, thread, NT_X86_XSTATE, &raw mut vector as usize)?;
    state.truncate(vector.iov_len);
    let place = std::arch::x86_64::__cpuid_count(0xd, PKRU_COMPONENT).ebx as usize;
    match place > XSAVE_COMPONENTS_OFFSET && place + 4 <= state.len() {
        true => Ok((state, place)),
        false => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// Reads `si_code` of the signal that a thread is about to receive. The code shows the signal's cause.
pub fn signal_code(thread: Tid) -> io::Result<i32> {
    Ok(signal_information(thread)?.si_code)
}

pub fn signal_information(thread: Tid) -> io::Result<libc::siginfo_t> {
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
    make_ptrace_request(libc::PTRACE_GETSIGINFO, thread, 0, &raw mut information as usize)?;
    Ok(information)
}

/// Sets the information on the signal that a thread is about to receive, which single-stepping the thread overwrites.
pub fn set_signal_information(thread: Tid, information: &libc::siginfo_t) -> io::Result<()> {
    make_ptrace_request(libc::PTRACE_SETSIGINFO, thread, 0, std::ptr::from_ref(information) as usize)
}

/// The state of a stopped thread with respect to system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCallStop {
    /// The call is about to start.
    Entry { number: u64, arguments: [u64; 6] },
    /// The call has ended.
    Exit {
        /// The call's result; small negative numbers are errors.
        result: i64,
    },
    /// The thread is not at a system call.
    NotAtCall,
}

/// The result of PTRACE_GET_SYSCALL_INFO: a header, then the number and arguments or the result.
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

pub fn read_system_call_stop(thread: Tid) -> io::Result<SystemCallStop> {
    const GET_SYSCALL_INFO: u32 = 0x420e;
    let mut information = CallInformation::default();
    make_ptrace_request(GET_SYSCALL_INFO, thread, size_of::<CallInformation>(), &raw mut information as usize)?;
    let [number, a, b, c, d, e, f, _] = information.words;
    Ok(match information.op {
        1 => SystemCallStop::Entry { number, arguments: [a, b, c, d, e, f] },
        2 => SystemCallStop::Exit { result: number as i64 },
        _ => SystemCallStop::NotAtCall,
    })
}

/// Waits for a thread that is traced by the calling thread, or for any such thread (-1). Returns `None` if there is none.
pub fn wait_for_thread(thread: Tid) -> io::Result<Option<(Tid, PtraceStop)>> {
    loop {
        match wait_status(thread, 0) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            other => return other,
        }
    }
}

/// Like `wait_for_thread(-1)`, but returns if a signal interrupts it.
///
/// # Errors
/// `EINTR` if a signal interrupted the wait, or any other error that the system call returns.
pub fn wait_interruptibly() -> io::Result<Option<(Tid, PtraceStop)>> {
    wait_status(-1, 0)
}

/// Waits for any thread that the calling thread traces, and for the end of `child`, a child of this process that is not traced.
pub fn wait_with_child(child: Tid) -> io::Result<Option<(Tid, PtraceStop)>> {
    const CHILD_POLL_INTERVAL: Duration = Duration::from_millis(5);
    loop {
        if let Some(found) = wait_status(-1, libc::WNOHANG)? {
            return Ok(Some(found));
        }
        let mut status = 0;
        // SAFETY: the pointer refers to a local variable of the type that the kernel writes.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 => std::thread::sleep(CHILD_POLL_INTERVAL),
            1.. => return Ok(Some((child, PtraceStop::Ended(status)))),
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

/// Waits for the end of a child of this process that is no longer traced, and returns its wait status.
///
/// # Errors
/// The process is not a child, or its status was already taken.
pub fn wait_for_child(process: Tid) -> io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer refers to a local variable of the type that the kernel writes.
        match (unsafe { libc::waitpid(process, &raw mut status, 0) }, io::Error::last_os_error()) {
            (1.., _) => return Ok(status),
            (_, error) if error.raw_os_error() == Some(libc::EINTR) => {}
            (_, error) => return Err(error),
        }
    }
}

fn wait_status(thread: Tid, options: i32) -> io::Result<Option<(Tid, PtraceStop)>> {
    let mut status = 0;
    // SAFETY: the pointer refers to a local variable of the type that the kernel writes.
    let found = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::__WNOTHREAD | options) };
    match (found, io::Error::last_os_error()) {
        (1.., _) => Ok(Some((found, parse_status(found, status)))),
        (0, _) => Ok(None),
        (_, error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        (_, error) => Err(error),
    }
}

fn parse_status(thread: Tid, status: i32) -> PtraceStop {
    if !libc::WIFSTOPPED(status) {
        return PtraceStop::Ended(status);
    }
    let signal = libc::WSTOPSIG(status);
    // A task that was killed meanwhile has created nothing that can be traced.
    let created = |kind| event_message(thread).map_or(PtraceStop::Interrupted, |child| PtraceStop::Created { child: child as Tid, kind });
    match status >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => PtraceStop::SystemCall,
        0 => PtraceStop::Signal(signal),
        libc::PTRACE_EVENT_EXEC => PtraceStop::Exec,
        libc::PTRACE_EVENT_FORK => created(TaskKind::Fork),
        libc::PTRACE_EVENT_VFORK => created(TaskKind::Vfork),
        libc::PTRACE_EVENT_CLONE => created(TaskKind::Clone),
        libc::PTRACE_EVENT_VFORK_DONE => PtraceStop::VforkDone,
        libc::PTRACE_EVENT_EXIT => PtraceStop::Ending,
        _ if signal == libc::SIGTRAP => PtraceStop::Interrupted,
        _ => PtraceStop::GroupStopped,
    }
}

/// Reads the message of a thread's event: the id of the new task, or for [`PtraceStop::Ending`] the wait status.
pub fn event_message(thread: Tid) -> io::Result<u64> {
    let mut word = 0u64;
    make_ptrace_request(libc::PTRACE_GETEVENTMSG, thread, 0, &raw mut word as usize)?;
    Ok(word)
}

fn make_ptrace_request(what: u32, thread: Tid, address: usize, data: usize) -> io::Result<()> {
    // This calls the kernel directly, since the C library's function returns peeked words as results.
    // SAFETY: callers pass integers, or pointers to objects of the size that the request reads or writes.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, libc::c_long::from(what), thread, address, data) };
    check_call_result(result)
}

/// Ignores the error `ESRCH`: the thread was killed meanwhile, and wait(2) reports its end.
pub fn ignore_ended_thread(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|e| if e.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(e) })
}

/// System calls that fail with `EINTR` after a stop of their thread, although no handler has run (signal(7)).
const CALLS_INTERRUPTED_BY_STOPS: &[libc::c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
];

/// If a stop has interrupted one of [`CALLS_INTERRUPTED_BY_STOPS`] in a stopped thread, restarts the call with its full time limit, so that
/// the program does not see an error caused by tracing.
pub fn restart_interrupted_call(thread: Tid) -> io::Result<()> {
    let registers = read_registers(thread)?;
    let is_interrupted =
        registers.rax as i64 == -i64::from(libc::EINTR) && CALLS_INTERRUPTED_BY_STOPS.contains(&(registers.orig_rax as libc::c_long));
    if is_interrupted && !has_pending_signals(thread) {
        let again = Registers { rax: registers.orig_rax, orig_rax: u64::MAX, rip: registers.rip - SYSCALL_LENGTH, ..registers };
        write_registers(thread, &again)?;
    }
    Ok(())
}

const SYSCALL_LENGTH: u64 = 2;

pub fn clear_debug_registers(thread: Tid) -> io::Result<()> {
    const DEBUG_CONTROL_REGISTER: usize = 7;
    set_debug_register(thread, DEBUG_CONTROL_REGISTER, 0)?;
    (0..4).try_for_each(|register| set_debug_register(thread, register, 0))
}
