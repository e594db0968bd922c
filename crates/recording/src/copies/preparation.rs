//! Prepares a recording with copies: the folder for copies and results, and the standard input. Also checks that results can be written,
//! because the run may be long.

use super::CopyJob;
use crate::{RecordingContext, RunFolder, create_run_folder};
use anyhow::{Context, Result, ensure};
use nix::unistd::{AccessFlags, access};
use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use trodden_launch::StopFlag;
use trodden_profile::private;

/// Marks an error in which copies failed or contradict each other. Their files are kept, because they may show why.
#[derive(Clone, Copy, Debug)]
pub struct CopiesFailedError;

impl fmt::Display for CopiesFailedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no profile was stored")
    }
}

/// The folder for copies and their results.
pub enum WorkFolder {
    /// A folder that the user named. It is never removed.
    Named(PathBuf),
    /// A temporary folder.
    Temporary(RunFolder),
}

impl WorkFolder {
    /// Creates the folder. If the user has named a folder, it must be empty.
    pub fn new(job: &CopyJob, context: &RecordingContext) -> Result<WorkFolder> {
        if let Some(given) = &job.options.work {
            private::create_folder(given).with_context(|| format!("cannot create the folder {}", given.display()))?;
            ensure!(fs::read_dir(given)?.next().is_none(), "{} is not empty. Pass a new folder to --work", given.display());
            return Ok(WorkFolder::Named(fs::canonicalize(given)?));
        }
        Ok(WorkFolder::Temporary(create_run_folder(&job.what.destination, context)?))
    }

    /// Returns the error to report. If a signal interrupted the recording, this is the interruption, because the signal may have made a
    /// compiler or a copy fail. Otherwise, it is `error`, and the files of failed copies ([`CopiesFailedError`]) are kept.
    pub fn finish_with_error(&mut self, error: anyhow::Error, stop: &StopFlag) -> anyhow::Error {
        if let Err(interrupted) = stop.check() {
            return interrupted.into();
        }
        match self {
            WorkFolder::Temporary(folder) if error.is::<CopiesFailedError>() => {
                folder.keep_on_drop();
                error.context(format!("the files of the program's copies are kept in {}", folder.path().display()))
            }
            _ => error,
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            WorkFolder::Named(path) => path,
            WorkFolder::Temporary(folder) => folder.path(),
        }
    }
}

/// Standard input of all copies.
pub enum CopyInput {
    /// No input.
    Nothing,
    /// The content of a regular file.
    File(PathBuf),
    /// Data that was read from a pipe.
    Bytes(Vec<u8>),
}

impl CopyInput {
    /// Returns the path of a file with the input; `None` for no input. Writes data that was read from a pipe to a file in `folder`.
    pub fn into_file(self, folder: &Path) -> Result<Option<PathBuf>> {
        match self {
            CopyInput::Nothing => Ok(None),
            CopyInput::File(path) => Ok(Some(path)),
            CopyInput::Bytes(bytes) => {
                let path = folder.join("input");
                // Only the owner may read the file, because the input may be confidential.
                let made = fs::File::options().write(true).create_new(true).mode(0o600).open(&path);
                made.and_then(|mut file| file.write_all(&bytes)).with_context(|| format!("cannot write {}", path.display()))?;
                Ok(Some(path))
            }
        }
    }
}

/// Checks that the output files can be written, and creates their parent folders.
pub fn check_destinations(job: &CopyJob) -> Result<()> {
    job.what.destination.output.iter().chain(&job.options.costs).try_for_each(|path| check_destination(path))
}

fn check_destination(path: &Path) -> Result<()> {
    let cannot = || format!("cannot write {} (pass a different file)", path.display());
    ensure!(!path.is_dir(), "cannot write {}, which is a folder. Pass the name of a file", path.display());
    // A regular file will be replaced, so its folder must be writable. Other files, such as pipes, will be written to directly.
    if path.exists() && !path.is_file() {
        return access(path, AccessFlags::W_OK).with_context(cannot);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    trodden_profile::temporary::create_folders(folder).with_context(cannot)?;
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK).with_context(cannot)
}
