//! Cutting a graph until its paths fit a limit.
//!
//! The number of paths of a function can be astronomical; counters in arrays, and identities in a word, need a bound. Where the
//! bound is exceeded, further edges are treated like back edges: the path that takes one ends there and another begins. Which edges is a
//! question of cost: a cut edge is executed with one more count. So the edges are chosen greedily by how far a cut brings down the
//! number of paths (in bits) for each expected execution, and whole joins (all edges into a node) compete with single edges.
//!
//! Numbers of paths are logarithms here; [`crate::numbering`] counts exactly afterwards. O((cuts + 1) x edges).

use crate::dag::{Cut, CutReason, Dag, Entries, Origin};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph, Node};
use crate::numbering::Numbering;

/// A DAG of at most `limit` paths where that can be had; see [`cut_to_limit`].
#[derive(Debug)]
pub struct Limited {
    /// The graph, cut.
    pub dag: Dag,
    /// Its Ball-Larus numbering.
    pub numbering: Numbering,
}

/// Cuts `graph` until it has at most `limit` paths (`limit` is at most 2^63 - 1), or nothing is left to cut.
///
/// With every edge cut a function has about as many paths as edges: below that no limit can be met, and the result has more.
pub fn cut_to_limit(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, limit: u64, entries: Entries) -> Limited {
    let limit = limit.clamp(1, i64::MAX as u64);
    let mut forced = forced.to_vec();
    loop {
        let dag = Dag::new(graph, &forced, entries);
        if let Ok(numbering) = Numbering::ball_larus(&dag)
            && numbering.paths() <= limit
        {
            return Limited { dag, numbering };
        }
        let chosen = best_cut(&dag, graph, frequencies);
        if chosen.is_empty() {
            let numbering = Numbering::ball_larus(&dag).expect("a graph without two edges in a row has few paths");
            return Limited { dag, numbering };
        }
        forced = dag.cuts().iter().map(|c: &Cut| (c.edge, c.reason)).collect();
        forced.extend(chosen.into_iter().map(|e| (e, CutReason::Limit)));
    }
}

/// Base-2 logarithms of the numbers of paths.
struct PathBits {
    /// From the entry to each node.
    to: Vec<f64>,
    /// From each node to the exit.
    from: Vec<f64>,
    all: f64,
}

impl PathBits {
    fn of(dag: &Dag) -> PathBits {
        let mut to = vec![f64::NEG_INFINITY; dag.node_count()];
        let mut from = to.clone();
        to[dag.entry().index()] = 0.0;
        from[dag.exit().index()] = 0.0;
        for &node in dag.order() {
            for &e in dag.out(node) {
                let head = dag.edge(e).to.index();
                to[head] = add_bits(to[head], to[node.index()]);
            }
        }
        for &node in dag.order().iter().rev() {
            for &e in dag.out(node) {
                from[node.index()] = add_bits(from[node.index()], from[dag.edge(e).to.index()]);
            }
        }
        let all = from[dag.entry().index()];
        PathBits { to, from, all }
    }
}

/// log2(2^a + 2^b)
fn add_bits(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY { high } else { high + (low - high).exp2().ln_1p() / std::f64::consts::LN_2 }
}

/// log2(2^a - 2^b), for a >= b.
fn subtract_bits(a: f64, b: f64) -> f64 {
    if b == f64::NEG_INFINITY { a } else { a + (-(b - a).exp2().min(1.0)).ln_1p() / std::f64::consts::LN_2 }
}

/// The edge, or all edges into one node, whose cut takes away most bits per expected execution.
fn best_cut(dag: &Dag, graph: &Graph, frequencies: &Frequencies) -> Vec<Edge> {
    let bits = PathBits::of(dag);
    let mut entered = vec![false; dag.node_count()];
    for cut in dag.cuts() {
        entered[graph.to(cut.edge).index()] = true;
    }
    // A path that begins and ends nowhere else still costs something.
    let price = |edges: &[Edge]| 1e-6 + edges.iter().map(|e| frequencies.edge(*e)).sum::<f64>();
    let mut best: (f64, Vec<Edge>) = (0.0, Vec::new());
    let mut consider = |edges: &[Edge], head: Node| {
        let before = edges.iter().fold(f64::NEG_INFINITY, |sum, e| add_bits(sum, bits.to[graph.from(*e).index()]));
        let after = if entered[head.index()] { f64::NEG_INFINITY } else { bits.from[head.index()] };
        let new = add_bits(before, after);
        let gone = before + bits.from[head.index()];
        if gone <= new {
            return;
        }
        let left = add_bits(subtract_bits(bits.all, gone), new);
        let score = (bits.all - left) / price(edges);
        if score > best.0 {
            best = (score, edges.to_vec());
        }
    };
    for &head in dag.order().iter().filter(|n| **n != dag.exit() && **n != dag.entry()) {
        let real: Vec<Edge> = dag
            .incoming(head)
            .iter()
            .filter_map(|&e| match dag.edge(e).origin {
                Origin::Real(edge) => Some(edge),
                _ => None,
            })
            .collect();
        for edge in &real {
            consider(&[*edge], head);
        }
        if real.len() > 1 {
            consider(&real, head);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diamonds(count: u32) -> Graph {
        let mut edges = Vec::new();
        for d in 0..count {
            let at = 3 * d;
            edges.extend([(at, at + 1), (at, at + 2), (at + 1, at + 3), (at + 2, at + 3)]);
        }
        let edges = edges.into_iter().map(|(a, b)| (Node(a), Node(b))).collect();
        Graph::new(3 * count + 1, Node(0), Node(3 * count), edges).unwrap()
    }

    fn limited(graph: &Graph, limit: u64) -> Limited {
        let frequencies = Frequencies::estimate(graph, &vec![1.0; graph.edge_count()]);
        cut_to_limit(graph, &[], &frequencies, limit, Entries::Shared)
    }

    #[test]
    fn what_fits_is_not_cut() {
        assert!(limited(&diamonds(10), 1024).dag.cuts().is_empty());
    }

    #[test]
    fn astronomical_numbers_of_paths_are_cut_near_the_middle() {
        let all = limited(&diamonds(400), 4096);
        assert!(all.numbering.paths() <= 4096);
        // 2^400 paths in pieces of at most 2^12 need at least 33 cuts of two edges; twice that would be waste.
        let cuts = all.dag.cuts().len();
        assert!((2 * 33..=2 * 100).contains(&cuts), "{cuts}");
    }

    #[test]
    fn two_to_the_sixty_third_is_the_most() {
        assert!(limited(&diamonds(64), u64::MAX).numbering.paths() <= i64::MAX as u64);
    }

    #[test]
    fn a_limit_that_cannot_be_met_cuts_what_helps() {
        let edges = (1..=50).flat_map(|n| [(Node(0), Node(n)), (Node(n), Node(51))]).collect();
        let all = limited(&Graph::new(52, Node(0), Node(51), edges).unwrap(), 3);
        assert_eq!(all.numbering.paths(), 50);
    }
}
