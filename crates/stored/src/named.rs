//! Loads profiles by the names that users write: a file, or something in the run store (`12`, `last`, `last~1`, or the name of a suite).

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use trodden_profile::merge::{BuildPolicy, merge_files};
use trodden_profile::{LostProfilePart, Profile, ProfileError, RunEntry, RunStore};
use trodden_text::words::plural;

/// The name by which users refer to the latest run.
pub const LAST_RUN_NAME: &str = "last";
/// End of the error message when the user names a folder instead of a profile.
const FOLDER_ADVICE: &str = ". To import a folder of raw or stream files, use `trodden import`; to show a recording of waits, use \
    `trodden report`";

/// Loads the profile that a name refers to: a file if it exists, or else a run or the merged runs of a suite. Warns if a file is partly
/// corrupt, and uses its intact part.
pub fn load_profile(name: &str) -> Result<Profile> {
    let (profile, lost) = recover_profile(name)?;
    lost.iter().for_each(|lost| log::warn!("{lost}"));
    Ok(profile)
}

/// Like [`load_profile`], but returns descriptions of lost data instead of warning about them. Still warns if runs of a suite are skipped.
pub fn recover_profile(name: &str) -> Result<(Profile, Vec<String>)> {
    load_and_describe_losses(name, BuildPolicy::Reject)
}

/// Like [`load_profile`], but different builds of a program become separate images. [`load_profile`] skips runs whose build differs from
/// that of the latest run.
pub fn load_all_builds(name: &str) -> Result<Profile> {
    let (profile, lost) = load_and_describe_losses(name, BuildPolicy::Separate)?;
    lost.iter().for_each(|lost| log::warn!("{lost}"));
    Ok(profile)
}

fn load_and_describe_losses(name: &str, builds: BuildPolicy) -> Result<(Profile, Vec<String>)> {
    let files = list_profile_files(name)?;
    if let [file] = files.as_slice() {
        let found = Profile::recover(file)?;
        return Ok((found.profile, describe_losses(file, &found.lost)));
    }
    // Merging starts with the latest run. If other builds are not accepted, its build is used.
    let merged = merge_files(files.iter().rev(), builds, |_| {});
    if let Some((file, reason)) = merged.refused.first() {
        let more = match merged.refused.len() - 1 {
            0 => String::new(),
            more => format!("; {} of `{name}`", plural(more as u128, "more run is also skipped", "more runs are also skipped")),
        };
        log::warn!("skipping {}: {reason}{more}", file.display());
    }
    let lost = merged.corrupt.iter().flat_map(|(file, lost)| describe_losses(file, lost)).collect();
    Ok((merged.profile.with_context(|| format!("cannot read any run of the suite `{name}`"))?, lost))
}

/// Loads a profile from a file. Warns if the file is partly corrupt, and uses its intact part.
pub fn load_file(file: &Path) -> Result<Profile> {
    let found = Profile::recover(file)?;
    describe_losses(file, &found.lost).iter().for_each(|lost| log::warn!("{lost}"));
    Ok(found.profile)
}

/// Describes what is lost because a file is partly corrupt. Returns an empty vector if `lost` is empty.
pub fn describe_losses(file: &Path, lost: &[LostProfilePart]) -> Vec<String> {
    let Some(first) = lost.first() else { return Vec::new() };
    let more = if lost.len() > 1 { format!(" and {} more; `trodden info` lists them", lost.len() - 1) } else { String::new() };
    vec![format!("{} is corrupt, and only its intact part is used. Lost: {first}{more}", file.display())]
}

/// Returns the profile files that a name refers to: the file with this name if it exists, or else the file of a run or the files of a
/// suite's runs.
pub fn list_profile_files(name: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let store = match RunStore::find(Path::new(".")) {
        Err(ProfileError::NoStore { .. }) if path.is_dir() => {
            bail!("{name} is a folder, not a profile, and the current folder has no run store{FOLDER_ADVICE}")
        }
        Err(ProfileError::NoStore { .. }) if name != LAST_RUN_NAME => {
            bail!("file {name} does not exist, and the current folder has no run store. Record a run with `trodden record -- PROGRAM`")
        }
        other => other?,
    };
    // A suite may have the same name as a folder, such as `tests`.
    match store.select(name) {
        Err(_) if path.is_dir() => bail!("{name} is a folder, not a profile, and there is no run or suite called {name}{FOLDER_ADVICE}"),
        found => Ok(found?.into_iter().map(|entry| entry.profile).collect()),
    }
}

/// Returns the runs of a suite. Fails if `name` is not a suite.
pub fn list_runs_of_suite(name: &str) -> Result<Vec<RunEntry>> {
    let store = RunStore::find(Path::new("."))?;
    // If there is no such name, the error of `select` lists the existing ones.
    let runs = store.select(name)?;
    ensure!(store.suites()?.iter().any(|(suite, _)| suite == name), "`{name}` is a run, not a suite");
    Ok(runs)
}
