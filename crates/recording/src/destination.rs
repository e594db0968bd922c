//! Where a profile goes that was made of raw files: the run store, a file; and what is said of it.

use crate::Surroundings;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::{CollectProblem, Collected};
use trodden_stored::place::streams_beside;
use trodden_text::words::plural;

/// Where the profile of a run goes.
#[derive(Clone, Debug, Default)]
pub struct Destination {
    /// The suite to which the run belongs.
    pub suite: Option<String>,
    /// A file for the profile, besides the run store.
    pub output: Option<PathBuf>,
    /// Whether the run is left out of the run store.
    pub no_store: bool,
}

/// What a profile lacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lacking {
    /// Problems by which counts are missing or uncertain.
    pub problems: usize,
    /// The profile itself says so of each of them, and raw files have no more.
    pub all_marked: bool,
    /// The run's number, if it is in the run store.
    pub run: Option<u64>,
}

impl Lacking {
    /// Whether it lacks nothing.
    ///
    /// # Errors
    /// It does.
    pub fn check(self) -> Result<()> {
        ensure!(self.problems == 0, "the profile is incomplete: {}, named above", plural(self.problems as u128, "problem", "problems"));
        Ok(())
    }
}

/// Puts what was collected where it is wanted.
///
/// # Errors
/// Nothing could be decoded, or the place cannot be written.
pub fn deliver(collected: &Collected, destination: &Destination, around: &Surroundings) -> Result<Lacking> {
    let mut losses = collected.problems.iter().filter(|p| p.loses_counts());
    let mut lacking = Lacking { run: None, problems: losses.clone().count(), all_marked: losses.all(CollectProblem::is_marked) };
    collected.problems.iter().for_each(|problem| log::warn!("{problem}"));
    anyhow::ensure!(!collected.profile.images.is_empty(), "none of its images can be decoded");
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

/// Removes the logs of the run whose profile was in a file before: with those of a new run they would be counted twice.
fn forget_streams(profile: &Path) -> Result<()> {
    let folder = streams_beside(profile);
    let copies = folder.join("copies");
    if copies.is_dir() {
        fs::remove_dir_all(&copies).with_context(|| format!("cannot remove {}, streams of the run before", copies.display()))?;
    }
    let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
    for path in entries.filter_map(|e| Some(e.ok()?.path())).filter(|path| path.extension().is_some_and(|e| e == "log")) {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}, a stream of the run before", path.display()))?;
    }
    // Something else of the user's may be in it.
    let _ = fs::remove_dir(&folder);
    Ok(())
}

/// Says why there is no profile.
pub fn nothing_counted(program: &OsStr) {
    if let Some((path, what)) = trodden_trace::privileged_file(program, None) {
        log::warn!(
            "nothing was counted: {} has {what}, and such a program does not write where its user's environment says: record a copy of it \
                without, or as a user who has these rights already",
            path.display()
        );
        return;
    }
    log::warn!(
        "nothing was counted: unless a program said above why it could not, nothing that `{}` is or runs was built with trodden: build \
            it with `trodden build -- ...` or `cargo trodden build`; `trodden info PROGRAM` says whether a program was. (A program that \
            runs without this environment, as under `env -i` or `sudo`, is not counted: let it keep TRODDEN_OUTPUT)",
        program.display()
    );
}
