//! Command-line definitions of `trodden-lab graph witnesses` and `trodden-lab graph reconstruct`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_console::arguments::choices::{ArgumentChoice, parser_of_choices};
use trodden_console::arguments::partition::parse_copies;
use trodden_witness::{DistributionStrategy, Lookahead, Placement, WitnessJobOrder};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab graph witnesses loop.json --profiles 2
  trodden-lab graph witnesses program.json --profiles 4 --strategy grouped --limit 30 --machines 2
  trodden-lab graph witnesses loop.json --edges
  trodden-lab graph witnesses distribution.json --check paper     checks the \"profiles\" in the file

Exit status: 0 if the distribution is realizable, 1 if it is not, 2 if the input is invalid.")]
pub struct WitnessesArguments {
    /// File with a graph or several functions; `-` reads standard input. If it has `profiles`, that distribution is checked.
    pub file: PathBuf,
    /// Number of profiles (runs among which the witnesses are divided); --limit may need more.
    #[arg(short = 'k', long, value_name = "K", default_value_t = 1, value_parser = parse_copies)]
    pub profiles: usize,
    /// Strategy that divides the witnesses.
    #[arg(long, value_parser = parser_of_choices(DISTRIBUTION_STRATEGY_CHOICES), default_value = "weighted")]
    pub strategy: DistributionStrategy,
    /// Rule that chooses the witnesses of each function; all but `fewest` are fixed rules that divide only whole functions.
    #[arg(long, value_parser = parser_of_choices(PLACEMENT_CHOICES), default_value = "fewest")]
    pub placement: Placement,
    /// Order in which jobs are assigned to profiles (not for `weighted`).
    #[arg(long, value_parser = parser_of_choices(WITNESS_JOB_ORDER_CHOICES), default_value = "longest")]
    pub order: WitnessJobOrder,
    /// Maximum number of witnesses per profile.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Number of machines that execute the profiles, each one at a time [default: one per profile].
    #[arg(long, value_name = "M", value_parser = parse_copies)]
    pub machines: Option<usize>,
    /// Use edges as witnesses instead of nodes.
    #[arg(long)]
    pub edges: bool,
    /// Condition that the distribution must meet.
    #[arg(long, value_enum, default_value_t = VerifiedCondition::Pairwise)]
    pub check: VerifiedCondition,
    /// How far reconstruction may read a trace at a branch; `next` needs the least memory.
    #[arg(long, value_parser = parser_of_choices(LOOKAHEAD_CHOICES), default_value = "next")]
    pub lookahead: Lookahead,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab graph reconstruct run.json     the file contains \"profiles\" and \"traces\"

Exit status: 0 if the distribution is realizable, 1 if it is not, 2 if the input is invalid.")]
pub struct ReconstructArguments {
    /// File with a graph or several functions, and `profiles` and `traces`; `-` reads standard input.
    pub file: PathBuf,
    /// Use edges as witnesses instead of nodes.
    #[arg(long)]
    pub edges: bool,
    /// Accept truncated traces, such as those of a killed program, and print what is certain.
    #[arg(long)]
    pub truncated: bool,
}

const DISTRIBUTION_STRATEGY_CHOICES: [ArgumentChoice<DistributionStrategy>; 4] = [
    (DistributionStrategy::Fine, "fine", "Divide by branch"),
    (DistributionStrategy::Function, "function", "Divide by function"),
    (DistributionStrategy::Grouped, "grouped", "Keep branches together that share a cycle or an edge"),
    (DistributionStrategy::Weighted, "weighted", "Try all groupings and keep the best, by the cost that each job adds to a profile"),
];

const PLACEMENT_CHOICES: [ArgumentChoice<Placement>; 7] = [
    (Placement::Fewest, "fewest", "The fewest and cheapest that the strategy finds"),
    (Placement::Blocks, "blocks", "Every node, or every edge"),
    (Placement::Targets, "targets", "Targets of conditional branches"),
    (Placement::SpanningTree, "spanning-tree", "Edges outside a maximum spanning tree (with --edges)"),
    (Placement::Paper, "paper", "Nodes chosen by the paper's algorithm, which is not always realizable"),
    (Placement::Repaired, "repaired", "Nodes chosen by the paper's algorithm, with violations repaired"),
    (Placement::Exact, "exact", "The cheapest set, proven optimal for small functions"),
];

const WITNESS_JOB_ORDER_CHOICES: [ArgumentChoice<WitnessJobOrder>; 2] = [
    (WitnessJobOrder::Given, "given", "File order"),
    (WitnessJobOrder::LongestFirst, "longest", "Most expensive first (longest processing time)"),
];

/// Condition that a distribution must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerifiedCondition {
    /// For each branch and pair of its successors, some profile has disjoint sets of first witnesses.
    Pairwise,
    /// The two theorems of the paper.
    Paper,
}

const LOOKAHEAD_CHOICES: [ArgumentChoice<Lookahead>; 2] = [
    (Lookahead::NextSymbol, "next", "To the next symbol of the trace"),
    (Lookahead::OwnComponent, "function", "To the next symbol of the branch's function"),
];
