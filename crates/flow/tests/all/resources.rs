//! Graphs like those of generated code: time and memory stay nearly linear in the number of edges.

use trodden_flow::dag::Entries;
use trodden_flow::frequency::Frequencies;
use trodden_flow::limit::cut_to_limit;
use trodden_flow::numbering::NumberedPaths;
use trodden_flow::part::Measure;
use trodden_flow::{DagEdgeSet, Graph, Node};
use trodden_partition::tasks::{are_too_many_tasks, tasks};
use trodden_partition::{PartitionOptions, PartitionStrategy, Procedure, ProfitableProcedures, hits, plan};
use trodden_testkit::Random;

/// Returns a state machine in which each state leads to some other states, or to the exit.
fn state_machine(states: u32, successors: u32) -> Graph {
    let mut random = Random::new(1);
    let mut edges = vec![(Node(0), Node(1))];
    for state in 1..=states {
        edges.extend((0..successors).map(|_| (Node(state), Node(1 + random.below(states.into()) as u32))));
        edges.push((Node(state), Node(states + 1)));
    }
    Graph::new(states + 2, Node(0), Node(states + 1), edges).unwrap()
}

/// Returns a graph with an edge from each node to each later one.
fn dense_graph(nodes: u32) -> Graph {
    let edges = (0..nodes).flat_map(|from| (from + 1..nodes).map(move |to| (Node(from), Node(to)))).collect();
    Graph::new(nodes, Node(0), Node(nodes - 1), edges).unwrap()
}

fn cut_graph(graph: &Graph, limit: u64) -> NumberedPaths {
    let frequencies = Frequencies::estimate(graph, &vec![1.0; graph.edge_count()]);
    cut_to_limit(graph, &[], &frequencies, limit, Entries::Shared)
}

/// An earlier version, which examined all edges for each cut, took a minute for each of these graphs.
#[test]
fn graphs_that_need_thousands_of_cuts_are_cut_in_a_few_rounds() {
    let graph = state_machine(1000, 20);
    let cut = cut_graph(&graph, 4096);
    // All edges must be cut: each state has 21 successors, and even one path for each would exceed the limit.
    assert!(cut.dag.cuts().len() > 19_000 && cut.numbering.paths() <= graph.edge_count() as u64 + 1000);
    let cut = cut_graph(&dense_graph(300), i64::MAX as u64);
    assert!(cut.numbering.paths() <= i64::MAX as u64);
    assert!(cut.dag.cuts().len() < 6000, "one cut per round made 5,917: {}", cut.dag.cuts().len());
}

/// Returns a chain of conditionals. Each node leads to the next node, and to the node after that (`meeting`) or the exit.
fn chain(nodes: u32, meeting: bool) -> Graph {
    let mut edges = Vec::new();
    let last = Node(nodes - 1);
    for at in 0..nodes - 1 {
        edges.push((Node(at), Node(at + 1)));
        match meeting {
            true if at % 2 == 0 && at + 2 < nodes => edges.push((Node(at), Node(at + 2))),
            false if at + 2 < nodes => edges.push((Node(at), last)),
            _ => {}
        }
    }
    Graph::new(nodes, Node(0), last, edges).unwrap()
}

fn procedure(graph: &Graph) -> Procedure {
    let frequencies = Frequencies::estimate(graph, &vec![1.0; graph.edge_count()]);
    let dag = cut_to_limit(graph, &[], &frequencies, i64::MAX as u64, Entries::PerEdge).dag;
    let frequencies = vec![1024; dag.edges().len()];
    Procedure { dag, frequencies, paths: Vec::new(), call_sites: Some(1), unit: 0 }
}

/// An earlier version, which kept a set of ends for each node, took 450 MB here, and half a minute to sort the sets by weight.
#[test]
fn paths_of_a_long_chain_are_distributed_in_time() {
    let procedure = procedure(&chain(60_000, false));
    let options = PartitionOptions { copies: 4, profitable: ProfitableProcedures::ALL, fold_again: false, measure: Measure::All };
    let plan = plan(std::slice::from_ref(&procedure), PartitionStrategy::Weighted, &options);
    let hits: Vec<u64> = plan.copies.iter().map(|c| hits::copy_hits(std::slice::from_ref(&procedure), c).all).collect();
    let (least, most) = (hits.iter().min().unwrap(), hits.iter().max().unwrap());
    assert!(*least > 0 && most - least < most / 4, "{hits:?}");
}

/// A chain that is cut every 62 conditionals has hundreds of out-edges at its entry. Published partitions make a set of edges for each of
/// them.
#[test]
fn a_graph_with_too_many_tasks_is_not_divided() {
    let procedure = procedure(&chain(60_000, true));
    assert!(are_too_many_tasks(&procedure.dag, ProfitableProcedures::ALL.threshold(&procedure.dag, 4)));
    let options = PartitionOptions { copies: 4, profitable: ProfitableProcedures::ALL, fold_again: true, measure: Measure::All };
    let plan = plan(std::slice::from_ref(&procedure), PartitionStrategy::P3, &options);
    assert_eq!(plan.copies.iter().filter(|c| c.parts[0].is_some()).count(), 1);
    let short = self::procedure(&chain(1000, true)).dag;
    assert!(!are_too_many_tasks(&short, ProfitableProcedures::ALL.threshold(&short, 4)));
}

/// An earlier version, which kept a set of edges for each node, took 10 GB here.
#[test]
fn a_straight_chain_is_one_task() {
    let nodes = 100_000;
    let edges = (1..nodes).map(|n| (Node(n - 1), Node(n))).collect();
    let graph = Graph::new(nodes, Node(0), Node(nodes - 1), edges).unwrap();
    let procedure = procedure(&graph);
    assert_eq!(
        tasks(&procedure.dag, ProfitableProcedures::ALL.threshold(&procedure.dag, 4), false),
        [DagEdgeSet::full(procedure.dag.edges().len())]
    );
}
