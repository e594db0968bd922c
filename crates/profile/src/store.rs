//! The run store: the folder `.trodden`, in which a project keeps its runs.
//!
//! `profiles/000001.trodden` is the profile of run 1, and `streams/000001/` contains its streams. `runs.db` is an SQLite index of the
//! profiles (its tables are described in `schema`), which any SQLite client can query. Several programs may record at the same time.
//! Profiles are never overwritten, and the index is kept consistent with them ([`IndexRepair`]).

mod index;
mod leftovers;
mod names;
mod rows;
mod schema;

pub use crate::private::RUN_STORE_FOLDER as FOLDER;
pub use index::{IndexRepair, UnreadableProfile};
pub use leftovers::LeftoverFile;

use crate::atomic_file::{FilePermissions, UnnamedFile};
use crate::container::{ProfileHeader, TEMPORARY_PREFIX, update_run_in_file};
use crate::error::ProfileError;
use crate::model::{Profile, Run};
use crate::private;
use crate::temporary::TemporaryFolder;
use rows::{
    RUNS_QUERY, find_or_insert_suite, from_sqlite_integer, insert_run, read_entry, read_images, remove_unused_suites_and_builds,
    to_sqlite_integer,
};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use trodden_unit::Identity;

const DATABASE_NAME: &str = "runs.db";
const PROFILES_FOLDER: &str = "profiles";
/// Subfolder that contains a folder of streams for each run.
const STREAMS_FOLDER: &str = "streams";
/// Environment variable with the path of the run store. If it is set, trodden does not search for a store.
pub const RUNS_VARIABLE: &str = "TRODDEN_RUNS";

/// Makes `folder` the run store for the whole process, instead of the project's `.trodden`. Later calls have no effect.
pub fn set_store_folder(folder: PathBuf) {
    private::set_run_store_named_by_user(folder);
}

/// Returns the path of a project's run store, which may not exist yet.
pub fn store_folder(project: &Path) -> PathBuf {
    private::run_store_named_by_user().map_or_else(|| project.join(FOLDER), Path::to_owned)
}

/// Returns the path of the run store that [`RunStore::find`] would open; `None` if no such store exists.
pub fn locate(start: &Path) -> Option<PathBuf> {
    let is_store = |folder: &PathBuf| folder.join(DATABASE_NAME).is_file() || folder.join(PROFILES_FOLDER).is_dir();
    match private::run_store_named_by_user() {
        Some(named) => Some(named.to_owned()).filter(is_store),
        None => std::path::absolute(start).ok()?.ancestors().map(|above| above.join(FOLDER)).find(is_store),
    }
}

/// Beginning of the names of folders that contain raw files.
pub const RAW_FOLDER_PREFIX: &str = "raw-";

/// An open run store.
#[derive(Debug)]
pub struct RunStore {
    folder: PathBuf,
    database: Connection,
    repair: Option<IndexRepair>,
    /// The temporary copy of the index that is used because the store cannot be written, and the reason why it cannot; otherwise `None`.
    unwritable: Option<(TemporaryFolder, String)>,
}

/// A run in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEntry {
    /// Number of the run; the first is 1.
    pub number: u64,
    /// Properties of the run, including the suite that it belongs to now.
    pub run: Run,
    /// Path of the stored profile.
    pub profile: PathBuf,
    /// Size of the profile in bytes.
    pub bytes: u64,
    /// The executables and shared libraries of the run.
    pub images: Vec<RunImage>,
}

/// An executable or shared library of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunImage {
    /// Identity of the build.
    pub identity: Identity,
    /// Path.
    pub path: String,
    /// The linker's build ID.
    pub build_id: Option<String>,
}

#[derive(Debug)]
enum StoreIndexError {
    Sql(rusqlite::Error),
    Other(ProfileError),
}

impl StoreIndexError {
    /// Converts the failure to a [`ProfileError`]; an SQLite error names the database file.
    fn into_profile_error(self, database: &Path) -> ProfileError {
        match self {
            StoreIndexError::Sql(source) => ProfileError::Database { path: database.to_owned(), source },
            StoreIndexError::Other(error) => error,
        }
    }
}

impl From<rusqlite::Error> for StoreIndexError {
    fn from(error: rusqlite::Error) -> StoreIndexError {
        StoreIndexError::Sql(error)
    }
}

impl From<ProfileError> for StoreIndexError {
    fn from(error: ProfileError) -> StoreIndexError {
        StoreIndexError::Other(error)
    }
}

fn is_index_unwritable(error: &rusqlite::Error) -> bool {
    use ErrorCode::{CannotOpen, DiskFull, ReadOnly, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(CannotOpen | DiskFull | ReadOnly | SystemIoFailure))
}

/// Copies the database of a store, with its write-ahead log, to a temporary folder.
fn copy_index(folder: &Path) -> Result<TemporaryFolder, ProfileError> {
    let copy = private::temporary_folder("trodden-store-").map_err(ProfileError::io(&std::env::temp_dir(), "write"))?;
    for name in [DATABASE_NAME.to_owned(), format!("{DATABASE_NAME}-wal")] {
        let file = folder.join(&name);
        if file.exists() {
            std::fs::copy(&file, copy.path().join(&name)).map_err(ProfileError::io(&file, "read"))?;
        }
    }
    Ok(copy)
}

impl RunStore {
    /// Opens the store that was set with [`set_store_folder`], otherwise the project's store. Creates the store if it does not exist.
    pub fn create(project: &Path) -> Result<RunStore, ProfileError> {
        let folder = store_folder(project);
        private::create_folder(&folder.join(PROFILES_FOLDER)).map_err(ProfileError::io(&folder, "create"))?;
        let ignore = folder.join(".gitignore");
        if !ignore.exists() {
            let access = FilePermissions::Mode(private::mode_for_new_file(&folder));
            let written = UnnamedFile::write(&folder, TEMPORARY_PREFIX, access, |out| out.write_all(b"*\n"))
                .and_then(|file| file.rename_if_name_is_free(&ignore));
            written.map_err(ProfileError::io(&ignore, "write"))?;
        }
        let store = RunStore::open(&folder)?;
        // An empty transaction, so that a store that cannot be written is reported before anything is recorded.
        store.in_write_transaction(|_| Ok::<(), StoreIndexError>(()))?;
        store.report_index_repair();
        Ok(store)
    }

    /// Opens the store that was set with [`set_store_folder`], otherwise the store in `start` or the nearest folder above it. Fails if
    /// there is no store, or if it cannot be opened.
    pub fn find(start: &Path) -> Result<RunStore, ProfileError> {
        let absolute = std::path::absolute(start).map_err(ProfileError::io(start, "read"))?;
        match (locate(start), private::run_store_named_by_user()) {
            (Some(folder), _) => RunStore::open(&folder).inspect(RunStore::report_index_repair),
            (None, Some(named)) => Err(ProfileError::NoNamedStore { folder: named.to_owned() }),
            (None, None) => Err(ProfileError::NoStore { folder: FOLDER, start: absolute }),
        }
    }

    /// Opens the store in the given folder, such as `.trodden`. Upgrades an index that an older version of trodden created. Fails if the
    /// store cannot be opened, or if a newer version of trodden created it.
    pub fn open(folder: &Path) -> Result<RunStore, ProfileError> {
        let (index, unwritable) = match index::open(folder, folder) {
            Err(ProfileError::Database { source, .. }) if is_index_unwritable(&source) => {
                // A copy is needed even for reading, because SQLite creates files next to the database.
                let copy = copy_index(folder)?;
                (index::open(copy.path(), folder)?, Some((copy, source.to_string())))
            }
            other => (other?, None),
        };
        Ok(RunStore { folder: folder.to_owned(), database: index.database, repair: index.repair, unwritable })
    }

    /// Returns how the index was repaired when the store was opened; `None` if it was consistent. If the store cannot be written, only a
    /// copy of the index was repaired.
    pub fn index_repair(&self) -> Option<&IndexRepair> {
        self.repair.as_ref()
    }

    /// Logs the repair of the index. Logs only once per process, since an index that cannot be written is repaired again, in a copy, each
    /// time it is opened.
    fn report_index_repair(&self) {
        static IS_REPORTED: AtomicBool = AtomicBool::new(false);
        let Some(repair) = &self.repair else { return };
        if !IS_REPORTED.swap(true, Ordering::Relaxed) {
            if repair.unreadable.is_empty() { log::info!("{repair}") } else { log::warn!("{repair}") }
        }
    }

    /// Returns the profiles that are missing in the list of runs because they cannot be read.
    pub fn unreadable_profiles(&self) -> Result<Vec<UnreadableProfile>, ProfileError> {
        self.in_read_transaction(|t| {
            let mut statement = t.prepare("SELECT number, why FROM unreadable ORDER BY number")?;
            let path = |number: i64| names::profile_path(&self.folder, from_sqlite_integer(number));
            let rows = statement.query_map([], |row| Ok(UnreadableProfile { path: path(row.get(0)?), why: row.get(1)? }))?;
            rows.collect()
        })
    }

    /// Returns the folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stores a profile as a new run, which belongs to the suite that the profile names, if any.
    pub fn add_run(&self, profile: &Profile) -> Result<RunEntry, ProfileError> {
        if let Some(suite) = &profile.run.suite {
            check_suite_name(suite)?;
        }
        let folder = self.folder.join(PROFILES_FOLDER);
        let access = FilePermissions::Mode(private::mode_for_new_file(&self.folder));
        let written = UnnamedFile::write(&folder, TEMPORARY_PREFIX, access, |out| profile.write_to(out));
        let mut file = written.map_err(ProfileError::io(&folder, "write"))?;
        let images = profile.images.iter().map(|i| (i.identity, i.path.clone(), i.build_id.clone())).collect();
        let header = ProfileHeader { run: profile.run.clone(), images };
        let mut named = None;
        let listed = self.in_write_transaction(|t| {
            let mut number = index::next_run_number(t, &self.folder)?;
            let path = loop {
                let path = names::profile_path(&self.folder, number);
                match file.rename_if_name_is_free(&path).map_err(ProfileError::io(&path, "write"))? {
                    None => break path,
                    // The number is taken by a run that is not in the index, because the index was deleted and rebuilt since.
                    Some(again) => file = again,
                }
                number += 1;
            };
            let bytes = named.insert(path.clone()).metadata().map_err(ProfileError::io(&path, "read"))?.len();
            insert_run(t, number, &header, bytes)?;
            Ok::<u64, StoreIndexError>(number)
        });
        match (listed, named) {
            (Err(error), Some(path)) => {
                // The transaction failed, so the run is not in the index. Its profile is removed, and the caller reports the error.
                std::fs::remove_file(&path).map_err(ProfileError::io(&path, "remove"))?;
                Err(error)
            }
            (listed, _) => self.get_by_number(listed?),
        }
    }

    /// Returns all runs, sorted by number.
    pub fn list(&self) -> Result<Vec<RunEntry>, ProfileError> {
        self.query(&format!("{RUNS_QUERY} ORDER BY number"), [])
    }

    /// Finds the runs that `wanted` denotes: the run with a number (`12` or `#12`), the last run (`last`), the one before it (`last~1`), or
    /// all runs of a suite. Fails if there is no such run or suite, or if the database cannot be read.
    pub fn select(&self, wanted: &str) -> Result<Vec<RunEntry>, ProfileError> {
        let found = if let Ok(number) = wanted.strip_prefix('#').unwrap_or(wanted).parse::<u64>() {
            self.query(&format!("{RUNS_QUERY} AND number = ?1"), [to_sqlite_integer(number)])?
        } else if let Some(back) = parse_runs_back(wanted) {
            self.query(&format!("{RUNS_QUERY} ORDER BY number DESC LIMIT 1 OFFSET ?1"), [to_sqlite_integer(back)])?
        } else {
            self.query(&format!("{RUNS_QUERY} AND suites.name = ?1 ORDER BY number"), [wanted])?
        };
        match found.is_empty() {
            true => Err(self.unknown_run_error(wanted)?),
            false => Ok(found),
        }
    }

    /// Finds the run that `wanted` denotes; for a suite, its last run. Fails like [`RunStore::select`].
    pub fn get(&self, wanted: &str) -> Result<RunEntry, ProfileError> {
        Ok(self.select(wanted)?.pop().expect("select finds at least one"))
    }

    /// Reads the profile of a run.
    pub fn load(&self, entry: &RunEntry) -> Result<Profile, ProfileError> {
        Profile::read(&entry.profile)
    }

    /// Returns the names of the suites, each with its number of runs.
    pub fn suites(&self) -> Result<Vec<(String, u64)>, ProfileError> {
        let sql = "SELECT name, count(*) FROM suites JOIN runs ON runs.suite = suites.id GROUP BY name ORDER BY name";
        self.in_read_transaction(|t| {
            let mut statement = t.prepare(sql)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, from_sqlite_integer(row.get(1)?))))?;
            rows.collect()
        })
    }

    /// Moves a run to a suite, or out of its suite if `suite` is `None`. Fails if the run does not exist, the suite's name is not allowed,
    /// or the profile or the database cannot be written.
    pub fn set_suite(&self, number: u64, suite: Option<&str>) -> Result<(), ProfileError> {
        let entry = self.get_by_number(number)?;
        suite.map_or(Ok(()), check_suite_name)?;
        self.in_write_transaction(|t| {
            update_run_in_file(&entry.profile, FilePermissions::Mode(private::mode_for_new_file(&self.folder)), |run| {
                run.suite = suite.map(str::to_owned)
            })?;
            let bytes = entry.profile.metadata().map_err(ProfileError::io(&entry.profile, "read"))?.len();
            t.execute("UPDATE runs SET bytes = ?1 WHERE number = ?2", params![to_sqlite_integer(bytes), to_sqlite_integer(number)])?;
            let suite = suite.map(|name| find_or_insert_suite(t, name)).transpose()?;
            t.execute("UPDATE runs SET suite = ?1 WHERE number = ?2", params![suite, to_sqlite_integer(number)])?;
            Ok::<(), StoreIndexError>(remove_unused_suites_and_builds(t)?)
        })
    }

    /// Removes a run with its profile and streams. Fails if the run does not exist or cannot be removed.
    pub fn remove(&self, number: u64) -> Result<(), ProfileError> {
        let entry = self.get_by_number(number)?;
        self.in_write_transaction(|t| {
            t.execute("DELETE FROM runs WHERE number = ?1", [to_sqlite_integer(number)])?;
            remove_unused_suites_and_builds(t)?;
            let streams = self.streams(number);
            // The profile is removed last, because a run whose profile exists is added to the index again.
            for (removed, path) in [(std::fs::remove_dir_all(&streams), &streams), (std::fs::remove_file(&entry.profile), &entry.profile)] {
                match removed {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(ProfileError::io(path, "remove")(e).into()),
                    _ => {}
                }
            }
            Ok::<(), StoreIndexError>(())
        })
    }

    /// Returns the folder that contains the streams of a run. The folder may not exist.
    pub fn streams(&self, number: u64) -> PathBuf {
        self.folder.join(STREAMS_FOLDER).join(format!("{number:06}"))
    }

    fn get_by_number(&self, number: u64) -> Result<RunEntry, ProfileError> {
        self.get(&number.to_string())
    }

    fn unknown_run_error(&self, wanted: &str) -> Result<ProfileError, ProfileError> {
        let numbers: Vec<u64> = self.list()?.iter().map(|r| r.number).collect();
        let mut known = match (numbers.first(), numbers.last()) {
            (Some(first), Some(last)) if first != last => format!("there are {} runs, {first} to {last}", numbers.len()),
            (Some(only), _) => format!("there is only run {only}"),
            _ => "the store is empty. Record a run with `trodden record -- PROGRAM`".into(),
        };
        let suites: Vec<String> = self.suites()?.into_iter().map(|s| s.0).collect();
        if !suites.is_empty() {
            known += &format!(", and suites {}", suites.join(", "));
        }
        Ok(ProfileError::NoRun { store: self.folder.clone(), wanted: wanted.to_owned(), known })
    }

    fn query(&self, sql: &str, values: impl rusqlite::Params) -> Result<Vec<RunEntry>, ProfileError> {
        self.in_read_transaction(|t| {
            let mut statement = t.prepare(sql)?;
            let mut entries: Vec<RunEntry> = statement.query_map(values, |row| read_entry(&self.folder, row))?.collect::<Result<_, _>>()?;
            for entry in &mut entries {
                entry.images = read_images(t, entry.number)?;
            }
            Ok(entries)
        })
    }

    /// Runs `work` in a read transaction, so that its queries see one consistent state.
    fn in_read_transaction<T>(&self, work: impl FnOnce(&Transaction) -> rusqlite::Result<T>) -> Result<T, ProfileError> {
        self.run_transaction(TransactionBehavior::Deferred, work)
    }

    /// Runs `work` in a write transaction. The database is locked at the start of the transaction, so `work` cannot fail halfway because
    /// the lock is taken.
    fn in_write_transaction<T, E: Into<StoreIndexError>>(
        &self,
        work: impl FnOnce(&Transaction) -> Result<T, E>,
    ) -> Result<T, ProfileError> {
        if let Some((_, why)) = &self.unwritable {
            return Err(ProfileError::StoreUnwritable { folder: self.folder.clone(), why: why.clone() });
        }
        self.run_transaction(TransactionBehavior::Immediate, work)
    }

    fn run_transaction<T, E: Into<StoreIndexError>>(
        &self,
        how: TransactionBehavior,
        work: impl FnOnce(&Transaction) -> Result<T, E>,
    ) -> Result<T, ProfileError> {
        let run = || {
            let transaction = Transaction::new_unchecked(&self.database, how)?;
            let out = work(&transaction).map_err(Into::into)?;
            transaction.commit()?;
            Ok(out)
        };
        run().map_err(|failure| match failure {
            StoreIndexError::Sql(source) if is_index_unwritable(&source) => {
                ProfileError::StoreUnwritable { folder: self.folder.clone(), why: source.to_string() }
            }
            other => other.into_profile_error(&self.folder.join(DATABASE_NAME)),
        })
    }
}

/// Fails for suite names that are empty, contain control characters such as line breaks, or would denote a run in [`RunStore::select`].
pub fn check_suite_name(name: &str) -> Result<(), ProfileError> {
    let denotes_run = name.strip_prefix('#').unwrap_or(name).parse::<u64>().is_ok() || parse_runs_back(name).is_some();
    match denotes_run || name.trim().is_empty() || name.contains(char::is_control) {
        true => Err(ProfileError::SuiteName(name.to_owned())),
        false => Ok(()),
    }
}

/// Returns how many runs before the last one a name denotes: 0 for `last`, N for `last~N`. `None` for all other names.
fn parse_runs_back(wanted: &str) -> Option<u64> {
    match wanted.strip_prefix("last")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}
