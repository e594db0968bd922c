//! Checks path expressions in functions with cut paths against executions with known complete paths.

use std::collections::HashMap;
use trodden_analysis::expression::joined::{is_cut, is_whole, join};
use trodden_analysis::expression::{
    AllowedBlocksBetween, ExpressionPlace, ExpressionSequence, PathExpression, PathMatcher, RequiredPathBegin, RequiredPathEnd,
};
use trodden_flow::{CutReason, Edge, Node, Origin};
use trodden_profile::{FunctionPaths, PathEnd, PathStart};
use trodden_testkit::{Random, RandomFunction};
use trodden_unit::EdgeKind;

/// A piece of an execution, or one of its complete paths.
#[derive(Clone, Debug)]
struct Fragment {
    blocks: Vec<Node>,
    beginning: PathStart,
    end: PathEnd,
    /// The path numbers of the pieces.
    ids: Vec<u64>,
}

/// The complete paths of a function's executions, their pieces, and the counts of all path numbers.
#[derive(Default)]
struct ExecutedPieces {
    paths: Vec<Fragment>,
    pieces: Vec<Fragment>,
    counts: HashMap<u64, u64>,
}

impl ExecutedPieces {
    /// Adds a random execution, unless it is too long.
    fn add(&mut self, subject: &RandomFunction, random: &mut Random) {
        let map = &subject.map;
        let Some(edges) = random_walk(subject, random) else { return };
        let value = |is: &dyn Fn(Origin) -> bool| {
            let at = map.dag.iter().position(|origin| is(*origin)).expect("every edge of a walk is in the acyclic graph");
            map.values[at]
        };
        let (mut path, mut piece) = (Vec::new(), Vec::new());
        let (mut path_beginning, mut beginning) = (PathStart::Entry, PathStart::Entry);
        let (mut sum, mut ids) = (0, Vec::new());
        for edge in edges {
            let from = map.graph.from(edge);
            path.push(from);
            piece.push(from);
            let reach = map.graph.flow_edges().position(|e| e.from == from && e.kind == EdgeKind::Reach);
            if let Some(reach) = reach {
                let reached = sum + value(&|origin| origin == Origin::Real(Edge(reach as u32)));
                *self.counts.entry(reached as u64).or_default() += 1;
            }
            let cut = map.cuts.iter().find(|(cut, _)| *cut == edge);
            let to = map.graph.to(edge);
            if cut.is_none() && to.index() < map.blocks.len() {
                sum += value(&|origin| origin == Origin::Real(edge));
                continue;
            }
            let end = if cut.is_some() { PathEnd::Cut(edge) } else { PathEnd::Exit(edge) };
            sum += value(&|origin| origin == Origin::Leave(edge) || cut.is_none() && origin == Origin::Real(edge));
            *self.counts.entry(sum as u64).or_default() += 1;
            ids.push(sum as u64);
            self.pieces.push(Fragment { blocks: std::mem::take(&mut piece), beginning, end, ids: vec![sum as u64] });
            beginning = if to == Node(0) { PathStart::Entry } else { PathStart::After(edge) };
            if cut.is_none_or(|(_, reason)| !matches!(reason, CutReason::Limit | CutReason::EachEdge)) {
                let ids = std::mem::take(&mut ids);
                self.paths.push(Fragment { blocks: std::mem::take(&mut path), beginning: path_beginning, end, ids });
                path_beginning = beginning;
            }
            sum = 0;
            if cut.is_some() && to != Node(0) {
                sum = value(&|origin| matches!(origin, Origin::Enter(e) if map.graph.to(e) == to));
            }
        }
    }
}

/// Returns the edges of a random walk to the exit, or `None` if the walk is too long.
fn random_walk(subject: &RandomFunction, random: &mut Random) -> Option<Vec<Edge>> {
    let (map, mut at, mut edges) = (&subject.map, Node(0), Vec::new());
    while at.index() < map.blocks.len() {
        let out: Vec<Edge> = map.graph.out(at).iter().copied().filter(|e| map.graph.kind(*e) != EdgeKind::Reach).collect();
        let edge = random.pick(&out);
        edges.push(edge);
        at = map.graph.to(edge);
        if edges.len() > 60 {
            return None;
        }
    }
    Some(edges)
}

fn random_sequence(random: &mut Random, blocks: u64) -> ExpressionSequence {
    let places = |random: &mut Random, limit: u64| {
        (0..random.below(limit + 1)).map(|_| ExpressionPlace::Block(random.below(blocks) as u32)).collect()
    };
    let steps = 1 + random.below(2);
    ExpressionSequence {
        begin: random.pick(&[None, None, Some(RequiredPathBegin::Entry), Some(RequiredPathBegin::Head)]),
        before: AllowedBlocksBetween::Without(places(random, 1)),
        steps: (0..steps)
            .map(|_| (ExpressionPlace::Block(random.below(blocks) as u32), AllowedBlocksBetween::Without(places(random, 1))))
            .collect(),
        end: random.pick(&[None, None, Some(RequiredPathEnd::Exit), Some(RequiredPathEnd::Back)]),
        never: places(random, 1),
    }
}

#[test]
fn join_is_sound_for_known_executions() {
    let mut random = Random::new(23);
    let (mut certain, mut none, mut open, mut matched, mut whole) = (0u64, 0u64, 0u64, 0u64, 0u64);
    for _ in 0..6000 {
        let subject = RandomFunction::random(&mut random, "f", 10);
        let map = &subject.map;
        if !is_cut(map) {
            continue;
        }
        let mut executed = ExecutedPieces::default();
        for _ in 0..1 + random.below(5) {
            executed.add(&subject, &mut random);
        }
        let paths = FunctionPaths::decode(map, executed.counts.clone()).unwrap();
        for piece in &executed.pieces {
            if is_whole(map, &piece.blocks, Some(piece.end)) {
                assert!(executed.paths.iter().any(|p| p.ids == piece.ids), "{piece:?} of {map:?}");
                whole += 1;
            }
        }
        let expression = PathExpression { function: None, patterns: vec![vec![random_sequence(&mut random, map.blocks.len() as u64)]] };
        let unit = trodden_testkit::functions::unit(&mut random, "a.c", 1, 1).0;
        let matcher = PathMatcher::new(&expression, &unit, map);
        let matches = |p: &&Fragment| matcher.matches(&p.blocks, p.beginning, Some(p.end));
        let is_matched = executed.paths.iter().any(|p| matches(&p));
        if !expression.needs_whole_paths(map) {
            for piece in paths.complete.iter().filter(|p| matcher.matches(&p.blocks, p.beginning, Some(p.end))) {
                assert!(is_matched, "{expression:?}: {piece:?} of {map:?}");
                matched += 1;
            }
        }
        let found = join(&matcher, map, &paths);
        for chain in &found.certain {
            let ids: Vec<u64> = chain.pieces.iter().map(|(_, id)| *id).collect();
            let times = executed.paths.iter().filter(|p| p.ids == ids && matches(p)).count() as u64;
            assert!(times >= chain.min_count, "{expression:?}: {chain:?} was executed {times} times: {map:?}");
            certain += 1;
        }
        match (found.certain.is_empty(), found.is_undecided) {
            (true, false) => {
                assert!(!is_matched, "{expression:?} of {map:?}");
                none += 1;
            }
            (true, true) => open += 1,
            _ => {}
        }
    }
    let all = [certain, none, open, matched, whole];
    assert!(all.iter().all(|n| *n > 20), "each kind of answer must occur: {all:?}");
}
