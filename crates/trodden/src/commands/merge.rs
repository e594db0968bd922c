//! `trodden merge`: merges profiles into one.

use crate::cli::MergeArguments;
use crate::notes::{ProgressMeter, note, warn};
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_profile::merge::{BuildPolicy, merge_files};
use trodden_report::words::plural;
use trodden_stored::named;

/// Exit status if files were corrupt or left out.
const INCOMPLETE_MERGE_EXIT_STATUS: u8 = 1;

/// Merges profiles and writes the result. Returns status 1 if files were corrupt or left out.
pub fn run(job: &MergeArguments) -> Result<ExitCode> {
    let mut files: Vec<PathBuf> = Vec::new();
    for name in &job.profiles {
        files.extend(named::list_profile_files(name)?);
    }
    let mut seen = HashSet::new();
    if let Some(file) = files.iter().find(|file| !seen.insert(file.canonicalize().unwrap_or_else(|_| (*file).clone()))) {
        warn(format_args!("profile {} is named more than once. Its counts are added each time", file.display()));
    }
    let builds = if job.separate_builds { BuildPolicy::Separate } else { BuildPolicy::Reject };
    let progress = ProgressMeter::new(files.len(), "profiles");
    let merged = merge_files(&files, builds, |_| progress.step());
    for (file, reason) in &merged.refused {
        warn(format_args!("skipping a profile: {}", prefix_with_file_name(file, &reason.to_string())));
    }
    merged.corrupt.iter().flat_map(|(file, lost)| named::describe_losses(file, lost)).for_each(warn);
    let profile = merged.profile.context("none of the given profiles could be merged")?;
    profile.write(&job.output)?;
    let merged_profiles = plural(merged.files as u128, "profile", "profiles");
    note(format_args!("merged {merged_profiles} into {}", job.output.display()));
    Ok(if merged.refused.is_empty() && merged.corrupt.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(INCOMPLETE_MERGE_EXIT_STATUS)
    })
}

/// Prefixes a reason with the file's name, unless the reason already starts with it.
fn prefix_with_file_name(file: &Path, reason: &str) -> String {
    let name = file.display().to_string();
    if reason.starts_with(&name) { reason.to_owned() } else { format!("{name}: {reason}") }
}
