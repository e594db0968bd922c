//! Errors of this crate. Each message names the file (or the run, or the image) and the remedy.

use std::io;
use std::path::{Path, PathBuf};
use trodden_unit::{Identity, MapError};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A system call failed.
    #[error("{path}: cannot {action}: {source}{}", remedy(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What failed (`read`, `write`).
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// A file is of another kind than expected.
    #[error("{path}: not a {expected}: {what}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What was expected.
        expected: &'static str,
        /// What was found.
        what: String,
    },
    /// A file has a version that this program does not read.
    #[error(
        "{path}: {kind} of format {found}, but this version of trodden reads format {known}: use the version that wrote the file, or \
            record again"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Kind of file.
        kind: &'static str,
        /// Version found.
        found: u64,
        /// Version known.
        known: u64,
    },
    /// A file of a version before files had their present header.
    #[error("{path}: a {kind} of an earlier version of trodden: use that version, or record again")]
    Earlier {
        /// The file.
        path: PathBuf,
        /// Kind of file.
        kind: &'static str,
    },
    /// A stored profile has an older layout.
    #[error(
        "{path}: made by an older version of trodden ({what} has layout {found}, this version reads {known}): build the program again \
            and record again, or use the version that made it"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The part of the file.
        what: String,
        /// Layout found.
        found: u32,
        /// Layout known.
        known: u32,
    },
    /// A stored profile has a newer layout.
    #[error("{path}: made by a newer version of trodden ({what} has layout {found}, this version reads {known}): use that version")]
    Newer {
        /// The part of the file.
        path: PathBuf,
        /// Which block of it.
        what: String,
        /// Layout found.
        found: u32,
        /// Layout known.
        known: u32,
    },
    /// The program that writes a raw file has not set it up, or ended before.
    #[error("{0}: the program ended before this raw file was set up, so it has no counts. Delete it")]
    NotReady(PathBuf),
    /// The program that should write a raw file had no room for it.
    #[error(
        "{0}: the disk was full or the file size limit (ulimit -f) too low, so the counts of the program are lost. Free space or \
            raise the limit, and record again"
    )]
    GivenUp(PathBuf),
    /// A raw file is so damaged that nothing can be recovered.
    #[error("{path}: damaged at byte {offset}: {what}; nothing in it can be recovered: record again")]
    RawDamaged {
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A stored profile is damaged.
    #[error("{path}: damaged at byte {offset}: {what}; `trodden info FILE` shows what is intact")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// No part of a profile is intact.
    #[error("{path}: no part of it is intact ({lost} damaged). Record again")]
    NothingIntact {
        /// The file.
        path: PathBuf,
        /// Number of damaged parts.
        lost: usize,
    },
    /// Two profiles are of different builds of one program or library.
    #[error(
        "`{image}` was built differently: {one_name} has build {one}, {other_name} has build {other}; record both with one build{remedy}"
    )]
    OtherBuild {
        /// Path of the executable or library.
        image: String,
        /// Name of the first profile.
        one_name: String,
        /// Its image's identity.
        one: Identity,
        /// Name of the second profile.
        other_name: String,
        /// Its image's identity.
        other: Identity,
        /// Alternative remedy, as the end of the sentence.
        remedy: &'static str,
    },
    /// One profile was sampled, the other counted in full.
    #[error(
        "{name} was {what}, the profiles before it were {others}: merge them separately, and compare their shares with `trodden diff \
            --across-builds`"
    )]
    SampledAndFull {
        /// The profile.
        name: String,
        /// How it was counted.
        what: &'static str,
        /// How the others were counted.
        others: &'static str,
    },
    /// Profiles were sampled for different shares of their time.
    #[error(
        "{name} was counted for {share:.2} % of its time, the profiles before it for {others:.2} %, so merging would weight the \
            runs unequally. Sample all of them with the same --burst and --every"
    )]
    OtherShare {
        /// The profile.
        name: String,
        /// Its share in percent.
        share: f64,
        /// Share of the others in percent.
        others: f64,
    },
    /// Two profiles have no image in common.
    #[error("{one_name} and {other_name} have no program or library in common ({one} and {other}): compare runs of one program")]
    NothingInCommon {
        /// First profile.
        one_name: String,
        /// Its images.
        one: String,
        /// Second profile.
        other_name: String,
        /// Its images.
        other: String,
    },
    /// A map in a profile is damaged.
    #[error("{name}: {source}: build the program again and record again")]
    Map {
        /// The profile.
        name: String,
        /// What is wrong.
        source: MapError,
    },
    /// The run store's database reported an error.
    #[error("{path}: run store: {source}. If this persists, delete this file: trodden rebuilds it from the profiles in the store")]
    Database {
        /// The database.
        path: PathBuf,
        /// The reason.
        source: rusqlite::Error,
    },
    /// The run store cannot be written.
    #[error(
        "{folder}: the run store cannot be written ({why}): check the folder's permissions and the free space, or write the profile \
         elsewhere (`trodden record --no-store --output FILE`)"
    )]
    StoreUnwritable {
        /// Its folder.
        folder: PathBuf,
        /// The reason.
        why: String,
    },
    /// No run store was found.
    #[error("no run store (`{folder}`) in {start} or a folder above it: `trodden record -- PROGRAM` creates one")]
    NoStore {
        /// Name of the folder.
        folder: &'static str,
        /// Where the search began.
        start: PathBuf,
    },
    /// The folder that TRODDEN_RUNS names is not a run store.
    #[error("no run store in {folder}, which TRODDEN_RUNS names: `trodden record -- PROGRAM` creates it")]
    NoNamedStore {
        /// The folder.
        folder: PathBuf,
    },
    /// A run store has no such run.
    #[error("{store}: no run or suite `{wanted}`; {known}")]
    NoRun {
        /// The store.
        store: PathBuf,
        /// What was asked for.
        wanted: String,
        /// The runs and suites there are.
        known: String,
    },
    /// A name that no suite can have.
    #[error("a suite cannot be called `{0}`: its name must not be a number, `last` or `last~N`, which denote runs, or contain line breaks")]
    SuiteName(String),
}

impl ProfileError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ProfileError {
        let path = path.to_owned();
        move |source| ProfileError::Io { path, action, source }
    }
}

/// Suggests a remedy for an I/O error, as the end of the message.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check the name",
        io::ErrorKind::PermissionDenied => "; check its permissions",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space, or choose a file on another file system",
        _ => "",
    }
}
