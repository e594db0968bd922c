//! Interprocedural path segments of depth k, most frequent first (`trodden segments --thread`).

use super::numbers::take_top;
use super::recording::OpenedSequence;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use trodden_sequence::segments::{SymbolStringCounts, call_segments, supergraph_paths};

/// Segments of a sequence, most frequent first.
#[derive(Serialize)]
pub struct SequenceSegments {
    /// Kind of the segments: `call segments` or `supergraph paths`.
    pub kind: &'static str,
    /// Maximum number of calls that a segment spans.
    pub depth: usize,
    /// Number of distinct segments.
    pub distinct: usize,
    /// Total number of executions.
    pub executed: u64,
    /// Number of supergraph paths that did not end. Always 0 for call segments.
    pub unfinished: usize,
    /// The most frequent segments.
    pub segments: Vec<CountedSegment>,
    /// Source locations of the paths, by label.
    pub sources: BTreeMap<String, String>,
}

/// A segment.
#[derive(Serialize)]
pub struct CountedSegment {
    /// The segment's events.
    pub events: Vec<String>,
    /// Number of executions.
    pub count: u64,
}

/// Checks that the depth is valid for this kind of segment.
pub fn check_depth(depth: usize, supergraph: bool) -> Result<()> {
    ensure!(supergraph || depth > 0, "--depth must be at least 1, because a segment (a path across calls) crosses at least one call");
    Ok(())
}

/// Counts call segments or supergraph paths. Returns the `top` most frequent, or all if `top` is 0.
pub fn count_segments(opened: &OpenedSequence, depth: usize, supergraph: bool, top: usize) -> Result<SequenceSegments> {
    check_depth(depth, supergraph)?;
    let (counts, unfinished) = if supergraph {
        let paths = supergraph_paths(&opened.grammar, &opened.table, depth)?;
        (paths.counts, paths.unfinished.len())
    } else {
        (call_segments(&opened.grammar, &opened.table, opened.convention, depth)?, 0)
    };
    let (distinct, executed) = (counts.len(), counts.values().sum());
    let rows = take_top(sort_by_count(counts), top);
    let segments: Vec<CountedSegment> =
        rows.into_iter().map(|(symbols, count)| CountedSegment { events: opened.table.labels(&symbols), count }).collect();
    Ok(SequenceSegments {
        kind: if supergraph { "supergraph paths" } else { "call segments" },
        depth,
        distinct,
        executed,
        unfinished,
        sources: opened.table.sources(segments.iter().flat_map(|row| &row.events)),
        segments,
    })
}

/// Sorts by descending count, then by symbols.
fn sort_by_count(counts: SymbolStringCounts) -> Vec<(Vec<u64>, u64)> {
    let mut rows: Vec<(Vec<u64>, u64)> = counts.into_iter().collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows
}
