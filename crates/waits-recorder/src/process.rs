//! The process file: lines of text that describe a recording's processes. A program and its forked children append blocks of lines. Each
//! block is a single write, so that threads and processes may append at any time. [`FILE_BEGIN`] documents the format.

pub mod fork;

use crate::lock::{Lock, without_signals, yield_or_sleep};
use crate::naming::{FILE_CREATOR, FOLDER_VARIABLE, START_TICKS, file_path, has_folder, process_identity};
use crate::output::{self, BoundedText, OutputLine};
use crate::own_file::OwnFile;
use crate::{chunks, clock, images, limits, memory};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

static RECORDING_STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const RECORDED: u8 = 1;
const UNRECORDED: u8 = 2;
const SEALED: u8 = 3;
/// The value of [`RECORDING_STATE`] before it became [`SEALED`], and the first byte of the folder's name at that time.
static SEALED_FROM: AtomicU8 = AtomicU8::new(UNKNOWN);
static SEALED_FOLDER: AtomicU8 = AtomicU8::new(0);
static PROCESS_FILE: Lock<OwnFile> = Lock::new(OwnFile::NONE);
/// The text that [`add_environment`] adds.
static ENVIRONMENT_LINES: Lock<OutputLine> = Lock::new(OutputLine::new());
/// Number of images loaded and unloaded when the maps were last written.
static IMAGES_AT_LAST_MAPS: AtomicU64 = AtomicU64::new(0);
/// True if a recorded process forked this process.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// True once this process has forked.
static IS_PARENT: AtomicBool = AtomicBool::new(false);

/// Returns true if this process is recorded, which requires a folder in the environment and writable files. The first call opens the
/// files.
pub fn is_recorded() -> bool {
    match RECORDING_STATE.load(Ordering::Acquire) {
        UNKNOWN => has_folder() && without_signals(open_files),
        state => state == RECORDED,
    }
}

/// Returns true if recording has already begun.
pub fn is_recording() -> bool {
    RECORDING_STATE.load(Ordering::Acquire) == RECORDED
}

/// Returns true if recording has ended because the process filters its system calls. After that, this library makes no system calls.
#[inline]
pub fn is_sealed() -> bool {
    RECORDING_STATE.load(Ordering::Acquire) == SEALED
}

/// Ends the recording of the process, and of programs that it executes, because the process is about to filter its system calls.
pub fn seal() {
    if is_recording() {
        append_note(b"a process set a system call filter (seccomp): its calls after that are not recorded");
    }
    SEALED_FROM.store(RECORDING_STATE.swap(SEALED, Ordering::AcqRel), Ordering::Relaxed);
    replace_folder_start(0);
}

/// Resumes recording, because no filter was set after all.
pub fn unseal() {
    replace_folder_start(SEALED_FOLDER.load(Ordering::Relaxed));
    RECORDING_STATE.store(SEALED_FROM.load(Ordering::Relaxed), Ordering::Release);
}

/// Replaces the first byte of the folder's name in the environment. 0 makes the variable empty.
fn replace_folder_start(first: u8) {
    // SAFETY: the name is a C string.
    let folder = unsafe { libc::getenv(FOLDER_VARIABLE.as_ptr()) };
    if !folder.is_null() {
        // SAFETY: the value is writable, and consists of at least a terminating zero.
        SEALED_FOLDER.store(unsafe { folder.cast::<u8>().replace(first) }, Ordering::Relaxed);
    }
}

#[cold]
fn open_files() -> bool {
    // If several threads get here at the same time, the first one opens the files.
    if START_TICKS.compare_exchange(0, clock::now(), Ordering::AcqRel, Ordering::Acquire).is_err() {
        let mut tries = 0;
        while RECORDING_STATE.load(Ordering::Acquire) == UNKNOWN {
            yield_or_sleep(&mut tries);
        }
        return is_recording();
    }
    let is_child = FILE_CREATOR[0].load(Ordering::Relaxed) != 0;
    let has_lines = is_child || create_process_file();
    if has_lines {
        write_first_block(!is_child);
    }
    let is_open = has_lines && (is_child || create_threads_file());
    if !is_open {
        FILE_CREATOR[0].store(0, Ordering::Relaxed);
    }
    RECORDING_STATE.store(if is_open { RECORDED } else { UNRECORDED }, Ordering::Release);
    is_open
}

fn create_process_file() -> bool {
    /// If the file size limit is lower, no file is created.
    const MIN_FILE_LIMIT: u64 = 4096;
    if output::file_size_limit() < MIN_FILE_LIMIT {
        return false;
    }
    let (process, start) = process_identity();
    FILE_CREATOR[0].store(process.into(), Ordering::Relaxed);
    FILE_CREATOR[1].store(start, Ordering::Relaxed);
    let file = file_path(b".process").and_then(|path| OwnFile::create(&path, libc::O_APPEND));
    file.map(|file| PROCESS_FILE.with(|lines| *lines = file)).is_some()
}

/// Creates the threads file. Returns false on failure.
fn create_threads_file() -> bool {
    if limits::started_with_limit() {
        write_block(
            b"note a program is not recorded: its address space is limited (RLIMIT_AS, `ulimit -v`), and the recorder needs a part of it",
        );
        return false;
    }
    let is_open = chunks::create_file();
    if is_open {
        fork::register_fork_handler();
    }
    is_open
}

fn write_first_block(is_first: bool) {
    let mut line = BoundedText::<{ 4096 + 256 }>::new();
    if is_first {
        line.add(FILE_BEGIN);
    }
    add_name(&mut line);
    // SAFETY: the system call has no pointer arguments.
    line.add(b"parent ").add_number(unsafe { libc::getppid() } as u64).add(b"\n");
    ENVIRONMENT_LINES.with(|place| {
        if is_first {
            add_environment(place);
        }
        line.add(place.as_bytes());
    });
    add_anchor(&mut line);
    write(line.as_bytes());
}

/// Appends what all forked children have in common: the host, the boot ID, the kind of ticks, and the program.
fn add_environment(line: &mut OutputLine) {
    line.add(b"host ");
    let mut name = [0u8; 256];
    // SAFETY: the pointer refers to a local buffer that is larger than the size passed.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    line.add(cut_at_zero(&name)).add(b"\nboot ");
    let mut boot = [0u8; 40];
    output::read_file(c"/proc/sys/kernel/random/boot_id", &mut boot);
    line.add(&boot[..36]).add(b"\ncounter ").add_number(clock::uses_cycle_counter().into()).add(b"\nprogram ");
    let mut program = [0u8; 2048];
    // SAFETY: the pointer refers to a local buffer that is larger than the size passed.
    unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), program.as_mut_ptr().cast(), program.len() - 1) };
    line.add(cut_at_zero(&program)).add(b"\n");
}

/// Begins a block of lines about this process.
fn add_name<const N: usize>(lines: &mut BoundedText<N>) {
    let (process, start) = process_identity();
    lines.add(b"process ").add_number(process.into()).add(b" ").add_number(start).add(b"\n");
}

fn cut_at_zero(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
}

/// Appends a block of lines to the file, unless the file size limit leaves no room for it.
fn write(lines: &[u8]) {
    PROCESS_FILE.with(|file| {
        let Some((file, size)) = file.descriptor(|| file_path(b".process")) else { return };
        // Exceeding the file size limit would raise a signal that ends the program.
        if size + lines.len() as u64 <= output::file_size_limit() {
            output::write(file, lines);
        }
    });
}

/// Appends a line about this process if it is recorded.
pub fn append_line(line: &OutputLine) {
    if is_recorded() {
        write_block(line.as_bytes());
    }
}

/// Appends a block that consists of one line.
fn write_block(line: &[u8]) {
    let mut block = BoundedText::<{ 4096 + 64 }>::new();
    add_name(&mut block);
    write(block.add(line).add(b"\n").as_bytes());
}

/// Appends a note for the report. Uses little stack, because a thread's stack may be small.
pub fn append_note(text: &[u8]) {
    if is_recorded() {
        let mut block = BoundedText::<512>::new();
        add_name(&mut block);
        write(block.add(b"note ").add(text).add(b"\n").as_bytes());
    }
}

/// Notes, at most once per process, that no space is left for the recording.
pub fn note_no_space() {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        append_note(b"no space was left for a process's recording, so later calls of its threads are missing");
    }
}

fn add_anchor<const N: usize>(line: &mut BoundedText<N>) {
    let (ticks, ns) = clock::read_anchor();
    line.add(b"anchor ").add_number(ticks).add(b" ").add_number(ns).add(b" ").add_number(clock::real_ns()).add(b"\n");
}

/// Appends an anchor if recording has begun.
pub fn append_anchor() {
    if is_recording() {
        let mut line = BoundedText::<256>::new();
        add_name(&mut line);
        add_anchor(&mut line);
        write(line.as_bytes());
    }
}

/// Returns true if a recorded process forked this process.
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Acquire)
}

/// Returns false for a system program, such as a shell or a launcher. The children of such a program are other programs.
pub fn is_user_program() -> bool {
    let mut program = [0u8; 2048];
    // SAFETY: the pointer refers to a local buffer that is larger than the size passed.
    unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), program.as_mut_ptr().cast(), program.len() - 1) };
    let is_in = |folder: &&[u8]| cut_at_zero(&program).starts_with(folder);
    let folders: [&[u8]; 5] = [b"/usr/bin/", b"/usr/sbin/", b"/bin/", b"/sbin/", b"/usr/lib"];
    !folders.iter().any(is_in)
}

/// Prepares for the first fork: writes the memory maps, which list the memory that parent and child share.
pub fn begin_fork() {
    if !IS_PARENT.swap(true, Ordering::AcqRel) {
        IMAGES_AT_LAST_MAPS.store(0, Ordering::Release);
        append_maps();
    }
}

/// Appends the mappings of executable and shared memory, if images were loaded or unloaded since the last call.
pub fn append_maps() {
    let mut images = 0u64;
    // The sum changes with every load and every unload.
    images::any_image(|info| {
        images = info.dlpi_adds + (info.dlpi_subs << 32);
        true
    });
    if IMAGES_AT_LAST_MAPS.swap(images, Ordering::AcqRel) == images {
        return;
    }
    if !is_recorded() {
        return;
    }
    append_libgomp_note();
    let maps = output::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
    if maps >= 0 {
        append_map_lines(maps);
        output::close(maps);
    }
}

/// Appends a note if libgomp is loaded. It waits with direct system calls, which cannot be interposed.
fn append_libgomp_note() {
    static IS_NOTED: AtomicBool = AtomicBool::new(false);
    // `dlopen` would not do: it waits for constructors, and one of them may wait for this thread.
    let has_openmp = images::any_image(|info| images::file_name(info).starts_with(b"libgomp."));
    if has_openmp && !IS_NOTED.swap(true, Ordering::AcqRel) {
        append_note(b"libgomp (GCC's OpenMP runtime) waits with direct system calls, which are not recorded");
    }
}

/// Buffers for copying. They are in mapped memory, because a thread's stack may be small.
struct CopyBuffers {
    buffer: [u8; 4096],
    line: OutputLine,
    lines: BoundedText<16384>,
}

/// Copies the lines of executable mappings, and of mappings that other processes may write to. Truncates lines longer than 4 KiB.
fn append_map_lines(from: i32) {
    let Some(memory) = memory::map_private::<CopyBuffers>(1) else { return };
    // SAFETY: the memory is zeroed and has this size, and zeros are valid values of all fields.
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

/// Abandons, in a forked child, an attempt to open the files that another thread of the parent may have begun.
pub fn abandon_opening() {
    if RECORDING_STATE.load(Ordering::Acquire) == UNKNOWN && START_TICKS.load(Ordering::Acquire) != 0 {
        FILE_CREATOR[0].store(0, Ordering::Relaxed);
        START_TICKS.store(0, Ordering::Release);
    }
}

/// Makes a forked child a separate process of the recording.
pub fn begin_child() {
    let file = PROCESS_FILE.begin_child(OwnFile::NONE);
    PROCESS_FILE.with(|lines| *lines = file);
    RECORDING_STATE.store(UNKNOWN, Ordering::Release);
    IS_CHILD.store(true, Ordering::Release);
    IS_PARENT.store(false, Ordering::Release);
    START_TICKS.store(0, Ordering::Release);
    IMAGES_AT_LAST_MAPS.store(0, Ordering::Release);
}

/// Appends the last lines about a process that ends.
pub fn append_end() {
    if (is_child() || IS_PARENT.load(Ordering::Acquire)) && is_recording() {
        IMAGES_AT_LAST_MAPS.store(0, Ordering::Release);
        append_maps();
    }
    append_anchor();
}
