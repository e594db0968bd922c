//! The subject of a collection: a program that starts under control, or a process that runs already; where its image
//! lies; system calls made in its name.
//!
//! A started program stands before the first instruction of its loader: the image is mapped, no constructor has run.

use crate::attach::{check_same_file, check_traceable, check_unshared, seize_all};
use crate::injection::STUB;
use crate::journal::{JournalEntry, TrapAction};
use crate::launcher::{ProgramStart, StartConditions};
use crate::memory::{Memory, mappings};
use crate::ptrace::{self, Disposition, PtraceStop, Resume, Tid};
use crate::repeat::RepeatRecipe;
use crate::session::Session;
use crate::{CollectError, programs};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

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
    /// Where there is code that the program can change as it is loaded.
    pub writable_code: Option<u64>,
    /// First address of all segments, and the one behind the last.
    pub span: Range<u64>,
}

/// A program in memory.
#[derive(Debug)]
pub struct TracedProcess {
    /// Its process.
    pub process: Tid,
    /// What was done to it.
    pub session: Rc<Session>,
    /// Its memory; patches are entered in the session's journal.
    pub memory: Memory,
    /// What is added to addresses of the file; wraps.
    pub bias: u64,
    /// Where slots go.
    pub area: u64,
    /// It stands before its first instruction.
    pub fresh: bool,
    /// Reading the time stamp counter traps (`PR_SET_TSC`), in it and in what it makes, until it is let go.
    pub fixed_clock: bool,
}

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
        let is_code = |s: &&object::elf::ProgramHeader64<_>| s.p_flags(endian) & object::elf::PF_X != 0;
        let code = loaded().filter(is_code).map(range).collect();
        let is_writable = |s: &&object::elf::ProgramHeader64<_>| s.p_flags(endian) & object::elf::PF_W != 0;
        let writable_code = loaded().filter(is_code).find(is_writable).map(|s| s.p_vaddr(endian));
        let start = loaded().map(|s| range(s).start).min().ok_or_else(|| fault("has no segment to load"))?;
        let end = loaded().map(|s| range(s).end).max().unwrap_or(start);
        Ok(Self { path: path.to_owned(), entry: header.e_entry(endian), code, writable_code, span: start..end })
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
        let session = Rc::new(Session::new(process));
        session.add_thread(process, true);
        session.enter(JournalEntry::Affinity);
        if fixed_clock {
            session.enter(JournalEntry::TimeStampCounter);
        }
        Self::prepare(&session, executable, recipe).map_err(|error| session.fail(error))
    }

    /// Prepares a process that is about to return from `execve`.
    fn prepare(session: &Rc<Session>, executable: &Executable, recipe: &RepeatRecipe) -> Result<Self, CollectError> {
        let process = session.process();
        // Errors let it run on; only where this process is killed, it would be left with breakpoints that end it at any moment.
        ptrace::set_options(process, true)?;
        // The event comes before execve returns, and its result would overwrite a register set here.
        session.resume(process, Resume::ToSystemCall, 0)?;
        match session.wait_for(process)? {
            PtraceStop::SystemCall => {}
            other => return Err(CollectError::Unexpected { what: format!("{other:?} where execve returns") }),
        }
        let memory = session.memory()?;
        let auxiliary = Auxiliary::read(&memory, ptrace::stack_pointer(process)?)?;
        recipe.fix_auxiliary(&memory, auxiliary.random, auxiliary.vdso)?;
        let bias = auxiliary.entry.wrapping_sub(executable.entry);
        let session = session.clone();
        Self { process, session, memory, bias, area: 0, fresh: true, fixed_clock: recipe.time }.with_area(executable)
    }

    /// Takes control of a process that runs already; all its threads are stopped.
    ///
    /// # Errors
    /// There is no such process, or it may not be followed.
    pub fn attach(process: Tid, executable: &Executable) -> Result<(Self, Vec<Tid>), CollectError> {
        check_traceable(process)?;
        check_unshared(process)?;
        check_same_file(process, &executable.path)?;
        let session = Rc::new(Session::new(process));
        Self::control(&session, executable).map_err(|error| session.fail(error))
    }

    fn control(session: &Rc<Session>, executable: &Executable) -> Result<(Self, Vec<Tid>), CollectError> {
        let process = session.process();
        let threads = seize_all(session)?;
        let memory = session.memory()?;
        let canonical = executable.path.canonicalize().unwrap_or_else(|_| executable.path.clone());
        let mapped = mappings(process)?.into_iter().find(|m| Path::new(&m.name) == canonical && m.offset == 0);
        let start = mapped
            .ok_or_else(|| CollectError::Unexpected { what: format!("process {process} has not mapped {}", canonical.display()) })?
            .start;
        let bias = start.wrapping_sub(executable.span.start & !0xfff);
        // Before anything traps in its name.
        session.set_trap_action(trap_action(session, &memory, process)?);
        let subject = Self { process, session: session.clone(), memory, bias, area: 0, fresh: false, fixed_clock: false };
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
                self.session.set_stub(self.area);
                return Ok(self);
            }
        }
        Err(CollectError::Unexpected { what: format!("no memory at {wanted:#x} for slots near the image (mmap gave {got:#x})") })
    }

    /// What was mapped into it.
    pub fn mapped(&self) -> Range<u64> {
        self.area..self.area + AREA
    }

    /// Lets a stopped thread execute one instruction: see [`Session::step`].
    ///
    /// # Errors
    /// The thread cannot be followed.
    pub fn step(&self, thread: Tid) -> Result<Option<u64>, CollectError> {
        self.session.step(thread)
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

    /// Makes a system call in the name of a stopped thread: see [`Session::inject`].
    ///
    /// # Errors
    /// The thread is gone.
    pub fn inject(&self, thread: Tid, at: Option<u64>, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, CollectError> {
        self.session.inject(&self.memory, thread, at, number, arguments)
    }

    /// Lets a stopped child with a copy of the memory read the time-stamp counter itself, if it may not: it is followed no longer.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn free_clock(&self, thread: Tid) -> Result<(), CollectError> {
        // That of a program with a filter was freed before.
        match self.fixed_clock && !self.session.is_filtered() {
            true => self.session.free_clock(&self.memory, thread, Some(self.area)),
            false => Ok(()),
        }
    }

    /// As [`Self::free_clock`], for a thread that has just executed another program.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn free_clock_of_other(&self, thread: Tid) -> Result<(), CollectError> {
        match self.fixed_clock && !self.session.is_filtered() {
            true => self.session.free_clock(&Memory::open(thread)?, thread, None),
            false => Ok(()),
        }
    }
}

/// What a stopped process does on SIGTRAP, unless that is the default.
fn trap_action(session: &Session, memory: &Memory, process: Tid) -> Result<Option<TrapAction>, CollectError> {
    if ptrace::disposition(process, libc::SIGTRAP, false) == Disposition::Fatal {
        return Ok(None);
    }
    // Below the red zone of its stack, which it gets back.
    let place = (ptrace::stack_pointer(process)? - 512) & !0xf;
    let (mut hidden, mut action) = (TrapAction::default(), TrapAction::default());
    memory.read(place, &mut hidden)?;
    let result = session.inject(memory, process, None, libc::SYS_rt_sigaction, [libc::SIGTRAP as u64, 0, place, 8, 0, 0])?;
    memory.read(place, &mut action)?;
    memory.write(place, &hidden)?;
    Ok((result == 0).then_some(action))
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
