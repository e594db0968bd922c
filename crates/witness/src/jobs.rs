//! Jobs: sets of branches that one profile distinguishes together.
//!
//! Source: D. Saha et al., section 4.1. There, a job is a set of diamonds and directed cycles. A function can have exponentially many
//! diamonds and cycles. Each has one fork, and the pairwise condition needs one profile for each pair of a fork's successors. So here, a
//! job is a set of branches. *Fine-grained*: one branch. *Function-wise*: all branches of a function. *Grouped*: branches whose diamonds
//! share a directed cycle (they are in one strongly connected component) or an edge (one branch lies between the other and its immediate
//! postdominator).

use super::eliminate::RequiredDistinction;
use super::sets::{Adjacency, components};
use super::view::{StateGraph, StateGraphBranch};
use std::collections::{BTreeMap, HashSet, VecDeque};
use trodden_flow::graph::Node;
use trodden_flow::placement::DisjointSets;

/// How branches are grouped into jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BranchGrouping {
    /// Each branch is a job.
    Fine,
    /// A job for all branches of a function.
    Function,
    /// A job for each group of branches that share a cycle or an edge.
    Grouped,
}

/// Branches of a function whose successors one profile distinguishes.
///
/// The *region* of a job contains the states that may become witnesses: all for whole functions, otherwise those near the successors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessJob {
    /// Index of the function's [`StateGraph`].
    pub view: usize,
    /// The successors to distinguish.
    pub required: Vec<RequiredDistinction>,
    /// States that may become witnesses, the nearest first.
    pub region: Vec<u32>,
    /// Whether the region is the complete function. Its order is then arbitrary.
    pub whole: bool,
    /// Set only for fine-grained jobs: true if no diamond begins at the branch, but one begins at another branch of its cycle. The paper
    /// has no such jobs. The profiles that break those diamonds usually also break the cycles, and so distinguish the successors of this
    /// branch.
    pub follows: bool,
}

/// Number of states near each successor of a branch that belong to a region. Of other states, only the first on each path belongs to it. If
/// this is 8, plans for three benchmark programs cost between a third less and a tenth more, by the weights. If it is 512, they cost up to
/// 2% less, but take up to five times as long (docs/benchmarks/constants.md).
const MAX_STATES_NEAR_SUCCESSOR: usize = 64;
/// In functions with more branches than this, there is no search for branches between others and their postdominators, or for branches
/// without diamonds. This bounds the time, which is quadratic for nested branches. Plans for three benchmark programs cost the same if this
/// is 0 or 100,000 (docs/benchmarks/constants.md).
const MAX_NESTED_BRANCHES: usize = 2000;

/// Returns the jobs of a function.
pub fn jobs(view: &StateGraph, index: usize, grouping: BranchGrouping) -> Vec<WitnessJob> {
    let all: Vec<usize> = (0..view.branches.len()).collect();
    let groups = match grouping {
        _ if all.is_empty() => Vec::new(),
        BranchGrouping::Fine => all.into_iter().map(|b| vec![b]).collect(),
        BranchGrouping::Function => vec![all],
        BranchGrouping::Grouped => group_branches(view),
    };
    let whole = grouping == BranchGrouping::Function;
    let follows = if grouping == BranchGrouping::Fine { mark_following_branches(view) } else { vec![false; view.branches.len()] };
    groups.into_iter().map(|g| WitnessJob { follows: follows[g[0]], ..new_job(view, index, g, whole) }).collect()
}

/// Marks the branches on cycles where no diamond begins, if one begins at another branch of the same component.
fn mark_following_branches(view: &StateGraph) -> Vec<bool> {
    if view.branches.len() > MAX_NESTED_BRANCHES {
        return vec![false; view.branches.len()];
    }
    let pairs: Vec<(u32, u32)> = (0u32..).zip(&view.next).flat_map(|(s, next)| next.iter().map(move |n| (s, *n))).collect();
    let component = components(&Adjacency::new(view.state_count(), &pairs));
    let of = |state: u32| component[state as usize];
    let cyclic: Vec<bool> = view.branches.iter().map(|b| b.next.iter().any(|n| of(*n) == of(b.state))).collect();
    let begins: Vec<bool> = view.branches.iter().zip(&cyclic).map(|(b, cyclic)| *cyclic && is_fork_of_diamond(view, b)).collect();
    let with: HashSet<u32> = view.branches.iter().zip(&begins).filter(|(_, begins)| **begins).map(|(b, _)| of(b.state)).collect();
    (0..view.branches.len()).map(|at| cyclic[at] && !begins[at] && with.contains(&of(view.branches[at].state))).collect()
}

/// Returns true if paths from two successors of a branch meet, or both reach the end of the run, without returning to the branch.
fn is_fork_of_diamond(view: &StateGraph, branch: &StateGraphBranch) -> bool {
    let mut reached: Vec<Option<usize>> = vec![None; view.state_count()];
    let mut ended = None;
    branch.next.iter().enumerate().any(|(at, successor)| {
        let mut work = vec![*successor];
        while let Some(state) = work.pop() {
            match reached[state as usize] {
                _ if state == branch.state => continue,
                Some(other) if other == at => continue,
                Some(_) => return true,
                None => reached[state as usize] = Some(at),
            }
            if view.ends[state as usize] && *ended.get_or_insert(at) != at {
                return true;
            }
            work.extend(&view.next[state as usize]);
        }
        false
    })
}

fn new_job(view: &StateGraph, index: usize, branches: Vec<usize>, whole: bool) -> WitnessJob {
    let region = match whole {
        true => (0..view.state_count() as u32).filter(|s| view.witness[*s as usize].is_some()).collect(),
        false => {
            let mut rank: BTreeMap<u32, usize> = BTreeMap::new();
            for (at, state) in branches.iter().flat_map(|b| states_near(view, *b)) {
                let known = rank.entry(state).or_insert(at);
                *known = at.min(*known);
            }
            let mut near: Vec<(usize, u32)> = rank.into_iter().map(|(state, at)| (at, state)).collect();
            near.sort_unstable();
            near.into_iter().map(|(_, state)| state).collect()
        }
    };
    WitnessJob { view: index, required: branches.into_iter().map(RequiredDistinction::all).collect(), region, whole, follows: false }
}

/// Returns the states near the successors of a branch, each with its rank by distance. Only states that can have a witness are returned;
/// the first of them on each path is always included.
pub fn states_near(view: &StateGraph, branch: usize) -> Vec<(usize, u32)> {
    let mut all = Vec::new();
    for &successor in &view.branches[branch].next {
        let (mut seen, mut queue, mut found) = (HashSet::from([successor]), VecDeque::from([(successor, false)]), 0);
        while let Some((state, is_after_witness)) = queue.pop_front() {
            let carries = view.witness[state as usize].is_some();
            if carries {
                if is_after_witness && found >= MAX_STATES_NEAR_SUCCESSOR {
                    continue;
                }
                all.push((found, state));
                found += 1;
            }
            for &next in &view.next[state as usize] {
                if seen.insert(next) {
                    queue.push_back((next, is_after_witness || carries));
                }
            }
        }
    }
    all
}

/// Groups the branches that share a cycle or an edge, in the order of their first branches.
fn group_branches(view: &StateGraph) -> Vec<Vec<usize>> {
    let pairs: Vec<(u32, u32)> = (0u32..).zip(&view.next).flat_map(|(s, next)| next.iter().map(move |n| (s, *n))).collect();
    let component = components(&Adjacency::new(view.state_count(), &pairs));
    let mut sets = DisjointSets::new(view.branches.len());
    let mut first_in: BTreeMap<u32, usize> = BTreeMap::new();
    for (branch, of) in view.branches.iter().enumerate() {
        let own = component[of.state as usize];
        // A branch on a cycle has a successor in its own component.
        if of.next.iter().any(|n| component[*n as usize] == own) {
            let first = *first_in.entry(own).or_insert(branch);
            sets.join(Node(first as u32), Node(branch as u32));
        }
    }
    if view.branches.len() <= MAX_NESTED_BRANCHES {
        join_nested_branches(view, &mut sets);
    }
    let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    (0..view.branches.len()).for_each(|b| groups.entry(sets.root(b as u32)).or_default().push(b));
    let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
    groups.sort_unstable();
    groups
}

/// Joins each branch with the branches between it and its immediate postdominator.
fn join_nested_branches(view: &StateGraph, sets: &mut DisjointSets) {
    let postdominator = view.postdominators();
    let mut branch_at = vec![None; view.state_count()];
    view.branches.iter().enumerate().for_each(|(i, b)| branch_at[b.state as usize] = Some(i));
    for (branch, of) in view.branches.iter().enumerate() {
        let stop = postdominator[of.state as usize];
        let (mut seen, mut work) = (HashSet::from([of.state]), of.next.clone());
        while let Some(state) = work.pop() {
            if Some(state) == stop || !seen.insert(state) {
                continue;
            }
            if let Some(inner) = branch_at[state as usize] {
                sets.join(Node(branch as u32), Node(inner as u32));
            }
            work.extend(&view.next[state as usize]);
        }
    }
}
