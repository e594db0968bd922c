//! The threads file, which holds the records of all threads of a program and its forked children (`trodden_wire::waits`).
//!
//! A process maps consecutive parts of the file, called *extents*, and divides each extent into *chunks*, each of which holds the records
//! of one thread. The mapping is shared, so records reach the file even if the process is killed, and system calls are needed only when an
//! extent is full. A lock ensures that a chunk's header is written before the next chunk is allocated.

use crate::lock::Lock;
use crate::output::{self, page_size, preserving_errno};
use crate::own_file::OwnFile;
use crate::{memory, naming};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use trodden_wire::waits::{
    CHUNK_ALIGNMENT, CHUNK_HEADER_SIZE, EXTENT_HEADER_SIZE, ExtentHeader, ThreadHeader, WaitsChunkHeader, chunk_kind,
};

/// Sizes in bytes of the first extents that a process maps. All further extents have the last of these sizes. They are multiples of the
/// usual page sizes.
const EXTENT_SIZES: [usize; 4] = [4 << 10, 32 << 10, 128 << 10, 256 << 10];
/// Size in bytes of the first chunk for each kind of a thread's records. Each further chunk is [`CHUNK_GROWTH_FACTOR`] times as large as
/// the last, up to [`MAX_CHUNK_SIZE`].
pub const FIRST_CHUNK_SIZE: usize = 544;
pub const CHUNK_GROWTH_FACTOR: usize = 4;
pub const MAX_CHUNK_SIZE: usize = EXTENT_SIZES[3];
/// Minimum size of a chunk in bytes. If an extent has less space left, the space stays unused.
const MIN_CHUNK_SIZE: usize = 480;

/// Address of the file's size in bytes. The size is in memory that this process shares with its forked children, because all of them extend
/// the file. Null if the file is not open.
static SHARED_FILE_SIZE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// A mapped part of the threads file. This structure is stored in a private page directly after the mapping.
struct Extent {
    base: *mut u8,
    size: usize,
    offset: u64,
    /// Number of chunks in this extent that are still written to, plus 1 if this is the newest extent. At 0, the extent is unmapped.
    users: usize,
    next: *mut Extent,
    previous: *mut Extent,
}

/// A mapped chunk that one thread writes to.
pub struct RecordChunk {
    extent: *mut Extent,
    pub start: *mut u8,
    /// Size in bytes of the space for records, which follows the chunk's header.
    pub size: usize,
}

struct ThreadsFileWriter {
    file: OwnFile,
    count: usize,
    newest: *mut Extent,
    /// Number of bytes used in the newest extent.
    used: usize,
    /// Number of threads that this process has added to the file.
    threads: u32,
}

impl ThreadsFileWriter {
    const NONE: ThreadsFileWriter = ThreadsFileWriter { file: OwnFile::NONE, count: 0, newest: null_mut(), used: 0, threads: 0 };
}

static THREADS_FILE_WRITER: Lock<ThreadsFileWriter> = Lock::new(ThreadsFileWriter::NONE);

/// Creates the threads file. Returns false on failure.
pub fn create_file() -> bool {
    let file = naming::file_path(b".threads").and_then(|path| OwnFile::create(&path, 0));
    let (Some(file), Some(size)) = (file, memory::map_shared::<AtomicU64>()) else { return false };
    SHARED_FILE_SIZE.store(size, Ordering::Release);
    THREADS_FILE_WRITER.with(|state| state.file = file);
    true
}

/// Adds a thread to the file. Returns its index within the process, and the file offset of its header; `None` if the disk is full.
pub fn add_thread(header: ThreadHeader) -> Option<(u32, u64)> {
    THREADS_FILE_WRITER.with(|state| {
        let size = CHUNK_HEADER_SIZE + size_of::<ThreadHeader>();
        let thread = state.threads;
        let chunk = state.allocate_chunk(WaitsChunkHeader::new(chunk_kind::THREAD, thread, 0, size as u32), size)?;
        state.threads += 1;
        // SAFETY: the chunk was allocated with room for the header.
        let offset = unsafe {
            chunk.start.cast::<ThreadHeader>().write(header);
            (*chunk.extent).offset + chunk.start.offset_from((*chunk.extent).base) as u64
        };
        state.release_chunk(chunk);
        Some((thread, offset))
    })
}

/// Allocates a chunk for records of one kind of one thread, of `size` bytes or as many as the extent has left. `first` is the index of the
/// first record in the chunk. Returns `None` if the disk is full.
pub fn add_chunk(kind: u32, thread: u32, first: u32, size: usize) -> Option<RecordChunk> {
    THREADS_FILE_WRITER.with(|state| state.allocate_chunk(WaitsChunkHeader::new(kind, thread, first, size as u32), MIN_CHUNK_SIZE))
}

pub fn release_chunk(chunk: RecordChunk) {
    THREADS_FILE_WRITER.with(|state| state.release_chunk(chunk));
}

/// Writes words at an offset in the file, which need not be mapped.
pub fn write_words_at_file_offset<const N: usize>(offset: u64, words: [u64; N]) {
    // The lock is released before the write, so that other threads need not wait for the disk.
    if let Some((file, _)) = THREADS_FILE_WRITER.with(|state| state.file.descriptor(threads_file_path)) {
        // SAFETY: the pointer and the length describe `words`, which lives until the call returns.
        preserving_errno(|| unsafe { libc::syscall(libc::SYS_pwrite64, file, words.as_ptr(), size_of_val(&words), offset) });
    }
}

/// Resets this module in a forked child. The child writes to the same file, but maps extents of its own.
pub fn reset_in_child() {
    let parents = THREADS_FILE_WRITER.reset_in_child(ThreadsFileWriter::NONE);
    let mut extent = parents.newest;
    while !extent.is_null() {
        // SAFETY: the list of extents is in private memory, so the child has its own copy.
        let next = unsafe { (*extent).previous };
        unmap_extent(extent);
        extent = next;
    }
    THREADS_FILE_WRITER.with(|state| state.file = parents.file);
}

fn threads_file_path() -> Option<output::Path> {
    naming::file_path(b".threads")
}

impl ThreadsFileWriter {
    /// Allocates a chunk of the size that `header` requests. If the extent has less space, the chunk gets the rest of it, provided that the
    /// rest is at least `least` bytes.
    fn allocate_chunk(&mut self, header: WaitsChunkHeader, least: usize) -> Option<RecordChunk> {
        if self.unused_bytes() < least && !self.add_extent() {
            return None;
        }
        let size = (header.size as usize).next_multiple_of(CHUNK_ALIGNMENT).min(self.unused_bytes());
        let header = WaitsChunkHeader::new(header.kind, header.thread, header.first, size as u32);
        // SAFETY: the newest extent is mapped, and at least `size` of its bytes are unused.
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

    fn release_chunk(&mut self, chunk: RecordChunk) {
        self.release_extent(chunk.extent);
    }

    fn release_extent(&mut self, extent: *mut Extent) {
        // SAFETY: an extent with users is mapped, and the caller holds the lock that guards the list.
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
        unmap_extent(extent);
    }

    /// Maps a new extent at the end of the file. Returns false if the disk is full or the file size limit is reached.
    #[cold]
    fn add_extent(&mut self) -> bool {
        let page = page_size();
        // If the file size limit does not permit a large extent, a smaller one may still fit.
        let sizes = EXTENT_SIZES[..=self.count.min(EXTENT_SIZES.len() - 1)].iter().rev().map(|size| size.next_multiple_of(page));
        let file = self.file.descriptor(threads_file_path);
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
    // SAFETY: the pointer is null, or refers to shared memory that is never unmapped.
    let end = unsafe { SHARED_FILE_SIZE.load(Ordering::Acquire).as_ref() }?;
    // Exceeding the file size limit would raise a signal that ends the program.
    if end.load(Ordering::Relaxed) + size as u64 > output::file_size_limit() {
        return None;
    }
    let offset = end.fetch_add(size as u64, Ordering::Relaxed);
    // Another process may have extended the file since the first check.
    if offset + size as u64 > output::file_size_limit() {
        return None;
    }
    // Disk blocks are allocated now, because a full disk is only an error here. Later, a write to the mapping would raise SIGBUS.
    // SAFETY: the file is open.
    if unsafe { libc::posix_fallocate(file, offset as i64, size as i64) } != 0 {
        // Unless another process has extended the file as well, the place can be used once the disk has room again.
        let _ = end.compare_exchange(offset + size as u64, offset, Ordering::Relaxed, Ordering::Relaxed);
        report_disk_full();
        return None;
    }
    let extent = map_extent(file, offset, size, page)?;
    let (process, start) = naming::process_identity();
    // SAFETY: an extent is larger than its header.
    unsafe { (*extent).base.cast::<ExtentHeader>().write(ExtentHeader::new(process, start, size as u32)) };
    Some(extent)
}

fn map_extent(file: libc::c_int, offset: u64, size: usize, page: usize) -> Option<*mut Extent> {
    let base: *mut u8 = memory::map_private(size + page)?;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: this replaces the first `size` bytes of the memory that was just mapped, to which nothing refers yet.
    if unsafe { libc::mmap(base.cast(), size, protection, flags, file, offset as i64) } == libc::MAP_FAILED {
        memory::unmap_elements(base, size + page);
        return None;
    }
    // SAFETY: the page after the extent was mapped above, and is aligned.
    unsafe {
        let extent = base.add(size).cast::<Extent>();
        extent.write(Extent { base, size, offset, users: 1, next: null_mut(), previous: null_mut() });
        Some(extent)
    }
}

fn unmap_extent(extent: *mut Extent) {
    // SAFETY: the extent has no users left, so nothing refers to it.
    let (base, size) = unsafe { ((*extent).base, (*extent).size) };
    memory::unmap_elements(base, size + page_size());
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
