//! The file of the threads of a program and its forked children: extents that one process has mapped, with the chunks of its threads
//! (`trodden_wire::waits`).
//!
//! Mapped memory is the kernel's: it reaches the file however the process ends. A chunk costs a system call only where an extent is full,
//! and a process or a thread makes no file. In an extent chunks follow each other without gaps, each with its header before the next one
//! begins: the lock orders them.

use crate::lock::Lock;
use crate::output::{self, keeping_errno, page_size};
use crate::own_file::OwnFile;
use crate::{memory, naming};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use trodden_wire::waits::{CHUNK_ALIGNMENT, CHUNK_HEADER_SIZE, ChunkHeader, EXTENT_HEADER_SIZE, ExtentHeader, ThreadHeader, chunk_kind};

/// Sizes of a process's first extents, and of all others. Multiples of the usual page sizes.
const EXTENTS: [usize; 4] = [4 << 10, 32 << 10, 128 << 10, 256 << 10];
/// Size of a thread's first chunk of a kind. Each further one is larger by the factor [`GROWTH`], up to [`MAX_SIZE`].
pub const FIRST_SIZE: usize = 544;
/// See [`FIRST_SIZE`].
pub const GROWTH: usize = 4;
/// See [`FIRST_SIZE`].
pub const MAX_SIZE: usize = EXTENTS[3];
/// A rest of an extent that is smaller gets no chunk.
const MIN_SIZE: usize = 480;

/// Size of the file, in memory that the program shares with its forked children. None: the file is not open.
static SIZE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// A mapped part of the file. It lies in a page of its own behind the mapping.
struct Extent {
    base: *mut u8,
    size: usize,
    /// Where it is in the file.
    offset: u64,
    /// Open chunks; one more while it is the newest.
    users: usize,
    next: *mut Extent,
    previous: *mut Extent,
}

/// A chunk that a thread writes to.
pub struct Chunk {
    extent: *mut Extent,
    /// The first byte behind its header.
    pub start: *mut u8,
    /// Bytes behind its header.
    pub size: usize,
}

struct ThreadsFile {
    file: OwnFile,
    /// Extents of this process so far.
    count: usize,
    newest: *mut Extent,
    /// Bytes of the newest extent that are used.
    used: usize,
    /// Threads of this process so far.
    threads: u32,
}

impl ThreadsFile {
    const NONE: ThreadsFile = ThreadsFile { file: OwnFile::NONE, count: 0, newest: null_mut(), used: 0, threads: 0 };
}

static STATE: Lock<ThreadsFile> = Lock::new(ThreadsFile::NONE);

/// Makes the file. False if that is not possible.
pub fn open() -> bool {
    let file = naming::path(b".threads").and_then(|path| OwnFile::create(&path, 0));
    let (Some(file), Some(size)) = (file, memory::memory_shared::<AtomicU64>()) else { return false };
    SIZE.store(size, Ordering::Release);
    STATE.with(|state| state.file = file);
    true
}

/// Adds a thread: gives its number in the process, and where its header is in the file.
pub fn add_thread(header: ThreadHeader) -> Option<(u32, u64)> {
    STATE.with(|state| {
        let size = CHUNK_HEADER_SIZE + size_of::<ThreadHeader>();
        let thread = state.threads;
        let chunk = state.chunk(ChunkHeader::new(chunk_kind::THREAD, thread, 0, size as u32), size)?;
        state.threads += 1;
        // SAFETY: the chunk has this size.
        let offset = unsafe {
            chunk.start.cast::<ThreadHeader>().write(header);
            (*chunk.extent).offset + chunk.start.offset_from((*chunk.extent).base) as u64
        };
        state.release(chunk);
        Some((thread, offset))
    })
}

/// Room for a thread's records of a kind, from number `first` on. Smaller where an extent ends. None where the disk is full.
pub fn add(kind: u32, thread: u32, first: u32, size: usize) -> Option<Chunk> {
    STATE.with(|state| state.chunk(ChunkHeader::new(kind, thread, first, size as u32), MIN_SIZE))
}

/// Gives a chunk up that is written.
pub fn release(chunk: Chunk) {
    STATE.with(|state| state.release(chunk));
}

/// Writes words at an offset of the file that need not be mapped.
pub fn write_at<const N: usize>(offset: u64, words: [u64; N]) {
    // Not while the lock is held: a thread that begins waits for it.
    if let Some((file, _)) = STATE.with(|state| state.file.descriptor(path)) {
        // SAFETY: the words are readable.
        keeping_errno(|| unsafe { libc::syscall(libc::SYS_pwrite64, file, words.as_ptr(), size_of_val(&words), offset) });
    }
}

/// A forked child: the file is its own, too, and the extents are its parent's.
pub fn begin_child() {
    let parents = STATE.begin_child(ThreadsFile::NONE);
    let mut extent = parents.newest;
    while !extent.is_null() {
        // SAFETY: the parent's list, which is in this process's own pages.
        let next = unsafe { (*extent).previous };
        unmap(extent);
        extent = next;
    }
    STATE.with(|state| state.file = parents.file);
}

fn path() -> Option<output::Path> {
    naming::path(b".threads")
}

impl ThreadsFile {
    /// The next chunk, of the size in its header, or of the rest of the extent if that is at least `least`.
    fn chunk(&mut self, header: ChunkHeader, least: usize) -> Option<Chunk> {
        if self.rest() < least && !self.extend() {
            return None;
        }
        let size = (header.size as usize).next_multiple_of(CHUNK_ALIGNMENT).min(self.rest());
        let header = ChunkHeader::new(header.kind, header.thread, header.first, size as u32);
        // SAFETY: the newest extent is mapped, and has room for the chunk.
        let place = unsafe { (*self.newest).base.add(self.used) };
        // SAFETY: as above.
        unsafe {
            place.cast::<ChunkHeader>().write(header);
            (*self.newest).users += 1;
        }
        self.used += size;
        // SAFETY: a chunk is larger than its header.
        Some(Chunk { extent: self.newest, start: unsafe { place.add(CHUNK_HEADER_SIZE) }, size: size - CHUNK_HEADER_SIZE })
    }

    /// Bytes of the newest extent that are not used.
    fn rest(&self) -> usize {
        // SAFETY: the newest extent is mapped.
        if self.newest.is_null() { 0 } else { unsafe { (*self.newest).size - self.used } }
    }

    fn release(&mut self, chunk: Chunk) {
        self.leave(chunk.extent);
    }

    fn leave(&mut self, extent: *mut Extent) {
        // SAFETY: an extent with a user is mapped; the list is this state's.
        unsafe {
            (*extent).users -= 1;
            if (*extent).users > 0 {
                return;
            }
            if !(*extent).previous.is_null() {
                (*(*extent).previous).next = (*extent).next;
            }
            if !(*extent).next.is_null() {
                (*(*extent).next).previous = (*extent).previous;
            }
        }
        unmap(extent);
    }

    /// Maps a new extent at the end of the file. False if there is no room.
    #[cold]
    fn extend(&mut self) -> bool {
        let page = page_size();
        // Smaller ones where the file may not grow so far.
        let sizes = EXTENTS[..=self.count.min(EXTENTS.len() - 1)].iter().rev().map(|size| size.next_multiple_of(page));
        let file = self.file.descriptor(path);
        let Some(extent) = file.and_then(|(file, _)| sizes.filter_map(|size| new_extent(file, size, page)).next()) else {
            return false;
        };
        // SAFETY: both are mapped.
        unsafe {
            (*extent).previous = self.newest;
            if !self.newest.is_null() {
                (*self.newest).next = extent;
            }
        }
        let before = core::mem::replace(&mut self.newest, extent);
        if !before.is_null() {
            self.leave(before);
        }
        (self.used, self.count) = (EXTENT_HEADER_SIZE, self.count + 1);
        true
    }
}

fn new_extent(file: libc::c_int, size: usize, page: usize) -> Option<*mut Extent> {
    // SAFETY: null, or memory that stays mapped.
    let end = unsafe { SIZE.load(Ordering::Acquire).as_ref() }?;
    // A file over its limit is a signal that ends the program.
    if end.load(Ordering::Relaxed) + size as u64 > output::file_limit() {
        return None;
    }
    let offset = end.fetch_add(size as u64, Ordering::Relaxed);
    // Another process may have been first.
    if offset + size as u64 > output::file_limit() {
        return None;
    }
    // Blocks are allocated now: a full disk is an error here, not a signal later.
    // SAFETY: the file is open.
    if unsafe { libc::posix_fallocate(file, offset as i64, size as i64) } != 0 {
        // What is left of the disk is for the program.
        say_disk_full();
        return None;
    }
    let extent = map(file, offset, size, page)?;
    let (process, start) = naming::name();
    // SAFETY: an extent is larger.
    unsafe { (*extent).base.cast::<ExtentHeader>().write(ExtentHeader::new(process, start, size as u32)) };
    Some(extent)
}

fn map(file: libc::c_int, offset: u64, size: usize, page: usize) -> Option<*mut Extent> {
    let base: *mut u8 = memory::memory(size + page)?;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: replaces the first part of memory that was just mapped.
    if unsafe { libc::mmap(base.cast(), size, protection, flags, file, offset as i64) } == libc::MAP_FAILED {
        memory::release(base, size + page);
        return None;
    }
    // SAFETY: the page behind it is this function's, and aligned.
    unsafe {
        let extent = base.add(size).cast::<Extent>();
        extent.write(Extent { base, size, offset, users: 1, next: null_mut(), previous: null_mut() });
        Some(extent)
    }
}

fn unmap(extent: *mut Extent) {
    // SAFETY: nothing uses it any more.
    let (base, size) = unsafe { ((*extent).base, (*extent).size) };
    memory::release(base, size + page_size());
}

/// Says once in a process, on standard error, that the disk is full.
fn say_disk_full() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.swap(true, Ordering::Relaxed) {
        let text = b"trodden: no room for the recording, what threads call from here on is missing in it: free space, or name a folder \
            elsewhere by --output\n";
        output::write(libc::STDERR_FILENO, text);
    }
}
