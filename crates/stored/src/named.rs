//! Stored profiles as the command line names them: files, or runs of the run store (`12`, `last`, `last~1`, a suite).

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use trodden_profile::merge::{Builds, merge_files};
use trodden_profile::{Loss, Profile, ProfileError, RunEntry, RunStore};
use trodden_text::words::plural;

/// The name of the newest run.
pub const LAST: &str = "last";
/// What to do with a folder that is named in the place of a profile.
const OF_FOLDERS: &str =
    ": `trodden import` makes a run of a folder of raw or stream files, and `trodden report` shows a recording of waits";

/// Reads the profile that `wanted` names: a file if there is one of that name, else a run, or all runs of a suite added up.
///
/// # Errors
/// There is none of these, or it cannot be read.
pub fn load(wanted: &str) -> Result<Profile> {
    let (profile, lost) = recover(wanted)?;
    lost.iter().for_each(|lost| log::warn!("{lost}"));
    Ok(profile)
}

/// The same with what is lost of damaged files, in words: what is intact is used. Files of a suite that cannot be read
/// at all are said here.
///
/// # Errors
/// As of [`load`].
pub fn recover(wanted: &str) -> Result<(Profile, Vec<String>)> {
    let files = files(wanted)?;
    if let [file] = files.as_slice() {
        let found = Profile::recover(file)?;
        return Ok((found.profile, losses(file, &found.lost)));
    }
    // Of a program that was built again, the newest run says which build is meant.
    let merged = merge_files(files.iter().rev(), Builds::Refuse, |_| {});
    if let Some((file, reason)) = merged.refused.first() {
        let more = match merged.refused.len() - 1 {
            0 => String::new(),
            more => format!("; so {} of `{wanted}`", plural(more as u128, "more run is", "more runs are")),
        };
        log::warn!("{} is left out: {reason}{more}", file.display());
    }
    let lost = merged.damaged.iter().flat_map(|(file, lost)| losses(file, lost)).collect();
    Ok((merged.profile.with_context(|| format!("none of the runs of `{wanted}` can be read"))?, lost))
}

/// Reads the profile in a file, whose name may hold any bytes.
///
/// # Errors
/// It cannot be read.
pub fn load_file(file: &Path) -> Result<Profile> {
    let found = Profile::recover(file)?;
    losses(file, &found.lost).iter().for_each(|lost| log::warn!("{lost}"));
    Ok(found.profile)
}

/// What is said of a damaged file of which the intact part is used.
pub fn losses(file: &Path, lost: &[Loss]) -> Vec<String> {
    let Some(first) = lost.first() else { return Vec::new() };
    let more = if lost.len() > 1 { format!(" and {} more; `trodden info` lists them", lost.len() - 1) } else { String::new() };
    vec![format!("{} is damaged, and only what is intact is used. Lost: {first}{more}", file.display())]
}

/// The files of the profiles that `wanted` names: itself if there is a file of that name, else those of a run or of the runs of a suite.
///
/// # Errors
/// There is none of these.
pub fn files(wanted: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(wanted);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let store = match RunStore::find(Path::new(".")) {
        Err(ProfileError::NoStore { .. }) if path.is_dir() => {
            bail!("{wanted} is a folder, not a profile, and there is no run store here{OF_FOLDERS}")
        }
        Err(ProfileError::NoStore { .. }) if wanted != LAST => {
            bail!("there is neither a file {wanted} nor a run store here: record a run with `trodden record -- PROGRAM`")
        }
        other => other?,
    };
    // A suite may well have the name of a folder: `tests`.
    match store.select(wanted) {
        Err(_) if path.is_dir() => bail!("{wanted} is a folder, not a profile, and no run or suite has that name{OF_FOLDERS}"),
        found => Ok(found?.into_iter().map(|entry| entry.profile).collect()),
    }
}

/// The runs of a suite.
///
/// # Errors
/// There is no such suite.
pub fn runs_of_suite(name: &str) -> Result<Vec<RunEntry>> {
    let store = RunStore::find(Path::new("."))?;
    // Says which there are.
    let runs = store.select(name)?;
    ensure!(store.suites()?.iter().any(|(suite, _)| suite == name), "`{name}` is a run, not a suite");
    Ok(runs)
}
