//! Jobs: the branches that one profile distinguishes together.
//!
//! Source: D. Saha et al., section 4.1. There a job is a set of diamonds and directed cycles, of which a function can have exponentially
//! many. Each has one fork, and the pairwise condition asks for one profile per fork and pair of its successors; so a job here is a set
//! of branches. *Fine-grained*: one branch. *Function-wise*: all branches of a function. *Grouped*: branches whose diamonds share a
//! directed cycle (they are in one strongly connected component) or an edge (one lies between the other and that one's immediate
//! postdominator).
//!
//! The *region* of a job is where its witnesses may be: everything for whole functions, else what is near the successors.

use super::eliminate::Requirement;
use super::sets::{Lists, components};
use super::view::View;
use std::collections::{BTreeMap, HashSet, VecDeque};
use trodden_flow::graph::Node;
use trodden_flow::placement::DisjointSets;

/// How branches make jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grouping {
    /// Each branch by itself.
    Fine,
    /// All branches of a function.
    Function,
    /// Branches that share a cycle or an edge.
    Grouped,
}

/// Branches of a function for one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessJob {
    /// The function, by its place among the views.
    pub view: usize,
    /// What must be distinguished.
    pub required: Vec<Requirement>,
    /// States on which witnesses may be, besides those that are witnesses already.
    pub region: Vec<u32>,
}

/// As many states of a region are found from each successor of a branch. With 8, plans for three programs cost a third less to a tenth
/// more, by the weights; with 512, up to 2 % less, and take up to five times as long (docs/benchmarks/constants.md).
const NEAR: usize = 64;
/// Functions with more branches are not searched for branches between others and their postdominators: bounds the time, which is quadratic
/// where branches are nested. Three programs' plans cost the same with 0 and with 100,000 (docs/benchmarks/constants.md).
const MOST_NESTED: usize = 2000;

/// The jobs of a function.
pub fn jobs(view: &View, place: usize, grouping: Grouping) -> Vec<WitnessJob> {
    let all: Vec<usize> = (0..view.branches.len()).collect();
    let groups = match grouping {
        _ if all.is_empty() => Vec::new(),
        Grouping::Fine => all.into_iter().map(|b| vec![b]).collect(),
        Grouping::Function => vec![all],
        Grouping::Grouped => groups(view),
    };
    let whole = grouping == Grouping::Function;
    groups.into_iter().map(|g| job(view, place, g, whole)).collect()
}

fn job(view: &View, place: usize, branches: Vec<usize>, whole: bool) -> WitnessJob {
    let region = match whole {
        true => (0..view.state_count() as u32).filter(|s| view.witness[*s as usize].is_some()).collect(),
        false => {
            let near: HashSet<u32> = branches.iter().flat_map(|b| near(view, *b)).collect();
            let mut near: Vec<u32> = near.into_iter().collect();
            near.sort_unstable();
            near
        }
    };
    WitnessJob { view: place, required: branches.into_iter().map(Requirement::all).collect(), region }
}

/// States near the successors of a branch; the first that can carry a witness behind each of them are always among them.
pub fn near(view: &View, branch: usize) -> Vec<u32> {
    let mut all = Vec::new();
    for &successor in &view.branches[branch].next {
        let (mut seen, mut queue, mut found) = (HashSet::from([successor]), VecDeque::from([(successor, false)]), 0);
        while let Some((state, behind)) = queue.pop_front() {
            let carries = view.witness[state as usize].is_some();
            if carries {
                if behind && found >= NEAR {
                    continue;
                }
                found += 1;
                all.push(state);
            }
            for &next in &view.next[state as usize] {
                if seen.insert(next) {
                    queue.push_back((next, behind || carries));
                }
            }
        }
    }
    all
}

/// Branches that share a cycle or an edge, as groups in the order of their first branches.
fn groups(view: &View) -> Vec<Vec<usize>> {
    let pairs: Vec<(u32, u32)> = (0u32..).zip(&view.next).flat_map(|(s, next)| next.iter().map(move |n| (s, *n))).collect();
    let component = components(&Lists::new(view.state_count(), &pairs));
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
    if view.branches.len() <= MOST_NESTED {
        join_nested(view, &mut sets);
    }
    let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    (0..view.branches.len()).for_each(|b| groups.entry(sets.root(b as u32)).or_default().push(b));
    let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
    groups.sort_unstable();
    groups
}

/// Joins each branch with those between it and its immediate postdominator.
fn join_nested(view: &View, sets: &mut DisjointSets) {
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
