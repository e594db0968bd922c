//! System calls on files, and text buffers of fixed capacity.
//!
//! The C library's file functions are avoided, because they are cancellation points and because this library records some of them.

use core::sync::atomic::{AtomicUsize, Ordering};
use libc::c_int;

/// Opens a file. Returns its descriptor, or -1 on failure.
pub fn open_with_system_call(path: *const libc::c_char, flags: c_int) -> c_int {
    /// Permissions of new files. Only their owner may read them, because they contain file names and addresses of the program.
    const FILE_MODE: c_int = 0o600;
    // SAFETY: callers pass a C string.
    unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, FILE_MODE) as c_int }
}

pub fn close(file: c_int) {
    // SAFETY: callers pass a descriptor that they have opened.
    unsafe { libc::syscall(libc::SYS_close, file) };
}

pub fn write(file: c_int, bytes: &[u8]) -> isize {
    // SAFETY: the pointer and the length describe a slice.
    unsafe { libc::syscall(libc::SYS_write, file, bytes.as_ptr(), bytes.len()) as isize }
}

pub fn read(file: c_int, into: &mut [u8]) -> isize {
    // SAFETY: the pointer and the length describe a mutable slice.
    unsafe { libc::syscall(libc::SYS_read, file, into.as_mut_ptr(), into.len()) as isize }
}

/// Reads the beginning of an open file. Returns the number of bytes read.
pub fn read_start(file: c_int, into: &mut [u8]) -> usize {
    // SAFETY: the pointer and the length describe a mutable slice.
    let count = unsafe { libc::syscall(libc::SYS_pread64, file, into.as_mut_ptr(), into.len(), 0) };
    count.max(0) as usize
}

/// Reads the beginning of a file with a single system call. Returns the number of bytes read.
pub fn read_file(path: &core::ffi::CStr, into: &mut [u8]) -> usize {
    let file = open_with_system_call(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
    if file < 0 {
        return 0;
    }
    let count = read(file, into);
    close(file);
    count.max(0) as usize
}

/// Returns the maximum size in bytes to which this process may extend files (RLIMIT_FSIZE).
pub fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer refers to the local variable `limit`.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

pub fn preserving_errno<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: `__errno_location` points to the calling thread's errno.
    let error = unsafe { *libc::__errno_location() };
    let result = work();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    result
}

pub fn page_size() -> usize {
    static PAGE_SIZE: AtomicUsize = AtomicUsize::new(0);
    if PAGE_SIZE.load(Ordering::Relaxed) == 0 {
        // SAFETY: `sysconf` has no pointer arguments.
        PAGE_SIZE.store(unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }, Ordering::Relaxed);
    }
    PAGE_SIZE.load(Ordering::Relaxed)
}

pub struct BoundedText<const N: usize> {
    bytes: [u8; N],
    length: usize,
}
/// A path as text; unused bytes are zero, so a terminating zero follows it.
pub type Path = BoundedText<4096>;
pub type OutputLine = BoundedText<4096>;

impl<const N: usize> BoundedText<N> {
    pub const fn new() -> Self {
        BoundedText { bytes: [0; N], length: 0 }
    }

    /// Appends as many of the bytes as fit. One byte stays free for the terminating zero.
    pub fn add(&mut self, bytes: &[u8]) -> &mut Self {
        let count = bytes.len().min(N - 1 - self.length);
        self.bytes[self.length..self.length + count].copy_from_slice(&bytes[..count]);
        self.length += count;
        self
    }

    /// Appends a number in decimal.
    pub fn add_number(&mut self, mut value: u64) -> &mut Self {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        self.add(&digits[at..])
    }

    pub fn clear(&mut self) {
        self.bytes[..self.length].fill(0);
        self.length = 0;
    }

    pub fn has_room(&self, count: usize) -> bool {
        self.length + count < N
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Returns the text as a pointer to a C string.
    pub fn as_ptr(&self) -> *const libc::c_char {
        self.bytes.as_ptr().cast()
    }
}
