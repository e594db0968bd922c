//! Where streams are kept: in the run store, beside the profiles.
//!
//! ```text
//! .trodden/streams/000012/NAME.log      the streams of run 12, a log for each process and image
//! .trodden/last/NUMBER/NAME.stream      what flight recorders had at the end of a command
//! ```

use crate::running::streams_beside;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::{ProfileError, RunStore};

/// Extension of stream files.
pub const STREAM: &str = "stream";
/// Extension of logs.
pub const LOG: &str = "log";
const LAST: &str = "last";
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

/// The logs that `wanted` names: of a folder, a file, or a run.
///
/// # Errors
/// There are none.
pub fn logs(wanted: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(wanted);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let folder = match path.is_dir() {
        true => path.to_owned(),
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
            folder
        }
    };
    let logs = with_extension(&folder, LOG)?;
    if logs.is_empty() {
        bail!("there are no logs of streams in {}", folder.display());
    }
    Ok(logs)
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

/// A new folder for what flight recorders had. Of those before, the newest [`KEPT`] stay.
///
/// # Errors
/// It cannot be made, or an old one not be removed.
pub fn new_last(store: &Path) -> Result<PathBuf> {
    let base = store.join(LAST);
    fs::create_dir_all(&base).with_context(|| format!("cannot make the folder {}", base.display()))?;
    for number in newest(&base)?.map_or(1, |n| n + 1).. {
        let folder = base.join(format!("{number:06}"));
        match fs::create_dir(&folder) {
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

/// The folder of the newest.
///
/// # Errors
/// There is none.
pub fn newest_last() -> Result<PathBuf> {
    let none = "nothing was recorded here by `trodden record --last N -- PROGRAM` (built with --stream): record, or name the stream files";
    let store = match RunStore::find(Path::new(".")) {
        Err(ProfileError::NoStore { .. }) => bail!(none),
        other => other?,
    };
    let base = store.folder().join(LAST);
    if !base.is_dir() {
        bail!(none);
    }
    Ok(base.join(format!("{:06}", newest(&base)?.context(none)?)))
}

fn newest(base: &Path) -> Result<Option<u64>> {
    Ok(numbers(base)?.into_iter().max())
}

fn numbers(base: &Path) -> Result<Vec<u64>> {
    let entries = fs::read_dir(base).with_context(|| format!("cannot read the folder {}", base.display()))?;
    Ok(entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect())
}
