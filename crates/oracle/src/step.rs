//! A recorder of branches that needs no hardware: the program is run instruction by instruction, and each taken branch
//! is printed as `perf script` prints what hardware recorded.
//!
//! The text is the trace of all branches as of Intel PT (`--itrace=b -F pid,tid,ip,addr`), from which windows of
//! branches as of branch records (`-F pid,tid,ip,brstack`) can be taken ([`windows`]). System calls and signals look as
//! they do when the kernel is not recorded. Whether an instruction branched is seen from where the next one is; jumps
//! that may lead a few bytes forward and system calls have to be known by their first bytes.

use crate::error::Error;
use crate::subject::SubjectOutcome;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// No instruction is longer.
const LONGEST_INSTRUCTION: u64 = 15;
/// An address that stands for the kernel.
const KERNEL: u64 = 0xffff_ffff_8100_0000;
/// Number of the system call that maps files.
const MMAP: u64 = 9;

/// Runs a program to its end and prints its branches. It must not start other processes.
///
/// # Errors
/// It cannot be run or traced, or a text not be written.
pub fn record(
    program: &Path,
    arguments: &[OsString],
    input: Stdio,
    directory: &Path,
    trace: &mut dyn Write,
) -> Result<SubjectOutcome, Error> {
    let _pinned = OneProcessor::keep();
    let failed = |what: &'static str| move |source: nix::Error| Error::Trace { program: program.to_owned(), what, source };
    // The shell stops itself, so that it can be seized before it becomes the program.
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).arg(program).args(arguments).current_dir(directory);
    let mut child = shell.stdin(input).stdout(Stdio::piped()).env_remove("TRODDEN_OUTPUT").spawn().map_err(Error::file(program))?;
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
    let status = Stepper::new(pid, trace).run().map_err(|stop| match stop {
        Stop::Trace(source) => failed("step")(source),
        Stop::Write(source) => Error::File { path: "the text of branches".into(), source },
    })?;
    let output = reader.join().expect("the reader does not panic").map_err(Error::file(program))?;
    Ok(SubjectOutcome { status, output })
}

/// Windows of the last branches of each thread in a trace, as lines of branch stacks: of `size` branches, about `apart`
/// from one to the next (by a simple generator; 0: after each branch). Branches into the kernel are not recorded, those
/// out of it are, as hardware does it.
pub fn windows(trace: &str, size: usize, apart: u64) -> String {
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
        window.push_front(if from == "0" { format!("0x{KERNEL:x}/0x{to}/P/-/-/0") } else { format!("0x{from}/0x{to}/P/-/-/0") });
        window.truncate(size);
        if wait > 0 {
            wait -= 1;
            continue;
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        wait = (seed >> 33) % (2 * apart + 1);
        text += &format!("{thread} {to} {}\n", window.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
    }
    text
}

/// Keeps this thread, and so the program it starts, on one processor: then each step is a switch there, and wakes no other processor.
struct OneProcessor(Option<CpuSet>);

impl OneProcessor {
    fn keep() -> OneProcessor {
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this).ok();
        let first = allowed.and_then(|set| (0..CpuSet::count()).find(|cpu| set.is_set(*cpu) == Ok(true)));
        let mut one = CpuSet::new();
        // Where that is not allowed, it is only slower.
        if let Some(cpu) = first
            && one.set(cpu).is_ok()
        {
            let _ = sched_setaffinity(this, &one);
        }
        OneProcessor(allowed)
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        if let Some(allowed) = &self.0 {
            let _ = sched_setaffinity(Pid::from_raw(0), allowed);
        }
    }
}

enum Stop {
    Trace(nix::Error),
    Write(std::io::Error),
}

impl From<nix::Error> for Stop {
    fn from(error: nix::Error) -> Stop {
        Stop::Trace(error)
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Stop {
        Stop::Write(error)
    }
}

/// What has to be known of an instruction by its bytes.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    SystemCall,
    /// A direct jump or call of so many bytes.
    Jump(u64),
    /// A return, an indirect jump or call: it branches, however near its target is.
    Indirect,
    Other,
}

/// What a thread did last.
#[derive(Default)]
struct Thread {
    /// The instruction that it was about to execute; none before its first.
    at: Option<u64>,
}

struct Stepper<'a> {
    pid: Pid,
    trace: &'a mut dyn Write,
    memory: Option<File>,
    kinds: HashMap<u64, Kind>,
    threads: HashMap<Pid, Thread>,
    mapped: HashSet<String>,
}

impl<'a> Stepper<'a> {
    fn new(pid: Pid, trace: &'a mut dyn Write) -> Stepper<'a> {
        let (kinds, threads, mapped) = (HashMap::new(), HashMap::from([(pid, Thread::default())]), HashSet::new());
        Stepper { pid, trace, memory: None, kinds, threads, mapped }
    }

    fn run(&mut self) -> Result<ExitStatus, Stop> {
        loop {
            match self.wait()? {
                WaitStatus::Exited(pid, code) if self.ended(pid)? => return Ok(ExitStatus::from_raw(code << 8)),
                WaitStatus::Signaled(pid, signal, _) if self.ended(pid)? => return Ok(ExitStatus::from_raw(signal as i32)),
                WaitStatus::PtraceEvent(pid, _, event) if event == nix::libc::PTRACE_EVENT_EXEC => {
                    self.memory = Some(File::open(format!("/proc/{}/mem", self.pid))?);
                    self.map()?;
                    self.stepped(pid)?;
                    step(pid, None)?;
                }
                WaitStatus::PtraceEvent(pid, _, event) => {
                    if event == nix::libc::PTRACE_EVENT_CLONE {
                        self.threads.entry(Pid::from_raw(ptrace::getevent(pid)? as i32)).or_default();
                    }
                    self.go_on(pid, None)?;
                }
                WaitStatus::Stopped(pid, Signal::SIGTRAP) => {
                    self.stepped(pid)?;
                    self.go_on(pid, None)?;
                }
                WaitStatus::Stopped(pid, Signal::SIGCONT | Signal::SIGSTOP) if self.memory.is_none() => self.go_on(pid, None)?,
                WaitStatus::Stopped(pid, signal) => self.go_on(pid, Some(signal))?,
                _ => {}
            }
        }
    }

    /// What one of the threads did. Other children of this process are not waited for: they are others' business.
    fn wait(&mut self) -> Result<WaitStatus, Stop> {
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

    /// Goes on: by one instruction once the program runs.
    fn go_on(&self, pid: Pid, signal: Option<Signal>) -> Result<(), Stop> {
        match self.memory {
            Some(_) => step(pid, signal),
            None => ignore_ended(ptrace::cont(pid, signal)),
        }
    }

    /// A thread has executed an instruction.
    fn stepped(&mut self, pid: Pid) -> Result<(), Stop> {
        let registers = match ptrace::getregs(pid) {
            Err(nix::Error::ESRCH) => return Ok(()),
            registers => registers?,
        };
        let now = registers.rip;
        let Some(before) = self.threads.entry(pid).or_default().at.replace(now) else {
            return self.branch(pid, None, Some(now));
        };
        let (kind, ahead) = (self.kind(before), now.wrapping_sub(before));
        match kind {
            Kind::SystemCall => {
                if registers.orig_rax == MMAP {
                    self.map()?;
                }
                self.branch(pid, Some(before), None)?;
                self.branch(pid, None, Some(now))
            }
            Kind::Jump(length) if ahead == length => Ok(()),
            Kind::Other if ahead <= LONGEST_INSTRUCTION => Ok(()),
            _ if self.is_delivery(&registers) => {
                self.branch(pid, Some(before), None)?;
                self.branch(pid, None, Some(now))
            }
            _ => self.branch(pid, Some(before), Some(now)),
        }
    }

    /// Whether control is at a handler because of a signal: the address that the handler will return to leads to a system call at once.
    fn is_delivery(&self, registers: &nix::libc::user_regs_struct) -> bool {
        let mut word = [0; 8];
        let memory = self.memory.as_ref().expect("the program runs");
        if memory.read_exact_at(&mut word, registers.rsp).is_err() {
            return false;
        }
        // mov $15, %rax; syscall
        let mut code = [0; 9];
        memory.read_exact_at(&mut code, u64::from_le_bytes(word)).is_ok() && code == [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]
    }

    fn kind(&mut self, address: u64) -> Kind {
        if let Some(kind) = self.kinds.get(&address) {
            return *kind;
        }
        let mut code = [0; 8];
        let memory = self.memory.as_ref().expect("the program runs");
        let read = memory.read_at(&mut code, address).unwrap_or(0);
        let kind = kind_of(&code[..read]);
        self.kinds.insert(address, kind);
        kind
    }

    fn branch(&mut self, pid: Pid, from: Option<u64>, to: Option<u64>) -> Result<(), Stop> {
        Ok(writeln!(self.trace, "{}/{} {:x} => {:x}", self.pid, pid, from.unwrap_or(0), to.unwrap_or(0))?)
    }

    /// Prints the files that were mapped since the last time.
    fn map(&mut self) -> Result<(), Stop> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        for line in maps.lines().filter(|l| l.contains(" r-xp ") && l.contains(" /")) {
            if !self.mapped.insert(line.to_owned()) {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = words[0].split_once('-').expect("a range");
            let address = |text: &str| u64::from_str_radix(text, 16).expect("the kernel prints numbers");
            let (start, end, offset) = (address(start), address(end), address(words[2]));
            let file = &line[line.find(" /").expect("it has a path") + 1..];
            let pid = self.pid;
            let event = format!(
                "PERF_RECORD_MMAP2 {pid}/{pid}: [0x{start:x}(0x{:x}) @ 0x{offset:x} {} {} 0]: r-xp {file}",
                end - start,
                words[3],
                words[4]
            );
            writeln!(self.trace, "{pid}/{pid} {event}")?;
        }
        Ok(())
    }

    /// Whether it was the program itself that ended.
    fn ended(&mut self, pid: Pid) -> Result<bool, Stop> {
        self.threads.remove(&pid);
        let program = self.pid;
        writeln!(self.trace, "PERF_RECORD_EXIT({program}:{pid}):({program}:{program})")?;
        Ok(pid == program)
    }
}

fn step(pid: Pid, signal: Option<Signal>) -> Result<(), Stop> {
    ignore_ended(ptrace::step(pid, signal))
}

/// Another thread may have ended the program meanwhile.
fn ignore_ended(result: nix::Result<()>) -> Result<(), Stop> {
    match result {
        Err(nix::Error::ESRCH) => Ok(()),
        result => Ok(result?),
    }
}

fn kind_of(code: &[u8]) -> Kind {
    let prefixes = code.iter().take_while(|b| matches!(b, 0xf2 | 0x2e | 0x3e)).count();
    let length = |bytes: u64| Kind::Jump(bytes + prefixes as u64);
    match (code.get(prefixes), code.get(prefixes + 1)) {
        (Some(0x0f), Some(0x05)) => Kind::SystemCall,
        (Some(0x70..=0x7f | 0xeb | 0xe0..=0xe3), _) => length(2),
        (Some(0xe8 | 0xe9), _) => length(5),
        (Some(0x0f), Some(0x80..=0x8f)) => length(6),
        (Some(0xc2 | 0xc3), _) | (Some(0xf3), Some(0xc3)) => Kind::Indirect,
        (Some(0xff), Some(operands)) if is_transfer(*operands) => Kind::Indirect,
        (Some(0x40..=0x4f), Some(0xff)) if code.get(prefixes + 2).is_some_and(|operands| is_transfer(*operands)) => Kind::Indirect,
        _ => Kind::Other,
    }
}

/// Whether an instruction of the opcode 0xff is a jump or a call, by the byte of its operands.
fn is_transfer(operands: u8) -> bool {
    (2..=5).contains(&(operands >> 3 & 7))
}
