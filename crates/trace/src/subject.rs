//! The traced process: a program that is started under control, or a running process that is attached to.
//!
//! A started program is stopped before the first instruction of its loader: the image is mapped, and no constructor has run.

use crate::attach::{check_memory_is_unshared, check_path_names_same_file, check_traceable, seize_all_threads};
use crate::displaced::SLOT_SIZE;
use crate::injection::SYSCALL_STUB;
use crate::journal::JournalEntry;
use crate::launcher::{ProgramStart, ProgramStartConditions};
use crate::mappings::mappings;
use crate::memory::Memory;
use crate::parked::ParkedProcess;
use crate::ptrace::{self, PtraceStop, ResumeMode, SignalDisposition, Tid};
use crate::repeat::FixedRunConditions;
use crate::session::Session;
use crate::signal_state::{self, SignalAction};
use crate::{CollectError, programs};
use object::read::ReadCache;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Minimum size in bytes of the area for slots or copies near an image.
pub const MIN_INJECTED_AREA_SIZE: u64 = 32 << 20;

/// Size in bytes that an area has for each site: more than the copies of blocks need on average.
const AREA_SIZE_PER_SITE: u64 = 128;

/// Maximum distance in bytes from the start of an area up to its image: the reach of a jump with a 32-bit displacement (2 GiB), less
/// 256 MiB for the image itself.
pub const MAX_INJECTED_AREA_DISTANCE: u64 = 7 << 28;

/// Returns the size in bytes of the area for an image with this number of sites.
pub fn area_size(sites: usize) -> u64 {
    (sites as u64 * AREA_SIZE_PER_SITE).next_multiple_of(MIN_INJECTED_AREA_SIZE).max(MIN_INJECTED_AREA_SIZE)
}

/// Offset, in the area, of a slot that can hold any one instruction. The system call stub precedes the slot.
pub const FREE_SLOT_OFFSET: u64 = SLOT_SIZE;

/// Number of addresses that are tried for the area.
const MAX_MAPPING_ATTEMPTS: u64 = 8;

/// Lowest and highest start address of the area of a program at fixed low addresses.
const MIN_LOW_AREA_ADDRESS: u64 = 0x2000_0000;
const MAX_LOW_AREA_ADDRESS: u64 = 0x6000_0000;

const AT_NULL: u64 = 0;
const AT_IGNORE: u64 = 1;
const AT_ENTRY: u64 = 9;
const AT_RANDOM: u64 = 25;
const AT_SYSINFO_EHDR: u64 = 33;

/// The layout of an executable file's image. All addresses are file addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// The path of the file.
    pub path: PathBuf,
    /// The program's entry point.
    pub entry: u64,
    /// The address ranges of segments with code.
    pub code: Vec<Range<u64>>,
    /// The address of a writable segment with code, if there is one.
    pub writable_code: Option<u64>,
    /// The address range from the start of the first segment to the end of the last segment.
    pub span: Range<u64>,
    /// True if the file has restartable sequences (rseq(2)). The kernel reads their code.
    pub has_restartable_sequences: bool,
}

#[derive(Debug)]
pub struct TracedProcess {
    pub process: Tid,
    pub session: Rc<Session>,
    /// The memory; patches are entered in the session's journal.
    pub memory: Memory,
    /// What is added to file addresses, with wrap-around, to get addresses in memory.
    pub bias: u64,
    /// Start address of the area for slots or copies.
    pub area: u64,
    /// Size in bytes of the area.
    pub area_size: u64,
    /// True if the program has not executed any instruction.
    pub fresh: bool,
    /// True if reading the time-stamp counter traps (`PR_SET_TSC`), in the process and its descendants, until they are detached.
    pub fixed_clock: bool,
}

impl Executable {
    /// Reads the headers and section names of an executable file, and nothing else, since such files can be large.
    ///
    /// # Errors
    /// The file cannot be read, is not a 64-bit ELF file for x86-64, or has no loadable segment.
    pub fn read(path: &Path) -> Result<Self, CollectError> {
        use object::read::elf::{FileHeader, ProgramHeader};
        let fault = |what: &str| CollectError::Executable { path: path.to_owned(), fault: what.to_owned() };
        let unreadable = |e: io::Error| fault(&format!("cannot be read: {e}"));
        let mut file = File::open(path).map_err(unreadable)?;
        let mut magic = Vec::new();
        (&mut file).take(5).read_to_end(&mut magic).map_err(unreadable)?;
        if !magic.starts_with(b"\x7fELF") {
            let is_script = magic.starts_with(b"#!");
            let remedy = if is_script { "it is a script. Pass its interpreter's program" } else { "pass a 64-bit program for x86-64" };
            return Err(fault(&format!("is not an ELF file: {remedy}")));
        }
        if magic.get(4) == Some(&1) {
            return Err(fault("is a 32-bit program; only programs for x86-64 can be traced"));
        }
        let file = ReadCache::new(file);
        let broken = |e: object::Error| fault(&format!("is a corrupt ELF file: {e}"));
        let header = object::elf::FileHeader64::<object::LittleEndian>::parse(&file).map_err(broken)?;
        let endian = object::LittleEndian;
        if header.e_machine(endian) != object::elf::EM_X86_64 {
            return Err(fault("is a program for a different processor; only programs for x86-64 can be traced"));
        }
        let segments = header.program_headers(endian, &file).map_err(broken)?;
        let loaded = || segments.iter().filter(|s| s.p_type(endian) == object::elf::PT_LOAD);
        let range = |s: &object::elf::ProgramHeader64<_>| s.p_vaddr(endian)..s.p_vaddr(endian).saturating_add(s.p_memsz(endian));
        let is_code = |s: &&object::elf::ProgramHeader64<_>| s.p_flags(endian) & object::elf::PF_X != 0;
        let code = loaded().filter(is_code).map(range).collect();
        let is_writable = |s: &&object::elf::ProgramHeader64<_>| s.p_flags(endian) & object::elf::PF_W != 0;
        let writable_code = loaded().filter(is_code).find(is_writable).map(|s| s.p_vaddr(endian));
        let start = loaded().map(|s| range(s).start).min().ok_or_else(|| fault("has no loadable segment"))?;
        let end = loaded().map(|s| range(s).end).max().unwrap_or(start);
        // A file without section names has no such section.
        let sections = header.sections(endian, &file).ok();
        let is_one = |name: &[u8]| name.starts_with(b"__rseq_cs");
        let has_restartable_sequences =
            sections.is_some_and(|all| all.iter().any(|section| all.section_name(endian, section).is_ok_and(is_one)));
        let entry = header.e_entry(endian);
        Ok(Self { path: path.to_owned(), entry, code, writable_code, span: start..end, has_restartable_sequences })
    }

    /// Returns true if a file address is code.
    pub fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|c| c.contains(&address))
    }
}

impl TracedProcess {
    /// Starts a program, which stops before its first instruction.
    ///
    /// # Errors
    /// The program cannot be started or followed, or there is no memory for the area.
    pub fn start(
        program: ProgramStart,
        executable: &Executable,
        recipe: &FixedRunConditions,
        area_size: u64,
    ) -> Result<Self, CollectError> {
        let (fixed_addresses, fixed_clock, core) = (recipe.addresses, recipe.time, recipe.core);
        let conditions = ProgramStartConditions { fixed_addresses, fixed_clock, core };
        let process = programs::start_traced_program(program, conditions).map_err(CollectError::Start)?;
        let session = Rc::new(Session::new(process));
        session.add_thread(process, true);
        if core.is_some() {
            session.enter(JournalEntry::Affinity);
        }
        if fixed_clock {
            session.enter(JournalEntry::TimeStampCounter);
        }
        Self::prepare(&session, executable, recipe, area_size).map_err(|error| session.close_after_error(error))
    }

    /// Prepares a process that is about to return from `execve`.
    fn prepare(session: &Rc<Session>, executable: &Executable, recipe: &FixedRunConditions, area_size: u64) -> Result<Self, CollectError> {
        let process = session.process();
        // After an error in this process, the program continues. If this process is killed, the kernel must kill the program as well, since
        // the breakpoints left in it would kill it sooner or later.
        ptrace::set_options(process, true)?;
        // The stop precedes the return from `execve`, whose result would overwrite registers that are set here.
        session.resume(process, ResumeMode::ToSystemCall, 0)?;
        match session.wait_for(process)? {
            PtraceStop::SystemCall => {}
            other => return Err(CollectError::Unexpected { what: format!("expected a stop at the return from execve, found {other:?}") }),
        }
        for signal in [libc::SIGTRAP, libc::SIGSEGV] {
            let is_ignored = ptrace::signal_disposition(process, signal, false) == SignalDisposition::Ignored;
            session.note_action(process, signal, is_ignored.then(signal_state::ignore_action));
        }
        let memory = session.memory()?;
        let auxiliary = AuxiliaryVector::read(&memory, ptrace::stack_pointer(process)?)?;
        recipe.fix_auxiliary_vector(&memory, auxiliary.random, auxiliary.vdso)?;
        let bias = auxiliary.entry.wrapping_sub(executable.entry);
        let session = session.clone();
        Self { process, session, memory, bias, area: 0, area_size, fresh: true, fixed_clock: recipe.time }.map_injected_area(executable)
    }

    /// Takes control of a running process and stops all of its threads, which are returned. If the process is parked, it is put back as it
    /// was.
    ///
    /// # Errors
    /// The process does not exist or must not be followed, or there is no memory for the area.
    pub fn attach(
        process: Tid,
        executable: &Executable,
        parked: Option<&mut ParkedProcess>,
        area_size: u64,
    ) -> Result<(Self, Vec<Tid>), CollectError> {
        check_traceable(process)?;
        check_memory_is_unshared(process)?;
        check_path_names_same_file(process, &executable.path)?;
        let session = Rc::new(Session::new(process));
        Self::take_control_of_process(&session, executable, parked, area_size).map_err(|error| session.close_after_error(error))
    }

    fn take_control_of_process(
        session: &Rc<Session>,
        executable: &Executable,
        parked: Option<&mut ParkedProcess>,
        area_size: u64,
    ) -> Result<(Self, Vec<Tid>), CollectError> {
        let process = session.process();
        let threads = seize_all_threads(session, parked)?;
        let memory = session.memory()?;
        let canonical = executable.path.canonicalize().unwrap_or_else(|_| executable.path.clone());
        let mapped = mappings(process)?.into_iter().find(|m| Path::new(&m.name) == canonical && m.offset == 0);
        let start = mapped
            .ok_or_else(|| CollectError::Unexpected { what: format!("process {process} has not mapped {}", canonical.display()) })?
            .start;
        let bias = start.wrapping_sub(executable.span.start & !0xfff);
        // The actions are read before any trap, since a trap may reset them.
        for signal in [libc::SIGTRAP, libc::SIGSEGV] {
            session.note_action(process, signal, signal_action(session, &memory, process, signal)?);
        }
        let subject = Self { process, session: session.clone(), memory, bias, area: 0, area_size, fresh: false, fixed_clock: false };
        Ok((subject.map_injected_area(executable)?, threads))
    }

    /// Maps the area for slots or copies. The process must be stopped outside a system call.
    fn map_injected_area(mut self, executable: &Executable) -> Result<Self, CollectError> {
        let (start, size) = (executable.span.start.wrapping_add(self.bias), self.area_size);
        // Place the area below the image, since the heap grows above it. Programs at fixed low addresses have no room there.
        let is_low = start <= 64 * MIN_INJECTED_AREA_SIZE;
        let wanted = if is_low { MAX_LOW_AREA_ADDRESS } else { (start & !0xfff) - MIN_INJECTED_AREA_SIZE - size };
        let lowest = if is_low { MIN_LOW_AREA_ADDRESS } else { start - MAX_INJECTED_AREA_DISTANCE };
        let protection = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
        let mut got = 0;
        // An earlier collection may have left its area mapped because a thread was executing there.
        for place in (0..MAX_MAPPING_ATTEMPTS).map_while(|n| wanted.checked_sub(n * size)).take_while(|place| *place >= lowest) {
            got = self.inject_system_call(self.process, None, libc::SYS_mmap, [place, size, protection, flags, u64::MAX, 0])?;
            if got as u64 == place {
                self.area = place;
                // The stub for later system calls.
                self.memory.write(self.area, SYSCALL_STUB)?;
                self.session.set_stub(self.area);
                return Ok(self);
            }
        }
        Err(CollectError::Unexpected { what: format!("no memory near its image at {wanted:#x} is free (mmap returned {got:#x})") })
    }

    /// Returns the memory that is mapped in the process for injected code and copies.
    pub fn injected_area(&self) -> Range<u64> {
        self.area..self.area + self.area_size
    }

    pub fn step(&self, thread: Tid) -> Result<Option<u64>, CollectError> {
        self.session.step(thread)
    }

    /// Lets a thread execute an indirect jump or call, or the sequence that replaces it in a copy. Returns the target, or `None` if the
    /// jump faults.
    pub fn step_to_target(&self, thread: Tid, is_copy: impl Fn(u64) -> bool) -> Result<Option<u64>, CollectError> {
        loop {
            match self.step(thread)? {
                Some(at) if is_copy(at) => {}
                to => return Ok(to),
            }
        }
    }

    pub fn inject_system_call(&self, thread: Tid, at: Option<u64>, number: libc::c_long, arguments: [u64; 6]) -> Result<i64, CollectError> {
        self.session.inject_system_call(&self.memory, thread, at, number, arguments)
    }

    /// Allows a stopped child to read the time-stamp counter. The child has a copy of the memory and is no longer followed.
    pub fn enable_rdtsc(&self, thread: Tid) -> Result<(), CollectError> {
        // A program with a filter was allowed to read the counter before the filter took effect.
        match self.fixed_clock && !self.session.is_filtered() {
            true => self.session.enable_rdtsc(&self.memory, thread, Some(self.area)),
            false => Ok(()),
        }
    }

    /// Like [`Self::enable_rdtsc`], for a thread that has just executed a different program.
    pub fn enable_rdtsc_after_exec(&self, thread: Tid) -> Result<(), CollectError> {
        // In 32-bit programs, the instruction is emulated.
        match self.fixed_clock && !self.session.is_filtered() && ptrace::is_64_bit(&ptrace::read_registers(thread)?) {
            true => self.session.enable_rdtsc(&Memory::open(thread)?, thread, None),
            false => Ok(()),
        }
    }
}

/// Returns the program's action for a signal, unless that is the default.
fn signal_action(session: &Session, memory: &Memory, process: Tid, signal: i32) -> Result<Option<SignalAction>, CollectError> {
    if ptrace::signal_disposition(process, signal, false) == SignalDisposition::Fatal {
        return Ok(None);
    }
    // Scratch memory below the stack's red zone; its contents are restored afterwards.
    let place = (ptrace::stack_pointer(process)? - 512) & !0xf;
    let (mut hidden, mut action) = (SignalAction::default(), SignalAction::default());
    memory.read(place, &mut hidden)?;
    let result = session.inject_system_call(memory, process, None, libc::SYS_rt_sigaction, [signal as u64, 0, place, 8, 0, 0])?;
    memory.read(place, &mut action)?;
    memory.write(place, &hidden)?;
    Ok((result == 0).then_some(action))
}

/// The entries that are used from the auxiliary vector, which the kernel passes to a new program.
struct AuxiliaryVector {
    entry: u64,
    /// Address of the 16 random bytes.
    random: u64,
    /// Address of the vector's entry for the vdso.
    vdso: Option<u64>,
}

impl AuxiliaryVector {
    /// Reads the vector from the initial stack: argument count, arguments, 0, environment, 0, pairs.
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

impl FixedRunConditions {
    /// Overwrites the random bytes if the recipe fixes randomness, and hides the vdso if it fixes the time.
    fn fix_auxiliary_vector(&self, memory: &Memory, random: u64, vdso: Option<u64>) -> io::Result<()> {
        if self.randomness && random != 0 {
            memory.write(random, b"trodden repeats.")?;
        }
        match vdso {
            Some(entry) if self.time => memory.write(entry, &AT_IGNORE.to_le_bytes()),
            _ => Ok(()),
        }
    }
}
