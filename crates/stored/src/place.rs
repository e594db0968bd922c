//! Where streams are kept: in the run store, beside the profiles.
//!
//! ```text
//! .trodden/streams/000012/NAME.log      the streams of run 12, a log for each process and image
//! .trodden/streams/000013/copies/0001/NAME.log   of run 13, those of one of several copies, which have a part of the functions each
//! .trodden/last/NUMBER/NAME.stream      what flight recorders had at the end of a command
//! ```

use anyhow::{Context, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use trodden_profile::private;

/// Extension of stream files.
pub const STREAM: &str = "stream";
/// Extension of logs.
pub const LOG: &str = "log";
const LAST: &str = "last";
/// The folder of the logs of copies that share a run's functions, in the run's.
pub const COPIES: &str = "copies";
/// Recordings of `--last` that are kept before a new one: a program that is restarted again and again does not fill the disk.
const KEPT: u64 = 20;

/// Files of a folder with an extension, by name.
///
/// # Errors
/// The folder cannot be read.
pub fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read the folder {}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Where the logs of a copy are, in the folder of a run's.
pub fn of_copy(streams: &Path, copy: usize) -> PathBuf {
    streams.join(COPIES).join(format!("{copy:04}"))
}

/// Where the logs of a run lie whose profile is in a file.
pub fn streams_beside(profile: &Path) -> PathBuf {
    let mut name = profile.as_os_str().to_owned();
    name.push(".streams");
    name.into()
}

/// Puts logs where a run has its own.
///
/// # Errors
/// The place cannot be written.
pub fn move_logs(logs: &[PathBuf], place: &Path) -> Result<()> {
    let cannot = || format!("cannot put the streams into {}", place.display());
    if !logs.is_empty() {
        private::create_folder(place).with_context(cannot)?;
    }
    for log in logs {
        let to = place.join(log.file_name().context("a log has a name")?);
        // Another file system, with --no-store.
        if fs::rename(log, &to).is_err() {
            fs::copy(log, &to).with_context(cannot)?;
        }
        fs::set_permissions(&to, Permissions::from_mode(private::file_mode(place))).with_context(cannot)?;
    }
    Ok(())
}

/// A new folder for what flight recorders had. Of those before, the newest [`KEPT`] stay.
///
/// # Errors
/// It cannot be made, or an old one not be removed.
pub fn new_last(store: &Path) -> Result<PathBuf> {
    let base = store.join(LAST);
    private::create_folder(&base).with_context(|| format!("cannot make the folder {}", base.display()))?;
    for number in newest(&base)?.map_or(1, |n| n + 1).. {
        let folder = base.join(format!("{number:06}"));
        match private::create_new_folder(&folder) {
            Ok(()) => {
                prune(&base, number)?;
                return Ok(folder);
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e).with_context(|| format!("cannot make the folder {}", folder.display())),
        }
    }
    unreachable!("there is no last number")
}

/// Removes the oldest folders, behind a new one.
fn prune(base: &Path, new: u64) -> Result<()> {
    for number in numbers(base)?.into_iter().filter(|number| number + KEPT < new) {
        let folder = base.join(format!("{number:06}"));
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove the folder {}", folder.display()))?;
    }
    Ok(())
}

/// The folder of the newest, in a run store; `None` if there is none.
///
/// # Errors
/// The store cannot be read.
pub fn newest_last(store: &Path) -> Result<Option<PathBuf>> {
    let base = store.join(LAST);
    if !base.is_dir() {
        return Ok(None);
    }
    Ok(newest(&base)?.map(|number| base.join(format!("{number:06}"))))
}

fn newest(base: &Path) -> Result<Option<u64>> {
    Ok(numbers(base)?.into_iter().max())
}

fn numbers(base: &Path) -> Result<Vec<u64>> {
    let entries = fs::read_dir(base).with_context(|| format!("cannot read the folder {}", base.display()))?;
    Ok(entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect())
}
