//! `trodden runs`: lists, removes and groups the runs of the run store.

use crate::cli::{RunsArguments, RunsCommand};
use crate::notes::{note, warn};
use crate::output::{json_text, print, print_text};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;
use trodden_profile::store::LeftoverFile;
use trodden_profile::{RunEntry, RunStore};
use trodden_report::runs::{render_run_table, run_json};
use trodden_report::words::plural;

const SCHEMA_VERSION: u32 = 3;

pub fn run(job: &RunsArguments) -> Result<ExitCode> {
    let store = RunStore::find(Path::new("."))?;
    match &job.command {
        None if job.json => {
            let runs: Vec<Value> = store.list()?.iter().map(run_json).collect();
            let leftovers: Vec<Value> =
                store.find_leftover_files()?.iter().map(|file| json!({"path": file.path, "bytes": file.bytes})).collect();
            let unreadable: Vec<Value> = store.unreadable_profiles()?.iter().map(|u| json!({"path": u.path, "why": u.why})).collect();
            let all = json!({"schema_version": SCHEMA_VERSION, "runs": runs, "leftovers": leftovers, "unreadable": unreadable});
            print(&json_text(&all)?)?
        }
        None => {
            print_text(&render_run_table(&store.list()?))?;
            note_leftover_files(&store.find_leftover_files()?);
            store.unreadable_profiles()?.iter().for_each(|u| warn(format_args!("cannot read a profile in the run store: {}", u.why)));
        }
        Some(RunsCommand::Remove { runs, leftovers }) => {
            let chosen = select_runs(&store, runs)?;
            chosen.iter().try_for_each(|entry| store.remove(entry.number))?;
            if !chosen.is_empty() {
                note(format_args!("removed {}", plural(chosen.len() as u128, "run", "runs")));
            }
            if *leftovers {
                remove_leftover_files(&store.find_leftover_files()?)?;
            }
        }
        Some(RunsCommand::Suite { suite, runs }) => {
            let chosen = select_runs(&store, runs)?;
            chosen.iter().try_for_each(|entry| store.set_suite(entry.number, Some(suite)))?;
            note(format_args!("added {} to the suite {suite}", plural(chosen.len() as u128, "run", "runs")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn note_leftover_files(left: &[LeftoverFile]) {
    // A recording that is killed before it counts anything leaves an empty folder, which is not worth a note.
    let left: Vec<LeftoverFile> = left.iter().filter(|file| file.bytes > 0).cloned().collect();
    if !left.is_empty() {
        note(format_args!(
            "recordings that were killed left {} ({}). To store raw counts as a run, use `trodden import FOLDER`; to remove everything, \
             use `trodden runs remove --leftovers`",
            plural(left.len() as u128, "file or folder", "files and folders"),
            format_megabytes(&left)
        ));
        left.iter().for_each(|file| note(format_args!("  {}", file.path.display())));
    }
}

fn remove_leftover_files(left: &[LeftoverFile]) -> Result<()> {
    for file in left {
        let removed = if file.path.is_dir() { fs::remove_dir_all(&file.path) } else { fs::remove_file(&file.path) };
        removed.with_context(|| format!("cannot remove {}", file.path.display()))?;
    }
    note(format_args!("removed {} ({})", plural(left.len() as u128, "file or folder", "files and folders"), format_megabytes(left)));
    Ok(())
}

fn format_megabytes(left: &[LeftoverFile]) -> String {
    format!("{:.1} MB", left.iter().map(|file| file.bytes).sum::<u64>() as f64 / 1e6)
}

/// Returns the named runs, without duplicates. A name is anything that [`RunStore::select`] accepts, or a range such as `3-7`, in which
/// numbers may be missing.
fn select_runs(store: &RunStore, names: &[String]) -> Result<Vec<RunEntry>> {
    let mut chosen: Vec<RunEntry> = Vec::new();
    for name in names {
        let found = match store.select(name) {
            Ok(found) => found,
            Err(unknown) => {
                let Some(range) = parse_run_number_range(name) else { return Err(unknown.into()) };
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

fn parse_run_number_range(text: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-')?;
    Some(first.parse().ok()?..=last.parse().ok()?)
}
