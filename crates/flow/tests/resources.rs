//! Graphs as programs that generate code make them: time and memory stay near linear in their edges.

use trodden_flow::dag::Entries;
use trodden_flow::frequency::Frequencies;
use trodden_flow::limit::{Limited, cut_to_limit};
use trodden_flow::{Graph, Node};
use trodden_testkit::Random;

/// A machine of states, each of which goes on in any of some others or ends.
fn machine(states: u32, ways: u32) -> Graph {
    let mut random = Random::new(1);
    let mut edges = vec![(Node(0), Node(1))];
    for state in 1..=states {
        edges.extend((0..ways).map(|_| (Node(state), Node(1 + random.below(states.into()) as u32))));
        edges.push((Node(state), Node(states + 1)));
    }
    Graph::new(states + 2, Node(0), Node(states + 1), edges).unwrap()
}

/// An edge from each node to each later one.
fn dense(nodes: u32) -> Graph {
    let edges = (0..nodes).flat_map(|from| (from + 1..nodes).map(move |to| (Node(from), Node(to)))).collect();
    Graph::new(nodes, Node(0), Node(nodes - 1), edges).unwrap()
}

fn limited(graph: &Graph, limit: u64) -> Limited {
    let frequencies = Frequencies::estimate(graph, &vec![1.0; graph.edge_count()]);
    cut_to_limit(graph, &[], &frequencies, limit, Entries::Shared)
}

/// With one cut an iteration, which looked at all edges, these took a minute each.
#[test]
fn graphs_that_need_thousands_of_cuts_are_cut_in_a_few_rounds() {
    let graph = machine(1000, 20);
    let cut = limited(&graph, 4096);
    // No edge can be left: each state has 21 ways on, and an end for each way would be more paths than the limit.
    assert!(cut.dag.cuts().len() > 19_000 && cut.numbering.paths() <= graph.edge_count() as u64 + 1000);
    let cut = limited(&dense(300), i64::MAX as u64);
    assert!(cut.numbering.paths() <= i64::MAX as u64);
    assert!(cut.dag.cuts().len() < 6000, "one cut an iteration made 5,917: {}", cut.dag.cuts().len());
}
