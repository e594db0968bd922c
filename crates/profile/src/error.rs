//! Errors of this crate. Each message names the file, run or image that is affected and says what to do.

use std::io;
use std::path::{Path, PathBuf};
use trodden_unit::{Identity, MapError};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum ProfileError {
    #[error("cannot {action} {path}: {source}{}", advice_on_io_error(source))]
    Io {
        path: PathBuf,
        /// The failed operation, as a verb (`read` or `write`).
        action: &'static str,
        source: io::Error,
    },
    #[error("{path} is not a {expected}: {what}")]
    Foreign { path: PathBuf, expected: &'static str, what: String },
    #[error(
        "{path}: this {kind} has format {found}, but this version of trodden reads format {known}. Use the version of trodden that \
            wrote the file, or record again"
    )]
    Version { path: PathBuf, kind: &'static str, found: u64, known: u64 },
    /// The file was written by an early version of trodden, whose files have a different header.
    #[error("{path}: this {kind} was written by an earlier version of trodden. Use that version, or record again")]
    Earlier { path: PathBuf, kind: &'static str },
    #[error(
        "{path} was written by an older version of trodden: {what} has layout {found}, but this version reads layout {known}. Rebuild the \
         program and record again, or use the version that wrote the file"
    )]
    Older { path: PathBuf, what: String, found: u32, known: u32 },
    #[error(
        "{path} was written by a newer version of trodden: {what} has layout {found}, but this version reads layout {known}. Use the newer \
         version"
    )]
    Newer { path: PathBuf, what: String, found: u32, known: u32 },
    /// A raw file without a header: the program that writes it is still starting, or ended before it wrote the header.
    #[error("{0}: this file of raw counts is empty, because the program ended before it wrote the file's header. Delete the file")]
    NotReady(PathBuf),
    #[error(
        "{0}: the program's counts are lost, because the disk was full or the file size limit (ulimit -f) was too low. Free space or \
            raise the limit, and record again"
    )]
    GivenUp(PathBuf),
    #[error("{path} is corrupt at byte {offset}: {what}. No counts can be recovered. Record again")]
    RawCorrupt { path: PathBuf, offset: u64, what: String },
    #[error("{path} is corrupt at byte {offset}: {what}. To show the intact part, run `trodden info FILE`")]
    Corrupt { path: PathBuf, offset: u64, what: String },
    #[error("{path}: all {lost} parts of this profile are corrupt. Record again")]
    NothingIntact { path: PathBuf, lost: usize },
    #[error(
        "`{image}` is not the same build in both: {one_name} is of build {one}, and {other_name} is of build {other}. Record both with one \
         build{alternative}"
    )]
    OtherBuild {
        image: String,
        one_name: String,
        one: Identity,
        other_name: String,
        other: Identity,
        /// An alternative to the message's advice, which continues its last sentence.
        alternative: &'static str,
    },
    #[error(
        "cannot merge {name}: it was {what}, but the profiles before it were {others}. Merge the two kinds separately, and compare the \
         results with `trodden diff --across-builds`"
    )]
    SampledAndFull { name: String, what: &'static str, others: &'static str },
    #[error(
        "cannot merge {name}: it was counted during {share:.2}% of its run time, but the profiles before it during {others:.2}%, so the \
         runs would have unequal weights. Sample all runs with the same --burst and --every"
    )]
    OtherShare { name: String, share: f64, others: f64 },
    #[error(
        "cannot compare {one_name} and {other_name}, because they have no program or library in common: the first has {one}, the second \
         {other}. Compare runs of the same program"
    )]
    NothingInCommon { one_name: String, one: String, other_name: String, other: String },
    #[error("{name}: {source}. Rebuild the program and record again")]
    Map { name: String, source: MapError },
    #[error(
        "cannot use the run store's index {path}: {source}. If this happens again, delete the index; trodden rebuilds it from the profiles"
    )]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error(
        "cannot write run store {folder}: {why}. Check the folder's permissions and the free disk space, or write the profile to a file \
         (`trodden record --no-store --output FILE`)"
    )]
    StoreUnwritable { folder: PathBuf, why: String },
    #[error(
        "found no run store (a folder `{folder}` with recorded runs) in {start} or a parent folder. To create one, run `trodden record -- \
         PROGRAM`"
    )]
    NoStore { folder: &'static str, start: PathBuf },
    #[error("there is no run store in {folder}, which TRODDEN_RUNS names. To create one, run `trodden record -- PROGRAM`")]
    NoNamedStore { folder: PathBuf },
    #[error("run store {store} has no run or suite `{wanted}`; {known}")]
    NoRun {
        store: PathBuf,
        wanted: String,
        /// A list of the runs and suites that the store does have.
        known: String,
    },
    #[error("invalid suite name `{0}`: it must not be empty or contain line breaks. Numbers, `last` and `last~N` are reserved for runs")]
    SuiteName(String),
}

impl ProfileError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ProfileError {
        let path = path.to_owned();
        move |source| ProfileError::Io { path, action, source }
    }
}

/// Returns advice on an I/O error, to be appended to the message.
fn advice_on_io_error(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check the name",
        io::ErrorKind::PermissionDenied => "; check its permissions",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space, or choose a file on a different file system",
        _ => "",
    }
}
