//! Bounds on the counts of nodes, checked with random executions of random graphs with some hidden counts.

use trodden_flow::bounds::{CountInterval, compute_node_bounds, find_contradicted_nodes, find_inevitable_nodes, find_reachable_nodes};
use trodden_flow::{Graph, Node};
use trodden_testkit::Random;
use trodden_testkit::graphs::{CycleKind, graph};

/// Returns the counts of the nodes in random executions. An execution may end in a node of `may_end`. An execution that becomes too long
/// ends at its current node, which is added to `may_end`.
fn execute(random: &mut Random, graph: &Graph, may_end: &mut [bool]) -> Vec<u64> {
    let mut counts = vec![0; graph.node_count()];
    for _ in 0..random.below(8) {
        let (mut at, mut steps) = (graph.entry(), 0);
        loop {
            counts[at.index()] += 1;
            may_end[at.index()] |= steps > 60;
            let ends = may_end[at.index()] && (steps > 60 || random.chance(20));
            if at == graph.exit() || ends || graph.out(at).is_empty() {
                break;
            }
            steps += 1;
            at = graph.to(random.pick(graph.out(at)));
        }
    }
    counts
}

#[test]
fn bounds_contain_the_hidden_counts() {
    let mut random = Random::new(2611);
    let (mut exact, mut hidden) = (0u64, 0u64);
    for _ in 0..4000 {
        let graph = graph(&mut random, 10, 20, CycleKind::Some);
        let mut may_end: Vec<bool> = graph.nodes().map(|_| random.chance(20)).collect();
        let counts = execute(&mut random, &graph, &mut may_end);
        let given = |random: &mut Random, count: u64| match random.below(10) {
            0..4 => CountInterval::ANY,
            4 => CountInterval::at_least(count.saturating_sub(1)),
            _ => CountInterval::exactly(count),
        };
        let given: Vec<CountInterval> = counts.iter().map(|count| given(&mut random, *count)).collect();
        for ((bounds, count), given) in compute_node_bounds(&graph, given.clone(), &may_end).iter().zip(&counts).zip(&given) {
            assert!((bounds.low..=bounds.high).contains(count), "{bounds:?} {count} {graph:?} {given:?}");
            hidden += u64::from(*given == CountInterval::ANY);
            exact += u64::from(*given == CountInterval::ANY && bounds.low == bounds.high);
        }
    }
    // With fewer exact bounds, the analysis would be useless.
    assert!(exact * 4 > hidden, "{exact} of {hidden}");
}

#[test]
fn inevitable_nodes_were_executed_and_executed_nodes_are_reachable() {
    let mut random = Random::new(2612);
    let (mut concluded, mut unreachable) = (0u64, 0u64);
    for _ in 0..4000 {
        let graph = graph(&mut random, 10, 14, CycleKind::Some);
        let mut may_end: Vec<bool> = graph.nodes().map(|_| random.chance(10)).collect();
        let counts = execute(&mut random, &graph, &mut may_end);
        let seen = |count: &u64| match random.chance(30) {
            true if *count == 0 => CountInterval::exactly(0),
            true => CountInterval::at_least(1),
            false => CountInterval::ANY,
        };
        let seen: Vec<CountInterval> = counts.iter().map(seen).collect();
        for (node, found) in find_inevitable_nodes(&graph, &seen, &may_end).into_iter().enumerate() {
            assert!(!found || counts[node] > 0, "{node} {graph:?} {seen:?} {may_end:?}");
            concluded += u64::from(found && seen[node] == CountInterval::ANY);
        }
        let given =
            counts.iter().map(|n| if *n == 0 && random.chance(30) { CountInterval::exactly(0) } else { CountInterval::ANY }).collect();
        for (node, found) in find_reachable_nodes(&graph, given, &may_end).into_iter().enumerate() {
            assert!(found || counts[node] == 0, "{node} {graph:?} {counts:?}");
            unreachable += u64::from(!found);
        }
    }
    assert!(concluded > 1000 && unreachable > 1000, "{concluded} {unreachable}");
}

#[test]
fn unobserved_side_of_a_branch_gets_the_remaining_executions() {
    // 0 -> 1 | 2 -> 3
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3)].map(|(a, b)| (Node(a), Node(b))).to_vec();
    let graph = Graph::new(4, Node(0), Node(3), edges).unwrap();
    let given = |first: u64, second| vec![CountInterval::exactly(first), second];
    let bounds = compute_node_bounds(&graph, given(10, CountInterval::exactly(4)), &[false; 4]);
    assert_eq!((bounds[2], bounds[3]), (CountInterval::exactly(6), CountInterval::exactly(10)));
    // A call in node 0 may not have returned.
    assert_eq!(compute_node_bounds(&graph, given(10, CountInterval::exactly(4)), &[true, false, false, false])[2].low, 0);
    assert_eq!(compute_node_bounds(&graph, given(10, CountInterval::at_least(4)), &[false; 4])[2], CountInterval { low: 0, high: 6 });
    // Contradictory counts do not change other bounds.
    assert_eq!(compute_node_bounds(&graph, given(1, CountInterval::exactly(4)), &[false; 4])[1].low, 4);
}

#[test]
fn nodes_given_as_unexecuted_are_contradicted_if_executions_are_missing() {
    // 0 -> 1 | 2 -> 3 -> 4
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)].map(|(a, b)| (Node(a), Node(b))).to_vec();
    let graph = Graph::new(5, Node(0), Node(4), edges).unwrap();
    let given = |one: u64, two: u64, three: u64| {
        [CountInterval::ANY, CountInterval::exactly(one), CountInterval::exactly(two), CountInterval::at_least(three)].to_vec()
    };
    assert_eq!(find_contradicted_nodes(&graph, given(4, 0, 4), &[false; 5]), []);
    assert_eq!(find_contradicted_nodes(&graph, given(4, 0, 6), &[false; 5]), [Node(2)]);
    assert_eq!(find_contradicted_nodes(&graph, given(0, 0, 6), &[false; 5]), [Node(1), Node(2)]);
    let entered = |end| {
        let mut given = given(4, 0, 0);
        given[0] = CountInterval::exactly(6);
        find_contradicted_nodes(&graph, given, &[end, false, false, false, false])
    };
    assert_eq!((entered(false), entered(true)), (vec![Node(2)], vec![]));
}
