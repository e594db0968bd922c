//! The run store: the runs of a project, in a folder `.trodden` beside it.
//!
//! ```text
//! .trodden/runs.db              SQLite: runs, suites, builds (tables in `schema`; any SQLite client can query it)
//! .trodden/profiles/000001.trodden   the profile of run 1
//! .trodden/streams/000001/      its streams, if they were recorded
//! ```
//!
//! Runs are numbered from 1, and no number is used twice. Several programs may record at a time: a number is reserved first, then the
//! profile is written, and only then the run is listed. A crash leaves a number that is never used.

mod left;
mod rows;
mod schema;

pub use left::Left;

use crate::container::EXTENSION;
use crate::error::ProfileError;
use crate::model::{Profile, Run};
use rows::{COLUMNS, complete, forget_unused, images, read_entry, reserve, signed, suite_id, unsigned};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use schema::{MIGRATIONS, migrate, prepare};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use trodden_unit::Identity;

/// Name of the store's folder.
pub const FOLDER: &str = ".trodden";
const DATABASE: &str = "runs.db";
/// The folder of the profiles.
const PROFILES: &str = "profiles";
/// The folder of streams, by the number of their run.
const STREAMS: &str = "streams";
/// Prefix of the names of folders of raw counts.
pub const RAW: &str = "raw-";

/// An open run store.
#[derive(Debug)]
pub struct RunStore {
    folder: PathBuf,
    database: Connection,
    /// Where the store cannot be written: the copy that is read instead, with the reason.
    unwritable: Option<(TempDir, String)>,
}

/// A run in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEntry {
    /// Its number, from 1.
    pub number: u64,
    /// Its description; the suite is the one it is in now.
    pub run: Run,
    /// The stored profile.
    pub profile: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its images.
    pub images: Vec<RunImage>,
}

/// An executable or library of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunImage {
    /// Identity of the build.
    pub identity: Identity,
    /// Path.
    pub path: String,
    /// The linker's build id.
    pub build_id: Option<String>,
}

/// The database of a store's folder, brought up to date.
fn connect(folder: &Path) -> Result<Connection, ProfileError> {
    let path = folder.join(DATABASE);
    let failed = |source| ProfileError::Database { path: path.clone(), source };
    let mut database = Connection::open(&path).map_err(failed)?;
    prepare(&database).map_err(failed)?;
    let found = migrate(&mut database).map_err(failed)?;
    let known = MIGRATIONS.len() as u64;
    if found > known {
        return Err(ProfileError::Version { path, kind: "run store", found, known });
    }
    Ok(database)
}

/// Whether a database could not be opened because its folder, or the disk, takes nothing.
fn is_unwritable(error: &rusqlite::Error) -> bool {
    use ErrorCode::{CannotOpen, DiskFull, ReadOnly, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(CannotOpen | DiskFull | ReadOnly | SystemIoFailure))
}

/// The database of a store's folder, with what is not yet merged into it, in a folder of its own.
fn copy_of(folder: &Path) -> Result<TempDir, ProfileError> {
    let copy = tempfile::tempdir().map_err(ProfileError::io(&std::env::temp_dir(), "write"))?;
    for name in [DATABASE.to_owned(), format!("{DATABASE}-wal")] {
        let file = folder.join(&name);
        if file.exists() {
            std::fs::copy(&file, copy.path().join(&name)).map_err(ProfileError::io(&file, "read"))?;
        }
    }
    Ok(copy)
}

impl RunStore {
    /// The store of a project's folder; made if there is none.
    ///
    /// # Errors
    /// It cannot be made, opened or written.
    pub fn create(project: &Path) -> Result<RunStore, ProfileError> {
        let folder = project.join(FOLDER);
        std::fs::create_dir_all(folder.join(PROFILES)).map_err(ProfileError::io(&folder, "make"))?;
        let ignore = folder.join(".gitignore");
        if !ignore.exists() {
            std::fs::write(&ignore, "*\n").map_err(ProfileError::io(&ignore, "write"))?;
        }
        let store = RunStore::open(&folder)?;
        // What is to be recorded must not be lost when it is there.
        store.writing(|_| Ok(()))?;
        Ok(store)
    }

    /// The store in `start` or the nearest folder above it.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn find(start: &Path) -> Result<RunStore, ProfileError> {
        let absolute = std::path::absolute(start).map_err(ProfileError::io(start, "read"))?;
        match absolute.ancestors().map(|p| p.join(FOLDER)).find(|f| f.join(DATABASE).is_file()) {
            Some(folder) => RunStore::open(&folder),
            None => Err(ProfileError::NoStore { folder: FOLDER, start: absolute }),
        }
    }

    /// The store in this very folder (`.trodden`), which must exist; brought up to date if an older trodden made it.
    ///
    /// # Errors
    /// It cannot be opened, or a newer trodden made it.
    pub fn open(folder: &Path) -> Result<RunStore, ProfileError> {
        let (database, unwritable) = match connect(folder) {
            Err(ProfileError::Database { source, .. }) if is_unwritable(&source) => {
                // Even who only reads must write into SQLite's files beside the database.
                let copy = copy_of(folder)?;
                (connect(copy.path())?, Some((copy, source.to_string())))
            }
            other => (other?, None),
        };
        Ok(RunStore { folder: folder.to_owned(), database, unwritable })
    }

    /// The store's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stores a profile as a new run, in the suite that the profile names.
    ///
    /// # Errors
    /// The profile or the database cannot be written.
    pub fn add_run(&self, profile: &Profile) -> Result<RunEntry, ProfileError> {
        if let Some(suite) = &profile.run.suite {
            check_suite_name(suite)?;
        }
        let number = self.writing(|t| reserve(t, &profile.run))?;
        let name = format!("{PROFILES}/{number:06}.{EXTENSION}");
        let path = self.folder.join(&name);
        let written = profile.write(&path).and_then(|()| path.metadata().map_err(ProfileError::io(&path, "read")));
        match written {
            Ok(file) => self.writing(|t| complete(t, number, &name, file.len(), profile))?,
            Err(error) => {
                self.writing(|t| t.execute("DELETE FROM runs WHERE number = ?1", [number]).map(drop))?;
                return Err(error);
            }
        }
        self.number(number as u64)
    }

    /// All runs, by number.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn list(&self) -> Result<Vec<RunEntry>, ProfileError> {
        self.query(&format!("{COLUMNS} ORDER BY number"), [])
    }

    /// The runs that `wanted` names: a number (`12`, `#12`), `last`, `last~1` (the one before), or a suite's name.
    ///
    /// # Errors
    /// There is no such run or suite, or the database cannot be read.
    pub fn select(&self, wanted: &str) -> Result<Vec<RunEntry>, ProfileError> {
        let found = if let Ok(number) = wanted.strip_prefix('#').unwrap_or(wanted).parse::<u64>() {
            self.query(&format!("{COLUMNS} AND number = ?1"), [signed(number)])?
        } else if let Some(back) = steps_back(wanted) {
            self.query(&format!("{COLUMNS} ORDER BY number DESC LIMIT 1 OFFSET ?1"), [signed(back)])?
        } else {
            self.query(&format!("{COLUMNS} AND suites.name = ?1 ORDER BY number"), [wanted])?
        };
        match found.is_empty() {
            true => Err(self.no_run(wanted)?),
            false => Ok(found),
        }
    }

    /// The one run that `wanted` names; of a suite, its last.
    ///
    /// # Errors
    /// As [`RunStore::select`].
    pub fn get(&self, wanted: &str) -> Result<RunEntry, ProfileError> {
        Ok(self.select(wanted)?.pop().expect("select finds at least one"))
    }

    /// Reads the profile of a run.
    ///
    /// # Errors
    /// The file is missing or damaged.
    pub fn load(&self, entry: &RunEntry) -> Result<Profile, ProfileError> {
        self.check_place(entry)?;
        let mut profile = Profile::read(&entry.profile)?;
        profile.run.suite = entry.run.suite.clone();
        Ok(profile)
    }

    /// Names of the suites and how many runs each has.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn suites(&self) -> Result<Vec<(String, u64)>, ProfileError> {
        let sql =
            "SELECT name, count(*) FROM suites JOIN runs ON runs.suite = suites.id WHERE profile IS NOT NULL GROUP BY name ORDER BY name";
        self.reading(|t| {
            let mut statement = t.prepare(sql)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, unsigned(row.get(1)?))))?;
            rows.collect()
        })
    }

    /// Puts a run into a suite, or (`None`) takes it out of its suite.
    ///
    /// # Errors
    /// There is no such run, the name is no suite's name, or the database cannot be written.
    pub fn set_suite(&self, number: u64, suite: Option<&str>) -> Result<(), ProfileError> {
        self.number(number)?;
        suite.map_or(Ok(()), check_suite_name)?;
        self.writing(|t| {
            let suite = suite.map(|name| suite_id(t, name)).transpose()?;
            t.execute("UPDATE runs SET suite = ?1 WHERE number = ?2", params![suite, signed(number)])?;
            forget_unused(t)
        })
    }

    /// Removes a run and its profile.
    ///
    /// # Errors
    /// There is no such run, or it cannot be removed.
    pub fn remove(&self, number: u64) -> Result<(), ProfileError> {
        let entry = self.number(number)?;
        self.check_place(&entry)?;
        self.writing(|t| {
            t.execute("DELETE FROM runs WHERE number = ?1", [signed(number)])?;
            forget_unused(t)
        })?;
        let streams = self.streams(number);
        for (removed, path) in [(std::fs::remove_file(&entry.profile), &entry.profile), (std::fs::remove_dir_all(&streams), &streams)] {
            match removed {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(ProfileError::io(path, "remove")(e)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The folder of a run's streams, if it has any.
    pub fn streams(&self, number: u64) -> PathBuf {
        self.folder.join(STREAMS).join(format!("{number:06}"))
    }

    /// Whether a run's profile is where the store keeps profiles.
    fn check_place(&self, entry: &RunEntry) -> Result<(), ProfileError> {
        let is_own =
            entry.profile.parent().is_some_and(|folder| folder == self.folder.join(PROFILES)) && entry.profile.file_name().is_some();
        match is_own {
            true => Ok(()),
            false => Err(ProfileError::OutsideStore { store: self.folder.clone(), run: entry.number, profile: entry.profile.clone() }),
        }
    }

    fn number(&self, number: u64) -> Result<RunEntry, ProfileError> {
        self.get(&number.to_string())
    }

    fn no_run(&self, wanted: &str) -> Result<ProfileError, ProfileError> {
        let numbers: Vec<u64> = self.list()?.iter().map(|r| r.number).collect();
        let mut known = match (numbers.first(), numbers.last()) {
            (Some(first), Some(last)) if first != last => format!("there are {} runs, {first} to {last}", numbers.len()),
            (Some(only), _) => format!("there is run {only}"),
            _ => "there are no runs yet: `trodden record -- PROGRAM` makes one".into(),
        };
        let suites: Vec<String> = self.suites()?.into_iter().map(|s| s.0).collect();
        if !suites.is_empty() {
            known += &format!(", and suites {}", suites.join(", "));
        }
        Ok(ProfileError::NoRun { store: self.folder.clone(), wanted: wanted.to_owned(), known })
    }

    fn query(&self, sql: &str, values: impl rusqlite::Params) -> Result<Vec<RunEntry>, ProfileError> {
        self.reading(|t| {
            let mut statement = t.prepare(sql)?;
            let mut entries: Vec<RunEntry> = statement.query_map(values, |row| read_entry(&self.folder, row))?.collect::<Result<_, _>>()?;
            for entry in &mut entries {
                entry.images = images(t, entry.number)?;
            }
            Ok(entries)
        })
    }

    /// Reads in one transaction, so that the result is consistent.
    fn reading<T>(&self, work: impl FnOnce(&Transaction) -> rusqlite::Result<T>) -> Result<T, ProfileError> {
        self.transact(TransactionBehavior::Deferred, work)
    }

    /// Writes in one transaction that takes the lock at once, so that it never fails half-way for lack of it.
    fn writing<T>(&self, work: impl FnOnce(&Transaction) -> rusqlite::Result<T>) -> Result<T, ProfileError> {
        if let Some((_, why)) = &self.unwritable {
            return Err(ProfileError::StoreUnwritable { folder: self.folder.clone(), why: why.clone() });
        }
        self.transact(TransactionBehavior::Immediate, work)
    }

    fn transact<T>(&self, how: TransactionBehavior, work: impl FnOnce(&Transaction) -> rusqlite::Result<T>) -> Result<T, ProfileError> {
        let run = || {
            let transaction = Transaction::new_unchecked(&self.database, how)?;
            let out = work(&transaction)?;
            transaction.commit()?;
            Ok(out)
        };
        run().map_err(|source| match is_unwritable(&source) {
            true => ProfileError::StoreUnwritable { folder: self.folder.clone(), why: source.to_string() },
            false => ProfileError::Database { path: self.folder.join(DATABASE), source },
        })
    }
}

/// Refuses names of suites that [`RunStore::select`] would read as single runs.
///
/// # Errors
/// It is such a name.
pub fn check_suite_name(name: &str) -> Result<(), ProfileError> {
    let taken = name.strip_prefix('#').unwrap_or(name).parse::<u64>().is_ok() || steps_back(name).is_some();
    match taken || name.trim().is_empty() {
        true => Err(ProfileError::SuiteName(name.to_owned())),
        false => Ok(()),
    }
}

/// `last`: 0; `last~N`: N.
fn steps_back(wanted: &str) -> Option<u64> {
    match wanted.strip_prefix("last")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}
