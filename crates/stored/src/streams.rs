//! Finds streams by the names that users write: a run, a file or a folder. [`crate::place`] describes the layout of the folders.

use crate::named::LAST_RUN_NAME;
use crate::place::{self, COPIES_FOLDER, LOG_EXTENSION, STREAM_EXTENSION, files_with_extension, folder_of_copy, streams_folder_of};
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::stream::StreamLog;
use trodden_profile::{ProfileError, RunStore};
use trodden_text::words::plural;

/// Opens a log. Warns if it is truncated or partly corrupt. Fails if it is not a log.
pub fn open_log(path: &Path) -> Result<StreamLog> {
    let log = StreamLog::open(path)?;
    if log.corrupt_bytes() > 0 {
        let bytes = plural(log.corrupt_bytes().into(), "byte", "bytes");
        log::warn!("{} is corrupt: {bytes} cannot be read, and their events are missing", path.display());
    }
    if log.is_truncated() {
        log::warn!("{} is truncated, so later events are missing", path.display());
    }
    Ok(log)
}

/// Returns the stream files in a folder. Fails if there are none. If they are in subfolders instead, the error message names the latest
/// subfolder.
pub fn list_stream_files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let streams = files_with_extension(folder, STREAM_EXTENSION)?;
    if streams.is_empty() {
        let mut inner: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        inner.retain(|path| path.is_dir() && files_with_extension(path, STREAM_EXTENSION).is_ok_and(|streams| !streams.is_empty()));
        let advice = match inner.iter().max() {
            Some(newest) => format!(". Name one of its subfolders, such as {}", newest.display()),
            None => " (*.stream). Record with `trodden record --last N -- PROGRAM`".to_owned(),
        };
        bail!("folder {} has no stream files{advice}", folder.display());
    }
    Ok(streams)
}

/// Returns the logs that a name refers to: a single file, the logs in a folder, or the logs of a run.
pub fn find_logs(name: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let folder = find_streams_folder(name)?;
    let logs = files_with_extension(&folder, LOG_EXTENSION)?;
    if logs.is_empty() && folder.join(COPIES_FOLDER).is_dir() {
        bail!(
            "`{name}` was recorded by several copies of the program, each of which recorded only some functions. Only `trodden-lab \
             patterns iterations {name}` can read such a run"
        );
    }
    if logs.is_empty() {
        bail!("folder {} has no stored streams (*.log)", folder.display());
    }
    Ok(logs)
}

/// Returns the logs of a run that several copies of the program recorded, by copy. Returns `None` for other runs and for files.
pub fn list_logs_of_copies(name: &str) -> Result<Option<Vec<Vec<PathBuf>>>> {
    if Path::new(name).is_file() {
        return Ok(None);
    }
    let folder = find_streams_folder(name)?;
    if !folder.join(COPIES_FOLDER).is_dir() {
        return Ok(None);
    }
    let copies = (0..).map(|copy| folder_of_copy(&folder, copy)).take_while(|folder| folder.is_dir());
    Ok(Some(copies.map(|folder| files_with_extension(&folder, LOG_EXTENSION)).collect::<Result<_>>()?))
}

/// Returns the folder with the streams that a name refers to: the folder with this name, or the one of a run.
fn find_streams_folder(name: &str) -> Result<PathBuf> {
    let path = Path::new(name);
    match path.is_dir() {
        true => Ok(path.to_owned()),
        false => {
            let store = RunStore::find(Path::new("."))?;
            let runs = store.select(name)?;
            let [run] = runs.as_slice() else {
                bail!("`{name}` is a suite of several runs, but one run is needed. Name a run by its number")
            };
            let folder = store.streams(run.number);
            if !folder.is_dir() {
                bail!(
                    "run {} has no streams (the order of paths). Build with --stream, and record with `trodden record --whole-program -- \
                     PROGRAM`",
                    run.number
                );
            }
            Ok(folder)
        }
    }
}

/// Returns the logs that were recorded together with a run or a profile file. Returns `None` for suites, and if no streams were recorded.
pub fn list_logs_of_run(name: &str) -> Option<Vec<PathBuf>> {
    let folder = if Path::new(name).exists() {
        streams_folder_of(Path::new(name))
    } else {
        let store = RunStore::find(Path::new(".")).ok()?;
        let runs = store.select(name).ok()?;
        let [run] = runs.as_slice() else { return None };
        store.streams(run.number)
    };
    if !folder.is_dir() {
        return None;
    }
    files_with_extension(&folder, LOG_EXTENSION).ok().filter(|logs| !logs.is_empty())
}

/// Returns the latest recording in the run store: a folder of streams of flight recorders, or the name `last`, which refers to the latest
/// run. Fails if nothing was recorded.
pub fn find_newest_flight_recording() -> Result<PathBuf> {
    let none =
        "nothing was recorded here. Build with --stream and record with `trodden record --whole-program` or `--last N`, or name a file";
    let store = match RunStore::find(Path::new(".")) {
        Err(ProfileError::NoStore { .. }) => bail!(none),
        other => other?,
    };
    let time = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let (flight, run) = (place::newest_flight_folder(store.folder())?, store.get(LAST_RUN_NAME).ok());
    match (flight, run) {
        (None, None) => bail!(none),
        (Some(flight), Some(run)) if time(&flight) <= time(&run.profile) => Ok(LAST_RUN_NAME.into()),
        (Some(flight), _) => Ok(flight),
        (None, Some(_)) => Ok(LAST_RUN_NAME.into()),
    }
}
