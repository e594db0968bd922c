//! The process file: lines of text that describe the processes of a recording. A program and its forked children append blocks of lines,
//! each with a single write, so that threads and processes may append at any time. [`FILE_BEGIN`] documents the format.

pub mod fork;

use crate::lock::{Lock, without_signals, yield_or_sleep};
use crate::naming::{FIRST, FOLDER_VARIABLE, START, has_folder, name, path};
use crate::output::{self, BoundedText, OutputLine};
use crate::own_file::OwnFile;
use crate::{chunks, clock, images, limits, memory};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Whether the process is recorded; one of the following constants.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const RECORDED: u8 = 1;
const UNRECORDED: u8 = 2;
const SEALED: u8 = 3;
/// The state before [`STATE`] became [`SEALED`], and the first byte of the folder's name at that time.
static SEALED_FROM: AtomicU8 = AtomicU8::new(UNKNOWN);
static SEALED_FOLDER: AtomicU8 = AtomicU8::new(0);
/// The process file.
static LINES: Lock<OwnFile> = Lock::new(OwnFile::NONE);
/// The text that [`add_environment`] adds.
static PLACE: Lock<OutputLine> = Lock::new(OutputLine::new());
/// Number of loads and unloads of images when the maps were last written.
static IMAGES: AtomicU64 = AtomicU64::new(0);
/// Whether this process was forked by a recorded process.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// Whether this process has forked.
static IS_PARENT: AtomicBool = AtomicBool::new(false);

/// Whether this process is recorded: the environment specifies a folder, and the files could be opened. Opens them on the first call.
pub fn is_recorded() -> bool {
    match STATE.load(Ordering::Acquire) {
        UNKNOWN => has_folder() && without_signals(open),
        state => state == RECORDED,
    }
}

/// Whether recording has already begun.
pub fn is_recording() -> bool {
    STATE.load(Ordering::Acquire) == RECORDED
}

/// Whether recording has ended because the process filters its system calls. After that, this library makes no system calls.
#[inline]
pub fn is_sealed() -> bool {
    STATE.load(Ordering::Acquire) == SEALED
}

/// Ends the recording of the process, and of programs that it executes, because the process is about to filter its system calls.
pub fn seal() {
    if is_recording() {
        append_note(b"a process set a system call filter (seccomp): its calls after that are not recorded");
    }
    SEALED_FROM.store(STATE.swap(SEALED, Ordering::AcqRel), Ordering::Relaxed);
    change_folder(0);
}

/// Continues recording, because no filter was set after all.
pub fn unseal() {
    change_folder(SEALED_FOLDER.load(Ordering::Relaxed));
    STATE.store(SEALED_FROM.load(Ordering::Relaxed), Ordering::Release);
}

/// Replaces the first byte of the folder's name in the environment. If it is 0, the variable is empty.
fn change_folder(first: u8) {
    // SAFETY: the name is a C string. The value is writable, and has at least a terminating zero.
    let folder = unsafe { libc::getenv(FOLDER_VARIABLE.as_ptr()) };
    if !folder.is_null() {
        // SAFETY: as above.
        SEALED_FOLDER.store(unsafe { folder.cast::<u8>().replace(first) }, Ordering::Relaxed);
    }
}

#[cold]
fn open() -> bool {
    // If several threads get here at the same time, the first one opens the files.
    if START.compare_exchange(0, clock::now(), Ordering::AcqRel, Ordering::Acquire).is_err() {
        let mut tries = 0;
        while STATE.load(Ordering::Acquire) == UNKNOWN {
            yield_or_sleep(&mut tries);
        }
        return is_recording();
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
    /// Minimum size limit of files; below it, no file is created.
    const MIN_FILE_LIMIT: u64 = 4096;
    if output::file_limit() < MIN_FILE_LIMIT {
        return false;
    }
    let (process, start) = name();
    FIRST[0].store(process.into(), Ordering::Relaxed);
    FIRST[1].store(start, Ordering::Relaxed);
    let file = path(b".process").and_then(|path| OwnFile::create(&path, libc::O_APPEND));
    file.map(|file| LINES.with(|lines| *lines = file)).is_some()
}

/// Creates the threads file. Returns false on failure.
fn begin_threads() -> bool {
    if limits::began_limited() {
        write_block(
            b"note a program is not recorded: its address space is limited (RLIMIT_AS, `ulimit -v`), and the recorder needs a part of it",
        );
        return false;
    }
    let is_open = chunks::open();
    if is_open {
        fork::watch();
    }
    is_open
}

fn begin(is_first: bool) {
    let mut line = BoundedText::<{ 4096 + 256 }>::new();
    if is_first {
        line.add(FILE_BEGIN);
    }
    add_name(&mut line);
    // SAFETY: the system call has no pointer arguments.
    line.add(b"parent ").number(unsafe { libc::getppid() } as u64).add(b"\n");
    PLACE.with(|place| {
        if is_first {
            add_environment(place);
        }
        line.add(place.as_bytes());
    });
    add_anchor(&mut line);
    write(line.as_bytes());
}

/// Appends the host, the boot ID, the kind of ticks, and the program, all of which are the same for all forked children.
fn add_environment(line: &mut OutputLine) {
    line.add(b"host ");
    let mut name = [0u8; 256];
    // SAFETY: the pointer refers to a local buffer that is larger than the size passed.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    line.add(until_zero(&name)).add(b"\nboot ");
    let mut boot = [0u8; 40];
    output::read_file(c"/proc/sys/kernel/random/boot_id", &mut boot);
    line.add(&boot[..36]).add(b"\ncounter ").number(clock::is_counter().into()).add(b"\nprogram ");
    let mut program = [0u8; 2048];
    // SAFETY: the pointer refers to a local buffer that is larger than the size passed.
    unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), program.as_mut_ptr().cast(), program.len() - 1) };
    line.add(until_zero(&program)).add(b"\n");
}

/// Begins a block of lines about this process.
fn add_name<const N: usize>(lines: &mut BoundedText<N>) {
    let (process, start) = name();
    lines.add(b"process ").number(process.into()).add(b" ").number(start).add(b"\n");
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
}

/// Appends a block of lines to the file, unless the file size limit leaves no room for it.
fn write(lines: &[u8]) {
    LINES.with(|file| {
        let Some((file, size)) = file.descriptor(|| path(b".process")) else { return };
        // Exceeding the file size limit would raise a signal that ends the program.
        if size + lines.len() as u64 <= output::file_limit() {
            output::write(file, lines);
        }
    });
}

/// Appends a line about this process, if the process is recorded.
pub fn append_line(line: &OutputLine) {
    if is_recorded() {
        write_block(line.as_bytes());
    }
}

/// Appends a block of one line.
fn write_block(line: &[u8]) {
    let mut block = BoundedText::<{ 4096 + 64 }>::new();
    add_name(&mut block);
    write(block.add(line).add(b"\n").as_bytes());
}

/// Appends a note for the reader of the report. Uses little stack, since a thread's stack may be small.
pub fn append_note(text: &[u8]) {
    if is_recorded() {
        let mut block = BoundedText::<512>::new();
        add_name(&mut block);
        write(block.add(b"note ").add(text).add(b"\n").as_bytes());
    }
}

/// Appends a note that no space is left for the recording, at most once per process.
pub fn note_full() {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        append_note(b"no space was left for a process's recording, so later calls of its threads are missing");
    }
}

fn add_anchor<const N: usize>(line: &mut BoundedText<N>) {
    let (ticks, ns) = clock::anchor();
    line.add(b"anchor ").number(ticks).add(b" ").number(ns).add(b" ").number(clock::real_ns()).add(b"\n");
}

/// Appends an anchor, if recording has begun.
pub fn anchor() {
    if is_recording() {
        let mut line = BoundedText::<256>::new();
        add_name(&mut line);
        add_anchor(&mut line);
        write(line.as_bytes());
    }
}

/// Whether this process was forked by a recorded process.
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Acquire)
}

/// Whether the program is not a system program, such as a shell or a launcher, whose children are different programs.
pub fn is_user_program() -> bool {
    let mut program = [0u8; 2048];
    // SAFETY: the pointer refers to a local buffer that is larger than the size passed.
    unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), program.as_mut_ptr().cast(), program.len() - 1) };
    let is_in = |folder: &&[u8]| until_zero(&program).starts_with(folder);
    let folders: [&[u8]; 5] = [b"/usr/bin/", b"/usr/sbin/", b"/bin/", b"/sbin/", b"/usr/lib"];
    !folders.iter().any(is_in)
}

/// Prepares for the first fork by writing the memory maps, which list the memory that parent and child share.
pub fn begin_fork() {
    if !IS_PARENT.swap(true, Ordering::AcqRel) {
        IMAGES.store(0, Ordering::Release);
        maps();
    }
}

/// Appends the mappings of executable and shared memory, if images were loaded or unloaded since the last time.
pub fn maps() {
    let mut images = 0u64;
    // The sum of loads and unloads changes with every load and unload.
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

/// Appends a note if libgomp is loaded, which waits with direct system calls that cannot be interposed.
fn note_libraries() {
    static IS_NOTED: AtomicBool = AtomicBool::new(false);
    // `dlopen` is not an alternative: it waits for constructors, and one of them may wait for this thread.
    let has_openmp = images::any(|info| images::file_name(info).starts_with(b"libgomp."));
    if has_openmp && !IS_NOTED.swap(true, Ordering::AcqRel) {
        append_note(b"libgomp (GCC's OpenMP runtime) waits with direct system calls, which are not recorded");
    }
}

/// Buffers for copying, in mapped memory, since a thread's stack may be small.
struct CopyBuffers {
    buffer: [u8; 4096],
    line: OutputLine,
    lines: BoundedText<16384>,
}

/// Copies the lines of executable mappings, and of mappings that other processes may write. Truncates lines longer than 4 KiB.
fn copy_executable(from: i32) {
    let Some(memory) = memory::map_private::<CopyBuffers>(1) else { return };
    // SAFETY: zeroed memory of this size, and zeros are a valid value of all fields.
    let scratch = unsafe { &mut *memory };
    add_name(&mut scratch.lines);
    copy_lines(from, scratch);
    write(scratch.lines.as_bytes());
    memory::release(memory, 1);
}

fn copy_lines(from: i32, CopyBuffers { buffer, line, lines }: &mut CopyBuffers) {
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

/// The first line of the file. The file has this format:
///
/// ```text
/// trodden-waits 2
/// process NUMBER START                  begins a block of a process: its ID, and ticks when its recording began
/// parent NUMBER                         host NAME          boot ID            counter 0|1
/// anchor TICKS MONOTONIC_NS REALTIME_NS
/// program PATH
/// mpi openmpi|mpich RANK SIZE           (at the end of MPI_Init)
/// communicator ID local RANKS... [remote RANKS...]   (ranks of MPI_COMM_WORLD; long lines continue in "more" lines)
/// map ...                               (lines of /proc/self/maps that are executable, or writable and shared)
/// note TEXT
/// ```
const FILE_BEGIN: &[u8] = b"trodden-waits 2\n";

/// In a forked child, abandons an attempt to open the files that another thread of the parent may have begun.
pub fn abandon_opening() {
    if STATE.load(Ordering::Acquire) == UNKNOWN && START.load(Ordering::Acquire) != 0 {
        FIRST[0].store(0, Ordering::Relaxed);
        START.store(0, Ordering::Release);
    }
}

/// Makes a forked child a separate process of the recording.
pub fn begin_child() {
    let file = LINES.begin_child(OwnFile::NONE);
    LINES.with(|lines| *lines = file);
    STATE.store(UNKNOWN, Ordering::Release);
    IS_CHILD.store(true, Ordering::Release);
    IS_PARENT.store(false, Ordering::Release);
    START.store(0, Ordering::Release);
    IMAGES.store(0, Ordering::Release);
}

/// Appends the last lines about a process that ends.
pub fn end() {
    if (is_child() || IS_PARENT.load(Ordering::Acquire)) && is_recording() {
        IMAGES.store(0, Ordering::Release);
        maps();
    }
    anchor();
}
