//! Keeps the raw file open, so that later threads of this process can use it even if it can no longer be opened by then (because of a
//! sandbox, a different root folder, or fewer privileges).
//!
//! The program may close the descriptor, and its number may then refer to a different file, or to a different description of the same
//! file. The descriptor is therefore verified before each use, by device and inode and by the file position, which is set to a number
//! unique to the image. Invariant: only one process takes locks for a description. A child of `fork` opens the file again, or uses locks
//! that belong to the child process.

use crate::file::ImageRawFile;
use crate::system::{self, Stat};

pub struct KeptOpenFile {
    pub raw: ImageRawFile,
    device: u64,
    inode: u64,
}

impl KeptOpenFile {
    /// Keeps a raw file whose open file description is marked with the image's number. Returns `None` if marking it fails.
    pub fn new(raw: ImageRawFile) -> Option<KeptOpenFile> {
        let stat = system::stat(&raw.descriptor).ok()?;
        system::set_position(&raw.descriptor, unique_file_position()).ok()?;
        Some(KeptOpenFile { raw, device: stat.dev, inode: stat.ino })
    }

    /// Returns true if the descriptor still refers to the same open file description, and the file was not deleted.
    fn is_valid(&self) -> bool {
        let same = |stat: Stat| stat.is_regular() && stat.nlink > 0 && (stat.dev, stat.ino) == (self.device, self.inode);
        system::stat(&self.raw.descriptor).is_ok_and(same) && system::position(&self.raw.descriptor) == Ok(unique_file_position())
    }

    pub fn is_same_file(&self, other: &KeptOpenFile) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Returns the kept file if its descriptor is still valid. Otherwise, sets `kept` to `None` without closing the descriptor, because the
/// program may use its number for a different file by now.
pub fn keep_if_valid(kept: &mut Option<KeptOpenFile>) -> Option<&mut KeptOpenFile> {
    if kept.as_ref().is_some_and(|kept| !kept.is_valid())
        && let Some(stranger) = kept.take()
    {
        stranger.raw.descriptor.leak();
    }
    kept.as_mut()
}

/// Returns a file position that is unique to this image (the page number of its data) and small enough for any file.
fn unique_file_position() -> u64 {
    static DATA: u8 = 0;
    (&raw const DATA as u64) >> 12 & 0x7fff_ffff
}
