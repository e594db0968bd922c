//! Untested interprocedural segments (chains of nested calls with a path in each function), as sections for reports of untested paths in
//! text, JSON or SARIF.

use crate::segments::{SegmentList, SegmentRanking};
use crate::text::TextOptions;
use crate::{ProfileView, SourceCache, sarif, select};
use serde_json::Value;
use trodden_analysis::segments::{UntestedSegments, UntestedSegmentsOfDepth};

/// The most frequent untested segments of each depth.
pub struct ShownSegments<'a> {
    untested: &'a UntestedSegments<'a>,
    top: usize,
}

impl<'a> ShownSegments<'a> {
    /// Selects the `top` most frequent segments of each depth; 0 selects all.
    pub fn new(untested: &'a UntestedSegments<'a>, top: usize) -> ShownSegments<'a> {
        ShownSegments { untested, top }
    }

    /// Returns true if there are no untested segments.
    pub fn is_empty(&self) -> bool {
        self.untested.is_empty()
    }

    fn map_depths<T>(&self, each: impl Fn(&SegmentRanking) -> T) -> Vec<T> {
        let view = ProfileView::from_profile(&self.untested.observed().profile);
        let shown = |d: &UntestedSegmentsOfDepth| {
            each(&SegmentRanking::new(SegmentList::Untested, d.depth, &d.found, &view, select::limit(self.top), d.all))
        };
        self.untested.depths().iter().map(shown).collect()
    }

    /// Renders the segments as text.
    pub fn text(&self, sources: &SourceCache, options: &TextOptions) -> String {
        self.map_depths(|s| format!("\n{}", s.text(sources, options))).concat()
    }

    /// Adds the segments to the JSON report of untested paths.
    pub fn add_to_json(&self, report: &mut Value) {
        report["segments"] = Value::Array(self.map_depths(|s| s.json()));
    }

    /// Adds the segments to a SARIF log.
    pub fn add_to_sarif(&self, log: &mut Value, sources: &SourceCache) {
        self.map_depths(|s| s.sarif(sources)).into_iter().for_each(|more| sarif::append_sarif_log(log, more));
    }
}
