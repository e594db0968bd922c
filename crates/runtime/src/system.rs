//! System calls, straight to the kernel (Linux man pages, section 2; numbers of x86-64). Nothing here touches `errno`.
//!
//! Invariant: no function blocks for an unbounded time.

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// An error number of the kernel.
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

/// A file descriptor that is closed when dropped.
pub struct Descriptor {
    number: i32,
    /// [`LOCK_FOR_DESCRIPTION`] or [`LOCK_FOR_PROCESS`].
    lock_command: i32,
}

/// Takes locks that belong to the open file description (F_OFD_SETLK, see fcntl(2)).
const LOCK_FOR_DESCRIPTION: i32 = 37;
/// Takes locks that belong to the process, until it closes any descriptor of that file (F_SETLK). They exclude the others, and are
/// excluded by them.
const LOCK_FOR_PROCESS: i32 = 6;

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.number >= 0 {
            close(self.number);
        }
    }
}

impl Descriptor {
    /// The current folder; closing it does nothing.
    pub const CURRENT_FOLDER: Descriptor = Descriptor::new(-100);

    const fn new(number: i32) -> Descriptor {
        Descriptor { number, lock_command: LOCK_FOR_DESCRIPTION }
    }

    /// Leaves the number alone: another file has it by now.
    pub fn forget(self) {
        core::mem::forget(self);
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.number
    }

    /// From now on, locks belong to this process: its parent uses the same description.
    pub fn lock_for_process(&mut self) {
        self.lock_command = LOCK_FOR_PROCESS;
    }

    /// Whether locks belong to this process, and thus do not outlive the descriptor.
    pub fn locks_for_process(&self) -> bool {
        self.lock_command == LOCK_FOR_PROCESS
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

/// `struct stat` of the kernel.
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
    /// Whether it is a regular file.
    pub fn is_regular(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// Runs system call `number`.
///
/// # Safety
/// The arguments must be what that call expects; memory it writes must be writable and not otherwise borrowed.
unsafe fn call(number: usize, [a, b, c, d, e, f]: [usize; 6]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11 only; memory is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

/// The arguments given, zeros after them.
fn six<const N: usize>(given: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    all.iter_mut().zip(given).for_each(|(to, from)| *to = from);
    all
}

/// Runs a system call with numbers, or pointers to live values of the type that it expects, as arguments.
macro_rules! system {
    ($number:expr $(, $argument:expr)*) => {
        // SAFETY: every use in this file passes what the call expects, and pointers to values that live and are its alone.
        unsafe { call($number, six([$($argument as usize),*])) }
    };
}

/// Opens `name` (ends in NUL) in `folder`.
pub fn open_at(folder: &Descriptor, name: &[u8], flags: i32, mode: u32) -> Result<Descriptor, Errno> {
    loop {
        match system!(257, folder.number as isize, name.as_ptr(), flags, mode) {
            Err(EINTR) => {}
            Err(error) => return Err(error),
            Ok(number) => return Ok(Descriptor::new(number as i32)),
        }
    }
}

pub fn make_folder_at(folder: &Descriptor, name: &[u8], mode: u32) -> Result<(), Errno> {
    system!(258, folder.number as isize, name.as_ptr(), mode).map(drop)
}

pub fn close(number: i32) {
    // Whatever it answers, the descriptor is gone.
    let _ = system!(3, number);
}

/// Moves a descriptor to the first free number from `least` on, or to a lower one where the limit (RLIMIT_NOFILE) is less.
pub fn move_up(from: Descriptor, mut least: i32) -> Descriptor {
    const F_DUPFD_CLOEXEC: i32 = 1030;
    while least > from.number {
        match system!(72, from.number, F_DUPFD_CLOEXEC, least) {
            Ok(number) => return Descriptor::new(number as i32),
            Err(_) => least /= 2,
        }
    }
    from
}

/// Sets the position of the description, which reads and writes at an offset do not use.
pub fn set_position(file: &Descriptor, position: u64) -> Result<(), Errno> {
    const SEEK_SET: i32 = 0;
    system!(8, file.number, position, SEEK_SET).map(drop)
}

/// The position of the description.
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

/// Reads up to `length` bytes at `offset` of the file; `into` must be as long.
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

/// Bytes that an unprivileged user may still write to the file system of `file`.
pub fn free_space(file: &Descriptor) -> Result<u64, Errno> {
    /// `struct statfs` of the kernel.
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
    // Some virtual file systems say that they have no blocks at all: then there is nothing to compare with.
    if answer.blocks == 0 {
        return Ok(u64::MAX);
    }
    Ok(answer.blocks_available.saturating_mul(answer.block_size))
}

/// The largest file that this process may make (RLIMIT_FSIZE). Growing beyond it would raise SIGXFSZ.
pub fn file_size_limit() -> u64 {
    const RLIMIT_FSIZE: i32 = 1;
    let mut limit = [u64::MAX; 2];
    match system!(302, 0, RLIMIT_FSIZE, 0, limit.as_mut_ptr()) {
        Ok(_) => limit[0],
        Err(_) => u64::MAX,
    }
}

/// Makes the file `size` bytes long.
pub fn resize(file: &Descriptor, size: u64) -> Result<(), Errno> {
    system!(77, file.number, size).map(drop)
}

/// Reserves space for `length` bytes at `offset`, making the file longer where needed.
pub fn reserve(file: &Descriptor, offset: u64, length: u64) -> Result<(), Errno> {
    system!(285, file.number, 0, offset, length).map(drop)
}

/// Takes (`exclusive`) or gives back the lock of one byte. Never waits.
pub fn lock_byte(file: &Descriptor, byte: i64, exclusive: bool) -> Result<(), Errno> {
    let lock = ByteLock::new(byte, if exclusive { F_WRLCK } else { F_UNLCK });
    system!(72, file.number, file.lock_command, &raw const lock).map(drop)
}

/// Whether there is a lock on that byte that does not belong to this open file description.
pub fn is_locked(file: &Descriptor, byte: i64) -> Result<bool, Errno> {
    const F_OFD_GETLK: i32 = 36;
    let mut lock = ByteLock::new(byte, F_WRLCK);
    system!(72, file.number, F_OFD_GETLK, &raw mut lock)?;
    Ok(lock.kind != F_UNLCK)
}

const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;

/// `struct flock` of the kernel.
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

/// Where the next mapping of ours goes, if the kernel finds room there; 0: nothing was mapped yet.
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);
/// Our mappings begin here: below where position-independent executables are loaded, in what the address, memory and thread sanitizers
/// (LLVM 22) all leave to the program.
const PLACES: usize = 0x5500_0000_0000;
/// Images of a process begin at places of their own within so many bytes.
const PLACES_OF_IMAGES: usize = 0x20_0000_0000;
const PLACES_END: usize = 0x5550_0000_0000;

/// Address to ask for: away from the subject's own mappings, whose addresses are then those that they have without ours. Programs may go by
/// addresses (hash tables of pointers), and how much is mapped here differs from variant to variant of a program.
/// The kernel takes another address where this one is not free.
fn place_for(length: usize) -> usize {
    let bytes = length.next_multiple_of(4096);
    let first = PLACES + ((&raw const NEXT_PLACE as usize) << 12) % PLACES_OF_IMAGES;
    let _ = NEXT_PLACE.compare_exchange(0, first, Relaxed, Relaxed);
    let place = NEXT_PLACE.fetch_add(bytes, Relaxed);
    if place.checked_add(bytes).is_some_and(|end| end <= PLACES_END) { place } else { 0 }
}

/// Maps `length` bytes of the file; at address `over`, which is one of our own mappings of at least that length, or away from the
/// subject's.
pub fn map_file(file: &Descriptor, offset: u64, length: usize, over: Option<usize>) -> Result<usize, Errno> {
    let fixed = if over.is_some() { MAP_FIXED } else { 0 };
    let place = over.unwrap_or_else(|| place_for(length));
    system!(9, place, length, PROT_READ_WRITE, MAP_SHARED | fixed, file.number, offset)
}

/// Maps a page of the file, to be read only, over a page of ours.
pub fn map_page_to_read(file: &Descriptor, offset: u64, over: usize) -> Result<(), Errno> {
    const PROT_READ: i32 = 1;
    system!(9, over, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, file.number, offset).map(drop)
}

/// Maps `length` bytes of the file, to be read only, away from the subject's mappings.
pub fn map_to_read(file: &Descriptor, length: usize) -> Result<usize, Errno> {
    const PROT_READ: i32 = 1;
    system!(9, place_for(length), length, PROT_READ, MAP_SHARED, file.number, 0)
}

/// Opens a counter of the calling thread's events, as its `struct perf_event_attr` says (perf_event_open(2)).
pub fn open_event(attributes: *const u8) -> Result<Descriptor, Errno> {
    const CLOSE_ON_EXEC: i32 = 8;
    system!(298, attributes, 0, -1isize, -1isize, CLOSE_ON_EXEC).map(|number| Descriptor::new(number as i32))
}

/// Maps `length` bytes of zeros; `over` as in [`map_file`].
pub fn map_zeros(length: usize, over: Option<usize>) -> Result<usize, Errno> {
    let fixed = if over.is_some() { MAP_FIXED } else { 0 };
    let place = over.unwrap_or_else(|| place_for(length));
    system!(9, place, length, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1isize, 0)
}

/// The same at a multiple of `alignment`, which is one of the page size.
pub fn map_zeros_aligned(length: usize, alignment: usize) -> Result<usize, Errno> {
    let wide = length.next_multiple_of(4096) + alignment;
    let start = map_zeros(wide, None)?;
    let (aligned, end) = (start.next_multiple_of(alignment), start + wide);
    let behind = aligned + length.next_multiple_of(4096);
    if aligned > start {
        unmap(start, aligned - start);
    }
    if end > behind {
        unmap(behind, end - behind);
    }
    Ok(aligned)
}

/// Removes a mapping of ours.
pub fn unmap(address: usize, length: usize) {
    let _ = system!(11, address, length);
}

/// Has a child of `fork` find zeros at that page (MADV_WIPEONFORK, Linux 4.14).
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

pub fn effective_user() -> u32 {
    system!(107).unwrap_or(0) as u32
}

/// Whether process `process` has no thread `thread` (any more).
pub fn thread_is_gone(process: u32, thread: u32) -> bool {
    system!(234, process, thread, 0) == Err(ESRCH)
}

/// Whether there is no thread of that id in any process.
pub fn task_is_gone(thread: u32) -> bool {
    system!(200, thread, 0) == Err(ESRCH)
}

/// Whether there is no such process.
pub fn process_is_gone(process: u32) -> bool {
    system!(62, process, 0) == Err(ESRCH)
}

/// The kernel's `struct timespec`.
#[repr(C)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: i64,
}

pub fn sleep_ms(milliseconds: i64) {
    let time = Time { seconds: 0, nanoseconds: milliseconds * 1_000_000 };
    let _ = system!(35, &raw const time, 0);
}

/// Nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    let _ = system!(228, 0, &raw mut time);
    (time.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(time.nanoseconds as u64)
}

/// Waits until another thread wakes `word`, if it still holds `value`; at most `milliseconds`.
pub fn futex_wait(word: *const u32, value: u32, milliseconds: i64) -> Result<(), Errno> {
    const FUTEX_WAIT_PRIVATE: i32 = 128;
    let time = Time { seconds: 0, nanoseconds: milliseconds * 1_000_000 };
    system!(202, word, FUTEX_WAIT_PRIVATE, value, &raw const time).map(drop)
}

/// Wakes one who waits for `word`.
pub fn futex_wake(word: *const u32) {
    const FUTEX_WAKE_PRIVATE: i32 = 129;
    let _ = system!(202, word, FUTEX_WAKE_PRIVATE, 1);
}

/// Sets the calling thread's signal mask and returns the one before.
pub fn set_signal_mask(mask: u64) -> u64 {
    const SIG_SETMASK: i32 = 2;
    let mut before = 0u64;
    let _ = system!(14, SIG_SETMASK, &raw const mask, &raw mut before, size_of::<u64>());
    before
}

/// Whether the word at an address can be read: the kernel reads it, and changes nothing since it does not know the operation.
pub fn is_readable(address: usize) -> bool {
    system!(14, -1_i32, address, 0, size_of::<u64>()) != Err(Errno(14)) // EFAULT
}

/// Ends the process as `abort` of C does: by SIGABRT to the calling thread, which a handler may see; then, whatever that did, for certain.
pub fn abort() {
    const SIGABRT: i32 = 6;
    /// `struct sigaction` of the kernel.
    #[repr(C)]
    struct Action {
        handler: usize,
        flags: u64,
        restorer: usize,
        mask: u64,
    }
    let _ = system!(234, process_id(), thread_id(), SIGABRT);
    let _ = system!(13, SIGABRT, core::ptr::from_ref(&Action { handler: 0, flags: 0, restorer: 0, mask: 0 }), 0, size_of::<u64>());
    set_signal_mask(!(1 << (SIGABRT - 1)));
    let _ = system!(234, process_id(), thread_id(), SIGABRT);
    let _ = system!(231, 134);
}

/// Writes to a descriptor if that needs no waiting and has a reader; otherwise does nothing: neither SIGPIPE nor a full pipe can harm.
pub fn write_if_ready(number: i32, text: &[u8]) {
    /// `struct pollfd`.
    #[repr(C)]
    struct Poll {
        number: i32,
        events: i16,
        answer: i16,
    }
    const POLLOUT: i16 = 4;
    let mut poll = Poll { number, events: POLLOUT, answer: 0 };
    if system!(7, &raw mut poll, 1, 0) == Ok(1) && poll.answer == POLLOUT {
        let _ = system!(1, number, text.as_ptr(), text.len());
    }
}

/// The current folder's path with its NUL; its length without it.
pub fn current_folder(into: &mut [u8]) -> Result<usize, Errno> {
    system!(79, into.as_mut_ptr(), into.len()).map(|length| length.saturating_sub(1))
}

/// The host's name, up to the first NUL.
pub fn host_name() -> [u8; 65] {
    let mut names = [[0u8; 65]; 6];
    let _ = system!(63, names.as_mut_ptr());
    names[1]
}
