//! Defines where the run store keeps streams.
//!
//! ```text
//! .trodden/streams/000012/NAME.log                streams of run 12, one log per process and image
//! .trodden/streams/000013/copies/0001/NAME.log    streams of run 13, recorded by copy 1 of the program
//! .trodden/last/NUMBER/NAME.stream                what the flight recorders held when the command ended
//! ```

use anyhow::{Context, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use trodden_profile::private;

/// File name extension of a flight recorder's stream, which holds only the latest events.
pub const STREAM_EXTENSION: &str = "stream";
/// File name extension of a log, which holds the events of a process from its start to its end.
pub const LOG_EXTENSION: &str = "log";
const FLIGHT_RECORDER_FOLDER: &str = "last";
/// Folder for the logs of a run that several copies of the program recorded. Each copy streams only some of the functions.
pub const COPIES_FOLDER: &str = "copies";
/// Number of earlier recordings with `--last` that are kept. This limit prevents a program that restarts repeatedly from filling the disk.
const MAX_EARLIER_RECORDINGS: u64 = 20;

/// Returns the files in a folder that have the given extension, sorted by name.
pub fn files_with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
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

/// Returns the folder for the logs of a copy of the program. `streams` is the folder for the streams of the run.
pub fn folder_of_copy(streams: &Path, copy: usize) -> PathBuf {
    streams.join(COPIES_FOLDER).join(format!("{copy:04}"))
}

/// Returns the folder for the logs that were recorded together with a profile file: `PROFILE.streams`.
pub fn streams_folder_of(profile: &Path) -> PathBuf {
    let mut name = profile.as_os_str().to_owned();
    name.push(".streams");
    name.into()
}

/// Moves logs to a folder, which is created if necessary.
pub fn move_logs_to_folder(logs: &[PathBuf], folder: &Path) -> Result<()> {
    let cannot = || format!("cannot move the streams to {}", folder.display());
    if !logs.is_empty() {
        private::create_folder(folder).with_context(cannot)?;
    }
    for log in logs {
        let to = folder.join(log.file_name().context("the path of a stored stream has no file name")?);
        // With `--no-store`, the target may be on a different file system, to which a file cannot be renamed.
        if fs::rename(log, &to).is_err() {
            fs::copy(log, &to).with_context(cannot)?;
        }
        fs::set_permissions(&to, Permissions::from_mode(private::mode_for_new_file(folder))).with_context(cannot)?;
    }
    Ok(())
}

/// Creates a folder for the streams of flight recorders. Of the earlier ones, keeps the `MAX_EARLIER_RECORDINGS` newest, and removes all
/// others.
pub fn create_flight_folder(store: &Path) -> Result<PathBuf> {
    let base = store.join(FLIGHT_RECORDER_FOLDER);
    private::create_folder(&base).with_context(|| format!("cannot create the folder {}", base.display()))?;
    for number in find_newest_number(&base)?.map_or(1, |n| n + 1).. {
        let folder = base.join(format!("{number:06}"));
        match private::create_new_folder(&folder) {
            Ok(()) => {
                remove_old_flight_folders(&base, number)?;
                return Ok(folder);
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e).with_context(|| format!("cannot create the folder {}", folder.display())),
        }
    }
    unreachable!("the numbers never run out")
}

fn remove_old_flight_folders(base: &Path, new: u64) -> Result<()> {
    for number in list_folder_numbers(base)?.into_iter().filter(|number| number + MAX_EARLIER_RECORDINGS < new) {
        let folder = base.join(format!("{number:06}"));
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove the folder {}", folder.display()))?;
    }
    Ok(())
}

/// Returns the latest folder of streams of flight recorders in a run store; `None` if nothing was recorded with `--last`.
pub fn newest_flight_folder(store: &Path) -> Result<Option<PathBuf>> {
    let base = store.join(FLIGHT_RECORDER_FOLDER);
    if !base.is_dir() {
        return Ok(None);
    }
    Ok(find_newest_number(&base)?.map(|number| base.join(format!("{number:06}"))))
}

fn find_newest_number(base: &Path) -> Result<Option<u64>> {
    Ok(list_folder_numbers(base)?.into_iter().max())
}

fn list_folder_numbers(base: &Path) -> Result<Vec<u64>> {
    let entries = fs::read_dir(base).with_context(|| format!("cannot read the folder {}", base.display()))?;
    Ok(entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect())
}
