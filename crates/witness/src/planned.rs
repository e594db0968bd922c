//! The options of a distribution, and a planned distribution with its costs.

use super::Distribution;
use super::condition::{ConditionCheck, Lookahead};
use super::program::{Witness, WitnessKind};
use super::weights::Weights;

/// How branches are grouped into jobs, and jobs assigned to profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DistributionStrategy {
    /// A separate job for each branch.
    Fine,
    /// A job for each function.
    Function,
    /// A job for each group of branches that share a cycle or an edge.
    Grouped,
    /// Assigns each job to the profile whose machine then has the lowest load, and takes the best result of all groupings and strategies.
    Weighted,
}

/// Order in which jobs are assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WitnessJobOrder {
    /// Functions by number, branches in their order.
    Given,
    /// Most expensive first.
    LongestFirst,
}

/// Requested properties of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistributionOptions {
    /// Number of profiles; there may be more if a limit requires it.
    pub profiles: usize,
    /// How branches are grouped into jobs, and jobs assigned to profiles.
    pub strategy: DistributionStrategy,
    /// Order in which jobs are assigned.
    pub order: WitnessJobOrder,
    /// Maximum number of witnesses in a profile.
    pub limit: Option<usize>,
    /// Number of machines; one per profile if `None`.
    pub machines: Option<usize>,
    /// Part of the traces that may be read to distinguish the successors of a branch.
    pub lookahead: Lookahead,
}

/// A planned distribution with its costs.
#[derive(Clone, Debug)]
pub struct PlannedDistribution {
    /// The distribution.
    pub distribution: Distribution,
    /// Result of the final check: violations that could not be repaired, and branches that need an unbounded lookahead.
    pub check: ConditionCheck,
    /// Number of witnesses that repair added.
    pub repaired: usize,
    /// Machine of each profile.
    pub machine_of: Vec<usize>,
    /// Total cost of each machine's profiles.
    pub costs: Vec<f64>,
}

/// Returns the number of witnesses in all profiles.
pub fn witness_count(profiles: &[Vec<Witness>]) -> usize {
    profiles.iter().map(Vec::len).sum()
}

/// Assigns profiles to machines, and computes the costs.
pub(super) fn plan_from_profiles(
    kind: WitnessKind,
    profiles: Vec<Vec<Witness>>,
    check: ConditionCheck,
    weights: &Weights,
    options: &DistributionOptions,
) -> PlannedDistribution {
    let loads: Vec<f64> = profiles.iter().map(|p| weights.sum(kind, p)).collect();
    let machines = options.machines.unwrap_or(profiles.len()).max(1);
    let machine_of = assign_to_machines(&loads, machines);
    let mut costs = vec![0.0; machines];
    loads.iter().zip(&machine_of).for_each(|(load, machine)| costs[*machine] += load);
    PlannedDistribution { distribution: Distribution { kind, profiles }, check, repaired: 0, machine_of, costs }
}

/// Assigns loads to machines, the largest first, each to the machine with the lowest load. Returns the machine of each load.
pub fn assign_to_machines(loads: &[f64], machines: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..loads.len()).collect();
    order.sort_by(|a, b| loads[*b].total_cmp(&loads[*a]));
    let (mut of, mut sums, mut counts) = (vec![0; loads.len()], vec![0.0; machines], vec![0usize; machines]);
    for at in order {
        let least_loaded = (0..machines).min_by(|a, b| f64::total_cmp(&sums[*a], &sums[*b]).then(counts[*a].cmp(&counts[*b])));
        let least_loaded = least_loaded.expect("there is at least one machine");
        of[at] = least_loaded;
        sums[least_loaded] += loads[at];
        counts[least_loaded] += 1;
    }
    of
}
