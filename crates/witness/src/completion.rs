//! Distributions as they are carried out: what a strategy assigned, completed by what the whole program asks for besides.
//!
//! Strategies look at one function at a time. Repair ([`repair`](super::repair)) then adds what calls and returns need, which can cost more
//! than strategies differ by. So distributions are compared after it, by the most expensive machine.

use super::automaton::AutomatonState;
use super::planned::{DistributionOptions, PlannedJob, planned_from, witness_count};
use super::program::{Witness, WitnessKind, WitnessProgram};
use super::repair::Repair;
use super::structure::Structure;
use super::weights::Weights;
use std::collections::HashMap;

/// What a strategy assigned.
pub(super) struct Candidate {
    /// The witnesses of each profile.
    pub profiles: Vec<Vec<Witness>>,
    /// Which profile is to distinguish the successors of each branch.
    pub home: HashMap<AutomatonState, usize>,
}

/// What completes distributions of a program.
pub(super) struct Completion<'a> {
    /// The program.
    pub program: &'a WitnessProgram,
    /// Its automaton, analysed.
    pub structure: &'a Structure,
    /// Whether witnesses are nodes or edges.
    pub kind: WitnessKind,
    /// Costs.
    pub weights: &'a Weights,
    /// What the distribution is to be like.
    pub options: &'a DistributionOptions,
    /// Witnesses to be in one profile whatever branches need.
    pub entries: &'a [Witness],
}

impl Completion<'_> {
    /// The candidate that is cheapest once it is complete; of those that are equally cheap, the one that came first.
    ///
    /// # Panics
    /// There is no candidate.
    pub fn cheapest(&self, candidates: Vec<Candidate>) -> PlannedJob {
        let mut candidates: Vec<(f64, Candidate)> = candidates.into_iter().map(|c| (self.lower_bound(&c.profiles), c)).collect();
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut best: Option<((bool, f64, f64), PlannedJob)> = None;
        for (bound, candidate) in candidates {
            // Sums of the same numbers in another order differ a little.
            if best.as_ref().is_some_and(|((violated, cost, _), _)| !violated && bound * (1.0 - 1e-9) > *cost) {
                break;
            }
            let planned = self.complete(candidate);
            let cost = (!planned.check.is_realizable(), planned.costs.iter().copied().fold(0.0, f64::max), planned.costs.iter().sum());
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, planned));
            }
        }
        best.expect("there is a candidate").1
    }

    /// What the most expensive machine cannot go below, since completing only adds witnesses: what profiles cost by themselves, or evenly
    /// divided among the machines.
    fn lower_bound(&self, profiles: &[Vec<Witness>]) -> f64 {
        let loads: Vec<f64> = profiles.iter().map(|p| self.weights.sum(self.kind, p)).collect();
        let even = self.options.machines.map_or(0.0, |machines| loads.iter().sum::<f64>() / machines.max(1) as f64);
        loads.into_iter().fold(even, f64::max)
    }

    /// Repairs, adds the entries, and repairs what a profile that only has entries lacks.
    fn complete(&self, Candidate { mut profiles, home }: Candidate) -> PlannedJob {
        let Self { program, structure, weights, .. } = *self;
        let (limit, lookahead) = (self.options.limit, self.options.lookahead);
        let assigned = witness_count(&profiles);
        let mut check = Repair { program, structure, weights, home, limit, lookahead }.run(&mut profiles);
        let mut repaired = witness_count(&profiles) - assigned;
        if !self.entries.is_empty() {
            self.add_entries(&mut profiles);
            let before = witness_count(&profiles);
            check = Repair { program, structure, weights, home: HashMap::new(), limit, lookahead }.run(&mut profiles);
            repaired += witness_count(&profiles) - before;
        }
        PlannedJob { repaired, ..planned_from(self.kind, profiles, check, weights, self.options) }
    }

    /// Puts the entries where the load is least and room is.
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
