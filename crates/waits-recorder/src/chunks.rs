//! The threads file, which contains the records of all threads of a program and its forked children (`trodden_wire::waits`).
//!
//! A process maps one *extent* of the file after the other, and allocates its threads' chunks within the extents. The kernel owns mapped
//! memory, so records reach the file however the process ends. System calls are needed only when an extent is full, and all threads and
//! processes share one file. Chunks are contiguous, and a lock ensures that a chunk's header is written before the next chunk begins.

use crate::lock::Lock;
use crate::output::{self, page_size, preserving_errno};
use crate::own_file::OwnFile;
use crate::{memory, naming};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use trodden_wire::waits::{
    CHUNK_ALIGNMENT, CHUNK_HEADER_SIZE, EXTENT_HEADER_SIZE, ExtentHeader, ThreadHeader, WaitsChunkHeader, chunk_kind,
};

/// Sizes in bytes of a process's first extents; all later extents have the last size. They are multiples of the usual page sizes.
const EXTENT_SIZES: [usize; 4] = [4 << 10, 32 << 10, 128 << 10, 256 << 10];
/// Size in bytes of a thread's first chunk of each kind. Each later chunk is [`CHUNK_GROWTH`] times as large, up to [`MAX_CHUNK_SIZE`].
pub const FIRST_CHUNK_SIZE: usize = 544;
pub const CHUNK_GROWTH: usize = 4;
pub const MAX_CHUNK_SIZE: usize = EXTENT_SIZES[3];
/// Minimum size of a chunk in bytes. Less space at the end of an extent stays unused.
const MIN_CHUNK_SIZE: usize = 480;

/// Address of the file's size in bytes, in memory shared with forked children. Null if the file is not open.
static FILE_SIZE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// A mapped part of the file. This structure is in an extra page after the mapping.
struct Extent {
    base: *mut u8,
    size: usize,
    offset: u64,
    /// Number of open chunks in this extent, plus 1 if the extent is the newest.
    users: usize,
    next: *mut Extent,
    previous: *mut Extent,
}

/// A chunk that a thread writes to.
pub struct RecordChunk {
    extent: *mut Extent,
    pub start: *mut u8,
    /// Number of bytes after the chunk's header.
    pub size: usize,
}

struct ThreadsFileWriter {
    file: OwnFile,
    /// Number of extents that this process has created.
    count: usize,
    newest: *mut Extent,
    /// Number of bytes used in the newest extent.
    used: usize,
    /// Number of threads that this process has added.
    threads: u32,
}

impl ThreadsFileWriter {
    const NONE: ThreadsFileWriter = ThreadsFileWriter { file: OwnFile::NONE, count: 0, newest: null_mut(), used: 0, threads: 0 };
}

static WRITER: Lock<ThreadsFileWriter> = Lock::new(ThreadsFileWriter::NONE);

/// Creates the threads file. Returns false on failure.
pub fn create_file() -> bool {
    let file = naming::file_path(b".threads").and_then(|path| OwnFile::create(&path, 0));
    let (Some(file), Some(size)) = (file, memory::map_shared::<AtomicU64>()) else { return false };
    FILE_SIZE.store(size, Ordering::Release);
    WRITER.with(|state| state.file = file);
    true
}

/// Adds a thread. Returns its index in the process and its header's offset in the file; `None` if the disk is full.
pub fn add_thread(header: ThreadHeader) -> Option<(u32, u64)> {
    WRITER.with(|state| {
        let size = CHUNK_HEADER_SIZE + size_of::<ThreadHeader>();
        let thread = state.threads;
        let chunk = state.allocate_chunk(WaitsChunkHeader::new(chunk_kind::THREAD, thread, 0, size as u32), size)?;
        state.threads += 1;
        // SAFETY: the chunk has room for the header.
        let offset = unsafe {
            chunk.start.cast::<ThreadHeader>().write(header);
            (*chunk.extent).offset + chunk.start.offset_from((*chunk.extent).base) as u64
        };
        state.release(chunk);
        Some((thread, offset))
    })
}

/// Allocates a chunk of `size` bytes, or fewer at the end of an extent, for a thread's records of one kind. `first` is the index of the
/// chunk's first record. Returns `None` if the disk is full.
pub fn add_chunk(kind: u32, thread: u32, first: u32, size: usize) -> Option<RecordChunk> {
    WRITER.with(|state| state.allocate_chunk(WaitsChunkHeader::new(kind, thread, first, size as u32), MIN_CHUNK_SIZE))
}

pub fn release(chunk: RecordChunk) {
    WRITER.with(|state| state.release(chunk));
}

/// Writes words at an offset in the file, whether or not that part is mapped.
pub fn write_at<const N: usize>(offset: u64, words: [u64; N]) {
    // The lock is not held during the write, because new threads wait for it.
    if let Some((file, _)) = WRITER.with(|state| state.file.descriptor(path)) {
        // SAFETY: the pointer and the length describe `words`, which lives until the call returns.
        preserving_errno(|| unsafe { libc::syscall(libc::SYS_pwrite64, file, words.as_ptr(), size_of_val(&words), offset) });
    }
}

/// Resets the state in a forked child. The child uses the same file, but none of its parent's extents.
pub fn begin_child() {
    let parents = WRITER.begin_child(ThreadsFileWriter::NONE);
    let mut extent = parents.newest;
    while !extent.is_null() {
        // SAFETY: the list is in private pages, so the child has its own copy of it.
        let next = unsafe { (*extent).previous };
        unmap(extent);
        extent = next;
    }
    WRITER.with(|state| state.file = parents.file);
}

fn path() -> Option<output::Path> {
    naming::file_path(b".threads")
}

impl ThreadsFileWriter {
    /// Allocates a chunk of the size in its header. If the extent has less space, but at least `least` bytes, the chunk gets all of it.
    fn allocate_chunk(&mut self, header: WaitsChunkHeader, least: usize) -> Option<RecordChunk> {
        if self.unused_bytes() < least && !self.add_extent() {
            return None;
        }
        let size = (header.size as usize).next_multiple_of(CHUNK_ALIGNMENT).min(self.unused_bytes());
        let header = WaitsChunkHeader::new(header.kind, header.thread, header.first, size as u32);
        // SAFETY: the newest extent is mapped, and has room for the chunk.
        let start = unsafe { (*self.newest).base.add(self.used) };
        // SAFETY: as above.
        unsafe {
            start.cast::<WaitsChunkHeader>().write(header);
            (*self.newest).users += 1;
        }
        self.used += size;
        // SAFETY: a chunk is larger than its header.
        Some(RecordChunk { extent: self.newest, start: unsafe { start.add(CHUNK_HEADER_SIZE) }, size: size - CHUNK_HEADER_SIZE })
    }

    fn unused_bytes(&self) -> usize {
        // SAFETY: the newest extent is mapped.
        if self.newest.is_null() { 0 } else { unsafe { (*self.newest).size - self.used } }
    }

    fn release(&mut self, chunk: RecordChunk) {
        self.release_extent(chunk.extent);
    }

    fn release_extent(&mut self, extent: *mut Extent) {
        // SAFETY: an extent with users is mapped, and the list belongs to the locked state.
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

    /// Maps a new extent at the end of the file. Returns false if the disk is full or a limit is reached.
    #[cold]
    fn add_extent(&mut self) -> bool {
        let page = page_size();
        // Smaller extents are tried too, in case the file size limit does not permit a large one.
        let sizes = EXTENT_SIZES[..=self.count.min(EXTENT_SIZES.len() - 1)].iter().rev().map(|size| size.next_multiple_of(page));
        let file = self.file.descriptor(path);
        let Some(extent) = file.and_then(|(file, _)| sizes.filter_map(|size| create_extent(file, size, page)).next()) else {
            return false;
        };
        // SAFETY: `extent` was just mapped, and the newest extent stays mapped at least until a newer one replaces it.
        unsafe {
            (*extent).previous = self.newest;
            if !self.newest.is_null() {
                (*self.newest).next = extent;
            }
        }
        let before = core::mem::replace(&mut self.newest, extent);
        if !before.is_null() {
            self.release_extent(before);
        }
        (self.used, self.count) = (EXTENT_HEADER_SIZE, self.count + 1);
        true
    }
}

fn create_extent(file: libc::c_int, size: usize, page: usize) -> Option<*mut Extent> {
    // SAFETY: the pointer is null, or refers to memory that stays mapped.
    let end = unsafe { FILE_SIZE.load(Ordering::Acquire).as_ref() }?;
    // Exceeding the file size limit would raise a signal that ends the program.
    if end.load(Ordering::Relaxed) + size as u64 > output::file_size_limit() {
        return None;
    }
    let offset = end.fetch_add(size as u64, Ordering::Relaxed);
    // Another process may have extended the file in the meantime.
    if offset + size as u64 > output::file_size_limit() {
        return None;
    }
    // Allocate disk blocks now: a full disk is an error here, but would cause a signal when the mapping is written later.
    // SAFETY: the file is open.
    if unsafe { libc::posix_fallocate(file, offset as i64, size as i64) } != 0 {
        // Leave the remaining disk space to the program.
        report_disk_full();
        return None;
    }
    let extent = map(file, offset, size, page)?;
    let (process, start) = naming::process_identity();
    // SAFETY: an extent is larger than its header.
    unsafe { (*extent).base.cast::<ExtentHeader>().write(ExtentHeader::new(process, start, size as u32)) };
    Some(extent)
}

fn map(file: libc::c_int, offset: u64, size: usize, page: usize) -> Option<*mut Extent> {
    let base: *mut u8 = memory::map_private(size + page)?;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: this replaces the first part of memory that was just mapped.
    if unsafe { libc::mmap(base.cast(), size, protection, flags, file, offset as i64) } == libc::MAP_FAILED {
        memory::release(base, size + page);
        return None;
    }
    // SAFETY: the page after the extent is allocated here, and aligned.
    unsafe {
        let extent = base.add(size).cast::<Extent>();
        extent.write(Extent { base, size, offset, users: 1, next: null_mut(), previous: null_mut() });
        Some(extent)
    }
}

fn unmap(extent: *mut Extent) {
    // SAFETY: nothing uses the extent any more.
    let (base, size) = unsafe { ((*extent).base, (*extent).size) };
    memory::release(base, size + page_size());
}

/// Reports on standard error, at most once per process, that the disk is full.
fn report_disk_full() {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        let text = b"trodden: the disk is full, so later calls are missing from the recording. \
            Free some space, or record to another folder with --output DIR.\n";
        output::write(libc::STDERR_FILENO, text);
    }
}
