//! Whether a program counted the segments that a stream of the same execution has.

use super::observed::{NamedCounts, NamedPath, ObservedSegments};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use trodden_stored::Folders;

/// Segments of one depth, compared.
#[derive(Debug)]
pub struct ComparedSegments {
    /// Calls in each.
    pub depth: usize,
    /// How many were compared.
    pub compared: usize,
    /// How often they were executed, all together.
    pub executions: u128,
    /// Those that were counted differently: how often they were counted, and executed.
    pub differing: Vec<(Vec<NamedPath>, u64, u64)>,
    /// Segments that were left out, since no code of the caller makes the call.
    pub left_out: usize,
}

/// Compares what a program counted with what another run says: of a depth, or of all that it counts.
///
/// # Errors
/// The program does not count segments of this depth, or the run does not exist.
pub fn compare(counted: &ObservedSegments, other: &str, depth: Option<usize>, folders: &Folders) -> Result<Vec<ComparedSegments>> {
    ensure!(counted.is_counted, "the run to check was not made by a program that counts segments (`trodden instrument --segments`)");
    let deepest = counted.deepest();
    ensure!(deepest > 0, "the program was made to count no segment: there is nothing to compare");
    if let Some(depth) = depth {
        ensure!(depth <= deepest, "--depth {depth}: the program counts segments of depth {deepest} at most: there is nothing to compare");
    }
    let expected = ObservedSegments::load(other, depth.unwrap_or(deepest), folders)?;
    let mut all = Vec::new();
    for each in depth.map_or(1..=deepest, |depth| depth..=depth) {
        let (asked, unplaced) = counted.asked(each, depth.is_none());
        let checked: BTreeSet<&Vec<NamedPath>> = asked.difference(&unplaced).collect();
        if checked.is_empty() && unplaced.is_empty() {
            continue;
        }
        all.push(compare_depth(&checked, (&counted.named(each), &expected.named(each)), each, unplaced.len()));
    }
    Ok(all)
}

/// Compares segments of a depth, found and expected ones.
fn compare_depth(
    checked: &BTreeSet<&Vec<NamedPath>>,
    counts: (&NamedCounts, &NamedCounts),
    depth: usize,
    left_out: usize,
) -> ComparedSegments {
    let of = |counts: &NamedCounts, segment: &[NamedPath]| counts.get(segment).copied().unwrap_or(0);
    let (found, expected) = counts;
    let differing = checked.iter().map(|s| ((*s).clone(), of(found, s), of(expected, s))).filter(|(_, found, expected)| found != expected);
    ComparedSegments {
        depth,
        compared: checked.len(),
        executions: checked.iter().map(|s| u128::from(of(expected, s))).sum(),
        differing: differing.collect(),
        left_out,
    }
}
