//! Tests whether a collector works on this machine, by recording a single hit.

use crate::collect::Collector;
use crate::collectors::CollectorKind;
use crate::command;
use crate::follow::FollowEnding;
use crate::launcher::ProgramStart;
use crate::memory::intersect_ranges;
use crate::ptrace::wait_for_child;
use crate::repeat::FixedRunConditions;
use crate::run::{RunTarget, TraceRun};
use crate::sink::{Sink, SinkFlow, ThreadNumber};
use crate::sleds;
use crate::subject::Executable;
use crate::system::check_call_result;
use anyhow::{Context, Result, ensure};
use object::pod::bytes_of;
use object::{LittleEndian, U16, U32, U64, elf};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use trodden_binary::Binary;

/// Sink that counts hits, and ends the collection at the first.
struct FirstHitSink(u64);

impl Sink for FirstHitSink {
    fn record(&mut self, _: ThreadNumber, _: u64) -> io::Result<SinkFlow> {
        self.0 += 1;
        Ok(SinkFlow::Stop)
    }
}

/// Tries a collector by running a program with `--version` and watching the program's first witness sled, if the collector needs one, or
/// else its entry point. Collectors that work with any program are first tried with a tiny program, which takes a few milliseconds.
///
/// # Errors
/// The collector does not work on this machine, or not with this program; the message says why.
pub fn try_collector(kind: CollectorKind, program: &Path) -> Result<()> {
    if !matches!(kind, CollectorKind::Compiled | CollectorKind::Uprobes) && test_on_tiny_program(kind.collector()).is_ok() {
        return Ok(());
    }
    ensure!(
        program.exists(),
        "the traced program's file ({}) was replaced while the program was running. Start the program again",
        program.display()
    );
    let executable = Executable::read(program)?;
    let place = match kind {
        CollectorKind::Compiled => sleds::find_first_sled(&Binary::read(program)?).context(
            "the program has no space for tracing jumps ( witness sleds). Build it with `trodden-lab with --witnesses -- build`",
        )?,
        _ => executable.entry,
    };
    check_hit_is_recorded(kind.collector(), &Executable { code: code_range_around(place, &executable), ..executable }, place)
}

/// Returns the pages of code around a site. A trial needs no other code, and large programs would take long to read.
fn code_range_around(place: u64, executable: &Executable) -> Vec<Range<u64>> {
    let pages = (place & !0xfff)..(place & !0xfff) + 0x2000;
    executable.code.iter().map(|code| intersect_ranges(code, &pages)).filter(|range| !range.is_empty()).collect()
}

/// Start address of the tiny program.
const TINY_START: u64 = 0x40_0000;
/// The code of the tiny program: `xor edi,edi; mov eax,231; nop`, which is watched, and then `syscall`, which is `exit_group(0)`.
const TINY_CODE: [u8; 10] = [0x31, 0xff, 0xb8, 231, 0, 0, 0, 0x90, 0x0f, 0x05];

/// Tries a collector with the tiny program. Also fails if the system does not execute files in memory.
fn test_on_tiny_program(collector: &dyn Collector) -> Result<()> {
    // SAFETY: the name is a C string with a terminating zero, and the new descriptor is owned by the `File` alone.
    let mut writable = unsafe {
        let descriptor = libc::memfd_create(c"trodden trial".as_ptr(), libc::MFD_CLOEXEC);
        check_call_result(descriptor)?;
        File::from_raw_fd(descriptor)
    };
    writable.write_all(&tiny_program())?;
    // A file that is open for writing cannot be executed.
    let file = File::open(format!("/proc/self/fd/{}", writable.as_raw_fd()))?;
    drop(writable);
    let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
    let executable = Executable::read(&path)?;
    check_hit_is_recorded(collector, &executable, executable.entry)
}

/// Returns the content of an executable file whose program ends at once.
fn tiny_program() -> Vec<u8> {
    const ELF_HEADERS_SIZE: usize = size_of::<elf::FileHeader64<LittleEndian>>() + size_of::<elf::ProgramHeader64<LittleEndian>>();
    let half = |value: usize| U16::new(LittleEndian, value as u16);
    let word = |value: u32| U32::new(LittleEndian, value);
    let long = |value: u64| U64::new(LittleEndian, value);
    let length = long((ELF_HEADERS_SIZE + TINY_CODE.len()) as u64);
    let segment = elf::ProgramHeader64 {
        p_type: word(elf::PT_LOAD),
        p_flags: word(elf::PF_R | elf::PF_X),
        p_offset: long(0),
        p_vaddr: long(TINY_START),
        p_paddr: long(TINY_START),
        p_filesz: length,
        p_memsz: length,
        p_align: long(0x1000),
    };
    let header = elf::FileHeader64 {
        e_ident: elf::Ident {
            magic: elf::ELFMAG,
            class: elf::ELFCLASS64,
            data: elf::ELFDATA2LSB,
            version: elf::EV_CURRENT,
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: half(elf::ET_EXEC.into()),
        e_machine: half(elf::EM_X86_64.into()),
        e_version: word(elf::EV_CURRENT.into()),
        e_entry: long(TINY_START + ELF_HEADERS_SIZE as u64),
        e_phoff: long(size_of::<elf::FileHeader64<LittleEndian>>() as u64),
        e_shoff: long(0),
        e_flags: word(0),
        e_ehsize: half(size_of::<elf::FileHeader64<LittleEndian>>()),
        e_phentsize: half(size_of_val(&segment)),
        e_phnum: half(1),
        e_shentsize: half(0),
        e_shnum: half(0),
        e_shstrndx: half(0),
    };
    [bytes_of(&header), bytes_of(&segment), &TINY_CODE].concat()
}

fn check_hit_is_recorded(collector: &dyn Collector, executable: &Executable, place: u64) -> Result<()> {
    let sites = [place];
    let block = place..place + 8;
    let mut trial = Command::new(&executable.path);
    trial.arg("--version");
    let mut start = ProgramStart::new(command::launcher(), &trial);
    let nothing = || io::Result::Ok(Some(File::options().read(true).write(true).open("/dev/null")?.into()));
    start.streams = [nothing()?, nothing()?, nothing()?];
    let stop = AtomicBool::new(false);
    let target = RunTarget::Start(Box::new(start));
    let (sender, begun) = channel();
    let run = TraceRun {
        target,
        executable,
        sites: &sites,
        jumps: &[],
        blocks: std::slice::from_ref(&block),
        guarded: &HashSet::new(),
        unwatched: &HashSet::new(),
        libraries: &[],
        recipe: FixedRunConditions::NONE,
        first: None,
        stop: &stop,
        limit: None,
        process_sender: Some(sender),
        children: None,
        note: |_| {},
    };
    let mut seen = FirstHitSink(0);
    let outcome = std::thread::scope(|s| s.spawn(|| collector.collect(run, &mut seen)).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    if let (FollowEnding::Detached, None, Ok(process)) = (outcome.followed.ending, outcome.followed.status, begun.try_recv()) {
        wait_for_child(process as i32)?;
    }
    ensure!(seen.0 > 0, "collector `{}` recorded nothing in a trial run", collector.name());
    Ok(())
}
