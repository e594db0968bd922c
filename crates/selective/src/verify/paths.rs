//! Paths for the verifier: whether a path is interesting, all paths, and random ones.

use crate::InterestingSet;
use std::collections::{HashMap, HashSet};
use trodden_flow::dag::{Dag, DagEdgeId, DagEdgeSet};
use trodden_flow::graph::Node;

const MAX_LISTED_PATHS: u128 = 1 << 17;

pub enum MarkedPaths {
    Closure(DagEdgeSet),
    /// A list of paths, as a set and as a trie whose nodes are the automaton's states.
    List(HashSet<Vec<DagEdgeId>>, HashMap<(u32, DagEdgeId), u32>),
}

impl MarkedPaths {
    /// Returns the interesting paths as a scheme defines them: the list, its closure, or all paths.
    pub fn new(dag: &Dag, set: &InterestingSet, closure: bool, everything: bool) -> MarkedPaths {
        if everything {
            return MarkedPaths::Closure(DagEdgeSet::full(dag.edges().len()));
        }
        match set.paths(dag) {
            Ok(paths) if set.is_listed() && !closure => {
                let mut trie = HashMap::new();
                for path in &paths {
                    let mut at = 0;
                    for &edge in path {
                        let fresh = trie.len() as u32 + 1;
                        at = *trie.entry((at, edge)).or_insert(fresh);
                    }
                }
                MarkedPaths::List(paths.into_iter().collect(), trie)
            }
            _ => MarkedPaths::Closure(set.edges().clone()),
        }
    }

    pub fn has(&self, path: &[DagEdgeId]) -> bool {
        match self {
            MarkedPaths::Closure(edges) => path.iter().all(|e| edges.contains(*e)),
            MarkedPaths::List(paths, _) => paths.contains(path),
        }
    }

    /// Returns the state after an edge, or `None` if no interesting path continues with this edge. The initial state is 0.
    pub fn step(&self, state: u32, edge: DagEdgeId) -> Option<u32> {
        match self {
            MarkedPaths::Closure(edges) => edges.contains(edge).then_some(0),
            MarkedPaths::List(_, trie) => trie.get(&(state, edge)).copied(),
        }
    }

    /// Visits the interesting paths. Returns false, without visiting any, if there are too many.
    pub fn for_each(&self, dag: &Dag, mut visit: impl FnMut(&[DagEdgeId])) -> bool {
        match self {
            MarkedPaths::List(paths, _) => paths.iter().for_each(|p| visit(p)),
            MarkedPaths::Closure(edges) if count(dag, edges) <= MAX_LISTED_PATHS => for_each_path_on(dag, edges, visit),
            MarkedPaths::Closure(_) => return false,
        }
        true
    }

    pub fn count(&self, dag: &Dag) -> u128 {
        match self {
            MarkedPaths::Closure(edges) => count(dag, edges),
            MarkedPaths::List(paths, _) => paths.len() as u128,
        }
    }

    pub fn edges(&self, dag: &Dag) -> DagEdgeSet {
        match self {
            MarkedPaths::Closure(edges) => edges.clone(),
            MarkedPaths::List(paths, _) => DagEdgeSet::from_members(dag.edges().len(), paths.iter().flatten().copied()),
        }
    }
}

pub fn for_each_path(dag: &Dag, visit: impl FnMut(&[DagEdgeId])) {
    for_each_path_on(dag, &DagEdgeSet::full(dag.edges().len()), visit);
}

fn for_each_path_on(dag: &Dag, marked: &DagEdgeSet, mut visit: impl FnMut(&[DagEdgeId])) {
    let mut path: Vec<DagEdgeId> = Vec::new();
    let mut open: Vec<(Node, usize)> = vec![(dag.entry(), 0)];
    while let Some((node, place)) = open.pop() {
        if node == dag.exit() {
            visit(&path);
        }
        match dag.out(node)[place..].iter().position(|e| marked.contains(*e)) {
            Some(ahead) => {
                let edge = dag.out(node)[place + ahead];
                open.push((node, place + ahead + 1));
                open.push((dag.edge(edge).to, 0));
                path.push(edge);
            }
            None => {
                path.pop();
            }
        }
    }
}

pub fn count(dag: &Dag, marked: &DagEdgeSet) -> u128 {
    path_counts(dag, marked)[dag.entry().index()]
}

fn path_counts(dag: &Dag, marked: &DagEdgeSet) -> Vec<u128> {
    let mut paths = vec![0u128; dag.node_count()];
    paths[dag.exit().index()] = 1;
    for &node in dag.order().iter().rev() {
        for &edge in dag.out(node).iter().filter(|e| marked.contains(**e)) {
            paths[node.index()] = paths[node.index()].saturating_add(paths[dag.edge(edge).to.index()]);
        }
    }
    paths
}

/// Visits random paths. Half of them are drawn from all paths with equal probability, and half from the paths on interesting edges.
pub fn for_each_random_path(dag: &Dag, members: &MarkedPaths, samples: u64, mut visit: impl FnMut(&[DagEdgeId])) {
    let (all, region) = (DagEdgeSet::full(dag.edges().len()), members.edges(dag));
    let (of_all, of_inside) = (path_counts(dag, &all), path_counts(dag, &region));
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for sample in 0..samples {
        let (marked, weights) = if sample % 2 == 0 { (&all, &of_all) } else { (&region, &of_inside) };
        let mut path = Vec::new();
        let mut node = dag.entry();
        while node != dag.exit() {
            let total = weights[node.index()];
            let mut left = random_below(&mut state, total);
            let mut chosen = None;
            for &edge in dag.out(node).iter().filter(|e| marked.contains(**e)) {
                let weight = weights[dag.edge(edge).to.index()];
                chosen = Some(edge).filter(|_| weight > 0).or(chosen);
                if left < weight {
                    break;
                }
                left -= weight;
            }
            let edge = chosen.expect("a path goes on to the exit");
            path.push(edge);
            node = dag.edge(edge).to;
        }
        visit(&path);
    }
}

/// Returns a random number below `bound`, by an xorshift generator (Marsaglia, 2003).
fn random_below(state: &mut u64, bound: u128) -> u128 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (u128::from(*state).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)) % bound
}
