//! Streams by the names that users give: runs, files and folders. [`crate::place`] defines where they are stored.

use crate::named::LAST;
use crate::place::{self, COPIES, LOG, STREAM, files_with_extension, folder_of_copy, streams_folder_of};
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::stream::StreamLog;
use trodden_profile::{ProfileError, RunStore};
use trodden_text::words::plural;

/// Opens a log. Warns if parts of it are missing.
///
/// # Errors
/// The file cannot be read, or is not a log.
pub fn open_log(path: &Path) -> Result<StreamLog> {
    let log = StreamLog::open(path)?;
    if log.damaged_bytes() > 0 {
        let bytes = plural(log.damaged_bytes().into(), "byte", "bytes");
        log::warn!("{} is damaged: {bytes} cannot be read, and events in that part are missing", path.display());
    }
    if log.is_truncated() {
        log::warn!("{} is truncated: later events are missing", path.display());
    }
    Ok(log)
}

/// Returns the stream files in a folder.
///
/// # Errors
/// The folder cannot be read, or has no stream files. In the latter case, the error names the latest subfolder that has some.
pub fn streams_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let streams = files_with_extension(folder, STREAM)?;
    if streams.is_empty() {
        let mut inner: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        inner.retain(|path| path.is_dir() && files_with_extension(path, STREAM).is_ok_and(|streams| !streams.is_empty()));
        let remedy = match inner.iter().max() {
            Some(newest) => format!(": name one of its subfolders, for example {}", newest.display()),
            None => " (*.stream): record with `trodden record --last N -- PROGRAM`".to_owned(),
        };
        bail!("there are no stream files in {}{remedy}", folder.display());
    }
    Ok(streams)
}

/// Returns the logs that a name stands for: a file, or those of a folder or run.
pub fn logs(wanted: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(wanted);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let folder = folder(wanted)?;
    let logs = files_with_extension(&folder, LOG)?;
    if logs.is_empty() && folder.join(COPIES).is_dir() {
        bail!(
            "`{wanted}` was recorded by copies that each stream only some functions: only `trodden-lab patterns iterations \
             {wanted}` can read such streams"
        );
    }
    if logs.is_empty() {
        bail!("there are no logs (*.log) in {}", folder.display());
    }
    Ok(logs)
}

/// Returns the logs of each copy, for a run whose functions are shared among copies; `None` for other runs and for files.
///
/// # Errors
/// There is no such run, or a folder cannot be read.
pub fn logs_of_copies(wanted: &str) -> Result<Option<Vec<Vec<PathBuf>>>> {
    if Path::new(wanted).is_file() {
        return Ok(None);
    }
    let folder = folder(wanted)?;
    if !folder.join(COPIES).is_dir() {
        return Ok(None);
    }
    let copies = (0..).map(|copy| folder_of_copy(&folder, copy)).take_while(|folder| folder.is_dir());
    Ok(Some(copies.map(|folder| files_with_extension(&folder, LOG)).collect::<Result<_>>()?))
}

/// The folder of streams that a name stands for.
fn folder(wanted: &str) -> Result<PathBuf> {
    let path = Path::new(wanted);
    match path.is_dir() {
        true => Ok(path.to_owned()),
        false => {
            let store = RunStore::find(Path::new("."))?;
            let runs = store.select(wanted)?;
            let [run] = runs.as_slice() else { bail!("`{wanted}` is a suite of several runs: name one of them by its number") };
            let folder = store.streams(run.number);
            if !folder.is_dir() {
                bail!(
                    "run {} has no streams: build with --stream, and record with `trodden record --whole-program -- PROGRAM`",
                    run.number
                );
            }
            Ok(folder)
        }
    }
}

/// Returns the logs that belong to a run or a profile file; `None` for a suite, or if no stream was recorded.
pub fn logs_of_run(wanted: &str) -> Option<Vec<PathBuf>> {
    let folder = if Path::new(wanted).exists() {
        streams_folder_of(Path::new(wanted))
    } else {
        let store = RunStore::find(Path::new(".")).ok()?;
        let runs = store.select(wanted).ok()?;
        let [run] = runs.as_slice() else { return None };
        store.streams(run.number)
    };
    if !folder.is_dir() {
        return None;
    }
    files_with_extension(&folder, LOG).ok().filter(|logs| !logs.is_empty())
}

/// Returns the latest recording here: a folder of flight recorders, or the name of the latest run.
///
/// # Errors
/// Nothing was recorded.
pub fn newest_recording() -> Result<PathBuf> {
    let none =
        "nothing was recorded here: build with --stream and record with `trodden record --whole-program` or `--last N`, or name a file";
    let store = match RunStore::find(Path::new(".")) {
        Err(ProfileError::NoStore { .. }) => bail!(none),
        other => other?,
    };
    let time = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let (flight, run) = (place::newest_last(store.folder())?, store.get(LAST).ok());
    match (flight, run) {
        (None, None) => bail!(none),
        (Some(flight), Some(run)) if time(&flight) <= time(&run.profile) => Ok(LAST.into()),
        (Some(flight), _) => Ok(flight),
        (None, Some(_)) => Ok(LAST.into()),
    }
}
