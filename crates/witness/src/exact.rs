//! Finds the cheapest witnesses of a small function by branch and bound.
//!
//! Additional witnesses never distinguish less. So while two successors have a first witness in common, one of the states on the paths to
//! their first witnesses must become a witness. The search tries these states, the cheapest first, and excludes each state after it has
//! been tried. It abandons a choice whose cost plus the next state's cost is no less than the best cost so far. The number of steps is
//! limited.
use super::eliminate::RequiredDistinction;
use super::sets::disjoint;
use super::view::{StateGraph, first_of};
use std::collections::HashSet;

/// Improves `known`, a set that distinguishes the required successors. Returns the best set found, and whether it is proven optimal.
pub fn find_cheapest_set_exactly(view: &StateGraph, required: &[RequiredDistinction], known: Vec<bool>, steps: usize) -> (Vec<bool>, bool) {
    let mut search = ExactSearch { view, required, best_cost: view.sum(&known), best: known, steps };
    let (mut chosen, mut excluded) = (vec![false; view.state_count()], vec![false; view.state_count()]);
    let finished = search.search(&mut chosen, &mut excluded, 0.0);
    (search.best, finished)
}

struct ExactSearch<'a> {
    view: &'a StateGraph,
    required: &'a [RequiredDistinction],
    best: Vec<bool>,
    best_cost: f64,
    steps: usize,
}

impl ExactSearch<'_> {
    /// Extends a partial choice. Returns false if the step limit was reached.
    fn search(&mut self, chosen: &mut Vec<bool>, excluded: &mut Vec<bool>, cost: f64) -> bool {
        if self.steps == 0 {
            return false;
        }
        self.steps -= 1;
        let Some(mut candidates) = self.states_for_open_pair(chosen) else {
            if cost < self.best_cost {
                (self.best_cost, self.best) = (cost, chosen.clone());
            }
            return true;
        };
        candidates.retain(|s| !excluded[*s as usize]);
        candidates.sort_by(|a, b| self.view.cost[*a as usize].total_cmp(&self.view.cost[*b as usize]).then(a.cmp(b)));
        let (mut finished, mut tried) = (true, Vec::new());
        for state in candidates {
            let new_cost = cost + self.view.cost[state as usize];
            if new_cost >= self.best_cost || !finished {
                break;
            }
            chosen[state as usize] = true;
            finished = self.search(chosen, excluded, new_cost);
            chosen[state as usize] = false;
            excluded[state as usize] = true;
            tried.push(state);
        }
        tried.into_iter().for_each(|s| excluded[s as usize] = false);
        finished
    }

    /// Returns, for a pair that is not distinguished, candidates of which at least one must become a witness. Returns `None` if all pairs
    /// are distinguished.
    fn states_for_open_pair(&self, chosen: &[bool]) -> Option<Vec<u32>> {
        for requirement in self.required {
            let next = &self.view.branches[requirement.branch].next;
            let sets: Vec<Vec<u32>> = next.iter().map(|n| first_of(self.view, chosen, *n)).collect();
            for i in 0..next.len() {
                for j in 0..i {
                    if requirement.contains(i, j) && !disjoint(&sets[i], &sets[j]) {
                        return Some(self.states_before_witnesses(chosen, &[next[i], next[j]]));
                    }
                }
            }
        }
        None
    }

    /// Returns the states that can have a witness on the paths from `from` to the first witnesses.
    fn states_before_witnesses(&self, chosen: &[bool], from: &[u32]) -> Vec<u32> {
        let (mut seen, mut work) = (HashSet::new(), from.to_vec());
        while let Some(state) = work.pop() {
            if !chosen[state as usize] && seen.insert(state) {
                work.extend(&self.view.next[state as usize]);
            }
        }
        seen.into_iter().filter(|s| self.view.witness[*s as usize].is_some()).collect()
    }
}
