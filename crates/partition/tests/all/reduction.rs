//! Checks the graph reduction and the tasks of partitioned path profiling, with the paper's example and, on random graphs, against a second
//! implementation.
//!
//! The oracle enumerates complete paths, and all quadruples and triples of nodes that satisfy the printed definitions of diamonds and
//! triangles; it folds nothing. Two paths are the same path of the reduced graph if they differ only inside conditionals.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::dag::Entries;
use trodden_flow::part::{Measure, Part};
use trodden_flow::{Dag, DagEdgeId, DagEdgeSet, Graph, Node};
use trodden_partition::ProfitableProcedures;
use trodden_partition::tasks::tasks;
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, all_paths, graph};

fn dag(nodes: u32, exit: u32, edges: &[(u32, u32)]) -> Dag {
    let edges = edges.iter().map(|(a, b)| (Node(*a), Node(*b))).collect();
    Dag::new(&Graph::new(nodes, Node(0), Node(exit), edges).unwrap(), &[], Entries::PerEdge)
}

/// Returns the first node, the middle nodes and the last node of each diamond and triangle whose middle nodes have no other edges.
fn conditionals(dag: &Dag) -> BTreeSet<(u32, BTreeSet<u32>, u32)> {
    let edges: BTreeSet<(u32, u32)> = dag.edges().iter().map(|e| (e.from.0, e.to.0)).collect();
    let nodes = || 0..dag.node_count() as u32;
    let to = |n: u32| edges.iter().filter(|e| e.1 == n).count();
    let from = |n: u32| edges.iter().filter(|e| e.0 == n).count();
    let inner = |n: u32| to(n) == 1 && from(n) == 1;
    let mut found = BTreeSet::new();
    for a in nodes().filter(|a| from(*a) == 2) {
        for d in nodes().filter(|d| to(*d) == 2) {
            for b in nodes().filter(|b| inner(*b) && edges.contains(&(a, *b)) && edges.contains(&(*b, d))) {
                if edges.contains(&(a, d)) {
                    found.insert((a, BTreeSet::from([b]), d));
                }
                for c in nodes().filter(|c| *c > b && inner(*c) && edges.contains(&(a, *c)) && edges.contains(&(*c, d))) {
                    found.insert((a, BTreeSet::from([b, c]), d));
                }
            }
        }
    }
    found
}

/// For each path of the reduced graph, returns the edges of all original paths that it represents.
fn expected_tasks(dag: &Dag, paths: &[Vec<DagEdgeId>]) -> BTreeSet<DagEdgeSet> {
    let conditionals = conditionals(dag);
    let mut groups: BTreeMap<Vec<u32>, DagEdgeSet> = BTreeMap::new();
    for path in paths {
        let nodes: Vec<u32> = path.iter().map(|e| dag.edge(*e).from.0).chain([dag.exit().0]).collect();
        let outside = |n: &u32| !conditionals.iter().any(|(_, middle, _)| middle.contains(n));
        let key = nodes.into_iter().filter(outside).collect();
        let set = groups.entry(key).or_insert_with(|| DagEdgeSet::empty(dag.edges().len()));
        set.extend(path.iter().copied());
    }
    groups.into_values().collect()
}

/// Returns the graph of the paper's figures 1 and 2, with four of its five diamonds, whose nodes the text names: v4 to v7 and v7 to v10,
/// v15 to v18 and v18 to v21. Nodes have the paper's numbers; the entry is 0, and the exit is 22.
fn figure_1() -> Dag {
    let chain = |a: u32| [(a, a + 1), (a, a + 2), (a + 1, a + 3), (a + 2, a + 3)];
    let mut edges = vec![(0, 1), (1, 2), (1, 12), (2, 3), (2, 4), (10, 22), (3, 11), (11, 22), (12, 13), (12, 14), (13, 11)];
    edges.extend([(14, 15), (21, 22)]);
    [4, 7, 15, 18].iter().for_each(|a| edges.extend(chain(*a)));
    dag(23, 22, &edges)
}

/// Returns the tasks of a graph for a number of copies, with the published threshold.
fn published_tasks(dag: &Dag, copies: usize) -> Vec<DagEdgeSet> {
    tasks(dag, ProfitableProcedures::ALL.threshold(dag, copies), false)
}

#[test]
fn the_papers_example_has_four_tasks_without_overlapping_probes() {
    let dag = figure_1();
    let sets = published_tasks(&dag, 8);
    assert_eq!(sets.len(), 4, "example 3");
    let probes = |set: &DagEdgeSet| Part::selective(&dag, set, &vec![1; dag.edges().len()], Measure::Labels).values;
    for (at, set) in sets.iter().enumerate() {
        let mut others = sets.iter().enumerate().filter(|(i, _)| *i != at);
        let own = probes(set);
        assert!(others.all(|(_, other)| own.iter().zip(probes(other)).all(|(a, b)| *a == 0 || b == 0)), "task {at}");
    }
}

#[test]
fn conditionals_that_share_a_node_stay_in_one_task() {
    // In the first graph, the conditionals are between the entry and the exit. In the second, they extend from the entry to the exit.
    let row = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (4, 6), (5, 7), (6, 7), (7, 8)];
    assert_eq!(published_tasks(&dag(9, 8, &row), 2), [DagEdgeSet::full(10)]);
    let whole = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 5)];
    assert_eq!(published_tasks(&dag(6, 5, &whole), 4), [DagEdgeSet::full(7)]);
    // A conditional is not folded if its join has other predecessors. Here, a path bypasses the diamond.
    let joined = [(0, 1), (0, 4), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)];
    assert_eq!(published_tasks(&dag(6, 5, &joined), 4).len(), 3);
}

/// Adds a random subgraph between two nodes: an edge, a triangle or diamond, two subgraphs in a row, or a branch to two subgraphs.
fn add_random_subgraph(random: &mut Random, edges: &mut Vec<(u32, u32)>, nodes: &mut u32, (from, to): (u32, u32), depth: u32) {
    let mut node = || {
        *nodes += 1;
        *nodes - 1
    };
    match if depth == 0 { random.below(3) } else { random.below(6) } {
        0 => edges.push((from, to)),
        1 => {
            let middle = node();
            edges.extend([(from, middle), (middle, to), (from, to)]);
        }
        2 => {
            let (a, b) = (node(), node());
            edges.extend([(from, a), (a, to), (from, b), (b, to)]);
        }
        3 | 4 => {
            let middle = node();
            add_random_subgraph(random, edges, nodes, (from, middle), depth - 1);
            add_random_subgraph(random, edges, nodes, (middle, to), depth - 1);
        }
        _ => {
            let (a, b) = (node(), node());
            edges.extend([(from, a), (from, b)]);
            add_random_subgraph(random, edges, nodes, (a, to), depth - 1);
            add_random_subgraph(random, edges, nodes, (b, to), depth - 1);
        }
    }
}

fn random_structured_dag(random: &mut Random) -> Dag {
    let (mut edges, mut nodes) = (Vec::new(), 2);
    add_random_subgraph(random, &mut edges, &mut nodes, (0, 1), 4);
    dag(nodes, 1, &edges)
}

#[test]
fn tasks_are_the_paths_of_the_reduced_graph() {
    let (mut folded, mut chained, mut several) = (0, 0, 0);
    for seed in 0..8_000 {
        let mut random = Random::new(seed);
        let (nodes, edges) = random.pick(&[(5, 6), (7, 9), (9, 12), (12, 15)]);
        let dag = match seed % 2 {
            0 => Dag::new(&graph(&mut random, nodes, edges, CycleKind::None), &[], Entries::PerEdge),
            _ => random_structured_dag(&mut random),
        };
        let ends: BTreeSet<(Node, Node)> = dag.edges().iter().map(|e| (e.from, e.to)).collect();
        let Some(paths) = all_paths(&dag, 200).filter(|_| ends.len() == dag.edges().len() && !dag.edges().is_empty()) else { continue };
        let expected = expected_tasks(&dag, &paths);
        // With more copies than paths, the division never stops early, so each path of the reduced graph is a task.
        let sets: BTreeSet<DagEdgeSet> = published_tasks(&dag, paths.len() + 1).into_iter().collect();
        assert_eq!(sets, expected, "seed {seed}: {:?}", dag.edges().iter().map(|e| (e.from.0, e.to.0)).collect::<Vec<_>>());
        let found = conditionals(&dag);
        folded += usize::from(!found.is_empty());
        chained += usize::from(found.iter().any(|a| found.iter().any(|b| a.2 == b.0)));
        several += usize::from(!found.is_empty() && sets.len() > 1);
    }
    assert!(folded > 2_000 && chained > 500 && several > 500, "{folded} folded, {chained} chained, {several} with several tasks");
}
