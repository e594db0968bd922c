//! The raw file, kept open: later threads of this process find it where opening is no longer possible (a sandbox, another root, fewer
//! privileges).
//!
//! The program may close a descriptor that it does not know, and its number then may come to be another file's, or that of another
//! description of the same file (a second copy of the image opened it). So nothing is done with it before it is known again: by device and
//! inode, and by the position of the description, which holds a number that no other image of this process uses.
//!
//! Invariant: a process that takes locks for a description is the only one to do so; a child of `fork` either opens the file again or has
//! the locks belong to itself.

use crate::file::RawFile;
use crate::system::{self, Stat};

/// A raw file, open, unless the program closed it.
pub struct Kept {
    pub raw: RawFile,
    device: u64,
    inode: u64,
}

impl Kept {
    /// Marks the description; None where that cannot be done.
    pub fn new(raw: RawFile) -> Option<Kept> {
        let stat = system::stat(&raw.descriptor).ok()?;
        system::set_position(&raw.descriptor, mark()).ok()?;
        Some(Kept { raw, device: stat.dev, inode: stat.ino })
    }

    /// Whether the descriptor still is the same, and the file still has a name.
    fn is_valid(&self) -> bool {
        let same = |stat: Stat| stat.is_regular() && stat.nlink > 0 && (stat.dev, stat.ino) == (self.device, self.inode);
        system::stat(&self.raw.descriptor).is_ok_and(same) && system::position(&self.raw.descriptor) == Ok(mark())
    }

    pub fn is_same_file(&self, other: &Kept) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// Forgets a descriptor that is no longer what it was; returns it otherwise.
pub fn check(kept: &mut Option<Kept>) -> Option<&mut Kept> {
    if kept.as_ref().is_some_and(|kept| !kept.is_valid())
        && let Some(stranger) = kept.take()
    {
        stranger.raw.descriptor.forget();
    }
    kept.as_mut()
}

/// Which page this image's own data are on: a number of its own, and small enough for a position in any file.
fn mark() -> u64 {
    static HERE: u8 = 0;
    (&raw const HERE as u64) >> 12 & 0x7fff_ffff
}
