//! Options for dividing the counting among copies of a program.

use super::choices::Choice;
use clap::Args;
use trodden_flow::part::Measure;
use trodden_partition::{PartitionStrategy, ProfitableProcedures};

/// Maximum number of copies or profiles.
const MAX_COPIES: usize = 4096;

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

/// Which procedures the strategy p3 divides, and how finely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct ProfitableChoices {
    /// With strategy p3: divide functions that are called from up to N places (default 1, as published).
    #[arg(long, value_name = "N")]
    pub max_callers: Option<u32>,
    /// Divide functions that are called from several places as well, with strategy p3: any number of them.
    #[arg(long, conflicts_with = "max_callers")]
    pub all_procedures: bool,
    /// With strategy p3: make no more tasks of a function once there are N (default: as many as edges leave its entry, or as copies).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threshold: Option<u32>,
}

impl From<ProfitableChoices> for ProfitableProcedures {
    fn from(choices: ProfitableChoices) -> ProfitableProcedures {
        let max_callers = if choices.all_procedures { u32::MAX } else { choices.max_callers.unwrap_or(1) };
        ProfitableProcedures { max_callers, threshold: choices.threshold.map(|threshold| threshold as usize) }
    }
}

/// Parses a number of copies.
///
/// # Errors
/// The text is not a number, or out of range.
pub fn copies(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|e| format!("{e}"))?;
    match number {
        1..=MAX_COPIES => Ok(number),
        _ => Err(format!("between 1 and {MAX_COPIES}")),
    }
}
