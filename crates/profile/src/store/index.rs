//! The index of a run store, `runs.db`, which is kept consistent with the profiles and can be rebuilt from them.
//!
//! Invariant: a profile is named or removed only within a transaction that updates the index. If the index and the profiles differ although
//! the index is locked for writing, a recorder was killed, or files were added or removed by other means than trodden.

use super::names::{profile_path, run_numbers};
use super::rows::{IMAGES_QUERY, RUNS_QUERY, from_sqlite_integer, insert_run, remove_unused_suites_and_builds, to_sqlite_integer};
use super::schema::{self, BUSY_TIMEOUT, SCHEMA_MIGRATIONS, configure_database, migrate_database};
use super::{DATABASE_NAME, PROFILES_FOLDER, STREAMS_FOLDER, StoreIndexError};
use crate::atomic_file::FilePermissions;
use crate::container::{ProfileHeader, update_run_in_file};
use crate::error::ProfileError;
use crate::private::mode_for_new_file;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How an index was changed to make it consistent with the profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRepair {
    /// The store.
    pub folder: PathBuf,
    /// Reason why the index was rebuilt; `None` if it was only updated.
    pub reason: Option<String>,
    /// Number of profiles that the index lacked and that were added to it.
    pub added: usize,
    /// Number of runs that were removed from the index because their profiles no longer exist.
    pub gone: usize,
    /// Profiles that cannot be read and were not known to be unreadable before.
    pub unreadable: Vec<UnreadableProfile>,
}

/// A profile that is missing in the list of runs because it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableProfile {
    /// The file.
    pub path: PathBuf,
    /// Reason why the profile cannot be read, including the file's name.
    pub why: String,
}

impl fmt::Display for IndexRepair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = |n: usize| format!("{n} run{}", if n == 1 { "" } else { "s" });
        write!(f, "run store {}: ", self.folder.display())?;
        match &self.reason {
            Some(reason) => write!(f, "the index {DATABASE_NAME} {reason}, and was rebuilt from the profiles ({})", runs(self.added))?,
            None => {
                let changes = [(self.added, "added"), (self.gone, "removed, because the profile no longer exists")];
                let changes = changes.iter().filter(|c| c.0 > 0).map(|(n, what)| format!("{} {what}", runs(*n)));
                let changes: Vec<String> = changes.collect();
                write!(f, "the index {DATABASE_NAME} differed from the profiles and was updated")?;
                if !changes.is_empty() {
                    write!(f, ": {}", changes.join(", "))?;
                }
            }
        }
        if let [first, others @ ..] = self.unreadable.as_slice() {
            write!(f, "; unreadable profiles: {}", first.why)?;
            if !others.is_empty() {
                write!(f, "; and {} more (`trodden runs` lists them)", others.len())?;
            }
        }
        Ok(())
    }
}

pub struct StoreIndex {
    pub database: Connection,
    pub repair: Option<IndexRepair>,
}

/// Opens an index and updates it to match the profiles in the store `folder`. `index_folder` contains the index: it is either the store's
/// folder, or a folder with a copy of the index.
pub fn open(index_folder: &Path, folder: &Path) -> Result<StoreIndex, ProfileError> {
    let path = index_folder.join(DATABASE_NAME);
    let failed = |source| ProfileError::Database { path: path.clone(), source };
    let is_missing = match path.metadata() {
        Ok(there) => there.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let is_store = index_folder == folder;
    if is_store {
        set_permissions(&path, folder);
    }
    let attempt = |store, reason| -> Result<StoreIndex, StoreIndexError> {
        let mut database = connect_to_index(&path, store)?;
        let repair = synchronize_index_with_profiles(&mut database, folder, reason)?;
        Ok(StoreIndex { database, repair })
    };
    let index = match attempt(is_store.then_some(folder), is_missing.then(|| "was missing".to_owned())) {
        Err(StoreIndexError::Sql(error)) if is_corrupt(&error) => {
            reset_database(&path).map_err(failed)?;
            attempt(None, Some(format!("was corrupt ({error})")))
        }
        other => other,
    };
    index.map_err(|failure| failure.into_profile_error(&path))
}

/// Opens the database, upgrades its tables and checks it. `store` is the folder of the store, or `None` if the upgrade must not change
/// profiles.
fn connect_to_index(path: &Path, store: Option<&Path>) -> Result<Connection, StoreIndexError> {
    let mut database = Connection::open(path)?;
    configure_database(&database)?;
    if let Some(folder) = store
        && (1..schema::FIRST_VERSION_WITH_SUITES_IN_PROFILES).contains(&schema::query_schema_version(&database)?)
    {
        add_suites_to_profiles(&mut database, folder)?;
    }
    let now = migrate_database(&mut database)?;
    let known = SCHEMA_MIGRATIONS.len() as u64;
    if now > known {
        return Err(ProfileError::Version { path: path.to_owned(), kind: "run store", found: now, known }.into());
    }
    let found: String = database.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        let corrupt = rusqlite::ffi::Error { code: ErrorCode::DatabaseCorrupt, extended_code: rusqlite::ffi::SQLITE_CORRUPT };
        return Err(rusqlite::Error::SqliteFailure(corrupt, Some(found)).into());
    }
    // Preparing the queries fails if a table or a column is missing.
    for sql in [RUNS_QUERY, IMAGES_QUERY] {
        database.prepare(sql)?;
    }
    Ok(database)
}

/// Writes the name of each run's suite into its profile. In stores of older versions, only the index contained the suites.
fn add_suites_to_profiles(database: &mut Connection, folder: &Path) -> Result<(), StoreIndexError> {
    let t = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let rows = {
        let mut statement = t.prepare("SELECT number, suites.name FROM runs LEFT JOIN suites ON suites.id = runs.suite")?;
        let rows = statement.query_map([], |row| Ok((from_sqlite_integer(row.get(0)?), row.get::<_, Option<String>>(1)?)))?;
        rows.collect::<Result<Vec<_>, _>>()?
    };
    for (number, suite) in rows {
        let path = profile_path(folder, number);
        // Profiles that are corrupt or of a different version are left unchanged; the problem is reported when they are read.
        if ProfileHeader::read(&path).is_ok_and(|header| header.run.suite != suite) {
            update_run_in_file(&path, FilePermissions::Mode(mode_for_new_file(folder)), |run| run.suite = suite)?;
        }
    }
    Ok(t.commit()?)
}

fn is_corrupt(error: &rusqlite::Error) -> bool {
    use ErrorCode::{ConstraintViolation, DatabaseCorrupt, NotADatabase, TypeMismatch, Unknown};
    match error.sqlite_error_code() {
        Some(code) => matches!(code, NotADatabase | DatabaseCorrupt | ConstraintViolation | TypeMismatch | Unknown),
        // The error is not SQLite's: a value does not have the type of its column.
        None => true,
    }
}

/// Empties a corrupt database. The file is kept and changed under SQLite's locks, since other processes may have it open.
fn reset_database(path: &Path) -> rusqlite::Result<()> {
    let database = Connection::open(path)?;
    database.busy_timeout(BUSY_TIMEOUT)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, true)?;
    database.execute_batch("VACUUM")?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, false).map(drop)
}

/// Adds runs to the index whose profiles it lacks, and removes runs whose profiles no longer exist. `reason` says why the index was
/// rebuilt, if it was. Returns `None` if nothing changed.
fn synchronize_index_with_profiles(
    database: &mut Connection,
    folder: &Path,
    reason: Option<String>,
) -> Result<Option<IndexRepair>, StoreIndexError> {
    let differences = IndexDifferences::find(database, folder)?;
    if differences.is_empty() {
        return Ok(None);
    }
    // Reads the profiles before locking the database, so that other recorders do not have to wait.
    let read = |path: &Path| ProfileHeader::read(path).map_err(|e| e.to_string());
    let mut headers: BTreeMap<u64, _> = differences.missing.iter().map(|&n| (n, read(&profile_path(folder, n)))).collect();
    let t = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let differences = IndexDifferences::find(&t, folder)?;
    let mut repair = IndexRepair { folder: folder.to_owned(), reason, added: 0, gone: differences.gone.len(), unreadable: Vec::new() };
    for number in &differences.gone {
        t.execute("DELETE FROM runs WHERE number = ?1", [to_sqlite_integer(*number)])?;
    }
    for number in &differences.stale_unreadable {
        t.execute("DELETE FROM unreadable WHERE number = ?1", [to_sqlite_integer(*number)])?;
    }
    for &number in &differences.missing {
        let path = profile_path(folder, number);
        let Ok(there) = path.symlink_metadata() else { continue };
        match headers.remove(&number).unwrap_or_else(|| read(&path)) {
            Ok(header) => {
                insert_run(&t, number, &header, there.len())?;
                repair.added += 1;
            }
            Err(why) => {
                let (bytes, modified) = file_size_and_mtime(&there);
                let sql = "INSERT OR REPLACE INTO unreadable (number, bytes, modified_ns, why) VALUES (?1, ?2, ?3, ?4)";
                t.execute(sql, params![to_sqlite_integer(number), bytes, modified, why])?;
                repair.unreadable.push(UnreadableProfile { path, why });
            }
        }
    }
    remove_unused_suites_and_builds(&t)?;
    t.commit()?;
    let is_changed = repair.added > 0 || repair.gone > 0 || !repair.unreadable.is_empty();
    Ok(is_changed.then_some(repair))
}

struct IndexDifferences {
    /// Numbers of profiles that the index lists neither as runs nor as unreadable.
    missing: Vec<u64>,
    /// Runs without a profile.
    gone: Vec<u64>,
    /// Numbers of profiles that the index lists as unreadable but that have changed or no longer exist.
    stale_unreadable: Vec<u64>,
}

impl IndexDifferences {
    fn find(database: &Connection, folder: &Path) -> Result<IndexDifferences, StoreIndexError> {
        let listed: BTreeSet<u64> = {
            let mut statement = database.prepare("SELECT number FROM runs ORDER BY number")?;
            statement.query_map([], |row| row.get(0).map(from_sqlite_integer))?.collect::<Result<_, _>>()?
        };
        let unreadable: BTreeMap<u64, (i64, i64)> = {
            let mut statement = database.prepare("SELECT number, bytes, modified_ns FROM unreadable")?;
            let rows = statement.query_map([], |row| Ok((from_sqlite_integer(row.get(0)?), (row.get(1)?, row.get(2)?))))?;
            rows.collect::<Result<_, _>>()?
        };
        // The folder is read after the index. If a recorder is just adding a run, its profile may be found although its row was not. The
        // second comparison, while the database is locked, corrects this.
        let there = run_numbers(&folder.join(PROFILES_FOLDER))?;
        let is_unchanged = |number: u64, known: (i64, i64)| {
            profile_path(folder, number).symlink_metadata().is_ok_and(|now| file_size_and_mtime(&now) == known)
        };
        let stale_unreadable: Vec<u64> = unreadable.iter().filter(|(n, known)| !is_unchanged(**n, **known)).map(|(n, _)| *n).collect();
        let is_known = |n: &u64| listed.contains(n) || (unreadable.contains_key(n) && !stale_unreadable.contains(n));
        Ok(IndexDifferences {
            missing: there.iter().copied().filter(|n| !is_known(n)).collect(),
            gone: listed.difference(&there).copied().collect(),
            stale_unreadable,
        })
    }

    fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.gone.is_empty() && self.stale_unreadable.is_empty()
    }
}

/// Returns a file's size and modification time. If both are the same as before, the file is taken as unchanged.
fn file_size_and_mtime(file: &Metadata) -> (i64, i64) {
    (to_sqlite_integer(file.len()), file.mtime().saturating_mul(1_000_000_000).saturating_add(file.mtime_nsec()))
}

/// Returns the number of the next run. It is higher than the numbers of all runs in the index, all removed runs, and all files in the
/// store.
pub fn next_run_number(t: &Transaction, folder: &Path) -> Result<u64, StoreIndexError> {
    let assigned: Option<i64> = t.query_row("SELECT max(seq) FROM sqlite_sequence WHERE name = 'runs'", [], |row| row.get(0))?;
    let listed: Option<i64> = t.query_row("SELECT max(number) FROM runs", [], |row| row.get(0))?;
    let mut last = assigned.into_iter().chain(listed).map(from_sqlite_integer).max().unwrap_or(0);
    for part in [PROFILES_FOLDER, STREAMS_FOLDER] {
        last = last.max(run_numbers(&folder.join(part))?.last().copied().unwrap_or(0));
    }
    Ok(last + 1)
}

/// Creates the database file if necessary, and gives it the permissions of the store; SQLite copies them to its other files. Ignores
/// failures, since SQLite reports them better when it opens the file.
fn set_permissions(path: &Path, folder: &Path) {
    let mode = mode_for_new_file(folder);
    let has_mode = |file: &Metadata| file.mode() & 0o777 == mode;
    match path.metadata() {
        Ok(there) if has_mode(&there) => {}
        Ok(_) => drop(std::fs::set_permissions(path, Permissions::from_mode(mode))),
        Err(_) => {
            let made: io::Result<File> = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            let _ = made.and_then(|file| file.set_permissions(Permissions::from_mode(mode)));
        }
    }
}
