//! What is recorded once per process: lines of text. A program and its forked children write them into one file, in blocks that are
//! written whole, so that threads and processes may add to it at any time.
//!
//! ```text
//! trodden-waits 2
//! process NUMBER START                  begins a block of the process: its number, and ticks when its recording began
//! parent NUMBER                         host NAME          boot ID            counter 0|1
//! anchor TICKS MONOTONIC_NS REALTIME_NS
//! program PATH
//! mpi openmpi|mpich RANK SIZE           (the end of MPI_Init)
//! communicator ID local RANKS... [remote RANKS...]   (ranks of MPI_COMM_WORLD; "more" lines follow long ones)
//! map ...                               (lines of /proc/self/maps that are executable, or writable and shared)
//! note TEXT
//! ```

pub mod fork;

use crate::lock::{Lock, give_way, without_signals};
use crate::naming::{FIRST, FOLDER_VARIABLE, START, name, names_folder, path};
use crate::output::{self, OutputLine, Text};
use crate::own_file::OwnFile;
use crate::{chunks, clock, images, limits, memory};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Whether the process is recorded: one of the following.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const RECORDED: u8 = 1;
const UNRECORDED: u8 = 2;
const SEALED: u8 = 3;
/// What it was before it was [`SEALED`], and the first byte of the folder's name then.
static SEALED_FROM: AtomicU8 = AtomicU8::new(UNKNOWN);
static SEALED_FOLDER: AtomicU8 = AtomicU8::new(0);
/// The file of lines.
static LINES: Lock<OwnFile> = Lock::new(OwnFile::NONE);
/// What [`add_place`] adds.
static PLACE: Lock<OutputLine> = Lock::new(OutputLine::new());
/// Images that were mapped when maps were written last.
static IMAGES: AtomicU64 = AtomicU64::new(0);
/// Whether a recorded process made this one by a fork.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// Whether this process has children.
static IS_PARENT: AtomicBool = AtomicBool::new(false);

/// Whether this process is to be recorded: the environment names a folder, and its files are there.
pub fn is_recorded() -> bool {
    match STATE.load(Ordering::Acquire) {
        UNKNOWN => names_folder() && without_signals(open),
        state => state == RECORDED,
    }
}

/// Whether it is recorded already.
pub fn has_begun() -> bool {
    STATE.load(Ordering::Acquire) == RECORDED
}

/// Whether recording has ended since the process filters its system calls: this library makes none from then on.
#[inline]
pub fn is_sealed() -> bool {
    STATE.load(Ordering::Acquire) == SEALED
}

/// The process is about to filter its system calls. Ends its recording, and that of programs that it executes.
pub fn seal() {
    if has_begun() {
        note(b"a process has set a filter of system calls (seccomp): what it calls from then on is not recorded");
    }
    SEALED_FROM.store(STATE.swap(SEALED, Ordering::AcqRel), Ordering::Relaxed);
    change_folder(0);
}

/// No filter was set after all.
pub fn unseal() {
    change_folder(SEALED_FOLDER.load(Ordering::Relaxed));
    STATE.store(SEALED_FROM.load(Ordering::Relaxed), Ordering::Release);
}

/// Replaces the first byte of the folder's name in the environment: none is named if it is 0.
fn change_folder(first: u8) {
    // SAFETY: a C string, and the environment's own, which is writable. Its first byte is there at least.
    let folder = unsafe { libc::getenv(FOLDER_VARIABLE.as_ptr()) };
    if !folder.is_null() {
        // SAFETY: as above.
        SEALED_FOLDER.store(unsafe { folder.cast::<u8>().replace(first) }, Ordering::Relaxed);
    }
}

#[cold]
fn open() -> bool {
    // Another thread may open them at the same time: the first one does.
    if START.compare_exchange(0, clock::now(), Ordering::AcqRel, Ordering::Acquire).is_err() {
        let mut tries = 0;
        while STATE.load(Ordering::Acquire) == UNKNOWN {
            give_way(&mut tries);
        }
        return has_begun();
    }
    let is_child = FIRST[0].load(Ordering::Relaxed) != 0;
    let has_lines = is_child || make_lines();
    if has_lines {
        begin(!is_child);
    }
    let is_open = has_lines && (is_child || begin_threads());
    if !is_open {
        FIRST[0].store(0, Ordering::Relaxed);
    }
    STATE.store(if is_open { RECORDED } else { UNRECORDED }, Ordering::Release);
    is_open
}

fn make_lines() -> bool {
    /// Files that may not be larger than this are not begun.
    const LEAST: u64 = 4096;
    if output::file_limit() < LEAST {
        return false;
    }
    let (process, start) = name();
    FIRST[0].store(process.into(), Ordering::Relaxed);
    FIRST[1].store(start, Ordering::Relaxed);
    let file = path(b".process").and_then(|path| OwnFile::create(&path, libc::O_APPEND));
    file.map(|file| LINES.with(|lines| *lines = file)).is_some()
}

/// Makes the file of threads.
fn begin_threads() -> bool {
    if limits::began_limited() {
        write_block(b"note a program is not recorded: its address space is limited (RLIMIT_AS, `ulimit -v`), and the recorder needs some");
        return false;
    }
    let is_open = chunks::open();
    if is_open {
        fork::watch();
    }
    is_open
}

fn begin(is_first: bool) {
    let mut line = Text::<{ 4096 + 256 }>::new();
    if is_first {
        line.add(FILE_BEGIN);
    }
    add_name(&mut line);
    // SAFETY: asks the kernel.
    line.add(b"parent ").number(unsafe { libc::getppid() } as u64).add(b"\n");
    PLACE.with(|place| {
        if is_first {
            add_place(place);
        }
        line.add(place.as_bytes());
    });
    add_anchor(&mut line);
    write(line.as_bytes());
}

/// Where a process runs, and what: the same for all forked children.
fn add_place(line: &mut OutputLine) {
    line.add(b"host ");
    let mut name = [0u8; 256];
    // SAFETY: the buffer has this size.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    line.add(until_zero(&name)).add(b"\nboot ");
    let mut boot = [0u8; 40];
    output::read_file(c"/proc/sys/kernel/random/boot_id", &mut boot);
    line.add(&boot[..36]).add(b"\ncounter ").number(clock::is_counter().into()).add(b"\nprogram ");
    let mut program = [0u8; 2048];
    // SAFETY: the buffer has this size.
    unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), program.as_mut_ptr().cast(), program.len() - 1) };
    line.add(until_zero(&program)).add(b"\n");
}

/// Begins a block of lines of this process.
fn add_name<const N: usize>(lines: &mut Text<N>) {
    let (process, start) = name();
    lines.add(b"process ").number(process.into()).add(b" ").number(start).add(b"\n");
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
}

/// Adds a block of lines to the file. One for which there is no room is left out.
fn write(lines: &[u8]) {
    LINES.with(|file| {
        let Some((file, size)) = file.descriptor(|| path(b".process")) else { return };
        // A file over its limit is a signal that ends the program.
        if size + lines.len() as u64 <= output::file_limit() {
            output::write(file, lines);
        }
    });
}

/// Adds a line, if the process is recorded.
pub fn line(line: &OutputLine) {
    if is_recorded() {
        write_block(line.as_bytes());
    }
}

/// Adds a line in a block of its own.
fn write_block(line: &[u8]) {
    let mut block = Text::<{ 4096 + 64 }>::new();
    add_name(&mut block);
    write(block.add(line).add(b"\n").as_bytes());
}

/// Adds a note for the reader of the report. Stacks of threads may be small.
pub fn note(text: &[u8]) {
    if is_recorded() {
        let mut block = Text::<512>::new();
        add_name(&mut block);
        write(block.add(b"note ").add(text).add(b"\n").as_bytes());
    }
}

/// Says once in a process, in the report, that the recording has no room.
pub fn say_full() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.swap(true, Ordering::Relaxed) {
        note(b"a process had no room for its recording: what its threads called from then on is missing");
    }
}

fn add_anchor<const N: usize>(line: &mut Text<N>) {
    let (ticks, ns) = clock::anchor();
    line.add(b"anchor ").number(ticks).add(b" ").number(ns).add(b" ").number(clock::real_ns()).add(b"\n");
}

/// Adds an anchor, if the process is recorded already.
pub fn anchor() {
    if has_begun() {
        let mut line = Text::<256>::new();
        add_name(&mut line);
        add_anchor(&mut line);
        write(line.as_bytes());
    }
}

/// Whether a recorded process made this one by a fork.
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Acquire)
}

/// Whether the program is a user's, and not one of the system such as a shell or a launcher, whose children are other programs.
pub fn is_users() -> bool {
    let mut program = [0u8; 2048];
    // SAFETY: the buffer has this size.
    unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), program.as_mut_ptr().cast(), program.len() - 1) };
    let is_in = |folder: &&[u8]| until_zero(&program).starts_with(folder);
    let folders: [&[u8]; 5] = [b"/usr/bin/", b"/usr/sbin/", b"/bin/", b"/sbin/", b"/usr/lib"];
    !folders.iter().any(is_in)
}

/// A child is about to be made: both have the memory that is shared now.
pub fn begin_fork() {
    if !IS_PARENT.swap(true, Ordering::AcqRel) {
        IMAGES.store(0, Ordering::Release);
        maps();
    }
}

/// Adds the executable mappings and those of shared memory, if images were loaded since that was done last.
pub fn maps() {
    let mut images = 0u64;
    // Loads and unloads both count, so that each change is seen.
    images::any(|info| {
        images = info.dlpi_adds + (info.dlpi_subs << 32);
        true
    });
    if IMAGES.swap(images, Ordering::AcqRel) == images {
        return;
    }
    if !is_recorded() {
        return;
    }
    note_libraries();
    let maps = output::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
    if maps >= 0 {
        copy_executable(maps);
        output::close(maps);
    }
}

/// Says which library waits by system calls of its own, which no function stands for.
fn note_libraries() {
    static IS_NOTED: AtomicBool = AtomicBool::new(false);
    // Not by `dlopen`, which waits for the constructor of a library that may wait for this thread.
    let has_openmp = images::any(|info| images::file_name(info).starts_with(b"libgomp."));
    if has_openmp && !IS_NOTED.swap(true, Ordering::AcqRel) {
        note(b"libgomp (OpenMP of GCC) waits by system calls of its own: its waits are not recorded");
    }
}

/// What copying needs, in memory of its own: stacks of threads may be small.
struct Scratch {
    buffer: [u8; 4096],
    line: OutputLine,
    lines: Text<16384>,
}

/// Copies the lines of executable mappings, and of memory that other processes may write. A line longer than 4 KiB is cut.
fn copy_executable(from: i32) {
    let Some(memory) = memory::memory::<Scratch>(1) else { return };
    // SAFETY: zeroed memory of this size; zeros are empty lines.
    let scratch = unsafe { &mut *memory };
    add_name(&mut scratch.lines);
    copy_lines(from, scratch);
    write(scratch.lines.as_bytes());
    memory::release(memory, 1);
}

fn copy_lines(from: i32, Scratch { buffer, line, lines }: &mut Scratch) {
    line.add(b"map ");
    loop {
        let count = output::read(from, buffer);
        if count <= 0 {
            return;
        }
        for part in buffer[..count as usize].split_inclusive(|byte| *byte == b'\n') {
            line.add(part);
            if !part.ends_with(b"\n") {
                continue;
            }
            if line.as_bytes().split(|b| *b == b' ').nth(2).is_some_and(|p| matches!(p, [_, _, b'x', ..] | [_, b'w', _, b's'])) {
                if !lines.has_room(line.as_bytes().len()) {
                    write(lines.as_bytes());
                    lines.clear();
                    add_name(lines);
                }
                lines.add(line.as_bytes());
            }
            line.clear();
            line.add(b"map ");
        }
    }
}

/// How the file begins.
const FILE_BEGIN: &[u8] = b"trodden-waits 2\n";

/// In a forked child: another thread of the parent may have been opening the files.
pub fn forget_opening() {
    if STATE.load(Ordering::Acquire) == UNKNOWN && START.load(Ordering::Acquire) != 0 {
        FIRST[0].store(0, Ordering::Relaxed);
        START.store(0, Ordering::Release);
    }
}

/// A forked child is a process of its own.
pub fn begin_child() {
    let file = LINES.begin_child(OwnFile::NONE);
    LINES.with(|lines| *lines = file);
    STATE.store(UNKNOWN, Ordering::Release);
    IS_CHILD.store(true, Ordering::Release);
    IS_PARENT.store(false, Ordering::Release);
    START.store(0, Ordering::Release);
    IMAGES.store(0, Ordering::Release);
}

/// What is left to say at the end of the process.
pub fn end() {
    if (is_child() || IS_PARENT.load(Ordering::Acquire)) && has_begun() {
        IMAGES.store(0, Ordering::Release);
        maps();
    }
    anchor();
}
