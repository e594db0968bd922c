//! Regions: where a thread counts. Of a raw file, claimed by a lock; or anonymous memory that is thrown away.
//!
//! A claim is an open-file-description lock (fcntl(2)) on the region's lock byte. The kernel keeps it as long as the description, which
//! the mapping keeps alive after its descriptor was closed: so it ends with the process, however that ends, and survives a program that
//! closes all descriptors. Overlay file systems map another file than the one that was opened, and the lock would go with the descriptor:
//! where that is found, the descriptor stays open, and the region's tail names the process that has it, in case somebody closes the
//! descriptor nevertheless.
//!
//! Invariant: a region is mapped by at most one process that counts in it.

use crate::file::{self, HeaderLock, RawFile, cannot_write};
use crate::system::{self, Descriptor, Errno};
use crate::text::Failure;
use crate::wire::{region_holder_offset, region_lock_byte, region_stride};

/// Regions up to this size are reserved on disk when made, so that a disk that fills up later cannot kill the subject.
const RESERVED_UP_TO: u64 = 4 << 20;
/// Descriptors that must stay open get numbers from here on where possible, out of the subject's way.
const OUT_OF_THE_WAY: i32 = 200;

/// A mapped region.
#[derive(Clone, Copy)]
pub struct Region {
    pub address: usize,
    /// Descriptor that holds its lock, where the mapping does not.
    pub kept: Option<i32>,
}

impl Region {
    /// Unmaps it; counts of a file stay in the file.
    pub fn release(self, counters: u64) {
        system::unmap(self.address, region_stride(counters) as usize);
        self.close();
    }

    /// Closes the descriptor, if any.
    pub fn close(self) {
        if let Some(descriptor) = self.kept {
            system::close(descriptor);
        }
    }
}

/// Whether locks outlive their descriptors on the output's file system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LockLife {
    Unknown,
    Mapping,
    Descriptor,
}

/// What the claims of a process know of its raw file.
pub struct Claims {
    /// All regions below were taken when this process looked.
    pub next: u64,
    pub life: LockLife,
}

/// Maps zeros that nobody will read.
pub fn anonymous(counters: u64, over: Option<usize>) -> Result<Region, Errno> {
    system::map_zeros(region_stride(counters) as usize, over).map(|address| Region { address, kept: None })
}

/// Claims a region of `raw` and maps it (at `over`, if given). `reopen` opens the file once more.
pub fn claim(
    raw: RawFile,
    claims: &mut Claims,
    counters: u64,
    over: Option<usize>,
    reopen: impl FnOnce() -> Result<RawFile, Failure>,
) -> Result<Region, Failure> {
    let index = match find_free(&raw, claims.next, counters)? {
        Some(index) => index,
        None => grow(&raw)?,
    };
    claims.next = index + 1;
    let offset = raw.regions_offset + index * raw.region_stride;
    let address = system::map_file(&raw.descriptor, offset, raw.region_stride as usize, over)
        .map_err(|error| Failure::system(b"it cannot be mapped", error, LOCAL))?;
    if claims.life != LockLife::Mapping {
        set_holder(address, counters, system::process_id());
    }
    match keep_lock(raw.descriptor, index, claims, reopen) {
        Ok(Some(kept)) => Ok(Region { address, kept: Some(system::move_up(kept, OUT_OF_THE_WAY).into_raw()) }),
        Ok(None) => {
            set_holder(address, counters, 0);
            Ok(Region { address, kept: None })
        }
        Err(failure) => {
            if over.is_none() {
                system::unmap(address, raw.region_stride as usize);
            }
            Err(failure)
        }
    }
}

const LOCAL: &[u8] = b"let TRODDEN_OUTPUT name a file on a local file system";

fn cannot_lock(error: Errno) -> Failure {
    Failure::system(b"it cannot be locked", error, LOCAL)
}

/// Locks the first region from `next` on that nobody has.
fn find_free(raw: &RawFile, next: u64, counters: u64) -> Result<Option<u64>, Failure> {
    for index in next..count(raw)? {
        match system::lock_byte(&raw.descriptor, region_lock_byte(index), true) {
            Err(system::EAGAIN | system::EACCES) => {}
            Err(error) => return Err(cannot_lock(error)),
            Ok(()) if has_holder(raw, index, counters) => {
                let _ = system::lock_byte(&raw.descriptor, region_lock_byte(index), false);
            }
            Ok(()) => return Ok(Some(index)),
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
    // Before the region can be seen, so that nobody else takes it.
    system::lock_byte(&raw.descriptor, region_lock_byte(index), true).map_err(cannot_lock)?;
    file::check_room(&raw.descriptor, start + raw.region_stride, raw.region_stride)?;
    let reserved = raw.region_stride <= RESERVED_UP_TO;
    match if reserved { system::reserve(&raw.descriptor, start, raw.region_stride) } else { Err(system::EOPNOTSUPP) } {
        Err(system::EOPNOTSUPP | system::ENOSYS) => system::resize(&raw.descriptor, start + raw.region_stride),
        other => other,
    }
    .map_err(cannot_write)?;
    Ok(index)
}

/// Drops the descriptor where the mapping alone keeps the lock; otherwise returns one that does.
fn keep_lock(
    descriptor: Descriptor,
    index: u64,
    claims: &mut Claims,
    reopen: impl FnOnce() -> Result<RawFile, Failure>,
) -> Result<Option<Descriptor>, Failure> {
    match claims.life {
        LockLife::Mapping => return Ok(None),
        LockLife::Descriptor => return Ok(Some(descriptor)),
        LockLife::Unknown => {}
    }
    let again = reopen()?.descriptor;
    drop(descriptor);
    if system::is_locked(&again, region_lock_byte(index)).map_err(cannot_lock)? {
        claims.life = LockLife::Mapping;
        return Ok(None);
    }
    // The lock went with the descriptor. Until it is taken again, the holder's name in the region keeps others away.
    claims.life = LockLife::Descriptor;
    system::lock_byte(&again, region_lock_byte(index), true).map_err(cannot_lock)?;
    Ok(Some(again))
}

/// Whether a process that lives is named as the region's holder: its lock was lost with a descriptor.
fn has_holder(raw: &RawFile, index: u64, counters: u64) -> bool {
    let mut holder = [0; 8];
    let offset = raw.regions_offset + index * raw.region_stride + region_holder_offset(counters);
    let read = system::read_at(&raw.descriptor, &mut holder, offset);
    let holder = u64::from_le_bytes(holder) as u32;
    read.is_ok() && holder != 0 && !system::process_is_gone(holder)
}

/// Names the holder of the region mapped at `address`.
fn set_holder(address: usize, counters: u64, process: u32) {
    let word = (address + region_holder_offset(counters) as usize) as *mut u64;
    // SAFETY: the word lies in the region, which is mapped and this process's own; volatile, as other processes read it in the file.
    // It is not written needlessly: that would take a page.
    unsafe {
        if word.read_volatile() != u64::from(process) {
            word.write_volatile(u64::from(process));
        }
    }
}
