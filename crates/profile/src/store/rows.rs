//! Reads and writes the index's rows of runs, suites and builds.

use super::names::{profile_name, profile_path};
use super::{PROFILES_FOLDER, RunEntry, RunImage};
use crate::container::ProfileHeader;
use crate::model::{ProcessEnding, Run};
use rusqlite::{Row, Transaction, params};
use std::path::Path;
use trodden_unit::Identity;

/// SQL query for all runs in the index. Further conditions can be appended to it.
pub const RUNS_QUERY: &str =
    "SELECT number, bytes, command, directory, host, suites.name, started_ns, duration_ns, exit_status, signal, merged_runs, recorder,
    test, diverged, lost, interrupted FROM runs LEFT JOIN suites ON suites.id = runs.suite WHERE true";

pub const IMAGES_QUERY: &str =
    "SELECT identity, path, build_id FROM run_builds JOIN builds ON builds.id = build WHERE run = ?1 ORDER BY place";

pub fn insert_run(t: &Transaction, number: u64, header: &ProfileHeader, bytes: u64) -> rusqlite::Result<()> {
    let run = &header.run;
    let suite = run.suite.as_deref().map(|name| find_or_insert_suite(t, name)).transpose()?;
    let command = serde_json::to_string(&run.command).expect("strings are JSON");
    let (status, signal) = match run.ending {
        Some(ProcessEnding::Exit(status)) => (Some(status), None),
        Some(ProcessEnding::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    t.execute(
        "INSERT INTO runs (number, profile, bytes, command, directory, host, suite, started_ns, duration_ns, exit_status, signal, \
            merged_runs, recorder, test, diverged, lost, interrupted)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        params![
            to_sqlite_integer(number),
            format!("{PROFILES_FOLDER}/{}", profile_name(number)),
            to_sqlite_integer(bytes),
            command,
            run.directory,
            run.host,
            suite,
            to_sqlite_integer(run.started_ns),
            to_sqlite_integer(run.duration_ns),
            status,
            signal,
            to_sqlite_integer(run.runs),
            run.recorder,
            run.test,
            to_sqlite_integer(run.diverged),
            to_sqlite_integer(run.lost),
            to_sqlite_integer(run.interrupted)
        ],
    )?;
    for (place, (identity, path, build_id)) in header.images.iter().enumerate() {
        let identity = identity.to_string();
        t.execute(
            "INSERT INTO builds (identity, path, build_id) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            params![identity, path, build_id],
        )?;
        t.execute(
            "INSERT INTO run_builds (run, build, place) SELECT ?1, id, ?2 FROM builds WHERE identity = ?3 AND path = ?4",
            params![to_sqlite_integer(number), place as i64, identity, path],
        )?;
    }
    Ok(())
}

/// Returns the ID of a suite, which is added to the index if it is new.
pub fn find_or_insert_suite(t: &Transaction, name: &str) -> rusqlite::Result<i64> {
    t.execute("INSERT INTO suites (name) VALUES (?1) ON CONFLICT DO NOTHING", [name])?;
    t.query_row("SELECT id FROM suites WHERE name = ?1", [name], |row| row.get(0))
}

/// Removes suites and builds that no run refers to.
pub fn remove_unused_suites_and_builds(t: &Transaction) -> rusqlite::Result<()> {
    t.execute("DELETE FROM suites WHERE id NOT IN (SELECT suite FROM runs WHERE suite IS NOT NULL)", [])?;
    t.execute("DELETE FROM builds WHERE id NOT IN (SELECT build FROM run_builds)", []).map(drop)
}

/// Converts a row that [`RUNS_QUERY`] returned to a run; its images are not filled in.
pub fn read_entry(folder: &Path, row: &Row) -> rusqlite::Result<RunEntry> {
    let ending = match (row.get::<_, Option<i32>>(8)?, row.get::<_, Option<i32>>(9)?) {
        (Some(status), _) => Some(ProcessEnding::Exit(status)),
        (None, Some(signal)) => Some(ProcessEnding::Signal(signal)),
        (None, None) => None,
    };
    let command: String = row.get(2)?;
    let wrong = |e| rusqlite::Error::FromSqlConversionFailure(2, rusqlite::types::Type::Text, Box::new(e));
    let run = Run {
        command: serde_json::from_str(&command).map_err(wrong)?,
        directory: row.get(3)?,
        host: row.get(4)?,
        suite: row.get(5)?,
        started_ns: from_sqlite_integer(row.get(6)?),
        duration_ns: from_sqlite_integer(row.get(7)?),
        ending,
        runs: from_sqlite_integer(row.get(10)?),
        recorder: row.get(11)?,
        test: row.get(12)?,
        diverged: from_sqlite_integer(row.get(13)?),
        lost: from_sqlite_integer(row.get(14)?),
        interrupted: from_sqlite_integer(row.get(15)?),
    };
    let number = from_sqlite_integer(row.get(0)?);
    let bytes = row.get::<_, Option<i64>>(1)?.map_or(0, from_sqlite_integer);
    // The profile's path is derived from the run's number. The path in the table is ignored, since users may have edited it.
    Ok(RunEntry { number, run, profile: profile_path(folder, number), bytes, images: Vec::new() })
}

pub fn read_images(t: &Transaction, number: u64) -> rusqlite::Result<Vec<RunImage>> {
    let mut statement = t.prepare_cached(IMAGES_QUERY)?;
    let rows = statement.query_map([to_sqlite_integer(number)], |row| {
        let identity: String = row.get(0)?;
        Ok(RunImage { identity: Identity::parse(&identity).unwrap_or(Identity([0; 16])), path: row.get(1)?, build_id: row.get(2)? })
    })?;
    rows.collect()
}

/// Converts a number to an SQLite integer, which is signed. Numbers that do not fit become `i64::MAX`.
pub fn to_sqlite_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts an SQLite integer to an unsigned number. Negative numbers become 0.
pub fn from_sqlite_integer(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
