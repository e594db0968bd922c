//! A branch recorder that needs no hardware support: it single-steps a program and writes each taken branch in the format of `perf script`.
//!
//! The text looks like a trace of all branches by Intel PT without the kernel (`--itrace=b -F pid,tid,ip,addr`). [`sample_windows`] turns
//! it into samples of branch records (`-F pid,tid,ip,brstack`). An instruction has branched unless the next executed instruction starts at
//! it (`rep`) or after it, within the maximum length of an instruction. System calls and jumps, which can have nearer targets, are
//! recognised by their opcodes.

use crate::error::OracleError;
use crate::subject::SubjectOutcome;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use trodden_trace::{ProcessMapping, mappings};

const MAX_INSTRUCTION_LENGTH: u64 = 15;
const KERNEL_ADDRESS: u64 = 0xffff_ffff_8100_0000;
const MMAP_SYSCALL: u64 = 9;

/// Runs a program to its end and writes its branches to `trace`. The program must not start other processes.
///
/// # Errors
/// The program cannot be run or traced, or the trace cannot be written.
pub fn record(
    program: &Path,
    arguments: &[OsString],
    input: Stdio,
    directory: &Path,
    trace: &mut dyn Write,
) -> Result<SubjectOutcome, OracleError> {
    let _pinned = PinnedThread::new();
    let failed = |what: &'static str| move |source: nix::Error| OracleError::Trace { program: program.to_owned(), what, source };
    // The shell stops itself, so that it can be seized before it executes the program.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).arg(program).args(arguments).current_dir(directory);
    let mut child = shell.stdin(input).stdout(Stdio::piped()).env_remove("TRODDEN_OUTPUT").spawn().map_err(OracleError::file(program))?;
    let mut output = child.stdout.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).map(|_| bytes)
    });
    let pid = Pid::from_raw(child.id() as i32);
    waitpid(pid, Some(WaitPidFlag::WUNTRACED)).map_err(failed("wait for"))?;
    let options = Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).map_err(failed("trace"))?;
    nix::sys::signal::kill(pid, Signal::SIGCONT).map_err(failed("continue"))?;
    let status = BranchStepper::new(pid, trace).run().map_err(|error| match error {
        StepError::Trace(source) => failed("single-step")(source),
        StepError::Write(source) => OracleError::File { path: "trace of branches".into(), source },
    })?;
    let output = reader.join().expect("the reader does not panic").map_err(OracleError::file(program))?;
    Ok(SubjectOutcome { status, output })
}

/// Samples windows of each thread's last `size` branches from a trace, as lines of branch stacks. Between two windows, a pseudo-random
/// number of branches is skipped, `interval` on average; 0 takes a window after every branch. Like hardware, windows contain the branches
/// out of the kernel but not the branches into it.
pub fn sample_windows(trace: &str, size: usize, interval: u64) -> String {
    let mut text = String::new();
    let mut last: HashMap<&str, VecDeque<String>> = HashMap::new();
    let (mut seed, mut wait) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    for line in trace.lines() {
        let Some((thread, (from, to))) = line.split_once(' ').and_then(|(t, b)| Some((t, b.split_once(" => ")?))) else {
            text += line;
            text.push('\n');
            continue;
        };
        if to == "0" {
            continue;
        }
        let window = last.entry(thread).or_default();
        window.push_front(if from == "0" { format!("0x{KERNEL_ADDRESS:x}/0x{to}/P/-/-/0") } else { format!("0x{from}/0x{to}/P/-/-/0") });
        window.truncate(size);
        if wait > 0 {
            wait -= 1;
            continue;
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        wait = (seed >> 33) % (2 * interval + 1);
        text += &format!("{thread} {to} {}\n", window.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
    }
    text
}

/// Pins this thread, and the program that it starts, to one processor, so that a step need not wake a second processor. Restores the
/// affinity on drop.
struct PinnedThread(Option<CpuSet>);

impl PinnedThread {
    fn new() -> PinnedThread {
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this).ok();
        let first = allowed.and_then(|set| (0..CpuSet::count()).find(|cpu| set.is_set(*cpu) == Ok(true)));
        let mut one = CpuSet::new();
        // Pinning only saves time, so a failure is ignored.
        if let Some(cpu) = first
            && one.set(cpu).is_ok()
        {
            let _ = sched_setaffinity(this, &one);
        }
        PinnedThread(allowed)
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        if let Some(allowed) = &self.0 {
            let _ = sched_setaffinity(Pid::from_raw(0), allowed);
        }
    }
}

enum StepError {
    Trace(nix::Error),
    Write(std::io::Error),
}

impl From<nix::Error> for StepError {
    fn from(error: nix::Error) -> StepError {
        StepError::Trace(error)
    }
}

impl From<std::io::Error> for StepError {
    fn from(error: std::io::Error) -> StepError {
        StepError::Write(error)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum InstructionKind {
    SystemCall,
    /// A direct jump or call, with its length in bytes.
    Jump(u64),
    /// A return, or an indirect jump or call. Such an instruction always branches.
    Indirect,
    Other,
}

#[derive(Default)]
struct ThreadSteps {
    /// Address of the next instruction; `None` before the first.
    next: Option<u64>,
}

struct BranchStepper<'a> {
    pid: Pid,
    trace: &'a mut dyn Write,
    memory: Option<File>,
    kinds: HashMap<u64, InstructionKind>,
    threads: HashMap<Pid, ThreadSteps>,
    mapped: HashSet<ProcessMapping>,
}

impl<'a> BranchStepper<'a> {
    fn new(pid: Pid, trace: &'a mut dyn Write) -> BranchStepper<'a> {
        let (kinds, threads, mapped) = (HashMap::new(), HashMap::from([(pid, ThreadSteps::default())]), HashSet::new());
        BranchStepper { pid, trace, memory: None, kinds, threads, mapped }
    }

    fn run(&mut self) -> Result<ExitStatus, StepError> {
        loop {
            match self.wait_for_event()? {
                WaitStatus::Exited(pid, code) if self.record_thread_end(pid)? => return Ok(ExitStatus::from_raw(code << 8)),
                WaitStatus::Signaled(pid, signal, _) if self.record_thread_end(pid)? => return Ok(ExitStatus::from_raw(signal as i32)),
                WaitStatus::PtraceEvent(pid, _, event) if event == nix::libc::PTRACE_EVENT_EXEC => {
                    self.memory = Some(File::open(format!("/proc/{}/mem", self.pid))?);
                    self.write_new_mappings()?;
                    self.record_step(pid)?;
                    single_step(pid, None)?;
                }
                WaitStatus::PtraceEvent(pid, _, event) => {
                    if event == nix::libc::PTRACE_EVENT_CLONE {
                        self.threads.entry(Pid::from_raw(ptrace::getevent(pid)? as i32)).or_default();
                    }
                    self.resume(pid, None)?;
                }
                WaitStatus::Stopped(pid, Signal::SIGTRAP) => {
                    self.record_step(pid)?;
                    self.resume(pid, None)?;
                }
                WaitStatus::Stopped(pid, Signal::SIGCONT | Signal::SIGSTOP) if self.memory.is_none() => self.resume(pid, None)?,
                WaitStatus::Stopped(pid, signal) => self.resume(pid, Some(signal))?,
                _ => {}
            }
        }
    }

    /// Waits for an event of one of the program's threads, but not of any other child of this process.
    fn wait_for_event(&mut self) -> Result<WaitStatus, StepError> {
        if self.threads.len() == 1 {
            return Ok(waitpid(self.threads.keys().next().copied(), Some(WaitPidFlag::__WALL))?);
        }
        loop {
            for pid in self.threads.keys().copied().collect::<Vec<_>>() {
                match waitpid(pid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
                    Ok(WaitStatus::StillAlive) | Err(nix::Error::ECHILD) => {}
                    status => return Ok(status?),
                }
            }
            std::thread::yield_now();
        }
    }

    /// Resumes a thread. Before the program is executed, the thread runs freely; then it executes one instruction.
    fn resume(&self, pid: Pid, signal: Option<Signal>) -> Result<(), StepError> {
        match self.memory {
            Some(_) => single_step(pid, signal),
            None => ignore_ended_thread(ptrace::cont(pid, signal)),
        }
    }

    /// Writes the branch, if any, of the instruction that a thread has just executed.
    fn record_step(&mut self, pid: Pid) -> Result<(), StepError> {
        let registers = match ptrace::getregs(pid) {
            Err(nix::Error::ESRCH) => return Ok(()),
            registers => registers?,
        };
        let now = registers.rip;
        let Some(before) = self.threads.entry(pid).or_default().next.replace(now) else {
            return self.write_branch(pid, None, Some(now));
        };
        let (kind, ahead) = (self.instruction_kind(before), now.wrapping_sub(before));
        match kind {
            InstructionKind::SystemCall => {
                if registers.orig_rax == MMAP_SYSCALL {
                    self.write_new_mappings()?;
                }
                self.write_branch(pid, Some(before), None)?;
                self.write_branch(pid, None, Some(now))
            }
            InstructionKind::Jump(length) if ahead == length => Ok(()),
            InstructionKind::Other if ahead <= MAX_INSTRUCTION_LENGTH => Ok(()),
            _ if self.is_signal_delivery(&registers) => {
                self.write_branch(pid, Some(before), None)?;
                self.write_branch(pid, None, Some(now))
            }
            _ => self.write_branch(pid, Some(before), Some(now)),
        }
    }

    /// Returns true if a signal handler is about to start: the return address then points to the code that calls `rt_sigreturn`.
    fn is_signal_delivery(&self, registers: &nix::libc::user_regs_struct) -> bool {
        let mut word = [0; 8];
        let memory = self.memory.as_ref().expect("the program runs");
        if memory.read_exact_at(&mut word, registers.rsp).is_err() {
            return false;
        }
        // mov $15, %rax; syscall
        let mut code = [0; 9];
        memory.read_exact_at(&mut code, u64::from_le_bytes(word)).is_ok() && code == [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]
    }

    fn instruction_kind(&mut self, address: u64) -> InstructionKind {
        if let Some(kind) = self.kinds.get(&address) {
            return *kind;
        }
        let mut code = [0; 8];
        let memory = self.memory.as_ref().expect("the program runs");
        let read = memory.read_at(&mut code, address).unwrap_or(0);
        let kind = decode_kind(&code[..read]);
        self.kinds.insert(address, kind);
        kind
    }

    fn write_branch(&mut self, pid: Pid, from: Option<u64>, to: Option<u64>) -> Result<(), StepError> {
        Ok(writeln!(self.trace, "{}/{} {:x} => {:x}", self.pid, pid, from.unwrap_or(0), to.unwrap_or(0))?)
    }

    /// Writes the executable file mappings that the program has added since the last call.
    fn write_new_mappings(&mut self) -> Result<(), StepError> {
        let pid = self.pid;
        for mapping in mappings(pid.as_raw())?.into_iter().filter(|m| m.executable && m.is_file()) {
            if self.mapped.contains(&mapping) {
                continue;
            }
            let ProcessMapping { start, end, offset, device, inode, name, .. } = &mapping;
            let event =
                format!("PERF_RECORD_MMAP2 {pid}/{pid}: [0x{start:x}(0x{:x}) @ 0x{offset:x} {device} {inode} 0]: r-xp {name}", end - start);
            writeln!(self.trace, "{pid}/{pid} {event}")?;
            self.mapped.insert(mapping);
        }
        Ok(())
    }

    /// Records the end of a thread. Returns true for the main thread, which ends last.
    fn record_thread_end(&mut self, pid: Pid) -> Result<bool, StepError> {
        self.threads.remove(&pid);
        let program = self.pid;
        writeln!(self.trace, "PERF_RECORD_EXIT({program}:{pid}):({program}:{program})")?;
        Ok(pid == program)
    }
}

fn single_step(pid: Pid, signal: Option<Signal>) -> Result<(), StepError> {
    ignore_ended_thread(ptrace::step(pid, signal))
}

/// Ignores the error that a thread does not exist, since a different thread can end the program at any time.
fn ignore_ended_thread(result: nix::Result<()>) -> Result<(), StepError> {
    match result {
        Err(nix::Error::ESRCH) => Ok(()),
        result => Ok(result?),
    }
}

fn decode_kind(code: &[u8]) -> InstructionKind {
    let prefixes = code.iter().take_while(|b| matches!(b, 0xf2 | 0x2e | 0x3e)).count();
    let length = |bytes: u64| InstructionKind::Jump(bytes + prefixes as u64);
    match (code.get(prefixes), code.get(prefixes + 1)) {
        (Some(0x0f), Some(0x05)) => InstructionKind::SystemCall,
        (Some(0x70..=0x7f | 0xeb | 0xe0..=0xe3), _) => length(2),
        (Some(0xe8 | 0xe9), _) => length(5),
        (Some(0x0f), Some(0x80..=0x8f)) => length(6),
        (Some(0xc2 | 0xc3), _) | (Some(0xf3), Some(0xc3)) => InstructionKind::Indirect,
        (Some(0xff), Some(operands)) if is_jump_or_call(*operands) => InstructionKind::Indirect,
        (Some(0x40..=0x4f), Some(0xff)) if code.get(prefixes + 2).is_some_and(|operands| is_jump_or_call(*operands)) => {
            InstructionKind::Indirect
        }
        _ => InstructionKind::Other,
    }
}

/// Returns true if an instruction with opcode 0xff is a jump or a call, given its ModRM byte.
fn is_jump_or_call(operands: u8) -> bool {
    (2..=5).contains(&(operands >> 3 & 7))
}
