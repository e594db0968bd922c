//! Cuts a graph until its number of paths is within a limit.
//!
//! Edges are cut like back edges: the path that takes a cut edge ends there and a new one begins, which costs an additional count per
//! execution. Cuts are chosen greedily by the reduction of the logarithm of the number of paths per expected execution. A cut is a single
//! edge or all edges into a node. Numbers of paths are logarithms here; [`crate::numbering`] counts exactly afterwards. After
//! [`ROUNDS_WITH_SINGLE_CUT`] rounds, each round makes several cuts in different pieces of the graph, so that all rounds together take
//! O(edges * log edges). With one cut per round, a state machine of 2,000 states with 20 jumps each took a minute.

use crate::dag::{Cut, CutReason, Dag, Entries, Origin};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph};
use crate::numbering::{NumberedPaths, Numbering};
use std::collections::HashSet;

/// Number of rounds that make one cut each. If this is 4, three benchmark programs that were cut to 64 paths per function execute 0.8%
/// fewer to 0.9% more instructions; if it is 1,024, the same number (docs/benchmarks/constants.md).
const ROUNDS_WITH_SINGLE_CUT: u32 = 64;
/// Number of further rounds after which the number of cuts per round doubles, to bound the build time. If this is 2, one of three benchmark
/// programs executes 2.8% fewer instructions; if it is 128, the difference is within 0.1%.
const ROUNDS_PER_DOUBLING_OF_CUTS: u32 = 16;

/// Cuts `graph` until it has at most `limit` paths, or until no further cut reduces their number. The limit is at most 2^63 - 1; a higher
/// one is lowered.
///
/// Even if all edges are cut, a function has about as many paths as edges, so the result exceeds a limit below that.
pub fn cut_to_limit(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, limit: u64, entries: Entries) -> NumberedPaths {
    cut_to_limit_avoiding_edges(graph, forced, frequencies, limit, entries, &[])
}

/// Like [`cut_to_limit`], but an edge in `spared` is cut only if cutting all other edges is not sufficient.
pub fn cut_to_limit_avoiding_edges(
    graph: &Graph,
    forced: &[(Edge, CutReason)],
    frequencies: &Frequencies,
    limit: u64,
    entries: Entries,
    spared: &[Edge],
) -> NumberedPaths {
    let limit = limit.clamp(1, i64::MAX as u64);
    let mut forced = forced.to_vec();
    let spared: HashSet<Edge> = spared.iter().copied().collect();
    loop {
        let dag = Dag::new(graph, &forced, entries);
        if let Ok(numbering) = Numbering::ball_larus(&dag)
            && numbering.paths() <= limit
        {
            return NumberedPaths { dag, numbering };
        }
        let chosen = PathCutter::new(&dag, frequencies, entries, &spared).choose_cuts((limit as f64).log2());
        if chosen.is_empty() {
            let numbering = Numbering::ball_larus(&dag).expect("a graph without two edges in a row has few paths");
            return NumberedPaths { dag, numbering };
        }
        forced = dag.cuts().iter().map(|c: &Cut| (c.edge, c.reason)).collect();
        forced.extend(chosen.into_iter().map(|e| (e, CutReason::Limit)));
    }
}

#[derive(Clone, Copy)]
struct CutCandidate {
    edge: Edge,
    from: usize,
    price: f64,
    spared: bool,
}

/// A choice of edges to cut: the node that the edges enter, and the index of a single edge among the edges into this node, or `None` for
/// all of them.
type CutChoice = (usize, Option<usize>);

/// The graph while cuts are chosen. Numbers of paths are base-2 logarithms. The topological order remains valid when an edge is cut,
/// because each dummy edge of a cut starts at the entry or ends at the exit.
struct PathCutter {
    entries: Entries,
    /// Nodes in topological order, from the entry to the exit.
    order: Vec<usize>,
    /// Real edges into each node that have not been cut yet.
    real: Vec<Vec<CutCandidate>>,
    /// Number of dummy edges from the entry to each node.
    entering: Vec<f64>,
    /// Number of dummy edges from each node to the exit.
    leaving: Vec<f64>,
    paths_to: Vec<f64>,
    paths_from: Vec<f64>,
}

impl PathCutter {
    fn new(dag: &Dag, frequencies: &Frequencies, entries: Entries, spared: &HashSet<Edge>) -> PathCutter {
        let nodes = dag.node_count();
        let mut order: Vec<usize> = dag.order().iter().map(|n| n.index()).filter(|n| *n != dag.exit().index()).collect();
        order.push(dag.exit().index());
        let mut cutter = PathCutter {
            entries,
            order,
            real: vec![Vec::new(); nodes],
            entering: vec![0.0; nodes],
            leaving: vec![0.0; nodes],
            paths_to: vec![f64::NEG_INFINITY; nodes],
            paths_from: vec![f64::NEG_INFINITY; nodes],
        };
        for edge in dag.edges() {
            match edge.origin {
                // An edge that is never taken also has a small price: a cut needs code for the count, and makes the profile less readable.
                Origin::Real(e) => {
                    let price = 1e-6 + frequencies.edge(e);
                    let candidate = CutCandidate { edge: e, from: edge.from.index(), price, spared: spared.contains(&e) };
                    cutter.real[edge.to.index()].push(candidate);
                }
                Origin::Enter(_) => cutter.entering[edge.to.index()] += 1.0,
                Origin::Leave(_) | Origin::Stop(_) => cutter.leaving[edge.from.index()] += 1.0,
            }
        }
        cutter
    }

    /// Cuts until the number of paths is at most `limit` (a logarithm). Returns the cut edges.
    fn choose_cuts(mut self, limit: f64) -> Vec<Edge> {
        let mut chosen = Vec::new();
        for round in 0.. {
            self.count_paths();
            if self.total_paths() <= limit && !chosen.is_empty() {
                break;
            }
            let mut best = self.find_best_cuts(piece_count_in_round(round), false);
            if best.is_empty() {
                best = self.find_best_cuts(piece_count_in_round(round), true);
            }
            if best.is_empty() {
                break;
            }
            best.into_iter().for_each(|(head, only)| chosen.extend(self.make_cut(head, only)));
        }
        chosen
    }

    fn total_paths(&self) -> f64 {
        self.paths_from[self.order[0]]
    }

    fn count_paths(&mut self) {
        let (entry, exit) = (self.order[0], self.order[self.order.len() - 1]);
        for &node in &self.order {
            let mut sum = if node == entry { 0.0 } else { self.entering[node].log2() };
            for candidate in &self.real[node] {
                sum = log2_of_sum(sum, self.paths_to[candidate.from]);
            }
            self.paths_to[node] = sum;
            self.paths_from[node] = f64::NEG_INFINITY;
        }
        let mut entering = f64::NEG_INFINITY;
        for i in (0..self.order.len()).rev() {
            let node = self.order[i];
            let own = if node == exit { 0.0 } else { self.leaving[node].log2() };
            self.paths_from[node] = log2_of_sum(self.paths_from[node], own);
            if self.entering[node] > 0.0 {
                entering = log2_of_sum(entering, self.paths_from[node] + self.entering[node].log2());
            }
            if node == entry {
                self.paths_from[node] = log2_of_sum(self.paths_from[node], entering);
            }
            for candidate in &self.real[node] {
                self.paths_from[candidate.from] = log2_of_sum(self.paths_from[candidate.from], self.paths_from[node]);
            }
        }
    }

    /// Returns the best cut in each of `pieces` pieces of the graph, except in pieces where no cut helps. Considers spared edges only if
    /// `any` is true.
    fn find_best_cuts(&self, pieces: usize, any: bool) -> Vec<CutChoice> {
        let heads = &self.order[1..self.order.len() - 1];
        heads.chunks(heads.len().div_ceil(pieces).max(1)).filter_map(|piece| self.find_best_cut(piece, any)).collect()
    }

    /// Returns the cut with the best score among the edges into `heads`. Considers spared edges only if `any` is true.
    fn find_best_cut(&self, heads: &[usize], any: bool) -> Option<CutChoice> {
        let mut best = (0.0, None);
        for &head in heads {
            let real = &self.real[head];
            let mut consider = |edges: &[CutCandidate], what: Option<usize>| {
                if !any && edges.iter().any(|e| e.spared) {
                    return;
                }
                let score = self.score_cut(head, edges);
                if score > best.0 {
                    best = (score, Some((head, what)));
                }
            };
            for (i, candidate) in real.iter().enumerate() {
                consider(&[*candidate], Some(i));
            }
            if real.len() > 1 {
                consider(real, None);
            }
        }
        best.1
    }

    /// Returns the score of a cut: the reduction of the logarithm of the number of paths, divided by the price of the edges.
    fn score_cut(&self, head: usize, edges: &[CutCandidate]) -> f64 {
        let before = edges.iter().fold(f64::NEG_INFINITY, |sum, e| log2_of_sum(sum, self.paths_to[e.from]));
        let entrances = match self.entries {
            Entries::Shared if self.entering[head] > 0.0 => 0.0,
            Entries::Shared => 1.0,
            Entries::PerEdge => edges.len() as f64,
        };
        let new = log2_of_sum(before, self.paths_from[head] + f64::log2(entrances));
        let gone = before + self.paths_from[head];
        if gone <= new {
            return 0.0;
        }
        let left = log2_of_sum(log2_of_difference(self.total_paths(), gone), new);
        (self.total_paths() - left) / edges.iter().map(|e| e.price).sum::<f64>()
    }

    fn make_cut(&mut self, head: usize, only: Option<usize>) -> Vec<Edge> {
        let cut: Vec<CutCandidate> = match only {
            Some(i) => vec![self.real[head].remove(i)],
            None => std::mem::take(&mut self.real[head]),
        };
        for candidate in &cut {
            self.leaving[candidate.from] += 1.0;
            match self.entries {
                Entries::Shared => self.entering[head] = 1.0,
                Entries::PerEdge => self.entering[head] += 1.0,
            }
        }
        cut.into_iter().map(|c| c.edge).collect()
    }
}

/// Returns the number of pieces into which a round divides the graph. Each piece gets one cut.
fn piece_count_in_round(round: u32) -> usize {
    if round < ROUNDS_WITH_SINGLE_CUT { 1 } else { 2 << ((round - ROUNDS_WITH_SINGLE_CUT) / ROUNDS_PER_DOUBLING_OF_CUTS).min(30) }
}

/// Returns log2(2^a + 2^b).
fn log2_of_sum(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    // The lower term does not change a sum with a term that is 2^60 times greater. This also covers zero paths, whose logarithm is negative
    // infinity.
    if low < high - 60.0 { high } else { high + (low - high).exp2().ln_1p() * std::f64::consts::LOG2_E }
}

/// Returns log2(2^a - 2^b), for a >= b.
fn log2_of_difference(a: f64, b: f64) -> f64 {
    if b < a - 60.0 { a } else { a + (-(b - a).exp2().min(1.0)).ln_1p() * std::f64::consts::LOG2_E }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Node;

    fn diamonds(count: u32) -> Graph {
        let mut edges = Vec::new();
        for d in 0..count {
            let at = 3 * d;
            edges.extend([(at, at + 1), (at, at + 2), (at + 1, at + 3), (at + 2, at + 3)]);
        }
        let edges = edges.into_iter().map(|(a, b)| (Node(a), Node(b))).collect();
        Graph::new(3 * count + 1, Node(0), Node(3 * count), edges).unwrap()
    }

    fn cut_graph(graph: &Graph, limit: u64) -> NumberedPaths {
        let frequencies = Frequencies::estimate(graph, &vec![1.0; graph.edge_count()]);
        cut_to_limit(graph, &[], &frequencies, limit, Entries::Shared)
    }

    #[test]
    fn graphs_within_the_limit_are_not_cut() {
        assert!(cut_graph(&diamonds(10), 1024).dag.cuts().is_empty());
    }

    #[test]
    fn graphs_with_very_many_paths_are_cut_near_the_middle() {
        let all = cut_graph(&diamonds(400), 4096);
        assert!(all.numbering.paths() <= 4096);
        // 2^400 paths in pieces of at most 2^12 need at least 33 cuts of two edges each.
        let cuts = all.dag.cuts().len();
        assert!((2 * 33..=2 * 100).contains(&cuts), "{cuts}");
    }

    #[test]
    fn numbers_stay_below_two_to_the_sixty_third() {
        assert!(cut_graph(&diamonds(64), u64::MAX).numbering.paths() <= i64::MAX as u64);
    }

    #[test]
    fn spared_edges_are_cut_only_if_cutting_others_is_not_sufficient() {
        let cut = |graph: &Graph, limit: u64, spared: &[Edge]| -> Vec<Edge> {
            let frequencies = Frequencies::estimate(graph, &vec![1.0; graph.edge_count()]);
            let limited = cut_to_limit_avoiding_edges(graph, &[], &frequencies, limit, Entries::Shared, spared);
            assert!(limited.numbering.paths() <= limit);
            limited.dag.cuts().iter().map(|c| c.edge).collect()
        };
        let graph = diamonds(20);
        // Spare all edges of one path.
        let path: Vec<Edge> = graph.edges().filter(|e| e.0 % 4 == 0 || e.0 % 4 == 2).collect();
        assert!(cut(&graph, 1000, &[]).iter().any(|e| path.contains(e)));
        let others = cut(&graph, 1000, &path);
        assert!(!others.is_empty() && !others.iter().any(|e| path.contains(e)), "{others:?}");
        let all: Vec<Edge> = graph.edges().collect();
        assert_eq!(cut(&graph, 1000, &all), cut(&graph, 1000, &[]));
    }

    #[test]
    fn unreachable_limit_minimises_the_number_of_paths() {
        let edges = (1..=50).flat_map(|n| [(Node(0), Node(n)), (Node(n), Node(51))]).collect();
        let all = cut_graph(&Graph::new(52, Node(0), Node(51), edges).unwrap(), 3);
        assert_eq!(all.numbering.paths(), 50);
    }
}
