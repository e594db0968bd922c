//! What is read and checked before copies run, so that no long run ends with a file that cannot be written; and the
//! folder in which they run.

use crate::cli::Record;
use crate::notes::note;
use crate::surroundings::surroundings;
use anyhow::{Context, Result, ensure};
use nix::unistd::{AccessFlags, access};
use std::fmt;
use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use trodden_launch::LaunchStop;
use trodden_profile::private;
use trodden_recording::{RunFolder, run_folder};

/// How long standard input may stay open without a word.
const PATIENCE: Duration = Duration::from_secs(1);

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
    Given(PathBuf),
    Own(RunFolder),
}

impl WorkFolder {
    /// Makes it.
    pub fn from_record(record: &Record) -> Result<WorkFolder> {
        if let Some(given) = &record.copies.work {
            private::create_folder(given).with_context(|| format!("cannot make the folder {}", given.display()))?;
            ensure!(fs::read_dir(given)?.next().is_none(), "{} is not empty: give a new folder (--work)", given.display());
            return Ok(WorkFolder::Given(fs::canonicalize(given)?));
        }
        Ok(WorkFolder::Own(run_folder(&record.destination.value(), &surroundings())?))
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
    Nothing,
    File(PathBuf),
    /// What came by a pipe.
    Bytes(Vec<u8>),
}

impl CopyInput {
    /// A file that the user gave, else what comes by a pipe.
    pub fn read(given: Option<&Path>) -> Result<CopyInput> {
        if let Some(path) = given {
            ensure!(!path.is_dir(), "{} is a folder: give a file (--input)", path.display());
            let failed = || format!("cannot read {}", path.display());
            // Of a pipe there is one content for all copies.
            return match path.metadata().with_context(failed)?.is_file() {
                true => Ok(CopyInput::File(fs::canonicalize(path).with_context(failed)?)),
                false => Ok(CopyInput::Bytes(fs::read(path).with_context(failed)?)),
            };
        }
        let mut input = io::stdin().lock();
        if input.is_terminal() {
            return Ok(CopyInput::Nothing);
        }
        let (done, open) = channel::<()>();
        std::thread::spawn(move || {
            if open.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                note(
                    "reading standard input to its end, which each copy is to get (--input FILE gives them a file, `< /dev/null` nothing)",
                );
            }
        });
        let mut bytes = Vec::new();
        input.read_to_end(&mut bytes).context("cannot read standard input")?;
        drop(done);
        Ok(if bytes.is_empty() { CopyInput::Nothing } else { CopyInput::Bytes(bytes) })
    }

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
pub fn check_destinations(record: &Record) -> Result<()> {
    record.destination.output.iter().chain(&record.copies.costs).try_for_each(|path| check_destination(path))
}

fn check_destination(path: &Path) -> Result<()> {
    let cannot = || format!("cannot write {}: give another file", path.display());
    ensure!(!path.is_dir(), "{} is a folder: give a file", path.display());
    // A file takes the place of one that is there; a pipe is written into.
    if path.exists() && !path.is_file() {
        return access(path, AccessFlags::W_OK).with_context(cannot);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(cannot)?;
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK).with_context(cannot)
}
