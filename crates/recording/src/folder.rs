//! The temporary folder of a run's raw counts.

use crate::{Destination, Surroundings};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use trodden_launch::temporary::{self, TemporaryFolder};
use trodden_profile::private;
use trodden_profile::store::RAW;

/// A temporary folder of raw counts. It is locked as long as it is used, so that `trodden runs remove --leftovers` leaves it alone.
pub struct RunFolder {
    folder: TemporaryFolder,
    /// Open: so no other folder has its number, even if it is deleted and programs make one of its name.
    locked: fs::File,
}

impl RunFolder {
    /// Makes one. It is removed also when a signal ends the command: the counts of a program that has not ended are no run.
    ///
    /// # Errors
    /// The folder that it is to be in cannot be written.
    pub fn within(base: &Path) -> Result<RunFolder> {
        let folder = temporary::folder_of_users(base, RAW)?;
        let locked = fs::File::open(folder.path()).with_context(|| format!("cannot write to {}", base.display()))?;
        // Where a file system has no locks, it may be taken for one that was left.
        let _ = locked.try_lock();
        Ok(RunFolder { folder, locked })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves it where it is, for the user.
    pub fn keep(mut self) -> PathBuf {
        self.leave();
        self.path().to_owned()
    }

    /// The same, when it is no longer used.
    pub fn leave(&mut self) {
        self.folder.leave();
    }

    /// Whether it is still there.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self) -> Result<()> {
        let number = |there: fs::Metadata| (there.dev(), there.ino());
        ensure!(
            fs::metadata(self.path()).is_ok_and(|now| self.locked.metadata().is_ok_and(|made| number(now) == number(made))),
            "the folder of its raw counts, {}, was deleted while the command ran, and what was counted with it: record again, and leave \
                that folder alone",
            self.path().display()
        );
        Ok(())
    }
}

/// Whether a process that runs has a region of a raw file: it holds a lock then.
pub fn is_in_use(file: &Path) -> bool {
    let Ok(file) = fs::File::open(file) else { return false };
    let (kind, whence) = (nix::libc::F_WRLCK as nix::libc::c_short, nix::libc::SEEK_SET as nix::libc::c_short);
    let mut lock = nix::libc::flock { l_type: kind, l_whence: whence, l_start: trodden_wire::region_lock_byte(0), l_len: 0, l_pid: 0 };
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_GETLK(&mut lock)).is_ok() && lock.l_type == kind
}

/// The folder of the run's raw files, where its profile is to be: in the run store, or beside the output.
///
/// # Errors
/// It cannot be made.
pub fn run_folder(destination: &Destination, around: &Surroundings) -> Result<RunFolder> {
    let base = match &destination.output {
        Some(output) if destination.no_store => output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned(),
        _ => trodden_profile::store::folder_of(Path::new("")),
    };
    let made = if destination.no_store { trodden_profile::temporary::create_folders(&base) } else { private::create_folder(&base) };
    made.with_context(|| {
        format!("cannot make the folder {}: run from a folder that can be written, or use --no-store -o FILE", base.display())
    })?;
    let base = fs::canonicalize(&base)?;
    if !destination.no_store {
        // What a recorder leaves that is killed is found by its store.
        around.run_store()?;
    }
    let folder = RunFolder::within(&base)?;
    // What the program has counted stays, for `trodden runs remove --leftovers` to find.
    folder.folder.leave_on_signals();
    Ok(folder)
}
