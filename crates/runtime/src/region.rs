//! Regions, in which threads count. A region is either a part of a raw file, which is acquired with a lock, or anonymous memory, which is
//! discarded.
//!
//! A region is acquired with an open-file-description lock (fcntl(2)) on its lock byte, through the open file description that the process
//! keeps (`kept.rs`). The mapping keeps the description alive, so the lock lasts as long as the process, even if the program closes the
//! descriptor. This does not hold on overlay file systems, which map a different file, and for a child of `fork` that uses its parent's
//! description with separate locks; in these cases, the region's tail also names its holder. A description never conflicts with its own
//! locks, so a process examines each region only once ([`RegionSearch::next`]). Invariant: at most one process maps a region and counts in
//! it.

use crate::file::{self, HeaderLock, ImageRawFile, cannot_write};
use crate::image::is_stream;
use crate::system::{self, Errno};
use crate::text::OutputFailure;
use crate::wire::stream::SHADOW_BYTES;
use crate::wire::{HEADER_LOCK_BYTE, LostReason, region_holder_offset, region_lock_byte, region_lost_offset, region_stride};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Size of the byte range before the header's lock byte in which processes probe the lifetime of locks. The range is so large that they do
/// not collide.
const PROBE_BYTES: u64 = 1 << 50;

/// A mapped region.
#[derive(Clone, Copy)]
pub struct Region {
    pub address: usize,
    /// Index of the region in the raw file; `None` for anonymous memory.
    pub index: Option<u64>,
    /// The event counter of the region's thread, as for [`crate::events::close`].
    pub event: u64,
}

impl Region {
    /// Unmaps the region and releases its lock in `raw`, if the file is still open. Counts stay in the file.
    pub fn release(self, raw: Option<&ImageRawFile>, process: u32, counters: u64) {
        if self.index.is_some() {
            let _ = set_holder(self.address, counters, u64::from(process), 0);
        }
        self.unmap(counters);
        if let (Some(index), Some(raw)) = (self.index, raw) {
            unlock(raw, index);
        }
    }

    /// Records in the region that the counts of a different thread are lost.
    pub fn note_lost(self, counters: u64, reason: LostReason) {
        file::add_lost(self.address + region_lost_offset(counters) as usize, reason);
    }

    /// Unmaps the region without releasing it. A child of `fork` calls this for its parent's region, which the parent still uses.
    pub fn unmap(self, counters: u64) {
        system::unmap(self.address, region_stride(counters) as usize);
    }
}

/// Whether locks outlive their descriptors on the raw file's file system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LockLifetime {
    Unknown,
    Mapping,
    Descriptor,
}

/// A process's progress in searching its raw file for free regions.
pub struct RegionSearch {
    /// All regions below this index were in use when examined, or belong to this process.
    pub next: u64,
    pub life: LockLifetime,
}

/// Maps zeroed memory that is never read.
pub fn anonymous(counters: u64, over: Option<usize>) -> Result<Region, Errno> {
    let length = region_stride(counters) as usize;
    match over.is_none() && is_stream() {
        true => system::map_zeros_aligned(length, SHADOW_BYTES as usize),
        false => system::map_zeros(length, over),
    }
    .map(|address| Region { address, index: None, event: 0 })
}

/// Acquires a region of `raw` for `process` and maps it, at address `over` if given. On the first call, `reopen` opens the file again, and
/// its result replaces `raw`.
pub fn acquire(
    raw: &mut ImageRawFile,
    search: &mut RegionSearch,
    process: u32,
    over: Option<usize>,
    counters: u64,
    reopen: impl FnOnce() -> Result<ImageRawFile, OutputFailure>,
) -> Result<Region, OutputFailure> {
    loop {
        let (index, before) = match find_free(raw, search.next, process, counters)? {
            Some(found) => found,
            None => (grow(raw)?, 0),
        };
        search.next = index + 1;
        let address = map(raw, index, over)?;
        let named = search.life != LockLifetime::Mapping || raw.descriptor.locks_for_process();
        let holder = if named { u64::from(process) } else { 0 };
        let result = match set_holder(address, counters, before, holder) {
            true => probe_lock_lifetime(raw, index, search, reopen),
            // A second copy of this image in the same process, which shares the lock, has acquired the region first.
            false => {
                discard(address, over, raw);
                continue;
            }
        };
        match result {
            Ok(LockLifetime::Mapping) if !raw.descriptor.locks_for_process() => {
                let _ = set_holder(address, counters, holder, 0);
            }
            Ok(_) => {}
            Err(failure) => {
                discard(address, over, raw);
                return Err(failure);
            }
        }
        return Ok(Region { address, index: Some(index), event: 0 });
    }
}

fn map(raw: &ImageRawFile, index: u64, over: Option<usize>) -> Result<usize, OutputFailure> {
    let (offset, length) = (raw.regions_offset + index * raw.region_stride, raw.region_stride as usize);
    // Regions of streams must be aligned.
    let place = match over {
        None if is_stream() => system::map_zeros_aligned(length, SHADOW_BYTES as usize).map(Some),
        over => Ok(over),
    };
    place.and_then(|place| system::map_file(&raw.descriptor, offset, length, place)).map_err(|error| {
        unlock(raw, index);
        OutputFailure::system(b"it cannot be mapped", error, USE_LOCAL_FILE)
    })
}

/// Unmaps a region, unless it was mapped at `over`, where a different mapping will replace it.
fn discard(address: usize, over: Option<usize>, raw: &ImageRawFile) {
    if over.is_none() {
        system::unmap(address, raw.region_stride as usize);
    }
}

const USE_LOCAL_FILE: &[u8] = b"let TRODDEN_OUTPUT name a file on a local file system";

fn cannot_lock(error: Errno) -> OutputFailure {
    OutputFailure::system(b"it cannot be locked", error, USE_LOCAL_FILE)
}

fn unlock(raw: &ImageRawFile, index: u64) {
    let _ = system::lock_byte(&raw.descriptor, region_lock_byte(index), false);
}

/// Locks the first free region at or after `next`. Returns the region's index and the holder named in it.
fn find_free(raw: &ImageRawFile, next: u64, process: u32, counters: u64) -> Result<Option<(u64, u64)>, OutputFailure> {
    for index in next..count(raw)? {
        match system::lock_byte(&raw.descriptor, region_lock_byte(index), true) {
            Err(system::EAGAIN | system::EACCES) => continue,
            Err(error) => return Err(cannot_lock(error)),
            Ok(()) => {}
        }
        let holder = read_holder(raw, index, counters);
        if holder == 0 || system::process_is_gone(holder as u32) {
            return Ok(Some((index, holder)));
        }
        // The holder's lock was lost with a descriptor. The process's own region may be acquired again.
        if holder != u64::from(process) {
            unlock(raw, index);
        }
    }
    Ok(None)
}

/// Returns the number of complete regions in the file.
fn count(raw: &ImageRawFile) -> Result<u64, OutputFailure> {
    let size = system::stat(&raw.descriptor).map_err(cannot_write)?.size as u64;
    Ok(size.saturating_sub(raw.regions_offset).checked_div(raw.region_stride).unwrap_or(0))
}

/// Appends a region to the file and locks it.
fn grow(raw: &ImageRawFile) -> Result<u64, OutputFailure> {
    let _lock = HeaderLock::acquire(&raw.descriptor)?;
    let index = count(raw)?;
    let start = raw.regions_offset + index * raw.region_stride;
    // Locked before the region becomes visible, so that no other process acquires it.
    system::lock_byte(&raw.descriptor, region_lock_byte(index), true).map_err(cannot_lock)?;
    file::check_space(&raw.descriptor, start + raw.region_stride, raw.region_stride)?;
    // The space is reserved completely, because a disk that fills up later would kill the subject.
    file::reserve_space(&raw.descriptor, start, raw.region_stride)?;
    Ok(index)
}

/// Probes, once, whether locks outlive their descriptor while the file is mapped, as region `index` is. Replaces `raw` by the reopened
/// file.
fn probe_lock_lifetime(
    raw: &mut ImageRawFile,
    index: u64,
    search: &mut RegionSearch,
    reopen: impl FnOnce() -> Result<ImageRawFile, OutputFailure>,
) -> Result<LockLifetime, OutputFailure> {
    if search.life == LockLifetime::Unknown && !raw.descriptor.locks_for_process() {
        // Not the region's own byte, which other processes lock briefly while searching.
        let trial = (u64::from(system::process_id()) << 28 | system::now_ns() & 0xfff_ffff) % PROBE_BYTES;
        let trial = HEADER_LOCK_BYTE - 1 - trial as i64;
        let tried = system::lock_byte(&raw.descriptor, trial, true).is_ok();
        *raw = reopen()?;
        search.life = match tried && system::is_locked(&raw.descriptor, trial).map_err(cannot_lock)? {
            true => LockLifetime::Mapping,
            false => LockLifetime::Descriptor,
        };
        if search.life == LockLifetime::Descriptor {
            // Until the region is locked again, other processes leave it alone because it names its holder.
            file::lock(&raw.descriptor, region_lock_byte(index))?;
        }
    }
    Ok(search.life)
}

/// Returns the process that the region names as its holder; 0 if it names no process.
fn read_holder(raw: &ImageRawFile, index: u64, counters: u64) -> u64 {
    let mut holder = [0; 8];
    let offset = raw.regions_offset + index * raw.region_stride + region_holder_offset(counters);
    let read = system::read_at(&raw.descriptor, &mut holder, offset);
    if read.is_ok() { u64::from_le_bytes(holder) } else { 0 }
}

/// Changes the holder of the region mapped at `address`. Returns false if the current holder is not `before`.
fn set_holder(address: usize, counters: u64, before: u64, holder: u64) -> bool {
    let word = (address + region_holder_offset(counters) as usize) as *mut u64;
    // Avoid unnecessary writes, which would allocate a page. SAFETY: the word is aligned and in a mapped region; all processes access it
    // atomically, or read the file.
    before == holder || unsafe { AtomicU64::from_ptr(word) }.compare_exchange(before, holder, SeqCst, SeqCst).is_ok()
}
