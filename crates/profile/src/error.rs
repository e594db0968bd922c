//! Errors of profiles. Each message names the file (or the run, the image) and the remedy.

use std::io;
use std::path::{Path, PathBuf};
use trodden_unit::{Identity, MapError};

/// A failure in this crate.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The system refused.
    #[error("{path}: cannot {action}: {source}{}", remedy(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried (`read`, `write`).
        action: &'static str,
        /// Why not.
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
    /// A file has a version that this program does not know.
    #[error(
        "{path}: written in format {found} of a {kind}, this program reads format {known}: use the version of trodden that wrote it, or \
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
    /// A file of a version before files had their present head.
    #[error("{path}: a {kind} of an earlier version of trodden: use that version, or record again")]
    Earlier {
        /// The file.
        path: PathBuf,
        /// Kind of file.
        kind: &'static str,
    },
    /// A stored profile of an older layout.
    #[error(
        "{path}: made by an older version of trodden ({what} has layout {found}, this program reads {known}): build the program again \
            and record again, or use the version that made it"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Which block of it.
        what: String,
        /// Layout found.
        found: u32,
        /// Layout known.
        known: u32,
    },
    /// A stored profile of a newer layout.
    #[error("{path}: made by a newer version of trodden ({what} has layout {found}, this program reads {known}): use that version")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Which block of it.
        what: String,
        /// Layout found.
        found: u32,
        /// Layout known.
        known: u32,
    },
    /// The program that writes a raw file ended before the file was set up.
    #[error("{0}: the program ended before this raw file was set up; nothing was counted in it: delete it")]
    NotReady(PathBuf),
    /// The program that was to write a raw file had no room for it.
    #[error(
        "{0}: there was no room for it on the disk, or within the limit of files (ulimit -f), so that the counts of its program are \
            lost: free space or raise the limit, and record again"
    )]
    GivenUp(PathBuf),
    /// A raw file is damaged so that nothing can be recovered.
    #[error("{path}: damaged at byte {offset}: {what}; nothing in it can be recovered: record again")]
    RawDamaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A stored profile is damaged.
    #[error("{path}: damaged at byte {offset}: {what}; `trodden info FILE` shows what is intact")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// Nothing in a damaged profile could be read.
    #[error("{path}: nothing in it is intact ({lost} damaged parts)")]
    NothingIntact {
        /// The file.
        path: PathBuf,
        /// Number of losses.
        lost: usize,
    },
    /// Two profiles hold different builds of one program or library.
    #[error(
        "`{image}` was built differently: {one_name} has build {one}, {other_name} has build {other}; record both with one build{remedy}"
    )]
    OtherBuild {
        /// Path of the executable or library.
        image: String,
        /// First profile.
        one_name: String,
        /// Its image's identity.
        one: Identity,
        /// Second profile.
        other_name: String,
        /// Its image's identity.
        other: Identity,
        /// What else can be done, as the end of a sentence.
        remedy: &'static str,
    },
    /// A sampled profile and one that was counted in full.
    #[error(
        "{name} was {what}, the profiles before it were {others}: merge them separately, and compare their shares with `trodden diff \
            --across-builds`"
    )]
    SampledAndFull {
        /// The profile.
        name: String,
        /// What it is.
        what: &'static str,
        /// What the others are.
        others: &'static str,
    },
    /// Sampled profiles that were counted for different shares of their time.
    #[error(
        "{name} was counted for {share:.2} % of its time, the profiles before it for {others:.2} %: in a sum, runs would not weigh \
            alike; sample with the same --burst and --every"
    )]
    OtherShare {
        /// The profile.
        name: String,
        /// Its share in per cent.
        share: f64,
        /// That of the others.
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
    /// The run store's database refused.
    #[error("{path}: run store: {source}; if it goes on, delete this file: it is made again from the profiles beside it")]
    Database {
        /// The database.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// The run store cannot be written.
    #[error(
        "{folder}: the run store cannot be written ({why}): look at the folder's permissions and the free space, or write the profile \
         elsewhere (`trodden record --no-store --output FILE`)"
    )]
    StoreUnwritable {
        /// Its folder.
        folder: PathBuf,
        /// Why not.
        why: String,
    },
    /// No run store was found.
    #[error("no run store (`{folder}`) in {start} or a folder above it: `trodden record -- PROGRAM` makes one")]
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
        /// What was given.
        wanted: String,
        /// What there is.
        known: String,
    },
    /// A name that no suite can have.
    #[error(
        "a suite cannot be called `{0}`: numbers, `last` and `last~N` name single runs, and a name has no line breaks; give it another name"
    )]
    SuiteName(String),
}

impl ProfileError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ProfileError {
        let path = path.to_owned();
        move |source| ProfileError::Io { path, action, source }
    }
}

/// What to do where the system refuses.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check the name",
        io::ErrorKind::PermissionDenied => "; check who may read and write it",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space, or name a file on another file system",
        _ => "",
    }
}
