//! The subject of a collection: a program that starts under control, or a process that runs already; where its image
//! lies; system calls made in its name.
//!
//! A started program stands before the first instruction of its loader: the image is mapped, no constructor has run.

use crate::attach::{check_same_file, check_traceable, seize_all};
use crate::launcher::{ProgramStart, StartConditions};
use crate::memory::{Memory, mappings};
use crate::ptrace::{self, CallStop, Disposition, PtraceStop, Registers, Resume, Tid, unless_gone};
use crate::repeat::RepeatRecipe;
use crate::system::checked;
use crate::{CollectError, programs};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of the area near the image that slots lie in.
pub const AREA: u64 = 32 << 20;

/// Places that are tried for it.
const AREAS: u64 = 8;

const AT_NULL: u64 = 0;
const AT_IGNORE: u64 = 1;
const AT_ENTRY: u64 = 9;
const AT_RANDOM: u64 = 25;
const AT_SYSINFO_EHDR: u64 = 33;

/// What of an executable file says where its image lies. All addresses are those of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// The file.
    pub path: PathBuf,
    /// The entry of the program.
    pub entry: u64,
    /// The addresses that segments with code are loaded at.
    pub code: Vec<Range<u64>>,
    /// First address of all segments, and the one behind the last.
    pub span: Range<u64>,
}

/// A program in memory.
#[derive(Debug)]
pub struct TracedProcess {
    /// Its process.
    pub process: Tid,
    /// Its memory.
    pub memory: Memory,
    /// What is added to addresses of the file; wraps.
    pub bias: u64,
    /// Where slots go.
    pub area: u64,
    /// It stands before its first instruction.
    pub fresh: bool,
    /// Reading the time stamp counter traps (`PR_SET_TSC`), in it and in what it makes, until it is let go.
    pub fixed_clock: bool,
    /// What it had asked for on SIGTRAP when it was attached to, if that was not the default.
    pub trap_action: Option<TrapAction>,
}

/// `struct sigaction` of the kernel.
pub type TrapAction = [u8; 32];

impl Executable {
    /// Reads the headers of an executable file of x86-64.
    ///
    /// # Errors
    /// It cannot be read, or is no ELF file of 64 bits for x86-64.
    pub fn read(path: &Path) -> Result<Self, CollectError> {
        use object::read::elf::{FileHeader, ProgramHeader};
        let fault = |what: &str| CollectError::Executable { path: path.to_owned(), fault: what.to_owned() };
        let bytes = std::fs::read(path).map_err(|e| fault(&format!("cannot be read: {e}")))?;
        if !bytes.starts_with(b"\x7fELF") {
            let is_script = bytes.starts_with(b"#!");
            let remedy = if is_script { " (a script: give its interpreter's program)" } else { ": give a program of 64 bits for x86-64" };
            return Err(fault(&format!("is no ELF file{remedy}")));
        }
        if bytes.get(4) == Some(&1) {
            return Err(fault("is a program of 32 bits; only those of x86-64 can be traced"));
        }
        let broken = |e: object::Error| fault(&format!("is a broken ELF file: {e}"));
        let header = object::elf::FileHeader64::<object::LittleEndian>::parse(&*bytes).map_err(broken)?;
        let endian = object::LittleEndian;
        if header.e_machine(endian) != object::elf::EM_X86_64 {
            return Err(fault("is a program for another processor; only those of x86-64 can be traced"));
        }
        let segments = header.program_headers(endian, &*bytes).map_err(broken)?;
        let loaded = || segments.iter().filter(|s| s.p_type(endian) == object::elf::PT_LOAD);
        let range = |s: &object::elf::ProgramHeader64<_>| s.p_vaddr(endian)..s.p_vaddr(endian).saturating_add(s.p_memsz(endian));
        let code = loaded().filter(|s| s.p_flags(endian) & object::elf::PF_X != 0).map(range).collect();
        let start = loaded().map(|s| range(s).start).min().ok_or_else(|| fault("has no segment to load"))?;
        let end = loaded().map(|s| range(s).end).max().unwrap_or(start);
        Ok(Self { path: path.to_owned(), entry: header.e_entry(endian), code, span: start..end })
    }

    /// Whether an address of the file is code.
    pub fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|c| c.contains(&address))
    }
}

impl TracedProcess {
    /// Starts a program; it stands before its first instruction.
    ///
    /// # Errors
    /// It cannot be started or followed, or what runs is not `executable`.
    pub fn start(program: ProgramStart, executable: &Executable, recipe: &RepeatRecipe) -> Result<Self, CollectError> {
        let (fixed_addresses, fixed_clock, core) = (recipe.addresses, recipe.time, recipe.core);
        let conditions = StartConditions { fixed_addresses, fixed_clock, core };
        let process = programs::start(program, conditions).map_err(CollectError::Start)?;
        ptrace::set_options(process, true)?;
        // The event comes before execve returns, and its result would overwrite a register set here.
        ptrace::resume(process, Resume::ToSystemCall, 0)?;
        match ptrace::wait(process)? {
            Some((_, PtraceStop::SystemCall)) => {}
            other => return Err(CollectError::Unexpected { what: format!("{other:?} where execve returns") }),
        }
        let memory = Memory::open(process)?;
        let auxiliary = Auxiliary::read(&memory, ptrace::stack_pointer(process)?)?;
        recipe.fix_auxiliary(&memory, auxiliary.random, auxiliary.vdso)?;
        let bias = auxiliary.entry.wrapping_sub(executable.entry);
        Self { process, memory, bias, area: 0, fresh: true, fixed_clock, trap_action: None }.with_area(executable)
    }

    /// Takes control of a process that runs already; all its threads are stopped.
    ///
    /// # Errors
    /// There is no such process, or it may not be followed.
    pub fn attach(process: Tid, executable: &Executable) -> Result<(Self, Vec<Tid>), CollectError> {
        check_traceable(process)?;
        check_same_file(process, &executable.path)?;
        let threads = seize_all(process)?;
        let memory = Memory::open(process)?;
        let canonical = executable.path.canonicalize().unwrap_or_else(|_| executable.path.clone());
        let mapped = mappings(process)?.into_iter().find(|m| Path::new(&m.name) == canonical && m.offset == 0);
        let start = mapped
            .ok_or_else(|| CollectError::Unexpected { what: format!("process {process} has not mapped {}", canonical.display()) })?
            .start;
        let bias = start.wrapping_sub(executable.span.start & !0xfff);
        // Before anything traps in its name.
        let trap_action = trap_action(&memory, process)?;
        let subject = Self { process, memory, bias, area: 0, fresh: false, fixed_clock: false, trap_action };
        Ok((subject.with_area(executable)?, threads))
    }

    /// Maps the area of slots. The stopped process must have been stopped outside a system call.
    fn with_area(mut self, executable: &Executable) -> Result<Self, CollectError> {
        let start = executable.span.start.wrapping_add(self.bias);
        // Below the image, since the heap grows above it; programs at fixed low addresses have no room there.
        let wanted = if start > 64 * AREA { (start & !0xfff) - 2 * AREA } else { 0x6000_0000 };
        let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
        let mut got = 0;
        // An earlier collection may have left its area: a thread was in it.
        for place in (0..AREAS).map(|n| wanted - n * AREA) {
            got = self.inject(self.process, None, libc::SYS_mmap, [place, AREA, protection, flags, u64::MAX, 0])?;
            if got as u64 == place {
                self.area = place;
                // A stub for later calls.
                self.memory.write(self.area, STUB)?;
                return Ok(self);
            }
        }
        Err(CollectError::Unexpected { what: format!("no memory at {wanted:#x} for slots near the image (mmap gave {got:#x})") })
    }

    /// Takes out of a process that goes on what was mapped into it, if none of its threads, which are stopped, is there.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn unmap(&self, threads: &[Tid], mapped: impl Iterator<Item = Range<u64>>) -> Result<(), CollectError> {
        let Some(first) = threads.first() else { return Ok(()) };
        for range in mapped.chain([self.mapped()]) {
            let inside = threads.iter().any(|t| ptrace::instruction_pointer(*t).is_ok_and(|at| range.contains(&at)));
            if !inside {
                self.inject(*first, None, libc::SYS_munmap, [range.start, range.end - range.start, 0, 0, 0, 0])?;
            }
        }
        Ok(())
    }

    /// What was mapped into it.
    pub fn mapped(&self) -> Range<u64> {
        self.area..self.area + AREA
    }

    /// Lets a stopped thread execute one instruction; gives where it stands then, or nothing if the instruction faults: it does so again
    /// when the thread goes on. A signal that comes in between is sent again.
    ///
    /// # Errors
    /// The thread cannot be followed.
    pub fn step(&self, thread: Tid) -> Result<Option<u64>, CollectError> {
        let is_end = |signal| Ok(signal == libc::SIGTRAP || is_fault(thread, signal)?);
        let signal = undisturbed(thread, || run_to_end(thread, Resume::Step, is_end, "at an indirect jump"))?;
        Ok(if signal == libc::SIGTRAP { Some(ptrace::instruction_pointer(thread)?) } else { None })
    }

    /// Lets a thread that stands at an indirect jump or call, perhaps in a copy of several instructions, execute it; gives where it leads,
    /// or nothing if it faults.
    ///
    /// # Errors
    /// The thread cannot be followed.
    pub fn step_out(&self, thread: Tid, is_copy: impl Fn(u64) -> bool) -> Result<Option<u64>, CollectError> {
        loop {
            match self.step(thread)? {
                Some(at) if is_copy(at) => {}
                to => return Ok(to),
            }
        }
    }

    /// Makes a system call in the name of a stopped thread. `at` is where `syscall; int3` stands; without it these bytes are put where the
    /// thread stands, for the time being.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn inject(&self, thread: Tid, at: Option<u64>, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, CollectError> {
        inject(&self.memory, thread, at, number, arguments)
    }

    /// Makes a system call in the name of a thread that gets no signal when it goes on, and without one: what the thread does on SIGTRAP
    /// stays. It is slower.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn inject_quietly(&self, thread: Tid, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, CollectError> {
        let (saved, mask) = (ptrace::registers(thread)?, ptrace::signal_mask(thread)?);
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let call = Registers { rip: self.area, rax: number as u64, orig_rax: u64::MAX, rdi, rsi, rdx, r10, r8, r9, ..saved };
        ptrace::set_registers(thread, &call)?;
        ptrace::set_signal_mask(thread, u64::MAX)?;
        let until = |how, is_end: &dyn Fn(PtraceStop) -> io::Result<bool>| loop {
            ptrace::resume(thread, how, 0)?;
            match ptrace::wait(thread)? {
                Some((_, PtraceStop::Ended(_))) | None => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                Some((_, stop)) if is_end(stop)? => return Ok(()),
                Some(_) => {}
            }
        };
        until(Resume::ToSystemCall, &|_| Ok(matches!(ptrace::system_call(thread)?, CallStop::Exit { .. })))?;
        let result = ptrace::registers(thread)?.rax as i64;
        // Where an interrupted call is begun again if the thread goes on.
        ptrace::interrupt(thread)?;
        until(Resume::Continue, &|stop| Ok(matches!(stop, PtraceStop::Begun | PtraceStop::GroupStopped)))?;
        ptrace::set_registers(thread, &saved)?;
        ptrace::set_signal_mask(thread, mask)?;
        Ok(result)
    }

    /// Lets a stopped thread, or a child with a copy of the memory, read the time stamp counter itself, if it may not: it is followed no
    /// longer.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn free_clock(&self, thread: Tid) -> Result<(), CollectError> {
        if self.fixed_clock {
            self.inject(thread, Some(self.area), libc::SYS_prctl, FREE_CLOCK)?;
        }
        Ok(())
    }

    /// As [`Self::free_clock`], for a thread that has just executed another program.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn free_clock_of_other(&self, thread: Tid) -> Result<(), CollectError> {
        if self.fixed_clock {
            inject(&Memory::open(thread)?, thread, None, libc::SYS_prctl, FREE_CLOCK)?;
        }
        Ok(())
    }
}

/// What a stopped process does on SIGTRAP, unless that is the default.
fn trap_action(memory: &Memory, process: Tid) -> Result<Option<TrapAction>, CollectError> {
    if ptrace::disposition(process, libc::SIGTRAP, false) == Disposition::Fatal {
        return Ok(None);
    }
    // Below the red zone of its stack, which it gets back.
    let place = (ptrace::stack_pointer(process)? - 512) & !0xf;
    let (mut hidden, mut action) = (TrapAction::default(), TrapAction::default());
    memory.read(place, &mut hidden)?;
    let result = inject(memory, process, None, libc::SYS_rt_sigaction, [libc::SIGTRAP as u64, 0, place, 8, 0, 0])?;
    memory.read(place, &mut action)?;
    memory.write(place, &hidden)?;
    Ok((result == 0).then_some(action))
}

/// Arguments of `prctl`.
const FREE_CLOCK: [u64; 6] = [libc::PR_SET_TSC as u64, libc::PR_TSC_ENABLE as u64, 0, 0, 0, 0];

fn inject(memory: &Memory, thread: Tid, at: Option<u64>, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, CollectError> {
    let saved = ptrace::registers(thread)?;
    let place = at.unwrap_or(saved.rip);
    let mut hidden = [0; STUB.len()];
    if at.is_none() {
        memory.read(place, &mut hidden)?;
        memory.write(place, STUB)?;
    }
    let [rdi, rsi, rdx, r10, r8, r9] = arguments;
    let rax = number as u64;
    let call = Registers { rip: place, rax, orig_rax: u64::MAX, rdi, rsi, rdx, r10, r8, r9, ..saved };
    ptrace::set_registers(thread, &call)?;
    let is_end = |signal| Ok(signal == libc::SIGTRAP && ptrace::instruction_pointer(thread)? == place + STUB.len() as u64);
    undisturbed(thread, || run_to_end(thread, Resume::Continue, is_end, "in a system call made in its name"))?;
    let result = ptrace::registers(thread)?.rax as i64;
    if at.is_none() {
        memory.write(place, &hidden)?;
    }
    // With the number of a system call that was interrupted: the kernel begins it again.
    ptrace::set_registers(thread, &saved)?;
    Ok(result)
}

/// Lets a stopped thread do something while it blocks all signals but those that its instructions cause: others wait, with all that is said
/// of them, until it goes on by itself. SIGTRAP must not be blocked: the kernel would take its handler away.
fn undisturbed(thread: Tid, run: impl FnOnce() -> Result<i32, CollectError>) -> Result<i32, CollectError> {
    let caused = [libc::SIGTRAP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
    let mask = ptrace::signal_mask(thread)?;
    ptrace::set_signal_mask(thread, caused.iter().fold(u64::MAX, |all, signal| all & !(1 << (signal - 1))))?;
    let result = run()?;
    unless_gone(ptrace::set_signal_mask(thread, mask))?;
    Ok(result)
}

/// `syscall; int3`.
const STUB: &[u8] = &[0x0f, 0x05, 0xcc];

/// Runs a thread until it gets the signal that it should; gives that.
fn run_to_end(thread: Tid, how: Resume, is_end: impl Fn(i32) -> io::Result<bool>, when: &str) -> Result<i32, CollectError> {
    let mut held = 0;
    loop {
        ptrace::resume(thread, how, 0)?;
        match ptrace::wait(thread)? {
            Some((_, PtraceStop::Signal(signal))) if is_end(signal)? => {
                if held != 0 {
                    // SAFETY: a system call without pointers.
                    unsafe { libc::syscall(libc::SYS_tkill, thread, held) };
                }
                return Ok(signal);
            }
            // One that is not blocked: sent back to the thread when it goes on by itself.
            Some((_, PtraceStop::Signal(signal))) => held = signal,
            Some((_, PtraceStop::Begun | PtraceStop::GroupStopped)) => {}
            Some((_, PtraceStop::Ended(_) | PtraceStop::Ending)) => {
                return Err(CollectError::Unexpected {
                    what: format!("it ended {when} (a filter of system calls, seccomp, may forbid it)"),
                });
            }
            other => return Err(CollectError::Unexpected { what: format!("{other:?} {when}") }),
        }
    }
}

/// Whether a stopped thread's own instruction causes the signal.
fn is_fault(thread: Tid, signal: i32) -> io::Result<bool> {
    let can_be = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL);
    Ok(can_be && ptrace::signal_code(thread)? > 0)
}

/// Binds the calling thread to one core.
///
/// # Errors
/// There is no such core for this process.
pub fn pin(core: usize) -> io::Result<()> {
    // SAFETY: a set of zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes within the set; cores above its size are ignored.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the kernel reads the set.
    checked(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) })
}

/// Lets a thread run on all cores that this program was started on. One that is gone is none any more.
pub fn unpin(thread: Tid) {
    // SAFETY: a set of zeros is an empty set, which the kernel fills in.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // The thread that follows is pinned itself; the program's first one is not.
    // SAFETY: the kernel writes the set, and reads it.
    unsafe {
        libc::sched_getaffinity(libc::getpid(), size_of_val(&set), &raw mut set);
        libc::sched_setaffinity(thread, size_of_val(&set), &raw const set);
    }
}

/// The cores that the calling thread may run on.
pub fn cores() -> Vec<usize> {
    // SAFETY: a set of zeros is an empty set, which the kernel fills in.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the set.
    unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    // SAFETY: reads within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}

/// What the kernel gives a new program.
struct Auxiliary {
    entry: u64,
    /// Address of the 16 random bytes.
    random: u64,
    /// Address of the entry that says where the vdso is.
    vdso: Option<u64>,
}

impl Auxiliary {
    /// Reads it from the stack of a program that has not begun: number of arguments, arguments, 0, environment, 0, pairs.
    fn read(memory: &Memory, stack: u64) -> Result<Self, CollectError> {
        let mut at = stack + 8 * (memory.word(stack)? + 2);
        while memory.word(at)? != 0 {
            at += 8;
        }
        at += 8;
        let mut found = Self { entry: 0, random: 0, vdso: None };
        loop {
            match (memory.word(at)?, memory.word(at + 8)?) {
                (AT_NULL, _) => return Ok(found),
                (AT_ENTRY, entry) => found.entry = entry,
                (AT_RANDOM, random) => found.random = random,
                (AT_SYSINFO_EHDR, _) => found.vdso = Some(at),
                _ => {}
            }
            at += 16;
        }
    }
}

impl RepeatRecipe {
    /// Fixes the random bytes and hides the vdso, as the recipe says.
    fn fix_auxiliary(&self, memory: &Memory, random: u64, vdso: Option<u64>) -> io::Result<()> {
        if self.randomness && random != 0 {
            memory.write(random, b"trodden repeats.")?;
        }
        match vdso {
            Some(entry) if self.time => memory.write(entry, &AT_IGNORE.to_le_bytes()),
            _ => Ok(()),
        }
    }
}
