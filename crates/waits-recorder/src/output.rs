//! Files of the recording: binary ones that are mapped piece by piece, and lines of text that are written whole.
//!
//! Mapped memory is the kernel's: it reaches the file however the process ends.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Size of a mapped piece. A multiple of every page size and record size.
const PIECE: usize = 192 * 1024;

/// A file that grows by mapped pieces of fixed-size records.
pub struct Records<T> {
    file: libc::c_int,
    offset: usize,
    piece: *mut u8,
    used: usize,
    record: core::marker::PhantomData<T>,
}

/// Writes to a file. Not by the C library's function of that name, which this library records.
pub fn write(file: libc::c_int, bytes: &[u8]) -> isize {
    // SAFETY: the bytes are readable.
    unsafe { libc::syscall(libc::SYS_write, file, bytes.as_ptr(), bytes.len()) as isize }
}

/// Reads from a file, in the same way.
pub fn read(file: libc::c_int, into: &mut [u8]) -> isize {
    // SAFETY: the bytes are writable.
    unsafe { libc::syscall(libc::SYS_read, file, into.as_mut_ptr(), into.len()) as isize }
}

impl<T> Records<T> {
    /// A new file, whose first `reserved` bytes are the caller's (by [`Records::start`]).
    pub fn create(path: &Path, reserved: usize) -> Option<Self> {
        // SAFETY: a C string; the flags make a new file.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC, 0o644) };
        if file < 0 {
            return None;
        }
        let mut records = Records { file, offset: 0, piece: null_mut(), used: reserved, record: core::marker::PhantomData };
        records.map().then_some(records)
    }

    /// The first mapped piece, while it is mapped.
    pub fn start(&self) -> *mut u8 {
        self.piece
    }

    /// Writes words at an offset of the file that need not be mapped.
    pub fn write_at<const N: usize>(&self, offset: usize, words: [u64; N]) {
        // SAFETY: the words are readable.
        unsafe { libc::pwrite(self.file, words.as_ptr().cast(), size_of_val(&words), offset as i64) };
    }

    /// Room for one more record; none where the disk is full.
    #[inline]
    pub fn next(&mut self) -> Option<*mut T> {
        if self.used + size_of::<T>() > PIECE && !self.advance() {
            return None;
        }
        // SAFETY: the piece has room for it.
        let place = unsafe { self.piece.add(self.used) };
        self.used += size_of::<T>();
        Some(place.cast())
    }

    /// Takes the newest record back: it is cleared. At most once after each [`Records::next`].
    pub fn back(&mut self) {
        self.used -= size_of::<T>();
        // SAFETY: the place that `next` gave.
        unsafe { self.piece.add(self.used).write_bytes(0, size_of::<T>()) };
    }

    #[cold]
    fn advance(&mut self) -> bool {
        // SAFETY: the piece is this one's. Records that are still open are at most two, and are given up (see `thread.rs`).
        unsafe { libc::munmap(self.piece.cast(), PIECE) };
        self.offset += PIECE;
        self.used = 0;
        self.map()
    }

    fn map(&mut self) -> bool {
        self.piece = null_mut();
        // Blocks are allocated now: a full disk is an error here, not a signal later.
        // SAFETY: the file is open.
        let has_room = unsafe { libc::posix_fallocate(self.file, self.offset as i64, PIECE as i64) } == 0;
        if has_room {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new shared mapping of the file.
            let place = unsafe { libc::mmap(null_mut(), PIECE, protection, libc::MAP_SHARED, self.file, self.offset as i64) };
            if place != libc::MAP_FAILED {
                self.piece = place.cast();
                return true;
            }
        } else {
            say_full();
        }
        self.used = PIECE;
        false
    }

    /// Ends the file where it is used; later records are dropped.
    pub fn close(&mut self) {
        if !self.piece.is_null() {
            // SAFETY: the file is this one's.
            unsafe { libc::ftruncate(self.file, (self.offset + self.used) as i64) };
        }
        self.forget();
    }

    /// Gives the mapping and the file up; in a forked child they are the parent's, too.
    pub fn forget(&mut self) {
        // SAFETY: the piece, if there is one, and the file are this one's, and are not used afterwards.
        unsafe {
            if !self.piece.is_null() {
                libc::munmap(self.piece.cast(), PIECE);
            }
            libc::close(self.file);
        }
        self.piece = null_mut();
        self.used = PIECE;
        self.file = -1;
    }
}

/// Says on standard error, once in a process, that the recording has no room.
fn say_full() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.swap(true, Relaxed) {
        let text = b"trodden: no room for the recording, what threads call from here on is missing in it: free space, or name a folder \
            elsewhere by --output\n";
        write(libc::STDERR_FILENO, text);
    }
}

/// Private memory, until [`release`].
pub fn memory<T>(count: usize) -> Option<*mut T> {
    map(count, libc::MAP_PRIVATE)
}

/// Memory that this process shares with the children it makes.
pub fn memory_shared<T>() -> Option<*mut T> {
    map(1, libc::MAP_SHARED)
}

fn map<T>(count: usize, sharing: libc::c_int) -> Option<*mut T> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping, zeroed by the kernel.
    let place = unsafe { libc::mmap(null_mut(), count * size_of::<T>(), protection, sharing | libc::MAP_ANONYMOUS, -1, 0) };
    (place != libc::MAP_FAILED).then_some(place.cast())
}

/// Gives memory of [`memory`] back.
pub fn release<T>(place: *mut T, count: usize) {
    // SAFETY: it was mapped with this size.
    unsafe { libc::munmap(place.cast(), count * size_of::<T>()) };
}

/// A path, or a line of text, of bounded length.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}
/// A path, with its terminating zero.
pub type Path = Text<4096>;
/// A line.
pub type OutputLine = Text<4096>;

impl<const N: usize> Text<N> {
    /// Nothing.
    pub const fn new() -> Self {
        Text { bytes: [0; N], length: 0 }
    }

    /// Adds bytes, as far as there is room (one byte is kept for the zero).
    pub fn add(&mut self, bytes: &[u8]) -> &mut Self {
        let count = bytes.len().min(N - 1 - self.length);
        self.bytes[self.length..self.length + count].copy_from_slice(&bytes[..count]);
        self.length += count;
        self
    }

    /// Adds a number.
    pub fn number(&mut self, mut value: u64) -> &mut Self {
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

    /// Nothing is left.
    pub fn clear(&mut self) {
        self.bytes[..self.length].fill(0);
        self.length = 0;
    }

    /// Whether another `count` bytes fit.
    pub fn has_room(&self, count: usize) -> bool {
        self.length + count < N
    }

    /// What was added.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// As a C string.
    pub fn as_ptr(&self) -> *const libc::c_char {
        self.bytes.as_ptr().cast()
    }

    /// Writes it to a file in one call.
    pub fn write(&self, file: libc::c_int) {
        write(file, &self.bytes[..self.length]);
    }
}
