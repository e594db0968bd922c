//! Regions: where a thread counts. Of a raw file, acquired by a lock; or anonymous memory that is thrown away.
//!
//! A region is acquired by an open-file-description lock (fcntl(2)) on the region's lock byte, by way of the one description that
//! the process keeps (see `kept.rs`). The kernel keeps the lock as long as the description, which the mapping keeps
//! alive even if the descriptor is closed: so it ends with the process, however that ends, and survives a program that
//! closes all descriptors. Two things are different:
//!
//! - overlay file systems map another file than the one that was opened, so that the lock goes with the descriptor;
//! - a child of `fork` that cannot open the file any more uses its parent's description, with locks that belong to the process. They
//!   exclude the parent's and all others, but go with the first descriptor of that file which the process closes.
//!
//! There the region's tail names the process that has it, in case the program closes the descriptor.
//!
//! A description never finds its own locks in the way. So a process never looks twice at a region ([`RegionSearch::next`]).
//!
//! Invariant: a region is mapped by at most one process that counts in it.

use crate::file::{self, HeaderLock, RawFile, cannot_write};
use crate::image::is_stream;
use crate::system::{self, Errno};
use crate::text::Failure;
use crate::wire::stream::SHADOW_BYTES;
use crate::wire::{HEADER_LOCK_BYTE, LostReason, region_holder_offset, region_lock_byte, region_lost_offset, region_stride};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Number of bytes before the header's lock byte that serve to find out how long locks live. So many that each process has its own.
const TRIALS: u64 = 1 << 50;

/// A mapped region.
#[derive(Clone, Copy)]
pub struct Region {
    pub address: usize,
    /// Which one of the raw file it is; None in anonymous memory.
    pub index: Option<u64>,
    /// Counter of its thread's events, as [`crate::events::close`] takes it.
    pub event: u64,
}

impl Region {
    /// Unmaps it and gives it back; counts of a file stay in the file, which is `raw` if that is still open.
    pub fn release(self, raw: Option<&RawFile>, process: u32, counters: u64) {
        if self.index.is_some() {
            let _ = set_holder(self.address, counters, u64::from(process), 0);
        }
        self.unmap(counters);
        if let (Some(index), Some(raw)) = (self.index, raw) {
            unlock(raw, index);
        }
    }

    /// Notes in it that the counts of another thread are lost.
    pub fn note_lost(self, counters: u64, reason: LostReason) {
        file::add_lost(self.address + region_lost_offset(counters) as usize, reason);
    }

    /// Unmaps it: in a child of `fork`, whose parent goes on using it.
    pub fn unmap(self, counters: u64) {
        system::unmap(self.address, region_stride(counters) as usize);
    }
}

/// Whether locks outlive their descriptors on the output's file system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LockLife {
    Unknown,
    Mapping,
    Descriptor,
}

/// What a process knows of the regions of its raw file.
pub struct RegionSearch {
    /// All regions below were taken when this process looked, or are its own.
    pub next: u64,
    pub life: LockLife,
}

/// Maps zeros that will not be read.
pub fn anonymous(counters: u64, over: Option<usize>) -> Result<Region, Errno> {
    let length = region_stride(counters) as usize;
    match over.is_none() && is_stream() {
        true => system::map_zeros_aligned(length, SHADOW_BYTES as usize),
        false => system::map_zeros(length, over),
    }
    .map(|address| Region { address, index: None, event: 0 })
}

/// Acquires a region of `raw` for `process` and maps it (at `over`, if given). `reopen` opens the file once more; the first call
/// replaces `raw` by that.
pub fn acquire(
    raw: &mut RawFile,
    search: &mut RegionSearch,
    process: u32,
    over: Option<usize>,
    counters: u64,
    reopen: impl FnOnce() -> Result<RawFile, Failure>,
) -> Result<Region, Failure> {
    loop {
        let (index, before) = match find_free(raw, search.next, process, counters)? {
            Some(found) => found,
            None => (grow(raw)?, 0),
        };
        search.next = index + 1;
        let address = map(raw, index, over)?;
        let named = search.life != LockLife::Mapping || raw.descriptor.locks_for_process();
        let holder = if named { u64::from(process) } else { 0 };
        let result = match set_holder(address, counters, before, holder) {
            true => learn_life(raw, index, search, reopen),
            // Another copy of this image in this process, for which the lock counts as well, was faster.
            false => {
                discard(address, over, raw);
                continue;
            }
        };
        match result {
            Ok(LockLife::Mapping) if !raw.descriptor.locks_for_process() => {
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

fn map(raw: &RawFile, index: u64, over: Option<usize>) -> Result<usize, Failure> {
    let (offset, length) = (raw.regions_offset + index * raw.region_stride, raw.region_stride as usize);
    // Regions of streams begin at certain addresses.
    let place = match over {
        None if is_stream() => system::map_zeros_aligned(length, SHADOW_BYTES as usize).map(Some),
        over => Ok(over),
    };
    place.and_then(|place| system::map_file(&raw.descriptor, offset, length, place)).map_err(|error| {
        unlock(raw, index);
        Failure::system(b"it cannot be mapped", error, LOCAL)
    })
}

/// Undoes [`map`], unless something else will take the place.
fn discard(address: usize, over: Option<usize>, raw: &RawFile) {
    if over.is_none() {
        system::unmap(address, raw.region_stride as usize);
    }
}

const LOCAL: &[u8] = b"let TRODDEN_OUTPUT name a file on a local file system";

fn cannot_lock(error: Errno) -> Failure {
    Failure::system(b"it cannot be locked", error, LOCAL)
}

fn unlock(raw: &RawFile, index: u64) {
    let _ = system::lock_byte(&raw.descriptor, region_lock_byte(index), false);
}

/// Locks the first region from `next` on that is free; returns it with the holder that it names.
fn find_free(raw: &RawFile, next: u64, process: u32, counters: u64) -> Result<Option<(u64, u64)>, Failure> {
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
        // Its lock was lost with a descriptor. If it is this process's own, it may as well have it again.
        if holder != u64::from(process) {
            unlock(raw, index);
        }
    }
    Ok(None)
}

/// Number of whole regions in the file.
fn count(raw: &RawFile) -> Result<u64, Failure> {
    let size = system::stat(&raw.descriptor).map_err(cannot_write)?.size as u64;
    Ok(size.saturating_sub(raw.regions_offset).checked_div(raw.region_stride).unwrap_or(0))
}

/// Adds a region at the end of the file and locks it.
fn grow(raw: &RawFile) -> Result<u64, Failure> {
    let _lock = HeaderLock::take(&raw.descriptor)?;
    let index = count(raw)?;
    let start = raw.regions_offset + index * raw.region_stride;
    // Before the region can be seen, so that no other process takes it.
    system::lock_byte(&raw.descriptor, region_lock_byte(index), true).map_err(cannot_lock)?;
    file::check_room(&raw.descriptor, start + raw.region_stride, raw.region_stride)?;
    // Reserved, however large: a disk that fills up later would kill the subject.
    file::make_room(&raw.descriptor, start, raw.region_stride)?;
    Ok(index)
}

/// Finds out, once, whether locks outlive their descriptor where something is mapped, as region `index` is: puts another one in its place.
fn learn_life(
    raw: &mut RawFile,
    index: u64,
    search: &mut RegionSearch,
    reopen: impl FnOnce() -> Result<RawFile, Failure>,
) -> Result<LockLife, Failure> {
    if search.life == LockLife::Unknown && !raw.descriptor.locks_for_process() {
        // Not the region's own byte, which others lock for a moment when they look for a free one.
        let trial = (u64::from(system::process_id()) << 28 | system::now_ns() & 0xfff_ffff) % TRIALS;
        let trial = HEADER_LOCK_BYTE - 1 - trial as i64;
        let tried = system::lock_byte(&raw.descriptor, trial, true).is_ok();
        *raw = reopen()?;
        search.life = match tried && system::is_locked(&raw.descriptor, trial).map_err(cannot_lock)? {
            true => LockLife::Mapping,
            false => LockLife::Descriptor,
        };
        if search.life == LockLife::Descriptor {
            // Until it is taken again, the holder's name in the region keeps others away.
            file::lock(&raw.descriptor, region_lock_byte(index))?;
        }
    }
    Ok(search.life)
}

/// The process that the region names as its holder; 0 for none.
fn read_holder(raw: &RawFile, index: u64, counters: u64) -> u64 {
    let mut holder = [0; 8];
    let offset = raw.regions_offset + index * raw.region_stride + region_holder_offset(counters);
    let read = system::read_at(&raw.descriptor, &mut holder, offset);
    if read.is_ok() { u64::from_le_bytes(holder) } else { 0 }
}

/// Names another holder of the region mapped at `address`; false if it is not `before` that is named there.
fn set_holder(address: usize, counters: u64, before: u64, holder: u64) -> bool {
    let word = (address + region_holder_offset(counters) as usize) as *mut u64;
    // It is not written needlessly: that would take a page.
    // SAFETY: the word lies in the region, which is mapped, and is aligned; all who use it do so atomically, or read the file.
    before == holder || unsafe { AtomicU64::from_ptr(word) }.compare_exchange(before, holder, SeqCst, SeqCst).is_ok()
}
