//! Where a profile goes that was made of raw files: the run store, a file; and what is said of it.

use crate::cli::Destination;
use crate::notes::{note, warn};
use anyhow::{Result, ensure};
use std::ffi::OsStr;
use trodden_profile::{CollectProblem, Collected, RunStore};
use trodden_report::words::plural;

/// What a profile lacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lacking {
    /// Problems by which counts are missing or doubtful.
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
pub fn deliver(collected: &Collected, destination: &Destination) -> Result<Lacking> {
    let mut losses = collected.problems.iter().filter(|p| p.loses_counts());
    let mut lacking = Lacking { run: None, problems: losses.clone().count(), all_marked: losses.all(CollectProblem::is_marked) };
    collected.problems.iter().for_each(warn);
    anyhow::ensure!(!collected.profile.images.is_empty(), "none of its images can be decoded");
    if let Some(output) = &destination.output {
        collected.profile.write(output)?;
        note(format_args!("the profile is in {}", output.display()));
    }
    if !destination.no_store {
        let entry = RunStore::create(&std::env::current_dir()?)?.add_run(&collected.profile)?;
        note(format_args!("recorded as run {}; `trodden report` shows it", entry.number));
        lacking.run = Some(entry.number);
    }
    Ok(lacking)
}

/// Says why there is no profile.
pub fn nothing_counted(program: &OsStr) {
    warn(format_args!(
        "nothing was counted: unless a program said above why it could not, nothing that `{}` is or runs was built with trodden: build \
            it with `trodden build -- ...` or `cargo trodden build`; `trodden info PROGRAM` tells whether a program was",
        program.display()
    ));
}
