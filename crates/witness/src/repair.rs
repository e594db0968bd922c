//! Repair: adds witnesses to a distribution that violates the pairwise condition.
//!
//! For a pair of successors that no profile distinguishes, the responsible profile receives the witnesses that would come first after the
//! cheaper successor if every node or edge were a witness. If these do not suffice, it also receives the witnesses that would come first
//! after the other successor. With both, the profile records the same next symbol at this branch as a profile of all witnesses would.
//! Violations that remain cannot be resolved by a next symbol; an example is two callbacks from unknown code between which no known code
//! runs. Each pass checks the complete program.

use super::automaton::AutomatonState;
use super::condition::{ConditionCheck, Lookahead, Violation, check_structure, mark_witnesses};
use super::first::FirstWitnessSets;
use super::program::{Witness, WitnessProgram, WitnessSet};
use super::sets::END;
use super::structure::{PushdownStructure, WitnessScope};
use super::weights::Weights;
use std::collections::{HashMap, HashSet};

/// Maximum number of passes. Of three benchmark programs, one needs two passes, the others one. If the witnesses of both successors do not
/// fit the limit, each pass would add a profile (docs/benchmarks/constants.md).
const MAX_REPAIR_PASSES: usize = 24;

/// The inputs of a repair.
pub struct DistributionRepair<'a> {
    /// The program.
    pub program: &'a WitnessProgram,
    /// The analysed automaton of the program.
    pub structure: &'a PushdownStructure,
    /// Costs of witnesses.
    pub weights: &'a Weights,
    /// For each branch, the profile that should distinguish its successors, if it is known. If it is not, the cheapest profile should.
    pub home: HashMap<AutomatonState, usize>,
    /// Maximum number of witnesses in a profile.
    pub limit: Option<usize>,
    /// Part of the traces that may be read at a branch.
    pub lookahead: Lookahead,
}

impl DistributionRepair<'_> {
    /// Adds witnesses to the profiles until the condition holds or no progress is made. Returns the last check.
    pub fn repair_profiles(&mut self, profiles: &mut Vec<Vec<Witness>>) -> ConditionCheck {
        let all = WitnessSet::full(self.program.witness_count(self.structure.pushdown.kind()));
        let whole = self.structure.whole();
        let mut full = None;
        for _ in 0..MAX_REPAIR_PASSES {
            let check = check_structure(self.structure, &self.members(profiles), self.lookahead);
            if check.is_realizable() {
                return check;
            }
            let full = full.get_or_insert_with(|| FirstWitnessSets::new(self.structure, &whole, &all));
            if !self.add_witnesses_for(&check.violations, full, &whole, profiles) {
                return check;
            }
        }
        check_structure(self.structure, &self.members(profiles), self.lookahead)
    }

    fn members(&self, profiles: &[Vec<Witness>]) -> Vec<WitnessSet> {
        mark_witnesses(self.program, self.structure.pushdown.kind(), profiles)
    }

    /// Adds witnesses for each violation. Returns false if there was no witness to add.
    fn add_witnesses_for(
        &mut self,
        violations: &[Violation],
        full: &FirstWitnessSets,
        whole: &WitnessScope,
        profiles: &mut Vec<Vec<Witness>>,
    ) -> bool {
        let mut sets: Vec<HashSet<Witness>> = profiles.iter().map(|p| p.iter().copied().collect()).collect();
        let mut helped: HashSet<AutomatonState> = HashSet::new();
        let mut added = false;
        for violation in violations {
            if violation.successors.iter().any(|s| helped.contains(s)) {
                continue;
            }
            let candidates = violation.successors.map(|s| self.first_witnesses_after(full, whole, s));
            let at = self.choose_profile_for_branch(violation.state, &candidates, &mut sets, profiles);
            let missing = candidates.map(|b| b.into_iter().filter(|w| !sets[at].contains(w)).collect::<Vec<_>>());
            let kind = self.structure.pushdown.kind();
            let cost = |side: usize| if missing[side].is_empty() { f64::INFINITY } else { self.weights.sum(kind, &missing[side]) };
            let side = usize::from(cost(1) < cost(0));
            if missing[side].is_empty() {
                continue;
            }
            added = true;
            helped.insert(violation.successors[side]);
            sets[at].extend(&missing[side]);
            profiles[at].extend(&missing[side]);
        }
        profiles.iter_mut().for_each(|p| p.sort_unstable());
        added
    }

    /// Returns the first witnesses after a state, assuming that every node or edge is a witness.
    fn first_witnesses_after(&self, full: &FirstWitnessSets, whole: &WitnessScope, state: AutomatonState) -> Vec<Witness> {
        let parts = full.first_symbol_sets(self.structure, whole, state);
        let mut all: Vec<Witness> = parts.iter().flat_map(|s| full.sets.get(*s)).filter(|s| **s != END).map(|s| Witness(*s)).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|w| self.program.check_witness(self.structure.pushdown.kind(), *w).is_ok());
        all
    }

    /// Returns the profile that should distinguish the successors of a branch, with room for the candidates of both. Adds a profile if
    /// necessary.
    fn choose_profile_for_branch(
        &mut self,
        state: AutomatonState,
        candidates: &[Vec<Witness>; 2],
        sets: &mut Vec<HashSet<Witness>>,
        profiles: &mut Vec<Vec<Witness>>,
    ) -> usize {
        let kind = self.structure.pushdown.kind();
        let needs = |set: &HashSet<Witness>| candidates.iter().flatten().filter(|w| !set.contains(w)).count();
        let has_room = |set: &HashSet<Witness>| self.limit.is_none_or(|limit| set.len() + needs(set) <= limit);
        if let Some(&home) = self.home.get(&state).filter(|home| has_room(&sets[**home])) {
            return home;
        }
        let cost = |at: &usize| self.weights.sum(kind, &profiles[*at]);
        let cheapest = (0..sets.len()).filter(|at| has_room(&sets[*at])).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let at = cheapest.unwrap_or_else(|| {
            sets.push(HashSet::new());
            profiles.push(Vec::new());
            sets.len() - 1
        });
        self.home.insert(state, at);
        at
    }
}
