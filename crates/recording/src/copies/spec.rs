//! The files of a copy job: its description, and the results of its copies.
//!
//! `job.json` describes the job; it is removed when the job ends. `result-N` holds copy N's counts, exit status and output hashes, and is
//! the same for every attempt. `times-N.json` holds the copy's times; `out-N` and `err-N` hold its output.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use trodden_driver::recipe::OsText;
use trodden_launch::temporary::create_folder_in;
use trodden_profile::atomic_file::{self, FilePermissions};
use trodden_profile::{ProcessEnding, Profile};

pub const SCHEMA_VERSION: u32 = 4;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CopyJobSpec {
    pub schema_version: u32,
    /// The command as the user typed it.
    pub command: Vec<OsText>,
    pub directory: OsText,
    pub environment: Vec<(OsText, OsText)>,
    /// The file for standard input; `None` for empty input.
    pub input: Option<OsText>,
    /// The pristine clone of the working folder, if copies run in private folders.
    pub pristine: Option<OsText>,
    /// True if copies may print different output.
    pub ignore_output: bool,
    /// True if the programs count in bursts.
    pub sampled: bool,
    /// True if the programs write streams.
    pub streamed: bool,
    /// Number of the copy that runs with randomised addresses, to show whether the program's paths depend on them.
    pub random_addresses: Option<usize>,
    pub programs: Vec<OsText>,
}

/// How a copy ended, and what it printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOutcome {
    pub ending: ProcessEnding,
    /// Hash of the standard output; empty if output is ignored.
    pub output: String,
    /// Hash of the standard error output; empty if output is ignored.
    pub error_output: String,
}

const TEMPORARY_PREFIX: &str = ".trodden-";

pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    atomic_file::write(path, TEMPORARY_PREFIX, |out| out.write_all(bytes)).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the path of a copy's file in the job folder.
pub fn copy_file(folder: &Path, name: &str, copy: usize) -> PathBuf {
    folder.join(format!("{name}-{copy}"))
}

impl CopyJobSpec {
    /// Writes the description to a folder. Dropping the returned value removes the file.
    pub fn write(&self, folder: &Path) -> Result<JobFile> {
        let path = folder.join("job.json");
        let bytes = serde_json::to_vec_pretty(self)?;
        let written = atomic_file::write_with_access(&path, TEMPORARY_PREFIX, FilePermissions::OWNER_ONLY, |out| out.write_all(&bytes));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(JobFile(path))
    }

    pub fn read(folder: &Path) -> Result<CopyJobSpec> {
        let path = folder.join("job.json");
        let bytes = fs::read(&path).with_context(|| format!("{} is not a folder of copies of a program", folder.display()))?;
        let spec: CopyJobSpec = serde_json::from_slice(&bytes).with_context(|| format!("{} is corrupt", path.display()))?;
        ensure!(
            spec.schema_version == SCHEMA_VERSION,
            "{} was written by a different version of trodden. Use the version that wrote it, or create the copies again",
            path.display()
        );
        Ok(spec)
    }
}

/// A job's description file. It exists only while copies run, because it contains the environment, which may contain secrets.
#[derive(Debug)]
#[must_use]
pub struct JobFile(PathBuf);

impl Drop for JobFile {
    fn drop(&mut self) {
        // If the file cannot be removed, it stays readable only by its owner.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes a result file. It consists of a line with the outcome, followed by the profile.
pub fn write_result(path: &Path, outcome: &CopyOutcome, profile: &Profile, temporary: &Path) -> Result<()> {
    let folder = create_folder_in(temporary, "trodden-result-")?;
    let stored = folder.path().join("profile");
    profile.write(&stored)?;
    let mut bytes = serde_json::to_vec(outcome)?;
    bytes.push(b'\n');
    bytes.extend(fs::read(&stored)?);
    write_atomically(path, &bytes)
}

pub fn read_result(path: &Path, temporary: &Path) -> Result<(CopyOutcome, Profile)> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let end = bytes.iter().position(|b| *b == b'\n').with_context(|| format!("{} is corrupt", path.display()))?;
    let outcome = serde_json::from_slice(&bytes[..end]).with_context(|| format!("{} is corrupt", path.display()))?;
    let folder = create_folder_in(temporary, "trodden-result-")?;
    let stored = folder.path().join("profile");
    fs::write(&stored, &bytes[end + 1..])?;
    Ok((outcome, Profile::read(&stored)?))
}
