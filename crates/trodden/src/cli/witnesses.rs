//! Witnesses of a graph, or of several functions, and executions from partial traces.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_flow::witness::{DistributionStrategy, Lookahead, Placement, WitnessJobOrder};

/// Most profiles that can be asked for.
const MOST_PROFILES: usize = 4096;

/// `trodden graph witnesses`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden graph witnesses loop.json --profiles 2
  trodden graph witnesses program.json --profiles 4 --strategy grouped --limit 30 --machines 2
  trodden graph witnesses loop.json --edges
  trodden graph witnesses distribution.json --check paper     the file has \"profiles\"

Exit status: 0 if the distribution is realizable, 1 if it is not, 2 if the input is bad.")]
pub struct Witnesses {
    /// The file of the graph or the functions; `-` for standard input. If it has `profiles`, that distribution is checked.
    pub file: PathBuf,
    /// Number of profiles: runs among which the witnesses are divided. With --limit there may be more.
    #[arg(short = 'k', long, value_name = "K", default_value_t = 1, value_parser = profiles)]
    pub profiles: usize,
    /// How witnesses are divided.
    #[arg(long, value_enum, default_value_t = WitnessStrategy::Weighted)]
    pub strategy: WitnessStrategy,
    /// How witnesses are chosen: `fewest` leaves it to the strategy; all others choose for each function by a fixed rule, and then divide
    /// whole functions.
    #[arg(long, value_enum, default_value_t = WitnessPlacement::Fewest)]
    pub placement: WitnessPlacement,
    /// In which order jobs are assigned to profiles (not for `weighted`).
    #[arg(long, value_enum, default_value_t = JobOrder::Longest)]
    pub order: JobOrder,
    /// Greatest number of witnesses in a profile.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Number of machines that execute the profiles, one after the other; one for each profile if not given.
    #[arg(long, value_name = "M", value_parser = profiles)]
    pub machines: Option<usize>,
    /// Edges as witnesses, rather than nodes.
    #[arg(long)]
    pub edges: bool,
    /// The condition that the distribution must meet.
    #[arg(long, value_enum, default_value_t = Condition::Pairwise)]
    pub check: Condition,
    /// How far a trace may be read at a branch: to its next symbol, so that rebuilding needs little memory, or to the next one of the
    /// branch's function.
    #[arg(long, value_enum, default_value_t = HowFar::Next)]
    pub lookahead: HowFar,
}

/// `trodden graph reconstruct`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden graph reconstruct run.json     the file has \"profiles\" and \"traces\"

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WitnessStrategy {
    /// Branch by branch.
    Fine,
    /// Whole functions.
    Function,
    /// Branches that share a cycle or an edge.
    Grouped,
    /// By what each job adds to a profile; the best of all groupings.
    Weighted,
}

impl From<WitnessStrategy> for DistributionStrategy {
    fn from(strategy: WitnessStrategy) -> DistributionStrategy {
        match strategy {
            WitnessStrategy::Fine => DistributionStrategy::Fine,
            WitnessStrategy::Function => DistributionStrategy::Function,
            WitnessStrategy::Grouped => DistributionStrategy::Grouped,
            WitnessStrategy::Weighted => DistributionStrategy::Weighted,
        }
    }
}

/// How the witnesses of a function are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WitnessPlacement {
    /// As few and as cheap as the strategy finds.
    Fewest,
    /// Every node, or every edge.
    Blocks,
    /// Targets of conditional branches.
    Targets,
    /// Edges outside of a maximum spanning tree (with --edges).
    SpanningTree,
    /// Nodes by the paper's algorithm, which is not always realizable.
    Paper,
    /// The same, repaired.
    Repaired,
    /// The cheapest, proven for small functions.
    Exact,
}

impl WitnessPlacement {
    /// The placement; none where the strategy places.
    pub fn published(self) -> Option<Placement> {
        match self {
            WitnessPlacement::Fewest => None,
            WitnessPlacement::Blocks => Some(Placement::Blocks),
            WitnessPlacement::Targets => Some(Placement::Targets),
            WitnessPlacement::SpanningTree => Some(Placement::SpanningTree),
            WitnessPlacement::Paper => Some(Placement::Paper),
            WitnessPlacement::Repaired => Some(Placement::Repaired),
            WitnessPlacement::Exact => Some(Placement::Exact),
        }
    }
}

/// Order of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JobOrder {
    /// As they are in the file.
    Given,
    /// The most expensive first (longest processing time).
    Longest,
}

impl From<JobOrder> for WitnessJobOrder {
    fn from(order: JobOrder) -> WitnessJobOrder {
        match order {
            JobOrder::Given => WitnessJobOrder::Given,
            JobOrder::Longest => WitnessJobOrder::LongestFirst,
        }
    }
}

/// A condition for distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Condition {
    /// For each branch and pair of successors some profile has disjoint sets of first witnesses.
    Pairwise,
    /// The two theorems of the paper.
    Paper,
}

/// How far a trace is read at a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HowFar {
    /// To the next symbol.
    Next,
    /// To the next symbol of the branch's function.
    Function,
}

impl From<HowFar> for Lookahead {
    fn from(far: HowFar) -> Lookahead {
        match far {
            HowFar::Next => Lookahead::NextSymbol,
            HowFar::Function => Lookahead::OwnComponent,
        }
    }
}

/// A number of profiles.
fn profiles(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|e| format!("{e}"))?;
    match number {
        1..=MOST_PROFILES => Ok(number),
        _ => Err(format!("between 1 and {MOST_PROFILES}")),
    }
}
