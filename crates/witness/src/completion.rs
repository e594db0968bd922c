//! Completes the distributions that strategies propose, and chooses the cheapest.
//!
//! Strategies consider one function at a time. Repair ([`repair`](super::repair)) then adds the witnesses that calls and returns need,
//! whose costs can exceed the differences between the strategies. Distributions are therefore compared after repair, by the cost of the
//! most expensive machine.

use super::automaton::AutomatonState;
use super::planned::{DistributionOptions, PlannedDistribution, plan_from_profiles, witness_count};
use super::program::{Witness, WitnessKind, WitnessProgram};
use super::repair::DistributionRepair;
use super::structure::PushdownStructure;
use super::weights::Weights;
use std::collections::HashMap;

pub(super) struct ProposedDistribution {
    pub profiles: Vec<Vec<Witness>>,
    /// For each branch, the profile that should distinguish its successors.
    pub home: HashMap<AutomatonState, usize>,
}

/// The inputs for completing distributions of a program.
pub(super) struct DistributionCompletion<'a> {
    pub program: &'a WitnessProgram,
    /// The program's analysed automaton.
    pub structure: &'a PushdownStructure,
    pub kind: WitnessKind,
    pub weights: &'a Weights,
    pub options: &'a DistributionOptions,
    /// Witnesses that must be recorded even if no branch needs them.
    pub entries: &'a [Witness],
}

impl DistributionCompletion<'_> {
    /// Returns the best candidate after completion: realizable distributions come before others, then the cost of the most expensive
    /// machine decides, then the total cost.
    ///
    /// # Panics
    /// `candidates` is empty.
    pub fn find_cheapest_completion(&self, candidates: Vec<ProposedDistribution>) -> PlannedDistribution {
        let mut candidates: Vec<(f64, ProposedDistribution)> = candidates.into_iter().map(|c| (self.lower_bound(&c.profiles), c)).collect();
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut best: Option<((bool, f64, f64), PlannedDistribution)> = None;
        for (bound, candidate) in candidates {
            // The tolerance is needed because the same numbers may be summed in different orders.
            if best.as_ref().is_some_and(|((violated, cost, _), _)| !violated && bound * (1.0 - 1e-9) > *cost) {
                break;
            }
            let planned = self.complete_distribution(candidate);
            let cost = (!planned.check.is_realizable(), planned.costs.iter().copied().fold(0.0, f64::max), planned.costs.iter().sum());
            if best.as_ref().is_none_or(|(lowest, _)| cost < *lowest) {
                best = Some((cost, planned));
            }
        }
        best.expect("the caller passes a candidate").1
    }

    /// Returns a lower bound for the most expensive machine after completion, which only adds witnesses: the cost of the most expensive
    /// profile, or the total cost divided evenly among the machines.
    fn lower_bound(&self, profiles: &[Vec<Witness>]) -> f64 {
        let loads: Vec<f64> = profiles.iter().map(|p| self.weights.sum(self.kind, p)).collect();
        let even = self.options.machines.map_or(0.0, |machines| loads.iter().sum::<f64>() / machines.max(1) as f64);
        loads.into_iter().fold(even, f64::max)
    }

    /// Repairs the profiles, adds the `entries`, and repairs again: if an entry comes first after both successors of a branch, it hides the
    /// witnesses that distinguished them.
    fn complete_distribution(&self, ProposedDistribution { mut profiles, home }: ProposedDistribution) -> PlannedDistribution {
        let Self { program, structure, weights, .. } = *self;
        let (limit, lookahead) = (self.options.limit, self.options.lookahead);
        let assigned = witness_count(&profiles);
        let mut check = DistributionRepair { program, structure, weights, home, limit, lookahead }.repair_profiles(&mut profiles);
        let mut repaired = witness_count(&profiles) - assigned;
        if !self.entries.is_empty() {
            self.add_entries(&mut profiles);
            let before = witness_count(&profiles);
            check =
                DistributionRepair { program, structure, weights, home: HashMap::new(), limit, lookahead }.repair_profiles(&mut profiles);
            repaired += witness_count(&profiles) - before;
        }
        PlannedDistribution { repaired, ..plan_from_profiles(self.kind, profiles, check, weights, self.options) }
    }

    /// Adds the `entries` to the profiles that have room, those with the lowest load first, and the rest to new profiles.
    fn add_entries(&self, profiles: &mut Vec<Vec<Witness>>) {
        let (mut entries, limit) = (self.entries.to_vec(), self.options.limit.unwrap_or(usize::MAX));
        if limit < usize::MAX {
            entries.retain(|e| !profiles.iter().any(|p| p.contains(e)));
        }
        let cost = |p: &Vec<Witness>| self.weights.sum(self.kind, p);
        let mut order: Vec<usize> = (0..profiles.len()).collect();
        order.sort_by(|a, b| cost(&profiles[*a]).total_cmp(&cost(&profiles[*b])));
        for at in order {
            let room = limit.saturating_sub(profiles[at].len()).min(entries.len());
            profiles[at].extend(entries.drain(..room));
        }
        profiles.extend(entries.chunks(limit.max(1)).map(<[Witness]>::to_vec));
        for profile in profiles {
            profile.sort_unstable();
            profile.dedup();
        }
    }
}
