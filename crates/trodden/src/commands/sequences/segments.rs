//! `trodden stream segments`: interprocedural path segments of depth k, most frequent first.

use super::{first, open, print, write_sources};
use crate::cli::StreamSegments;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use trodden_sequence::segments::{SegmentCounts, call_segments, supergraph_paths};

#[derive(Serialize)]
struct Document {
    kind: &'static str,
    depth: usize,
    /// Different ones.
    distinct: usize,
    /// All together.
    executed: u64,
    /// Supergraph paths without an end; of call segments none.
    unfinished: usize,
    segments: Vec<Row>,
    /// Where paths run.
    sources: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Row {
    events: Vec<String>,
    count: u64,
}

/// Counts them.
///
/// # Errors
/// The recording cannot be read, or the depth is out of its range.
pub fn run(job: &StreamSegments) -> Result<ExitCode> {
    ensure!(job.supergraph || job.depth > 0, "--depth 0: a call segment spans 1 to 100 calls; 0 goes with --supergraph");
    let opened = open::open(&job.input)?;
    let (counts, unfinished) = if job.supergraph {
        let paths = supergraph_paths(&opened.grammar, &opened.table, job.depth)?;
        (paths.counts, paths.unfinished.len())
    } else {
        (call_segments(&opened.grammar, &opened.table, opened.convention, job.depth)?, 0)
    };
    let (distinct, executed) = (counts.len(), counts.values().sum());
    let rows = first(sorted(counts), job.input.top);
    let segments: Vec<Row> = rows.into_iter().map(|(symbols, count)| Row { events: opened.table.labels(&symbols), count }).collect();
    let document = Document {
        kind: if job.supergraph { "supergraph paths" } else { "call segments" },
        depth: job.depth,
        distinct,
        executed,
        unfinished,
        sources: opened.table.sources(segments.iter().flat_map(|row| &row.events)),
        segments,
    };
    print(job.input.json, &document, |out| {
        writeln!(out, "{} different {} of depth {}, executed {} times", document.distinct, document.kind, job.depth, document.executed)?;
        document.segments.iter().try_for_each(|row| writeln!(out, "{:>12}  {}", row.count, row.events.join("  ")))?;
        write_sources(out, &document.sources)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// By falling counts, then by symbols.
fn sorted(counts: SegmentCounts) -> Vec<(Vec<u64>, u64)> {
    let mut rows: Vec<(Vec<u64>, u64)> = counts.into_iter().collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows
}
