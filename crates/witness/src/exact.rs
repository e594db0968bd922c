//! The cheapest witnesses of a small function, by branch and bound.
//!
//! More witnesses never distinguish less. So as long as some pair of successors has a first witness in common, one of the states on the
//! paths from them to their first witnesses must become a witness, or there is no solution: the search branches over these, the cheapest
//! first, and excludes each behind the branch that took it. A branch ends when its cost, with the cheapest of these states, is no less
//! than the best so far. The number of steps is limited; whether the search was finished is said.

use super::eliminate::Requirement;
use super::sets::disjoint;
use super::view::{View, first_of};
use std::collections::HashSet;

/// The cheapest set that distinguishes the required successors, from one that does, and whether it is proven to be so.
pub fn exact(view: &View, required: &[Requirement], known: Vec<bool>, steps: usize) -> (Vec<bool>, bool) {
    let mut search = Search { view, required, best_cost: view.sum(&known), best: known, steps };
    let (mut taken, mut excluded) = (vec![false; view.state_count()], vec![false; view.state_count()]);
    let finished = search.go(&mut taken, &mut excluded, 0.0);
    (search.best, finished)
}

struct Search<'a> {
    view: &'a View,
    required: &'a [Requirement],
    best: Vec<bool>,
    best_cost: f64,
    steps: usize,
}

impl Search<'_> {
    /// Searches below a partial choice; false if the steps were too few.
    fn go(&mut self, taken: &mut Vec<bool>, excluded: &mut Vec<bool>, cost: f64) -> bool {
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
            let with = cost + self.view.cost[state as usize];
            if with >= self.best_cost || !finished {
                break;
            }
            taken[state as usize] = true;
            finished = self.go(taken, excluded, with);
            taken[state as usize] = false;
            excluded[state as usize] = true;
            tried.push(state);
        }
        tried.into_iter().for_each(|s| excluded[s as usize] = false);
        finished
    }

    /// The states one of which must become a witness, for some pair that is not distinguished; `None` if there is none.
    fn open_pair(&self, taken: &[bool]) -> Option<Vec<u32>> {
        for requirement in self.required {
            let next = &self.view.branches[requirement.branch].next;
            let sets: Vec<Vec<u32>> = next.iter().map(|n| first_of(self.view, taken, *n)).collect();
            for i in 0..next.len() {
                for j in 0..i {
                    if requirement.has(i, j) && !disjoint(&sets[i], &sets[j]) {
                        return Some(self.between(taken, &[next[i], next[j]]));
                    }
                }
            }
        }
        None
    }

    /// States that can carry a witness on the paths to the first witnesses.
    fn between(&self, taken: &[bool], from: &[u32]) -> Vec<u32> {
        let (mut seen, mut work) = (HashSet::new(), from.to_vec());
        while let Some(state) = work.pop() {
            if !taken[state as usize] && seen.insert(state) {
                work.extend(&self.view.next[state as usize]);
            }
        }
        seen.into_iter().filter(|s| self.view.witness[*s as usize].is_some()).collect()
    }
}
