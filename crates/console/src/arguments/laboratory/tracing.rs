//! Options that determine how traces are recorded.

use super::super::choices::{ArgumentChoice, parser_of_choices};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_witness::DistributionStrategy;

/// Trace options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "trace record")]
pub struct TraceChoices {
    /// Method that observes executed blocks.
    #[arg(long, value_enum)]
    pub collector: Option<LaboratoryCollector>,
    /// Strategy that distributes witnesses over the runs [default: fine].
    #[arg(long, value_parser = parser_of_choices(WITNESS_STRATEGY_CHOICES))]
    pub witness_strategy: Option<DistributionStrategy>,
    /// Costs of witnesses: estimated, from a first run, or from a trace of this build.
    #[arg(long, value_name = "static|first-run|TRACE")]
    pub witness_weights: Option<String>,
    /// Maximum number of witnesses per run; adds runs as needed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Number of machines (here: cores) that share the runs evenly.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub machines: Option<u32>,
    /// Condition that the distribution must satisfy [default: pairwise].
    #[arg(long, value_enum)]
    pub check: Option<WitnessCondition>,
    /// Read the witnesses of each run from this file, as printed by --plan=json.
    #[arg(long, value_name = "FILE")]
    pub distribution: Option<PathBuf>,
    /// Record nothing; list opaque functions, and the witnesses of each run with costs.
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub plan: Option<PlanForm>,
    /// Record only calls and returns, with the witnesses that these need.
    #[arg(long)]
    pub calls: bool,
    /// Keep the partial traces in this folder.
    #[arg(long, value_name = "FOLDER")]
    pub keep_runs: Option<PathBuf>,
}

const WITNESS_STRATEGY_CHOICES: [ArgumentChoice<DistributionStrategy>; 4] = [
    (DistributionStrategy::Fine, "fine", "Assign each diamond or cycle to the run with the least load"),
    (DistributionStrategy::Function, "function", "Assign all witnesses of a function to the same run"),
    (DistributionStrategy::Grouped, "grouped", "Assign diamonds that share a cycle or an edge to the same run"),
    (DistributionStrategy::Weighted, "weighted", "Assign by measured costs; the best balance"),
];

/// A condition that is sufficient for the partial traces to determine the execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WitnessCondition {
    /// For each pair of a branch's successors, a run in which their sets of first witnesses are disjoint.
    Pairwise,
    /// The conditions of the paper's two theorems.
    Paper,
}

/// A format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanForm {
    /// Plain text.
    Text,
    /// JSON, as --distribution reads it.
    Json,
}

/// Trace collectors for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LaboratoryCollector {
    /// The four debug registers; does not change the code, but needs many runs.
    Hardware,
    /// Kernel uprobes with a BPF program; needs root.
    Uprobes,
}
