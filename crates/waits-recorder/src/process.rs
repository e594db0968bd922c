//! What is recorded once per process: a text file of lines, each written whole, so that threads may add to it at any time.
//!
//! ```text
//! trodden-waits 1
//! process NUMBER PARENT                 host NAME          boot ID            counter 0|1
//! anchor TICKS MONOTONIC_NS REALTIME_NS
//! program PATH
//! mpi openmpi|mpich RANK SIZE TICKS     (the end of MPI_Init)
//! communicator ID local RANKS... [remote RANKS...]   (ranks of MPI_COMM_WORLD; "more" lines follow long ones)
//! map ...                               (lines of /proc/self/maps that are executable, or writable and shared)
//! note TEXT
//! ```

mod fork;

use crate::output::{self, OutputLine, Path};
use crate::{clock, images};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use trodden_wire::waits::OUTPUT_VARIABLE;

/// The process's file: -1 not opened, -2 cannot be.
static FILE: AtomicI32 = AtomicI32::new(-1);
/// Ticks when the file was opened: with the process's number, its name.
static START: AtomicU64 = AtomicU64::new(0);
/// Images that were mapped when maps were written last.
static IMAGES: AtomicU64 = AtomicU64::new(0);
/// Whether a recorded process made this one by a fork.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// Whether this process has children.
static IS_PARENT: AtomicBool = AtomicBool::new(false);

/// Whether this process is to be recorded: the environment names a folder, and its file is there.
pub fn is_recorded() -> bool {
    file() >= 0
}

/// Path of another file of this process: `ending` behind its common part.
pub fn path(thread: u32, ending: &[u8]) -> Option<Path> {
    let mut path = stem()?;
    path.add(b".").number(thread.into()).add(ending);
    Some(path)
}

fn stem() -> Option<Path> {
    // SAFETY: a C string.
    let folder = unsafe { libc::getenv(c"TRODDEN_WAITS".as_ptr()) };
    debug_assert_eq!(OUTPUT_VARIABLE, "TRODDEN_WAITS");
    if folder.is_null() {
        return None;
    }
    // SAFETY: the environment's strings end with zero.
    let folder = unsafe { core::ffi::CStr::from_ptr(folder) }.to_bytes();
    if folder.is_empty() {
        return None;
    }
    let mut path = Path::new();
    // SAFETY: asks the kernel.
    path.add(folder).add(b"/").number(unsafe { libc::getpid() } as u64).add(b"-").number(START.load(Ordering::Relaxed));
    Some(path)
}

fn file() -> i32 {
    match FILE.load(Ordering::Acquire) {
        -1 => open(),
        file => file,
    }
}

#[cold]
fn open() -> i32 {
    // Another thread may open it at the same time: the first one wins, and the other's file is left out of use.
    if START.compare_exchange(0, clock::now(), Ordering::AcqRel, Ordering::Acquire).is_err() {
        while FILE.load(Ordering::Acquire) == -1 {
            core::hint::spin_loop();
        }
        return FILE.load(Ordering::Acquire);
    }
    let opened = stem().map_or(-2, |mut path| {
        path.add(b".process");
        // SAFETY: a C string.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC, 0o644) };
        if file < 0 { -2 } else { file }
    });
    if opened >= 0 {
        begin(opened);
        fork::watch();
    }
    FILE.store(opened, Ordering::Release);
    opened
}

fn begin(file: i32) {
    let mut line = OutputLine::new();
    // SAFETY: asks the kernel.
    let (process, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    line.add(b"trodden-waits 1\nprocess ").number(process as u64).add(b" ").number(parent as u64).add(b"\nhost ");
    let mut name = [0u8; 256];
    // SAFETY: the buffer has this size.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    line.add(until_zero(&name)).add(b"\nboot ");
    let mut boot = [0u8; 40];
    read_whole(c"/proc/sys/kernel/random/boot_id", &mut boot);
    line.add(&boot[..36]).add(b"\ncounter ").number(clock::is_counter().into()).add(b"\nprogram ");
    let mut program = [0u8; 2048];
    // SAFETY: the buffer has this size.
    unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), program.as_mut_ptr().cast(), program.len() - 1) };
    line.add(until_zero(&program)).add(b"\n");
    line.write(file);
    write_anchor(file);
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
}

fn read_whole(path: &core::ffi::CStr, into: &mut [u8]) {
    // SAFETY: a C string, and a buffer of this size.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file >= 0 {
            output::read(file, into);
            libc::close(file);
        }
    }
}

/// Adds a line, if the process is recorded.
pub fn line(line: &mut OutputLine) {
    let file = file();
    if file >= 0 {
        line.add(b"\n").write(file);
    }
}

/// Adds a note for the reader of the report.
pub fn note(text: &[u8]) {
    let mut whole = OutputLine::new();
    whole.add(b"note ").add(text);
    line(&mut whole);
}

fn write_anchor(file: i32) {
    let (ticks, ns) = clock::anchor();
    let mut line = OutputLine::new();
    line.add(b"anchor ").number(ticks).add(b" ").number(ns).add(b" ").number(clock::real_ns()).add(b"\n");
    line.write(file);
}

/// Adds an anchor, if the process is recorded already.
pub fn anchor() {
    let file = FILE.load(Ordering::Acquire);
    if file >= 0 {
        write_anchor(file);
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
    let own = file();
    if own < 0 {
        return;
    }
    note_libraries();
    // SAFETY: a C string.
    let maps = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if maps >= 0 {
        copy_executable(maps, own);
        // SAFETY: opened above.
        unsafe { libc::close(maps) };
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
}

/// Copies the lines of executable mappings, and of memory that other processes may write. A line longer than 4 KiB is cut.
fn copy_executable(from: i32, to: i32) {
    let Some(memory) = output::memory::<Scratch>(1) else { return };
    // SAFETY: zeroed memory of this size; zeros are an empty line.
    let Scratch { buffer, line } = unsafe { &mut *memory };
    copy_lines(from, to, buffer, line);
    output::release(memory, 1);
}

fn copy_lines(from: i32, to: i32, buffer: &mut [u8], line: &mut OutputLine) {
    line.add(b"map ");
    loop {
        let count = output::read(from, buffer);
        if count <= 0 {
            return;
        }
        for byte in &buffer[..count as usize] {
            line.add(&[*byte]);
            if *byte == b'\n' {
                if line.as_bytes().split(|b| *b == b' ').nth(2).is_some_and(|p| matches!(p, [_, _, b'x', ..] | [_, b'w', _, b's'])) {
                    line.write(to);
                }
                line.clear();
                line.add(b"map ");
            }
        }
    }
}

/// A forked child is a process of its own.
pub fn begin_child() {
    let file = FILE.swap(-1, Ordering::AcqRel);
    if file >= 0 {
        // SAFETY: the child's own descriptor.
        unsafe { libc::close(file) };
    }
    IS_CHILD.store(true, Ordering::Release);
    IS_PARENT.store(false, Ordering::Release);
    START.store(0, Ordering::Release);
    IMAGES.store(0, Ordering::Release);
}

/// What is left to say at the end of the process.
pub fn end() {
    if (is_child() || IS_PARENT.load(Ordering::Acquire)) && FILE.load(Ordering::Acquire) >= 0 {
        IMAGES.store(0, Ordering::Release);
        maps();
    }
    anchor();
}
