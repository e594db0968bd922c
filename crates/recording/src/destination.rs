//! Delivery of profiles made from raw files to the run store or a file, and messages about them.

use crate::RecordingContext;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::{CollectProblem, Collected};
use trodden_stored::place::streams_folder_of;
use trodden_text::words::plural;

/// The destination of a run's profile.
#[derive(Clone, Debug, Default)]
pub struct Destination {
    /// The suite that the run belongs to.
    pub suite: Option<String>,
    /// A file to write the profile to, in addition to the run store.
    pub output: Option<PathBuf>,
    /// Whether the run is not put in the run store.
    pub no_store: bool,
}

/// What is missing from a delivered profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// Number of problems because of which counts are missing or uncertain.
    pub problems: usize,
    /// Whether the profile itself records all of them, so that the raw files have no further information.
    pub all_marked: bool,
    /// The number of the run in the run store, if it was put there.
    pub run: Option<u64>,
}

impl Delivered {
    /// Fails if anything is missing.
    pub fn check(self) -> Result<()> {
        ensure!(self.problems == 0, "the profile is incomplete: see {} above", plural(self.problems as u128, "problem", "problems"));
        Ok(())
    }
}

/// Delivers a collected profile to its destination.
///
/// # Errors
/// Nothing could be decoded, or the destination cannot be written.
pub fn deliver(collected: &Collected, destination: &Destination, around: &RecordingContext) -> Result<Delivered> {
    let mut losses = collected.problems.iter().filter(|p| p.loses_counts());
    let mut lacking =
        Delivered { run: None, problems: losses.clone().count(), all_marked: losses.all(CollectProblem::is_recorded_in_profile) };
    collected.problems.iter().for_each(|problem| log::warn!("{problem}"));
    anyhow::ensure!(!collected.profile.images.is_empty(), "none of the images can be decoded");
    if let Some(output) = &destination.output {
        collected.profile.write(output)?;
        forget_streams(output)?;
        log::info!("the profile is in {}", output.display());
    }
    if !destination.no_store {
        let entry = around.run_store()?.add_run(&collected.profile)?;
        log::info!("recorded as run {}; `trodden report` shows it", entry.number);
        lacking.run = Some(entry.number);
    }
    Ok(lacking)
}

/// Removes the streams of the run whose profile the file had before. Together with those of the new run, they would be counted twice.
fn forget_streams(profile: &Path) -> Result<()> {
    let folder = streams_folder_of(profile);
    let copies = folder.join("copies");
    if copies.is_dir() {
        fs::remove_dir_all(&copies).with_context(|| format!("cannot remove {}, streams of the previous run", copies.display()))?;
    }
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
    for path in entries.filter_map(|e| Some(e.ok()?.path())).filter(|path| path.extension().is_some_and(|e| e == "log")) {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}, a stream of the previous run", path.display()))?;
    }
    // This fails if the folder has other files of the user.
    let _ = fs::remove_dir(&folder);
    Ok(())
}

/// Warns that nothing was counted, with the possible reasons.
pub fn nothing_counted(program: &OsStr) {
    if let Some((path, what)) = trodden_trace::privileged_file(program, None) {
        log::warn!(
            "nothing was counted: {} has {what}, and such a program ignores the environment of its user. Record a copy of it without, or \
                run as a user who already has these rights",
            path.display()
        );
        return;
    }
    log::warn!(
        "nothing was counted: unless a program printed a reason above, neither `{}` nor anything it runs was built with trodden. Build \
            with `trodden build -- ...` or `cargo trodden build`; `trodden info PROGRAM` shows whether a program was. (A program that \
            does not get this environment, as under `env -i` or `sudo`, is not counted: pass TRODDEN_OUTPUT on to it)",
        program.display()
    );
}
