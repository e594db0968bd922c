//! The temporary folder for raw files while a run is recorded.

use crate::{ProfileDestination, RecordingContext};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use trodden_launch::temporary::{self, TemporaryFolder};
use trodden_profile::private;
use trodden_profile::store::RAW_FOLDER_PREFIX;

/// The temporary folder for a run's raw files. It is locked while it is in use, so that `trodden runs remove --leftovers` leaves it alone.
pub struct RunFolder {
    folder: TemporaryFolder,
    /// An open handle of the folder. It keeps the inode number from being reused, even if the folder is deleted and a program creates a
    /// folder with the same name.
    locked: fs::File,
}

impl RunFolder {
    /// Creates a folder in `base`. It is removed when the value is dropped or a signal ends this process.
    pub fn create_in(base: &Path) -> Result<RunFolder> {
        let folder = temporary::create_shared_folder_in(base, RAW_FOLDER_PREFIX)?;
        let locked = fs::File::open(folder.path()).with_context(|| format!("cannot write to {}", base.display()))?;
        // On a file system without locks, the folder may be mistaken for a leftover of a killed recording while it is in use.
        let _ = locked.try_lock();
        Ok(RunFolder { folder, locked })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps the folder on disk and returns its path.
    pub fn keep(mut self) -> PathBuf {
        self.keep_on_drop();
        self.path().to_owned()
    }

    /// Keeps the folder on disk when this value is dropped.
    pub fn keep_on_drop(&mut self) {
        self.folder.keep();
    }

    /// Fails if the folder was deleted during the recording.
    pub fn check_exists(&self) -> Result<()> {
        let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        ensure!(
            fs::metadata(self.path()).is_ok_and(|now| self.locked.metadata().is_ok_and(|opened| inode(now) == inode(opened))),
            "the counts of this run are lost, because their folder {} was deleted while the command ran. Record again, and do not \
             delete this folder",
            self.path().display()
        );
        Ok(())
    }
}

/// Returns true if a running process counts in a raw file. Such a process holds a lock on the file.
pub fn is_mapped_by_process(file: &Path) -> bool {
    let Ok(file) = fs::File::open(file) else { return false };
    let (kind, whence) = (nix::libc::F_WRLCK as nix::libc::c_short, nix::libc::SEEK_SET as nix::libc::c_short);
    let mut lock = nix::libc::flock { l_type: kind, l_whence: whence, l_start: trodden_wire::region_lock_byte(0), l_len: 0, l_pid: 0 };
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_GETLK(&mut lock)).is_ok() && lock.l_type == kind
}

/// Creates the folder for a run's raw files, near the future profile: in the run store, or beside the output file.
pub fn create_run_folder(destination: &ProfileDestination, context: &RecordingContext) -> Result<RunFolder> {
    let base = match &destination.output {
        Some(output) if destination.no_store => output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned(),
        _ => trodden_profile::store::store_folder(Path::new("")),
    };
    let made = if destination.no_store { trodden_profile::temporary::create_folders(&base) } else { private::create_folder(&base) };
    made.with_context(|| {
        format!("cannot create the folder {}. Run in a folder that can be written, or pass --no-store -o FILE", base.display())
    })?;
    let base = fs::canonicalize(&base)?;
    if !destination.no_store {
        // Leftovers of a killed recorder are found only if the run store exists, so it is created first.
        context.run_store()?;
    }
    let folder = RunFolder::create_in(&base)?;
    // If a signal ends this process, the counts so far stay on disk, and `trodden runs remove --leftovers` finds them.
    folder.folder.keep_if_killed_by_signal();
    Ok(folder)
}
