//! Checks findings on random functions with random counts against brute force. Every execution is a list of edges, and every number is
//! recomputed from that list.

use std::collections::{BTreeMap, BTreeSet};
use trodden_analysis::advise::{Advice, AdviseOptions, CorrelatedBranches, LoopPatterns, NeverTogether, advise};
use trodden_flow::{CutReason, DagEdge, Edge, Node, Origin};
use trodden_profile::FunctionPaths;
use trodden_testkit::{Random, RandomFunction};
use trodden_unit::{EdgeKind, FlowEdge, FlowGraph, FunctionMap};

const FUNCTIONS: u64 = 12_000;
const MAX_PATHS: u64 = 200;
const OPTIONS: AdviseOptions = AdviseOptions { decided: 0.9, min_count: 20 };

struct Execution {
    count: u64,
    blocks: Vec<Node>,
    edges: Vec<Edge>,
}

struct AdviceTestCase {
    map: FunctionMap,
    paths: FunctionPaths,
    executions: Vec<Execution>,
}

/// Creates a random function with random counts. A few paths are frequent, so that there is something to find.
fn random_case(random: &mut Random) -> Option<AdviceTestCase> {
    let mut map = RandomFunction::random(random, "f", 8).map;
    // Turn calls that may not return into returns, so that every branch has outcomes.
    let stops = |map: &FunctionMap, path: &[DagEdge]| {
        matches!(path.last().map(|e| e.origin),
        Some(Origin::Real(e)) if map.graph.kind(e) == EdgeKind::Reach)
    };
    let returns = |kind: EdgeKind| if kind == EdgeKind::NoReturn { EdgeKind::Return } else { kind };
    let edges = map.graph.flow_edges().map(|edge| FlowEdge { kind: returns(edge.kind), ..edge });
    map.graph = FlowGraph::new(map.blocks.len(), edges).unwrap();
    if map.counters > MAX_PATHS {
        return None;
    }
    let mut all = Vec::new();
    enumerate_paths(&map, Node(0), 0, &mut Vec::new(), &mut all);
    let mut counts = Vec::new();
    let mut executions = Vec::new();
    let share = random.pick(&[15, 40, 80]);
    for (id, path) in all {
        if stops(&map, &path) || !random.chance(share) {
            continue;
        }
        let magnitude = 1 + random.below(5) as u32;
        let count = 1 + random.below(10u64.pow(magnitude));
        counts.push((id as u64, count));
        let (mut blocks, mut edges) = (Vec::new(), Vec::new());
        for edge in &path {
            if !matches!(edge.origin, Origin::Enter(_)) {
                blocks.push(edge.from);
            }
            if let Origin::Real(e) | Origin::Leave(e) = edge.origin {
                edges.push(e);
            }
        }
        executions.push(Execution { count, blocks, edges });
    }
    counts.sort();
    let paths = FunctionPaths::decode(&map, counts).unwrap();
    Some(AdviceTestCase { map, paths, executions })
}

fn enumerate_paths(map: &FunctionMap, at: Node, sum: i64, path: &mut Vec<DagEdge>, all: &mut Vec<(i64, Vec<DagEdge>)>) {
    if at == map.exit() {
        all.push((sum, path.clone()));
        return;
    }
    let edges = map.dag.iter().map(|origin| origin.dag_edge(&map.graph));
    for (edge, value) in edges.zip(&map.values).filter(|(e, _)| e.from == at) {
        path.push(edge);
        enumerate_paths(map, edge.to, sum + value, path, all);
        path.pop();
    }
}

impl AdviceTestCase {
    fn count_executions(&self, holds: impl Fn(&Execution) -> bool) -> u64 {
        self.executions.iter().filter(|e| holds(e)).map(|e| e.count).sum()
    }

    /// Returns the branches with several executed outcomes, and these outcomes.
    fn branches(&self) -> BTreeMap<Node, BTreeSet<Edge>> {
        let mut branches: BTreeMap<Node, BTreeSet<Edge>> = BTreeMap::new();
        for edge in self.executions.iter().flat_map(|e| &e.edges) {
            let flow = self.map.graph.edge(*edge);
            if matches!(flow.kind, EdgeKind::Indirect(_)) {
                branches.entry(flow.from).or_default().insert(*edge);
            }
        }
        branches.retain(|_, outcomes| outcomes.len() > 1);
        branches
    }

    fn source_block(&self, edge: Edge) -> Node {
        self.map.graph.from(edge)
    }

    /// Returns the head, and the blocks from which a back edge to the head can be reached without passing the head.
    fn loop_body(&self, head: Node) -> BTreeSet<Node> {
        let back = |e: &Edge| self.map.cuts.contains(&(*e, CutReason::Back)) && self.map.graph.to(*e) == head;
        let tails: BTreeSet<Node> = (0..self.map.graph.edge_count() as u32).map(Edge).filter(back).map(|e| self.source_block(e)).collect();
        let reaches = |from: Node| {
            let (mut seen, mut stack) = (BTreeSet::from([from]), vec![from]);
            while let Some(at) = stack.pop() {
                if tails.contains(&at) {
                    return true;
                }
                let next = self.map.graph.flow_edges().filter(|e| e.from == at && e.kind != EdgeKind::Reach && e.to != head).map(|e| e.to);
                stack.extend(next.filter(|n| seen.insert(*n)).collect::<Vec<_>>());
            }
            false
        };
        (0..self.map.blocks.len() as u32).map(Node).filter(|b| *b == head || reaches(*b)).collect()
    }

    fn loops(&self) -> BTreeMap<Node, BTreeSet<Node>> {
        let heads = self.map.cuts.iter().filter(|(_, r)| *r == CutReason::Back).map(|(e, _)| self.map.graph.to(*e));
        let loops = heads.map(|h| (h, self.loop_body(h)));
        loops.filter(|(head, body)| *head == Node(0) || !body.contains(&Node(0))).collect()
    }

    fn enters_loop(&self, from: Node, to: Node) -> bool {
        self.loops().values().any(|body| body.contains(&to) && !body.contains(&from))
    }
}

fn position_of(execution: &Execution, edge: Edge) -> Option<usize> {
    execution.edges.iter().position(|e| *e == edge)
}

/// Returns true if an execution takes `first` before `second`.
fn takes_in_order(execution: &Execution, first: Edge, second: Edge) -> bool {
    matches!((position_of(execution, first), position_of(execution, second)), (Some(a), Some(b)) if a < b)
}

fn entropy(counts: &[u64]) -> f64 {
    let total: u64 = counts.iter().sum();
    counts.iter().filter(|c| **c > 0).map(|c| *c as f64 / total as f64).map(|p| -p * p.log2()).sum()
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6 * (1.0 + a.abs())
}

/// Returns the number of executions of the later branch that an earlier branch decides, and the mean distance between the branches.
fn count_decided(case: &AdviceTestCase, earlier: &BTreeSet<Edge>, later: &BTreeSet<Edge>) -> (u64, f64) {
    let (mut decided, mut all, mut distance) = (0, 0u64, 0.0);
    for a in earlier {
        let cells: Vec<u64> = later.iter().map(|c| case.count_executions(|e| takes_in_order(e, *a, *c))).collect();
        let total: u64 = cells.iter().sum();
        all += total;
        if total >= OPTIONS.min_count && *cells.iter().max().unwrap() as f64 >= OPTIONS.decided * total as f64 {
            decided += total;
        }
        for c in later {
            let apart = |e: &Execution| (position_of(e, *c).unwrap() - position_of(e, *a).unwrap()) as f64 * e.count as f64;
            distance += case.executions.iter().filter(|e| takes_in_order(e, *a, *c)).map(apart).sum::<f64>();
        }
    }
    (decided, distance / all as f64)
}

/// Returns the entropy of the later branch that remains if the outcome of the earlier branch is known. Not executing the earlier branch
/// counts as an outcome.
fn remaining_entropy(case: &AdviceTestCase, earlier: &BTreeSet<Edge>, later: &BTreeSet<Edge>) -> f64 {
    let total = case.count_executions(|e| later.iter().any(|c| position_of(e, *c).is_some())) as f64;
    let mut bits = 0.0;
    for a in earlier.iter().map(Some).chain([None]) {
        let known = |e: &Execution, c: Edge| match a {
            Some(a) => takes_in_order(e, *a, c),
            None => position_of(e, c).is_some() && !earlier.iter().any(|a| takes_in_order(e, *a, c)),
        };
        let cells: Vec<u64> = later.iter().map(|c| case.count_executions(|e| known(e, *c))).collect();
        bits += if cells.iter().any(|c| *c > 0) { entropy(&cells) * cells.iter().sum::<u64>() as f64 / total } else { 0.0 };
    }
    bits
}

fn assert_correlated_matches(case: &AdviceTestCase, found: &[&CorrelatedBranches]) {
    let branches = case.branches();
    for (later, outcomes) in &branches {
        let counts: Vec<u64> = outcomes.iter().map(|c| case.count_executions(|e| position_of(e, *c).is_some())).collect();
        let executions: u64 = counts.iter().sum();
        let undecided = *counts.iter().max().unwrap() as f64 <= 0.99 * executions as f64;
        let others = branches.iter().filter(|(a, _)| *a != later);
        let met =
            others.filter(|(_, a)| a.iter().any(|a| outcomes.iter().any(|c| case.count_executions(|e| takes_in_order(e, *a, *c)) > 0)));
        let all: Vec<(&Node, u64, f64)> =
            met.map(|(a, edges)| (a, count_decided(case, edges, outcomes))).map(|(a, (d, far))| (a, d, far)).collect();
        let most = all.iter().map(|c| c.1).max().unwrap_or(0);
        let nearest = all.iter().filter(|c| c.1 == most).map(|c| c.2).fold(f64::INFINITY, f64::min);
        let reported = found.iter().find(|c| c.later == *later);
        let best: Vec<&Node> = all.iter().filter(|c| c.1 == most && is_close(c.2, nearest)).map(|c| c.0).collect();
        let bits = entropy(&counts);
        let enough = |a: &Node| bits - remaining_entropy(case, &branches[a], outcomes) >= 0.1 * bits;
        let expected = executions >= OPTIONS.min_count && undecided && most >= OPTIONS.min_count && most as f64 >= 0.1 * executions as f64;
        // If several branches are equally good and near, any of them may be reported.
        match reported {
            None => assert!(!expected || !best.iter().all(|a| enough(a)), "the branch in block {} is not found", later.0),
            Some(reported) => {
                assert!(expected && best.contains(&&reported.earlier) && enough(&reported.earlier), "{reported:?}");
                assert_eq!(
                    (reported.decided, reported.executions, reported.first_iteration),
                    (most, executions, case.enters_loop(reported.earlier, *later))
                );
                assert!(
                    is_close(reported.entropy, bits)
                        && is_close(reported.information, bits - remaining_entropy(case, &branches[&reported.earlier], outcomes))
                );
                let between = |e: &Execution, d: Edge| -> Vec<Node> {
                    let Some(from) = position_of(e, d) else { return Vec::new() };
                    let to = e.blocks.iter().position(|b| b == later);
                    to.filter(|to| *to > from).map_or(Vec::new(), |to| e.blocks[from + 1..=to].to_vec())
                };
                let deciding = || reported.given.iter().filter(|g| g.decides.is_some()).map(|g| g.edge);
                let blocks: BTreeSet<Node> = deciding().flat_map(|d| case.executions.iter().flat_map(move |e| between(e, d))).collect();
                assert_eq!(reported.stretch.blocks, blocks.into_iter().collect::<Vec<_>>());
            }
        }
    }
    assert!(found.iter().all(|c| branches.contains_key(&c.later)));
}

fn assert_never_together_matches(case: &AdviceTestCase, found: &[&NeverTogether], reported: &BTreeSet<Node>) {
    let branches = case.branches();
    let mut expected: BTreeMap<Edge, f64> = BTreeMap::new();
    for (later, outcomes) in branches.iter().filter(|(later, _)| !reported.contains(later)) {
        let executions = case.count_executions(|e| outcomes.iter().any(|c| position_of(e, *c).is_some()));
        for second in outcomes {
            let seconds = case.count_executions(|e| position_of(e, *second).is_some());
            for (earlier, firsts) in branches.iter().filter(|(a, _)| !case.enters_loop(**a, *later)) {
                for first in firsts.iter().filter(|_| earlier != later) {
                    let after_first = case.count_executions(|e| outcomes.iter().any(|c| takes_in_order(e, *first, *c)));
                    let chance = after_first as f64 * seconds as f64 / executions as f64;
                    let often = seconds >= OPTIONS.min_count
                        && seconds as f64 >= 0.01 * executions as f64
                        && after_first as f64 >= 0.05 * executions as f64;
                    if case.count_executions(|e| takes_in_order(e, *first, *second)) == 0 && often && chance >= 100.0 {
                        // Compute the probability of an empty draw one execution at a time. The draw is the smaller of the two sets.
                        let (drawn, marked) = (after_first.min(seconds), after_first.max(seconds));
                        let one = |i: u64| ((executions - marked - i) as f64 / (executions - i) as f64).log10();
                        let surprise: f64 = -(0..drawn).map(one).sum::<f64>();
                        let best = expected.entry(*second).or_insert(0.0);
                        *best = best.max(surprise);
                    }
                }
            }
        }
    }
    let found: BTreeMap<Edge, f64> = found.iter().map(|n| (n.second, n.surprise)).collect();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (edge, surprise) in found {
        let naive = expected[&edge];
        assert!(is_close(surprise, naive) || (surprise.is_infinite() && naive > 300.0), "{surprise} is not {naive}");
    }
}

fn assert_loops_match(case: &AdviceTestCase, found: &[&LoopPatterns]) {
    let mut expected = BTreeSet::new();
    for (head, body) in case.loops() {
        let inside = |e: &Edge| body.contains(&case.source_block(*e)) && body.contains(&case.map.graph.to(*e));
        let foreign = |(e, reason): &(Edge, CutReason)| inside(e) && !(*reason == CutReason::Back && case.map.graph.to(*e) == head);
        if case.map.cuts.iter().any(foreign) {
            continue;
        }
        let mut patterns: BTreeMap<Vec<Edge>, u64> = BTreeMap::new();
        for execution in case.executions.iter().filter(|e| e.blocks.contains(&head)) {
            let from = execution.blocks.iter().position(|b| *b == head).unwrap();
            let mut pattern = Vec::new();
            for edge in &execution.edges[from..] {
                pattern.push(*edge);
                if !body.contains(&case.map.graph.to(*edge)) {
                    break;
                }
            }
            *patterns.entry(pattern).or_default() += execution.count;
        }
        let counts: Vec<u64> = patterns.values().copied().collect();
        let iterations: u64 = counts.iter().sum();
        if case.count_executions(|e| e.blocks.contains(&head)) < OPTIONS.min_count {
            continue;
        }
        let mut sum = 0.0;
        for block in &body {
            let outcomes = (0..case.map.graph.edge_count() as u32).map(Edge).filter(|e| case.source_block(*e) == *block);
            let outcomes: Vec<u64> = outcomes.map(|w| patterns.iter().filter(|(p, _)| p.contains(&w)).map(|(_, n)| n).sum()).collect();
            let total: u64 = outcomes.iter().sum();
            sum += if total > 0 { entropy(&outcomes) * total as f64 / iterations as f64 } else { 0.0 };
        }
        let mut sorted = counts.clone();
        sorted.sort_by(|a, b| b.cmp(a));
        let needed = (1..=sorted.len()).find(|n| sorted[..*n].iter().sum::<u64>() as f64 >= 0.9 * iterations as f64).unwrap();
        let saved = sum - entropy(&counts);
        if (saved - 0.2).abs() < 1e-9 || saved < 0.2 || needed > 16 {
            continue;
        }
        expected.insert(head);
        let reported = found.iter().find(|l| l.head == head).unwrap_or_else(|| panic!("the loop at block {} is not found", head.0));
        assert_eq!((reported.iterations, reported.distinct, reported.patterns.len()), (iterations, patterns.len(), needed));
        assert!(is_close(reported.entropy, entropy(&counts)) && is_close(reported.branches_entropy, sum), "{reported:?}");
        assert!(reported.patterns.iter().all(|p| patterns.get(&p.edges) == Some(&p.count)));
    }
    assert!(found.iter().all(|l| expected.contains(&l.head)));
}

#[test]
fn findings_match_brute_force() {
    let mut random = Random::new(20);
    let mut reported = [0; 3];
    for _ in 0..FUNCTIONS {
        let Some(case) = random_case(&mut random) else { continue };
        let findings = advise(&case.map, &case.paths, None, &OPTIONS);
        assert!(findings.windows(2).all(|w| w[0].saves >= w[1].saves));
        let (mut correlated, mut loops, mut never) = (Vec::new(), Vec::new(), Vec::new());
        for finding in &findings {
            match &finding.advice {
                Advice::Correlated(c) => correlated.push(c),
                Advice::Loop(l) => loops.push(l),
                Advice::Never(n) => never.push(n),
                Advice::Redundant(_) => panic!("there are no block properties to find this by"),
            }
        }
        assert_correlated_matches(&case, &correlated);
        assert_never_together_matches(&case, &never, &correlated.iter().map(|c| c.later).collect());
        assert_loops_match(&case, &loops);
        let found = [correlated.len(), loops.len(), never.len()];
        reported.iter_mut().zip(found).for_each(|(sum, n)| *sum += n);
    }
    assert!(reported.iter().all(|n| *n > 10), "too few findings were tested: {reported:?}");
}
