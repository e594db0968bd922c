//! Finds the cheapest witnesses of a small function by branch and bound.
//!
//! More witnesses never distinguish less. So as long as some pair of successors has a first witness in common, one of the states on the
//! paths from them to their first witnesses must become a witness. The search tries these states, the cheapest first, and excludes each of
//! them after it has been tried. It prunes a branch when its cost plus that of the next state is no less than the best cost so far. The
//! number of steps is limited.
use super::eliminate::Requirement;
use super::sets::disjoint;
use super::view::{View, first_of};
use std::collections::HashSet;

/// Improves `known`, a set that distinguishes the required successors. Returns the best set found, and whether it is proven optimal.
pub fn exact(view: &View, required: &[Requirement], known: Vec<bool>, steps: usize) -> (Vec<bool>, bool) {
    let mut search = ExactSearch { view, required, best_cost: view.sum(&known), best: known, steps };
    let (mut taken, mut excluded) = (vec![false; view.state_count()], vec![false; view.state_count()]);
    let finished = search.search(&mut taken, &mut excluded, 0.0);
    (search.best, finished)
}

struct ExactSearch<'a> {
    view: &'a View,
    required: &'a [Requirement],
    best: Vec<bool>,
    best_cost: f64,
    steps: usize,
}

impl ExactSearch<'_> {
    /// Extends a partial choice. Returns false if the step limit was reached.
    fn search(&mut self, taken: &mut Vec<bool>, excluded: &mut Vec<bool>, cost: f64) -> bool {
        if self.steps == 0 {
            return false;
        }
        self.steps -= 1;
        let Some(mut candidates) = self.open_pair(taken) else {
            if cost < self.best_cost {
                (self.best_cost, self.best) = (cost, taken.clone());
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
            taken[state as usize] = true;
            finished = self.search(taken, excluded, new_cost);
            taken[state as usize] = false;
            excluded[state as usize] = true;
            tried.push(state);
        }
        tried.into_iter().for_each(|s| excluded[s as usize] = false);
        finished
    }

    /// Returns the states of which one must become a witness, for a pair that is not distinguished; `None` if all pairs are.
    fn open_pair(&self, taken: &[bool]) -> Option<Vec<u32>> {
        for requirement in self.required {
            let next = &self.view.branches[requirement.branch].next;
            let sets: Vec<Vec<u32>> = next.iter().map(|n| first_of(self.view, taken, *n)).collect();
            for i in 0..next.len() {
                for j in 0..i {
                    if requirement.has(i, j) && !disjoint(&sets[i], &sets[j]) {
                        return Some(self.states_before_witnesses(taken, &[next[i], next[j]]));
                    }
                }
            }
        }
        None
    }

    /// Returns the states that can carry a witness on the paths from `from` to the first witnesses.
    fn states_before_witnesses(&self, taken: &[bool], from: &[u32]) -> Vec<u32> {
        let (mut seen, mut work) = (HashSet::new(), from.to_vec());
        while let Some(state) = work.pop() {
            if !taken[state as usize] && seen.insert(state) {
                work.extend(&self.view.next[state as usize]);
            }
        }
        seen.into_iter().filter(|s| self.view.witness[*s as usize].is_some()).collect()
    }
}
