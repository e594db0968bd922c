//! Untested interprocedural segments in runs of programs made by `trodden instrument --segments tested:RUN`.

use super::observed::{ObservedSegments, names_of_segment_paths};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use trodden_profile::segments::{Segment, counts_segments, function_map};
use trodden_profile::{BuildPolicy, ImageProfile, Profile, ProfileMerger};
use trodden_stored::Folders;
use trodden_text::names::DemangledName;
use trodden_unit::SegmentSet;
use trodden_unit::experiment::InputPurpose;

/// Merges the profiles of programs that count segments.
pub struct SegmentProfiles {
    merger: ProfileMerger,
}

/// Returns true if an image was built with tested segments, so that it counts all other segments that begin with tested paths.
pub fn does_image_count_untested_segments(image: &ImageProfile, folders: &Folders) -> bool {
    let sets = image.units.iter().filter_map(|unit| unit.map.experiment.segments());
    let every = |set| {
        let bytes = folders.inputs().ok()?.get(InputPurpose::Segments, set).ok()?;
        SegmentSet::from_bytes(&bytes).ok().map(|set| set.counts_all_pairs())
    };
    sets.collect::<BTreeSet<_>>().into_iter().any(|set| every(set) == Some(true))
}

/// The untested segments of one depth.
pub struct UntestedSegmentsOfDepth<'a> {
    /// Number of calls in each segment.
    pub depth: usize,
    /// The untested segments with their image and count.
    pub found: Vec<(&'a ImageProfile, Segment, u64)>,
    /// Number of all segments of this depth, tested or not, and the number of their executions.
    pub all: (usize, u128),
}

/// Filters for untested segments.
#[derive(Clone, Copy, Debug)]
pub struct UntestedSegmentSelection<'a> {
    /// Names of tests. The segments of these tests are known.
    pub known: &'a [String],
    /// Restricts the result to segments that end in this function.
    pub function: Option<&'a str>,
}

impl Default for SegmentProfiles {
    fn default() -> SegmentProfiles {
        SegmentProfiles { merger: ProfileMerger::new(BuildPolicy::Separate) }
    }
}

impl SegmentProfiles {
    /// Moves the images that count segments out of a profile.
    pub fn take_segment_images(&mut self, name: &str, profile: &mut Profile) -> Result<()> {
        let (counted, rest) = std::mem::take(&mut profile.images).into_iter().partition(counts_segments);
        profile.images = rest;
        let counted: Vec<ImageProfile> = counted;
        if !counted.is_empty() {
            self.merger.add(name, Profile { run: profile.run.clone(), images: counted, sampling: None })?;
        }
        Ok(())
    }

    /// Returns the merged segments, or `None` if no profile had any segments.
    pub fn into_observed_segments(self) -> Option<ObservedSegments> {
        self.merger.into_merged_profile().map(ObservedSegments::from_profile)
    }
}

/// Untested segments of all depths.
pub struct UntestedSegments<'a> {
    observed: &'a ObservedSegments,
    depths: Vec<UntestedSegmentsOfDepth<'a>>,
}

impl<'a> UntestedSegments<'a> {
    /// Collects the untested segments. Segments that were known when the program was built, segments of the known tests, and segments that
    /// are filtered out are omitted.
    pub fn new(observed: &'a ObservedSegments, wanted: &UntestedSegmentSelection, folders: &Folders) -> Result<UntestedSegments<'a>> {
        let mut depths = Vec::new();
        for depth in 1..=observed.deepest() {
            let (mut known, _) = observed.requested_and_uncountable(depth, false);
            for known_as in wanted.known {
                let tests = ObservedSegments::load_if_any(known_as, depth, folders).with_context(|| {
                    format!("cannot load the segments (paths across calls) that the tests took from {known_as} (--known)")
                })?;
                known.extend(tests.iter().flat_map(|tests| tests.counts_by_name(depth).into_keys()));
            }
            let mut found = observed.segments_of_depth(depth);
            let all = (found.len(), found.iter().map(|s| u128::from(s.2)).sum());
            found.retain(|(image, segment, _)| {
                let ends_in = |name: &str| {
                    segment
                        .last()
                        .is_some_and(|at| DemangledName::from_linkage(function_map(image, at.function).plain_name()).matches(name))
                };
                wanted.function.is_none_or(ends_in) && !known.contains(&names_of_segment_paths(image, segment))
            });
            depths.push(UntestedSegmentsOfDepth { depth, found, all });
        }
        Ok(UntestedSegments { observed, depths })
    }

    /// Returns true if there is no untested segment.
    pub fn is_empty(&self) -> bool {
        self.depths.iter().all(|d| d.found.is_empty())
    }

    /// Returns all observed segments.
    pub fn observed(&self) -> &'a ObservedSegments {
        self.observed
    }

    /// Returns the untested segments by depth.
    pub fn depths(&self) -> &[UntestedSegmentsOfDepth<'a>] {
        &self.depths
    }
}
