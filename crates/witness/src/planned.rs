//! What is asked of a distribution, and a distribution with what it costs.

use super::Distribution;
use super::condition::{Check, Lookahead};
use super::program::{Witness, WitnessKind};
use super::weights::Weights;

/// How jobs are formed and assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DistributionStrategy {
    /// Fine-grained: a job for each branch that diamonds begin at, or a cycle without diamonds.
    Fine,
    /// Function-wise: a job for each function.
    Function,
    /// Optimised grouping: a job for branches that share a cycle or an edge.
    Grouped,
    /// By what each job adds to a profile.
    Weighted,
}

/// In which order jobs are assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WitnessJobOrder {
    /// As they come: functions by number, branches in their order.
    Given,
    /// The most expensive first.
    LongestFirst,
}

/// What a distribution is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistributionOptions {
    /// Number of profiles; more if a limit makes them necessary.
    pub profiles: usize,
    /// How jobs are formed and assigned.
    pub strategy: DistributionStrategy,
    /// In which order jobs are assigned.
    pub order: WitnessJobOrder,
    /// Greatest number of witnesses in a profile.
    pub limit: Option<usize>,
    /// Number of machines; one for each profile if not given.
    pub machines: Option<usize>,
    /// How far traces may be read at a branch.
    pub lookahead: Lookahead,
}

/// A distribution with what it costs.
#[derive(Clone, Debug)]
pub struct PlannedJob {
    /// The distribution.
    pub distribution: Distribution,
    /// What the check of the whole found: violations that could not be repaired, and branches that need far lookahead.
    pub check: Check,
    /// Witnesses that repair added.
    pub repaired: usize,
    /// The machine of each profile.
    pub machine_of: Vec<usize>,
    /// What each machine's profiles cost together.
    pub costs: Vec<f64>,
}

/// The witnesses of all profiles.
pub fn witness_count(profiles: &[Vec<Witness>]) -> usize {
    profiles.iter().map(Vec::len).sum()
}

/// Assigns profiles to machines.
pub(super) fn planned_from(
    kind: WitnessKind,
    profiles: Vec<Vec<Witness>>,
    check: Check,
    weights: &Weights,
    options: &DistributionOptions,
) -> PlannedJob {
    let loads: Vec<f64> = profiles.iter().map(|p| weights.sum(kind, p)).collect();
    let machines = options.machines.unwrap_or(profiles.len()).max(1);
    let machine_of = assign_to_machines(&loads, machines);
    let mut costs = vec![0.0; machines];
    loads.iter().zip(&machine_of).for_each(|(load, machine)| costs[*machine] += load);
    PlannedJob { distribution: Distribution { kind, profiles }, check, repaired: 0, machine_of, costs }
}

/// Loads to machines, the longest first, each to the machine with the least load.
pub fn assign_to_machines(loads: &[f64], machines: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..loads.len()).collect();
    order.sort_by(|a, b| loads[*b].total_cmp(&loads[*a]));
    let (mut of, mut sums, mut counts) = (vec![0; loads.len()], vec![0.0; machines], vec![0usize; machines]);
    for at in order {
        let least = (0..machines).min_by(|a, b| f64::total_cmp(&sums[*a], &sums[*b]).then(counts[*a].cmp(&counts[*b])));
        let least = least.expect("there is a machine");
        of[at] = least;
        sums[least] += loads[at];
        counts[least] += 1;
    }
    of
}
