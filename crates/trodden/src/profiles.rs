//! Stored profiles as the command line names them: files, or runs of the run store (`12`, `last`, `last~1`, a suite).

use crate::cli::LAST;
use crate::notes::warn;
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_profile::merge::{Builds, merge_files};
use trodden_profile::{Loss, ProcessEnding, Profile, ProfileError, Run, RunEntry, RunStore};
use trodden_report::escape;
use trodden_report::words::{self, plural};
use trodden_unit::distinct;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// Reads the profile that `wanted` names: a file if there is one of that name, else a run, or all runs of a suite added up.
///
/// # Errors
/// There is none of these, or it cannot be read.
pub fn load(wanted: &str) -> Result<Profile> {
    let (profile, lost) = recover(wanted)?;
    lost.iter().for_each(warn);
    Ok(profile)
}

/// The same with what is lost of damaged files, in words: what is intact is used. Files of a suite that cannot be read
/// at all are said here.
///
/// # Errors
/// As of [`load`].
pub fn recover(wanted: &str) -> Result<(Profile, Vec<String>)> {
    let files = files(wanted)?;
    if let [file] = files.as_slice() {
        let found = Profile::recover(file)?;
        return Ok((found.profile, losses(file, &found.lost)));
    }
    // Of a program that was built again, the newest run says which build is meant.
    let merged = merge_files(files.iter().rev(), Builds::Refuse, |_| {});
    if let Some((file, reason)) = merged.refused.first() {
        let more = match merged.refused.len() - 1 {
            0 => String::new(),
            more => format!("; so {} of `{wanted}`", plural(more as u128, "more run is", "more runs are")),
        };
        warn(format_args!("{} is left out: {reason}{more}", file.display()));
    }
    let lost = merged.damaged.iter().flat_map(|(file, lost)| losses(file, lost)).collect();
    Ok((merged.profile.with_context(|| format!("none of the runs of `{wanted}` can be read"))?, lost))
}

/// Reads the profile in a file, whose name may hold any bytes.
///
/// # Errors
/// It cannot be read.
pub fn load_file(file: &Path) -> Result<Profile> {
    let found = Profile::recover(file)?;
    losses(file, &found.lost).iter().for_each(warn);
    Ok(found.profile)
}

/// What is said of a damaged file of which the intact part is used.
pub fn losses(file: &Path, lost: &[Loss]) -> Vec<String> {
    let Some(first) = lost.first() else { return Vec::new() };
    let more = if lost.len() > 1 { format!(" and {} more; `trodden info` lists them", lost.len() - 1) } else { String::new() };
    vec![format!("{} is damaged, and only what is intact is used. Lost: {first}{more}", file.display())]
}

/// The files of the profiles that `wanted` names: itself if there is a file of that name, else those of a run or of the runs of a suite.
///
/// # Errors
/// There is none of these.
pub fn files(wanted: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(wanted);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let store = match find_store(Path::new(".")) {
        Err(ProfileError::NoStore { .. }) if path.is_dir() => bail!("{wanted} is a folder, not a profile, and there is no run store here"),
        Err(ProfileError::NoStore { .. }) if wanted != LAST => {
            bail!("there is neither a file {wanted} nor a run store here: record a run with `trodden record -- PROGRAM`")
        }
        other => other?,
    };
    // A suite may well have the name of a folder: `tests`.
    match store.select(wanted) {
        Err(_) if path.is_dir() => bail!("{wanted} is a folder, not a profile, and no run or suite has that name"),
        found => Ok(found?.into_iter().map(|entry| entry.profile).collect()),
    }
}

/// The run store in `start` or above.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn find_store(start: &Path) -> Result<RunStore, ProfileError> {
    RunStore::find(start)
}

/// The runs of a suite.
///
/// # Errors
/// There is no such suite.
pub fn runs_of_suite(name: &str) -> Result<Vec<RunEntry>> {
    let store = find_store(Path::new("."))?;
    // Says which there are.
    let runs = store.select(name)?;
    ensure!(store.suites()?.iter().any(|(suite, _)| suite == name), "`{name}` is a run, not a suite");
    Ok(runs)
}

/// What a stored profile holds.
#[derive(Debug, Serialize)]
struct ProfileSummary<'a> {
    schema_version: u32,
    run: &'a Run,
    images: Vec<ImageSummary<'a>>,
    lost: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ImageSummary<'a> {
    path: &'a str,
    image: String,
    build_id: Option<&'a str>,
    units: usize,
    functions: usize,
    functions_entered: usize,
    counters: u64,
    counters_hit: usize,
}

/// `trodden info` of a profile. What is damaged in it is named; the status is 1 then.
///
/// # Errors
/// The file is no profile, or nothing in it is intact.
pub fn info(file: &Path, json: bool) -> Result<ExitCode> {
    let recovered = Profile::recover(file)?;
    let summary = ProfileSummary {
        schema_version: SCHEMA_VERSION,
        run: &recovered.profile.run,
        images: recovered.profile.images.iter().map(image).collect(),
        lost: recovered.lost.iter().map(ToString::to_string).collect(),
    };
    if json {
        output::print(&output::json_text(&summary)?)?;
    } else {
        let mut out = Vec::new();
        print(&mut out, file, &summary)?;
        output::print_text(&String::from_utf8_lossy(&out))?;
    }
    Ok(if summary.lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn image(image: &trodden_profile::ImageProfile) -> ImageSummary<'_> {
    let functions = || image.units.iter().flat_map(|u| u.map.functions.iter().map(move |f| (u, f)));
    ImageSummary {
        path: &image.path,
        image: image.identity.to_string(),
        build_id: image.build_id.as_deref(),
        units: image.units.len(),
        functions: distinct(functions().map(|(_, f)| f)),
        functions_entered: distinct(functions().filter(|(u, f)| u.counts_of(f).next().is_some()).map(|(_, f)| f)),
        // Units may have counters of other things than paths.
        counters: functions().fold(0, |sum: u64, (_, f)| sum.saturating_add(f.counters)),
        counters_hit: functions().map(|(u, f)| u.counts_of(f).count()).sum(),
    }
}

fn print(out: &mut impl Write, file: &Path, summary: &ProfileSummary) -> io::Result<()> {
    let run = summary.run;
    let size = fs::metadata(file).map_or(0, |m| m.len());
    let line = escape::line;
    writeln!(out, "{} ({})", line(&file.display().to_string()), plural(size.into(), "byte", "bytes"))?;
    writeln!(out, "  command    {}", if run.command.is_empty() { "several".to_owned() } else { line(&words::command(&run.command)) })?;
    writeln!(out, "  folder     {}", line(&run.directory))?;
    writeln!(out, "  host       {}", line(&run.host))?;
    writeln!(out, "  suite      {}", line(run.suite.as_deref().unwrap_or("none")))?;
    writeln!(out, "  runs       {}", run.runs)?;
    writeln!(out, "  duration   {:.3} s", run.duration_ns as f64 / 1e9)?;
    writeln!(out, "  ending     {}", ending(run.ending, run.runs))?;
    writeln!(out, "  recorder   trodden {}", line(&run.recorder))?;
    for image in &summary.images {
        writeln!(out, "\n{}", line(image.path))?;
        writeln!(out, "  image      {}", image.image)?;
        writeln!(out, "  build id   {}", image.build_id.unwrap_or("none"))?;
        writeln!(
            out,
            "  functions  {} entered of {} in {}",
            image.functions_entered,
            image.functions,
            plural(image.units as u128, "unit", "units")
        )?;
        writeln!(out, "  paths      {} taken of {}", image.counters_hit, image.counters)?;
    }
    if !summary.lost.is_empty() {
        writeln!(out, "\nDamaged ({})", summary.lost.len())?;
        summary.lost.iter().try_for_each(|l| writeln!(out, "  {}", line(l)))?;
    }
    Ok(())
}

fn ending(ending: Option<ProcessEnding>, runs: u64) -> String {
    match ending {
        None if runs > 1 => "several".into(),
        None => "unknown".into(),
        Some(ProcessEnding::Exit(status)) => format!("exit status {status}"),
        Some(ProcessEnding::Signal(signal)) => format!("signal {signal}"),
    }
}
