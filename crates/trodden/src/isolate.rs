//! `trodden isolate`: which paths do failing runs take and passing runs not? Paths are ranked by `trodden_profile::isolate`, and written by the crate `trodden-report`.

use crate::cli::{Color, Isolate, SuspectScore};
use crate::notes::warn;
use crate::{profiles, reports};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use trodden_profile::isolate::{Isolation, Score};
use trodden_profile::merge::{Builds, merge_files};
use trodden_profile::{Ending, Profile};
use trodden_report::isolation::{Suspects, Wanted};
use trodden_report::{SourceCache, View};

/// Ranks the paths of runs.
///
/// # Errors
/// There are no such runs, no failing or no passing ones, or runs of different builds.
pub fn run(job: &Isolate, color: Color) -> Result<ExitCode> {
    let files = files(job)?;
    let mut isolation = Isolation::default();
    for (file, failed) in &files {
        let profile = Profile::read(file)?;
        let failed = match failed {
            Some(failed) => *failed,
            None => has_failed(&profile).with_context(|| file.display().to_string())?,
        };
        isolation.add(&profile, failed).with_context(|| file.display().to_string())?;
    }
    let runs = isolation.runs();
    if runs.failing == 0 || runs.passing == 0 {
        bail!(
            "{} failing and {} passing runs: it takes both. Runs count as failing if they end with another status than 0 or by a signal; --failing and --passing say otherwise",
            runs.failing,
            runs.passing
        );
    }
    let paths: Vec<PathBuf> = files.into_iter().map(|(file, _)| file).collect();
    let merged = merge_files(&paths, Builds::Refuse, |_| {});
    for (file, reason) in &merged.refused {
        warn(format_args!("{} is left out: {reason}", file.display()));
    }
    let profile = merged.profile.context("none of the runs can be read")?;
    let view = View::of(&profile);
    let provider = reports::sources(&job.source, &profile.run.directory);
    let sources = SourceCache::new(&provider);
    let by = match job.by {
        SuspectScore::Ochiai => Score::Ochiai,
        SuspectScore::Tarantula => Score::Tarantula,
        SuspectScore::Importance => Score::Importance,
    };
    let suspects = Suspects::of(&isolation, &view, &Wanted { by, top: job.top, function: job.function.as_deref() })?;
    match job.json {
        true => reports::print(&reports::json_text(&suspects.json())?)?,
        false => reports::print(suspects.text(&sources, &reports::text_options(color, job.steps)).as_bytes())?,
    }
    reports::remarks(&view, &sources);
    Ok(ExitCode::SUCCESS)
}

/// The profiles, each with what is said of it: failed, passed, or nothing.
fn files(job: &Isolate) -> Result<Vec<(PathBuf, Option<bool>)>> {
    let mut all = Vec::new();
    for (wanted, failed) in [(&job.runs, None), (&job.failing, Some(true)), (&job.passing, Some(false))] {
        for name in wanted {
            all.extend(profiles::files(name)?.into_iter().map(|file| (file, failed)));
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

fn has_failed(profile: &Profile) -> Result<bool> {
    match profile.run.ending {
        Some(Ending::Exit(0)) => Ok(false),
        Some(_) => Ok(true),
        None => bail!("it does not say how the run ended: give it with --failing or --passing"),
    }
}
