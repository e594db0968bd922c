//! Options for dividing paths among copies of a program.

use super::choices::ArgumentChoice;
use clap::Args;
use trodden_flow::part::Measure;
use trodden_partition::{PartitionStrategy, ProfitableProcedures};

const MAX_COPIES: usize = 4096;

/// Strategies that divide paths among copies.
pub const COPY_STRATEGY_CHOICES: [ArgumentChoice<PartitionStrategy>; 4] = [
    (PartitionStrategy::Sbl, "sbl", "No division: sequential Ball-Larus"),
    (PartitionStrategy::Pbl, "pbl", "Divide by whole functions"),
    (PartitionStrategy::P3, "p3", "Partitioned path profiling, as published"),
    (PartitionStrategy::Weighted, "weighted", "Divide by frequencies and path ends, improved by search"),
];

/// Which probe executions are counted as hits, the measure of a copy's cost.
pub const HIT_MEASURE_CHOICES: [ArgumentChoice<Measure>; 2] = [
    (Measure::All, "all", "Increments of the path register and of path counters"),
    (Measure::Labels, "labels", "Increments of the path register only, as in the paper"),
];

/// Options of the strategy `p3`: which procedures it divides, and how finely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct ProfitableChoices {
    /// p3: divide functions with up to N call sites [default: 1, as published].
    #[arg(long, value_name = "N")]
    pub max_callers: Option<u32>,
    /// p3: divide functions with any number of call sites.
    #[arg(long, conflicts_with = "max_callers")]
    pub all_procedures: bool,
    /// p3: stop splitting a function at N tasks.
    ///
    /// The default is the number of edges from its entry or the number of copies, whichever is larger.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threshold: Option<u32>,
}

impl From<ProfitableChoices> for ProfitableProcedures {
    fn from(choices: ProfitableChoices) -> ProfitableProcedures {
        let max_callers = if choices.all_procedures { u32::MAX } else { choices.max_callers.unwrap_or(1) };
        ProfitableProcedures { max_callers, threshold: choices.threshold.map(|threshold| threshold as usize) }
    }
}

/// Parses a number of copies from 1 to 4096.
pub fn parse_copies(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|e| format!("{e}"))?;
    match number {
        1..=MAX_COPIES => Ok(number),
        _ => Err(format!("expected a number between 1 and {MAX_COPIES}")),
    }
}
