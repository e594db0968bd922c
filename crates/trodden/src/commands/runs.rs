//! `trodden runs`: the run store, listed, marked with suites, cleared.

use crate::cli::{Runs, RunsCommand};
use crate::notes::{note, warn};
use crate::output::{json_text, print, print_text};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;
use trodden_profile::store::Left;
use trodden_profile::{RunEntry, RunStore};
use trodden_report::runs::{run_json, table};
use trodden_report::words::plural;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 2;

/// `trodden runs`
///
/// # Errors
/// There is no run store or no such run.
pub fn run(job: &Runs) -> Result<ExitCode> {
    let store = RunStore::find(Path::new("."))?;
    match &job.command {
        None if job.json => {
            let runs: Vec<Value> = store.list()?.iter().map(run_json).collect();
            let left: Vec<Value> = store.left()?.iter().map(|l| json!({"path": l.path, "bytes": l.bytes})).collect();
            let unreadable: Vec<Value> = store.unreadable()?.iter().map(|u| json!({"path": u.path, "why": u.why})).collect();
            let all = json!({"schema_version": SCHEMA_VERSION, "runs": runs, "left": left, "unreadable": unreadable});
            print(&json_text(&all)?)?
        }
        None => {
            print_text(&table(&store.list()?))?;
            report_left(&store.left()?);
            store.unreadable()?.iter().for_each(|u| warn(format_args!("a profile in the run store is not listed: {}", u.why)));
        }
        Some(RunsCommand::Remove { runs, leftovers }) => {
            let chosen = select(&store, runs)?;
            chosen.iter().try_for_each(|entry| store.remove(entry.number))?;
            if !chosen.is_empty() {
                note(format_args!("{} removed", plural(chosen.len() as u128, "run", "runs")));
            }
            if *leftovers {
                clean(&store.left()?)?;
            }
        }
        Some(RunsCommand::Suite { suite, runs }) => {
            let chosen = select(&store, runs)?;
            chosen.iter().try_for_each(|entry| store.set_suite(entry.number, Some(suite)))?;
            note(format_args!("{} in the suite {suite}", plural(chosen.len() as u128, "run is", "runs are")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what killed recordings left.
fn report_left(left: &[Left]) {
    // Of a recording that was killed before anything was counted there is only the folder.
    let left: Vec<Left> = left.iter().filter(|one| one.bytes > 0).cloned().collect();
    if !left.is_empty() {
        note(format_args!(
            "recordings that were killed left {} ({}): `trodden import FOLDER` makes a run of raw counts, and \
                `trodden runs remove --leftovers` removes all",
            plural(left.len() as u128, "file or folder", "files and folders"),
            megabytes(&left)
        ));
        left.iter().for_each(|l| note(format_args!("  {}", l.path.display())));
    }
}

/// Removes it.
fn clean(left: &[Left]) -> Result<()> {
    for l in left {
        let removed = if l.path.is_dir() { fs::remove_dir_all(&l.path) } else { fs::remove_file(&l.path) };
        removed.with_context(|| format!("cannot remove {}", l.path.display()))?;
    }
    note(format_args!("{} removed ({})", plural(left.len() as u128, "file or folder", "files and folders"), megabytes(left)));
    Ok(())
}

fn megabytes(left: &[Left]) -> String {
    format!("{:.1} MB", left.iter().map(|l| l.bytes).sum::<u64>() as f64 / 1e6)
}

/// The runs that names stand for, each once: those of [`RunStore::select`], and ranges of numbers (`3-7`), of which some may be missing.
fn select(store: &RunStore, names: &[String]) -> Result<Vec<RunEntry>> {
    let mut chosen: Vec<RunEntry> = Vec::new();
    for name in names {
        let found = match store.select(name) {
            Ok(found) => found,
            Err(unknown) => {
                let Some(range) = range(name) else { return Err(unknown.into()) };
                let found: Vec<RunEntry> = store.list()?.into_iter().filter(|entry| range.contains(&entry.number)).collect();
                if found.is_empty() {
                    return Err(unknown.into());
                }
                found
            }
        };
        chosen.extend(found.into_iter().filter(|entry| chosen.iter().all(|known| known.number != entry.number)).collect::<Vec<_>>());
    }
    Ok(chosen)
}

/// `3-7`.
fn range(text: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-')?;
    Some(first.parse().ok()?..=last.parse().ok()?)
}
