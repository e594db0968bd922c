//! Acquires regions, the copies of the counters in which threads count. A region is either a part of a raw file, acquired with a lock, or
//! anonymous memory that is discarded.
//!
//! A process acquires a region with an open-file-description lock (fcntl(2)) on the region's lock byte, through the description that it
//! keeps (`kept.rs`). The mapping keeps the description alive, so the lock lasts as long as the process, even if the program closes the
//! descriptor. Two cases differ: overlay file systems map a different file, and a child of `fork` may use its parent's description with
//! separate locks. In these cases, the region's tail also names its holder. A description never conflicts with its own locks, so a
//! process examines each region only once ([`FreeRegionSearch::next`]). Invariant: at most one process maps a region and counts in it.

use crate::file::{self, HeaderLock, ImageRawFile, write_failure};
use crate::image::is_stream;
use crate::system::{self, Errno};
use crate::text::OutputFailure;
use crate::wire::stream::SHADOW_BYTES;
use crate::wire::{HEADER_LOCK_BYTE, LostReason, region_holder_offset, region_lock_byte, region_lost_offset, region_stride};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Size of the byte range before the header's lock byte in which processes test how long locks last. The range is so large that tests of
/// different processes do not collide.
const LOCK_PROBE_RANGE_BYTES: u64 = 1 << 50;

#[derive(Clone, Copy)]
pub struct Region {
    pub address: usize,
    /// Index of the region in the raw file; `None` for anonymous memory.
    pub index: Option<u64>,
    /// The argument of [`crate::events::close_counter`] for the event counter of the region's thread.
    pub event: u64,
}

impl Region {
    /// Unmaps the region and releases its lock, if the file `raw` is still open. Counts stay in the file.
    pub fn release(self, raw: Option<&ImageRawFile>, process: u32, counters: u64) {
        if self.index.is_some() {
            let _ = replace_holder(self.address, counters, u64::from(process), 0);
        }
        self.unmap(counters);
        if let (Some(index), Some(raw)) = (self.index, raw) {
            unlock(raw, index);
        }
    }

    /// Records in the tail of this region that another thread's counts are lost.
    pub fn record_lost_thread(self, counters: u64, reason: LostReason) {
        file::add_lost_thread(self.address + region_lost_offset(counters) as usize, reason);
    }

    /// Unmaps the region without releasing its lock. A child of `fork` calls this for its parent's region, which the parent still uses.
    pub fn unmap(self, counters: u64) {
        system::unmap(self.address, region_stride(counters) as usize);
    }
}

/// How long locks last on the file system of the raw file: until the last mapping ends, or until a descriptor is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LockLifetime {
    Unknown,
    Mapping,
    Descriptor,
}

/// How far a process has searched its raw file for free regions.
pub struct FreeRegionSearch {
    /// All regions below this index were in use when they were examined, or belong to this process.
    pub next: u64,
    pub life: LockLifetime,
}

/// Maps zeroed memory in which a thread can count, although nobody will read the counts.
pub fn map_anonymous(counters: u64, over: Option<usize>) -> Result<Region, Errno> {
    let length = region_stride(counters) as usize;
    match over.is_none() && is_stream() {
        true => system::map_zeroed_memory_aligned(length, SHADOW_BYTES as usize),
        false => system::map_zeroed_memory(length, over),
    }
    .map(|address| Region { address, index: None, event: 0 })
}

/// Acquires a region of `raw` for `process`, and maps it at address `over`, or at any address if that is `None`. The first call opens the
/// file a second time with `reopen`, and stores the result in `raw`.
pub fn acquire_from_file(
    raw: &mut ImageRawFile,
    search: &mut FreeRegionSearch,
    process: u32,
    over: Option<usize>,
    counters: u64,
    reopen: impl FnOnce() -> Result<ImageRawFile, OutputFailure>,
) -> Result<Region, OutputFailure> {
    loop {
        let (index, before) = match lock_free_region(raw, search.next, process, counters)? {
            Some(found) => found,
            None => (append_region(raw)?, 0),
        };
        search.next = index + 1;
        let address = map_region(raw, index, over)?;
        let is_named = search.life != LockLifetime::Mapping || raw.descriptor.locks_for_process();
        let holder = if is_named { u64::from(process) } else { 0 };
        let result = match replace_holder(address, counters, before, holder) {
            true => probe_lock_lifetime(raw, index, search, reopen),
            // Another copy of this image in the same process, which shares the lock, has acquired the region first.
            false => {
                unmap_unless_over(address, over, raw);
                continue;
            }
        };
        match result {
            Ok(LockLifetime::Mapping) if !raw.descriptor.locks_for_process() => {
                let _ = replace_holder(address, counters, holder, 0);
            }
            Ok(_) => {}
            Err(failure) => {
                unmap_unless_over(address, over, raw);
                return Err(failure);
            }
        }
        return Ok(Region { address, index: Some(index), event: 0 });
    }
}

fn map_region(raw: &ImageRawFile, index: u64, over: Option<usize>) -> Result<usize, OutputFailure> {
    let (offset, length) = (raw.regions_offset + index * raw.region_stride, raw.region_stride as usize);
    // Regions of stream builds must be aligned.
    let place = match over {
        None if is_stream() => system::map_zeroed_memory_aligned(length, SHADOW_BYTES as usize).map(Some),
        over => Ok(over),
    };
    place.and_then(|place| system::map_file(&raw.descriptor, offset, length, place)).map_err(|error| {
        unlock(raw, index);
        OutputFailure::from_errno(b"it cannot be mapped", error, ADVICE_USE_LOCAL_FILE)
    })
}

/// Unmaps a region, unless it was mapped at a given address `over`, where another mapping will replace it.
fn unmap_unless_over(address: usize, over: Option<usize>, raw: &ImageRawFile) {
    if over.is_none() {
        system::unmap(address, raw.region_stride as usize);
    }
}

const ADVICE_USE_LOCAL_FILE: &[u8] = b"let TRODDEN_OUTPUT name a file on a local file system";

fn lock_failure(error: Errno) -> OutputFailure {
    OutputFailure::from_errno(b"it cannot be locked", error, ADVICE_USE_LOCAL_FILE)
}

fn unlock(raw: &ImageRawFile, index: u64) {
    let _ = system::lock_byte(&raw.descriptor, region_lock_byte(index), false);
}

/// Locks the first free region at or after `next`. Returns its index, and the process that the region names as its former holder (0 if
/// none).
fn lock_free_region(raw: &ImageRawFile, next: u64, process: u32, counters: u64) -> Result<Option<(u64, u64)>, OutputFailure> {
    for index in next..count_regions(raw)? {
        match system::lock_byte(&raw.descriptor, region_lock_byte(index), true) {
            Err(system::EAGAIN | system::EACCES) => continue,
            Err(error) => return Err(lock_failure(error)),
            Ok(()) => {}
        }
        let holder = read_holder(raw, index, counters);
        if holder == 0 || system::process_is_gone(holder as u32) {
            return Ok(Some((index, holder)));
        }
        // The holder is still running, but lost the lock when it closed a descriptor. If the holder is this process itself, keep the lock.
        if holder != u64::from(process) {
            unlock(raw, index);
        }
    }
    Ok(None)
}

fn count_regions(raw: &ImageRawFile) -> Result<u64, OutputFailure> {
    let size = system::stat(&raw.descriptor).map_err(write_failure)?.size as u64;
    Ok(size.saturating_sub(raw.regions_offset).checked_div(raw.region_stride).unwrap_or(0))
}

/// Appends a region to the file and locks it.
fn append_region(raw: &ImageRawFile) -> Result<u64, OutputFailure> {
    let _lock = HeaderLock::acquire(&raw.descriptor)?;
    let index = count_regions(raw)?;
    let start = raw.regions_offset + index * raw.region_stride;
    // Lock the region before it becomes visible, so that no other process acquires it.
    system::lock_byte(&raw.descriptor, region_lock_byte(index), true).map_err(lock_failure)?;
    file::check_space(&raw.descriptor, start + raw.region_stride, raw.region_stride)?;
    // Reserve all of the space now: if the disk filled up later, storing a page would kill the instrumented program.
    file::reserve_space(&raw.descriptor, start, raw.region_stride)?;
    Ok(index)
}

/// Finds out, once, whether locks outlive their descriptor as long as the file is mapped, as region `index` is now. Replaces `raw` by the
/// file opened again.
fn probe_lock_lifetime(
    raw: &mut ImageRawFile,
    index: u64,
    search: &mut FreeRegionSearch,
    reopen: impl FnOnce() -> Result<ImageRawFile, OutputFailure>,
) -> Result<LockLifetime, OutputFailure> {
    if search.life == LockLifetime::Unknown && !raw.descriptor.locks_for_process() {
        // The test does not use the lock byte of a region, because other processes lock these bytes briefly while they search.
        let trial = (u64::from(system::process_id()) << 28 | system::now_ns() & 0xfff_ffff) % LOCK_PROBE_RANGE_BYTES;
        let trial = HEADER_LOCK_BYTE - 1 - trial as i64;
        let tried = system::lock_byte(&raw.descriptor, trial, true).is_ok();
        *raw = reopen()?;
        search.life = match tried && system::is_locked(&raw.descriptor, trial).map_err(lock_failure)? {
            true => LockLifetime::Mapping,
            false => LockLifetime::Descriptor,
        };
        if search.life == LockLifetime::Descriptor {
            // Until the region is locked again, no other process acquires it, because its tail names this process as its holder.
            file::lock(&raw.descriptor, region_lock_byte(index))?;
        }
    }
    Ok(search.life)
}

/// Returns the ID of the process that a region names as its holder; 0 if it names none.
fn read_holder(raw: &ImageRawFile, index: u64, counters: u64) -> u64 {
    let mut holder = [0; 8];
    let offset = raw.regions_offset + index * raw.region_stride + region_holder_offset(counters);
    let read = system::read_at(&raw.descriptor, &mut holder, offset);
    if read.is_ok() { u64::from_le_bytes(holder) } else { 0 }
}

/// Replaces the holder of the region that is mapped at `address`. Returns false if its current holder is not `before`.
fn replace_holder(address: usize, counters: u64, before: u64, holder: u64) -> bool {
    let word = (address + region_holder_offset(counters) as usize) as *mut u64;
    // Nothing is written if nothing changes, because a write would allocate a page.
    // SAFETY: the word is aligned and in a mapped region; all processes access it atomically, or read it through the file.
    before == holder || unsafe { AtomicU64::from_ptr(word) }.compare_exchange(before, holder, SeqCst, SeqCst).is_ok()
}
