//! Untested interprocedural segments beside untested paths, as text, JSON or results of SARIF.

use crate::segments::{SegmentList, Segments};
use crate::text::TextOptions;
use crate::{SourceCache, View, sarif, select};
use serde_json::Value;
use trodden_analysis::segments::{UntestedOfDepth, UntestedSegments};

/// Untested segments of all depths, the most frequent of each.
pub struct ShownSegments<'a> {
    untested: &'a UntestedSegments<'a>,
    top: usize,
}

impl<'a> ShownSegments<'a> {
    /// The most frequent `top` of each depth; 0: all.
    pub fn new(untested: &'a UntestedSegments<'a>, top: usize) -> ShownSegments<'a> {
        ShownSegments { untested, top }
    }

    /// Whether there is no untested segment.
    pub fn is_empty(&self) -> bool {
        self.untested.is_empty()
    }

    fn shown<T>(&self, each: impl Fn(&Segments) -> T) -> Vec<T> {
        let view = View::from_profile(&self.untested.observed().profile);
        let shown =
            |d: &UntestedOfDepth| each(&Segments::new(SegmentList::Untested, d.depth, &d.found, &view, select::limit(self.top), d.all));
        self.untested.depths().iter().map(shown).collect()
    }

    /// For a terminal.
    pub fn text(&self, sources: &SourceCache, options: &TextOptions) -> String {
        self.shown(|s| format!("\n{}", s.text(sources, options))).concat()
    }

    /// Adds them to the report of untested paths as JSON.
    pub fn add_to_json(&self, report: &mut Value) {
        report["segments"] = Value::Array(self.shown(|s| s.json()));
    }

    /// Adds them to a log of SARIF.
    pub fn add_to_sarif(&self, log: &mut Value, sources: &SourceCache) {
        self.shown(|s| s.sarif(sources)).into_iter().for_each(|more| sarif::append(log, more));
    }
}
