//! Merges profiles, with only one of them at a time in memory beside the sum.
//!
//! Counts of the same unit in the same image are added, saturating. Images are distinguished by identity. Two identities for one path mean
//! two builds, whose path IDs must not be mixed: such a profile is refused, or both builds are kept as separate images on request.
//! Different programs may be merged, since a suite may test several.

use crate::container::{Loss, Maps};
use crate::error::ProfileError;
use crate::model::{ImageProfile, Profile, Run};
use crate::sampling::{BurstSampling, Sampling};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use trodden_unit::Identity;

/// What to do with an image that another profile has in a different build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuildPolicy {
    /// Refuse the profile.
    #[default]
    Refuse,
    /// Keep the builds as separate images.
    Separate,
}

/// Maximum relative difference between the sampled shares of run time in merged profiles. The sum has a single share, so each profile's
/// estimates are off by at most that.
const MAX_SHARE_DIFFERENCE: f64 = 0.25;

/// Adds up profiles.
#[derive(Debug, Default)]
pub struct Merger {
    builds: BuildPolicy,
    run: Option<Run>,
    sampling: Option<Sampling>,
    images: Vec<MergedImage>,
    by_identity: HashMap<Identity, usize>,
    by_path: HashMap<String, usize>,
}

#[derive(Debug)]
struct MergedImage {
    profile: ImageProfile,
    /// Name of the profile it came from.
    from: String,
    /// Index of each unit, by identity and number of occurrence in the image.
    places: HashMap<(Identity, usize), usize>,
}

/// Result of merging files.
#[derive(Debug)]
pub struct Merged {
    /// The merged profile; `None` if no file could be merged.
    pub profile: Option<Profile>,
    /// Number of files merged.
    pub files: usize,
    /// Files that were not merged, with the reasons.
    pub refused: Vec<(PathBuf, ProfileError)>,
    /// Damaged files, whose intact part was merged, with their losses.
    pub damaged: Vec<(PathBuf, Vec<Loss>)>,
}

/// Merges stored profiles one after the other. `progress` is called after each file with the number of files processed.
pub fn merge_files<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>, builds: BuildPolicy, mut progress: impl FnMut(usize)) -> Merged {
    let mut merger = Merger::new(builds);
    let mut maps = Maps::new();
    let (mut files, mut refused, mut damaged) = (0, Vec::new(), Vec::new());
    for path in paths {
        let path = path.as_ref();
        let added = Profile::recover_sharing(path, &mut maps)
            .and_then(|found| merger.add(&path.display().to_string(), found.profile).map(|()| found.lost));
        match added {
            Ok(lost) => {
                files += 1;
                damaged.extend((!lost.is_empty()).then(|| (path.to_owned(), lost)));
            }
            Err(error) => refused.push((path.to_owned(), error)),
        }
        progress(files + refused.len());
    }
    Merged { profile: merger.finish(), files, refused, damaged }
}

impl Merger {
    /// Starts with an empty sum.
    pub fn new(builds: BuildPolicy) -> Merger {
        Merger { builds, ..Merger::default() }
    }

    /// Adds a profile; `name` identifies it in messages.
    ///
    /// # Errors
    /// It has another build of an image, or was sampled differently. Then nothing of it is added.
    pub fn add(&mut self, name: &str, profile: Profile) -> Result<(), ProfileError> {
        self.check(name, &profile)?;
        self.check_sampling(name, &profile)?;
        match (&mut self.sampling, profile.sampling) {
            (Some(Sampling::Bursts(known)), Some(Sampling::Bursts(more))) => known.add(more),
            (Some(Sampling::Branches(known)), Some(Sampling::Branches(more))) => known.add(more),
            (known, more) => *known = more,
        }
        for image in profile.images {
            match self.by_identity.get(&image.identity) {
                Some(&at) => self.images[at].add(image),
                None => self.insert_image(name, image),
            }
        }
        self.run = Some(match self.run.take() {
            None => profile.run,
            Some(run) => common_run(run, profile.run),
        });
        Ok(())
    }

    /// Returns the merged profile; `None` if nothing was added.
    pub fn finish(self) -> Option<Profile> {
        let images = self.images.into_iter().map(|i| i.profile).collect();
        let sampling = self.sampling;
        self.run.map(|run| Profile { run, images, sampling })
    }

    /// Refuses profiles that were sampled differently from those before, or for a different share of their time.
    fn check_sampling(&self, name: &str, profile: &Profile) -> Result<(), ProfileError> {
        if self.run.is_none() {
            return Ok(());
        }
        let what = |sampling: &Option<Sampling>| match sampling {
            None => "counted in full",
            Some(Sampling::Bursts(_)) => "counted in bursts",
            Some(Sampling::Branches(_)) => "made from branch records",
        };
        match (&self.sampling, &profile.sampling) {
            (None, None) | (Some(Sampling::Branches(_)), Some(Sampling::Branches(_))) => Ok(()),
            (Some(Sampling::Bursts(known)), Some(Sampling::Bursts(new)))
                if (known.scale() / new.scale() - 1.0).abs() <= MAX_SHARE_DIFFERENCE =>
            {
                Ok(())
            }
            (Some(Sampling::Bursts(known)), Some(Sampling::Bursts(new))) => {
                let percent = |s: &BurstSampling| 100.0 / s.scale();
                Err(ProfileError::OtherShare { name: name.to_owned(), share: percent(new), others: percent(known) })
            }
            (known, new) => Err(ProfileError::SampledAndFull { name: name.to_owned(), what: what(new), others: what(known) }),
        }
    }

    fn check(&self, name: &str, profile: &Profile) -> Result<(), ProfileError> {
        if self.builds == BuildPolicy::Separate {
            return Ok(());
        }
        let unknown = |i: &&ImageProfile| !i.path.is_empty() && !self.by_identity.contains_key(&i.identity);
        for image in profile.images.iter().filter(unknown) {
            let Some(&at) = self.by_path.get(&image.path) else { continue };
            let known = &self.images[at];
            return Err(ProfileError::OtherBuild {
                image: image.path.clone(),
                one_name: known.from.clone(),
                one: known.profile.identity,
                other_name: name.to_owned(),
                other: image.identity,
                remedy: ", or keep both builds separately with `trodden merge --separate-builds`",
            });
        }
        Ok(())
    }

    fn insert_image(&mut self, name: &str, profile: ImageProfile) {
        self.by_identity.insert(profile.identity, self.images.len());
        self.by_path.entry(profile.path.clone()).or_insert(self.images.len());
        let empty = ImageProfile { units: Vec::new(), ..profile.clone() };
        let mut image = MergedImage { profile: empty, from: name.to_owned(), places: HashMap::new() };
        image.add(profile);
        self.images.push(image);
    }
}

impl MergedImage {
    fn add(&mut self, other: ImageProfile) {
        self.profile.build_id = self.profile.build_id.take().or(other.build_id);
        if self.profile.path.is_empty() {
            self.profile.path = other.path;
        }
        let mut seen = HashMap::<Identity, usize>::new();
        for unit in other.units {
            let occurrence = seen.entry(unit.unit).or_default();
            let key = (unit.unit, *occurrence);
            *occurrence += 1;
            match self.places.get(&key) {
                Some(&place) => self.profile.units[place].counts.merge(&unit.counts),
                None => {
                    self.places.insert(key, self.profile.units.len());
                    self.profile.units.push(unit);
                }
            }
        }
    }
}

fn common_run(one: Run, other: Run) -> Run {
    fn same<T: Default + PartialEq>(one: T, other: &T) -> T {
        if one == *other { one } else { T::default() }
    }
    Run {
        command: same(one.command, &other.command),
        directory: same(one.directory, &other.directory),
        host: same(one.host, &other.host),
        suite: same(one.suite, &other.suite),
        started_ns: one.started_ns.min(other.started_ns),
        duration_ns: one.duration_ns.saturating_add(other.duration_ns),
        ending: same(one.ending, &other.ending),
        runs: one.runs.saturating_add(other.runs),
        recorder: same(one.recorder, &other.recorder),
        test: same(one.test, &other.test),
        diverged: one.diverged.saturating_add(other.diverged),
        lost: one.lost.saturating_add(other.lost),
        interrupted: one.interrupted.saturating_add(other.interrupted),
    }
}
