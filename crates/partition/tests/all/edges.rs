//! Compares edge profiles that are divided among copies with random walks whose edges are counted one by one.

use trodden_flow::part::Measure;
use trodden_flow::verify::verify_part;
use trodden_flow::{CutReason, Edge, EdgeSet, Graph, Node, Origin};
use trodden_partition::edges::{EdgeFlowNetwork, cut_at_every_edge, dag, plan};
use trodden_partition::{Procedure, hits};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, graph};

/// A random graph with edges for calls that may not return, and blocks after a call that returns twice.
struct NetworkSubject {
    graph: Graph,
    reaches: EdgeSet,
    cuts: Vec<(Edge, CutReason)>,
}

fn random_network(random: &mut Random) -> NetworkSubject {
    let (nodes, edges) = random.pick(&[(3, 3), (6, 10), (12, 24)]);
    let plain = graph(random, nodes, edges, CycleKind::Some);
    // A call of the function ends at the exit, so the exit has no outgoing edges.
    let inner = plain.edges().filter(|e| plain.from(*e) != plain.exit());
    let mut all: Vec<(Node, Node)> = inner.map(|e| (plain.from(e), plain.to(e))).collect();
    let inner = all.len();
    for node in plain.nodes().filter(|n| *n != plain.exit() && !plain.out(*n).is_empty()) {
        if random.chance(20) {
            all.push((node, plain.exit()));
        }
    }
    let reaches = EdgeSet::from_fn(all.len(), |edge| edge.index() >= inner);
    let graph = Graph::new(plain.node_count() as u32, plain.entry(), plain.exit(), all).unwrap();
    // A block with one predecessor may follow a call that returns twice.
    let alone = |e: &Edge| graph.incoming(graph.to(*e)).len() == 1 && graph.to(*e) != graph.entry() && graph.to(*e) != graph.exit();
    let twice: Vec<Edge> = graph.edges().filter(|e| !reaches.contains(*e) && alone(e)).collect();
    let cuts = twice.into_iter().filter(|_| random.chance(15)).map(|e| (e, CutReason::ReturnsTwice)).collect();
    NetworkSubject { graph, reaches, cuts }
}

/// Executes the function several times. Returns the number of executions of each edge, including the edges to the exit that count calls
/// that may not return.
fn execute_function(random: &mut Random, NetworkSubject { graph, reaches, cuts }: &NetworkSubject) -> Vec<u64> {
    let mut counts = vec![0; graph.edge_count()];
    for _ in 0..random.below(20) {
        let (mut at, mut left) = (graph.entry(), 60);
        'call: while at != graph.exit() {
            let out = graph.out(at);
            for edge in out.iter().filter(|e| reaches.contains(**e)) {
                counts[edge.index()] += 1;
                if random.chance(30) {
                    // The call does not return, or a `longjmp` resumes the block after an earlier call that returns twice (`setjmp`).
                    let resumed = cuts.iter().find(|(e, _)| counts[e.index()] > 0).map(|(e, _)| graph.to(*e));
                    match resumed {
                        Some(to) if random.chance(50) && left > 0 => {
                            (at, left) = (to, left - 1);
                            continue 'call;
                        }
                        _ => break 'call,
                    }
                }
            }
            let open: Vec<Edge> = out.iter().copied().filter(|e| !reaches.contains(*e)).collect();
            if open.is_empty() {
                break;
            }
            // Walks that end neither at the exit nor at a call that does not return are discarded.
            let edge = open[random.index(open.len())];
            left -= 1;
            if left < -2000 {
                return Vec::new();
            }
            counts[edge.index()] += 1;
            at = graph.to(edge);
        }
    }
    counts
}

#[test]
fn counts_of_all_edges_follow_from_counts_of_chords() {
    let random = &mut Random::new(11);
    let (mut tried, mut saved, mut all_events) = (0, 0, 0);
    while tried < 3000 {
        let subject = random_network(random);
        let NetworkSubject { graph, reaches, cuts } = &subject;
        let counts = execute_function(random, &subject);
        if counts.is_empty() || graph.nodes().any(|n| n != graph.exit() && graph.out(n).iter().all(|e| reaches.contains(*e))) {
            continue;
        }
        let dag = dag(graph, &cut_at_every_edge(graph, cuts));
        let network = EdgeFlowNetwork::new(graph, &dag, |e| reaches.contains(e), |node| cuts.iter().any(|c| graph.to(c.0) == node));
        let truth: Vec<u64> = network
            .events()
            .iter()
            .map(|event| match dag.edge(*event.path.last().unwrap()).origin {
                Origin::Real(e) | Origin::Leave(e) => counts[e.index()],
                other => panic!("{other:?}"),
            })
            .collect();
        let mut frequencies = vec![0; dag.edges().len()];
        network.events().iter().zip(&truth).for_each(|(event, n)| event.path.iter().for_each(|e| frequencies[e.index()] += n));
        let procedure = Procedure { dag: dag.clone(), frequencies, paths: Vec::new(), call_sites: None, unit: 0 };
        let copies = 1 + random.index(4);
        let plan = plan(std::slice::from_ref(&procedure), std::slice::from_ref(&network), copies);
        let parts: Vec<_> = plan.copies.iter().filter_map(|c| c.parts[0].as_ref()).collect();
        for part in &parts {
            verify_part(&dag, part).unwrap();
            assert!(dag.edge_ids().all(|e| part.increments[e.index()] == 0 || part.ends.contains(e)), "a label costs");
        }
        let known: Vec<Option<u64>> = network
            .events()
            .iter()
            .zip(&truth)
            .map(|(event, n)| parts.iter().any(|p| p.is_interesting(&event.path)).then_some(*n))
            .collect();
        assert_eq!(network.complete_event_counts(&known).as_ref(), Ok(&truth));
        // The copies together count all chords, each of them once, and no other events.
        let chords = network.chord_event_indices(&truth);
        assert_eq!(known.iter().filter(|n| n.is_some()).count(), chords.len());
        let hit: u64 = plan.copies.iter().map(|c| hits::copy_hits(std::slice::from_ref(&procedure), c).of(Measure::All)).sum();
        assert_eq!(hit, chords.iter().map(|at| truth[*at]).sum::<u64>());
        if let Some(at) = chords.first() {
            let less: Vec<Option<u64>> = known.iter().enumerate().map(|(i, n)| n.filter(|_| i != *at)).collect();
            assert!(network.complete_event_counts(&less).is_err(), "one chord less is as good");
        }
        (tried, saved, all_events) = (tried + 1, saved + known.len() - chords.len(), all_events + known.len());
    }
    assert!(saved * 7 > all_events, "{saved} of {all_events} edges are not counted");
}

#[test]
fn a_diamond_in_a_loop_needs_three_counters() {
    // 0 -> 1 | 2 -> 3 -> back to 0 or to the exit (4).
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 0), (3, 4)];
    let graph = Graph::new(5, Node(0), Node(4), edges.iter().map(|(a, b)| (Node(*a), Node(*b))).collect()).unwrap();
    let dag = dag(&graph, &cut_at_every_edge(&graph, &[]));
    let network = EdgeFlowNetwork::new(&graph, &dag, |_| false, |_| false);
    assert_eq!(network.events().len(), 6);
    // By Knuth's formula: the number of edges, minus the number of nodes (exit and entry are one), plus one.
    assert_eq!(network.chord_event_indices(&[10; 6]).len(), 3);
}
