//! Files of the recording that stay open while the program runs.
//!
//! The program may close any descriptor, and the kernel may then assign its number to another file. Therefore the device and inode of a
//! file are checked before each use, and the file is reopened if they differ. Descriptors with high numbers are used, so that the program's
//! own files get the same descriptors as without the recorder.

use crate::output::{self, Path};
use core::ffi::CStr;
use libc::c_int;

const MIN_DESCRIPTOR: c_int = 200;
const OPEN_FLAGS: c_int = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW;

pub struct OwnFile {
    descriptor: c_int,
    flags: c_int,
    identity: (u64, u64),
}

impl OwnFile {
    pub const NONE: OwnFile = OwnFile { descriptor: -1, flags: 0, identity: (0, 0) };

    /// Creates a file, which must not exist yet. `flags` may contain O_APPEND.
    pub fn create(path: &Path, flags: c_int) -> Option<OwnFile> {
        let descriptor = open_at_high_descriptor(path, flags | libc::O_CREAT | libc::O_EXCL)?;
        Some(OwnFile { descriptor, flags, identity: stat_file(descriptor)?.0 })
    }

    /// Opens an existing file for reading. Returns `None` if that fails, or if there is no free descriptor from [`MIN_DESCRIPTOR`] on.
    pub fn open_existing(path: &CStr) -> Option<OwnFile> {
        let low = output::open_with_system_call(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        // SAFETY: `low` is a descriptor that this function opened, and the call takes no pointers.
        let descriptor = if low < 0 { low } else { unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, MIN_DESCRIPTOR) } };
        if low >= 0 {
            output::close(low);
        }
        Some(OwnFile { descriptor, flags: 0, identity: stat_file(descriptor)?.0 })
    }

    pub fn is_none(&self) -> bool {
        self.identity == (0, 0)
    }

    /// Closes the file, unless its descriptor now belongs to a file of the program.
    pub fn close(&mut self) {
        if !self.is_none() && stat_file(self.descriptor).is_some_and(|(identity, _)| identity == self.identity) {
            output::close(self.descriptor);
        }
        *self = OwnFile::NONE;
    }

    /// Returns the file's descriptor and current size; `None` if the file no longer exists. If the program has closed the descriptor, opens
    /// the file again at the path that `path` returns.
    pub fn descriptor(&mut self, path: impl FnOnce() -> Option<Path>) -> Option<(c_int, u64)> {
        if self.is_none() {
            return None;
        }
        let is_own = |(identity, _): &((u64, u64), u64)| *identity == self.identity;
        if let Some((_, size)) = stat_file(self.descriptor).filter(is_own) {
            return Some((self.descriptor, size));
        }
        let descriptor = open_at_high_descriptor(&path()?, self.flags)?;
        let Some((_, size)) = stat_file(descriptor).filter(is_own) else {
            output::close(descriptor);
            return None;
        };
        self.descriptor = descriptor;
        Some((descriptor, size))
    }
}

fn open_at_high_descriptor(path: &Path, flags: c_int) -> Option<c_int> {
    let low = output::open_with_system_call(path.as_ptr(), OPEN_FLAGS | flags);
    if low < 0 {
        return None;
    }
    // SAFETY: `low` is a descriptor that this function opened, and the call takes no pointers.
    let high = unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, MIN_DESCRIPTOR) };
    if high < 0 {
        return Some(low);
    }
    output::close(low);
    Some(high)
}

/// Returns the device and inode of an open file, and its size; `None` if the descriptor is invalid.
fn stat_file(descriptor: c_int) -> Option<((u64, u64), u64)> {
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer refers to the local variable `status`.
    let is_known = descriptor >= 0 && unsafe { libc::fstat(descriptor, &raw mut status) } == 0;
    is_known.then_some(((status.st_dev, status.st_ino), status.st_size as u64))
}
