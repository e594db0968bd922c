//! What is read and checked before copies run, so that no long run ends with a file that cannot be written; and the
//! folder in which they run.

use super::CopyJob;
use crate::{RunFolder, Surroundings, run_folder};
use anyhow::{Context, Result, ensure};
use nix::unistd::{AccessFlags, access};
use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use trodden_launch::LaunchStop;
use trodden_profile::private;

/// Copies ran, and failed or made results that do not fit together: what is left of them may say why.
#[derive(Clone, Copy, Debug)]
pub struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no profile was made")
    }
}

/// The folder of copies and results: one that the user gave, or a temporary one.
pub enum WorkFolder {
    /// The user's.
    Given(PathBuf),
    /// A temporary one.
    Own(RunFolder),
}

impl WorkFolder {
    /// Makes it.
    ///
    /// # Errors
    /// It cannot be made, or is not empty.
    pub fn new(job: &CopyJob, around: &Surroundings) -> Result<WorkFolder> {
        if let Some(given) = &job.options.work {
            private::create_folder(given).with_context(|| format!("cannot make the folder {}", given.display()))?;
            ensure!(fs::read_dir(given)?.next().is_none(), "{} is not empty: give a new folder (--work)", given.display());
            return Ok(WorkFolder::Given(fs::canonicalize(given)?));
        }
        Ok(WorkFolder::Own(run_folder(&job.what.destination, around)?))
    }

    /// After an error: keeps what copies left, if it is theirs ([`Failed`]). Where a signal asked us to end, that is
    /// the error, whatever compilers and copies make of it.
    pub fn end_with(&mut self, error: anyhow::Error, stop: &LaunchStop) -> anyhow::Error {
        if let Err(interrupted) = stop.check() {
            return interrupted.into();
        }
        match self {
            WorkFolder::Own(folder) if error.is::<Failed>() => {
                folder.leave();
                error.context(format!("what they left is kept in {}", folder.path().display()))
            }
            _ => error,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            WorkFolder::Given(path) => path,
            WorkFolder::Own(folder) => folder.path(),
        }
    }
}

/// What copies get as their standard input.
pub enum CopyInput {
    /// Nothing.
    Nothing,
    /// What a file holds.
    File(PathBuf),
    /// What came by a pipe.
    Bytes(Vec<u8>),
}

impl CopyInput {
    /// Puts it into a file, where it is in none.
    pub fn file(self, folder: &Path) -> Result<Option<PathBuf>> {
        match self {
            CopyInput::Nothing => Ok(None),
            CopyInput::File(path) => Ok(Some(path)),
            CopyInput::Bytes(bytes) => {
                let path = folder.join("input");
                // It may hold what only its owner may read.
                let made = fs::File::options().write(true).create_new(true).mode(0o600).open(&path);
                made.and_then(|mut file| file.write_all(&bytes)).with_context(|| format!("cannot write {}", path.display()))?;
                Ok(Some(path))
            }
        }
    }
}

/// Checks that the files that the user wants can be written, and makes their folders.
pub fn check_destinations(job: &CopyJob) -> Result<()> {
    job.what.destination.output.iter().chain(&job.options.costs).try_for_each(|path| check_destination(path))
}

fn check_destination(path: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}: give another file", path.display());
    ensure!(!path.is_dir(), "{} is a folder: give a file", path.display());
    // A file takes the place of one that is there; a pipe is written into.
    if path.exists() && !path.is_file() {
        return access(path, AccessFlags::W_OK).with_context(cannot);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    trodden_profile::temporary::create_folders(folder).with_context(cannot)?;
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK).with_context(cannot)
}
