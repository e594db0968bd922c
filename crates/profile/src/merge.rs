//! Merges profiles one at a time, so that only the merged profile and one other are in memory.
//!
//! Counts of the same unit in the same image are added; they saturate on overflow. Images are distinguished by identity. Two images with
//! the same path but different identities are different builds, whose path IDs must not be mixed: the second profile is rejected, or on
//! request both builds are kept as separate images. Profiles of different programs can be merged, since a suite may test several programs.

use crate::container::{LostProfilePart, UnitMapsByIdentity};
use crate::error::ProfileError;
use crate::model::{ImageProfile, Profile, Run};
use crate::sampling::{BurstSampling, Sampling};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use trodden_unit::Identity;

/// How to handle a profile that contains a different build of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuildPolicy {
    /// Reject the profile.
    #[default]
    Reject,
    /// Keep both builds, as separate images.
    Separate,
}

/// Sampled profiles are merged only if the shares of the run time in which they counted differ by at most this fraction. The merged profile
/// has a single share, so this also limits the error of its estimates.
const MAX_SHARE_DIFFERENCE: f64 = 0.25;

/// Merges profiles, which are added one after the other.
#[derive(Debug, Default)]
pub struct ProfileMerger {
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
    /// Name of the first profile that contained the image, for error messages.
    from: String,
    /// Index of each unit in the image. A unit that is linked several times has several keys: its identity with the numbers 0, 1, and so
    /// on.
    unit_indices: HashMap<(Identity, usize), usize>,
}

/// Result of merging files.
#[derive(Debug)]
pub struct MergedProfile {
    /// The merged profile; `None` if no file could be merged.
    pub profile: Option<Profile>,
    /// Number of files merged.
    pub files: usize,
    /// Files that could not be merged, with the reasons.
    pub refused: Vec<(PathBuf, ProfileError)>,
    /// Corrupt files with their lost parts. Only the intact parts of these files were merged.
    pub corrupt: Vec<(PathBuf, Vec<LostProfilePart>)>,
}

/// Merges stored profiles. Calls `progress` after each file, with the number of files processed so far.
pub fn merge_files<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    builds: BuildPolicy,
    mut progress: impl FnMut(usize),
) -> MergedProfile {
    let mut merger = ProfileMerger::new(builds);
    let mut maps = UnitMapsByIdentity::new();
    let (mut files, mut refused, mut corrupt) = (0, Vec::new(), Vec::new());
    for path in paths {
        let path = path.as_ref();
        let added = Profile::recover_with_shared_maps(path, &mut maps)
            .and_then(|found| merger.add(&path.display().to_string(), found.profile).map(|()| found.lost));
        match added {
            Ok(lost) => {
                files += 1;
                corrupt.extend((!lost.is_empty()).then(|| (path.to_owned(), lost)));
            }
            Err(error) => refused.push((path.to_owned(), error)),
        }
        progress(files + refused.len());
    }
    MergedProfile { profile: merger.into_merged_profile(), files, refused, corrupt }
}

impl ProfileMerger {
    /// Creates a merger that contains no profile yet.
    pub fn new(builds: BuildPolicy) -> ProfileMerger {
        ProfileMerger { builds, ..ProfileMerger::default() }
    }

    /// Adds a profile, which error messages call `name`. Fails, without adding anything, if the profile has a different build of an image
    /// or was sampled differently.
    pub fn add(&mut self, name: &str, profile: Profile) -> Result<(), ProfileError> {
        self.check_builds(name, &profile)?;
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
            Some(run) => merge_runs(run, profile.run),
        });
        Ok(())
    }

    /// Returns the merged profile; `None` if no profile was added.
    pub fn into_merged_profile(self) -> Option<Profile> {
        let images = self.images.into_iter().map(|i| i.profile).collect();
        let sampling = self.sampling;
        self.run.map(|run| Profile { run, images, sampling })
    }

    /// Fails if the profile was sampled by a different method than the previous profiles, or for a different share of its run time.
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

    /// Fails if the profile has a different build of an image, unless both builds are to be kept.
    fn check_builds(&self, name: &str, profile: &Profile) -> Result<(), ProfileError> {
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
                alternative: ", or keep both builds separate with `trodden merge --separate-builds`",
            });
        }
        Ok(())
    }

    fn insert_image(&mut self, name: &str, profile: ImageProfile) {
        self.by_identity.insert(profile.identity, self.images.len());
        self.by_path.entry(profile.path.clone()).or_insert(self.images.len());
        let empty = ImageProfile { units: Vec::new(), ..profile.clone() };
        let mut image = MergedImage { profile: empty, from: name.to_owned(), unit_indices: HashMap::new() };
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
            match self.unit_indices.get(&key) {
                Some(&index) => self.profile.units[index].counts.merge(&unit.counts),
                None => {
                    self.unit_indices.insert(key, self.profile.units.len());
                    self.profile.units.push(unit);
                }
            }
        }
    }
}

/// Combines the properties of two runs: counts and durations are added, and text properties that differ become empty.
fn merge_runs(one: Run, other: Run) -> Run {
    fn value_if_equal<T: Default + PartialEq>(one: T, other: &T) -> T {
        if one == *other { one } else { T::default() }
    }
    Run {
        command: value_if_equal(one.command, &other.command),
        directory: value_if_equal(one.directory, &other.directory),
        host: value_if_equal(one.host, &other.host),
        suite: value_if_equal(one.suite, &other.suite),
        started_ns: one.started_ns.min(other.started_ns),
        duration_ns: one.duration_ns.saturating_add(other.duration_ns),
        ending: value_if_equal(one.ending, &other.ending),
        runs: one.runs.saturating_add(other.runs),
        recorder: value_if_equal(one.recorder, &other.recorder),
        test: value_if_equal(one.test, &other.test),
        diverged: one.diverged.saturating_add(other.diverged),
        lost: one.lost.saturating_add(other.lost),
        interrupted: one.interrupted.saturating_add(other.interrupted),
    }
}
