//! Rings of symbols, which threads of the traced program write and the tracer reads. They are in an anonymous file that the program has
//! mapped and the tracer holds open.
//!
//! One thread alone writes a ring, and it is read only while that thread is stopped or gone, so that nothing is lost and no lock is needed.
//! A ring outlives the program, so that the symbols of a killed program are read as well.
//!
//! [`ring_layout`](crate::ring_layout) describes a ring.

use crate::CollectError;
use crate::memory::Memory;
use crate::ptrace::Tid;
use crate::ring_layout::{RING_CURSOR_OFFSET, RING_SIZE, RING_SYMBOLS_OFFSET, SAVED_REGISTERS_OFFSET};
use crate::subject::{MIN_INJECTED_AREA_SIZE, TracedProcess};
use object::pod::bytes_of_slice_mut;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

/// Distance in bytes between the starts of two rings.
pub const RING_STRIDE: u64 = RING_SIZE + 4096;
/// Number of rings, and thus the maximum number of threads at a time. Unused rings take address space but no memory.
pub const MAX_RINGS: u64 = 4096;

#[derive(Debug)]
pub struct RingBuffers {
    file: File,
    start: u64,
    free: Vec<u64>,
    /// Buffer for the symbols that are read, reused because fresh memory costs page faults.
    symbols: Vec<u32>,
}

/// The number of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingBufferIndex(u64);

impl RingBuffers {
    /// Maps the rings into a process. `place` is the address of a buffer for a path, and `stub` is the address of the system call stub.
    ///
    /// # Errors
    /// The process cannot open or map the file.
    pub fn map(subject: &TracedProcess, place: u64, stub: u64) -> Result<Self, CollectError> {
        // SAFETY: the name is a C string with a terminating zero, and the new descriptor is owned by the `File` alone.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"trodden rings".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor == -1 {
                return Err(io::Error::last_os_error().into());
            }
            File::from_raw_fd(descriptor)
        };
        file.set_len(MAX_RINGS * RING_STRIDE)?;
        let path = format!("/proc/{}/fd/{}\0", std::process::id(), file.as_raw_fd());
        subject.memory.write(place, path.as_bytes())?;
        let call = |number, arguments| subject.inject_system_call(subject.process, Some(stub), number, arguments);
        let failure = |what: &str, result: i64| CollectError::Unexpected {
            what: format!(
                "it cannot {what} the ring buffers of the trampolines ({}). Use `--collector ptrace`",
                io::Error::from_raw_os_error(-result as i32)
            ),
        };
        let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u64;
        let opened = call(libc::SYS_openat, [libc::AT_FDCWD as i64 as u64, place, flags, 0, 0, 0])?;
        if opened < 0 {
            return Err(failure("open", opened));
        }
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE) as u64;
        let start =
            call(libc::SYS_mmap, [ring_address(&subject.injected_area()), MAX_RINGS * RING_STRIDE, protection, flags, opened as u64, 0])?;
        call(libc::SYS_close, [opened as u64, 0, 0, 0, 0, 0])?;
        if (-4095..0).contains(&start) {
            return Err(failure("map", start));
        }
        Ok(Self { file, start: start as u64, free: (0..MAX_RINGS).rev().collect(), symbols: Vec::new() })
    }

    pub fn span(&self) -> Range<u64> {
        self.start..self.start + MAX_RINGS * RING_STRIDE
    }

    /// Assigns a free ring, which is empty.
    ///
    /// # Errors
    /// All rings are in use.
    pub fn acquire(&mut self) -> Result<RingBufferIndex, CollectError> {
        let what = || CollectError::Unexpected { what: format!("it has more than {MAX_RINGS} threads. Use `--collector ptrace`") };
        let ring = RingBufferIndex(self.free.pop().ok_or_else(what)?);
        self.set_cursor(ring, -(RING_SIZE as i64))?;
        Ok(ring)
    }

    pub fn release(&mut self, ring: RingBufferIndex) {
        self.free.push(ring.0);
    }

    pub fn address(&self, ring: RingBufferIndex) -> u64 {
        self.start + ring.0 * RING_STRIDE
    }

    /// Reads a ring's cursor: the negative distance in bytes from the next free symbol to the end of the ring.
    pub fn cursor(&self, ring: RingBufferIndex) -> io::Result<i64> {
        Ok((self.word(ring, RING_CURSOR_OFFSET)? as i64).clamp(-(RING_SIZE as i64), 0))
    }

    pub fn set_cursor(&self, ring: RingBufferIndex, cursor: i64) -> io::Result<()> {
        self.file.write_all_at(&cursor.to_le_bytes(), ring.0 * RING_STRIDE + RING_CURSOR_OFFSET)
    }

    pub fn read_saved_rcx(&self, ring: RingBufferIndex) -> io::Result<u64> {
        self.word(ring, SAVED_REGISTERS_OFFSET)
    }

    pub fn take_symbols(&mut self, ring: RingBufferIndex) -> io::Result<&[u32]> {
        let length = RING_SIZE as i64 + self.cursor(ring)?;
        const { assert!(cfg!(target_endian = "little")) };
        self.symbols.resize(length as usize / 4, 0);
        self.file.read_exact_at(bytes_of_slice_mut(&mut self.symbols), ring.0 * RING_STRIDE + RING_SYMBOLS_OFFSET)?;
        self.set_cursor(ring, -(RING_SIZE as i64))?;
        Ok(&self.symbols)
    }

    pub fn set_word(&self, ring: RingBufferIndex, at: u64, word: u64) -> io::Result<()> {
        self.file.write_all_at(&word.to_le_bytes(), ring.0 * RING_STRIDE + at)
    }

    /// Reads the word at an offset in a ring.
    pub fn word(&self, ring: RingBufferIndex, at: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, ring.0 * RING_STRIDE + at)?;
        Ok(u64::from_le_bytes(word))
    }
}

/// Chooses the address of the rings: near the area of slots, where they do not change the addresses that the kernel chooses for other
/// mappings.
fn ring_address(area: &Range<u64>) -> u64 {
    // Size in bytes of the reserved address range, which is more than all rings need.
    const RESERVED_ADDRESS_SPACE_BYTES: u64 = 8 << 30;
    const { assert!(MAX_RINGS * RING_STRIDE < RESERVED_ADDRESS_SPACE_BYTES) };
    if area.start > 4 * RESERVED_ADDRESS_SPACE_BYTES {
        area.start - RESERVED_ADDRESS_SPACE_BYTES
    } else {
        area.end + MIN_INJECTED_AREA_SIZE
    }
}

/// Reads the code of an image in memory: start address and bytes of each range.
pub fn code_bytes(memory: &Memory, code: &[Range<u64>]) -> io::Result<Vec<(u64, Vec<u8>)>> {
    let read = |range: &Range<u64>| {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        memory.read(range.start, &mut bytes)?;
        Ok((range.start, bytes))
    };
    code.iter().map(read).collect()
}

/// Returns the instruction pointers of a process's stopped threads.
pub fn thread_positions(process: Tid) -> Vec<u64> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let threads = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    threads.filter_map(|thread| crate::ptrace::instruction_pointer(thread).ok()).collect()
}
