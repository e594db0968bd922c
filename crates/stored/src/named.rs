//! Stored profiles by the names of the command line: files, or runs of the run store (`12`, `last`, `last~1`, a suite).

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use trodden_profile::merge::{BuildPolicy, merge_files};
use trodden_profile::{Loss, Profile, ProfileError, RunEntry, RunStore};
use trodden_text::words::plural;

/// Name of the latest run.
pub const LAST: &str = "last";
/// Advice for a folder given in place of a profile.
const FOLDER_ADVICE: &str = ". `trodden import` imports a folder of raw or stream files, and `trodden report` shows a recording of waits";

/// Loads a profile: a file of that name if there is one, or else a run, or the merged runs of a suite. Warns of damage.
///
/// # Errors
/// There is nothing of that name, or it cannot be read.
pub fn load(wanted: &str) -> Result<Profile> {
    let (profile, lost) = recover(wanted)?;
    lost.iter().for_each(|lost| log::warn!("{lost}"));
    Ok(profile)
}

/// Like [`load`], but returns descriptions of what was lost to damage instead of warning. Still warns of runs of a suite that cannot be
/// used at all.
///
/// # Errors
/// As for [`load`].
pub fn recover(wanted: &str) -> Result<(Profile, Vec<String>)> {
    recover_builds(wanted, BuildPolicy::Reject)
}

/// Like [`load`], but keeps different builds of a program as separate images.
///
/// # Errors
/// As for [`load`].
pub fn load_all_builds(wanted: &str) -> Result<Profile> {
    let (profile, lost) = recover_builds(wanted, BuildPolicy::Separate)?;
    lost.iter().for_each(|lost| log::warn!("{lost}"));
    Ok(profile)
}

fn recover_builds(wanted: &str, builds: BuildPolicy) -> Result<(Profile, Vec<String>)> {
    let files = files(wanted)?;
    if let [file] = files.as_slice() {
        let found = Profile::recover(file)?;
        return Ok((found.profile, describe_losses(file, &found.lost)));
    }
    // If the program was rebuilt, the build of the latest run is used.
    let merged = merge_files(files.iter().rev(), builds, |_| {});
    if let Some((file, reason)) = merged.refused.first() {
        let more = match merged.refused.len() - 1 {
            0 => String::new(),
            more => format!(". So {} of `{wanted}`", plural(more as u128, "other run is", "other runs are")),
        };
        log::warn!("{} is skipped: {reason}{more}", file.display());
    }
    let lost = merged.damaged.iter().flat_map(|(file, lost)| describe_losses(file, lost)).collect();
    Ok((merged.profile.with_context(|| format!("no run of `{wanted}` can be read"))?, lost))
}

/// Loads a profile from a file, whose name may have any bytes. Warns of damage.
pub fn load_file(file: &Path) -> Result<Profile> {
    let found = Profile::recover(file)?;
    describe_losses(file, &found.lost).iter().for_each(|lost| log::warn!("{lost}"));
    Ok(found.profile)
}

/// Describes the damage to a file whose intact part is used; empty if there is none.
pub fn describe_losses(file: &Path, lost: &[Loss]) -> Vec<String> {
    let Some(first) = lost.first() else { return Vec::new() };
    let more = if lost.len() > 1 { format!(" and {} more; `trodden info` lists them", lost.len() - 1) } else { String::new() };
    vec![format!("{} is damaged, and only its intact part is used. Lost: {first}{more}", file.display())]
}

/// Returns the profile files that a name stands for: a file of that name if there is one, or else those of a run or of a suite's runs.
///
/// # Errors
/// There is nothing of that name.
pub fn files(wanted: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(wanted);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let store = match RunStore::find(Path::new(".")) {
        Err(ProfileError::NoStore { .. }) if path.is_dir() => {
            bail!("{wanted} is a folder, not a profile, and there is no run store here{FOLDER_ADVICE}")
        }
        Err(ProfileError::NoStore { .. }) if wanted != LAST => {
            bail!("there is no file {wanted}, and no run store here. Record a run with `trodden record -- PROGRAM`")
        }
        other => other?,
    };
    // A suite may have the name of a folder, such as `tests`.
    match store.select(wanted) {
        Err(_) if path.is_dir() => bail!("{wanted} is a folder, not a profile, and no run or suite has that name{FOLDER_ADVICE}"),
        found => Ok(found?.into_iter().map(|entry| entry.profile).collect()),
    }
}

/// Returns the runs of a suite.
///
/// # Errors
/// There is no suite of that name.
pub fn runs_of_suite(name: &str) -> Result<Vec<RunEntry>> {
    let store = RunStore::find(Path::new("."))?;
    // The error lists the names that exist.
    let runs = store.select(name)?;
    ensure!(store.suites()?.iter().any(|(suite, _)| suite == name), "`{name}` is a run, not a suite");
    Ok(runs)
}
