//! Witnesses of a graph, or of several functions, and executions from partial traces.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_console::arguments::choices::{Choice, one_of};
use trodden_console::arguments::partition::copies;
use trodden_witness::{DistributionStrategy, Lookahead, Placement, WitnessJobOrder};

/// `trodden-lab graph witnesses`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab graph witnesses loop.json --profiles 2
  trodden-lab graph witnesses program.json --profiles 4 --strategy grouped --limit 30 --machines 2
  trodden-lab graph witnesses loop.json --edges
  trodden-lab graph witnesses distribution.json --check paper     the file has \"profiles\"

Exit status: 0 if the distribution is realizable, 1 if it is not, 2 if the input is bad.")]
pub struct Witnesses {
    /// The file of the graph or the functions; `-` for standard input. If it has `profiles`, that distribution is checked.
    pub file: PathBuf,
    /// Number of profiles: runs among which the witnesses are divided. With --limit there may be more.
    #[arg(short = 'k', long, value_name = "K", default_value_t = 1, value_parser = copies)]
    pub profiles: usize,
    /// How witnesses are divided.
    #[arg(long, value_parser = one_of(STRATEGIES), default_value = "weighted")]
    pub strategy: DistributionStrategy,
    /// How witnesses are chosen: `fewest` leaves it to the strategy; all others choose for each function by a fixed rule, and then divide
    /// whole functions.
    #[arg(long, value_parser = one_of(PLACEMENTS), default_value = "fewest")]
    pub placement: Placement,
    /// In which order jobs are assigned to profiles (not for `weighted`).
    #[arg(long, value_parser = one_of(ORDERS), default_value = "longest")]
    pub order: WitnessJobOrder,
    /// Greatest number of witnesses in a profile.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Number of machines that execute the profiles, one after the other; one for each profile if not given.
    #[arg(long, value_name = "M", value_parser = copies)]
    pub machines: Option<usize>,
    /// Edges as witnesses, rather than nodes.
    #[arg(long)]
    pub edges: bool,
    /// The condition that the distribution must meet.
    #[arg(long, value_enum, default_value_t = Condition::Pairwise)]
    pub check: Condition,
    /// How far a trace may be read at a branch: to its next symbol, so that rebuilding needs little memory, or to the next one of the
    /// branch's function.
    #[arg(long, value_parser = one_of(LOOKAHEADS), default_value = "next")]
    pub lookahead: Lookahead,
}

/// `trodden-lab graph reconstruct`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab graph reconstruct run.json     the file has \"profiles\" and \"traces\"

Exit status: 0 if the distribution is realizable, 1 if it is not, 2 if the input is bad.")]
pub struct Reconstruct {
    /// The file of the graph or the functions, with `profiles` and `traces`; `-` for standard input.
    pub file: PathBuf,
    /// Edges as witnesses, rather than nodes.
    #[arg(long)]
    pub edges: bool,
    /// The traces end somewhere, as those of a killed program do: print what is certain.
    #[arg(long)]
    pub cut: bool,
}

/// How witnesses are divided among profiles.
const STRATEGIES: [Choice<DistributionStrategy>; 4] = [
    (DistributionStrategy::Fine, "fine", "Branch by branch"),
    (DistributionStrategy::Function, "function", "Whole functions"),
    (DistributionStrategy::Grouped, "grouped", "Branches that share a cycle or an edge"),
    (DistributionStrategy::Weighted, "weighted", "By what each job adds to a profile; the best of all groupings"),
];

/// How the witnesses of a function are chosen.
const PLACEMENTS: [Choice<Placement>; 7] = [
    (Placement::Fewest, "fewest", "As few and as cheap as the strategy finds"),
    (Placement::Blocks, "blocks", "Every node, or every edge"),
    (Placement::Targets, "targets", "Targets of conditional branches"),
    (Placement::SpanningTree, "spanning-tree", "Edges outside of a maximum spanning tree (with --edges)"),
    (Placement::Paper, "paper", "Nodes by the paper's algorithm, which is not always realizable"),
    (Placement::Repaired, "repaired", "The same, repaired"),
    (Placement::Exact, "exact", "The cheapest, proven for small functions"),
];

/// Order of jobs.
const ORDERS: [Choice<WitnessJobOrder>; 2] = [
    (WitnessJobOrder::Given, "given", "As they are in the file"),
    (WitnessJobOrder::LongestFirst, "longest", "The most expensive first (longest processing time)"),
];

/// A condition for distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Condition {
    /// For each branch and pair of successors some profile has disjoint sets of first witnesses.
    Pairwise,
    /// The two theorems of the paper.
    Paper,
}

/// How far a trace is read at a branch.
const LOOKAHEADS: [Choice<Lookahead>; 2] = [
    (Lookahead::NextSymbol, "next", "To the next symbol"),
    (Lookahead::OwnComponent, "function", "To the next symbol of the branch's function"),
];
