//! Compares counted segments with those in a stream of the same execution.

use super::observed::{NamedCounts, NamedPath, ObservedSegments};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use trodden_stored::Folders;

/// The result of comparing the segments of one depth.
#[derive(Debug)]
pub struct ComparedSegments {
    /// Number of calls in each segment.
    pub depth: usize,
    /// Number of segments compared.
    pub compared: usize,
    /// Total number of executions of the compared segments, according to the stream.
    pub executions: u128,
    /// Segments with different counts, each with the count and the executions expected from the stream.
    pub differing: Vec<(Vec<NamedPath>, u64, u64)>,
    /// Number of segments that were not compared, because uninstrumented code makes one of their calls.
    pub left_out: usize,
}

/// Compares the counted segments with the segments of the run `other`, for one depth, or for all depths that the program counts. Fails if
/// the program does not count segments of this depth.
pub fn compare(counted: &ObservedSegments, other: &str, depth: Option<usize>, folders: &Folders) -> Result<Vec<ComparedSegments>> {
    ensure!(
        counted.is_counted,
        "cannot check the run, because its program does not count segments (paths across calls). Build it with `trodden instrument \
         --segments`, and record again"
    );
    let deepest = counted.deepest();
    ensure!(
        deepest > 0,
        "cannot compare segments (paths across calls), because the program does not count them. Build it with `trodden instrument \
         --segments`, and record again"
    );
    if let Some(depth) = depth {
        ensure!(
            depth <= deepest,
            "--depth {depth} is too large: the program counts segments (paths across calls) only up to depth {deepest}. Pass --depth \
             {deepest} or less"
        );
    }
    let expected = ObservedSegments::load(other, depth.unwrap_or(deepest), folders)?;
    let mut all = Vec::new();
    for each in depth.map_or(1..=deepest, |depth| depth..=depth) {
        let (requested_segments, unplaced) = counted.requested_and_uncountable(each, depth.is_none());
        let checked: BTreeSet<&Vec<NamedPath>> = requested_segments.difference(&unplaced).collect();
        if checked.is_empty() && unplaced.is_empty() {
            continue;
        }
        all.push(compare_depth(&checked, (&counted.counts_by_name(each), &expected.counts_by_name(each)), each, unplaced.len()));
    }
    Ok(all)
}

fn compare_depth(
    checked: &BTreeSet<&Vec<NamedPath>>,
    counts: (&NamedCounts, &NamedCounts),
    depth: usize,
    left_out: usize,
) -> ComparedSegments {
    let count_of = |counts: &NamedCounts, segment: &[NamedPath]| counts.get(segment).copied().unwrap_or(0);
    let (found, expected) = counts;
    let differing =
        checked.iter().map(|s| ((*s).clone(), count_of(found, s), count_of(expected, s))).filter(|(_, found, expected)| found != expected);
    ComparedSegments {
        depth,
        compared: checked.len(),
        executions: checked.iter().map(|s| u128::from(count_of(expected, s))).sum(),
        differing: differing.collect(),
        left_out,
    }
}
