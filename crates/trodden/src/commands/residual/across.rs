//! Untested interprocedural segments in the report of untested paths: of programs made by `trodden instrument --tested-segments`.

use crate::cli::Residual;
use crate::commands::segments::{ObservedSegments, named};
use crate::driver::experiment;
use crate::output;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use trodden_profile::segments::{Segment, are_counted, map};
use trodden_profile::{Builds, ImageProfile, Merger, Profile};
use trodden_report::segments::{SegmentList, Segments as Shown};
use trodden_report::{Name, SourceCache, View, select};
use trodden_unit::SegmentSet;
use trodden_unit::experiment::InputKind;

/// Profiles of programs that count segments, added up.
pub struct SegmentProfiles {
    merger: Merger,
}

/// A program that knows tested segments counts all others that begin with tested paths.
pub fn knows_tests(image: &ImageProfile) -> bool {
    let sets = image.units.iter().filter_map(|unit| unit.map.experiment.segments());
    let every = |set| {
        let bytes = experiment::inputs().ok()?.get(InputKind::Segments, set).ok()?;
        SegmentSet::from_bytes(&bytes).ok().map(|set| set.counts_every())
    };
    sets.collect::<BTreeSet<_>>().into_iter().any(|set| every(set) == Some(true))
}

/// The untested segments of one depth.
struct OfDepth<'a> {
    depth: usize,
    found: Vec<(&'a ImageProfile, Segment, u64)>,
    of: (usize, u128),
}

impl SegmentProfiles {
    /// Nothing yet.
    pub fn new() -> SegmentProfiles {
        SegmentProfiles { merger: Merger::new(Builds::Separate) }
    }

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

/// Untested segments of all depths, as text, JSON or results of SARIF.
pub struct UntestedSegments<'a> {
    observed: &'a ObservedSegments,
    depths: Vec<OfDepth<'a>>,
    top: usize,
}

impl<'a> UntestedSegments<'a> {
    /// Leaves out what the build was made with, what `--known` names, and what the other options of the job leave out.
    ///
    /// # Errors
    /// A profile that `--known` names cannot be read.
    pub fn new(observed: &'a ObservedSegments, job: &Residual, top: usize) -> Result<UntestedSegments<'a>> {
        let mut depths = Vec::new();
        for depth in 1..=observed.deepest() {
            let (mut known, _) = observed.asked(depth, false);
            for wanted in &job.known {
                let tests = ObservedSegments::load_if_any(wanted, depth).with_context(|| format!("--known {wanted}"))?;
                known.extend(tests.iter().flat_map(|tests| tests.named(depth).into_keys()));
            }
            let mut found = observed.of_depth(depth);
            let of = Shown::totals(&found);
            found.retain(|(image, segment, count)| {
                let ends_in =
                    |name: &String| segment.last().is_some_and(|at| Name::from_linkage(map(image, at.function).plain_name()).is(name));
                *count >= job.min_count && job.function.as_ref().is_none_or(ends_in) && !known.contains(&named(image, segment))
            });
            depths.push(OfDepth { depth, found, of });
        }
        Ok(UntestedSegments { observed, depths, top })
    }

    /// Whether there is no untested segment.
    pub fn is_empty(&self) -> bool {
        self.depths.iter().all(|d| d.found.is_empty())
    }

    fn shown<T>(&self, each: impl Fn(&Shown) -> T) -> Vec<T> {
        let view = View::from_profile(&self.observed.profile);
        let shown = |d: &OfDepth| each(&Shown::new(SegmentList::Untested, d.depth, &d.found, &view, select::limit(self.top), d.of));
        self.depths.iter().map(shown).collect()
    }

    /// For a terminal.
    pub fn text(&self, sources: &SourceCache, color: crate::cli::Color, steps: usize) -> String {
        self.shown(|s| format!("\n{}", s.text(sources, &output::text_options(color, steps)))).concat()
    }

    /// Adds them to the report of untested paths as JSON.
    pub fn add_to_json(&self, report: &mut Value) {
        report["segments"] = Value::Array(self.shown(|s| s.json()));
    }

    /// Adds them to a log of SARIF.
    pub fn add_to_sarif(&self, log: &mut Value, sources: &SourceCache) {
        self.shown(|s| s.sarif(sources)).into_iter().for_each(|more| trodden_report::sarif::append(log, more));
    }
}
