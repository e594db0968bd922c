//! Writes profiles to the run store or to a file, and reports problems.

use crate::RecordingContext;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::{CollectProblem, CollectedProfile};
use trodden_stored::place::streams_folder_of;
use trodden_text::words::plural;

/// Where a run's profile is written.
#[derive(Clone, Debug, Default)]
pub struct ProfileDestination {
    /// The suite to which the run belongs.
    pub suite: Option<String>,
    /// A file to which the profile is written, in addition to the run store.
    pub output: Option<PathBuf>,
    /// True to keep the run out of the run store.
    pub no_store: bool,
}

/// What [`deliver_profile`] did.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveredProfile {
    /// Number of problems that make counts incomplete or uncertain.
    pub problems: usize,
    /// True if the profile itself mentions all problems, so that the raw files contain nothing more.
    pub all_marked: bool,
    /// Number of the run in the run store; `None` if it was not stored.
    pub run: Option<u64>,
}

impl DeliveredProfile {
    /// Fails if there were problems.
    pub fn check_nothing_was_lost(self) -> Result<()> {
        ensure!(
            self.problems == 0,
            "the profile is incomplete because of {}, listed above",
            plural(self.problems as u128, "problem", "problems")
        );
        Ok(())
    }
}

/// Writes a collected profile to its destination. Fails if no image can be decoded, or the destination cannot be written.
pub fn deliver_profile(
    collected: &CollectedProfile,
    destination: &ProfileDestination,
    context: &RecordingContext,
) -> Result<DeliveredProfile> {
    let mut losses = collected.problems.iter().filter(|p| p.loses_counts());
    let mut delivered =
        DeliveredProfile { run: None, problems: losses.clone().count(), all_marked: losses.all(CollectProblem::is_recorded_in_profile) };
    collected.problems.iter().for_each(|problem| log::warn!("{problem}"));
    anyhow::ensure!(!collected.profile.images.is_empty(), "cannot decode any counts of this run; the reasons are listed above");
    if let Some(output) = &destination.output {
        collected.profile.write(output)?;
        remove_old_streams(output)?;
        log::info!("the profile is in {}", output.display());
    }
    if !destination.no_store {
        let entry = context.run_store()?.add_run(&collected.profile)?;
        log::info!("recorded as run {}; `trodden report` shows it", entry.number);
        delivered.run = Some(entry.number);
    }
    Ok(delivered)
}

/// Removes the streams of the run whose profile was in this file before. Otherwise, they would be taken for streams of the new run.
fn remove_old_streams(profile: &Path) -> Result<()> {
    let folder = streams_folder_of(profile);
    let copies = folder.join("copies");
    if copies.is_dir() {
        fs::remove_dir_all(&copies)
            .with_context(|| format!("cannot remove folder {}, which has the streams of the previous run", copies.display()))?;
    }
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
    for path in entries.filter_map(|e| Some(e.ok()?.path())).filter(|path| path.extension().is_some_and(|e| e == "log")) {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}, a stream of the previous run", path.display()))?;
    }
    // Removing the folder fails, as it should, if the user has put other files into it.
    let _ = fs::remove_dir(&folder);
    Ok(())
}

/// Warns that nothing was counted, and lists possible reasons.
pub fn warn_nothing_counted(program: &OsStr) {
    if let Some((path, what)) = trodden_trace::privileged_file(program, None) {
        log::warn!(
            "nothing was counted: {} has {what}, and programs with such rights ignore the environment variables that trodden sets. Record \
             a copy of the program without these rights, or record as a user who already has them",
            path.display()
        );
        return;
    }
    log::warn!(
        "nothing was counted: unless a program printed a reason above, neither `{}` nor any program that it runs was built with trodden \
         (see `trodden info PROGRAM`), or the programs do not inherit the environment, as under `env -i` or `sudo`. Build with `trodden \
         build -- ...` or `cargo trodden build`, or pass TRODDEN_OUTPUT on to the programs",
        program.display()
    );
}
