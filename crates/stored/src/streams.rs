//! Streams by the names that people give them: of runs, in files and folders. Where they are kept: [`crate::place`].

use crate::named::LAST;
use crate::place::{self, COPIES, LOG, STREAM, of_copy, streams_beside, with_extension};
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::stream::StreamLog;
use trodden_profile::{ProfileError, RunStore};
use trodden_text::words::plural;

/// Opens a log. What is missing of it is said: a reader sees the rest.
///
/// # Errors
/// It cannot be read, or is no log.
pub fn open_log(path: &Path) -> Result<StreamLog> {
    let log = StreamLog::open(path)?;
    if log.damaged_bytes() > 0 {
        let bytes = plural(log.damaged_bytes().into(), "byte", "bytes");
        log::warn!("{} is damaged: {bytes} cannot be read, and events that were there are missing", path.display());
    }
    if log.is_cut() {
        log::warn!("{} is cut: events that were in the rest are missing", path.display());
    }
    Ok(log)
}

/// The stream files of a folder.
///
/// # Errors
/// It cannot be read, or has none; then the newest folder in it that has some is named.
pub fn streams_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let streams = with_extension(folder, STREAM)?;
    if streams.is_empty() {
        let mut inner: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        inner.retain(|path| path.is_dir() && with_extension(path, STREAM).is_ok_and(|streams| !streams.is_empty()));
        let remedy = match inner.iter().max() {
            Some(newest) => format!(": name one of the folders in it, such as {}", newest.display()),
            None => " (their names end in .stream): `trodden record --last N -- PROGRAM` makes some".to_owned(),
        };
        bail!("there are no stream files in {}{remedy}", folder.display());
    }
    Ok(streams)
}

/// The logs that `wanted` names: of a folder, a file, or a run.
///
/// # Errors
/// There are none.
pub fn logs(wanted: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(wanted);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let folder = folder(wanted)?;
    let logs = with_extension(&folder, LOG)?;
    if logs.is_empty() && folder.join(COPIES).is_dir() {
        bail!(
            "copies share the functions of `{wanted}`, so that no stream has all: they answer only `trodden patterns iterations {wanted}`"
        );
    }
    if logs.is_empty() {
        bail!("there are no logs of streams in {}", folder.display());
    }
    Ok(logs)
}

/// The logs of each copy, where copies share the functions of a run.
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
    let copies = (0..).map(|copy| of_copy(&folder, copy)).take_while(|folder| folder.is_dir());
    Ok(Some(copies.map(|folder| with_extension(&folder, LOG)).collect::<Result<_>>()?))
}

/// The folder of the streams that `wanted` names.
fn folder(wanted: &str) -> Result<PathBuf> {
    let path = Path::new(wanted);
    match path.is_dir() {
        true => Ok(path.to_owned()),
        false => {
            let store = RunStore::find(Path::new("."))?;
            let runs = store.select(wanted)?;
            let [run] = runs.as_slice() else { bail!("`{wanted}` is a suite of several runs: name one run by its number") };
            let folder = store.streams(run.number);
            if !folder.is_dir() {
                bail!(
                    "run {} has no streams: record one with `trodden record --whole-program -- PROGRAM` (built with --stream)",
                    run.number
                );
            }
            Ok(folder)
        }
    }
}

/// The logs of the run that a profile's name means, or beside a profile's file: none of a suite, or where no stream was recorded.
pub fn logs_of_run(wanted: &str) -> Option<Vec<PathBuf>> {
    let folder = if Path::new(wanted).exists() {
        streams_beside(Path::new(wanted))
    } else {
        let store = RunStore::find(Path::new(".")).ok()?;
        let runs = store.select(wanted).ok()?;
        let [run] = runs.as_slice() else { return None };
        store.streams(run.number)
    };
    if !folder.is_dir() {
        return None;
    }
    with_extension(&folder, LOG).ok().filter(|logs| !logs.is_empty())
}

/// What was recorded last here: a folder of flight recorders, or the newest run.
///
/// # Errors
/// There is neither.
pub fn newest_recording() -> Result<PathBuf> {
    let none =
        "nothing was recorded here: record with `trodden record --whole-program` or `--last N` (built with --stream), or name a file";
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
