//! Selects the failing and passing runs to compare, all of one build of one program.

use crate::isolate::FailureIsolation;
use anyhow::{Context, Result, bail};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;
use trodden_profile::{BuildPolicy, ProcessEnding, Profile, ProfileMerger, UnitMapsByIdentity};
use trodden_stored::named;
use trodden_text::words::{base_name, plural};
use trodden_unit::Identity;

/// Names of the runs to compare.
#[derive(Clone, Copy, Debug)]
pub struct ComparedRuns<'a> {
    /// Runs whose exit status decides whether they failed.
    pub runs: &'a [String],
    /// Runs to treat as failing, whatever their exit status.
    pub failing: &'a [String],
    /// Runs to treat as passing, whatever their exit status.
    pub passing: &'a [String],
    /// Restricts the comparison to this program, given by file name or path.
    pub program: Option<&'a str>,
}

/// Reads the runs to compare. Returns their outcomes and paths, and all runs merged into one profile. Only runs of one build of one program
/// are used, because the paths of different builds cannot be compared. Other runs are skipped, and so are runs with an unknown outcome.
pub fn read_compared_runs(job: &ComparedRuns) -> Result<(FailureIsolation, Profile)> {
    let (mut isolation, mut sum, mut maps) =
        (FailureIsolation::default(), ProfileMerger::new(BuildPolicy::Reject), UnitMapsByIdentity::new());
    for run in select_build(read_runs(job)?, job.program)? {
        let name = run.file.display().to_string();
        let profile = Profile::recover_with_shared_maps(&run.file, &mut maps)?.profile;
        isolation.add(&profile, run.failed).with_context(|| name.clone())?;
        sum.add(&name, profile).context("cannot compare runs of different builds. Name only runs of the same build")?;
    }
    Ok((isolation, sum.into_merged_profile().context("no runs to compare. Name a suite, or runs with --failing and --passing")?))
}

/// A run whose outcome is known.
struct ComparedRun {
    file: PathBuf,
    failed: bool,
    images: BTreeSet<Identity>,
    program: String,
}

fn read_runs(job: &ComparedRuns) -> Result<Vec<ComparedRun>> {
    let (mut runs, mut maps, mut unknown) = (Vec::new(), UnitMapsByIdentity::new(), Vec::new());
    let (mut unreadable, mut empty) = (Vec::new(), Vec::new());
    for (file, failed) in profiles_with_outcomes(job)? {
        let found = match Profile::recover_with_shared_maps(&file, &mut maps) {
            Ok(found) => found,
            Err(error) => {
                unreadable.push(error.to_string());
                continue;
            }
        };
        named::describe_losses(&file, &found.lost).iter().for_each(|lost| log::warn!("{lost}"));
        let profile = found.profile;
        let (Some(program), images) = (profile.images.first().map(|i| i.path.clone()), profile.images.iter().map(|i| i.identity).collect())
        else {
            empty.push(file.display().to_string());
            continue;
        };
        match failed.or(profile.run.ending.map(|ending| ending != ProcessEnding::Exit(0))) {
            Some(failed) => runs.push(ComparedRun { file, failed, images, program }),
            None => unknown.push(file.display().to_string()),
        }
    }
    if let Some(first) = unreadable.first() {
        log::warn!("skipping {first}{}", suffix_for_other_files(&unreadable));
    }
    warn_skipped(&empty, "it has no counts");
    warn_skipped(&unknown, "its exit status is not recorded. Name it with --failing or --passing");
    Ok(runs)
}

fn warn_skipped(files: &[String], why: &str) {
    if let Some(first) = files.first() {
        log::warn!("skipping {first}{}: {why}", suffix_for_other_files(files));
    }
}

fn suffix_for_other_files(files: &[String]) -> String {
    match files.len() {
        0 | 1 => String::new(),
        2 => " (and 1 other like it)".to_owned(),
        all => format!(" (and {} others like it)", all - 1),
    }
}

/// Restricts runs to one program and build. The program is the requested program, if any; the build is the one with the most runs, but a
/// build with both failing and passing runs is preferred.
fn select_build(runs: Vec<ComparedRun>, program: Option<&str>) -> Result<Vec<ComparedRun>> {
    let is_wanted = |run: &ComparedRun| program.is_none_or(|wanted| run.program == wanted || base_name(&run.program) == wanted);
    let (runs, others): (Vec<ComparedRun>, Vec<ComparedRun>) = runs.into_iter().partition(is_wanted);
    if let (Some(wanted), true) = (program, runs.is_empty()) {
        let known: BTreeSet<&str> = others.iter().map(|r| base_name(&r.program)).collect();
        bail!(
            "none of the runs executed the program `{wanted}`. Pass --program one of: {}",
            known.into_iter().collect::<Vec<_>>().join(", ")
        );
    }
    let mut groups = group_by_image(runs);
    let can_be_compared = |group: &[ComparedRun]| group.iter().any(|r| r.failed) && group.iter().any(|r| !r.failed);
    if let ([one, other, ..], false) = (groups.as_slice(), groups.iter().any(|g| can_be_compared(g))) {
        let (one, other) = (&one[0], &other[0]);
        let build = if one.program == other.program { "a different build" } else { &other.program };
        bail!(
            "cannot compare {} (a run of {}) with {} (a run of {build}): only runs of one build can be compared, and no build has both \
             failing and passing runs. Name failing and passing runs of one build",
            one.file.display(),
            one.program,
            other.file.display()
        );
    }
    groups.sort_by_key(|group| Reverse((can_be_compared(group), group.len())));
    let mut groups = groups.into_iter();
    let first = groups.next().unwrap_or_default();
    let builds: Vec<ComparedRun> = groups.flatten().collect();
    let skipped = others.len() + builds.len();
    if let Some(example) = others.first().or(builds.first()) {
        let of = first.first().map_or("", |r| r.program.as_str());
        log::warn!(
            "skipping {} of other programs or builds (for example {}, a run of {}). Only runs of {of} are compared; to compare others, \
             pass --program",
            plural(skipped as u128, "run", "runs"),
            example.file.display(),
            example.program
        );
    }
    Ok(first)
}

/// Groups runs that share an executable or library, directly or through other runs.
fn group_by_image(runs: Vec<ComparedRun>) -> Vec<Vec<ComparedRun>> {
    let mut groups: Vec<(BTreeSet<Identity>, Vec<ComparedRun>)> = Vec::new();
    for run in runs {
        let (same, others) = groups.into_iter().partition::<Vec<_>, _>(|group| !group.0.is_disjoint(&run.images));
        let (mut images, mut members) = (run.images.clone(), Vec::new());
        for (more, runs) in same {
            images.extend(more);
            members.extend(runs);
        }
        members.push(run);
        groups = others;
        groups.push((images, members));
    }
    groups.into_iter().map(|(_, runs)| runs).collect()
}

/// Returns the profiles of the named runs, each with the outcome that the user stated, if any.
fn profiles_with_outcomes(job: &ComparedRuns) -> Result<Vec<(PathBuf, Option<bool>)>> {
    let mut all = Vec::new();
    for (wanted, failed) in [(job.runs, None), (job.failing, Some(true)), (job.passing, Some(false))] {
        for name in wanted {
            all.extend(named::list_profile_files(name)?.into_iter().map(|file| (file, failed)));
        }
    }
    // A stated outcome takes precedence, so it is sorted first.
    all.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.is_some().cmp(&a.1.is_some())));
    if let Some(both) = all.windows(2).find(|w| w[0].0 == w[1].0 && w[0].1.is_some() && w[1].1.is_some() && w[0].1 != w[1].1) {
        bail!("run {} is named by both --failing and --passing. Remove one of the two", both[0].0.display());
    }
    all.dedup_by(|later, first| later.0 == first.0);
    if all.is_empty() {
        bail!("no runs are given. Name a suite (`trodden isolate nightly`), or name runs with --failing and --passing");
    }
    Ok(all)
}
