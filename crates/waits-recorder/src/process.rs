//! The process file: text that describes the processes of a recording. A program and its forked children append blocks of lines. Each block
//! is written with a single system call, so that the blocks of several threads and processes do not mix. [`PROCESS_FILE_HEADER`] documents
//! the format.

pub mod fork;

use crate::lock::{Lock, without_signals, yield_or_sleep};
use crate::naming::{FILE_CREATOR_ID_AND_START, FOLDER_VARIABLE, RECORDING_START_TICKS, file_path, has_folder, process_identity};
use crate::output::{self, BoundedText, OutputLine};
use crate::own_file::OwnFile;
use crate::{chunks, clock, images, limits, memory};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

static RECORDING_STATE: AtomicU8 = AtomicU8::new(STATE_UNKNOWN);
const STATE_UNKNOWN: u8 = 0;
const STATE_RECORDED: u8 = 1;
const STATE_UNRECORDED: u8 = 2;
const STATE_SEALED: u8 = 3;
/// The value of [`RECORDING_STATE`] before it became [`STATE_SEALED`], and the first byte of the folder's name, which [`seal_recording`]
/// has replaced by 0. [`unseal_recording`] restores both.
static RECORDING_STATE_BEFORE_SEAL: AtomicU8 = AtomicU8::new(STATE_UNKNOWN);
static SAVED_FIRST_BYTE_OF_FOLDER_NAME: AtomicU8 = AtomicU8::new(0);
static PROCESS_FILE: Lock<OwnFile> = Lock::new(OwnFile::NONE);
/// The lines that [`add_environment`] writes. They are kept for the blocks of forked children.
static ENVIRONMENT_LINES: Lock<OutputLine> = Lock::new(OutputLine::new());
/// Number of images that had been loaded and unloaded when the memory maps were last written to the file.
static IMAGE_COUNT_AT_LAST_MAPS: AtomicU64 = AtomicU64::new(0);
/// True if a recorded process forked this process.
static IS_FORKED_CHILD: AtomicBool = AtomicBool::new(false);
/// True once this process has forked.
static IS_FORKING_PARENT: AtomicBool = AtomicBool::new(false);

/// Returns true if this process is recorded, which requires a folder in the environment and writable files. The first call opens the files
/// and thereby begins the recording.
pub fn is_recorded() -> bool {
    match RECORDING_STATE.load(Ordering::Acquire) {
        STATE_UNKNOWN => has_folder() && without_signals(open_files),
        state => state == STATE_RECORDED,
    }
}

/// Returns true if recording has already begun.
pub fn is_recording() -> bool {
    RECORDING_STATE.load(Ordering::Acquire) == STATE_RECORDED
}

/// Returns true if recording has ended because the program filters system calls. From then on, this library makes no system calls, because
/// the filter might kill the process for them.
#[inline]
pub fn is_recording_sealed() -> bool {
    RECORDING_STATE.load(Ordering::Acquire) == STATE_SEALED
}

/// Ends the recording of this process and of programs that it executes, because it is about to install a system call filter.
pub fn seal_recording() {
    if is_recording() {
        append_note(b"a process set a system call filter (seccomp): its calls after that are not recorded");
    }
    RECORDING_STATE_BEFORE_SEAL.store(RECORDING_STATE.swap(STATE_SEALED, Ordering::AcqRel), Ordering::Relaxed);
    replace_first_byte_of_folder_name(0);
}

/// Resumes recording after [`seal_recording`], because the program failed to install the filter.
pub fn unseal_recording() {
    replace_first_byte_of_folder_name(SAVED_FIRST_BYTE_OF_FOLDER_NAME.load(Ordering::Relaxed));
    RECORDING_STATE.store(RECORDING_STATE_BEFORE_SEAL.load(Ordering::Relaxed), Ordering::Release);
}

/// Replaces the first byte of the folder's name in the environment variable, and saves the old byte. 0 makes the variable empty, so that
/// executed programs are not recorded.
fn replace_first_byte_of_folder_name(first: u8) {
    // SAFETY: the name is a C string.
    let folder = unsafe { libc::getenv(FOLDER_VARIABLE.as_ptr()) };
    if !folder.is_null() {
        // SAFETY: the environment is writable, and the value has at least a terminating zero.
        SAVED_FIRST_BYTE_OF_FOLDER_NAME.store(unsafe { folder.cast::<u8>().replace(first) }, Ordering::Relaxed);
    }
}

#[cold]
fn open_files() -> bool {
    // If several threads arrive here at the same time, one opens the files, and the others wait for it.
    if RECORDING_START_TICKS.compare_exchange(0, clock::now_in_ticks(), Ordering::AcqRel, Ordering::Acquire).is_err() {
        let mut tries = 0;
        while RECORDING_STATE.load(Ordering::Acquire) == STATE_UNKNOWN {
            yield_or_sleep(&mut tries);
        }
        return is_recording();
    }
    let is_child = FILE_CREATOR_ID_AND_START[0].load(Ordering::Relaxed) != 0;
    let has_lines = is_child || create_process_file();
    if has_lines {
        write_first_line_block(!is_child);
    }
    let is_open = has_lines && (is_child || create_threads_file());
    if !is_open {
        FILE_CREATOR_ID_AND_START[0].store(0, Ordering::Relaxed);
    }
    RECORDING_STATE.store(if is_open { STATE_RECORDED } else { STATE_UNRECORDED }, Ordering::Release);
    is_open
}

fn create_process_file() -> bool {
    /// Minimum file size limit of the process, in bytes, with which it is recorded.
    const MIN_FILE_SIZE_LIMIT_BYTES: u64 = 4096;
    if output::file_size_limit() < MIN_FILE_SIZE_LIMIT_BYTES {
        return false;
    }
    let (process, start) = process_identity();
    FILE_CREATOR_ID_AND_START[0].store(process.into(), Ordering::Relaxed);
    FILE_CREATOR_ID_AND_START[1].store(start, Ordering::Relaxed);
    let file = file_path(b".process").and_then(|path| OwnFile::create(&path, libc::O_APPEND));
    file.map(|file| PROCESS_FILE.with(|lines| *lines = file)).is_some()
}

/// Creates the threads file. Returns false on failure.
fn create_threads_file() -> bool {
    if limits::has_started_with_address_limit() {
        write_line_block(
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

fn write_first_line_block(is_first: bool) {
    let mut line = BoundedText::<{ 4096 + 256 }>::new();
    if is_first {
        line.add(PROCESS_FILE_HEADER);
    }
    begin_line_block(&mut line);
    // SAFETY: the system call has no pointer arguments.
    line.add(b"parent ").add_number(unsafe { libc::getppid() } as u64).add(b"\n");
    ENVIRONMENT_LINES.with(|place| {
        if is_first {
            add_environment(place);
        }
        line.add(place.as_bytes());
    });
    add_anchor(&mut line);
    write_lines(line.as_bytes());
}

/// Appends lines that are the same for all forked children: the host, the boot ID, the source of ticks, and the program.
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

/// Begins a block of lines with the line that identifies this process.
fn begin_line_block<const N: usize>(lines: &mut BoundedText<N>) {
    let (process, start) = process_identity();
    lines.add(b"process ").add_number(process.into()).add(b" ").add_number(start).add(b"\n");
}

fn cut_at_zero(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
}

/// Appends a block to the process file, unless the file would exceed the file size limit.
fn write_lines(lines: &[u8]) {
    PROCESS_FILE.with(|file| {
        let Some((file, size)) = file.descriptor(|| file_path(b".process")) else { return };
        // Exceeding the file size limit would raise a signal that ends the program.
        if size + lines.len() as u64 <= output::file_size_limit() {
            output::write(file, lines);
        }
    });
}

/// Appends a block with the given line to the process file, if this process is recorded.
pub fn append_line(line: &OutputLine) {
    if is_recorded() {
        write_line_block(line.as_bytes());
    }
}

/// Appends a block with the given line to the process file.
fn write_line_block(line: &[u8]) {
    let mut block = BoundedText::<{ 4096 + 64 }>::new();
    begin_line_block(&mut block);
    write_lines(block.add(line).add(b"\n").as_bytes());
}

/// Appends a note, which the report will show. The block is in a small buffer, because a thread's stack may be small.
pub fn append_note(text: &[u8]) {
    if is_recorded() {
        let mut block = BoundedText::<512>::new();
        begin_line_block(&mut block);
        write_lines(block.add(b"note ").add(text).add(b"\n").as_bytes());
    }
}

/// Appends a note, at most once per process, that no space was left for the recording.
pub fn append_no_space_note() {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        append_note(b"no space was left for a process's recording, so later calls of its threads are missing");
    }
}

fn add_anchor<const N: usize>(line: &mut BoundedText<N>) {
    let (ticks, ns) = clock::read_clock_anchor();
    line.add(b"anchor ").add_number(ticks).add(b" ").add_number(ns).add(b" ").add_number(clock::realtime_ns()).add(b"\n");
}

/// Appends an anchor (the current time in ticks and in ns) if recording has begun.
pub fn append_anchor() {
    if is_recording() {
        let mut line = BoundedText::<256>::new();
        begin_line_block(&mut line);
        add_anchor(&mut line);
        write_lines(line.as_bytes());
    }
}

/// Returns true if a recorded process forked this process.
pub fn is_forked_child() -> bool {
    IS_FORKED_CHILD.load(Ordering::Acquire)
}

/// Returns false if the executable is in a system folder, like a shell or a launcher. Such programs fork only to execute other programs, so
/// their forks need not be recorded.
pub fn is_user_program() -> bool {
    let mut program = [0u8; 2048];
    // SAFETY: the pointer refers to a local buffer that is larger than the size passed.
    unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), program.as_mut_ptr().cast(), program.len() - 1) };
    let is_in = |folder: &&[u8]| cut_at_zero(&program).starts_with(folder);
    let folders: [&[u8]; 5] = [b"/usr/bin/", b"/usr/sbin/", b"/bin/", b"/sbin/", b"/usr/lib"];
    !folders.iter().any(is_in)
}

/// Appends the memory maps before the first fork. They show which memory the parent and its children share.
pub fn prepare_fork() {
    if !IS_FORKING_PARENT.swap(true, Ordering::AcqRel) {
        IMAGE_COUNT_AT_LAST_MAPS.store(0, Ordering::Release);
        append_memory_maps();
    }
}

/// Appends the process's executable and shared mappings, unless no image was loaded or unloaded since the last call.
pub fn append_memory_maps() {
    let mut images = 0u64;
    // A number that differs after each load and each unload.
    images::any_image(|info| {
        images = info.dlpi_adds + (info.dlpi_subs << 32);
        true
    });
    if IMAGE_COUNT_AT_LAST_MAPS.swap(images, Ordering::AcqRel) == images {
        return;
    }
    if !is_recorded() {
        return;
    }
    append_libgomp_note();
    let maps = output::open_with_system_call(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
    if maps >= 0 {
        append_map_lines(maps);
        output::close(maps);
    }
}

/// Appends a note if libgomp is loaded, because libgomp waits with direct system calls, which this library cannot interpose.
fn append_libgomp_note() {
    static IS_NOTED: AtomicBool = AtomicBool::new(false);
    // Images are listed rather than looked up with `dlopen`, which waits until other threads have run constructors, and a constructor may
    // wait for this thread.
    let has_openmp = images::any_image(|info| images::file_name(info).starts_with(b"libgomp."));
    if has_openmp && !IS_NOTED.swap(true, Ordering::AcqRel) {
        append_note(b"libgomp (GCC's OpenMP runtime) waits with direct system calls, which are not recorded");
    }
}

/// Buffers for copying lines of `/proc/self/maps`. They are in mapped memory, because a thread's stack may be too small.
struct LineCopyBuffers {
    buffer: [u8; 4096],
    line: OutputLine,
    lines: BoundedText<16384>,
}

/// Copies the lines of mappings that are executable or both writable and shared. Lines are cut off after 4 KiB.
fn append_map_lines(from: i32) {
    let Some(memory) = memory::map_private::<LineCopyBuffers>(1) else { return };
    // SAFETY: the memory is zeroed and has this size, and zeros are valid values of all fields.
    let scratch = unsafe { &mut *memory };
    begin_line_block(&mut scratch.lines);
    copy_lines(from, scratch);
    write_lines(scratch.lines.as_bytes());
    memory::unmap_elements(memory, 1);
}

fn copy_lines(from: i32, LineCopyBuffers { buffer, line, lines }: &mut LineCopyBuffers) {
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
                    write_lines(lines.as_bytes());
                    lines.clear();
                    begin_line_block(lines);
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
const PROCESS_FILE_HEADER: &[u8] = b"trodden-waits 2\n";

/// In a forked child, resets the state of opening the files, because another thread of the parent may have been opening them at the time of
/// the fork.
pub fn reset_file_opening_in_child() {
    if RECORDING_STATE.load(Ordering::Acquire) == STATE_UNKNOWN && RECORDING_START_TICKS.load(Ordering::Acquire) != 0 {
        FILE_CREATOR_ID_AND_START[0].store(0, Ordering::Relaxed);
        RECORDING_START_TICKS.store(0, Ordering::Release);
    }
}

/// Resets this module in a forked child, which becomes a separate process of the recording.
pub fn reset_in_child() {
    let file = PROCESS_FILE.reset_in_child(OwnFile::NONE);
    PROCESS_FILE.with(|lines| *lines = file);
    RECORDING_STATE.store(STATE_UNKNOWN, Ordering::Release);
    IS_FORKED_CHILD.store(true, Ordering::Release);
    IS_FORKING_PARENT.store(false, Ordering::Release);
    RECORDING_START_TICKS.store(0, Ordering::Release);
    IMAGE_COUNT_AT_LAST_MAPS.store(0, Ordering::Release);
}

/// Appends the last lines about this process before it ends.
pub fn append_final_lines() {
    if (is_forked_child() || IS_FORKING_PARENT.load(Ordering::Acquire)) && is_recording() {
        IMAGE_COUNT_AT_LAST_MAPS.store(0, Ordering::Release);
        append_memory_maps();
    }
    append_anchor();
}
