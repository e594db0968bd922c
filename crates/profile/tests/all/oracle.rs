//! Compares decoding with an oracle.
//!
//! Random functions are executed on random paths. An interpreter of the plan's actions counts paths as instrumented code would, while a log
//! records each block, edge and path. Decoding the counts must reproduce the log. Calls may return, not return, or return in two processes,
//! and the program may be killed.

use std::collections::BTreeMap;
use trodden_flow::part::PathEnds;
use trodden_flow::plan::RegisterAction;
use trodden_flow::{DagEdgeId, Edge, Node, Origin};
use trodden_profile::forks::balance_forks;
use trodden_profile::procedures::build_measured_procedure;
use trodden_profile::{FunctionPaths, PathEnd, PathStart};
use trodden_testkit::{Random, RandomFunction};
use trodden_unit::{BlockKind, EdgeKind, FunctionMap};

const FUNCTION_COUNT: u64 = 30_000;
/// Maximum number of activations in a run, which stops functions that fork again and again.
const MAX_ACTIVATIONS: u64 = 200;

/// The block where a path begins (`None` for the function's entry), and the path's edges, including a cut edge at its end.
type LoggedPath = (Option<Node>, Vec<Edge>);

/// Everything that the program executed.
#[derive(Default)]
struct ExecutionLog {
    blocks: Vec<i64>,
    edges: Vec<i64>,
    complete: BTreeMap<LoggedPath, i64>,
    unfinished: BTreeMap<LoggedPath, i64>,
    lost: BTreeMap<Node, i64>,
}

/// An activation of the function that is still running.
#[derive(Clone)]
struct Activation {
    at: Node,
    register: i64,
    begin: Option<Node>,
    edges: Vec<Edge>,
    /// Number of elements of `edges` at the last call that might not return.
    last_call: Option<usize>,
    steps: u32,
    /// Whether the activation continues after the call in its current block, instead of at the block's beginning.
    is_after_call: bool,
}

/// A running program: the counts that instrumented code would have, and the log.
struct Machine<'a> {
    subject: &'a RandomFunction,
    counts: BTreeMap<i64, u64>,
    log: ExecutionLog,
    /// Percentage of calls that do not return, percentage of calls that return twice, and number of kills per 1,000 steps.
    rates: (u64, u64, u64),
    activations: u64,
}

impl Machine<'_> {
    fn call(&mut self, random: &mut Random) {
        let start =
            Activation { at: Node(0), register: 0, begin: None, edges: Vec::new(), last_call: None, steps: 0, is_after_call: false };
        let mut running = vec![start];
        while let Some(mut activation) = running.pop() {
            while self.step(random, &mut activation, &mut running) {}
        }
    }

    /// Executes one block of an activation. Returns false if the activation has ended.
    fn step(&mut self, random: &mut Random, a: &mut Activation, running: &mut Vec<Activation>) -> bool {
        let map = &self.subject.map;
        if !std::mem::take(&mut a.is_after_call) {
            self.log.blocks[a.at.index()] += 1;
            a.steps += 1;
            if self.make_call(a, random, running) {
                return false;
            }
        }
        if a.steps > 60 || random.below(1000) < self.rates.2 {
            self.kill(a);
            return false;
        }
        let open: Vec<Edge> = self.subject.graph.out(a.at).iter().copied().filter(|e| map.graph.kind(*e) != EdgeKind::Reach).collect();
        let edge = random.pick(&open);
        self.log.edges[edge.index()] += 1;
        a.edges.push(edge);
        let to = map.graph.to(edge);
        match self.subject.plan.action(&self.subject.graph, edge) {
            RegisterAction::Add { increment } => a.register += increment,
            RegisterAction::Count { increment } => {
                self.count(a.register + increment);
                *self.log.complete.entry((a.begin, a.edges.clone())).or_default() += 1;
                return false;
            }
            RegisterAction::CountAndRestart { increment, start } => {
                self.count(a.register + increment);
                *self.log.complete.entry((a.begin, std::mem::take(&mut a.edges))).or_default() += 1;
                a.begin = (to != Node(0)).then_some(to);
                (a.register, a.last_call) = (start, None);
                if map.graph.kind(edge) == EdgeKind::ReturnsTwice {
                    // The call returns any number of times, including never.
                    a.at = to;
                    let times = if self.activations < MAX_ACTIVATIONS { random.pick(&[0, 1, 1, 2, 3]) } else { 0 };
                    self.activations += times;
                    running.extend((0..times).map(|_| a.clone()));
                    return false;
                }
            }
            RegisterAction::Dead => panic!("a dead edge was taken"),
        }
        a.at = to;
        true
    }

    /// Executes the call in the current block that might not return, if there is one. Returns whether the activation has ended.
    fn make_call(&mut self, a: &mut Activation, random: &mut Random, running: &mut Vec<Activation>) -> bool {
        let map = &self.subject.map;
        let Some(reach) = self.subject.graph.out(a.at).iter().find(|e| map.graph.kind(**e) == EdgeKind::Reach) else { return false };
        let RegisterAction::Count { increment } = self.subject.plan.action(&self.subject.graph, *reach) else {
            panic!("paths end at the exit")
        };
        self.count(a.register + increment);
        a.last_call = Some(a.edges.len());
        let prefix = (a.begin, a.edges.clone());
        match random.below(100) {
            n if n < self.rates.0 => {
                *self.log.unfinished.entry(prefix).or_default() += 1;
                true
            }
            n if n < self.rates.0 + self.rates.1 && self.activations < MAX_ACTIVATIONS => {
                self.activations += 1;
                *self.log.unfinished.entry(prefix).or_default() -= 1;
                running.push(Activation { is_after_call: true, ..a.clone() });
                false
            }
            _ => false,
        }
    }

    /// Kills the program between two blocks. What it executed since the last count is removed from the log, since the counts cannot show
    /// it.
    fn kill(&mut self, a: &Activation) {
        let map = &self.subject.map;
        let known = match a.last_call {
            Some(edges) => {
                *self.log.unfinished.entry((a.begin, a.edges[..edges].to_vec())).or_default() += 1;
                edges
            }
            None => {
                let first = a.begin.unwrap_or(Node(0));
                self.log.blocks[first.index()] -= 1;
                if a.begin.is_some() && map.blocks[first.index()].kind != BlockKind::Continuation {
                    *self.log.lost.entry(first).or_default() += 1;
                }
                0
            }
        };
        for edge in &a.edges[known..] {
            self.log.edges[edge.index()] -= 1;
            self.log.blocks[map.graph.to(*edge).index()] -= 1;
        }
    }

    fn count(&mut self, index: i64) {
        *self.counts.entry(index).or_default() += 1;
    }
}

/// Converts a decoded path to the representation in the log.
fn to_logged(subject: &RandomFunction, beginning: PathStart, path: &[DagEdgeId]) -> LoggedPath {
    let real = |id: &DagEdgeId| match subject.plan.dag.edge(*id).origin {
        Origin::Real(e) | Origin::Leave(e) => Some(e),
        Origin::Enter(_) | Origin::Stop(_) => None,
    };
    let begin = match beginning {
        PathStart::Entry => None,
        PathStart::After(e) => Some(subject.map.graph.to(e)),
    };
    (begin, path.iter().filter_map(real).collect())
}

fn blocks_of(map: &FunctionMap, (begin, edges): &LoggedPath) -> Vec<Node> {
    let after = edges.iter().map(|e| map.graph.to(*e));
    std::iter::once(begin.unwrap_or(Node(0))).chain(after).collect()
}

fn nonzero<K: Ord>(counts: BTreeMap<K, i64>) -> BTreeMap<K, i64> {
    counts.into_iter().filter(|(_, n)| *n != 0).collect()
}

fn check_decoding(seed: u64, subject: &RandomFunction, machine: Machine) -> FunctionPaths {
    let counts: Vec<(u64, u64)> = machine.counts.iter().map(|(&id, &n)| (u64::try_from(id).expect("no counter below 0"), n)).collect();
    let paths = FunctionPaths::decode(&subject.map, counts.iter().copied()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let log = machine.log;
    check_procedure(seed, subject, &paths, &counts, &log);
    let signed = |counts: &[u64]| counts.iter().map(|n| *n as i64).collect::<Vec<_>>();
    assert_eq!(signed(&paths.blocks), log.blocks, "seed {seed}: blocks");
    assert_eq!(signed(&paths.edges), log.edges, "seed {seed}: edges");
    assert_eq!(paths.call_count() as i64, log.blocks[0]);
    let (mut complete, mut unfinished) = (BTreeMap::new(), BTreeMap::new());
    for path in &paths.complete {
        let logged = to_logged(subject, path.beginning, &path.path);
        let mut expected = blocks_of(&subject.map, &logged);
        expected.pop();
        assert_eq!(path.blocks, expected, "seed {seed}");
        let last = logged.1.last().copied().expect("paths of functions end with an edge");
        let end = if subject.plan.dag.cut(last).is_some() { PathEnd::Cut(last) } else { PathEnd::Exit(last) };
        assert_eq!(path.end, end, "seed {seed}");
        *complete.entry(logged).or_default() += path.count as i64;
    }
    for path in &paths.unfinished {
        let logged = to_logged(subject, path.beginning, &path.path);
        assert_eq!(path.blocks, blocks_of(&subject.map, &logged), "seed {seed}");
        *unfinished.entry(logged).or_default() += path.count;
    }
    assert_eq!(complete, log.complete, "seed {seed}: complete paths");
    assert_eq!(nonzero(unfinished), nonzero(log.unfinished), "seed {seed}: unfinished paths");
    let lost: BTreeMap<Node, i64> = paths.lost.iter().map(|l| (l.head, l.count)).collect();
    assert_eq!(lost, nonzero(log.lost), "seed {seed}: lost paths");
    assert!(paths.complete.is_sorted_by_key(|p| (std::cmp::Reverse(p.count), p.id)));
    paths
}

/// Checks the procedure that is made of the counts: its real edges must have the logged frequencies, and every path must be counted at an
/// end.
fn check_procedure(seed: u64, subject: &RandomFunction, paths: &FunctionPaths, counts: &[(u64, u64)], log: &ExecutionLog) {
    if paths.unfinished.iter().any(|u| u.count < 0) {
        return;
    }
    let procedure = build_measured_procedure(&subject.map, counts).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    for (edge, executed) in procedure.dag.edges().iter().zip(&procedure.frequencies) {
        if let Origin::Real(e) | Origin::Leave(e) = edge.origin
            && subject.map.graph.kind(e) != EdgeKind::Reach
        {
            assert_eq!(*executed as i64, log.edges[e.index()], "seed {seed}: edge {}", e.0);
        }
    }
    let at_ends: u64 = PathEnds::from_dag(&procedure.dag).edges().iter().map(|e| procedure.frequencies[e.index()]).sum();
    let counted: u64 = counts.iter().map(|c| c.1).sum();
    assert_eq!((at_ends, procedure.paths.iter().map(|p| p.count).sum()), (counted, counted), "seed {seed}: counts are made at ends");
}

/// Checks the counts after the paths of child processes have been added: no block is left or executed more often than it is entered, and no
/// block is executed that was not executed before.
fn check_paths_of_children(seed: u64, subject: &RandomFunction, paths: &FunctionPaths) -> bool {
    let map = &subject.map;
    let forks: Vec<Edge> = subject.graph.edges().filter(|e| map.graph.kind(*e) == EdgeKind::ReturnsTwice).collect();
    let more = balance_forks(map, paths, &forks).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let whole = more.as_ref().unwrap_or(paths);
    for (block, executed) in whole.blocks.iter().enumerate() {
        assert_eq!(*executed > 0, paths.blocks[block] > 0, "seed {seed}: block {block}");
        assert!(*executed >= paths.blocks[block], "seed {seed}: block {block}");
        let sum = |edges: &[Edge]| edges.iter().map(|e| whole.edges[e.index()]).sum::<u64>();
        let node = Node(block as u32);
        assert!(node == Node(0) || *executed <= sum(subject.graph.incoming(node)), "seed {seed}: block {block} is entered less often");
        assert!(*executed >= sum(subject.graph.out(node)), "seed {seed}: block {block} is left more often");
    }
    more.is_some()
}

#[test]
fn decoded_paths_match_the_executed_paths() {
    let (mut complete, mut unfinished, mut negative, mut lost, mut continued) = (0, 0, 0, 0, 0);
    for seed in 0..FUNCTION_COUNT {
        let mut random = Random::new(seed);
        let subject = RandomFunction::random(&mut random, "f", 10);
        let log = ExecutionLog {
            blocks: vec![0; subject.map.blocks.len()],
            edges: vec![0; subject.map.graph.edge_count()],
            ..ExecutionLog::default()
        };
        let rates = random.pick(&[(0, 0, 0), (15, 0, 0), (10, 10, 0), (10, 10, 20), (40, 5, 5)]);
        let mut machine = Machine { subject: &subject, counts: BTreeMap::new(), log, rates, activations: 0 };
        // Several processes count in the same array.
        for _ in 0..1 + random.below(12) {
            machine.call(&mut random);
        }
        let is_whole = machine.rates.2 == 0;
        let paths = check_decoding(seed, &subject, machine);
        continued += usize::from(is_whole && check_paths_of_children(seed, &subject, &paths));
        complete += usize::from(!paths.complete.is_empty());
        unfinished += usize::from(paths.unfinished.iter().any(|u| u.count > 0));
        negative += usize::from(paths.unfinished.iter().any(|u| u.count < 0));
        lost += usize::from(!paths.lost.is_empty());
    }
    let seen = (complete, unfinished, negative, lost, continued);
    assert!(complete > 20_000 && unfinished > 5_000 && negative > 1_000 && lost > 1_000 && continued > 1_000, "{seen:?}");
}

#[test]
fn counter_without_path_is_an_error() {
    let subject = RandomFunction::random(&mut Random::new(3), "f", 10);
    let error = FunctionPaths::decode(&subject.map, [(subject.map.counters, 1)]).unwrap_err();
    assert_eq!(error.to_string(), format!("the map of function `f` is corrupt: path {} does not exist", subject.map.counters));
}

#[test]
fn acyclic_graph_of_different_function_is_an_error() {
    let mut rejected = 0;
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let (one, other) = (RandomFunction::random(&mut random, "one", 6), RandomFunction::random(&mut random, "other", 6));
        let mixed = FunctionMap { graph: other.map.graph.clone(), ..one.map.clone() };
        match FunctionPaths::decode(&mixed, [(0, 1)]) {
            Ok(paths) => assert_eq!(paths.edges.len(), mixed.graph.edge_count()),
            Err(_) => rejected += 1,
        }
    }
    assert!(rejected > 1500, "{rejected}");
}
