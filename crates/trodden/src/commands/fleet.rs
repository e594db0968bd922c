//! `trodden fleet`: writes and merges reports of untested paths from many machines. `trodden_analysis::field` defines and merges the
//! reports.

use crate::cli::{Color, FleetAggregateArguments, FleetCommand, FleetCopiesArguments, FleetPackArguments};
use crate::commands::remarks;
use crate::context::driver_context;
use crate::notes::{note, warn};
use crate::output::{self, json_text};
use crate::rust_sources;
use crate::surroundings::source_folders;
use crate::surroundings::{folders, recording_context};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trodden_analysis::FieldError;
use trodden_analysis::field::aggregate::{AggregateLimits, FieldAggregate, FieldReportAggregator, UnitKey};
use trodden_analysis::field::distributed::{DistributedCopies, DistributedCopy};
use trodden_analysis::field::maps::UnitMaps;
use trodden_analysis::field::{FieldReport, hash_user};
use trodden_analysis::residual::{KnownPathInput, find_inputs};
use trodden_analysis::untested::UntestedPathRecorder;
use trodden_profile::copies::{PartitionedProgram, is_image_of_copy};
use trodden_profile::{BuildPolicy, Profile, ProfileMerger, Run, raw_files};
use trodden_recording::copies::CopyContext;
use trodden_recording::copies::distribute::{self, DistributedCopiesOptions};
use trodden_recording::new_run_metadata;
use trodden_report::field_rows::FieldTable;
use trodden_report::select::limit;
use trodden_report::users::{CopyReportSummary, PathTakenByUsers, PathsTakenByUsers, profile_without_counts, users_json, users_text};
use trodden_report::words::plural;
use trodden_report::{ProfileView, SourceCache};

/// Memory for sorting reported paths, in bytes. Paths that do not fit are sorted in temporary files.
const SORT_MEMORY_BYTES: usize = 256 << 20;

/// Maximum number of users to list for a path. Users who executed the path most often are listed.
const MAX_SHOWN_USERS: usize = 3;

const FLEET_REPORT_EXTENSION: &str = "field";

pub fn run(job: &FleetCommand, color: Color) -> Result<ExitCode> {
    match job {
        FleetCommand::Copies(job) => create_fleet_copies(job),
        FleetCommand::Pack(job) => write_report(job),
        FleetCommand::Aggregate(job) => aggregate_reports(job, color),
    }
}

fn create_fleet_copies(job: &FleetCopiesArguments) -> Result<ExitCode> {
    let options = DistributedCopiesOptions {
        program: &job.program,
        folder: &job.output,
        copies: job.copies,
        profile: job.weights.as_deref(),
        writes: job.writes.as_deref(),
        strategy: job.strategy,
        profitable: job.division.profitable.into(),
        max_probes: job.division.max_probes.map(|max| max as usize),
    };
    distribute::build_copies(&options, CopyContext { driver: driver_context(), recording: &recording_context() })?;
    Ok(ExitCode::SUCCESS)
}

fn write_report(job: &FleetPackArguments) -> Result<ExitCode> {
    let copy = job.copy.as_deref().map(|copy| distribute::identity(copy, folders().units.as_ref())).transpose()?;
    let mut report = FieldReport::new(&merge_untested_counts(job)?, hash_user(&job.user))?;
    if let Some((image, unit)) = copy {
        anyhow::ensure!(
            report.units.iter().all(|u| u.image == image),
            "these counts were not written by copy {} of the program. With --copy, name the copy that wrote them",
            job.copy.as_deref().unwrap_or(Path::new("")).display()
        );
        report.add_empty_unit(image, unit);
    }
    let mut bytes = Vec::new();
    report.write_to(&mut bytes)?;
    output::write_file(&job.output, &bytes)?;
    let paths: usize = report.units.iter().map(|u| u.counts.len()).sum();
    note(format_args!(
        "{}: {} in {}",
        job.output.display(),
        plural(paths as u128, "path", "paths"),
        plural(bytes.len() as u128, "byte", "bytes")
    ));
    Ok(ExitCode::SUCCESS)
}

/// Returns the counts of untested paths in all profiles. If one of the profiles was written by a program from `trodden fleet copies`,
/// returns only the counts of such programs.
fn merge_untested_counts(job: &FleetPackArguments) -> Result<Profile> {
    let folders = folders();
    let mut known = KnownPathInput::default();
    job.known.iter().try_for_each(|name| known.add_named(name))?;
    let (mut sightings, mut merger) = (UntestedPathRecorder::default(), ProfileMerger::new(BuildPolicy::Separate));
    let (mut of_copies, mut read) = (job.copy.is_some(), 0);
    // A program from `trodden fleet copies` writes no raw file if it executed no untested path, so an empty folder is not an error.
    let names: Vec<String> = job.profiles.iter().filter(|p| !of_copies || !is_empty_folder(Path::new(p))).cloned().collect();
    let inputs = if of_copies && names.is_empty() { Vec::new() } else { find_inputs(&names, &folders)? };
    for input in inputs {
        let Some((label, mut profile)) = input.read(&new_run_metadata(), &folders)? else { continue };
        known.add_from_builds(&profile, &folders)?;
        sightings.add(0, &mut profile, &known.paths)?;
        of_copies |= profile.images.iter().any(is_image_of_copy);
        merger.add(&label.words, profile)?;
        read += 1;
    }
    if of_copies && read == 0 {
        return Ok(Profile { run: Run::default(), images: Vec::new(), sampling: None });
    }
    let mut profile = merger.into_merged_profile().context("none of the profiles could be read")?;
    match of_copies {
        true => profile.images.retain(is_image_of_copy),
        false => known.check_known_paths_apply(&profile, &folders)?,
    }
    Ok(profile)
}

fn is_empty_folder(path: &Path) -> bool {
    path.is_dir() && raw_files(path).is_ok_and(|files| files.is_empty())
}

fn read_copies(folder: &Path) -> Result<DistributedCopies> {
    let (program, copies) = distribute::read(folder, folders().units.as_ref())?;
    let copies = copies.into_iter().map(|copy| DistributedCopy { image: copy.image, units: copy.units });
    Ok(DistributedCopies::new(program, copies.collect())?)
}

fn aggregate_reports(job: &FleetAggregateArguments, color: Color) -> Result<ExitCode> {
    let limits =
        AggregateLimits { memory: SORT_MEMORY_BYTES, paths: limit(output::max_results(job.top, job.json)), users: MAX_SHOWN_USERS };
    let distributed = job.copies.as_deref().map(read_copies).transpose()?;
    let mut units = BTreeMap::new();
    let copies = distributed.as_ref().map(|distributed| {
        let PartitionedProgram { identity, units: of_program, .. } = distributed.program();
        units = of_program.iter().map(|(unit, map)| (UnitKey { image: *identity, unit: *unit }, map.clone())).collect();
        (0..distributed.copies().len() as u32)
            .map(|copy| distributed.functions(copy).into_iter().map(str::to_owned).collect())
            .collect::<Vec<_>>()
    });
    let mut maps = UnitMaps::new(folders().units()?.clone(), units);
    let mut aggregator = match distributed {
        Some(distributed) => FieldReportAggregator::from_copies(limits, distributed),
        None => FieldReportAggregator::new(limits),
    };
    for file in find_files(&job.reports, FLEET_REPORT_EXTENSION, "reports", "Write reports with `trodden fleet pack`")? {
        match aggregator.add_file(&file) {
            // A single corrupt file must not stop a merge of thousands of files.
            Err(error @ FieldError::Corrupt { .. }) => warn(format_args!("{error}. Skipping the rest of this file")),
            read => read?,
        }
    }
    anyhow::ensure!(
        aggregator.report_count() > 0,
        "these files contain no report of untested paths. Write reports with `trodden fleet pack`"
    );
    let sums = match &job.rows {
        Some(file) => {
            let mut rows = FieldTable::create(file, output::TEMPORARY_PREFIX)?;
            let sums = aggregator
                .finish_aggregation(&mut |row| rows.add(row, &mut maps))
                .with_context(|| format!("cannot write {}", file.display()))?;
            rows.finish_table().with_context(|| format!("cannot write {}", file.display()))?;
            sums
        }
        None => aggregator.finish_aggregation(&mut |_| Ok(())).context("cannot read or write temporary files")?,
    };
    let tomography = copies
        .zip(sums.reporting.as_ref())
        .map(|(functions, reporting)| CopyReportSummary::new(job.population, functions, reporting))
        .transpose()?;
    print_aggregate(job, color, &sums, tomography.as_ref(), &mut maps)?;
    if sums.unmatched > 0 {
        warn(format_args!("skipping {} that these copies of the program do not have", plural(sums.unmatched as u128, "path", "paths")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the given files, and all files with this extension in the given folders. Fails if there are no such files (the message contains
/// `what` and `advice`), or a folder cannot be read.
fn find_files(given: &[PathBuf], extension: &str, what: &str, advice: &str) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for path in given {
        if !path.is_dir() {
            out.push(path.clone());
            continue;
        }
        let read = || format!("cannot read {}", path.display());
        for entry in fs::read_dir(path).with_context(read)? {
            out.push(entry.with_context(read)?.path());
        }
        out.retain(|p| p.extension().is_some_and(|e| e == extension) || given.contains(p));
    }
    out.sort();
    // A file that is given twice counts once.
    let mut seen = BTreeSet::new();
    out.retain(|file| seen.insert(fs::canonicalize(file).unwrap_or_else(|_| file.clone())));
    anyhow::ensure!(!out.is_empty(), "found no {what} (*.{extension}) in these folders. {advice}");
    Ok(out)
}

/// Prints the paths that the most users executed, with their source.
fn print_aggregate(
    job: &FleetAggregateArguments,
    color: Color,
    sums: &FieldAggregate,
    tomography: Option<&CopyReportSummary>,
    maps: &mut UnitMaps,
) -> Result<()> {
    let (profile, missing) = profile_without_counts(&sums.top, maps);
    let view = ProfileView::from_profile(&profile);
    let taken: Vec<PathTakenByUsers> = sums.top.iter().map(|path| PathTakenByUsers::new(path, tomography)).collect();
    let all = PathsTakenByUsers { taken: &taken, reports: sums.reports, paths: sums.paths, tomography };
    let provider = rust_sources::read_project_or_toolchain_source(&source_folders(), ".");
    let sources = SourceCache::new(&provider);
    let text = || Ok(users_text(&view, &all, &sources, &output::text_options(color, output::DEFAULT_STEPS)));
    output::print_result(job.json, || json_text(&users_json(&view, &all, &sources)), text)?;
    if missing > 0 {
        let root = maps.store().root().display().to_string();
        warn(format_args!(
            "{missing} of these paths cannot be decoded, because the maps (blocks and paths) of their compilation units are not in the \
             unit cache (folder {root}). Set TRODDEN_CACHE to the build's unit cache"
        ));
    }
    remarks::warn_of_missing_sources(&view, &sources);
    Ok(())
}
