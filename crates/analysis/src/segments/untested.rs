//! Untested interprocedural segments: of programs made by `trodden instrument --segments tested:RUN`.

use super::observed::{ObservedSegments, named};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use trodden_profile::segments::{Segment, are_counted, map};
use trodden_profile::{Builds, ImageProfile, Merger, Profile};
use trodden_stored::Folders;
use trodden_text::names::Name;
use trodden_unit::SegmentSet;
use trodden_unit::experiment::InputKind;

/// Profiles of programs that count segments, added up.
pub struct SegmentProfiles {
    merger: Merger,
}

/// A program that knows tested segments counts all others that begin with tested paths.
pub fn knows_tests(image: &ImageProfile, folders: &Folders) -> bool {
    let sets = image.units.iter().filter_map(|unit| unit.map.experiment.segments());
    let every = |set| {
        let bytes = folders.inputs().ok()?.get(InputKind::Segments, set).ok()?;
        SegmentSet::from_bytes(&bytes).ok().map(|set| set.counts_every())
    };
    sets.collect::<BTreeSet<_>>().into_iter().any(|set| every(set) == Some(true))
}

/// The untested segments of one depth.
pub struct UntestedOfDepth<'a> {
    /// Calls in each.
    pub depth: usize,
    /// The segments with their images and executions.
    pub found: Vec<(&'a ImageProfile, Segment, u64)>,
    /// How many segments there are of this depth, tested or not, and how often they were executed.
    pub all: (usize, u128),
}

/// Which untested segments are wanted.
#[derive(Clone, Copy, Debug)]
pub struct UntestedSegmentSelection<'a> {
    /// Names of tests, whose segments are known.
    pub known: &'a [String],
    /// Only those that end in this function.
    pub function: Option<&'a str>,
}

impl Default for SegmentProfiles {
    /// Nothing yet.
    fn default() -> SegmentProfiles {
        SegmentProfiles { merger: Merger::new(Builds::Separate) }
    }
}

impl SegmentProfiles {
    /// Takes the images that count segments out of a profile.
    ///
    /// # Errors
    /// They do not go together with those that were taken before.
    pub fn take(&mut self, name: &str, profile: &mut Profile) -> Result<()> {
        let (counted, rest) = std::mem::take(&mut profile.images).into_iter().partition(are_counted);
        profile.images = rest;
        let counted: Vec<ImageProfile> = counted;
        if !counted.is_empty() {
            self.merger.add(name, Profile { run: profile.run.clone(), images: counted, sampling: None })?;
        }
        Ok(())
    }

    /// What was taken; `None` if nothing was.
    pub fn finish(self) -> Option<ObservedSegments> {
        self.merger.finish().map(ObservedSegments::from_profile)
    }
}

/// Untested segments of all depths.
pub struct UntestedSegments<'a> {
    observed: &'a ObservedSegments,
    depths: Vec<UntestedOfDepth<'a>>,
}

impl<'a> UntestedSegments<'a> {
    /// Leaves out what the build was made with, and what is known or not wanted.
    ///
    /// # Errors
    /// A profile of tests cannot be read.
    pub fn new(observed: &'a ObservedSegments, wanted: &UntestedSegmentSelection, folders: &Folders) -> Result<UntestedSegments<'a>> {
        let mut depths = Vec::new();
        for depth in 1..=observed.deepest() {
            let (mut known, _) = observed.asked(depth, false);
            for known_as in wanted.known {
                let tests = ObservedSegments::load_if_any(known_as, depth, folders).with_context(|| format!("--known {known_as}"))?;
                known.extend(tests.iter().flat_map(|tests| tests.named(depth).into_keys()));
            }
            let mut found = observed.of_depth(depth);
            let all = (found.len(), found.iter().map(|s| u128::from(s.2)).sum());
            found.retain(|(image, segment, _)| {
                let ends_in =
                    |name: &str| segment.last().is_some_and(|at| Name::from_linkage(map(image, at.function).plain_name()).is(name));
                wanted.function.is_none_or(ends_in) && !known.contains(&named(image, segment))
            });
            depths.push(UntestedOfDepth { depth, found, all });
        }
        Ok(UntestedSegments { observed, depths })
    }

    /// Whether there is no untested segment.
    pub fn is_empty(&self) -> bool {
        self.depths.iter().all(|d| d.found.is_empty())
    }

    /// The profiles in which they were found.
    pub fn observed(&self) -> &'a ObservedSegments {
        self.observed
    }

    /// Those of each depth.
    pub fn depths(&self) -> &[UntestedOfDepth<'a>] {
        &self.depths
    }
}
