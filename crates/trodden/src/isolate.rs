//! `trodden isolate`: which paths do failing runs take and passing runs not? Paths are ranked by `trodden_profile::isolate`, and written by the crate `trodden-report`.

use crate::cli::{Color, Isolate, SuspectScore};
use crate::{profiles, reports};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use trodden_profile::isolate::{Isolation, Score};
use trodden_profile::{Builds, Ending, Maps, Merger, Profile};
use trodden_report::isolation::{Suspects, Wanted};
use trodden_report::{SourceCache, View};
use trodden_unit::Identity;

/// Ranks the paths of runs.
///
/// # Errors
/// There are no such runs, no failing or no passing ones, or runs of different builds.
pub fn run(job: &Isolate, color: Color) -> Result<ExitCode> {
    let files = files(job)?;
    let (isolation, profile) = gather(&files)?;
    let runs = isolation.runs();
    if runs.failing == 0 || runs.passing == 0 {
        bail!(
            "{} failing and {} passing runs: it takes both. Runs count as failing if they end with another status than 0 or by a signal; --failing and --passing say otherwise",
            runs.failing,
            runs.passing
        );
    }
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
    reports::tell_partial(&profile);
    reports::remarks(&view, &sources);
    Ok(ExitCode::SUCCESS)
}

/// Reads runs: each by itself, and all of them added up. Runs of several builds or programs are refused: those of one say nothing of another's paths.
fn gather(files: &[(PathBuf, Option<bool>)]) -> Result<(Isolation, Profile)> {
    let (mut isolation, mut sum, mut maps) = (Isolation::default(), Merger::new(Builds::Refuse), Maps::new());
    let mut programs = Programs::default();
    for (file, failed) in files {
        let name = file.display().to_string();
        let profile = Profile::read_sharing(file, &mut maps)?;
        let failed = match failed {
            Some(failed) => *failed,
            None => has_failed(&profile).with_context(|| name.clone())?,
        };
        programs.add(&name, &profile)?;
        isolation.add(&profile, failed).with_context(|| name.clone())?;
        sum.add(&name, profile).context("runs can be compared within one build only: name those of one")?;
    }
    programs.check()?;
    Ok((isolation, sum.finish().context("no runs are given")?))
}

/// Which runs have code in common: the images of each such group, with its first run.
#[derive(Default)]
struct Programs(Vec<(BTreeSet<Identity>, String, String)>);

impl Programs {
    fn add(&mut self, file: &str, profile: &Profile) -> Result<()> {
        let Some(first) = profile.images.first() else { bail!("{file} has no counts of any program: leave it out") };
        let mut images: BTreeSet<Identity> = profile.images.iter().map(|i| i.identity).collect();
        let mut known = (first.path.clone(), file.to_owned());
        let (same, others) = std::mem::take(&mut self.0).into_iter().partition::<Vec<_>, _>(|group| !group.0.is_disjoint(&images));
        for (more, path, run) in same.into_iter().rev() {
            images.extend(more);
            known = (path, run);
        }
        self.0 = others;
        self.0.push((images, known.0, known.1));
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if let [(_, one, one_run), (_, other, other_run), ..] = self.0.as_slice() {
            let build = if one == other { "another build of it" } else { other };
            bail!(
                "{one_run} is a run of {one}, {other_run} one of {build}: runs can be compared within one build of one program only; name those of one"
            );
        }
        Ok(())
    }
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
