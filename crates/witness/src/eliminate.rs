//! Fewest witnesses by elimination: from a set that distinguishes the required successors, witnesses are dropped, the most expensive
//! first, as long as it still does.
//!
//! Dropping a witness `w` replaces it in each set W by what comes first behind it. Since more witnesses never distinguish less, the order
//! decides the result alone: no witness of the result can be dropped. With edges as witnesses and a weighting that obeys flow
//! conservation that is what a maximum spanning tree leaves, or less. Each try costs the sets that have `w`, and a search behind `w` to
//! the next witnesses.

use super::sets::disjoint;
use super::view::{Scratch, View};
use std::collections::HashMap;

/// Successors of a branch that must be distinguished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The branch, by its place among those of the view.
    pub branch: usize,
    /// Pairs of places of successors, the lower first; `None` for all.
    pub pairs: Option<Vec<(u32, u32)>>,
}

impl Requirement {
    /// All successors of a branch.
    pub fn all(branch: usize) -> Requirement {
        Requirement { branch, pairs: None }
    }

    /// Whether the pair of these places is required.
    pub fn has(&self, i: usize, j: usize) -> bool {
        let pair = (i.min(j) as u32, i.max(j) as u32);
        self.pairs.as_ref().is_none_or(|pairs| pairs.contains(&pair))
    }
}

/// Whether the marked states distinguish the required successors.
pub fn distinguishes(view: &View, required: &[Requirement], member: &[bool]) -> bool {
    let mut scratch = Scratch::default();
    required.iter().all(|requirement| {
        let next = &view.branches[requirement.branch].next;
        let sets: Vec<Vec<u32>> = next.iter().map(|n| scratch.first_of(view, member, *n)).collect();
        (0..next.len()).all(|i| (0..i).all(|j| !requirement.has(i, j) || disjoint(&sets[i], &sets[j])))
    })
}

/// Drops marked states, in this order, as long as the required successors are distinguished. They must be so at first.
pub fn eliminate(view: &View, required: &[Requirement], member: &mut [bool], order: &[u32]) {
    let mut sets = BranchSets::new(view, required, member);
    for &state in order {
        if member[state as usize] && sets.can_drop(view, required, member, state) {
            sets.drop(view, member, state);
            member[state as usize] = false;
        }
    }
}

/// The marked states, ascending.
pub fn marked(member: &[bool]) -> Vec<u32> {
    (0u32..).zip(member).filter(|(_, m)| **m).map(|(s, _)| s).collect()
}

/// Some states, the most expensive first; of equal cost the later ones first, since entries are marked early.
pub fn most_expensive_first(view: &View, states: &[u32]) -> Vec<u32> {
    let mut order = states.to_vec();
    order.sort_by(|a, b| view.cost[*b as usize].total_cmp(&view.cost[*a as usize]).then(b.cmp(a)));
    order
}

/// The marked states that may be dropped, in the order in which they are tried. Separators are marked, and stay.
pub fn droppable(view: &View, member: &mut [bool]) -> Vec<u32> {
    view.separators.iter().for_each(|state| member[*state as usize] = true);
    let mut order = most_expensive_first(view, &marked(member));
    order.retain(|state| !view.separators.contains(state));
    order
}

/// The sets W of the successors of the required branches.
struct BranchSets {
    sets: Vec<Vec<Vec<u32>>>,
    with: HashMap<u32, Vec<(u32, u32)>>,
    scratch: Scratch,
}

impl BranchSets {
    fn new(view: &View, required: &[Requirement], member: &[bool]) -> BranchSets {
        let mut all = BranchSets { sets: Vec::new(), with: HashMap::new(), scratch: Scratch::default() };
        for requirement in required {
            let branch = all.sets.len() as u32;
            let next = &view.branches[requirement.branch].next;
            let sets: Vec<Vec<u32>> = next.iter().map(|n| all.scratch.first_of(view, member, *n)).collect();
            for (successor, set) in (0u32..).zip(&sets) {
                set.iter().for_each(|s| all.with.entry(*s).or_default().push((branch, successor)));
            }
            all.sets.push(sets);
        }
        all
    }

    fn can_drop(&mut self, view: &View, required: &[Requirement], member: &[bool], state: u32) -> bool {
        let Some(with) = self.with.get(&state) else { return true };
        let mut behind = self.scratch.first_behind(view, member, state);
        behind.retain(|s| *s != state);
        with.iter().all(|(branch, successor)| {
            let (sets, requirement) = (&self.sets[*branch as usize], &required[*branch as usize]);
            let mut others = (0..sets.len()).filter(|j| *j != *successor as usize && requirement.has(*successor as usize, *j));
            others.all(|j| disjoint(&behind, &sets[j]))
        })
    }

    fn drop(&mut self, view: &View, member: &[bool], state: u32) {
        let Some(with) = self.with.remove(&state) else { return };
        let mut behind = self.scratch.first_behind(view, member, state);
        behind.retain(|s| *s != state);
        for (branch, successor) in with {
            let set = &mut self.sets[branch as usize][successor as usize];
            set.retain(|s| *s != state);
            for &new in &behind {
                if let Err(at) = set.binary_search(&new) {
                    set.insert(at, new);
                    self.with.entry(new).or_default().push((branch, successor));
                }
            }
        }
    }
}
