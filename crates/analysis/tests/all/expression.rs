//! Checks matching of path expressions on random functions against trying all assignments of places to blocks.

use trodden_analysis::expression::{
    AllowedBlocksBetween, ExpressionPlace, ExpressionSequence, PathExpression, PathMatcher, RequiredPathBegin, RequiredPathEnd,
};
use trodden_flow::{CutReason, Node};
use trodden_profile::{DecodedPath, PathDecoder, PathEnd, PathStart};
use trodden_testkit::{Random, RandomFunction};
use trodden_unit::{FunctionMap, UnitMap};

fn build_unit() -> UnitMap {
    let (source, producer, target) = ("a.c".into(), String::new(), String::new());
    let (codegen, files, scopes, functions, skipped) = (vec![], vec![], vec![], vec![], vec![]);
    UnitMap {
        source,
        producer,
        llvm: 22,
        target,
        experiment: Default::default(),
        counted: Default::default(),
        codegen,
        files,
        scopes,
        functions,
        skipped,
        fully_counted: vec![],
        counters: 0,
        edge_profile: None,
        calls: vec![],
        aliases: vec![],
        line_graphs: Default::default(),
    }
}

fn random_place(random: &mut Random, blocks: u64) -> ExpressionPlace {
    if random.chance(15) { ExpressionPlace::Any } else { ExpressionPlace::Block(random.below(blocks) as u32) }
}

fn random_gap(random: &mut Random, blocks: u64) -> AllowedBlocksBetween {
    match random.below(3) {
        0 => AllowedBlocksBetween::Nothing,
        1 => AllowedBlocksBetween::Without(Vec::new()),
        // The cases above generate gaps without excluded places.
        _ => AllowedBlocksBetween::Without((0..1 + random.below(2)).map(|_| ExpressionPlace::Block(random.below(blocks) as u32)).collect()),
    }
}

fn random_sequence(random: &mut Random, blocks: u64) -> ExpressionSequence {
    let pick = |random: &mut Random, of: u64| random.below(of);
    ExpressionSequence {
        begin: [None, None, None, Some(RequiredPathBegin::Entry), Some(RequiredPathBegin::Head)][pick(random, 5) as usize],
        before: random_gap(random, blocks),
        steps: (0..pick(random, 4)).map(|_| (random_place(random, blocks), random_gap(random, blocks))).collect(),
        end: [None, None, None, None, Some(RequiredPathEnd::Exit), Some(RequiredPathEnd::Back), Some(RequiredPathEnd::Call)]
            [pick(random, 7) as usize],
        never: (0..pick(random, 2)).map(|_| ExpressionPlace::Block(random.below(blocks) as u32)).collect(),
    }
}

fn contains_block(place: &ExpressionPlace, block: Node) -> bool {
    *place == ExpressionPlace::Any || *place == ExpressionPlace::Block(block.0)
}

fn allows(gap: &AllowedBlocksBetween, between: &[Node]) -> bool {
    match gap {
        AllowedBlocksBetween::Nothing => between.is_empty(),
        AllowedBlocksBetween::Without(places) => !between.iter().any(|b| places.iter().any(|p| contains_block(p, *b))),
    }
}

/// Returns true if the places from index `step` on can be assigned to blocks of the walk, given that the previous place was assigned to the
/// block at index `last` (`None` if `step` is 0).
fn can_assign(sequence: &ExpressionSequence, walk: &[Node], step: usize, last: Option<usize>) -> bool {
    let rest_after = |last: Option<usize>| last.map_or(walk, |l| &walk[l + 1..]);
    let before = match step {
        0 => &sequence.before,
        _ => &sequence.steps[step - 1].1,
    };
    let Some((place, _)) = sequence.steps.get(step) else {
        return match (step, before) {
            (0, AllowedBlocksBetween::Nothing) => true,
            _ => allows(before, rest_after(last)),
        };
    };
    (0..walk.len()).any(|at| {
        let fits = match last {
            None => allows(before, &walk[..at]),
            Some(last) if last == at => *place != ExpressionPlace::Any && sequence.steps[step - 1].0 != ExpressionPlace::Any,
            Some(last) => at > last && allows(before, &walk[last + 1..at]),
        };
        fits && contains_block(place, walk[at]) && can_assign(sequence, walk, step + 1, Some(at))
    })
}

fn matches_by_definition(sequence: &ExpressionSequence, function: &FunctionMap, walk: &DecodedPath) -> bool {
    let back = |edge| function.cuts.contains(&(edge, CutReason::Back));
    let begin = match sequence.begin {
        None => true,
        Some(RequiredPathBegin::Entry) => walk.beginning == PathStart::Entry,
        Some(RequiredPathBegin::Head) => matches!(walk.beginning, PathStart::After(e) if back(e)),
    };
    let end = match sequence.end {
        None => true,
        Some(RequiredPathEnd::Exit) => matches!(walk.end, Some(PathEnd::Exit(_) | PathEnd::Stop)),
        Some(RequiredPathEnd::Back) => matches!(walk.end, Some(PathEnd::Cut(e)) if back(e)),
        Some(RequiredPathEnd::Call) => walk.end.is_none(),
    };
    begin
        && end
        && !walk.blocks.iter().any(|b| sequence.never.iter().any(|p| contains_block(p, *b)))
        && can_assign(sequence, &walk.blocks, 0, None)
}

#[test]
fn matcher_finds_what_trying_all_assignments_finds() {
    let mut random = Random::new(7);
    let (mut matched, mut tried) = (0u64, 0u64);
    for round in 0..4000 {
        let subject = RandomFunction::random(&mut random, "f", 9);
        let blocks = subject.map.blocks.len() as u64;
        let pattern = |random: &mut Random| (0..1 + random.below(2)).map(|_| random_sequence(random, blocks)).collect::<Vec<_>>();
        let patterns = (0..1 + round % 2).map(|_| pattern(&mut random)).collect();
        let expression = PathExpression { function: None, patterns };
        let (matcher, walks) =
            (PathMatcher::new(&expression, &build_unit(), &subject.map), PathDecoder::from_function(&subject.map).unwrap());
        for id in (0..subject.map.counters).take(40) {
            let walk = walks.decode(id).unwrap();
            let should_match = expression.patterns.iter().any(|p| p.iter().all(|s| matches_by_definition(s, &subject.map, &walk)));
            let found = matcher.matches(&walk.blocks, walk.beginning, walk.end);
            assert_eq!(found, should_match, "{expression:?} on {walk:?}");
            (matched, tried) = (matched + u64::from(should_match), tried + 1);
        }
    }
    assert!(matched * 10 > tried && matched * 2 < tried, "{matched} of {tried}");
}

#[test]
fn places_in_no_block_are_reported() {
    let subject = RandomFunction::random(&mut Random::new(1), "f", 3);
    let expression: PathExpression = "b0 .. !b77 12 !inlined()".parse().unwrap();
    let unit = build_unit();
    let matcher = PathMatcher::new(&expression, &unit, &subject.map);
    assert_eq!(matcher.unmatched_places().len(), 3);
}
