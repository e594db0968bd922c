//! Commands on several profiles: `runs`, `merge`, `diff`.

use crate::cli::{Diff, Merge, Runs, RunsCommand};
use crate::notes::{Progress, note, warn};
use crate::output::{json_text, print, print_text};
use crate::profiles;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_profile::merge::{Builds, merge_files};
use trodden_profile::store::Left;
use trodden_profile::{Change, DiffOptions, Ending, FunctionDiff, PathDiff, RunEntry, RunStore, diff};
use trodden_report::select::limit;
use trodden_report::words::plural;
use trodden_report::{Name, View};

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;
/// Exit status when a threshold was exceeded.
const EXCEEDED: u8 = 1;

/// `trodden runs`
///
/// # Errors
/// There is no run store or no such run.
pub fn runs(job: &Runs) -> Result<ExitCode> {
    let store = RunStore::find(Path::new("."))?;
    match &job.command {
        None if job.json => {
            let runs: Vec<Value> = store.list()?.iter().map(run_json).collect();
            let left: Vec<Value> = store.left()?.iter().map(|l| json!({"path": l.path, "bytes": l.bytes})).collect();
            print(&json_text(&json!({"schema_version": SCHEMA_VERSION, "runs": runs, "left": left}))?)?
        }
        None => {
            print_text(&table(&store.list()?))?;
            tell_left(&store.left()?);
        }
        Some(RunsCommand::Clean) => clean(&store.left()?)?,
        Some(RunsCommand::Remove { runs }) => {
            for entry in select(&store, runs)? {
                store.remove(entry.number)?;
            }
        }
        Some(RunsCommand::Suite { suite, runs }) => {
            for entry in select(&store, runs)? {
                store.set_suite(entry.number, Some(suite))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what killed recordings left.
fn tell_left(left: &[Left]) {
    if !left.is_empty() {
        note(format_args!(
            "recordings that were killed left {} ({}): `trodden collect FOLDER` makes a profile of raw counts, `trodden runs clean` \
                removes all",
            plural(left.len() as u128, "file or folder", "files and folders"),
            megabytes(left)
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

fn select(store: &RunStore, wanted: &[String]) -> Result<Vec<RunEntry>> {
    let mut out = Vec::new();
    for wanted in wanted {
        out.extend(store.select(wanted)?);
    }
    Ok(out)
}

fn run_json(entry: &RunEntry) -> Value {
    let images = entry.images.iter().map(|i| json!({"path": i.path, "image": i.identity.to_string(), "build_id": i.build_id}));
    json!({"number": entry.number, "run": entry.run, "profile": entry.profile, "bytes": entry.bytes, "images": images.collect::<Vec<_>>()})
}

fn table(runs: &[RunEntry]) -> String {
    let mut out = format!("{:>5}  {:<12} {:>10}  {:<10}  {}\n", "run", "suite", "seconds", "ending", "test or command");
    for entry in runs {
        let ending = match entry.run.ending {
            Some(Ending::Exit(status)) => format!("exit {status}"),
            Some(Ending::Signal(signal)) => format!("signal {signal}"),
            None if entry.run.runs > 1 => "several".into(),
            None => "unknown".into(),
        };
        let suite = entry.run.suite.as_deref().unwrap_or("-");
        let seconds = entry.run.duration_ns as f64 / 1e9;
        let command = entry.run.test.clone().unwrap_or_else(|| entry.run.command.join(" ")).replace(char::is_control, " ");
        writeln!(out, "{:>5}  {suite:<12} {seconds:>10.3}  {ending:<10}  {command}", entry.number).expect("writing to a string");
    }
    out
}

/// `trodden merge`: status 1 if files were left out, or were damaged.
///
/// # Errors
/// Nothing could be merged, or the result cannot be written.
pub fn merge(job: &Merge) -> Result<ExitCode> {
    let mut files: Vec<PathBuf> = Vec::new();
    for wanted in &job.profiles {
        files.extend(profiles::files(wanted)?);
    }
    let builds = if job.separate_builds { Builds::Separate } else { Builds::Refuse };
    let progress = Progress::of(files.len(), "profiles");
    let merged = merge_files(&files, builds, |_| progress.step());
    for (file, reason) in &merged.refused {
        warn(format_args!("{} is left out: {reason}", file.display()));
    }
    merged.damaged.iter().flat_map(|(file, lost)| profiles::losses(file, lost)).for_each(warn);
    let profile = merged.profile.with_context(|| format!("none of {} profiles could be merged", files.len()))?;
    profile.write(&job.output)?;
    let merged_profiles = plural(merged.files as u128, "profile is", "profiles are");
    note(format_args!("{merged_profiles} merged in {}", job.output.display()));
    Ok(if merged.refused.is_empty() && merged.damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXCEEDED) })
}

/// `trodden diff`: with --fail, status 1 if there is a difference.
///
/// # Errors
/// There are no such profiles, or they are of different builds.
pub fn compare(job: &Diff) -> Result<ExitCode> {
    if !(0.0..=100.0).contains(&job.min_change) {
        bail!("--min-change is a percentage, from 0 to 100");
    }
    let (before, after) = (profiles::load(&job.before)?, profiles::load(&job.after)?);
    let options = DiffOptions {
        across_builds: job.across_builds,
        least_function_share: job.min_change / 100.0,
        least_count: job.min_count,
        counts: job.counts,
        ..DiffOptions::default()
    };
    let found = diff((&job.before, &before), (&job.after, &after), &options)?;
    if job.json {
        print(&json_text(&diff_json(&found))?)?;
    } else {
        let functions = View::of(&before).totals.instrumented;
        print_text(&diff_text(&found, functions, job.top))?;
    }
    let differs = !found.functions.is_empty() || !found.only_before.is_empty() || !found.only_after.is_empty();
    Ok(if job.fail && differs { ExitCode::from(EXCEEDED) } else { ExitCode::SUCCESS })
}

fn change(change: Change) -> &'static str {
    match change {
        Change::Appeared => "appeared",
        Change::Vanished => "vanished",
        Change::Share => "share",
        Change::Count => "count",
    }
}

fn diff_json(found: &trodden_profile::Diff) -> Value {
    let path = |p: &PathDiff| {
        json!({
            "id": p.id.to_string(), "change": change(p.change), "counts": [p.counts.0.to_string(), p.counts.1.to_string()],
            "function_share": [p.function_share.0, p.function_share.1], "program_share": [p.program_share.0, p.program_share.1],
            "blocks": p.blocks.iter().map(|b| b.0).collect::<Vec<_>>(),
        })
    };
    let function = |f: &FunctionDiff| {
        let name = Name::of(f.map().plain_name());
        json!({
            "function": name.full, "linkage_name": name.linkage, "image": f.image, "source": f.unit.source,
            "entries": [f.entries.0.to_string(), f.entries.1.to_string()], "executions": [f.executions.0.to_string(),
                f.executions.1.to_string()],
            "unfinished": [f.unfinished.0.to_string(), f.unfinished.1.to_string()], "paths": f.paths.iter().map(path).collect::<Vec<_>>(),
        })
    };
    json!({
        "schema_version": SCHEMA_VERSION, "compared": found.compared, "functions": found.functions.iter().map(function).collect::<Vec<_>>(),
        "only_before": found.only_before, "only_after": found.only_after,
        "overlap": { "executions": found.overlap.executions, "instructions": found.overlap.instructions },
    })
}

/// What differs, of so many functions: other reports count one once of which several units have a copy.
fn diff_text(found: &trodden_profile::Diff, functions: u64, top: usize) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string");
    let copies = match (found.compared as u64).checked_sub(functions).filter(|copies| *copies > 0) {
        Some(copies) => format!(", {} of them", plural(copies.into(), "more copy", "more copies")),
        None => String::new(),
    };
    let compared = plural(u128::from(functions.min(found.compared as u64)), "function", "functions");
    line(format!("{compared}{copies} compared, {} differ", found.functions.len()));
    let overlap = [found.overlap.executions, found.overlap.instructions].map(|o| 100.0 * o);
    line(format!("overlap of the paths' shares: {:.2} % of executions, {:.2} % of instructions", overlap[0], overlap[1]));
    for function in &found.functions {
        let name = Name::of(function.map().plain_name()).full;
        line(format!("\n{name}  ({}; entered {} -> {})", function.unit.source, function.entries.0, function.entries.1));
        for path in function.paths.iter().take(limit(top)) {
            let share = |s: f64| format!("{:.1} %", s * 100.0);
            let (was, is) = (share(path.function_share.0), share(path.function_share.1));
            line(format!(
                "  {:<9} path {:<6} {:>10} -> {:<10} {was:>7} -> {is:<7} {}",
                change(path.change),
                path.id,
                path.counts.0,
                path.counts.1,
                lines(function, path)
            ));
        }
        if function.paths.len() > limit(top) {
            line(format!("  ... and {} more paths (--top)", function.paths.len() - top));
        }
    }
    for (title, names) in [("only in the first", &found.only_before), ("only in the second", &found.only_after)] {
        if !names.is_empty() {
            line(format!("\nexecuted {title}: {}", names.iter().map(|n| Name::of(n).full).collect::<Vec<_>>().join(", ")));
        }
    }
    out
}

/// The lines of a path, each block's first.
fn lines(function: &FunctionDiff, path: &PathDiff) -> String {
    let mut lines: Vec<u32> = Vec::new();
    for block in path.blocks.iter().filter_map(|b| function.map().blocks.get(b.0 as usize)) {
        let line = block.positions.iter().map(|p| p.line).find(|l| *l > 0);
        lines.extend(line.filter(|l| lines.last() != Some(l)));
    }
    let shown: Vec<String> = lines.iter().take(12).map(u32::to_string).collect();
    let more = if lines.len() > 12 { " ..." } else { "" };
    format!("lines {}{more}", shown.join(" "))
}
