//! Elimination: starting from a set of witnesses that distinguishes the required successors, drops witnesses, the most expensive first,
//! while the set still distinguishes them.
//!
//! Two successors are distinguished if the sets of the witnesses that can come first after them (the paper's sets W) are disjoint. Dropping
//! a witness `w` replaces it, in each of these sets, by the first witnesses after it. Additional witnesses never distinguish less. So no
//! witness of the result can be dropped, and the result depends only on the order. If edges are witnesses and the weights obey flow
//! conservation, the result costs no more than the edges outside a maximum spanning tree. Each attempt costs the number of sets that
//! contain `w`, and a search from `w` to the next witnesses.

use super::sets::disjoint;
use super::view::{SearchMemory, StateGraph};
use std::collections::HashMap;

/// Successors of a branch that must be distinguished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredDistinction {
    /// Index of the branch in the [`StateGraph`].
    pub branch: usize,
    /// Pairs of indices of successors, the lower first; `None` for all pairs.
    pub pairs: Option<Vec<(u32, u32)>>,
}

impl RequiredDistinction {
    /// Requires all successors of a branch to be distinguished.
    pub fn all(branch: usize) -> RequiredDistinction {
        RequiredDistinction { branch, pairs: None }
    }

    /// Returns true if this pair of successors must be distinguished.
    pub fn contains(&self, i: usize, j: usize) -> bool {
        let pair = (i.min(j) as u32, i.max(j) as u32);
        self.pairs.as_ref().is_none_or(|pairs| pairs.contains(&pair))
    }
}

/// Returns true if the marked states distinguish the required successors.
pub fn distinguishes_required_successors(view: &StateGraph, required: &[RequiredDistinction], member: &[bool]) -> bool {
    let mut scratch = SearchMemory::default();
    required.iter().all(|requirement| {
        let next = &view.branches[requirement.branch].next;
        let sets: Vec<Vec<u32>> = next.iter().map(|n| scratch.first_of(view, member, *n)).collect();
        (0..next.len()).all(|i| (0..i).all(|j| !requirement.contains(i, j) || disjoint(&sets[i], &sets[j])))
    })
}

/// Drops marked states, in this order, while the required successors are distinguished. They must be distinguished initially.
pub fn drop_unneeded_states(view: &StateGraph, required: &[RequiredDistinction], member: &mut [bool], order: &[u32]) {
    let mut sets = FirstWitnessesAfterBranches::new(view, required, member);
    for &state in order {
        if member[state as usize] && sets.can_drop_state(view, required, member, state) {
            sets.drop(view, member, state);
            member[state as usize] = false;
        }
    }
}

/// Returns the marked states, in ascending order.
pub fn marked_states(member: &[bool]) -> Vec<u32> {
    (0u32..).zip(member).filter(|(_, m)| **m).map(|(s, _)| s).collect()
}

/// Sorts states by descending cost, and equally expensive states by descending number, so that states near a function's entry are kept more
/// often.
pub fn most_expensive_first(view: &StateGraph, states: &[u32]) -> Vec<u32> {
    let mut order = states.to_vec();
    order.sort_by(|a, b| view.cost[*b as usize].total_cmp(&view.cost[*a as usize]).then(b.cmp(a)));
    order
}

/// Marks the separators, which are always witnesses, and returns the other marked states in the order in which dropping them is tried.
pub fn mark_separators_and_list_others(view: &StateGraph, member: &mut [bool]) -> Vec<u32> {
    view.separators.iter().for_each(|state| member[*state as usize] = true);
    let mut order = most_expensive_first(view, &marked_states(member));
    order.retain(|state| !view.separators.contains(state));
    order
}

/// The first witnesses after each successor of the required branches (the sets W of the paper), and for each witness the sets that contain
/// it.
struct FirstWitnessesAfterBranches {
    sets: Vec<Vec<Vec<u32>>>,
    containing: HashMap<u32, Vec<(u32, u32)>>,
    scratch: SearchMemory,
}

impl FirstWitnessesAfterBranches {
    fn new(view: &StateGraph, required: &[RequiredDistinction], member: &[bool]) -> FirstWitnessesAfterBranches {
        let mut all = FirstWitnessesAfterBranches { sets: Vec::new(), containing: HashMap::new(), scratch: SearchMemory::default() };
        for requirement in required {
            let branch = all.sets.len() as u32;
            let next = &view.branches[requirement.branch].next;
            let sets: Vec<Vec<u32>> = next.iter().map(|n| all.scratch.first_of(view, member, *n)).collect();
            for (successor, set) in (0u32..).zip(&sets) {
                set.iter().for_each(|s| all.containing.entry(*s).or_default().push((branch, successor)));
            }
            all.sets.push(sets);
        }
        all
    }

    fn can_drop_state(&mut self, view: &StateGraph, required: &[RequiredDistinction], member: &[bool], state: u32) -> bool {
        let Some(containing) = self.containing.get(&state) else { return true };
        let mut next_witnesses = self.scratch.first_after(view, member, state);
        next_witnesses.retain(|s| *s != state);
        containing.iter().all(|(branch, successor)| {
            let (sets, requirement) = (&self.sets[*branch as usize], &required[*branch as usize]);
            let mut others = (0..sets.len()).filter(|j| *j != *successor as usize && requirement.contains(*successor as usize, *j));
            others.all(|j| disjoint(&next_witnesses, &sets[j]))
        })
    }

    fn drop(&mut self, view: &StateGraph, member: &[bool], state: u32) {
        let Some(containing) = self.containing.remove(&state) else { return };
        let mut next_witnesses = self.scratch.first_after(view, member, state);
        next_witnesses.retain(|s| *s != state);
        for (branch, successor) in containing {
            let set = &mut self.sets[branch as usize][successor as usize];
            set.retain(|s| *s != state);
            for &new in &next_witnesses {
                if let Err(at) = set.binary_search(&new) {
                    set.insert(at, new);
                    self.containing.entry(new).or_default().push((branch, successor));
                }
            }
        }
    }
}
