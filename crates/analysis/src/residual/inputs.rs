//! Profiles from the field: stored profiles, and raw files of deployed programs.

use crate::segments::does_image_count_untested_segments;
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use trodden_profile::{Profile, ProfileError, RawProfile, Run, RunStore, collect, is_raw_file, raw_files};
use trodden_stored::{Folders, named};
use trodden_text::words::reasons;

/// Folder of the run store where programs built with `--residual` write raw files if they run without `trodden record`.
pub const FIELD_FOLDER: &str = "field";

/// A run's label in reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLabel {
    /// The run's number, if it is in the run store.
    pub number: Option<u64>,
    /// The command line, or the program and the file for a raw file, which has no command line.
    pub words: String,
}

/// A file with a profile.
pub enum ProfileInput {
    /// A stored profile, with its number in the run store.
    Stored(PathBuf, Option<u64>),
    /// A raw file of a program.
    Raw(PathBuf),
}

impl ProfileInput {
    /// Reads the profile. Raw files accumulate over time, so an unreadable raw file is skipped with a warning and yields `None`. `one_run`
    /// is the template for runs with unknown details.
    pub fn read(&self, one_run: &Run, folders: &Folders) -> Result<Option<(RunLabel, Profile)>> {
        match self.read_profile(one_run, folders) {
            Err(error) if matches!(self, ProfileInput::Raw(_)) => {
                log::warn!("skipping a file of raw counts: {}", reasons(error.chain().map(ToString::to_string)));
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    fn read_profile(&self, one_run: &Run, folders: &Folders) -> Result<(RunLabel, Profile)> {
        match self {
            ProfileInput::Stored(file, number) => {
                let profile = named::load_file(file)?;
                let command = profile.run.command.join(" ");
                let words = if command.is_empty() { file.display().to_string() } else { command };
                Ok((RunLabel { number: *number, words }, profile))
            }
            ProfileInput::Raw(file) => {
                let raw = RawProfile::read(file)?;
                let words = describe_raw_file(file, &raw);
                let run = Run { started_ns: raw.created_ns, ..one_run.clone() };
                let collected = collect([file], run, folders.units.as_ref());
                collected.problems.iter().for_each(|problem| log::warn!("{problem}"));
                anyhow::ensure!(
                    !collected.profile.images.is_empty(),
                    "cannot decode any counts in {}; the reasons are listed above",
                    file.display()
                );
                Ok((RunLabel { number: None, words }, collected.profile))
            }
        }
    }
}

/// Describes which process created a raw file. Other processes may have added to it, unless the file name contains the process ID (`%p`).
fn describe_raw_file(file: &Path, raw: &RawProfile) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let pid = raw.pid.to_string();
    // Compare whole words, because the digits may also occur within the identity of an image (`%m`).
    let is_single_process = name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == pid);
    match is_single_process {
        true => format!("{} (pid {pid}), {}", raw.image_path.display(), file.display()),
        false => format!("a process of {}, {}", raw.image_path.display(), file.display()),
    }
}

/// Finds the named profiles, or the profiles of residual builds if no name is given. Fails if a name matches no profile, or if there is no
/// profile of a residual build.
pub fn find_inputs(wanted: &[String], folders: &Folders) -> Result<Vec<ProfileInput>> {
    if wanted.is_empty() {
        return inputs_of_residual_builds(folders);
    }
    let mut out = Vec::new();
    for name in wanted {
        let path = Path::new(name);
        if path.is_file() {
            out.push(if is_raw_file(path) { ProfileInput::Raw(path.to_owned()) } else { ProfileInput::Stored(path.to_owned(), None) });
            continue;
        }
        let raws = if path.is_dir() { raw_files(path)? } else { Vec::new() };
        let entries = RunStore::find(Path::new(".")).and_then(|store| store.select(name));
        match entries {
            // A suite takes precedence over a folder of the same name.
            Ok(entries) => out.extend(entries.into_iter().map(|e| ProfileInput::Stored(e.profile, Some(e.number)))),
            Err(_) if !raws.is_empty() => out.extend(raws.into_iter().map(ProfileInput::Raw)),
            Err(_) if path.is_dir() => {
                bail!("folder {name} contains no raw counts (files *.raw), and there is no run or suite called {name}")
            }
            Err(ProfileError::NoStore { .. }) => {
                bail!("file or folder {name} does not exist, and there is no run store here. Record a run with `trodden record -- PROGRAM`")
            }
            Err(ProfileError::NoRun { store, known, .. }) => {
                bail!("no file, folder, run or suite is called {name}. The run store {} has: {known}", store.display())
            }
            Err(error) => return Err(error.into()),
        }
    }
    // A file that is named twice is read once.
    let mut seen = BTreeSet::new();
    out.retain(|input| {
        let (ProfileInput::Stored(file, _) | ProfileInput::Raw(file)) = input;
        seen.insert(fs::canonicalize(file).unwrap_or_else(|_| file.clone()))
    });
    Ok(out)
}

/// Finds the raw files that residual builds wrote into the run store, and the stored runs of such builds.
fn inputs_of_residual_builds(folders: &Folders) -> Result<Vec<ProfileInput>> {
    let store = RunStore::find(Path::new("."))?;
    let mut out: Vec<ProfileInput> = raw_files(&store.folder().join(FIELD_FOLDER))?.into_iter().map(ProfileInput::Raw).collect();
    // Whether a build is residual is the same for all of its runs, so only one run of each build is loaded.
    let (mut residual, mut others) = (BTreeSet::new(), BTreeSet::new());
    for entry in store.list()? {
        let unknown = |i: &trodden_profile::store::RunImage| !residual.contains(&i.identity) && !others.contains(&i.identity);
        if entry.images.iter().any(unknown) {
            for image in store.load(&entry)?.images {
                let is_residual = image.units.iter().any(|u| u.map.has_times() && !u.map.experiment.is_watched())
                    || does_image_count_untested_segments(&image, folders);
                if is_residual {
                    residual.insert(image.identity)
                } else {
                    others.insert(image.identity)
                };
            }
        }
        if entry.images.iter().any(|i| residual.contains(&i.identity)) {
            out.push(ProfileInput::Stored(entry.profile, Some(entry.number)));
        }
    }
    if out.is_empty() {
        bail!(
            "the run store has no counts of programs built with --residual. Build such a program with `trodden instrument PROG \
             --residual TESTS -o PROG-field` and run it, or pass a profile and --known TESTS"
        );
    }
    Ok(out)
}
