//! How counting is divided among copies of a program.

use super::choices::Choice;
use trodden_flow::part::Measure;
use trodden_partition::PartitionStrategy;

/// Most copies, or profiles, that can be asked for.
const MOST_COPIES: usize = 4096;

/// How paths are divided among copies.
pub const COPY_STRATEGIES: [Choice<PartitionStrategy>; 4] = [
    (PartitionStrategy::Sbl, "sbl", "Not at all: sequential Ball-Larus"),
    (PartitionStrategy::Pbl, "pbl", "Whole functions"),
    (PartitionStrategy::P3, "p3", "Partitioned path profiling, as published"),
    (PartitionStrategy::Weighted, "weighted", "By frequencies and the ends of paths, with search"),
];

/// What counts as a hit.
pub const HITS: [Choice<Measure>; 2] =
    [(Measure::All, "all", "Labels, and counts of paths"), (Measure::Labels, "labels", "Labels alone, as the paper counts")];

/// Reads a number of copies.
///
/// # Errors
/// It is none, or out of range.
pub fn copies(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|e| format!("{e}"))?;
    match number {
        1..=MOST_COPIES => Ok(number),
        _ => Err(format!("between 1 and {MOST_COPIES}")),
    }
}
