//! What copies have in common, and what each leaves behind: files in the job's folder.
//!
//! `job.json` says what to run, and is removed at the end; `result-N` is what copy N counted, how it ended and hashes of what it printed,
//! the same however often it runs; `times-N.json` how long it took, and `out-N`, `err-N` what it printed.

use crate::output::{BEGUN, write_file};
use crate::temporary;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use trodden_driver::recipe::SystemText;
use trodden_profile::whole_file::{self, Access};
use trodden_profile::{ProcessEnding, Profile};

/// Version of the files.
pub const SCHEMA_VERSION: u32 = 4;

/// A job of copies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Spec {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The command as the user gave it.
    pub command: Vec<SystemText>,
    /// The folder in which it runs.
    pub directory: SystemText,
    /// All variables of its environment.
    pub environment: Vec<(SystemText, SystemText)>,
    /// Where its standard input is.
    pub input: Option<SystemText>,
    /// The working folder as it was, if each copy runs in a copy of it.
    pub pristine: Option<SystemText>,
    /// What it prints is no part of what must be the same.
    pub ignore_output: bool,
    /// They are of the sample tier, and counted in bursts.
    pub sampled: bool,
    /// They write streams.
    pub streamed: bool,
    /// The run whose memory is at random addresses, to see whether paths go by them.
    pub random_addresses: Option<usize>,
    /// The programs that run, in the order of their numbers.
    pub programs: Vec<SystemText>,
}

/// What a copy did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOutcome {
    /// How it ended.
    pub ending: ProcessEnding,
    /// Hash of what it printed; empty where that does not matter.
    pub output: String,
    /// Hash of what it printed to standard error.
    pub error_output: String,
}

/// A file of a job.
pub fn file(folder: &Path, name: &str, copy: usize) -> PathBuf {
    folder.join(format!("{name}-{copy}"))
}

impl Spec {
    /// Writes it to a folder, where it stays until the file that is returned is dropped.
    pub fn write(&self, folder: &Path) -> Result<JobFile> {
        let path = folder.join("job.json");
        let bytes = serde_json::to_vec_pretty(self)?;
        let written = whole_file::write_for(&path, BEGUN, Access::PRIVATE, |out| out.write_all(&bytes));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(JobFile(path))
    }

    /// Reads it from there.
    pub fn read(folder: &Path) -> Result<Spec> {
        let path = folder.join("job.json");
        let bytes = fs::read(&path).with_context(|| format!("{} is no folder of copies", folder.display()))?;
        let spec: Spec = serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged", path.display()))?;
        ensure!(spec.schema_version == SCHEMA_VERSION, "{} is of another version of trodden: use that one", path.display());
        Ok(spec)
    }
}

/// The file of a job, as long as its copies run: it has their environment, which may hold secrets.
#[derive(Debug)]
#[must_use]
pub struct JobFile(PathBuf);

impl Drop for JobFile {
    fn drop(&mut self) {
        // Where it cannot be removed, its owner alone can read it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes a result: the outcome as one line, then the profile.
pub fn write_result(path: &Path, outcome: &CopyOutcome, profile: &Profile) -> Result<()> {
    let folder = temporary::folder("trodden-result-")?;
    let stored = folder.path().join("profile");
    profile.write(&stored)?;
    let mut bytes = serde_json::to_vec(outcome)?;
    bytes.push(b'\n');
    bytes.extend(fs::read(&stored)?);
    write_file(path, &bytes)
}

/// Reads a result.
pub fn read_result(path: &Path) -> Result<(CopyOutcome, Profile)> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let end = bytes.iter().position(|b| *b == b'\n').with_context(|| format!("{} is damaged", path.display()))?;
    let outcome = serde_json::from_slice(&bytes[..end]).with_context(|| format!("{} is damaged", path.display()))?;
    let folder = temporary::folder("trodden-result-")?;
    let stored = folder.path().join("profile");
    fs::write(&stored, &bytes[end + 1..])?;
    Ok((outcome, Profile::read(&stored)?))
}
