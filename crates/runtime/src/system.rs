//! Linux system calls (man pages, section 2), called directly by their x86-64 numbers and without `errno`. Invariant: no function blocks
//! indefinitely.

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

pub const ESRCH: Errno = Errno(3);
pub const EINTR: Errno = Errno(4);
pub const ENOENT: Errno = Errno(2);
pub const EEXIST: Errno = Errno(17);
pub const ENOSPC: Errno = Errno(28);
pub const EDQUOT: Errno = Errno(122);
pub const EAGAIN: Errno = Errno(11);
pub const EACCES: Errno = Errno(13);
pub const ENOSYS: Errno = Errno(38);
pub const EOPNOTSUPP: Errno = Errno(95);
pub const ETIMEDOUT: Errno = Errno(110);

pub struct Descriptor {
    number: i32,
    /// The fcntl command for setting locks: [`LOCK_FOR_DESCRIPTION_COMMAND`] or [`LOCK_FOR_PROCESS_COMMAND`].
    lock_command: i32,
}

/// The fcntl command for locks that belong to an open file description (F_OFD_SETLK, see fcntl(2)).
const LOCK_FOR_DESCRIPTION_COMMAND: i32 = 37;
/// The fcntl command for locks that belong to a process, until it closes any descriptor of the file (F_SETLK). Locks of both kinds exclude
/// each other.
const LOCK_FOR_PROCESS_COMMAND: i32 = 6;

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.number >= 0 {
            close(self.number);
        }
    }
}

impl Descriptor {
    /// The current folder (AT_FDCWD). Closing it has no effect.
    pub const CURRENT_FOLDER: Descriptor = Descriptor::new(-100);

    const fn new(number: i32) -> Descriptor {
        Descriptor { number, lock_command: LOCK_FOR_DESCRIPTION_COMMAND }
    }

    /// Drops the value without closing the descriptor, because the program uses its number for a different file, or the runtime keeps it
    /// open.
    pub fn leak(self) {
        core::mem::forget(self);
    }

    pub fn number(&self) -> i32 {
        self.number
    }

    /// Makes future locks belong to this process rather than to the open file description, which the parent process also uses.
    pub fn lock_for_process(&mut self) {
        self.lock_command = LOCK_FOR_PROCESS_COMMAND;
    }

    /// Returns true if locks belong to this process, and so end when the descriptor is closed.
    pub fn locks_for_process(&self) -> bool {
        self.lock_command == LOCK_FOR_PROCESS_COMMAND
    }
}

pub const O_RDONLY: i32 = 0;
pub const O_RDWR: i32 = 2;
pub const O_CREAT: i32 = 0o100;
pub const O_NOCTTY: i32 = 0o400;
pub const O_NONBLOCK: i32 = 0o4000;
pub const O_DIRECTORY: i32 = 0o200_000;
pub const O_NOFOLLOW: i32 = 0o400_000;
pub const O_CLOEXEC: i32 = 0o2_000_000;
pub const O_PATH: i32 = 0o10_000_000;

/// The kernel's `struct stat`.
#[repr(C)]
#[derive(Default)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub nlink: u64,
    pub mode: u32,
    pub uid: u32,
    gid: u32,
    pad: u32,
    rdev: u64,
    pub size: i64,
    rest: [u64; 11],
}

impl Stat {
    pub fn is_regular(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// Executes a system call.
///
/// # Safety
/// The arguments must be valid for that call; memory that it writes must be writable and not otherwise borrowed.
unsafe fn syscall(number: usize, [a, b, c, d, e, f]: [usize; 6]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the kernel changes only rax, rcx and r11, and the caller guarantees that the arguments are valid.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

fn pad_arguments<const N: usize>(arguments: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    all.iter_mut().zip(arguments).for_each(|(to, from)| *to = from);
    all
}

/// Executes a system call whose arguments are numbers or pointers.
macro_rules! system {
    ($number:expr $(, $argument:expr)*) => {
        // SAFETY: every use of this macro is in this file and passes valid arguments; pointers are to live values that are not otherwise
        // borrowed.
        unsafe { syscall($number, pad_arguments([$($argument as usize),*])) }
    };
}

/// Opens `name`, which must end with a NUL, relative to `folder`.
pub fn open_at(folder: &Descriptor, name: &[u8], flags: i32, mode: u32) -> Result<Descriptor, Errno> {
    loop {
        match system!(257, folder.number as isize, name.as_ptr(), flags, mode) {
            Err(EINTR) => {}
            Err(error) => return Err(error),
            Ok(number) => return Ok(Descriptor::new(number as i32)),
        }
    }
}

pub fn create_folder_at(folder: &Descriptor, name: &[u8], mode: u32) -> Result<(), Errno> {
    system!(258, folder.number as isize, name.as_ptr(), mode).map(drop)
}

pub fn close(number: i32) {
    // Even if this fails, the descriptor is closed.
    let _ = system!(3, number);
}

/// Moves a descriptor to the first free number from `least` on, or to a lower number if RLIMIT_NOFILE does not permit that.
pub fn move_descriptor_up(from: Descriptor, mut least: i32) -> Descriptor {
    const F_DUPFD_CLOEXEC: i32 = 1030;
    while least > from.number {
        match system!(72, from.number, F_DUPFD_CLOEXEC, least) {
            Ok(number) => return Descriptor::new(number as i32),
            Err(_) => least /= 2,
        }
    }
    from
}

/// Sets the position of the open file description. Reads and writes at explicit offsets ignore it.
pub fn set_position(file: &Descriptor, position: u64) -> Result<(), Errno> {
    const SEEK_SET: i32 = 0;
    system!(8, file.number, position, SEEK_SET).map(drop)
}

pub fn position(file: &Descriptor) -> Result<u64, Errno> {
    const SEEK_CUR: i32 = 1;
    system!(8, file.number, 0, SEEK_CUR).map(|position| position as u64)
}

pub fn read(file: &Descriptor, into: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match system!(0, file.number, into.as_mut_ptr(), into.len()) {
            Err(EINTR) => {}
            other => return other,
        }
    }
}

/// Reads up to `into.len()` bytes at `offset`. Returns the number of bytes read.
pub fn read_at(file: &Descriptor, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
    system!(17, file.number, into.as_mut_ptr(), into.len(), offset)
}

/// Writes all of `from` at `offset`.
pub fn write_at(file: &Descriptor, mut from: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !from.is_empty() {
        match system!(18, file.number, from.as_ptr(), from.len(), offset) {
            Ok(0) => return Err(ENOSPC),
            Ok(written) => {
                from = from.get(written..).unwrap_or(&[]);
                offset += written as u64;
            }
            Err(EINTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub fn stat(file: &Descriptor) -> Result<Stat, Errno> {
    stat_number(file.number)
}

pub fn stat_number(number: i32) -> Result<Stat, Errno> {
    let mut stat = Stat::default();
    system!(5, number, &raw mut stat)?;
    Ok(stat)
}

/// Returns how many bytes an unprivileged user can still write to the file system.
pub fn free_space(file: &Descriptor) -> Result<u64, Errno> {
    /// The kernel's `struct statfs`.
    #[repr(C)]
    #[derive(Default)]
    struct FileSystem {
        kind: u64,
        block_size: u64,
        blocks: u64,
        blocks_free: u64,
        blocks_available: u64,
        rest: [u64; 10],
    }
    let mut answer = FileSystem::default();
    system!(138, file.number, &raw mut answer)?;
    // Some virtual file systems report 0 blocks, whatever space they have.
    if answer.blocks == 0 {
        return Ok(u64::MAX);
    }
    Ok(answer.blocks_available.saturating_mul(answer.block_size))
}

/// Returns the maximum size of a file that this process may write (RLIMIT_FSIZE). Exceeding it would raise SIGXFSZ.
pub fn file_size_limit() -> u64 {
    const RLIMIT_FSIZE: i32 = 1;
    let mut limit = [u64::MAX; 2];
    match system!(302, 0, RLIMIT_FSIZE, 0, limit.as_mut_ptr()) {
        Ok(_) => limit[0],
        Err(_) => u64::MAX,
    }
}

pub fn resize(file: &Descriptor, size: u64) -> Result<(), Errno> {
    system!(77, file.number, size).map(drop)
}

/// Reserves space for `length` bytes at `offset`, extending the file if necessary.
pub fn reserve(file: &Descriptor, offset: u64, length: u64) -> Result<(), Errno> {
    system!(285, file.number, 0, offset, length).map(drop)
}

/// Locks (if `is_lock`) or unlocks one byte, without waiting.
pub fn lock_byte(file: &Descriptor, byte: i64, is_lock: bool) -> Result<(), Errno> {
    let lock = ByteLock::new(byte, if is_lock { F_WRLCK } else { F_UNLCK });
    system!(72, file.number, file.lock_command, &raw const lock).map(drop)
}

/// Returns true if a different open file description holds a lock on the byte.
pub fn is_locked(file: &Descriptor, byte: i64) -> Result<bool, Errno> {
    const F_OFD_GETLK: i32 = 36;
    let mut lock = ByteLock::new(byte, F_WRLCK);
    system!(72, file.number, F_OFD_GETLK, &raw mut lock)?;
    Ok(lock.kind != F_UNLCK)
}

const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;

/// The kernel's `struct flock`.
#[repr(C)]
struct ByteLock {
    kind: i16,
    whence: i16,
    start: i64,
    length: i64,
    pid: i32,
}

impl ByteLock {
    fn new(byte: i64, kind: i16) -> ByteLock {
        ByteLock { kind, whence: 0, start: byte, length: 1, pid: 0 }
    }
}

const PROT_READ_WRITE: i32 = 3;
const MAP_SHARED: i32 = 1;
const MAP_PRIVATE: i32 = 2;
const MAP_FIXED: i32 = 0x10;
const MAP_ANONYMOUS: i32 = 0x20;
const MAP_NORESERVE: i32 = 0x4000;

/// Address at which the runtime tries to place its next mapping; 0 before the first one.
static NEXT_MAPPING_ADDRESS: AtomicUsize = AtomicUsize::new(0);
/// Start of the address range for the runtime's mappings. It is below position-independent executables, and LLVM 22's address, memory and
/// thread sanitizers leave it to the program.
const MAPPINGS_START_ADDRESS: usize = 0x5500_0000_0000;
/// Number of bytes at the start of that range over which the images of a process spread their first mappings.
const MAPPINGS_SPREAD_BYTES: usize = 0x20_0000_0000;
const MAPPINGS_END_ADDRESS: usize = 0x5550_0000_0000;

/// Returns an address for a mapping away from the program's own mappings, so that the program's addresses do not depend on the runtime. A
/// program's behaviour may depend on addresses (hash tables of pointers), and the runtime's mappings differ between instrumented variants
/// of the program. If the address is not free, the kernel chooses a different one.
fn choose_mapping_address(length: usize) -> usize {
    let bytes = length.next_multiple_of(4096);
    let first = MAPPINGS_START_ADDRESS + ((&raw const NEXT_MAPPING_ADDRESS as usize) << 12) % MAPPINGS_SPREAD_BYTES;
    let _ = NEXT_MAPPING_ADDRESS.compare_exchange(0, first, Relaxed, Relaxed);
    let place = NEXT_MAPPING_ADDRESS.fetch_add(bytes, Relaxed);
    if place.checked_add(bytes).is_some_and(|end| end <= MAPPINGS_END_ADDRESS) { place } else { 0 }
}

/// Maps `length` bytes of a file at `over`, which must be the address of a mapping of the runtime's that is at least as long. Without
/// `over`, maps them away from the program's mappings.
pub fn map_file(file: &Descriptor, offset: u64, length: usize, over: Option<usize>) -> Result<usize, Errno> {
    let fixed = if over.is_some() { MAP_FIXED } else { 0 };
    let place = over.unwrap_or_else(|| choose_mapping_address(length));
    system!(9, place, length, PROT_READ_WRITE, MAP_SHARED | fixed, file.number, offset)
}

/// Maps a page of a file read-only over a page of the image.
pub fn map_page_to_read(file: &Descriptor, offset: u64, over: usize) -> Result<(), Errno> {
    const PROT_READ: i32 = 1;
    system!(9, over, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, file.number, offset).map(drop)
}

/// Maps the first `length` bytes of a file read-only, away from the program's mappings.
pub fn map_to_read(file: &Descriptor, length: usize) -> Result<usize, Errno> {
    const PROT_READ: i32 = 1;
    system!(9, choose_mapping_address(length), length, PROT_READ, MAP_SHARED, file.number, 0)
}

/// Opens an event counter for the calling thread. `attributes` points to a `struct perf_event_attr` (perf_event_open(2)).
pub fn open_event(attributes: *const u8) -> Result<Descriptor, Errno> {
    const CLOSE_ON_EXEC: i32 = 8;
    system!(298, attributes, 0, -1isize, -1isize, CLOSE_ON_EXEC).map(|number| Descriptor::new(number as i32))
}

/// Maps `length` zeroed bytes. `over` is as for [`map_file`].
pub fn map_zeroed_memory(length: usize, over: Option<usize>) -> Result<usize, Errno> {
    let fixed = if over.is_some() { MAP_FIXED } else { 0 };
    let place = over.unwrap_or_else(|| choose_mapping_address(length));
    system!(9, place, length, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1isize, 0)
}

/// Maps `length` zeroed bytes at a multiple of `alignment`, which must be a multiple of the page size.
pub fn map_zeroed_memory_aligned(length: usize, alignment: usize) -> Result<usize, Errno> {
    let wide = length.next_multiple_of(4096) + alignment;
    let start = map_zeroed_memory(wide, None)?;
    let (aligned, end) = (start.next_multiple_of(alignment), start + wide);
    let aligned_end = aligned + length.next_multiple_of(4096);
    if aligned > start {
        unmap(start, aligned - start);
    }
    if end > aligned_end {
        unmap(aligned_end, end - aligned_end);
    }
    Ok(aligned)
}

pub fn unmap(address: usize, length: usize) {
    let _ = system!(11, address, length);
}

/// Makes the memory read as zeros in a child of `fork` (MADV_WIPEONFORK, Linux 4.14).
pub fn wipe_on_fork(address: usize, length: usize) -> Result<(), Errno> {
    system!(28, address, length, 18).map(drop)
}

pub fn process_id() -> u32 {
    system!(39).unwrap_or(0) as u32
}

pub fn parent_id() -> u32 {
    system!(110).unwrap_or(0) as u32
}

pub fn thread_id() -> u32 {
    system!(186).unwrap_or(0) as u32
}

pub fn effective_user_id() -> u32 {
    system!(107).unwrap_or(0) as u32
}

/// Returns true if `process` has no thread with the ID `thread`.
pub fn thread_is_gone(process: u32, thread: u32) -> bool {
    system!(234, process, thread, 0) == Err(ESRCH)
}

/// Returns true if no thread in the system has this ID.
pub fn task_is_gone(thread: u32) -> bool {
    system!(200, thread, 0) == Err(ESRCH)
}

pub fn process_is_gone(process: u32) -> bool {
    system!(62, process, 0) == Err(ESRCH)
}

/// The kernel's `struct timespec`.
#[repr(C)]
pub struct TimeSpec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

pub fn sleep_ms(milliseconds: i64) {
    let time = TimeSpec { seconds: 0, nanoseconds: milliseconds * 1_000_000 };
    let _ = system!(35, &raw const time, 0);
}

/// Returns nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let mut time = TimeSpec { seconds: 0, nanoseconds: 0 };
    let _ = system!(228, 0, &raw mut time);
    (time.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(time.nanoseconds as u64)
}

/// Waits until `word` is woken, for at most `milliseconds`. Returns at once if `word` does not contain `value`.
pub fn futex_wait(word: *const u32, value: u32, milliseconds: i64) -> Result<(), Errno> {
    const FUTEX_WAIT_PRIVATE: i32 = 128;
    let time = TimeSpec { seconds: 0, nanoseconds: milliseconds * 1_000_000 };
    system!(202, word, FUTEX_WAIT_PRIVATE, value, &raw const time).map(drop)
}

/// Wakes one thread that waits for `word`.
pub fn futex_wake(word: *const u32) {
    const FUTEX_WAKE_PRIVATE: i32 = 129;
    let _ = system!(202, word, FUTEX_WAKE_PRIVATE, 1);
}

/// Sets the calling thread's signal mask and returns the previous one.
pub fn set_signal_mask(mask: u64) -> u64 {
    const SIG_SETMASK: i32 = 2;
    let mut before = 0u64;
    let _ = system!(14, SIG_SETMASK, &raw const mask, &raw mut before, size_of::<u64>());
    before
}

/// Returns true if the word at an address is readable. The kernel reads it as a signal set, and then rejects the invalid operation -1.
pub fn is_readable(address: usize) -> bool {
    system!(14, -1_i32, address, 0, size_of::<u64>()) != Err(Errno(14)) // EFAULT
}

/// Aborts the process like C's `abort`: sends SIGABRT to the calling thread, which a handler may catch, and afterwards terminates the
/// process in any case.
pub fn abort() {
    const SIGABRT: i32 = 6;
    /// The kernel's `struct sigaction`.
    #[repr(C)]
    struct KernelSignalAction {
        handler: usize,
        flags: u64,
        restorer: usize,
        mask: u64,
    }
    let _ = system!(234, process_id(), thread_id(), SIGABRT);
    let _ =
        system!(13, SIGABRT, core::ptr::from_ref(&KernelSignalAction { handler: 0, flags: 0, restorer: 0, mask: 0 }), 0, size_of::<u64>());
    set_signal_mask(!(1 << (SIGABRT - 1)));
    let _ = system!(234, process_id(), thread_id(), SIGABRT);
    let _ = system!(231, 134);
}

/// Writes to a descriptor if that would neither block nor raise SIGPIPE; otherwise does nothing.
pub fn write_if_ready(number: i32, text: &[u8]) {
    /// The kernel's `struct pollfd`.
    #[repr(C)]
    struct PollRequest {
        number: i32,
        events: i16,
        answer: i16,
    }
    const POLLOUT: i16 = 4;
    let mut poll = PollRequest { number, events: POLLOUT, answer: 0 };
    if system!(7, &raw mut poll, 1, 0) == Ok(1) && poll.answer == POLLOUT {
        let _ = system!(1, number, text.as_ptr(), text.len());
    }
}

/// Stores the path of the current folder, followed by a NUL, in `into`. Returns the length without the NUL.
pub fn current_folder(into: &mut [u8]) -> Result<usize, Errno> {
    system!(79, into.as_mut_ptr(), into.len()).map(|length| length.saturating_sub(1))
}

/// Returns the host name, followed by NULs.
pub fn host_name() -> [u8; 65] {
    let mut names = [[0u8; 65]; 6];
    let _ = system!(63, names.as_mut_ptr());
    names[1]
}
