//! The failing and the passing runs that are compared: those of one build of one program.

use crate::isolate::Isolation;
use anyhow::{Context, Result, bail};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;
use trodden_profile::{Builds, Maps, Merger, ProcessEnding, Profile};
use trodden_stored::named;
use trodden_text::words::{base_name, plural};
use trodden_unit::Identity;

/// Which runs are compared, by name.
#[derive(Clone, Copy, Debug)]
pub struct ComparedRuns<'a> {
    /// Runs whose end says whether they failed.
    pub runs: &'a [String],
    /// Runs that failed, however they ended.
    pub failing: &'a [String],
    /// Runs that passed, however they ended.
    pub passing: &'a [String],
    /// Only runs of this program, given by its file's name or path.
    pub program: Option<&'a str>,
}

/// Reads runs: each by itself, and all of them added up. Runs of one build of one program are compared, since those of one say nothing of
/// another's paths; the others are left out, and so are runs of which it is not known how they ended.
///
/// # Errors
/// There are no such runs, or none that can be compared.
pub fn gather(job: &ComparedRuns) -> Result<(Isolation, Profile)> {
    let (mut isolation, mut sum, mut maps) = (Isolation::default(), Merger::new(Builds::Refuse), Maps::new());
    for run in compared(runs(job)?, job.program)? {
        let name = run.file.display().to_string();
        let profile = Profile::recover_sharing(&run.file, &mut maps)?.profile;
        isolation.add(&profile, run.failed).with_context(|| name.clone())?;
        sum.add(&name, profile).context("runs can be compared within one build only: name those of one")?;
    }
    Ok((isolation, sum.finish().context("no runs are given")?))
}

/// A run that says how it ended.
struct Run {
    file: PathBuf,
    failed: bool,
    images: BTreeSet<Identity>,
    /// The program's file.
    program: String,
}

/// The runs that are meant, as far as they can be compared; what is left out is said.
fn runs(job: &ComparedRuns) -> Result<Vec<Run>> {
    let (mut runs, mut maps, mut endless) = (Vec::new(), Maps::new(), Vec::new());
    let (mut unreadable, mut empty) = (Vec::new(), Vec::new());
    for (file, failed) in files(job)? {
        let found = match Profile::recover_sharing(&file, &mut maps) {
            Ok(found) => found,
            Err(error) => {
                unreadable.push(error.to_string());
                continue;
            }
        };
        named::losses(&file, &found.lost).iter().for_each(|lost| log::warn!("{lost}"));
        let profile = found.profile;
        let (Some(program), images) = (profile.images.first().map(|i| i.path.clone()), profile.images.iter().map(|i| i.identity).collect())
        else {
            empty.push(file.display().to_string());
            continue;
        };
        match failed.or(profile.run.ending.map(|ending| ending != ProcessEnding::Exit(0))) {
            Some(failed) => runs.push(Run { file, failed, images, program }),
            None => endless.push(file.display().to_string()),
        }
    }
    if let Some(first) = unreadable.first() {
        log::warn!("left out: {first}{}", more_alike(&unreadable));
    }
    left_out(&empty, "has no counts of any program");
    left_out(&endless, "does not say how the run ended: give it with --failing or --passing");
    Ok(runs)
}

fn left_out(files: &[String], why: &str) {
    if let Some(first) = files.first() {
        log::warn!("left out: {first}: {why}{}", more_alike(files));
    }
}

fn more_alike(files: &[String]) -> String {
    if files.len() > 1 { format!(" (and {} more alike)", files.len() - 1) } else { String::new() }
}

/// Of runs of several programs and builds those of one: of the wanted program, and of the build with most of them that has failing and
/// passing ones.
fn compared(runs: Vec<Run>, program: Option<&str>) -> Result<Vec<Run>> {
    let is_wanted = |run: &Run| program.is_none_or(|wanted| run.program == wanted || base_name(&run.program) == wanted);
    let (runs, others): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(is_wanted);
    if let (Some(wanted), true) = (program, runs.is_empty()) {
        let known: BTreeSet<&str> = others.iter().map(|r| base_name(&r.program)).collect();
        bail!("none of the runs is of a program `{wanted}`; they are of {}", known.into_iter().collect::<Vec<_>>().join(", "));
    }
    let mut groups = grouped(runs);
    let can_be_compared = |group: &[Run]| group.iter().any(|r| r.failed) && group.iter().any(|r| !r.failed);
    if let ([one, other, ..], false) = (groups.as_slice(), groups.iter().any(|g| can_be_compared(g))) {
        let (one, other) = (&one[0], &other[0]);
        let build = if one.program == other.program { "another build of it" } else { &other.program };
        bail!(
            "{} is a run of {}, {} one of {build}: runs can be compared within one build of one program only, and no build has both \
                failing and passing runs",
            one.file.display(),
            one.program,
            other.file.display()
        );
    }
    groups.sort_by_key(|group| Reverse((can_be_compared(group), group.len())));
    let mut groups = groups.into_iter();
    let first = groups.next().unwrap_or_default();
    let builds: Vec<Run> = groups.flatten().collect();
    let skipped = others.len() + builds.len();
    if let Some(example) = others.first().or(builds.first()) {
        let of = first.first().map_or("", |r| r.program.as_str());
        log::warn!(
            "{} of other programs or builds left out, such as {} of {}; compared are those of {of} (--program)",
            plural(skipped as u128, "run", "runs"),
            example.file.display(),
            example.program
        );
    }
    Ok(first)
}

/// Runs by what they have in common: two are of one group if they have an image in common, or each one with a third.
fn grouped(runs: Vec<Run>) -> Vec<Vec<Run>> {
    let mut groups: Vec<(BTreeSet<Identity>, Vec<Run>)> = Vec::new();
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

/// The profiles, each with what is said of it: failed, passed, or nothing.
fn files(job: &ComparedRuns) -> Result<Vec<(PathBuf, Option<bool>)>> {
    let mut all = Vec::new();
    for (wanted, failed) in [(job.runs, None), (job.failing, Some(true)), (job.passing, Some(false))] {
        for name in wanted {
            all.extend(named::files(name)?.into_iter().map(|file| (file, failed)));
        }
    }
    // What is said of a run beats how it ended.
    all.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.is_some().cmp(&a.1.is_some())));
    if let Some(both) = all.windows(2).find(|w| w[0].0 == w[1].0 && w[0].1.is_some() && w[1].1.is_some() && w[0].1 != w[1].1) {
        bail!("{} is given as failing and as passing", both[0].0.display());
    }
    all.dedup_by(|later, first| later.0 == first.0);
    if all.is_empty() {
        bail!("no runs are given: name a suite (`trodden isolate nightly`), or runs by --failing and --passing");
    }
    Ok(all)
}
