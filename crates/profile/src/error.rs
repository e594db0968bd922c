//! Errors of this crate. Each message names the file, run or image, and says what the user can do.

use std::io;
use std::path::{Path, PathBuf};
use trodden_unit::{Identity, MapError};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A file operation failed.
    #[error("cannot {action} {path}: {source}{}", advice(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operation, as a verb (`read`, `write`).
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// A file is not of the expected kind.
    #[error("{path} is not a {expected}: {what}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        expected: &'static str,
        /// What was found.
        what: String,
    },
    /// A file has an unsupported version.
    #[error(
        "{path}: this {kind} has format {found}, but this version of trodden reads format {known}. Use the version of trodden that \
            wrote the file, or record again"
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
    /// The file was written by a version of trodden whose files had a different header.
    #[error("{path}: this {kind} was written by an earlier version of trodden. Use that version, or record again")]
    Earlier {
        /// The file.
        path: PathBuf,
        /// Kind of file.
        kind: &'static str,
    },
    /// A stored profile has an older layout.
    #[error(
        "{path} was written by an older version of trodden ({what} has layout {found}, this version reads layout {known}). Rebuild the \
         program and record again, or use the version that wrote the file"
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
    #[error(
        "{path} was written by a newer version of trodden ({what} has layout {found}, this version reads layout {known}). Use the newer \
         version"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The part of the file.
        what: String,
        /// Layout found.
        found: u32,
        /// Layout known.
        known: u32,
    },
    /// A raw file has no header yet: its program is still starting, or ended before it wrote the header.
    #[error("{0}: this raw file has no counts, because the program ended before it wrote the file's header. Delete the file")]
    NotReady(PathBuf),
    /// The disk or the file size limit had no space for a raw file.
    #[error(
        "{0}: the program's counts are lost, because the disk was full or the file size limit (ulimit -f) was too low. Free space or \
            raise the limit, and record again"
    )]
    GivenUp(PathBuf),
    /// A raw file is so corrupt that nothing can be recovered.
    #[error("{path} is corrupt at byte {offset}: {what}. No counts can be recovered. Record again")]
    RawCorrupt {
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A stored profile or a stream log is corrupt.
    #[error("{path} is corrupt at byte {offset}: {what}. To show the intact part, run `trodden info FILE`")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// No part of a profile is intact.
    #[error("{path}: all {lost} parts of this profile are corrupt. Record again")]
    NothingIntact {
        /// The file.
        path: PathBuf,
        /// Number of corrupt parts.
        lost: usize,
    },
    /// Two profiles belong to different builds of the same program or library.
    #[error(
        "`{image}` was built differently: {one_name} is of build {one}, {other_name} of build {other}. Record both with one \
         build{alternative}"
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
        /// What else the user can do, as the end of the sentence.
        alternative: &'static str,
    },
    /// One profile was sampled, the other counted in full.
    #[error(
        "cannot merge {name}: it was {what}, the profiles before it were {others}. Merge the two kinds separately, and compare the \
         results with `trodden diff --across-builds`"
    )]
    SampledAndFull {
        /// The profile.
        name: String,
        /// How it was counted.
        what: &'static str,
        /// How the others were counted.
        others: &'static str,
    },
    /// Different shares of the profiles' run time were sampled.
    #[error(
        "cannot merge {name}: it was counted for {share:.2}% of its run time, the profiles before it for {others:.2}%, so the runs \
         would have unequal weights. Sample all runs with the same --burst and --every"
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
    #[error(
        "{one_name} and {other_name} have no program or library in common: the first has {one}, the second {other}. Compare runs of the \
         same program"
    )]
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
    /// A map in a profile is corrupt.
    #[error("{name}: {source}. Rebuild the program and record again")]
    Map {
        /// The profile.
        name: String,
        /// What is wrong.
        source: MapError,
    },
    /// The run store's database reported an error.
    #[error(
        "cannot use the run store's index {path}: {source}. If this happens again, delete the index; trodden rebuilds it from the profiles"
    )]
    Database {
        /// The database.
        path: PathBuf,
        /// The reason.
        source: rusqlite::Error,
    },
    /// The run store cannot be written.
    #[error(
        "cannot write run store {folder}: {why}. Check the folder's permissions and the free disk space, or write the profile to a file \
         (`trodden record --no-store --output FILE`)"
    )]
    StoreUnwritable {
        /// Its folder.
        folder: PathBuf,
        /// The reason.
        why: String,
    },
    /// No run store was found.
    #[error("found no run store (folder `{folder}`) in {start} or a parent folder. To create one, run `trodden record -- PROGRAM`")]
    NoStore {
        /// Name of the folder.
        folder: &'static str,
        /// Where the search began.
        start: PathBuf,
    },
    /// The folder that TRODDEN_RUNS names is not a run store.
    #[error("no run store in {folder} (set by TRODDEN_RUNS). To create one, run `trodden record -- PROGRAM`")]
    NoNamedStore {
        /// The folder.
        folder: PathBuf,
    },
    /// A run store has no such run.
    #[error("run store {store} has no run or suite `{wanted}`; {known}")]
    NoRun {
        /// The store.
        store: PathBuf,
        /// The run or suite that the user named.
        wanted: String,
        /// A description of the runs and suites in the store.
        known: String,
    },
    /// A suite name is not allowed.
    #[error("invalid suite name `{0}`: it must not be empty or contain line breaks. Numbers, `last` and `last~N` are reserved for runs")]
    SuiteName(String),
}

impl ProfileError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ProfileError {
        let path = path.to_owned();
        move |source| ProfileError::Io { path, action, source }
    }
}

/// Suggests what to do about an I/O error, as the end of the message.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check the name",
        io::ErrorKind::PermissionDenied => "; check its permissions",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space, or choose a file on a different file system",
        _ => "",
    }
}
