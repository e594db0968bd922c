//! Merges the profiles from the field and removes the paths that tests took.

use super::inputs::{RunLabel, find_inputs};
use super::known::KnownPathInput;
use crate::segments::{ObservedSegments, SegmentProfiles};
use crate::untested::UntestedPathRecorder;
use anyhow::{Context, Result};
use trodden_profile::{BuildPolicy, Profile, ProfileMerger, Run};
use trodden_stored::Folders;

/// Profiles from the field.
pub struct FieldProfiles {
    /// The counted paths, without known paths unless [`FieldProfiles::gather`] kept them.
    pub profile: Profile,
    /// The counted segments, each a caller's path followed by its callee's path.
    pub across: Option<ObservedSegments>,
    /// The runs that took each untested path.
    pub sightings: UntestedPathRecorder,
    /// The runs, in the order of their numbers in `sightings`.
    pub runs: Vec<RunLabel>,
    /// The known paths.
    pub known: KnownPathInput,
}

impl FieldProfiles {
    /// Reads the named profiles and removes the paths that tests took. If `all` is true, nothing is removed. `one_run` is the template for
    /// runs with unknown details. Fails if a profile does not exist or no known paths are given.
    pub fn gather(wanted: &[String], tests: &[String], all: bool, one_run: &Run, folders: &Folders) -> Result<FieldProfiles> {
        let inputs = find_inputs(wanted, folders)?;
        let mut known = KnownPathInput::default();
        tests.iter().try_for_each(|wanted| known.add_named(wanted))?;
        let (mut sightings, mut runs) = (UntestedPathRecorder::default(), Vec::new());
        let (mut field, mut across) = (ProfileMerger::new(BuildPolicy::Separate), SegmentProfiles::default());
        for input in inputs {
            let Some((label, mut profile)) = input.read(one_run, folders)? else { continue };
            across.take_segment_images(&label.words, &mut profile)?;
            known.add_from_builds(&profile, folders)?;
            if !all {
                sightings.add(runs.len(), &mut profile, &known.paths)?;
            }
            field.add(&label.words, profile)?;
            runs.push(label);
        }
        let profile = field.into_merged_profile().context("none of the profiles from production can be read")?;
        let across = across.into_observed_segments();
        if across.is_none() || !profile.images.is_empty() {
            known.check_known_paths_apply(&profile, folders)?;
        }
        Ok(FieldProfiles { profile, across, sightings, runs, known })
    }
}
