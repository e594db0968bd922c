//! The tables of the run store's index, and migrations of tables that older versions created.

use rusqlite::{Connection, TransactionBehavior};
use std::time::Duration;

/// SQLite's application ID of the database, "TROD". Tools such as `file` show it.
const APPLICATION_ID: i64 = 0x5452_4f44;

/// Maximum time to wait until other processes have finished writing to the database.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// SQL statements that upgrade each version of the schema to the next. The version is the number of migrations applied.
pub const SCHEMA_MIGRATIONS: &[&str] = &[
    SCHEMA,
    "ALTER TABLE runs ADD COLUMN test TEXT; -- name of the test of a suite that the run is",
    "ALTER TABLE runs ADD COLUMN diverged INTEGER NOT NULL DEFAULT 0; -- differences between the copies that counted it",
    "ALTER TABLE runs ADD COLUMN lost INTEGER NOT NULL DEFAULT 0; -- threads whose counts are lost
     ALTER TABLE runs ADD COLUMN interrupted INTEGER NOT NULL DEFAULT 0; -- copies that a signal ended, all of them",
    // Schema version 4 added runs to the index before their profiles were written, so rows without a profile were left by killed recorders.
    "DELETE FROM runs WHERE profile IS NULL;
     CREATE TABLE unreadable (       -- files among the profiles that are not listed
        number INTEGER PRIMARY KEY,
        bytes INTEGER NOT NULL,      -- size and time of the last change, to know it again
        modified_ns INTEGER NOT NULL,
        why TEXT NOT NULL
     );",
];

/// First version of the schema for which profiles, and not only the index, contain the name of their suite.
pub const FIRST_VERSION_WITH_SUITES_IN_PROFILES: u64 = 5;

const SCHEMA: &str = "
    CREATE TABLE suites (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        profile TEXT,               -- file, relative to the folder
        bytes INTEGER,              -- its size
        command TEXT NOT NULL,      -- JSON array of strings
        directory TEXT NOT NULL,
        host TEXT NOT NULL,
        suite INTEGER REFERENCES suites (id),
        started_ns INTEGER NOT NULL,
        duration_ns INTEGER NOT NULL,
        exit_status INTEGER,
        signal INTEGER,
        merged_runs INTEGER NOT NULL,
        recorder TEXT NOT NULL
    );
    CREATE TABLE builds (
        id INTEGER PRIMARY KEY,
        identity TEXT NOT NULL,     -- 32 hexadecimal digits
        path TEXT NOT NULL,
        build_id TEXT,
        UNIQUE (identity, path)
    );
    CREATE TABLE run_builds (
        run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
        build INTEGER NOT NULL REFERENCES builds (id),
        place INTEGER NOT NULL,
        PRIMARY KEY (run, place)
    );
    CREATE INDEX runs_by_suite ON runs (suite);
    CREATE INDEX runs_by_build ON run_builds (build);
";

pub fn configure_database(database: &Connection) -> rusqlite::Result<()> {
    database.busy_timeout(BUSY_TIMEOUT)?;
    database.pragma_update(None, "foreign_keys", true)?;
    let mode: String = database.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode != "wal" {
        // Enabling the write-ahead log may fail, depending on the file system and on other processes. Without it, readers and writers have
        // to wait for each other.
        let _ = database.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
    }
    Ok(())
}

/// Returns the schema version of a database; 0 if the database is empty.
pub fn query_schema_version(database: &Connection) -> rusqlite::Result<u64> {
    database.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).map(|v| u64::try_from(v).unwrap_or(0))
}

/// Upgrades the schema to the current version. Returns the version of the database, which is higher than the current one if a newer trodden
/// created it.
pub fn migrate_database(database: &mut Connection) -> rusqlite::Result<u64> {
    let found = query_schema_version(database)?;
    if found >= SCHEMA_MIGRATIONS.len() as u64 {
        return Ok(found);
    }
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have upgraded the schema since the check above.
    let from = query_schema_version(&transaction)?;
    for (number, step) in SCHEMA_MIGRATIONS.iter().enumerate().skip(from as usize) {
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", number as i64 + 1)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    let now = query_schema_version(&transaction)?;
    transaction.commit()?;
    Ok(now)
}
